"""One message of OpenAI's chat shape, which many programs write with small differences, as a `Message`.

A tool result is a message of role `tool`, named after the call that it answers. What must go back to the
provider is in provider_metadata under `openai` (or `openrouter`): a participant's `name`, `refusal`, the id
of an answer's `audio`, a custom tool's `type`, a `reasoning_details` list. The rest is in the note.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from objstore.attachment import Attachment
from objstore.jsonvalue import EMPTY, Json, loads
from objstore.message import RAW_ARGUMENTS, AttachmentPart, TextPart, ToolCallPart, ToolResultPart, UnknownPart
from objstore.transcripts.build import attachment_of_base64, attachment_of_url, text_of, time_of
from objstore.transcripts.draft import Draft, holds_float, mapping, sequence, string
from objstore.transcripts.warnings import Warner
from refs.errors import InvalidValue

AUDIO_TYPES: Final = {"mp3": "audio/mpeg", "wav": "audio/wav"}
"""The media types of `input_audio`'s formats; any other format is `audio/<format>`."""

REASONING_FIELDS: Final = ("reasoning_content", "reasoning")
"""Where servers that speak this shape put what the model thought."""

_HANDLED: Final = frozenset(
    ("role", "content", "name", "refusal", "audio", "timestamp", "created_at", "created", *REASONING_FIELDS)
).union(("tool_calls", "function_call", "tool_name", "tool_call_id", "reasoning_details"))
_KEPT_BY_NAME: Final = ("id", "weight", "model", "finish_reason", "annotations", "lossy")


def read_chat_message(given: Mapping[str, Json], place: str, warn: Warner, names: dict[str, str]) -> Draft | None:
    """One message, or None with a warning. `names` maps call ids to tools; this message's calls go in."""
    role = given.get("role")
    if not isinstance(role, str) or not role:
        warn("missing-role", place, "")
        return None
    draft = Draft("tool" if role == "function" else role, place, warn)
    if draft.role == "tool":
        _tool_result(draft, given, names)
    else:
        _said(draft, given, names)
    _about(draft, given)
    return draft


def _about(draft: Draft, given: Mapping[str, Json]) -> None:
    for key in _KEPT_BY_NAME:
        if given.get(key) is not None:
            draft.note[key] = given[key]
    if more := {key: value for key, value in given.items() if key not in _HANDLED and key not in _KEPT_BY_NAME}:
        draft.note["more"] = more


def time_in(given: Mapping[str, Json]) -> str | None:
    """When a message says it was made, where it does."""
    for key in ("timestamp", "created_at", "created"):
        if given.get(key) is not None:
            return time_of(given[key])
    return None


def _said(draft: Draft, given: Mapping[str, Json], names: dict[str, str]) -> None:
    if name := string(given.get("name")):
        draft.metadata["openai"] = {"name": name}
    thought = False
    for field in REASONING_FIELDS:
        text = string(given.get(field))
        if text and not thought:  # servers that fill both say the same in both
            thought = True
            draft.extra(field=field)
            draft.reasoning(text)
    if details := given.get("reasoning_details"):
        if holds_float(details):
            draft.note["reasoning_details"] = details
        else:
            draft.metadata["openrouter"] = {"reasoning_details": details}
    content(draft, given.get("content"))
    if (refusal := given.get("refusal")) is not None:
        draft.extra(field="refusal")
        draft.text(refusal, {"openai": {"refusal": True}})
    if isinstance(audio := given.get("audio"), dict):
        _answered_aloud(draft, audio)
    _calls(draft, given, names)


def content(draft: Draft, given: Json) -> None:
    """A message's `content`: a string, a list of blocks, or nothing."""
    if isinstance(given, list):
        for block in given:
            if isinstance(block, str):
                draft.text(block)
            else:
                _BLOCKS.get(string(mapping(block).get("type")), Draft.unknown)(draft, block)
    else:
        draft.text(given)


def _text_block(draft: Draft, block: Mapping[str, Json]) -> None:
    if not isinstance(block.get("text"), str):
        draft.unknown(block)
        return
    draft.extra(cache_control=block.get("cache_control"))
    draft.text(block["text"])


def _refusal_block(draft: Draft, block: Mapping[str, Json]) -> None:
    draft.text(block.get("refusal"), {"openai": {"refusal": True}})


def _image_block(draft: Draft, block: Mapping[str, Json]) -> None:
    image = block.get("image_url")
    url = string(mapping(image).get("url")) if isinstance(image, dict) else string(image)
    if url is None:
        draft.unknown(block)
        return
    draft.extra(detail=mapping(image).get("detail"), cache_control=block.get("cache_control"))
    draft.attach(attachment_of_url(url, "image/*"))


