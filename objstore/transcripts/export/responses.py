"""The `input` of a request to OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from objstore.transcripts.draft import extras_of, mapping, string
from objstore.transcripts.export.ids import call_ids
from objstore.transcripts.export.model import (
    ExportEntry,
    Losses,
    Written,
    arguments_text,
    base64_text,
    data_url,
    json_or_text,
    to_json,
)
from objstore.transcripts.responses_items import CLIENT_CALLS, SEPARATOR, SERVER_CALLS

_ROLES: Final = frozenset({"system", "developer", "user", "assistant"})
_HELD: Final = "instructions"


def write(chain: Sequence[ExportEntry], title: str | None = None) -> Written:
    """A request without a model: `{"input": […]}`, and `instructions` where they came that way."""
    losses = Losses()
    request: dict[str, Any] = {}
    first = chain[0] if chain else None
    if first is not None and _is_instructions(first):
        request["instructions"] = first.message.text
    writer = _Writer(losses, call_ids(chain, losses))
    items: list[dict[str, Any]] = []
    for number, entry in enumerate(chain):
        if not (number == 0 and request):
            items += writer.items(entry, number)
        if number and entry.message.role == "assistant" == chain[number - 1].message.role:
            losses.add("merged", number, "two answers in a row are read as one message")
    request["input"] = items
    losses.about(chain, title, held=_HELD)
    return to_json(request), losses


def _is_instructions(entry: ExportEntry) -> bool:
    parts = entry.message.parts
    return bool(entry.note.get("instructions")) and len(parts) == 1 and isinstance(parts[0], TextPart)


@dataclass(slots=True)
class _Writer:
    losses: Losses
    ids: Mapping[tuple[int, int], str]
    number: int = 0
    _made: list[dict[str, Any]] = field(default_factory=list)
    _group: tuple[Any, ...] | None = None
    _names: dict[str, str] = field(default_factory=dict)

    def items(self, entry: ExportEntry, number: int) -> list[dict[str, Any]]:
        """A message as items."""
        self.number, self._made, self._group = number, [], None
        for provider in entry.message.provider_metadata:
            self._lose("provider-metadata", provider)
        for index, part in enumerate(entry.message.parts):
            extras = extras_of(entry.note, index)
            if isinstance(part, TextPart | AttachmentPart) or (
                isinstance(part, UnknownPart) and entry.message.role != "assistant"
            ):
                self._say(entry.message.role, part, extras)
                continue
            self._group = None
            if isinstance(part, ReasoningPart):
                self._reasoning(part, extras)
            elif isinstance(part, ToolCallPart):
                self._call(part, entry.note, index)
            elif isinstance(part, ToolResultPart):
                self._result(part, extras, index)
            elif isinstance(part, UnknownPart):
                self._lose("unknown-part", "written as it is")
                self._made.append(part.to_dict())
        if not self._made:
            self._made.append({"role": self._role(entry.message.role), "content": []})
        return self._made

    def _lose(self, kind: str, text: str = "") -> None:
        self.losses.add(kind, self.number, text)

    def _lose_metadata(self, part: TextPart | ReasoningPart | ToolCallPart | ToolResultPart) -> None:
        lost = [key for key in part.provider_metadata if key != "openai"]
        if lost:
            self._lose("provider-metadata", ", ".join(lost))

    def _role(self, role: str) -> str:
        if role in _ROLES:
            return role
        self._lose("role", f"{role!r} written as 'user'")
        return "user"

    def _say(self, role: str, part: Part, extras: Mapping[str, Json]) -> None:
        answer = role == "assistant"
        phase = None
        if isinstance(part, TextPart):
            self._lose_metadata(part)
            known = mapping(part.provider_metadata.get("openai"))
            phase = string(known.get("phase"))
            block = _text_block(part, known, answer)
            if "logprobs" in extras:
                block["logprobs"] = thaw(extras["logprobs"])
        elif isinstance(part, AttachmentPart):
            if answer:
                self._lose("attachment", "an answer holds no files")
                return
            if part.attachment is None or (block := self._attachment(part.attachment, extras)) is None:  # type: ignore[assignment]
                return
        else:
            self._lose("unknown-part", "written as it is")
            block = part.to_dict()
        group = (extras.get("item"), phase)
        if self._group != group:
            self._group = group
            made: dict[str, Any] = {"type": "message", "role": self._role(role), "content": []}
            if isinstance(extras.get("item"), str):
                made["id"] = extras["item"]
            if extras.get("status") is not None:
                made["status"] = thaw(extras["status"])
            if phase is not None:
                made["phase"] = phase
            self._made.append(made)
        self._made[-1]["content"].append(block)

    def _attachment(self, attachment: Attachment, extras: Mapping[str, Json]) -> dict[str, Any] | None:
        media, url = attachment.type or "", attachment.url
        if attachment.has_content and url:
            self._lose("attachment-url", url)
        if media.startswith("image/"):
            where = data_url(attachment) if attachment.has_content else url
            if where is not None:
                key = "image_url" if attachment.has_content or ":" in where else "file_id"
                detail = string(extras.get("detail"))
                return {"type": "input_image", key: where, **({"detail": detail} if detail else {})}
        named = {"filename": attachment.path} if attachment.path else {}
        if attachment.has_content:
            if media.startswith("audio/"):
                form = media.removeprefix("audio/")
                return {"type": "input_audio", "input_audio": {"data": base64_text(attachment), "format": form}}
            data = data_url(attachment) if media else base64_text(attachment)
            return {"type": "input_file", "file_data": data, **named}
        if url:
            if media:
                self._lose("attachment-type", media)
            return {"type": "input_file", "file_url" if ":" in url else "file_id": url, **named}
        self._lose("attachment", attachment.path or "without bytes or a URL")
        return None

    def _reasoning(self, part: ReasoningPart, extras: Mapping[str, Json]) -> None:
        self._lose_metadata(part)
        known = mapping(part.provider_metadata.get("openai"))
        made: dict[str, Any] = {"type": "reasoning", "summary": []}
        if part.text:
            made["summary"] = [{"type": "summary_text", "text": part.text}]
        if cut := _cut(part.text, mapping(extras.get("lengths"))):
            made["summary"] = [{"type": "summary_text", "text": text} for text in cut[0]]
            if cut[1]:
                made["content"] = [{"type": "reasoning_text", "text": text} for text in cut[1]]
        made |= {key: known[key] for key in ("id", "encrypted_content") if key in known}
        if extras.get("status") is not None:
            made["status"] = thaw(extras["status"])
        if part.token_count is not None:
            self._lose("token-count", str(part.token_count))
        self._made.append(made)

    def _call(self, part: ToolCallPart, note: Mapping[str, Json], index: int) -> None:
        self._lose_metadata(part)
        extras = extras_of(note, index)
        known = dict(mapping(part.provider_metadata.get("openai")))
        kind, call_id = known.pop("type", None), self.ids[self.number, index]
        self._names[call_id] = part.name
        own = {key: thaw(extras[key]) for key in ("id", "status", "namespace") if extras.get(key) is not None}
        if kind in SERVER_CALLS or kind == "mcp_call":
            self._made.append(self._server_call(part, note, index, str(kind), known))
        elif kind in CLIENT_CALLS:
            member = CLIENT_CALLS[str(kind)][1]
            self._made.append(
                {"type": kind, **own, "call_id": call_id, member: thaw(part.arguments), **thaw(known)}
            )
        elif kind == "custom":
            text = arguments_text(part, note, index)
            self._made.append(
                {"type": "custom_tool_call", **own, "call_id": call_id, "name": part.name, "input": text}
            )
        else:
            if part.server_executed:
                self._lose("server-executed", "written as a function of the caller")
            text = arguments_text(part, note, index)
            self._made.append(
                {"type": "function_call", **own, "call_id": call_id, "name": part.name, "arguments": text}
            )

    def _server_call(
        self, part: ToolCallPart, note: Mapping[str, Json], index: int, kind: str, known: dict[str, Json]
    ) -> dict[str, Any]:
        made: dict[str, Any] = {"type": kind, "id": part.tool_call_id}
        if kind == "mcp_call":
            made |= {"name": part.name, "arguments": arguments_text(part, note, index)}
        elif kind == "web_search_call":
            made |= {"action": thaw(part.arguments)} if part.arguments else {}
        else:
            made |= thaw(part.arguments)
        floats = {key: thaw(value) for key, value in extras_of(note, index).items() if key != "arguments"}
        return {**made, **thaw(known), **floats}

    def _result(self, part: ToolResultPart, extras: Mapping[str, Json], index: int) -> None:
        self._lose_metadata(part)
        last = self._made[-1] if self._made else {}
        if part.server_executed and last.get("id") == part.tool_call_id:
            if last.get("type") == "mcp_call":
                last["output"] = part.output or None
                if part.exception is not None:
                    last["error"] = thaw(extras.get("error", part.exception))
                return
            if member := SERVER_CALLS.get(str(last.get("type")), ("", (), ""))[2]:
                image = part.attachments[0] if part.attachments else None
                last[member] = base64_text(image) if image is not None else json_or_text(part.output)
                return
        if part.server_executed:
            self._lose("server-executed", "written as a function of the caller")
        if part.exception is not None and part.exception != part.output:
            self._lose("exception", "that the tool failed is not said")
        output: Any = part.output or part.exception or ""
        kind = string(extras.get("item_type")) or "function_call_output"
        if extras.get("json"):
            output = json_or_text(output)
        elif kind == "computer_call_output" and part.attachments:
            made = self._attachment(part.attachments[0], {}) or {}
            output = {**made, "type": "computer_screenshot"}
        elif part.attachments:
            blocks = [self._attachment(attachment, {}) for attachment in part.attachments]
            output = [*([{"type": "input_text", "text": output}] if output else []), *filter(None, blocks)]
        own = {key: thaw(extras[key]) for key in ("id", "status") if extras.get(key) is not None}
        call_id = self.ids[self.number, index]
        if part.name != self._names.get(call_id, ""):
            self._lose("tool-name", part.name)
        more = thaw(mapping(extras.get("more")))
        self._made.append({"type": kind, **own, "call_id": call_id, "output": output, **more})


def _text_block(part: TextPart, known: Mapping[str, Json], answer: bool) -> dict[str, Any]:
    if known.get("refusal") is True:
        return {"type": "refusal", "refusal": part.text}
    if answer:
        return {"type": "output_text", "text": part.text, "annotations": thaw(known.get("annotations", []))}
    return {"type": "input_text", "text": part.text}


def _cut(text: str, lengths: Mapping[str, Json]) -> tuple[list[str], list[str]] | None:
    """The texts that a reasoning part was joined from, where what the note says of their lengths fits."""
    at, cut = 0, ([], [])  # type: tuple[int, tuple[list[str], list[str]]]
    for texts, key in zip(cut, ("summary", "content"), strict=True):
        for length in lengths.get(key, ()):
            if not isinstance(length, int) or length < 0:
                return None
            texts.append(text[at : at + length])
            at += length + len(SEPARATOR)
    return cut if lengths and SEPARATOR.join([*cut[0], *cut[1]]) == text else None
