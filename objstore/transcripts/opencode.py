"""opencode: sessions from `opencode export`, from its storage folder, or from its database (since 2026).

All three hold the same records: sessions, messages and parts (`opencode_parts`). A session that a tool call
started is a chain of its own in the transcript of the session that called.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from objstore.jsonvalue import Json
from objstore.transcripts.build import time_of
from objstore.transcripts.databases import Database, Row, open_database, split_databases, text_of
from objstore.transcripts.draft import is_deep, mapping, sequence, string
from objstore.transcripts.jsonfile import parse_json, read_json
from objstore.transcripts.magic import SQLITE_MAGIC
from objstore.transcripts.model import Certainty, Head, ReaderOutput, Skipped, Transcript, Warn
from objstore.transcripts.opencode_parts import Session
from objstore.transcripts.peek import values_in
from objstore.transcripts.source import Source, SourceFile
from refs.errors import DagError

FORMAT: Final = "opencode"

_TABLE: Final = re.compile(rb"CREATE TABLE [\"`\[]?part[\"`\]]?\s*\([^;]*message_id[^;]*session_id", re.DOTALL)
_Message = tuple[Mapping[str, Json], list[Mapping[str, Json]]]


def sniff(start: bytes, name: str) -> Certainty:
    """An export, one record of the storage folder, or a database with a table of parts."""
    if start.startswith(SQLITE_MAGIC):
        return Certainty.YES if _TABLE.search(start) else Certainty.NO
    values = values_in(start)
    return Certainty.YES if len(values) == 1 and _kind(mapping(values[0])) else Certainty.NO


def _kind(record: Mapping[str, Json]) -> str:
    """What a JSON document holds: "export", "session", "message", "part", or nothing of ours."""
    info, time = record.get("info"), record.get("time")
    if isinstance(info, dict) and isinstance(record.get("messages"), list):
        first = mapping(next(iter(record["messages"]), None))
        ours = isinstance(first.get("parts"), list) and isinstance(first.get("info"), dict)
        return "export" if ours or ("time" in info and not first) else ""
    if not isinstance(record.get("id"), str):
        return ""
    if isinstance(record.get("messageID"), str) and isinstance(record.get("type"), str):
        return "part"
    if isinstance(record.get("sessionID"), str) and record.get("role") in ("user", "assistant"):
        return "message"
    if isinstance(time, dict) and "created" in time and record["id"].startswith("ses_"):
        return "session"
    return ""


def split(source: Source) -> list[list[SourceFile]]:
    """Each database by itself, and all JSON files together: a session's records lie in many."""
    databases, files = split_databases(source)
    return [*databases, files] if files else databases


def read(source: Source) -> Iterator[ReaderOutput]:
    """The sessions of exports, folders and databases: each with the sessions that it started."""
    databases, files = split_databases(source)
    for file, *_ in databases:
        yield from _in_database(source, file)
    store = _Storage()
    for file in files:
        yield from store.add(file)
    yield from _transcripts(store)


# -- where records lie ----------------------------------------------------------------------------


@dataclass(slots=True)
class _Storage:
    """JSON files: whole exports, and single records. Only what names what is kept until it is asked for."""

    sessions: dict[str, Mapping[str, Json]] = field(default_factory=dict)
    _exports: dict[str, SourceFile] = field(default_factory=dict)
    _messages: dict[str, list[SourceFile]] = field(default_factory=dict)
    _parts: dict[str, list[SourceFile]] = field(default_factory=dict)

    def add(self, file: SourceFile) -> Iterator[Skipped]:
        told: list[Warn] = []
        record = _document(file, told)
        if record is None:
            yield from (Skipped(each.kind, each.place, each.text) for each in told[:1])
            return
        kind = _kind(record)
        if kind == "part":
            self._parts.setdefault(record["messageID"], []).append(file)
        elif kind == "message":
            self._messages.setdefault(record["sessionID"], []).append(file)
        elif kind in ("session", "export"):
            info = mapping(record.get("info")) if kind == "export" else record
            key = string(info.get("id")) or file.name
            if key in self.sessions:
                yield Skipped("duplicate-conversation", file.name, f"session {key} has been read")
                return
            self.sessions[key] = info
            if kind == "export":
                self._exports[key] = file
        else:
            yield Skipped("unknown-record", file.name, "no session, message or part")

    def messages(self, session: str, told: list[Warn]) -> Iterator[_Message]:
        if session in self._exports:
            record = _document(self._exports[session], told) or {}
            for message in map(mapping, sequence(record.get("messages"))):
                yield mapping(message.get("info")), [mapping(part) for part in sequence(message.get("parts"))]
            return
        for file in self._messages.get(session, ()):
            info = _document(file, told) or {}
            parts = [_document(part, told) or {} for part in self._parts.get(string(info.get("id")) or "", ())]
            yield info, sorted(parts, key=lambda part: string(part.get("id")) or "")


