"""The store's index against one that was just made of the objects: what it lacks, and what it says wrongly."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from objstore.database import oid_in
from objstore.findings import Finding, error, warning
from objstore.index import INDEX, LINES_PER_FRAME, Index, place_loose
from objstore.kinds import Kind
from objstore.loose import Form, loose_name
from objstore.pack import PackReader
from objstore.parts import ALL_PARTS
from refs.errors import DagError
from refs.files import Files
from refs.store import RefStore

# What the index says, in ids rather than rows; each in the order of its columns.
_EDGES: Final = {
    "parent, message or depth": "SELECT lower(hex(i.id)), lower(hex(p.id)), lower(hex(m.id)), n.depth"
    " FROM node_id i JOIN node n ON n.row = i.row LEFT JOIN node_id p ON p.row = n.parent"
    " LEFT JOIN message_id m ON m.row = n.message ORDER BY i.id",
    "caller": "SELECT lower(hex(i.id)), lower(hex(b.id)) FROM called c JOIN node_id i ON i.row = c.node"
    " LEFT JOIN node_id b ON b.row = c.by ORDER BY i.id",
    "call": "SELECT lower(hex(i.id)), lower(hex(a.id)), lower(hex(b.id)), e.named, e.at, lower(hex(m.id)),"
    " lower(hex(t.id)) FROM call_edge e JOIN call_id i ON i.row = e.call LEFT JOIN node_id a ON a.row = e.asked"
    " LEFT JOIN node_id b ON b.row = e.answered LEFT JOIN message_id m ON m.row = e.instructions"
    " LEFT JOIN payload_id t ON t.row = e.tools ORDER BY i.id",
    "payload": "SELECT lower(hex(i.id)), lower(hex(p.payload)) FROM message_payload p"
    " JOIN message_id i ON i.row = p.message ORDER BY 1, 2",
    "note": "SELECT lower(hex(i.id)), lower(hex(t.id)) FROM note_node n JOIN node_id i ON i.row = n.node"
    " JOIN note_id t ON t.row = n.note ORDER BY 1, 2",
}
_PLACES: Final = (
    "SELECT lower(hex(i.id)), ifnull(lower(hex(p.name)), ''), ifnull(f.offset, 0),"
    " CASE WHEN f.row IS NULL THEN o.loc ELSE o.loc % {lines} END"
    " FROM {kind}_id i JOIN {kind} o ON o.row = i.row"
    " LEFT JOIN frame f ON f.row = o.loc / {lines} AND o.loc > 0 LEFT JOIN pack p ON p.row = f.pack ORDER BY i.id"
)
_Row = tuple[object, ...]


def audit(files: Files, fresh: Index) -> Iterator[Finding]:
    """What the store's index says otherwise than `fresh`. Without an index there is nothing to compare."""
    index = Index(files.path(INDEX), ALL_PARTS, read_only=True)
    if files.stat(INDEX) is None or not index.open():
        return  # told already
    try:
        with index.reading() as old, fresh.reading() as new:
            yield from _whole(old)
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
        moved = [row for row, there in _difference(old.execute(places), new.execute(places)) if there]
        loose = {oid[:32]: oid for _, oid in index.loose_rows(kind)}
        with ExitStack() as stack:
            readers: dict[str, PackReader | None] = {}
            for oid, pack, offset, line in moved:
                if oid not in gone and not _stands(
                    files,
                    kind,
                    loose.get(str(oid), str(oid)),
                    (str(pack), int(str(offset)), int(str(line))),
                    readers,
                ):
                    yield error("wrong-index", INDEX, f"{kind} {oid}… isn't where the index says")
            for reader in readers.values():
                if reader is not None:
                    stack.callback(reader.close)


def _stands(
    files: Files, kind: Kind, oid: str, place: tuple[str, int, int], readers: dict[str, PackReader | None]
) -> bool:
    """Whether an object stands at a place other than the first one that was found."""
    pack, offset, line = place
    if not pack:
        return any(
            line == place_loose(form) and files.stat(loose_name(kind, oid, form)) is not None for form in Form
        )
    try:
        if pack not in readers:
            readers[pack] = PackReader(files, pack)
        reader = readers[pack]
        sizes = {} if reader is None else dict(reader.frames())
        if reader is None or offset not in sizes:
            return False
        return oid_in(reader.frame(offset, sizes[offset]), kind, line).startswith(oid)
    except (DagError, FileNotFoundError):
        readers.setdefault(pack, None)
        return False


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
