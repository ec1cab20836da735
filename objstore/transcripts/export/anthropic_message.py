"""A message as one of Anthropic's: shared by the writers of requests and of Claude Code's sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from objstore.attachment import Attachment
from objstore.jsonvalue import Json, thaw
from objstore.message import (
    AttachmentPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
)
from objstore.transcripts.anthropic_blocks import FAILED, PROVIDER
from objstore.transcripts.draft import extras_of, mapping, string
from objstore.transcripts.export.model import ExportEntry, Losses, base64_text, json_or_text

_SERVER_RESULT: Final = "_tool_result"


@dataclass(slots=True)
class BlockWriter:
    """Writes the blocks of a chain's messages. `ids` are the calls' and results', by message and part.

    `names` are the tools of the calls, where they are not taken from the calls written so far.
    """

    losses: Losses
    ids: Mapping[tuple[int, int], str]
    number: int = 0
    names: Mapping[str, str] | None = None
    _names: dict[str, str] = field(default_factory=dict)

    def blocks(self, entry: ExportEntry, number: int) -> list[dict[str, Any]]:
        """The blocks of a message."""
        self.number = number
        for provider in entry.message.provider_metadata:
            self._lose("provider-metadata", provider)
        made = []
        for index, part in enumerate(entry.message.parts):
            extras = extras_of(entry.note, index)
            block = self._block(part, extras, index)
            if block is not None:
                made.append(block)
                if "cache_control" in extras and "cache_control" not in block:
                    block["cache_control"] = thaw(extras["cache_control"])
        return made

    def _lose(self, kind: str, text: str = "") -> None:
        self.losses.add(kind, self.number, text)

    def _known(self, part: TextPart | ReasoningPart | ToolCallPart | ToolResultPart) -> Mapping[str, Json]:
        lost = [key for key in part.provider_metadata if key != PROVIDER]
        if lost:
            self._lose("provider-metadata", ", ".join(lost))
        return mapping(part.provider_metadata.get(PROVIDER))

    def _block(self, part: Part, extras: Mapping[str, Json], index: int) -> dict[str, Any] | None:
        if isinstance(part, TextPart):
            known = self._known(part)
            cited = {"citations": thaw(known["citations"])} if "citations" in known else {}
            return {"type": "text", "text": part.text, **cited}
        if isinstance(part, ReasoningPart):
            return self._thinking(part)
        if isinstance(part, ToolCallPart):
            return self._call(part, extras, index)
        if isinstance(part, ToolResultPart):
            return self._result(part, index)
        if isinstance(part, AttachmentPart):
            about = {key: thaw(extras[key]) for key in ("title", "context", "citations") if key in extras}
            block = self._attachment(part.attachment) if part.attachment is not None else None
            return {**block, **about} if block is not None else None
        self._lose("unknown-part", "written as it is")
        return part.to_dict() if isinstance(part, UnknownPart) else None

    def _thinking(self, part: ReasoningPart) -> dict[str, Any] | None:
        known = self._known(part)
        if part.token_count is not None:
            self._lose("token-count", str(part.token_count))
        if part.redacted and "data" in known:
            return {"type": "redacted_thinking", "data": known["data"]}
        if part.redacted:
            self._lose("reasoning", "encrypted by another provider")
            return None
        signed = {"signature": known["signature"]} if "signature" in known else {}
        if not signed:
            self._lose("signature", "thinking without one is refused when it is sent")
        return {"type": "thinking", "thinking": part.text, **signed}

    def _call(self, part: ToolCallPart, extras: Mapping[str, Json], index: int) -> dict[str, Any]:
        known = dict(self._known(part))
        kind = known.pop("type", None) or ("server_tool_use" if part.server_executed else "tool_use")
        called = {"caller": thaw(extras["caller"])} if "caller" in extras else {}
        call_id, given = self.ids[self.number, index], thaw(part.arguments)
        self._names[call_id] = part.name
        return {"type": kind, "id": call_id, "name": part.name, "input": given, **thaw(known), **called}

    def _result(self, part: ToolResultPart, index: int) -> dict[str, Any]:
        kind = string(self._known(part).get("type")) or "tool_result"
        call_id = self.ids[self.number, index]
        made: dict[str, Any] = {"type": kind, "tool_use_id": call_id}
        names = self._names if self.names is None else self.names
        if part.name != names.get(call_id, "") and not part.server_executed:
            self._lose("tool-name", part.name)
        if part.server_executed and kind.endswith(_SERVER_RESULT) and kind != "mcp_tool_result":
            made["content"] = json_or_text(part.output)
        else:
            if part.server_executed and kind == "tool_result":
                self._lose("server-executed", "written as a tool of the caller")
            made["content"] = self._output(part, kind)
        if part.exception is not None:
            made["is_error"] = True
            if part.exception not in (FAILED, part.output):
                self._lose("exception", part.exception)
        return made

    def _output(self, part: ToolResultPart, kind: str) -> Any:
        text = part.output
        if not text and part.exception not in (None, FAILED):
            text = part.exception or ""
        blocks = [block for block in map(self._attachment, part.attachments) if block is not None]
        if blocks or kind == "mcp_tool_result":
            return [*([{"type": "text", "text": text}] if text else []), *blocks]
        return text

    def _attachment(self, attachment: Attachment) -> dict[str, Any] | None:
        media, url = attachment.type, attachment.url
        if attachment.path:
            self._lose("attachment-path", attachment.path)
        if attachment.has_content and url:
            self._lose("attachment-url", url)
        block = "document" if media and not media.startswith("image/") else "image"
        if attachment.has_content:
            text = _plain_text(attachment) if media == "text/plain" else None
            if text is not None:
                return {"type": block, "source": {"type": "text", "media_type": media, "data": text}}
            typed = {"media_type": media} if media else {}
            return {"type": block, "source": {"type": "base64", **typed, "data": base64_text(attachment)}}
        if url:
            if media not in (None, "image/*", "application/pdf"):
                self._lose("attachment-type", str(media))
            return {"type": block, "source": {"type": "url", "url": url}}
        self._lose("attachment", "without bytes or a URL")
        return None


def _plain_text(attachment: Attachment) -> str | None:
    try:
        return (attachment.content or b"").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


def short(blocks: list[dict[str, Any]]) -> Any:
    """A single plain text is written as a string."""
    plain = len(blocks) == 1 and set(blocks[0]) == {"type", "text"}
    return blocks[0]["text"] if plain and blocks[0]["type"] == "text" else blocks
