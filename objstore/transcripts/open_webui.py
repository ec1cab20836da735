"""Open WebUI: chats as trees, from its export or from its database (`webui.db`).

A message names its parent and its children; only the parents are believed. Lists of children are sometimes
never saved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from objstore.attachment import Attachment
from objstore.jsonvalue import Json
from objstore.message import Message
from objstore.transcripts.build import attachment_of_url, message_or_none, note_of, time_of
from objstore.transcripts.chat_messages import read_chat_message
from objstore.transcripts.databases import int_of, open_database, split_databases, text_of
from objstore.transcripts.draft import Draft, mapping, sequence, string
from objstore.transcripts.exports import (
    Found,
    is_forked,
    kept_fields,
    newest_leaf,
    read_conversations,
    title_from,
)
from objstore.transcripts.files import View
from objstore.transcripts.graph import contract, heads_of, plant
from objstore.transcripts.jsonfile import parse_json
from objstore.transcripts.magic import SQLITE_MAGIC
from objstore.transcripts.model import Certainty, Entry, ReaderOutput, Skipped, SourceCall, Transcript
from objstore.transcripts.source import Source, SourceFile
from objstore.transcripts.warnings import Warner, bounded
from refs.errors import DagError

FORMAT: Final = "open-webui"

_HISTORY: Final = re.compile(rb'"history"\s*:\s*\{')
_CHAT: Final = re.compile(rb'"(?:currentId|parentId|childrenIds)"\s*:')
_TABLE: Final = re.compile(rb'CREATE TABLE ["`\[]?chat["`\]]?\s*\(.*\bchat\b', re.DOTALL)
_PASSED_ON: Final = ("role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content")
_OF_THE_MESSAGE: Final = frozenset({"id", "parentId", "childrenIds", "files", "timestamp"}).union(_PASSED_ON)
_OF_THE_TRANSCRIPT: Final = frozenset({"id", "title", "chat", "created_at", "updated_at", "user_id"})
_Read = tuple[Message, dict[str, Json], str | None]


def sniff(start: bytes, name: str) -> Certainty:
    """Chats with a `history`, or a database with a table of them."""
    if start.startswith(SQLITE_MAGIC):
        here = bool(_TABLE.search(start)) and b"user_id" in start and b"share_id" in start
    else:
        here = bool(_HISTORY.search(start) and _CHAT.search(start))
    return Certainty.YES if here else Certainty.NO


def split(source: Source) -> list[list[SourceFile]]:
    """Each database by itself, and all exports together: they may hold copies of one chat."""
    databases, exports = split_databases(source)
    return [*databases, exports] if exports else databases


def read(source: Source) -> Iterator[ReaderOutput]:
    """The chats of exports and databases."""
    databases, exports = split_databases(source)
    seen: set[str] = set()
    for number, each in enumerate(read_conversations(View(source, exports), _id_of)):
        made = each if isinstance(each, Skipped) else _transcript(each, number)
        if isinstance(made, Transcript):
            seen.add(made.id)
        yield made
    for file, *_ in databases:
        for number, chat in enumerate(_in_database(source, file)):
            made = chat if isinstance(chat, Skipped) else _transcript([chat], number)
            if isinstance(made, Transcript) and made.id in seen:
                made = Skipped("duplicate-conversation", made.place, "the export's copy is read")
            yield made


def _in_database(source: Source, file: SourceFile) -> Iterator[Found | Skipped]:
    columns = ("id", "title", "chat", "created_at", "updated_at", "archived", "pinned", "meta", "folder_id")
    try:
        with open_database(source, file) as database:
            for row in database.rows("chat", columns, order=("id",)):
                found = Found(None, f"{file.name}: chat {text_of(row['id'])}")
                values: dict[str, Json] = {name: text_of(value) for name, value in row.items()}
                for name in ("chat", "meta"):
                    raw = (values[name] or "null").encode("utf-8", "surrogatepass")
                    values[name] = parse_json(raw, found.place, found.warn)
                for name in ("archived", "pinned"):
                    values[name] = bool(row[name]) or None
                found.value = values
                yield found
    except DagError as error:
        yield Skipped("damaged-database", file.name, str(error))


def _id_of(value: Json) -> str | None:
    return string(mapping(value).get("id")) or None


def _transcript(copies: list[Found], number: int) -> ReaderOutput:
    best = max(reversed(copies), key=_rank)
    record = mapping(best.value)
    chat = _chat(record)
    title = string(record.get("title")) or string(chat.get("title"))
    messages = _messages(chat)
    if not messages:
        return Skipped("empty-conversation", best.place, title or "")
    made = Transcript(FORMAT, _id_of(record) or f"#{number}", (), place=best.place)
    for copy in copies:
        made.warnings.extend(copy.warnings)
        if copy is not best:
            made.warn("duplicate-conversation", copy.place, f"the same conversation is at {best.place}")
            messages = {**_messages(_chat(mapping(copy.value))), **messages}
    warn = bounded(made.warn)
    entries = _entries(record, messages, made, warn)
    if not entries:
        return Skipped("empty-conversation", best.place, title or "")
    made.entries = entries
    made.title = title or title_from(entries)
    made.created_at = time_of(record.get("created_at") or chat.get("timestamp"))
    models = [model for model in sequence(chat.get("models")) if isinstance(model, str)]
    made.model = models[0] if models else (made.calls[-1].model if made.calls else None)
    made.tags = tuple(tag for tag in sequence(chat.get("tags")) if isinstance(tag, str) and tag)
    current = string(mapping(chat.get("history")).get("currentId"))
    made.heads = heads_of(entries, _active(current, entries, warn))
    return made


def _rank(copy: Found) -> tuple[str, int]:
    record = mapping(copy.value)
    return time_of(record.get("updated_at")) or "", len(_messages(_chat(record)))


def _chat(record: Mapping[str, Json]) -> Mapping[str, Json]:
    """The chat in a record of the export; a chat that stands by itself is one too."""
    return mapping(record.get("chat")) or record


def _messages(chat: Mapping[str, Json]) -> dict[str, Mapping[str, Json]]:
    """The messages by id: the tree of `history`, or where there is none the list of the shown branch."""
    tree = mapping(mapping(chat.get("history")).get("messages"))
    if tree:
        return {key or "-": mapping(message) for key, message in tree.items()}
    found: dict[str, Mapping[str, Json]] = {}
    previous: str | None = None
    for i, message in enumerate(map(mapping, sequence(chat.get("messages")))):
        key = _id_of(message) or f"#{i}"
        if key not in found:
            found[key] = {"parentId": previous, **message}
            previous = key
    return found


def _entries(
    record: Mapping[str, Json], messages: Mapping[str, Mapping[str, Json]], made: Transcript, warn: Warner
) -> list[Entry]:
    parents = {key: string(message.get("parentId")) for key, message in messages.items()}
    _compare_children(messages, parents, warn)
    forest = plant(parents, warn)
    names: dict[str, str] = {}
    said = {key: read for key in forest.order if (read := _said(key, messages[key], names, warn))}
    above = contract(forest.parents, said)
    entries: list[Entry] = []
    for key, (message, note, at) in said.items():
        if not entries:
            note["conversation"] = kept_fields(record, _OF_THE_TRANSCRIPT | {"history", "messages"})
        note["inferred_parent"] = key in forest.inferred
        entries.append(Entry(key, above[key], message, at, note=note_of(**note)))
        call = _call(key, messages[key], above[key], at)
        if call is not None:
            made.calls.append(call)
    return entries


def _compare_children(
    messages: Mapping[str, Mapping[str, Json]], parents: Mapping[str, str | None], warn: Warner
) -> None:
    """Tell messages whose list of children isn't what the children say."""
    below: dict[str, set[str]] = {}
    for key, parent in parents.items():
        if parent is not None:
            below.setdefault(parent, set()).add(key)
    for key, message in messages.items():
        listed = message.get("childrenIds")
        if isinstance(listed, list):
            named = {child for child in listed if isinstance(child, str)}
            if named != below.get(key, set()):
                warn("children-mismatch", key, "the links are taken from the parents alone")


