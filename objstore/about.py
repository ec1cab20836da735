"""Calls and notes by what they are about: the index knows which record speaks of which node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from objstore.codec import decode
from objstore.index import ROOT_ROW
from objstore.kinds import Kind
from objstore.records import Call, Note
from objstore.storage import Storage
from refs.ids import ROOT, NodeId

MAX_LATELY_READ: Final = 64
"""Records kept in memory: a note speaks of up to 64 nodes of a chain, and whoever walks it asks for each."""


def rows_about(storage: Storage, query: str, node: NodeId, *more: str) -> list[int]:
    """The rows of the records that a query connects with a node (`?1`) or `ROOT`. Raises `ObjectMissing`."""
    index = storage.index
    row = ROOT_ROW if node == ROOT else index.row(Kind.NODE, node)
    if row is None:
        storage.database.locate(Kind.NODE, node)
        row = index.row(Kind.NODE, node)
    with index.reading() as db:
        return [found[0] for found in db.execute(query, (row, *more))]


def read_calls(storage: Storage, rows: Iterable[int]) -> list[Call]:
    """The calls in rows of the index, oldest first.

    Of two records of one call, as an import makes of an answer that was still being written, the one that
    counts more tokens.
    """
    calls: dict[str, Call] = {}
    for _, value in _read(storage, Kind.CALL, rows):
        if isinstance(value, Call):
            other = calls.get(value.call)
            if other is None or _told_by(value) > _told_by(other):
                calls[value.call] = value
    return sorted(calls.values(), key=lambda call: (call.started_at, call.call))


def _told_by(call: Call) -> tuple[int, int, bytes]:
    return call.output_tokens or 0, call.input_tokens or 0, call.canonical()


def read_notes(storage: Storage, rows: Iterable[int]) -> list[tuple[int, Note]]:
    """The notes in rows of the index, oldest first, each with its row."""
    notes = [(row, value) for row, value in _read(storage, Kind.NOTE, rows) if isinstance(value, Note)]
    return sorted(notes, key=lambda found: (found[1].at, found[1].note))


def _read(storage: Storage, kind: Kind, rows: Iterable[int]) -> Iterator[tuple[int, object]]:
    for row in rows:
        loc = storage.index.loc_of_row(kind, row)
        if loc is not None:  # else a gc took it since the index was asked
            yield row, _value(storage, kind, row, loc)


def _value(storage: Storage, kind: Kind, row: int, loc: int) -> object:
    place = storage.index.location(loc)
    name = (place.pack, place.offset, place.line) if place.pack else storage.index.loose_oid(kind, row)
    value = _lately_read.get(name)
    if value is None:
        oid = storage.database.oid_of(kind, row, loc)
        value = decode(kind, storage.database.read(kind, oid)[1])
        if name is not None:  # else it has just been moved into a pack
            if len(_lately_read) >= MAX_LATELY_READ:
                _lately_read.clear()
            _lately_read[name] = value
    return value


_lately_read: dict[object, object] = {}  # a pack's name and a loose object's id say what they hold, in any store
