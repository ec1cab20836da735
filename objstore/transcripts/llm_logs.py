"""The log of the `llm` program, `logs.db`: all three of its generations, which may lie in one file.

Since 0.36 messages are stored by content and threads point at them (here); what older versions wrote stays in
`responses` (`llm_responses`) or, before July 2023, in `logs` (the same). No version copies it over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from objstore.jsonvalue import Json
from objstore.transcripts.build import note_of, time_of
from objstore.transcripts.databases import Database, Row, Value, open_database, split_databases, text_of
from objstore.transcripts.graph import heads_of
from objstore.transcripts.llm_parts import call_of, read_message
from objstore.transcripts.llm_responses import read_logs, read_responses
from objstore.transcripts.magic import SQLITE_MAGIC
from objstore.transcripts.model import Certainty, Entry, ReaderOutput, Skipped, Transcript
from objstore.transcripts.source import Source, SourceFile
from objstore.transcripts.warnings import Warner, bounded
from refs.errors import DagError

FORMAT: Final = "llm-logs"

_TURN: Final = (
    *("id", "parent_message_hash", "tip_message_hash", "model", "resolved_model", "options_json"),
    *("input_tokens", "output_tokens", "token_details", "duration_ms", "datetime_utc"),
)
_MARKS: Final = (b"_llm_migrations", b"prompt_json", b"tip_message_hash")


def sniff(start: bytes, name: str) -> Certainty:
    """A SQLite file with the tables of any generation."""
    if not start.startswith(SQLITE_MAGIC):
        return Certainty.NO
    old = all(mark in start for mark in (b"chat_id", b"prompt", b"response"))
    return Certainty.YES if old or any(mark in start for mark in _MARKS) else Certainty.NO


def split(source: Source) -> list[list[SourceFile]]:
    """Each database by itself."""
    return split_databases(source)[0]


def read(source: Source) -> Iterator[ReaderOutput]:
    """The threads and the older conversations of each database."""
    for file, *_ in split(source):
        try:
            with open_database(source, file) as database:
                yield from _all(database, file)
        except DagError as error:
            yield Skipped("damaged-database", file.name, str(error))


def _all(database: Database, file: SourceFile) -> Iterator[ReaderOutput]:
    seen: set[str] = set()
    for generation, outputs in (
        ("", _threads(database, file)),
        ("responses", read_responses(database, file, FORMAT)),
        ("logs", read_logs(database, file, FORMAT)),
    ):
        for made in outputs:
            if isinstance(made, Transcript):
                # A thread has the id of the conversation that it goes on with.
                while made.id in seen:
                    made.id += f"/{generation or 'thread'}"
                seen.add(made.id)
            yield made


def _threads(database: Database, file: SourceFile) -> Iterator[ReaderOutput]:
    if not database.has("messages", "hash", "parent_hash"):
        return
    columns = ("id", "name", "tip_message_hash", "forked_from", "datetime_utc")
    for row in database.rows("threads", columns, order=("id",)):
        made = _named(row["id"], file, "thread")
        made.title = text_of(row["name"]) or None
        made.created_at = time_of(text_of(row["datetime_utc"]))
        turns = list(database.rows("turns", _TURN, {"thread_id": row["id"]}, ("datetime_utc", "id")))
        yield _transcript(database, made, row["tip_message_hash"], turns, text_of(row["forked_from"]))
    if database.has("turns", "thread_id"):
        for turn in database.rows("turns", _TURN, {"thread_id": None}, ("datetime_utc", "id")):
            made = _named(turn["id"], file, "turn")
            made.created_at = time_of(text_of(turn["datetime_utc"]))
            yield _transcript(database, made, turn["tip_message_hash"], [turn], None)


def _named(key: Value, file: SourceFile, kind: str) -> Transcript:
    label = text_of(key) or "-"
    return Transcript(FORMAT, label, (), place=f"{file.name}: {kind} {label}")


def _transcript(
    database: Database, made: Transcript, tip: Value, turns: list[Row], forked_from: str | None
) -> ReaderOutput:
    """A thread: the chain that it points at, and answers of its turns that lie beside it."""
    warn = bounded(made.warn)
    times: dict[str, str] = {}
    about: dict[str, dict[str, Json]] = {}
    for turn in turns:
        at = time_of(text_of(turn["datetime_utc"]))
        asked, answered = text_of(turn["parent_message_hash"]), text_of(turn["tip_message_hash"])
        for key in (asked, answered):
            if key and at:
                times.setdefault(key, at)
        if answered:
            about[answered] = {"model": text_of(turn["model"]), "tools": _tools(database, turn["id"])}
    entries: dict[str, Entry] = {}
    for end in (tip, *(turn["tip_message_hash"] for turn in turns)):
        for key, parent, row in _chain(database, text_of(end), entries, warn):
            message, note = read_message(database, row, key, warn)
            forked = forked_from if not entries else None
            note_made = note_of(**{**note, "id": key, **about.get(key, {}), "forked_from": forked})
            entries[key] = Entry(key, parent, message, times.get(key), note=note_made)
    if not entries:
        return Skipped("empty-conversation", made.place, made.title or "")
    made.entries = list(entries.values())
    made.heads = heads_of(made.entries, text_of(tip))
    calls = {}
    for turn in turns:
        asked, answered = text_of(turn["parent_message_hash"]), text_of(turn["tip_message_hash"])
        call = call_of(turn, asked if asked in entries else None, answered if answered in entries else None)
        calls[call.id] = call
    made.calls = list(calls.values())
    made.model = made.calls[-1].model if made.calls else None
    return made


def _chain(
    database: Database, end: str | None, known: Mapping[str, Entry], warn: Warner
) -> Iterator[tuple[str, str | None, Row]]:
    """(hash, parent, row) of the messages up to `end` that aren't known yet, the first one first."""
    found: dict[str, Row] = {}
    key = end
    columns = ("parent_hash", "role", "provider_metadata")
    while key and key not in known:
        if key in found:
            warn("parent-cycle", key, "cut here")
            break
        row = next(iter(database.rows("messages", columns, {"hash": key})), None)
        if row is None:
            warn("dangling-parent", key, "there is no such message")
            break
        found[key] = row
        key = text_of(row["parent_hash"])
    parent = key if key in known else None
    for each, row in reversed(found.items()):
        yield each, parent, row
        parent = each


def _tools(database: Database, turn: Value) -> list[str]:
    """The names of the tools that a turn offered."""
    rows = database.rows("turn_tools", ("tool_id",), {"turn_id": turn})
    return [
        text_of(tool["name"]) or ""
        for tool_id in [row["tool_id"] for row in rows]
        for tool in database.rows("tools", ("name",), {"id": tool_id})
    ]
