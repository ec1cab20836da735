"""What a message of a ChatGPT export says: its content, by `content_type`, as parts.

A message to a tool (its recipient isn't `all`) is a call, one from a tool a result. They have no id; they
pair by their place in the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from objstore.attachment import Attachment
from objstore.jsonvalue import Json, loads_exactly
from objstore.message import RAW_ARGUMENTS, ToolCallPart, ToolResultPart
from objstore.transcripts.assets import Assets, types_by_id
from objstore.transcripts.draft import Draft, mapping, sequence, string
from objstore.transcripts.exports import kept_fields
from objstore.transcripts.warnings import Warner
from refs.errors import InvalidValue

HIDDEN_TYPES: Final = frozenset({"user_editable_context", "model_editable_context"})
"""What the service puts into the conversation and doesn't show."""

_POINTERS: Final = frozenset(
    {"image_asset_pointer", "audio_asset_pointer", "video_container_asset_pointer", "video_asset_pointer"}
)

Piece = tuple[str, Any]
"""What content consists of: its kind ("text", "spoken", "reasoning", "file" or "unknown"), and its value."""


def fill(draft: Draft, message: Mapping[str, Json], assets: Assets, warn: Warner) -> None:
    """Put the parts of a message into `draft`: none where it has no content."""
    content = message.get("content")
    pieces = [("text", content)] if isinstance(content, str) else list(_pieces(mapping(content)))
    attached = sequence(mapping(message.get("metadata")).get("attachments"))
    files = _Files(draft, assets, attached, warn)
    recipient = string(message.get("recipient"))
    if draft.role == "tool":
        _result(draft, string(mapping(message.get("author")).get("name")) or "", mapping(content), pieces, files)
    elif draft.role == "assistant" and recipient and recipient != "all":
        _call(draft, recipient, mapping(content), pieces, files)
    else:
        for kind, value in pieces:
            _add(draft, kind, value, files)
    files.attach_rest()


class _Files:
    """Makes attachments of pointers. Uploads that no pointer names are attached at the end."""

    def __init__(self, draft: Draft, assets: Assets, attached: Sequence[Json], warn: Warner) -> None:
        self._draft, self._assets, self._attached, self._warn = draft, assets, attached, warn
        self._types = types_by_id(attached)
        self._pointed: set[str] = set()

    def make(self, pointer: Mapping[str, Json]) -> Attachment | None:
        url = string(pointer.get("asset_pointer"))
        if not url:
            return None
        # sediment://<conversation>#file_<id>#<page>.jpg names a page of a file.
        file_id = url.partition("://")[2] or url
        file_id = next((each for each in file_id.split("#") if each.startswith("file")), file_id)
        self._pointed.add(file_id)
        form = string(pointer.get("format"))
        kind = self._types.get(file_id) or string(pointer.get("mime_type"))
        if kind is None and form and pointer.get("content_type") == "audio_asset_pointer":
            kind = f"audio/{form}"
        return self._assets.attachment(url, file_id, kind, None, self._warn, self._draft.place)

    def attach_rest(self) -> None:
        for each in self._attached:
            file_id = string(mapping(each).get("id"))
            if not file_id or file_id in self._pointed:
                continue
            self._pointed.add(file_id)
            self._draft.extra(upload=True)
            name, kind = string(each.get("name")), self._types.get(file_id)
            url = f"file-service://{file_id}"
            self._draft.attach(self._assets.attachment(url, file_id, kind, name, self._warn, self._draft.place))


def _add(draft: Draft, kind: str, value: Any, files: _Files) -> None:
    if kind == "text":
        draft.text(value)
    elif kind == "spoken":
        draft.extra(transcription=kept_fields(value, {"text"}))
        draft.text(value["text"])
    elif kind == "reasoning":
        draft.extra(summary=value.get("summary"))
        draft.reasoning(value["text"])
    elif kind == "file" and (attachment := files.make(value)) is not None:
        draft.extra(pointer=value)
        draft.attach(attachment)
    else:
        draft.unknown(value)


def _call(draft: Draft, name: str, content: Mapping[str, Json], pieces: list[Piece], files: _Files) -> None:
    written = "\n".join(value for kind, value in pieces if kind == "text")
    draft.extra(language=content.get("language"))
    draft.parts.append(ToolCallPart(name, _arguments(draft, written)))
    for kind, value in pieces:
        if kind != "text":
            _add(draft, kind, value, files)


