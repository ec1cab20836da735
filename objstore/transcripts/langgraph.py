"""LangGraph checkpoints in SQLite: the states of each thread, as the tree of messages that they share.

A checkpoint holds the whole list of messages at its time; lists that begin alike share those entries. What
was written after the last checkpoint of a branch is read too. Pickled state is not: it is a program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from objstore.jsonvalue import Json, loads
from objstore.message import Message
from objstore.transcripts.build import note_of, time_of
from objstore.transcripts.databases import Database, Row, open_database, split_databases, text_of
from objstore.transcripts.draft import mapping, string
from objstore.transcripts.exports import title_from
from objstore.transcripts.graph import heads_of
from objstore.transcripts.langchain_messages import call_of, fields_of, read_message, time_in
from objstore.transcripts.langgraph_values import Overwrite, decode
from objstore.transcripts.magic import SQLITE_MAGIC
from objstore.transcripts.model import Certainty, Entry, ReaderOutput, Skipped, SourceCall, Transcript
from objstore.transcripts.source import Source, SourceFile
from objstore.transcripts.warnings import Warner, bounded
from refs.errors import DagError, InvalidValue

FORMAT: Final = "langgraph"

_CHANNELS: Final = ("messages", "__root__")
_KEY: Final = ("thread_id", "checkpoint_ns")
_REMOVE_ALL: Final = "__remove_all__"


def sniff(start: bytes, name: str) -> Certainty:
    """A SQLite file with a table of checkpoints."""
    there = start.startswith(SQLITE_MAGIC) and b"checkpoint_ns" in start and b"parent_checkpoint_id" in start
    return Certainty.YES if there else Certainty.NO


def split(source: Source) -> list[list[SourceFile]]:
    """Each database by itself."""
    return split_databases(source)[0]


def read(source: Source) -> Iterator[ReaderOutput]:
    """A conversation for each thread (and for each graph within it) of each database."""
    for file, *_ in split(source):
        try:
            with open_database(source, file) as database:
                if database.has("checkpoints", "thread_id", "checkpoint_id", "checkpoint"):
                    yield from _threads(database, file)
                else:
                    yield Skipped("missing-tables", file.name, "no table of checkpoints")
        except DagError as error:
            yield Skipped("damaged-database", file.name, str(error))


def _threads(database: Database, file: SourceFile) -> Iterator[ReaderOutput]:
    columns = (*_KEY, "checkpoint_id", "parent_checkpoint_id", "type", "checkpoint", "metadata")
    rows = database.rows("checkpoints", columns, order=(*_KEY, "checkpoint_id"))
    seen: set[str] = set()
    for (thread, namespace), group in groupby(rows, key=lambda row: tuple(row[key] for key in _KEY)):
        label = "/".join(filter(None, (text_of(thread), text_of(namespace)))) or "-"
        while label in seen:  # "a" within "b" and "a/b" read the same
            label += "+"
        seen.add(label)
        made = Transcript(FORMAT, label, (), place=f"{file.name}: {label}")
        where = {"thread_id": thread, "checkpoint_ns": namespace, "channel": _CHANNELS[0]}
        writes: dict[str, list[Row]] = {}
        for row in database.rows(
            "writes", ("checkpoint_id", "type", "value"), where, ("task_path", "task_id", "idx")
        ):
            writes.setdefault(text_of(row["checkpoint_id"]) or "", []).append(row)
        states = _States(bounded(made.warn))
        states.read(group, writes)
        yield states.finish(made)


@dataclass(slots=True)
class _Item:
    """A message as it lies in a state, decoded once."""

    id: str | None
    fields: Mapping[str, Json]
    message: Message
    note: Mapping[str, Json]
    digest: bytes


@dataclass(slots=True)
class _States:
    """The lists of messages of one thread's checkpoints, as one tree. A list is known by its last entry."""

    warn: Warner
    entries: dict[str, Entry] = field(default_factory=dict)
    items: dict[str, _Item] = field(default_factory=dict)
    calls: dict[str, SourceCall] = field(default_factory=dict)
    active: str | None = None
    created_at: str | None = None
    _below: dict[tuple[str | None, bytes], str] = field(default_factory=dict)
    _decoded: dict[bytes, _Item | None] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def read(self, rows: Iterable[Row], writes: Mapping[str, list[Row]]) -> None:
        """Take the checkpoints in their order, in which a parent comes before its children."""
        tips: dict[str, str | None] = {}
        moments: dict[str, tuple[str | None, Mapping[str, Json]]] = {}
        open_ends: dict[str, None] = {}
        for row in rows:
            checkpoint_id = text_of(row["checkpoint_id"]) or ""
            parent = text_of(row["parent_checkpoint_id"]) or ""
            state = mapping(self._value(row["type"], row["checkpoint"], checkpoint_id))
            at = time_of(state.get("ts"))
            self.created_at = self.created_at or at
            moments[checkpoint_id] = at, _metadata(row["metadata"], checkpoint_id)
            values = mapping(state.get("channel_values"))
            listed = next((values[name] for name in _CHANNELS if isinstance(values.get(name), list)), None)
            if listed is not None:
                tips[checkpoint_id] = self._put(self._items_of(listed, checkpoint_id), *moments[checkpoint_id])
            elif parent in tips:
                # A channel that did not change may be left out of a state: it is what was written before.
                tips[checkpoint_id] = self._written(tips[parent], writes.get(parent, ()), *moments[checkpoint_id])
            else:
                tips[checkpoint_id] = None
            open_ends.pop(parent, None)
            open_ends[checkpoint_id] = None
        for checkpoint_id in open_ends:
            tip = tips[checkpoint_id]
            self.active = self._written(tip, writes.get(checkpoint_id, ()), *moments[checkpoint_id]) or self.active

    def finish(self, made: Transcript) -> ReaderOutput:
        entries = list(self.entries.values())
        if not entries:
            first = made.warnings[0] if made.warnings else None
            return Skipped(first.kind if first else "empty-conversation", made.place, first.text if first else "")
        made.entries, made.calls, made.created_at = entries, list(self.calls.values()), self.created_at
        made.heads = heads_of(entries, self.active)
        made.title = title_from(entries)
        made.model = made.calls[-1].model if made.calls else None
        return made

    def _value(self, kind: object, raw: object, place: str) -> Json:
        try:
            return decode(text_of(kind), raw)
        except InvalidValue as error:
            self.warn("unreadable-state", place or "-", str(error))
            return None

    def _items_of(self, listed: Json, place: str) -> list[_Item]:
        values = listed if isinstance(listed, list) else [listed]
        return [item for value in values if (item := self._item(value, place)) is not None]

    def _item(self, value: Json, place: str) -> _Item | None:
        digest = hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).digest()
        if digest not in self._decoded:
            self._decoded[digest] = self._decode(value, digest, place or "-")
        return self._decoded[digest]

    def _decode(self, value: Json, digest: bytes, place: str) -> _Item | None:
        fields = fields_of(value)
        if fields is None:
            self.warn("unknown-message", place, type(value).__name__)
            return None
        made = read_message(fields, place, self.warn, self._names)
        return _Item(string(fields.get("id")) or None, fields, *made, digest) if made else None

    def _put(self, items: Iterable[_Item], at: str | None, about: Mapping[str, Json]) -> str | None:
        """The last entry of a list, which is added where it isn't there yet."""
        tip: str | None = None
        for item in items:
            known = self._below.get((tip, item.digest))
            tip = known if known is not None else self._add(item, tip, at, about)
        return tip

    def _add(self, item: _Item, parent: str | None, at: str | None, about: Mapping[str, Json]) -> str:
        key = item.id or f"#{len(self.entries)}"
        while key in self.entries:
            key = f"{key}~{len(self.entries)}"
        note = note_of(**{**item.note, **about})
        self.entries[key] = Entry(key, parent, item.message, time_in(item.fields) or at, note=note)
        self.items[key] = item
        self._below[parent, item.digest] = key
        call = call_of(item.fields, key, parent)
        if call is not None:
            self.calls.setdefault(call.id, call)
        return key

    def _written(
        self, tip: str | None, rows: Iterable[Row], at: str | None, about: Mapping[str, Json]
    ) -> str | None:
        """The list that ends at `tip` after what was written to it, as LangGraph adds messages."""
        if not rows:
            return tip
        chain: list[_Item] = []
        while tip is not None:
            chain.append(self.items[tip])
            tip = self.entries[tip].parent
        chain.reverse()
        for row in rows:
            value = self._value(row["type"], row["value"], text_of(row["checkpoint_id"]) or "")
            if isinstance(value, Overwrite):
                chain = self._items_of(value.value, "a write")
            elif value is not None:
                chain = _added(chain, value, self._items_of(_without_removals(value), "a write"))
        return self._put(chain, at, about)


def _metadata(raw: object, checkpoint_id: str) -> Mapping[str, Json]:
    try:
        about = mapping(loads((text_of(raw) or "").encode("utf-8", "surrogatepass")))
    except InvalidValue:
        about = {}
    return {"checkpoint": checkpoint_id, "step": about.get("step"), "source": about.get("source")}


def _removals(value: Json) -> list[str | None]:
    values = value if isinstance(value, list) else [value]
    found = [fields_of(each) for each in values]
    return [string(fields.get("id")) for fields in found if fields is not None and fields["type"] == "remove"]


def _without_removals(value: Json) -> list[Json]:
    values = value if isinstance(value, list) else [value]
    return [each for each in values if mapping(fields_of(each)).get("type") != "remove"]


def _added(chain: list[_Item], value: Json, items: list[_Item]) -> list[_Item]:
    """Messages replace those of their id, others follow; removals take away."""
    removed = set(_removals(value))
    if _REMOVE_ALL in removed:
        return items
    made = {item.id or f"#{i}": item for i, item in enumerate(chain)}
    for i, item in enumerate(items, len(chain)):
        made[item.id or f"#{i}"] = item
    return [item for key, item in made.items() if key not in removed]
