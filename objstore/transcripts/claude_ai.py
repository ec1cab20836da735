"""Claude.ai exports: conversations with branches, where the export is new enough to tell them.

Read from a ZIP or folder with `conversations.json`, from that file, or from one conversation as the
service's interface gives it. Tools run at the service, so a message holds a call and its result both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from objstore.attachment import Attachment
from objstore.jsonvalue import Json
from objstore.message import Message, ToolCallPart, ToolResultPart
from objstore.transcripts.anthropic_blocks import FAILED
from objstore.transcripts.build import arguments_of, attachment_of_base64, message_or_none, note_of, time_of
from objstore.transcripts.draft import Draft, mapping, sequence, string
from objstore.transcripts.exports import (
    Found,
    is_forked,
    kept_fields,
    newest_leaf,
    read_conversations,
    title_from,
)
from objstore.transcripts.graph import contract, heads_of, plant
from objstore.transcripts.model import Certainty, Entry, ReaderOutput, Skipped, Transcript
from objstore.transcripts.source import Source
from objstore.transcripts.warnings import Warner, bounded
from refs.errors import DagError

FORMAT: Final = "claude-ai"

_MESSAGES: Final = re.compile(rb'"chat_messages"\s*:\s*\[')
_NO_PARENT: Final = "00000000-0000-4000-8000-000000000000"
_SAID: Final = ("text", "content", "parent_message_uuid")
_ROLES: Final = {"human": "user", "assistant": "assistant"}
_OF_THE_MESSAGE: Final = frozenset(
    {"uuid", "text", "content", "sender", "created_at", "parent_message_uuid", "attachments", "files", "index"}
)
_OF_THE_TRANSCRIPT: Final = frozenset(
    {"uuid", "name", "model", "chat_messages", "created_at", "updated_at", "current_leaf_message_uuid"}
)
# Blocks that say how the answer was made, and nothing to anybody.
_EVENTS: Final = frozenset({"token_budget", "flag"})
_Read = tuple[Message, dict[str, Json], str | None]


def sniff(start: bytes, name: str) -> Certainty:
    """An object with a list of `chat_messages`."""
    return Certainty.YES if _MESSAGES.search(start) else Certainty.NO


def read(source: Source) -> Iterator[ReaderOutput]:
    """The conversations of an export."""
    for number, each in enumerate(read_conversations(source, _id_of)):
        yield each if isinstance(each, Skipped) else _transcript(each, number)


def _id_of(value: Json) -> str | None:
    return string(mapping(value).get("uuid")) or None


def _transcript(copies: list[Found], number: int) -> ReaderOutput:
    best = max(reversed(copies), key=_rank)
    conversation = mapping(best.value)
    listed = conversation.get("chat_messages")
    if not isinstance(listed, list):
        return Skipped("missing-messages", best.place, string(conversation.get("name")) or "")
    made = Transcript(FORMAT, _id_of(conversation) or f"#{number}", (), place=best.place)
    records = [mapping(each) for each in listed]
    for copy in copies:
        made.warnings.extend(copy.warnings)
        if copy is not best:
            made.warn("duplicate-conversation", copy.place, f"the same conversation is at {best.place}")
            others = sequence(mapping(copy.value).get("chat_messages"))
            records.extend(mapping(each) for each in others if _id_of(each))
    warn = bounded(made.warn)
    entries = _entries(conversation, records, warn)
    if not entries:
        return Skipped("empty-conversation", best.place, string(conversation.get("name")) or "")
    made.entries = entries
    made.created_at = time_of(conversation.get("created_at"))
    made.title = string(conversation.get("name")) or title_from(entries)
    made.model = string(conversation.get("model")) or None
    made.heads = heads_of(entries, _active(conversation, entries, warn))
    return made


def _rank(copy: Found) -> tuple[str, int]:
    value = mapping(copy.value)
    return time_of(value.get("updated_at")) or "", len(sequence(value.get("chat_messages")))


def _entries(conversation: Mapping[str, Json], listed: list[Mapping[str, Json]], warn: Warner) -> list[Entry]:
    records = _keyed(listed, warn)
    forest = plant(_parents(records), warn)
    said = {key: made for key, record in records.items() if (made := _said(key, record, warn))}
    above = contract(forest.parents, said)
    entries: list[Entry] = []
    for key in forest.order:
        if key not in said:
            continue
        message, note, at = said[key]
        if not entries:
            note["conversation"] = kept_fields(conversation, _OF_THE_TRANSCRIPT)
        note["inferred_parent"] = key in forest.inferred
        entries.append(Entry(key, above[key], message, at, note=note_of(**note)))
    return entries


def _keyed(listed: list[Mapping[str, Json]], warn: Warner) -> dict[str, Mapping[str, Json]]:
    """The messages by their ids, each once. One without an id gets its position."""
    records: dict[str, Mapping[str, Json]] = {}
    for i, record in enumerate(listed):
        key = _id_of(record) or f"#{i}"
        if key not in records:
            records[key] = record
        elif any(record.get(name) != records[key].get(name) for name in _SAID):
            warn("duplicate-uuid-conflict", key, "the first one is kept")
    return records


def _parents(records: Mapping[str, Mapping[str, Json]]) -> dict[str, str | None]:
    """Each message's parent. Exports before 2025 don't say it: then they follow each other as listed."""
    linked = any("parent_message_uuid" in record for record in records.values())
    parents: dict[str, str | None] = {}
    previous = None
    for key, record in records.items():
        named = string(record.get("parent_message_uuid"))
        if linked and "parent_message_uuid" in record:
            parents[key] = None if named == _NO_PARENT and named not in records else named
        else:
            parents[key] = previous
        previous = key
    return parents


def _active(conversation: Mapping[str, Json], entries: list[Entry], warn: Warner) -> str | None:
    named = string(conversation.get("current_leaf_message_uuid"))
    if any(entry.key == named for entry in entries):
        return named
    newest = newest_leaf(entries)
    if newest is not None and is_forked(entries):
        warn("no-current-leaf", newest, "the newest leaf is taken")
    return newest


def _said(key: str, record: Mapping[str, Json], warn: Warner) -> _Read | None:
    """The record's message, or None where it says nothing: then its children go to its parent."""
    sender = string(record.get("sender")) or "human"
    draft = Draft(_ROLES.get(sender, sender), key, warn)
    try:
        _fill(draft, record, warn)
    except DagError as error:
        warn("invalid-message", key, str(error))
        return None
    if not draft.parts:
        warn("empty-content", key, "")
        return None
    made = message_or_none(draft.role, draft.parts, warn, key)
    if made is None:
        return None
    return made, {**draft.note, **kept_fields(record, _OF_THE_MESSAGE)}, time_of(record.get("created_at"))


