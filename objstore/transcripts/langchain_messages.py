"""One LangChain message as a `Message`, and a list of them as a conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from objstore.jsonvalue import Json
from objstore.message import AttachmentPart, Message, TextPart, ToolCallPart, ToolResultPart
from objstore.transcripts.anthropic_blocks import FAILED, attachment_of_source
from objstore.transcripts.build import (
    arguments_of,
    attachment_of_base64,
    attachment_of_url,
    message_or_none,
    note_of,
    time_of,
)
from objstore.transcripts.draft import Draft, mapping, sequence, string
from objstore.transcripts.exports import kept_fields
from objstore.transcripts.graph import heads_of
from objstore.transcripts.model import Entry, SourceCall, Transcript
from objstore.transcripts.warnings import Warner
from refs.errors import DagError

_REMOVE_ALL: Final = "__remove_all__"
_ROLES: Final = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
    "developer": "developer",
}
_CLASSES: Final = {
    "HumanMessage": "human",
    "AIMessage": "ai",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "function",
    "ChatMessage": "chat",
    "RemoveMessage": "remove",
}
_CHUNK: Final = "MessageChunk"
_SAID: Final = frozenset(
    {"type", "content", "tool_calls", "invalid_tool_calls", "tool_call_id", "role", "name", "status", "id"}
    | {"additional_kwargs", "response_metadata", "usage_metadata", "tool_call_chunks", "chunk_position"}
)
_OPENAI_EXTRAS: Final = frozenset({"tool_calls", "function_call", "reasoning_content"})
_MEDIA: Final = {"image": "image/*", "audio": "audio/*", "video": "video/*", "file": None}
_CALL_BLOCKS: Final = frozenset({"tool_use", "tool_call", "function_call", "tool_call_chunk", "invalid_tool_call"})


def class_type(name: str) -> str | None:
    """The `type` of a message class by its name; None for any other class."""
    return _CLASSES.get(name.removesuffix("Chunk") if name.endswith(_CHUNK) else name)


def fields_of(value: Json) -> Mapping[str, Json] | None:
    """A message's fields with its `type`, from any of the three forms, or None where it isn't a message."""
    given = mapping(value)
    if given.get("lc") == 1 and given.get("type") == "constructor":
        path = sequence(given.get("id"))
        kind = class_type(path[-1]) if path and isinstance(path[-1], str) else None
        return {**mapping(given.get("kwargs")), "type": kind} if kind else None
    if isinstance(given.get("data"), dict) and "content" in given["data"]:
        given = {**given["data"], "type": given.get("type")}
    kind = string(given.get("type")) or ""
    if kind.endswith(_CHUNK):
        kind = class_type(kind) or ""
    known = kind in _ROLES or kind in ("chat", "remove")
    return {**given, "type": kind} if known and "content" in given else None


@dataclass(slots=True)
class _Item:
    key: str
    message_id: str | None
    fields: Mapping[str, Json]
    message: Message
    note: Mapping[str, Json]
    removed: bool = False


class Conversation:
    """Makes entries of messages that follow one another.

    A `RemoveMessage` takes a message away: the next one follows what is left. What was taken away stays as a
    branch of its own.
    """

    def __init__(self, warn: Warner) -> None:
        self._warn = warn
        self._items: list[_Item] = []
        self._by_id: dict[str, _Item] = {}
        self._names: dict[str, str] = {}

    def add(self, value: Json, place: str) -> None:
        """The next message, in any of the three forms."""
        fields = fields_of(value)
        if fields is None:
            self._warn("unknown-message", place, "not a message of LangChain's")
            return
        message_id = string(fields.get("id")) or None
        if fields["type"] == "remove":
            self._remove(message_id, place)
            return
        made = read_message(fields, place, self._warn, self._names)
        if made is None:
            return
        key = message_id or f"#{len(self._items)}"
        while key in self._by_id:
            key = f"{key}#{len(self._items)}"
        item = _Item(key, message_id, fields, *made)
        self._items.append(item)
        self._by_id[key] = item
        if message_id:
            self._by_id[message_id] = item

    def _remove(self, message_id: str | None, place: str) -> None:
        if message_id == _REMOVE_ALL:
            for item in self._items:
                item.removed = True
        elif message_id in self._by_id:
            self._by_id[message_id].removed = True
        else:
            self._warn("unknown-removed-message", place, message_id or "")
            return
        self._warn("removed-message", place, message_id)

    def finish(self, made: Transcript) -> None:
        """Give the transcript its entries, calls, and the head where the conversation stands."""
        entries: list[Entry] = []
        calls: dict[str, SourceCall] = {}
        last_kept: str | None = None
        last: str | None = None
        for item in self._items:
            parent = last if item.removed else last_kept
            entries.append(Entry(item.key, parent, item.message, time_in(item.fields), note=note_of(**item.note)))
            if (call := call_of(item.fields, item.key, parent)) is not None:
                calls.setdefault(call.id, call)
            last = item.key
            last_kept = last_kept if item.removed else item.key
        made.entries, made.calls = entries, list(calls.values())
        made.heads = heads_of(entries, last_kept)


def read_message(
    fields: Mapping[str, Json], place: str, warn: Warner, names: dict[str, str]
) -> tuple[Message, dict[str, Json]] | None:
    """A message and its note, or None with a warning. `names` maps call ids to tools; its calls go in."""
    role = (string(fields.get("role")) if fields["type"] == "chat" else None) or _ROLES.get(fields["type"], "user")
    draft = Draft(role, place, warn)
    extra = mapping(fields.get("additional_kwargs"))
    try:
        _fill(draft, fields, extra, names)
    except DagError as error:
        warn("invalid-message", place, str(error))
        return None
    message = message_or_none(draft.role, draft.parts, warn, place)
    if message is None:
        return None
    draft.note |= {
        **kept_fields(fields, _SAID),
        "id": fields.get("id"),
        "name": fields.get("name") if role != "tool" else None,
        "additional_kwargs": kept_fields(extra, _OPENAI_EXTRAS),
        "response_metadata": fields.get("response_metadata"),
        "usage": fields.get("usage_metadata"),
        "model": _model(fields),
    }
    return message, draft.note


def _fill(draft: Draft, fields: Mapping[str, Json], extra: Mapping[str, Json], names: dict[str, str]) -> None:
    if draft.role == "tool":
        _tool_result(draft, fields, names)
        return
    if thought := string(extra.get("reasoning_content")):
        draft.reasoning(thought)
    _content(draft, fields.get("content"))
    _calls(draft, fields, extra, names)
    if not draft.parts:
        draft.text("")


def time_in(fields: Mapping[str, Json]) -> str | None:
    """When a message says it was made: programs put it where there is room."""
    for about in (fields.get("response_metadata"), fields.get("additional_kwargs")):
        for key in ("timestamp", "created_at", "created"):
            at = time_of(mapping(about).get(key))
            if at is not None:
                return at
    return None


def call_of(fields: Mapping[str, Json], key: str, parent: str | None) -> SourceCall | None:
    """The LLM call that made a message, where it says so."""
    model = _model(fields)
    if fields.get("type") != "ai" or model is None:
        return None
    about, usage = mapping(fields.get("response_metadata")), mapping(fields.get("usage_metadata"))
    details = kept_fields(usage, {"input_tokens", "output_tokens", "total_tokens"})
    return SourceCall(
        string(about.get("id")) or string(fields.get("id")) or key,
        model,
        parent,
        key,
        started_at=time_in(fields),
        input_tokens=_count(usage.get("input_tokens")),
        output_tokens=_count(usage.get("output_tokens")),
        token_details=note_of(**details) or None,
    )


def _model(fields: Mapping[str, Json]) -> str | None:
    about = mapping(fields.get("response_metadata"))
    return string(about.get("model_name")) or string(about.get("model")) or None


def _count(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None


def _calls(draft: Draft, fields: Mapping[str, Json], extra: Mapping[str, Json], names: dict[str, str]) -> None:
    listed = sequence(fields.get("tool_calls"))
    if not listed and not fields.get("invalid_tool_calls"):  # older versions kept OpenAI's own form alone
        listed = [_from_openai(each) for each in sequence(extra.get("tool_calls"))]
    for each in (*listed, *sequence(fields.get("invalid_tool_calls"))):
        call = mapping(each)
        name, call_id = string(call.get("name")) or "", string(call.get("id"))
        if call_id:
            names[call_id] = name
        draft.extra(error=call.get("error"))
        arguments = arguments_of(call.get("args"), lambda kind, _, text: draft.warn(kind, text), draft.place)
        draft.parts.append(ToolCallPart(name, arguments, call_id))


def _from_openai(call: Json) -> Mapping[str, Json]:
    given = mapping(call)
    function = mapping(given.get("function"))
    return {"name": function.get("name"), "args": function.get("arguments"), "id": given.get("id")}


def _tool_result(draft: Draft, fields: Mapping[str, Json], names: Mapping[str, str]) -> None:
    call_id = string(fields.get("tool_call_id"))
    inner = Draft("tool", draft.place, lambda kind, _, text: draft.warn(kind, text))
    _content(inner, fields.get("content"))
    words, attachments, others = [], [], []
    for part in inner.parts:
        if isinstance(part, TextPart):
            words.append(part.text)
        elif isinstance(part, AttachmentPart) and part.attachment is not None:
            attachments.append(part.attachment)
        else:
            others.append(part)
    draft.parts.append(
        ToolResultPart(
            string(fields.get("name")) or names.get(call_id or "", ""),
            "\n".join(words),
            call_id,
            exception=FAILED if fields.get("status") == "error" else None,
            attachments=attachments,
        )
    )
    draft.parts.extend(others)


# -- content --------------------------------------------------------------------------------------


def _content(draft: Draft, content: Json) -> None:
    if isinstance(content, str):
        if content:
            draft.text(content)
        return
    for block in content if isinstance(content, list) else (() if content is None else (content,)):
        if isinstance(block, str):
            draft.text(block)
        else:
            _block(draft, mapping(block), block)


def _block(draft: Draft, block: Mapping[str, Json], whole: Json) -> None:
    kind = string(block.get("type"))
    if kind == "text" and isinstance(block.get("text"), str):
        draft.extra(cache_control=block.get("cache_control"), annotations=block.get("annotations") or None)
        draft.text(block["text"])
    elif kind == "thinking" and isinstance(block.get("thinking"), str):
        draft.reasoning(block["thinking"], draft.sendable("anthropic", {"signature": block.get("signature")}))
    elif kind == "redacted_thinking":
        draft.reasoning("", draft.sendable("anthropic", {"data": block.get("data")}), redacted=True)
    elif kind == "reasoning":
        _reasoning(draft, block)
    elif kind == "image_url":
        image = block.get("image_url")
        url = string(mapping(image).get("url")) or string(image)
        draft.extra(detail=mapping(image).get("detail"))
        draft.attach_or_keep(attachment_of_url(url, "image/*") if url else None, whole)
    elif kind in _MEDIA:
        _media(draft, block, kind, whole)
    elif kind in _CALL_BLOCKS:
        return  # the same calls are in `tool_calls`
    else:
        draft.unknown(whole)


def _reasoning(draft: Draft, block: Mapping[str, Json]) -> None:
    words = string(block.get("reasoning")) or "\n\n".join(
        each["text"] for each in sequence(block.get("summary")) if isinstance(mapping(each).get("text"), str)
    )
    known = {"id": block.get("id"), "encrypted_content": block.get("encrypted_content")}
    sealed = string(block.get("encrypted_content")) is not None and not words
    draft.reasoning(words, draft.sendable("openai", known), redacted=sealed)


def _media(draft: Draft, block: Mapping[str, Json], kind: str, whole: Json) -> None:
    media = string(block.get("mime_type")) or string(block.get("media_type")) or _MEDIA[kind]
    data = block.get("base64", block.get("data"))
    url = string(block.get("url")) or string(block.get("file_id"))
    made = attachment_of_base64(data, media) or attachment_of_source(block.get("source"))
    if made is None and url:
        made = attachment_of_url(url, media)
    draft.attach_or_keep(made, whole)
