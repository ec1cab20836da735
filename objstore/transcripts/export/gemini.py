"""A request to Gemini's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from objstore.transcripts.build import text_of
from objstore.transcripts.draft import extras_of, mapping, string
from objstore.transcripts.export.model import ExportEntry, Losses, Written, base64_text, json_or_text, to_json
from objstore.transcripts.gemini_parts import CODE, OK, PROVIDER, SIGNATURE

_ROLES: Final = {"user": "user", "assistant": "model", "tool": "user"}
_BESIDE: Final = ("videoMetadata", "mediaResolution", "partMetadata")
_HELD: Final = "role"


def write(chain: Sequence[ExportEntry], title: str | None = None) -> Written:
    """A request without a model: `{"systemInstruction": …, "contents": […]}`."""
    losses = Losses()
    writer = _Writer(losses)
    request: dict[str, Any] = {}
    contents = []
    for number, entry in enumerate(chain):
        role, parts = entry.message.role, writer.parts(entry, number)
        if role == "system" and number == 0:
            request["systemInstruction"] = {"parts": parts}
            continue
        if role not in _ROLES:
            losses.add("role", number, f"{role!r} written as 'user'")
        answers = any("functionResponse" in part for part in parts)
        if answers != (role == "tool"):
            losses.add("role", number, f"{role!r} is read as {'tool' if answers else 'user'!r}")
        as_role = string(entry.note.get("role")) if answers else None
        contents.append({"role": as_role or _ROLES.get(role, "user"), "parts": parts})
    request["contents"] = contents
    losses.about(chain, title, held=_HELD)
    return to_json(request), losses


@dataclass(slots=True)
class _Writer:
    losses: Losses
    number: int = 0

    def parts(self, entry: ExportEntry, number: int) -> list[dict[str, Any]]:
        """The parts of a message."""
        self.number = number
        for provider in entry.message.provider_metadata:
            self._lose("provider-metadata", provider)
        made = []
        for index, part in enumerate(entry.message.parts):
            extras = extras_of(entry.note, index)
            if (written := self._part(part, extras)) is not None:
                made.append({**written, **{key: thaw(extras[key]) for key in _BESIDE if key in extras}})
        return made

    def _lose(self, kind: str, text: str = "") -> None:
        self.losses.add(kind, self.number, text)

    def _signed(self, part: TextPart | ReasoningPart | ToolCallPart | ToolResultPart) -> dict[str, Any]:
        lost = [key for key in part.provider_metadata if key != PROVIDER]
        known = mapping(part.provider_metadata.get(PROVIDER))
        lost += [f"{PROVIDER}.{key}" for key in known if key != SIGNATURE]
        if lost:
            self._lose("provider-metadata", ", ".join(lost))
        return {"thoughtSignature": thaw(known[SIGNATURE])} if SIGNATURE in known else {}

    def _part(self, part: Part, extras: Mapping[str, Json]) -> dict[str, Any] | None:
        if isinstance(part, TextPart):
            return {"text": part.text, **self._signed(part)}
        if isinstance(part, ReasoningPart):
            if part.token_count is not None:
                self._lose("token-count", str(part.token_count))
            signed = self._signed(part)
            if part.redacted and not signed:
                self._lose("reasoning", "encrypted by another provider")
                return None
            return {"text": part.text, "thought": True, **signed}
        if isinstance(part, ToolCallPart):
            return self._call(part)
        if isinstance(part, ToolResultPart):
            return self._result(part, extras)
        if isinstance(part, AttachmentPart):
            signed = {"thoughtSignature": thaw(extras["signature"])} if "signature" in extras else {}
            written = self._attachment(part.attachment) if part.attachment is not None else None
            return {**written, **signed} if written is not None else None
        self._lose("unknown-part", "written as it is")
        return part.to_dict() if isinstance(part, UnknownPart) else None

    def _call(self, part: ToolCallPart) -> dict[str, Any]:
        signed = self._signed(part)
        named = {"id": part.tool_call_id} if part.tool_call_id is not None else {}
        if part.server_executed and part.name == CODE:
            return {"executableCode": {**named, **thaw(part.arguments)}, **signed}
        if part.server_executed:
            self._lose("server-executed", "written as a function of the caller")
        return {"functionCall": {**named, "name": part.name, "args": thaw(part.arguments)}, **signed}

    def _result(self, part: ToolResultPart, extras: Mapping[str, Json]) -> dict[str, Any]:
        signed = self._signed(part)
        named = {"id": part.tool_call_id} if part.tool_call_id is not None else {}
        if part.server_executed and part.name == CODE:
            result = {"outcome": part.exception or OK, "output": part.output}
            return {"codeExecutionResult": {**named, **result}, **signed}
        if part.server_executed:
            self._lose("server-executed", "written as a function of the caller")
        answer = {
            **named,
            "name": part.name,
            "response": _response(part, extras),
            **thaw(mapping(extras.get("more"))),
        }
        if attached := [made for made in map(self._attachment, part.attachments) if made is not None]:
            answer["parts"] = attached
        return {"functionResponse": answer, **signed}

    def _attachment(self, attachment: Attachment) -> dict[str, Any] | None:
        named = {"displayName": attachment.path} if attachment.path else {}
        typed = {"mimeType": attachment.type} if attachment.type else {}
        if attachment.has_content:
            if attachment.url:
                self._lose("attachment-url", attachment.url)
            return {"inlineData": {**typed, "data": base64_text(attachment), **named}}
        if attachment.url:
            return {"fileData": {**typed, "fileUri": attachment.url, **named}}
        self._lose("attachment", attachment.path or "without bytes or a URL")
        return None


def _response(part: ToolResultPart, extras: Mapping[str, Json]) -> Json:
    """A result as the object that Gemini wants: the JSON that it is, or wrapped."""
    if part.exception is not None:
        wrapped = {"output": part.output} if part.output or extras.get("empty") else {}
        return {**wrapped, "error": part.exception}
    value = json_or_text(part.output)
    same = not isinstance(value, str) and text_of(value) == part.output
    if extras.get("bare"):
        return value if same else part.output
    if same and isinstance(value, dict) and not set(value) <= {"output", "error"}:
        return value
    return {"output": part.output}