def _fill(draft: Draft, record: Mapping[str, Json], warn: Warner) -> None:
    calls: dict[str | None, str] = {}
    for block in sequence(record.get("content")):
        _block(draft, block, calls, warn)
    flat = string(record.get("text"))
    if not draft.parts and flat:
        draft.text(flat)
    for each in sequence(record.get("attachments")):
        about = mapping(each)
        words = string(about.get("extracted_content"))
        draft.extra(upload=kept_fields(about, {"extracted_content"}))
        kind = "text/plain" if words else string(about.get("file_type"))
        content = words.encode("utf-8", "surrogatepass") if words else None
        draft.attach(Attachment(kind, path=string(about.get("file_name")), content=content))
    for each in sequence(record.get("files")) or sequence(record.get("files_v2")):
        about = mapping(each)
        draft.extra(upload=about)
        draft.attach(
            Attachment(
                string(about.get("mime_type")),
                url=string(about.get("preview_url")),
                path=string(about.get("file_name")) or string(about.get("file_uuid")),
            )
        )


def _block(draft: Draft, block: Json, calls: dict[str | None, str], warn: Warner) -> None:
    """One block of content as a part. `calls` remembers the names of the tools that were called, by id."""
    found = mapping(block)
    kind = string(found.get("type"))
    about = {"start_timestamp", "stop_timestamp", "type", "citations"}
    if kind == "text" and isinstance(found.get("text"), str):
        draft.extra(block=kept_fields(found, about - {"citations"} | {"text"}) or None)
        draft.text(found["text"])
    elif kind == "thinking" and isinstance(found.get("thinking"), str):
        draft.extra(block=kept_fields(found, about | {"thinking", "signature"}) or None)
        draft.reasoning(found["thinking"], draft.sendable("anthropic", {"signature": found.get("signature")}))
    elif kind == "redacted_thinking":
        draft.reasoning("", draft.sendable("anthropic", {"data": found.get("data")}), redacted=True)
    elif kind == "tool_use":
        name, call_id = string(found.get("name")) or "", string(found.get("id"))
        calls[call_id] = name
        draft.extra(block=kept_fields(found, about | {"name", "id", "input"}) or None)
        arguments = arguments_of(found.get("input"), warn, draft.place)
        draft.parts.append(ToolCallPart(name, arguments, call_id, server_executed=True))
    elif kind == "tool_result":
        _result(draft, found, calls)
    elif kind == "voice_note" and isinstance(found.get("text"), str):
        draft.extra(block=kept_fields(found, about | {"text"}))
        draft.text(found["text"])
    elif kind in _EVENTS:
        draft.note.setdefault("events", []).append(found)
    else:
        draft.unknown(block)


def _result(draft: Draft, block: Mapping[str, Json], calls: Mapping[str | None, str]) -> None:
    """A tool's result: its text, and the pictures in it. Other content is kept beside it as it is."""
    call_id = string(block.get("tool_use_id"))
    # Without an id, a result belongs to the call before it.
    name = string(block.get("name")) or calls.get(call_id) or ""
    content = block.get("content")
    words: list[str] = [content] if isinstance(content, str) else []
    attachments, others = [], []
    for item in sequence(content):
        found = mapping(item)
        source = mapping(found.get("source"))
        image = attachment_of_base64(source.get("data"), string(source.get("media_type")))
        if isinstance(item, str):
            words.append(item)
        elif isinstance(found.get("text"), str):
            words.append(found["text"])
            if set(found) - {"type", "text", "uuid"}:
                others.append(item)
        elif found.get("type") == "image" and image is not None:
            attachments.append(image)
        else:
            others.append(item)
    beside = {"type", "content", "tool_use_id", "name", "is_error", "start_timestamp", "stop_timestamp"}
    draft.extra(block=kept_fields(block, beside) or None, content=others or None)
    draft.parts.append(
        ToolResultPart(
            name,
            "\n".join(words),
            call_id,
            server_executed=True,
            exception=FAILED if block.get("is_error") is True else None,
            attachments=attachments,
        )
    )
