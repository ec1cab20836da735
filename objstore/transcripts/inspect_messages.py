"""A message of an inspect_ai sample as a `Message`.

Long texts and images stand once in the sample's `attachments`, and as `attachment://<hash>` where they belong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from objstore.attachment import Attachment
from objstore.jsonvalue import Json
from objstore.limits import MAX_OBJECT_BYTES
from objstore.message import AttachmentPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart, UnknownPart
from objstore.transcripts.build import attachment_of_url, text_of
from objstore.transcripts.draft import Draft, mapping, sequence, string
from objstore.transcripts.warnings import Warner

PROVIDER: Final = "inspect"

_REFERENCE: Final = re.compile(r"attachment://([0-9a-fA-F]{32,64})")
_ABOUT: Final = ("id", "source", "model", "metadata")


@dataclass(slots=True)
class Attachments:
    """A sample's long texts by their hashes. `left` bounds the characters that all references may grow to."""

    texts: Mapping[str, Json]
    left: int = MAX_OBJECT_BYTES

    def filled(self, value: Json) -> Json:
        """A value with its references replaced by what they stand for. Its depth was checked."""
        if isinstance(value, str):
            return _REFERENCE.sub(self._one, value) if "attachment://" in value else value
        if isinstance(value, list):
            return [self.filled(each) for each in value]
        if isinstance(value, dict):
            return {key: self.filled(each) for key, each in value.items()}
        return value

    def _one(self, found: re.Match[str]) -> str:
        text = self.texts.get(found[1])
        if not isinstance(text, str) or len(text) > self.left:
            return found[0]
        self.left -= len(text)
        return text


def read_message(given: Mapping[str, Json], place: str, warn: Warner) -> Draft | None:
    """One message, or None with a warning."""
    role = string(given.get("role"))
    if not role:
        warn("missing-role", place, "")
        return None
    draft = Draft(role, place, warn)
    if role == "tool":
        _result(draft, given)
    else:
        calls = sequence(given.get("tool_calls"))
        if not (calls and given.get("content") == ""):  # how a message of calls alone is written
            _content(draft, given.get("content"))
        for call in calls:
            _call(draft, call)
    draft.note |= {key: given[key] for key in _ABOUT if given.get(key) is not None}
    return draft


def _content(draft: Draft, content: Json) -> None:
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, dict):
            _BLOCKS.get(str(block.get("type")), Draft.unknown)(draft, block)
        else:
            draft.text(block)


def _text(draft: Draft, block: Mapping[str, Json]) -> None:
    draft.extra(citations=block.get("citations") or None, internal=block.get("internal"))
    if isinstance(block.get("text"), str):
        draft.text(block["text"], {PROVIDER: {"refusal": True}} if block.get("refusal") is True else {})
    else:
        draft.unknown(block)


def _reasoning(draft: Draft, block: Mapping[str, Json]) -> None:
    redacted = block.get("redacted") is True
    text = string(block.get("reasoning")) or ""
    # A redacted block's text is what the provider encrypted; what can be read is its summary.
    known = {"signature": block.get("signature"), "data": text if redacted else None}
    metadata = draft.sendable(PROVIDER, known)
    shown = string(block.get("summary")) or "" if redacted else text
    draft.extra(internal=block.get("internal"), summary=None if redacted else block.get("summary"))
    draft.parts.append(ReasoningPart(shown, redacted=redacted, provider_metadata=metadata))


def _media(kind: str) -> Callable[[Draft, Mapping[str, Json]], None]:
    def read(draft: Draft, block: Mapping[str, Json]) -> None:
        url, form = string(block.get(kind)), string(block.get("format"))
        media = string(block.get("mime_type")) or (f"{kind}/{form or '*'}" if kind != "document" else None)
        attachment = attachment_of_url(url, media) if url else None
        if attachment is not None and (name := string(block.get("filename"))):
            attachment = Attachment(attachment.type, attachment.url, name, attachment.content)
        draft.extra(detail=block.get("detail"))
        draft.attach_or_keep(attachment, block)

    return read


def _tool_use(draft: Draft, block: Mapping[str, Json]) -> None:
    """A tool that the provider ran: the call and its result stand in one block."""
    name, call_id = string(block.get("name")) or "", string(block.get("id"))
    draft.extra(tool_type=block.get("tool_type"), context=block.get("context"))
    draft.call(name, block.get("arguments"), call_id, server=True)
    error = block.get("error")
    exception = None if error is None else text_of(error)
    draft.parts.append(ToolResultPart(name, text_of(block.get("result")), call_id, True, exception))


_BLOCKS: Final[Mapping[str, Callable[[Draft, Mapping[str, Json]], None]]] = {
    "text": _text,
    "reasoning": _reasoning,
    "tool_use": _tool_use,
    **{kind: _media(kind) for kind in ("image", "audio", "video", "document")},
}


def _call(draft: Draft, given: Json) -> None:
    call = mapping(given)
    name = string(call.get("function"))
    if name is None:
        draft.unknown(given)
        return
    draft.extra(parse_error=call.get("parse_error"), view=call.get("view"))
    draft.call(name, call.get("arguments"), string(call.get("id")))


def _result(draft: Draft, given: Mapping[str, Json]) -> None:
    inner = Draft("tool", draft.place, draft.warn_at)
    _content(inner, given.get("content"))
    texts = [part.text for part in inner.parts if isinstance(part, TextPart)]
    attached = [part.attachment for part in inner.parts if isinstance(part, AttachmentPart)]
    error = mapping(given.get("error"))
    failed = [text for text in (string(error.get("type")), string(error.get("message"))) if text]
    draft.parts.append(
        ToolResultPart(
            string(given.get("function")) or "",
            "\n".join(texts),
            string(given.get("tool_call_id")),
            exception=": ".join(failed) if error else None,
            attachments=[each for each in attached if each is not None],
        )
    )
    draft.parts += [part for part in inner.parts if isinstance(part, UnknownPart | ToolCallPart | ReasoningPart)]