def _audio_block(draft: Draft, block: Mapping[str, Json]) -> None:
    audio = mapping(block.get("input_audio"))
    form = string(audio.get("format"))
    media = AUDIO_TYPES.get(form or "", f"audio/{form}" if form else "audio/*")
    draft.attach_or_keep(attachment_of_base64(audio.get("data"), media), block)


def _file_block(draft: Draft, block: Mapping[str, Json]) -> None:
    file = mapping(block.get("file"))
    data, file_id = string(file.get("file_data")), string(file.get("file_id"))
    if data is not None and data.startswith("data:"):
        made: Attachment | None = attachment_of_url(data)
    elif data is not None:
        made = attachment_of_base64(data)
    else:
        made = Attachment(url=file_id) if file_id else None
    if made is not None and (name := string(file.get("filename"))):
        made = Attachment(made.type, made.url, name, made.content)
    draft.attach_or_keep(made, block)


_BLOCKS: Final[dict[Json, Callable[[Draft, Mapping[str, Json]], None]]] = {
    "text": _text_block,
    "refusal": _refusal_block,
    "image_url": _image_block,
    "input_audio": _audio_block,
    "file": _file_block,
}


def _answered_aloud(draft: Draft, audio: Mapping[str, Json]) -> None:
    transcript, audio_id = string(audio.get("transcript")) or "", string(audio.get("id"))
    draft.extra(expires_at=audio.get("expires_at"))
    draft.text(transcript, {"openai": {"audio_id": audio_id or ""}})
    if made := attachment_of_base64(audio.get("data"), "audio/*"):
        draft.attach(made)


def _calls(draft: Draft, given: Mapping[str, Json], names: dict[str, str]) -> None:
    calls = given.get("tool_calls")
    if isinstance(calls, str):  # a database column read as it was
        try:
            calls = loads(calls.encode("utf-8", "surrogatepass"))
        except InvalidValue:
            draft.unknown({"type": "tool_calls", "value": calls})
            calls = None
    for call in sequence(calls):
        _call(draft, mapping(call), call, names)
    if isinstance(legacy := given.get("function_call"), dict):
        _put_call(draft, legacy, None, names, EMPTY)


def _call(draft: Draft, call: Mapping[str, Json], given: Json, names: dict[str, str]) -> None:
    call_id = string(call.get("id"))
    if isinstance(custom := call.get("custom"), dict) and isinstance(custom.get("input"), str):
        name = string(custom.get("name")) or ""
        draft.parts.append(
            ToolCallPart(
                name, {RAW_ARGUMENTS: custom["input"]}, call_id, provider_metadata={"openai": {"type": "custom"}}
            )
        )
        names[call_id or ""] = name
    elif isinstance(function := call.get("function"), dict):
        metadata = {key: call[key] for key in ("extra_content", "thought_signature") if key in call}
        _put_call(draft, function, call_id, names, draft.sendable("openai", metadata))
    elif isinstance(call.get("name"), str):  # without the `function` around it: tau2-bench, Hermes
        _put_call(draft, call, call_id, names, EMPTY)
    else:
        draft.unknown(given)


def _put_call(
    draft: Draft,
    function: Mapping[str, Json],
    call_id: str | None,
    names: dict[str, str],
    metadata: Mapping[str, Json],
) -> None:
    name = string(function.get("name")) or ""
    arguments = function.get("arguments")
    if isinstance(arguments, dict):  # where text should stand
        draft.extra(arguments=arguments)
    draft.call(name, arguments, call_id, metadata)
    names[call_id or ""] = name


def _tool_result(draft: Draft, given: Mapping[str, Json], names: Mapping[str, str]) -> None:
    call_id = string(given.get("tool_call_id"))
    name = string(given.get("name")) or string(given.get("tool_name")) or names.get(call_id or "", "")
    output, attachments, rest = tool_output(draft, given.get("content"))
    draft.parts.append(ToolResultPart(name, output, call_id, attachments=attachments))
    for each in rest:
        draft.unknown(each)


def tool_output(draft: Draft, given: Json) -> tuple[str, list[Attachment], list[Json]]:
    """A tool result's text, its images and files, and the blocks that are neither."""
    if given is None or isinstance(given, str):
        return given or "", [], []
    if not isinstance(given, list):
        draft.extra(json=True)
        return text_of(given), [], []
    inner = Draft(draft.role, draft.place, lambda kind, place, text: None)
    content(inner, given)
    texts = [part.text for part in inner.parts if isinstance(part, TextPart)]
    rest: list[Json] = [part.value for part in inner.parts if isinstance(part, UnknownPart)]
    attachments = [part.attachment for part in inner.parts if isinstance(part, AttachmentPart) and part.attachment]
    return "".join(texts), attachments, rest