def _document(file: SourceFile, told: list[Warn]) -> Mapping[str, Json] | None:
    value = read_json(file, lambda kind, place, text: told.append(Warn(kind, place, text)))
    if isinstance(value, dict) and is_deep(value):
        told.append(Warn("record-too-deep", file.name))
        return None
    return value if isinstance(value, dict) else None


@dataclass(slots=True)
class _Tables:
    """The database: its columns are members of the records in its `data`."""

    database: Database
    sessions: dict[str, Mapping[str, Json]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        columns = sorted(self.database.tables.get("session", ()))
        for row in self.database.rows("session", columns, order=("id",)):
            info = _record(row, text_of(row.get("data")), [])
            info |= {"parentID": text_of(row.get("parent_id")), "title": text_of(row.get("title"))}
            info["time"] = mapping(info.get("time")) or {"created": row.get("time_created")}
            self.sessions[text_of(row["id"]) or "-"] = info

    def messages(self, session: str, told: list[Warn]) -> Iterator[_Message]:
        columns = ("id", "time_created", "data")
        order = ("time_created", "id")
        for row in list(self.database.rows("message", columns, {"session_id": session}, order)):
            info = _record(row, text_of(row["data"]), told)
            info["time"] = mapping(info.get("time")) or {"created": row["time_created"]}
            parts = self.database.rows("part", columns, {"message_id": row["id"]}, ("id",))
            yield info, [_record(part, text_of(part["data"]), told) for part in parts]


def _record(row: Row, data: str | None, told: list[Warn]) -> dict[str, Json]:
    """A row's record: the JSON in its `data`, with its id."""
    place = text_of(row["id"]) or "-"
    raw = (data or "{}").encode("utf-8", "surrogatepass")
    value = parse_json(raw, place, lambda kind, where, text: told.append(Warn(kind, where, text)))
    if is_deep(value):
        told.append(Warn("record-too-deep", place))
        value = {}
    return {**mapping(value), "id": text_of(row["id"])}


def _in_database(source: Source, file: SourceFile) -> Iterator[ReaderOutput]:
    try:
        with open_database(source, file) as database:
            yield from _transcripts(_Tables(database))
    except DagError as error:
        yield Skipped("damaged-database", file.name, str(error))


# -- sessions and the sessions that they started --------------------------------------------------


def _transcripts(store: _Storage | _Tables) -> Iterator[ReaderOutput]:
    children: dict[str, list[str]] = {}
    roots = []
    for key, info in store.sessions.items():
        parent = string(info.get("parentID"))
        if parent is not None and parent in store.sessions and parent != key:
            children.setdefault(parent, []).append(key)
        else:
            roots.append(key)
    told: set[str] = set()
    # Sessions that name each other as parents are under no root: each is one.
    for key in (*roots, *store.sessions):
        if key not in told:
            yield from _family(store, key, children, told)


def _family(
    store: _Storage | _Tables, root: str, children: Mapping[str, list[str]], told: set[str]
) -> Iterator[ReaderOutput]:
    """The transcript of a session, with those that it started; what no call started is one by itself."""
    waiting = [root]
    while waiting:
        key = waiting.pop()
        if key in told:
            continue
        info = store.sessions[key]
        made = Transcript(FORMAT, key, (), title=string(info.get("title")) or None, place=f"session {key}")
        made.created_at = time_of(mapping(info.get("time")).get("created"))
        parent = string(info.get("parentID"))
        if parent and parent not in store.sessions:
            made.warn("missing-parent-session", key, f"its parent {parent[:80]} is not there")
        elif parent and parent in told:
            made.warn("unlinked-child-session", key, f"no tool call of {parent[:80]} names it")
        elif parent:
            made.warn("parent-cycle", key, "sessions that name each other as parents")
        session = Session(made)
        todo: list[tuple[str, tuple[str, str | None] | None]] = [(key, None)]
        while todo:
            each, called_by = todo.pop()
            told.add(each)
            last = session.add(store.messages(each, made.warnings), store.sessions[each], called_by)
            if last is not None:
                title = string(store.sessions[each].get("title"))
                made.heads.append(Head(last, each, each == key, title))
            for child in children.get(each, ()):
                if child not in told and child in session.started:
                    todo.append((child, session.started[child]))
                    told.add(child)
                else:
                    waiting.append(child)
        yield session.finish()
