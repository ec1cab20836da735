"""The `messages` of a chat request, as OpenAI and the many servers like it take them."""

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
from objstore.transcripts.chat_messages import AUDIO_TYPES
from objstore.transcripts.draft import extras_of, mapping, string
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

_ROLES: Final = frozenset({"system", "developer", "user", "assistant"})
_FORMATS: Final = {media: form for form, media in AUDIO_TYPES.items()}
_HELD: Final = "weight"


def write(chain: Sequence[ExportEntry], title: str | None = None) -> Written:
    """A request without a model: `{"messages": […]}`."""
    losses = Losses()
    writer = _Writer(losses)
    messages = [made for number, entry in enumerate(chain) for made in writer.messages(entry, number)]
    losses.about(chain, title, held=_HELD)
    return to_json({"messages": messages}), losses


def _rank(part: Part) -> int:
    return 0 if isinstance(part, ReasoningPart) else 2 if isinstance(part, ToolCallPart) else 1


@dataclass(slots=True)
class _Writer:
    losses: Losses
    names: dict[str, str] = field(default_factory=dict)
    number: int = 0

    def messages(self, entry: ExportEntry, number: int) -> list[dict[str, Any]]:
        """A message as chat messages: each tool result is one of its own."""
        self.number = number
        note, made = entry.note, []
        said: list[tuple[int, Part]] = []
        for index, part in enumerate(entry.message.parts):
            if isinstance(part, ToolResultPart):
                if said:
                    made.append(self._said(entry, said))
                    said = []
                made.append(self._result(part, extras_of(note, index)))
            else:
                said.append((index, part))
        if said or not made:
            made.append(self._said(entry, said))
        if made and note.get("weight") is not None:
            made[0]["weight"] = thaw(note["weight"])
        return made

    def _lose(self, kind: str, text: str = "") -> None:
        self.losses.add(kind, self.number, text)

    def _result(self, part: ToolResultPart, extras: Mapping[str, Json]) -> dict[str, Any]:
        if part.exception is not None and part.exception != part.output:
            self._lose("exception", "that the tool failed is not said")
        if part.server_executed:
            self._lose("server-executed", "written as a tool of the caller")
        if part.provider_metadata:
            self._lose("provider-metadata", ", ".join(part.provider_metadata))
        output: Any = part.output or (part.exception or "")
        if extras.get("json"):
            output = json_or_text(output)
        if part.attachments:
            blocks = [self._attachment(attachment, {}) for attachment in part.attachments]
            output = [*([{"type": "text", "text": output}] if output else []), *filter(None, blocks)]
        if part.tool_call_id is None:
            return {"role": "function", "name": part.name, "content": output}
        made = {"role": "tool", "tool_call_id": part.tool_call_id, "content": output}
        if part.name != self.names.get(part.tool_call_id, ""):
            made["name"] = part.name
        return made

    def _said(self, entry: ExportEntry, said: list[tuple[int, Part]]) -> dict[str, Any]:
        role = entry.message.role
        if role not in _ROLES:
            as_role = "assistant" if any(isinstance(part, ToolCallPart) for _, part in said) else "user"
            self._lose("role", f"{role!r} written as {as_role!r}")
            role = as_role
        made: dict[str, Any] = {"role": role}
        self._metadata(entry, made)
        content: list[Any] = []
        ranks = [_rank(part) for _, part in said]
        if ranks != sorted(ranks):
            self._lose("part-order", "text before tool calls, reasoning before both")
        for index, part in said:
            extras = extras_of(entry.note, index)
            if isinstance(part, TextPart):
                self._text(part, extras, made, content, alone=len(said) == 1)
            elif isinstance(part, AttachmentPart):
                self._attached(part, extras, made, content)
            elif isinstance(part, ReasoningPart):
                self._reasoning(part, extras, made)
            elif isinstance(part, ToolCallPart):
                self._call(part, entry.note, index, made)
            elif isinstance(part, UnknownPart):
                self._lose("unknown-part", "written as it is")
                content.append(part.to_dict())
        if len(content) == 1 and set(content[0]) == {"type", "text"} and content[0]["type"] == "text":
            made["content"] = content[0]["text"]
        else:
            made["content"] = content or None
        return made

    def _metadata(self, entry: ExportEntry, made: dict[str, Any]) -> None:
        lost = []
        for provider, values in entry.message.provider_metadata.items():
            known = mapping(values)
            if provider == "openai" and set(known) == {"name"}:
                made["name"] = known["name"]
            elif provider == "openrouter" and set(known) == {"reasoning_details"}:
                made["reasoning_details"] = thaw(known["reasoning_details"])
            else:
                lost.append(provider)
        if lost:
            self._lose("provider-metadata", ", ".join(lost))

    def _text(
        self, part: TextPart, extras: Mapping[str, Json], made: dict[str, Any], content: list[Any], alone: bool
    ) -> None:
        known = mapping(part.provider_metadata.get("openai"))
        if "audio_id" in known:
            made["audio"] = {"id": known["audio_id"]}
            if part.text:
                made["audio"]["transcript"] = part.text
        elif known.get("refusal") is True:
            if alone or extras.get("field") == "refusal":
                made["refusal"] = part.text
            else:
                content.append({"type": "refusal", "refusal": part.text})
        else:
            if part.provider_metadata:
                self._lose("provider-metadata", ", ".join(part.provider_metadata))
            cached = {"cache_control": thaw(extras["cache_control"])} if "cache_control" in extras else {}
            content.append({"type": "text", "text": part.text, **cached})

    def _attached(
        self, part: AttachmentPart, extras: Mapping[str, Json], made: dict[str, Any], content: list[Any]
    ) -> None:
        attachment = part.attachment
        if attachment is not None and "audio" in made and "data" not in made["audio"] and attachment.has_content:
            made["audio"]["data"] = base64_text(attachment)
        elif attachment is not None and (block := self._attachment(attachment, extras)):
            content.append(block)

    def _attachment(self, attachment: Attachment, extras: Mapping[str, Json]) -> dict[str, Any] | None:
        media, url = attachment.type or "", attachment.url
        about = {key: thaw(extras[key]) for key in ("cache_control",) if key in extras}
        if attachment.has_content and url:
            self._lose("attachment-url", url)
        if attachment.has_content and (media in _FORMATS or media.startswith("audio/")):
            form = _FORMATS.get(media, media.removeprefix("audio/"))
            return {"type": "input_audio", "input_audio": {"data": base64_text(attachment), "format": form}}
        detail = {"detail": extras["detail"]} if string(extras.get("detail")) else {}
        if media.startswith("image/") and (attachment.has_content or url):
            where = data_url(attachment) if attachment.has_content else url
            return {"type": "image_url", "image_url": {"url": where, **detail}, **about}
        named = {"filename": attachment.path} if attachment.path else {}
        if attachment.has_content:
            data = data_url(attachment) if attachment.type else base64_text(attachment)
            return {"type": "file", "file": {"file_data": data, **named}}
        if url and "://" in url:
            self._lose("attachment", f"a file by its URL, written as text: {url}")
            return {"type": "text", "text": url}
        if url:
            return {"type": "file", "file": {"file_id": url, **named}}
        self._lose("attachment", attachment.path or "without bytes or a URL")
        return None

    def _reasoning(self, part: ReasoningPart, extras: Mapping[str, Json], made: dict[str, Any]) -> None:
        name = string(extras.get("field"))
        if name is None:
            self._lose("reasoning", "left out" if not part.redacted else "left out (encrypted)")
        else:
            made[name] = part.text

    def _call(self, part: ToolCallPart, note: Mapping[str, Json], index: int, made: dict[str, Any]) -> None:
        known = dict(mapping(part.provider_metadata.get("openai")))
        lost = [key for key in part.provider_metadata if key != "openai"]
        if lost:
            self._lose("provider-metadata", ", ".join(lost))
        if part.server_executed:
            self._lose("server-executed", "written as a tool of the caller")
        arguments = arguments_text(part, note, index)
        if part.tool_call_id is None and "function_call" not in made and "tool_calls" not in made:
            made["function_call"] = {"name": part.name, "arguments": arguments}
            return
        call_id = part.tool_call_id
        if call_id is None:
            call_id = f"call_{self.number}_{index}"
            self._lose("tool-call-id", f"made up: {call_id}")
        self.names[call_id] = part.name
        call: dict[str, Any] = {"id": call_id}
        if known.pop("type", None) == "custom":
            call |= {"type": "custom", "custom": {"name": part.name, "input": arguments}}
        else:
            call |= {"type": "function", "function": {"name": part.name, "arguments": arguments}}
        made.setdefault("tool_calls", []).append({**call, **thaw(known)})
