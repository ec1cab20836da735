"""Content blocks of Anthropic's Messages, which agents log as they are, as parts of a message.

What must go back to the provider is in provider_metadata under `anthropic`: a thinking block's `signature`, a
redacted one's `data`, `citations`, and the `type` of a block that a server tool made. A tool's failure
(`is_error`) is the result's `exception`. `cache_control` goes into the note.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from objstore.attachment import Attachment
from objstore.jsonvalue import Json
from objstore.message import ToolResultPart
from objstore.transcripts.build import attachment_of_base64, text_of
from objstore.transcripts.draft import Draft, mapping, string

PROVIDER: Final = "anthropic"
FAILED: Final = "error"
"""The `exception` of a result whose block says no more than that it is an error."""

_SERVER_CALLS: Final = frozenset({"server_tool_use", "mcp_tool_use"})
_BY_URL: Final = {"image": "image/*", "document": "application/pdf"}
_RESULT_SUFFIX: Final = "_tool_result"


class Names(Protocol):
    """The names of tools, by the ids of their calls: a dict, or what is read like one."""

    def get(self, call_id: str, default: str, /) -> str: ...


def read_content(draft: Draft, content: Json, names: Names) -> None:
    """Add the parts of a message's `content`: a string or blocks. `names` maps call ids to tools' names."""
    if isinstance(content, list):
        for block in content:
            read_block(draft, block, names)
    else:
        draft.text(content)


def read_block(draft: Draft, block: Json, names: Names) -> None:
    """Add the part of one block; one that isn't known is kept as it is."""
    if not isinstance(block, Mapping):
        draft.text(block)
        return
    kind = string(block.get("type")) or ""
    draft.extra(cache_control=block.get("cache_control"))
    if kind == "text" and isinstance(block.get("text"), str):
        draft.text(block["text"], draft.sendable(PROVIDER, {"citations": block.get("citations") or None}))
    elif kind == "thinking" and isinstance(block.get("thinking"), str):
        draft.reasoning(block["thinking"], draft.sendable(PROVIDER, {"signature": block.get("signature")}))
    elif kind == "redacted_thinking":
        draft.reasoning("", draft.sendable(PROVIDER, {"data": block.get("data")}), redacted=True)
    elif (kind == "tool_use" or kind in _SERVER_CALLS) and isinstance(block.get("name"), str):
        _call(draft, block, kind)
    elif kind == "tool_result" or (kind.endswith(_RESULT_SUFFIX) and "tool_use_id" in block):
        _result(draft, block, kind, names)
    elif kind in ("image", "document"):
        draft.extra(title=block.get("title"), context=block.get("context"), citations=block.get("citations"))
        draft.attach_or_keep(attachment_of_source(block.get("source"), _BY_URL[kind]), block)
    else:
        draft.unknown(block)


def attachment_of_source(source: Json, by_url: str | None = None) -> Attachment | None:
    """An image's or document's `source`, or None where there is nothing to attach (a file's id).

    `by_url` is the type of one that is given by its URL alone.
    """
    given = mapping(source)
    media_type = string(given.get("media_type"))
    data = given.get("data")
    if given.get("type") == "url" and isinstance(given.get("url"), str):
        return Attachment(media_type or by_url, url=given["url"])
    if given.get("type") == "text" and isinstance(data, str) and data:
        return Attachment(media_type or "text/plain", content=data.encode("utf-8", "surrogatepass"))
    return attachment_of_base64(data, media_type)


def _call(draft: Draft, block: Mapping[str, Json], kind: str) -> None:
    server = kind in _SERVER_CALLS
    known = {"type": kind if kind == "mcp_tool_use" else None, "server_name": block.get("server_name")}
    draft.extra(caller=block.get("caller"))
    draft.call(block["name"], block.get("input"), string(block.get("id")), draft.sendable(PROVIDER, known), server)


def _result(draft: Draft, block: Mapping[str, Json], kind: str, names: Names) -> None:
    call_id = string(block.get("tool_use_id"))
    server = kind != "tool_result"
    content = block.get("content")
    attachments: list[Attachment] = []
    # A server's result has to go back as it is: it holds encrypted parts.
    whole = server and kind != "mcp_tool_result"
    output = text_of(content) if whole else _output(content, attachments)
    part = ToolResultPart(
        names.get(call_id or "", "") or (kind.removesuffix(_RESULT_SUFFIX) if server else ""),
        output,
        call_id,
        server_executed=server,
        exception=FAILED if block.get("is_error") is True else None,
        attachments=attachments,
        provider_metadata=draft.sendable(PROVIDER, {"type": kind if server else None}),
    )
    draft.parts.append(part)


def _output(content: Json, attachments: list[Attachment]) -> str:
    """A result's text; its images and documents go into `attachments`."""
    if not isinstance(content, list):
        return text_of(content)
    texts: list[str] = []
    for block in content:
        given = mapping(block)
        attached = (
            attachment_of_source(given.get("source"), _BY_URL[given["type"]])
            if given.get("type") in ("image", "document")
            else None
        )
        if attached is not None:
            attachments.append(attached)
        elif given.get("type") == "text" and isinstance(given.get("text"), str):
            texts.append(given["text"])
        else:
            texts.append(text_of(block))
    return "\n".join(texts)
