"""The store's index against one that was just made of the objects: what it lacks, and what it says wrongly."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

from objstore.arrival import LINES_PER_FRAME, place_loose
from objstore.catchup import follow_in_memory, holds_all
from objstore.database import oid_in
from objstore.findings import Finding, error, warning
from objstore.index import Index
from objstore.indexfile import INDEX
from objstore.journal import Journal
from objstore.kinds import Kind
from objstore.loose import Form, loose_name
from objstore.pack import PackReader
from objstore.packframe import Frame
from objstore.parts import ALL_PARTS
from objstore.salvage import recorded
from refs.errors import CorruptFile, DagError
from refs.files import Files
from refs.store import RefStore

# What the index says, in ids rather than rows; each in the order of its columns.
_EDGES: Final = {
    "parent, message or depth": "SELECT lower(hex(i.id)), lower(hex(p.id)), lower(hex(m.id)), n.depth"
    " FROM node_id i JOIN node n ON n.row = i.row LEFT JOIN node_of p ON p.row = n.parent"
    " LEFT JOIN message_of m ON m.row = n.message ORDER BY i.id",
    "caller": "SELECT lower(hex(i.id)), lower(hex(b.id)) FROM called c JOIN node_of i ON i.row = c.node"
    " LEFT JOIN node_of b ON b.row = c.by ORDER BY i.id",
    "call": "SELECT lower(hex(i.id)), lower(hex(a.id)), lower(hex(b.id)), e.named, e.at, lower(hex(m.id)),"
    " lower(hex(t.id)) FROM call_edge e JOIN call_of i ON i.row = e.call LEFT JOIN node_of a ON a.row = e.asked"
    " LEFT JOIN node_of b ON b.row = e.answered LEFT JOIN message_of m ON m.row = e.instructions"
    " LEFT JOIN payload_of t ON t.row = e.tools ORDER BY i.id",
    "payload": "SELECT lower(hex(i.id)), lower(hex(p.payload)) FROM message_payload p"
    " JOIN message_of i ON i.row = p.message ORDER BY 1, 2",
    "note": "SELECT lower(hex(i.id)), lower(hex(t.id)) FROM note_run n"
    " JOIN node_of i ON i.row BETWEEN n.first AND n.last"
    " JOIN note_of t ON t.row = n.note ORDER BY 1, 2",
}
_PLACES: Final = (
    "SELECT lower(hex(i.id)), ifnull(lower(hex(p.name)), ''), ifnull(f.offset, 0),"
    " CASE WHEN f.row IS NULL THEN o.loc ELSE o.loc % {lines} END"
    " FROM {kind}_id i JOIN {kind} o ON o.row = i.row"
    " LEFT JOIN frame f ON f.row = o.loc / {lines} AND o.loc > 0 LEFT JOIN pack p ON p.row = f.pack ORDER BY i.id"
)
_Row = tuple[object, ...]


def name_rows(db: sqlite3.Connection, kinds: Iterable[Kind] = Kind) -> None:
    """Make tables of ids by row, which the index has no use for; without them each look-up reads all ids."""
    for kind in kinds:
        db.execute(f"CREATE TEMP TABLE IF NOT EXISTS {kind}_of(row INTEGER PRIMARY KEY, id BLOB NOT NULL)")
        db.execute(f"INSERT OR IGNORE INTO {kind}_of SELECT row, id FROM {kind}_id ORDER BY row")


def audit(files: Files, fresh: Index) -> Iterator[Finding]:
    """What the store's index says otherwise than `fresh`. Without an index there is nothing to compare."""
    index = Index(files.path(INDEX), ALL_PARTS, read_only=True)
    if files.stat(INDEX) is None or not index.open():
        return  # told already
    try:
        _catch_up(files, index)
        with index.reading() as old, fresh.reading() as new:
            yield from _whole(old)
            for db in (old, new):
                name_rows(db)
            yield from _objects(files, index, old, new)
            for what, query in _EDGES.items():
                for row, there in _difference(old.execute(query), new.execute(query)):
                    if there:
                        yield error("wrong-index", INDEX, f"the {what} of {row[0]}… isn't what the object says")
            yield from _named(files, index, fresh)
    except DagError as failure:
        yield error("bad-index", INDEX, str(failure))
    finally:
        index.close()