def _said(key: str, message: Mapping[str, Json], names: dict[str, str], warn: Warner) -> _Read | None:
    given = {name: message[name] for name in _PASSED_ON if message.get(name) is not None}
    try:
        draft = read_chat_message(given, key, warn, names)
        if draft is None:
            return None
        for file in sequence(message.get("files")):
            _file(draft, mapping(file))
    except DagError as error:
        warn("invalid-message", key, str(error))
        return None
    if not draft.parts:
        warn("empty-content", key, "")
        return None
    made = message_or_none(draft.role, draft.parts, warn, key, draft.metadata)
    if made is None:
        return None
    return made, {**draft.note, **kept_fields(message, _OF_THE_MESSAGE)}, time_of(message.get("timestamp"))


def _file(draft: Draft, file: Mapping[str, Json]) -> None:
    """A file of a message: a picture, an upload with the text that was taken from it, or a collection."""
    inner = mapping(file.get("file"))
    meta = mapping(inner.get("meta"))
    url = string(file.get("url")) or string(file.get("id")) or string(inner.get("id"))
    name = string(file.get("name")) or string(inner.get("filename"))
    kind = string(meta.get("content_type")) or string(file.get("content_type"))
    words = string(mapping(inner.get("data")).get("content"))
    if not url and not name and not words:
        draft.unknown(file)
        return
    draft.extra(file=kept_fields(file, {"url", "name", "file"}) or None)
    if file.get("type") == "image" and url:
        draft.attach(attachment_of_url(url, kind or "image/*"))
    elif words:
        draft.attach(Attachment("text/plain", url, name, words.encode("utf-8", "surrogatepass")))
    else:
        draft.attach(Attachment(kind, url, name))


def _call(key: str, message: Mapping[str, Json], parent: str | None, at: str | None) -> SourceCall | None:
    model = string(message.get("model"))
    if message.get("role") != "assistant" or not model:
        return None
    usage = mapping(message.get("usage")) or mapping(message.get("info"))
    asked = (usage.get(name) for name in ("prompt_tokens", "input_tokens", "prompt_eval_count"))
    answered = (usage.get(name) for name in ("completion_tokens", "output_tokens", "eval_count"))
    duration = int_of(usage.get("total_duration"))  # nanoseconds, as Ollama tells it
    error = message.get("error")
    return SourceCall(
        key,
        model,
        parent,
        key,
        started_at=at,
        duration_ms=duration // 1_000_000 if duration is not None else None,
        error=(string(mapping(error).get("content")) or string(error) or "error") if error else None,
        input_tokens=next((int_of(each) for each in asked if each is not None), None),
        output_tokens=next((int_of(each) for each in answered if each is not None), None),
    )


def _active(current: str | None, entries: list[Entry], warn: Warner) -> str | None:
    if any(entry.key == current for entry in entries):
        return current
    newest = newest_leaf(entries)
    if newest is not None and is_forked(entries):
        warn("no-current-leaf", newest, "the newest leaf is taken")
    return newest