def _arguments(draft: Draft, written: str) -> Mapping[str, Json]:
    """An object where the text is one. Code and search words are free text, which is nothing to tell."""
    if not written:
        return {}
    try:
        value = loads_exactly(written.encode("utf-8", "surrogatepass"))
    except InvalidValue:
        value = None
        if written.lstrip().startswith('{"'):
            draft.warn("invalid-arguments")
    return value if isinstance(value, dict) else {RAW_ARGUMENTS: written}


def _result(draft: Draft, name: str, content: Mapping[str, Json], pieces: list[Piece], files: _Files) -> None:
    if not pieces:
        return
    attachments, pointers, rest = [], [], []
    for kind, value in pieces:
        attachment = files.make(value) if kind == "file" else None
        if attachment is not None:
            attachments.append(attachment)
            pointers.append(value)
        elif kind != "text":
            rest.append((kind, value))
    exception = None
    if content.get("content_type") == "system_error":
        exception = string(content.get("name")) or "error"
    about = {key: content.get(key) for key in ("url", "domain", "title", "tether_id", "state") if content.get(key)}
    draft.extra(content=about or None, pointers=pointers or None)
    output = "\n".join(value for kind, value in pieces if kind == "text")
    draft.parts.append(ToolResultPart(name, output, exception=exception, attachments=attachments))
    for kind, value in rest:
        _add(draft, kind, value, files)


# -- content by type ------------------------------------------------------------------------------


def _pieces(content: Mapping[str, Json]) -> Iterator[Piece]:
    kind = content.get("content_type")
    if kind is None:
        kind = "text"
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is not None:
        yield from reader(content)
    else:
        yield "unknown", content


def _parts(content: Mapping[str, Json]) -> Iterator[Piece]:
    if "parts" not in content:
        yield from _texts("text")(content)
    for part in sequence(content.get("parts")):
        yield from _part(part)


def _part(part: Json) -> Iterator[Piece]:
    kind = string(mapping(part).get("content_type"))
    if isinstance(part, str):
        yield "text", part
    elif part is None:
        return
    elif kind == "audio_transcription" and isinstance(part.get("text"), str):
        yield "spoken", part
    elif kind == "real_time_user_audio_video_asset_pointer":
        frames = sequence(part.get("frames_asset_pointers"))
        for each in (part.get("audio_asset_pointer"), part.get("video_container_asset_pointer"), *frames):
            if isinstance(each, str):
                yield "file", {"asset_pointer": each}
            elif each:
                yield "file", mapping(each)
    elif kind in _POINTERS:
        yield "file", part
    else:
        yield "unknown", part


def _texts(*names: str) -> Callable[[Mapping[str, Json]], Iterator[Piece]]:
    """A reader that takes the first of these members that holds text."""

    def read(content: Mapping[str, Json]) -> Iterator[Piece]:
        for name in names:
            value = content.get(name)
            if isinstance(value, str):
                yield "text", value
                return

    return read


def _thoughts(content: Mapping[str, Json]) -> Iterator[Piece]:
    for thought in sequence(content.get("thoughts")):
        found = mapping(thought)
        summary, words = string(found.get("summary")), string(found.get("content"))
        if words or summary:
            yield "reasoning", {"text": words or summary, "summary": summary if words else None}
        else:
            yield "unknown", thought
    yield from (("reasoning", {"text": part}) for part in sequence(content.get("parts")) if isinstance(part, str))


def _recap(content: Mapping[str, Json]) -> Iterator[Piece]:
    for part in (content.get("content"), *sequence(content.get("parts"))):
        if isinstance(part, str):
            yield "reasoning", {"text": part}


def _context(content: Mapping[str, Json]) -> Iterator[Piece]:
    for name in ("user_profile", "user_instructions", "model_set_context"):
        value = content.get(name)
        if isinstance(value, str) and value:
            yield "text", value
    yield from _parts(content) if "parts" in content else ()


def _screen(content: Mapping[str, Json]) -> Iterator[Piece]:
    yield "text", ""
    if isinstance(content.get("screenshot"), dict):
        yield "file", content["screenshot"]


_READERS: Final[Mapping[str, Callable[[Mapping[str, Json]], Iterator[Piece]]]] = {
    "text": _parts,
    "multimodal_text": _parts,
    "code": _texts("text"),
    "execution_output": _texts("text"),
    "system_error": _texts("text"),
    "tether_quote": _texts("text"),
    "sonic_webpage": _texts("text", "snippet"),
    "tether_browsing_display": _texts("result", "summary"),
    "citable_code_output": _texts("output_str"),
    "computer_output": _screen,
    "thoughts": _thoughts,
    "reasoning_recap": _recap,
    "user_editable_context": _context,
    "model_editable_context": _context,
}