def _catch_up(files: Files, index: Index) -> None:
    """What was just committed stands in the journal, and whoever asks the index finds it there."""
    journal = Journal(files, bytes(16))
    try:
        if not holds_all(index, journal):
            follow_in_memory(files, index, journal, lambda _: None)
    except (CorruptFile, FileNotFoundError):
        return  # told already
    finally:
        journal.close()


def _whole(db: sqlite3.Connection) -> Iterator[Finding]:
    for (text,) in db.execute("PRAGMA quick_check(10)"):
        if text != "ok":
            yield error("bad-index", INDEX, str(text))


def _objects(files: Files, index: Index, old: sqlite3.Connection, new: sqlite3.Connection) -> Iterator[Finding]:
    for kind in Kind:
        query = f"SELECT lower(hex(id)) FROM {kind}_id ORDER BY id"
        gone = set()
        for (oid,), there in _difference(old.execute(query), new.execute(query)):
            if there:
                gone.add(oid)
                yield error(
                    "missing-object", f"{kind} {oid}…", "the index holds it, but it can't be read anywhere"
                )
            else:
                yield warning("unindexed-object", f"{kind} {oid}…", "the index doesn't know it")
        places = _PLACES.format(kind=kind, lines=LINES_PER_FRAME)
        moved = (row for row, there in _difference(old.execute(places), new.execute(places)) if there)
        # By place, so that each frame is unpacked once.
        elsewhere = sorted((str(pack), int(str(at)), int(str(line)), str(oid)) for oid, pack, at, line in moved)
        loose = {oid[:32]: oid for _, oid in index.loose_rows(kind)}
        with _Places(files, kind) as held:
            for pack, offset, line, oid in elsewhere:
                if oid not in gone and not held.holds(loose.get(oid, oid), pack, offset, line):
                    yield error("wrong-index", INDEX, f"{kind} {oid}… isn't where the index says")


class _Places:
    """Says whether an object stands at a place other than the first one that was found."""

    def __init__(self, files: Files, kind: Kind) -> None:
        self._files, self._kind = files, kind
        self._recorded = recorded(files)
        self._reader: PackReader | None = None
        self._sizes: dict[int, int] = {}
        self._frame: tuple[str, int, Frame] | None = None

    def __enter__(self) -> _Places:
        return self

    def __exit__(self, *_: object) -> None:
        if self._reader is not None:
            self._reader.close()

    def holds(self, oid: str, pack: str, offset: int, line: int) -> bool:
        if not pack:
            names = (loose_name(self._kind, oid, form) for form in Form if line == place_loose(form))
            return (self._kind, oid) in self._recorded or any(self._files.stat(name) for name in names)
        try:
            return oid_in(self._read(pack, offset), self._kind, line).startswith(oid)
        except (DagError, FileNotFoundError, KeyError):
            return False

    def _read(self, pack: str, offset: int) -> Frame:
        if self._reader is None or self._reader.pack != pack:
            if self._reader is not None:
                self._reader.close()
            self._reader = PackReader(self._files, pack)
            self._sizes = dict(self._reader.frames())
        if self._frame is None or self._frame[:2] != (pack, offset):
            self._frame = pack, offset, self._reader.frame(offset, self._sizes[offset])
        return self._frame[2]


def _named(files: Files, index: Index, fresh: Index) -> Iterator[Finding]:
    refs = RefStore(files)
    try:
        for ref, oid in refs.list():
            if any(fresh.row(kind, oid) and not index.row(kind, oid) for kind in (Kind.NODE, Kind.DESCRIPTION)):
                yield error("wrong-index", ref, f"the index doesn't know {oid}, which this ref names")
    except DagError:
        return  # the refs' own check tells
    finally:
        refs.close()


def _difference(old: Iterator[_Row], new: Iterator[_Row]) -> Iterator[tuple[_Row, bool]]:
    """(row, whether `old` has it) of what only one of two sorted results holds."""
    a, b = next(old, None), next(new, None)
    while a is not None or b is not None:
        if a == b:
            a, b = next(old, None), next(new, None)
        elif b is None or (a is not None and _order(a) < _order(b)):
            assert a is not None
            yield a, True
            a = next(old, None)
        else:
            yield b, False
            b = next(new, None)


def _order(row: _Row) -> list[str]:
    return [str(each) for each in row]
