"""The SQLite index: is this object here, where does it stand, and what hangs on it. A cache.

A node is stored when the index holds it, and the index admits it only after its parent, its message and its
called_by: that is what makes the prefix search true. Delete the file and it is rebuilt from the objects.

An object is known by the first 16 bytes of its id: two that share them take 2^64 tries to make, and whoever
reads one by the other's id gets `CorruptObject`, never wrong bytes. Inside, rows are numbered in the order
of their arrival, so that edges are small integers and grow at the tables' ends.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any, Final

from objstore.arrival import LINES_PER_FRAME, Arrival, Location, loose_form
from objstore.indexfile import NUMBERING, IndexFile
from objstore.kinds import Kind
from objstore.node import Node
from refs.errors import CorruptFile
from refs.ids import ROOT, NodeId, Oid

_ID_BYTES: Final = 32
_IDS_AT_ONCE: Final = 500
_ROWS_AT_ONCE: Final = 50  # of one INSERT: more of them gain nothing
_ROWS_A_LOOK_UP: Final = 4
"""So many rows are read one after the other in the time of one look-up."""
ROOT_ROW: Final = 0


def key(oid: str) -> bytes:
    """What an id is known by in the index."""
    return bytes.fromhex(oid[:32])


def batches(values: Sequence[Any]) -> Iterator[tuple[str, Sequence[Any]]]:
    """(question marks, values) for statements that ask for many at once."""
    marks = ",".join("?" * _IDS_AT_ONCE)
    for start in range(0, len(values), _IDS_AT_ONCE):
        batch = values[start : start + _IDS_AT_ONCE]
        yield marks[: 2 * len(batch) - 1], batch


class Index(IndexFile):
    """What can be asked of the index, and how it changes."""

    # -- asking -----------------------------------------------------------------------------------

    def row(self, kind: Kind, oid: str) -> int | None:
        """The row of an object, or None if the store doesn't hold it."""
        name = key(oid)
        row = self._row(kind, name)
        # A ref moves before the index of another process knows what it names.
        if row is None and self._reader != threading.get_ident() and self.look(True):
            row = self._row(kind, name)
        return row

    def _row(self, kind: Kind, name: bytes) -> int | None:
        with self._mutex:  # another thread must not see what may yet be rolled back
            arriving = self._arriving.get(kind)
            if arriving is not None and name in arriving:
                return arriving[name]
            found = self._one(_ROW_OF[kind], (name,))
        return None if found is None else self._whole(found[0])

    def rows_of(self, kind: Kind, ids: Iterable[Oid]) -> dict[Oid, int]:
        """The rows of those of `ids` that are stored: much cheaper than one after the other."""
        names = {key(oid): oid for oid in ids}
        with self.reading() as db:
            if len(names) * _ROWS_A_LOOK_UP >= self._next_row(db, kind):
                every = db.execute(f"SELECT id, row FROM {kind}_id")
                return {names[name]: row for name, row in every if name in names}
            found: dict[Oid, int] = {}
            for marks, batch in batches(sorted(names)):  # neighbours stand in one page
                for name, row in db.execute(f"SELECT id, row FROM {kind}_id WHERE id IN ({marks})", batch):
                    found[names[name]] = row
        return found

    def has(self, kind: Kind, oid: Oid) -> bool:
        """Whether an object is stored. The cheapest question."""
        with self._mutex:
            if self._recent is not None and oid in self._recent.locs[kind]:
                return True
            return self._one(_ROW_OF[kind], (key(oid),), settled=False) is not None

    def absent(self, asked: Sequence[tuple[Kind, Oid]]) -> set[tuple[Kind, Oid]]:
        """Those of a few objects that the store doesn't hold: one statement for all."""
        with self._mutex:
            recent = self._recent
            if recent is not None:
                asked = [(kind, oid) for kind, oid in asked if oid not in recent.locs[kind]]
            if not asked:
                return set()
            each = ", ".join([f"(SELECT row FROM {kind}_id WHERE id=?)" for kind, _ in asked])
            found = self._one(f"SELECT {each}", tuple([key(oid) for _, oid in asked]), settled=False)
        return {pair for pair, row in zip(asked, found, strict=True) if row is None}

    def has_node(self, oid: NodeId) -> bool:
        """Whether a node, and so everything before it, is stored. One check; `ROOT` always is."""
        self.checks += 1
        return oid == ROOT or self.has(Kind.NODE, oid)

    def missing(self, kind: Kind, ids: Iterable[Oid]) -> set[Oid]:
        """Those of `ids` that the store doesn't hold."""
        wanted = list(ids)
        if len(wanted) <= 8:  # bytes of one statement are kept ready, so a few are cheaper one by one
            return {oid for oid in wanted if not self.has(kind, oid)}
        names = {key(oid): oid for oid in wanted}
        with self.reading() as db:
            for name in self._known(db, kind, names):
                del names[name]
        return set(names.values())

    def _known(self, db: sqlite3.Connection, kind: Kind, names: Iterable[bytes]) -> set[bytes]:
        """Those of `names` that are in the table."""
        known: set[bytes] = set()
        for marks, batch in batches(sorted(names)):  # neighbours stand in one page
            known.update(*db.execute(f"SELECT id FROM {kind}_id WHERE id IN ({marks})", batch))
        return known

    def locate(self, kind: Kind, oid: str) -> Location | None:
        """Where an object stands, or None if the store doesn't hold it."""
        with self._mutex:
            loc = None if self._recent is None else self._recent.locs[kind].get(Oid(oid))
            if loc is None:
                found = self._one(_LOC_OF[kind], (key(oid),), settled=False)
                loc = None if found is None else found[0]
        return None if loc is None else self.location(loc)

    def loc_of_row(self, kind: Kind, row: int) -> int | None:
        found = self._one(f"SELECT loc FROM {kind} WHERE row=?", (row,))
        return None if found is None else self._whole(found[0])

    def location_of_row(self, kind: Kind, row: int) -> Location | None:
        loc = self.loc_of_row(kind, row)
        return None if loc is None else self.location(loc)

    def loose_oid(self, kind: Kind, row: int) -> Oid | None:
        """The whole id of an object that stands as a loose file or in the journal."""
        found = self._one("SELECT oid FROM loose WHERE kind=? AND row=?", (_NUMBER[kind], row))
        return None if found is None else self._oid(found[0])

    def child_rows(self, row: int) -> list[tuple[int, int]]:
        """(row, loc) of the nodes whose parent is node `row`, oldest first."""
        with self.reading() as db:
            return db.execute(_CHILDREN, (row,)).fetchall()

    def node_edges(self, row: int) -> tuple[int, int, int] | None:
        """(parent row, message row, depth) of a node. The depth of a first message is 1."""
        found = self._one("SELECT parent, message, depth FROM node WHERE row=?", (row,))
        return None if found is None else (self._whole(found[0]), self._whole(found[1]), self._whole(found[2]))

    def prefix_matches(self, kind: Kind, prefix: str, limit: int) -> list[tuple[int, int]]:
        """(row, loc) of objects whose ids begin with `prefix` (up to 32 of its digits count)."""
        low = prefix[:32].ljust(32, "0")
        high = prefix[:32].ljust(32, "f")
        with self.reading() as db:
            return db.execute(
                f"SELECT o.row, o.loc FROM {kind}_id i JOIN {kind} o ON o.row = i.row"
                " WHERE i.id BETWEEN ? AND ? ORDER BY i.id LIMIT ?",
                (bytes.fromhex(low), bytes.fromhex(high), limit),
            ).fetchall()

    def rows(self, kind: Kind) -> Iterator[tuple[int, int]]:
        """(row, loc) of all objects of a kind, in order of arrival."""
        after = 0
        while True:
            with self.reading() as db:
                batch = db.execute(
                    f"SELECT row, loc FROM {kind} WHERE row > ? ORDER BY row LIMIT 5000", (after,)
                ).fetchall()
            if not batch:
                return
            yield from batch
            after = batch[-1][0]

    def location(self, loc: int) -> Location:
        """What a `loc` means."""
        if self._whole(loc) < 0:
            try:
                return Location(None, form=loose_form(loc))
            except ValueError:
                raise self._odd(loc) from None
        frame, line = divmod(loc, LINES_PER_FRAME)
        known = self._frames.get(frame)
        if known is None:
            found = self._one(
                "SELECT p.name, f.offset, f.size FROM frame f JOIN pack p ON p.row = f.pack WHERE f.row=?",
                (frame,),
                settled=False,
            )
            if found is None:
                raise CorruptFile(self.path, "an object in a frame that isn't there")
            if len(self._frames) > 100_000:
                self._frames.clear()
            pack, offset, size = self._oid(found[0]), self._whole(found[1]), self._whole(found[2])
            known = self._frames[frame] = Location(pack, offset, size, frame=frame)
        return Location(known.pack, known.offset, known.size, line, frame=frame)

    def numbering(self) -> str:
        """Stays the same as long as no row was given up, and so none can come to mean another object."""
        return self.meta(NUMBERING) or ""

    def last_rows(self) -> dict[Kind, int]:
        """The row of the latest arrival of each kind."""
        with self.reading() as db:
            return {kind: db.execute(f"SELECT coalesce(max(row), 0) FROM {kind}").fetchone()[0] for kind in Kind}

    def counts(self) -> dict[Kind, int]:
        with self.reading() as db:
            return {kind: db.execute(f"SELECT count(*) FROM {kind}").fetchone()[0] for kind in Kind}

    def loose_rows(self, kind: Kind) -> list[tuple[int, Oid]]:
        """(row, id) of all objects of a kind that stand as loose files or in the journal."""
        with self.reading() as db:
            found = db.execute("SELECT row, oid FROM loose WHERE kind=?", (_NUMBER[kind],)).fetchall()
        return [(row, self._oid(oid)) for row, oid in found]

    def loose_count(self) -> int:
        """How many objects that a pack could hold stand as loose files or in the journal."""
        with self.reading() as db:
            found: int = db.execute(
                "SELECT count(*) FROM loose WHERE kind != ?", (_NUMBER[Kind.PAYLOAD],)
            ).fetchone()[0]
        return found

    def packs(self) -> dict[str, int]:
        """Pack ids and their rows."""
        with self.reading() as db:
            return {self._oid(name): row for row, name in db.execute("SELECT row, name FROM pack")}

    # -- what a damaged file may hold: any value in any place ------------------------------------

    def _whole(self, value: Any) -> int:
        if type(value) is not int:
            raise self._odd(value)
        return value

    def _oid(self, value: Any) -> Oid:
        if type(value) is not bytes or len(value) != _ID_BYTES:
            raise self._odd(value)
        return Oid(value.hex())

    # -- changing: inside `changing`, with the store's lock held ----------------------------------

    def add_pack(self, db: sqlite3.Connection, pack: str, frames: Sequence[tuple[int, int]]) -> int:
        """Make a pack and its frames known; the row of its first frame (the others follow it)."""
        row = db.execute("INSERT INTO pack(name) VALUES (?)", (bytes.fromhex(pack),)).lastrowid
        # Never a row that was in use before: another process may remember where the old frame stood.
        first: int = db.execute("SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence").fetchone()[0]
        db.executemany(
            "INSERT INTO frame VALUES (?, ?, ?, ?)",
            [(first + i, row, offset, size) for i, (offset, size) in enumerate(frames)],
        )
        return first

    def first_frame(self, pack: str) -> int | None:
        """The row of the first frame of a pack, or None if the pack isn't known."""
        with self.reading() as db:
            found = db.execute(
                "SELECT min(f.row) FROM frame f JOIN pack p ON p.row = f.pack WHERE p.name=?",
                (bytes.fromhex(pack),),
            ).fetchone()
        return None if found is None else found[0]

    def forget_pack(self, db: sqlite3.Connection, pack: str) -> None:
        """Forget a pack in which nothing stands any more."""
        row = db.execute("SELECT row FROM pack WHERE name=?", (bytes.fromhex(pack),)).fetchone()
        if row is not None:
            db.execute("DELETE FROM frame WHERE pack=?", row)
            db.execute("DELETE FROM pack WHERE row=?", row)
            self._frames.clear()

    def check_places(self, db: sqlite3.Connection) -> None:
        """Raise `CorruptFile` if any object stands in a frame that isn't known (any more)."""
        for kind in Kind:
            lost = f"SELECT 1 FROM {kind} WHERE loc >= 0 AND loc / ? NOT IN (SELECT row FROM frame) LIMIT 1"
            if db.execute(lost, (LINES_PER_FRAME,)).fetchone():
                raise CorruptFile(self.path, f"a {kind} in a frame that isn't there")

    def add(self, db: sqlite3.Connection, arrivals: Sequence[Arrival], *, all_new: bool = False) -> list[Arrival]:
        """Admit objects, in their order; those whose parent, message or called_by isn't there come back.

        One that is known already is passed over; `all_new` says that none is. Keys go into their trees in
        sorted batches: the trees are the only places where rows don't come in order.
        """
        by_kind: dict[Kind, list[Arrival]] = {}
        for arrival in arrivals:
            by_kind.setdefault(arrival.kind, []).append(arrival)
        left: list[Arrival] = []
        try:
            for kind in _ADMISSION_ORDER:
                if kind in by_kind:
                    left += self._add_kind(db, kind, by_kind[kind], all_new)
        finally:
            self._arriving = {}
        return left

    def _add_kind(
        self, db: sqlite3.Connection, kind: Kind, arrivals: Sequence[Arrival], all_new: bool
    ) -> list[Arrival]:
        new: dict[bytes, Arrival] = {}
        for arrival in arrivals:
            new.setdefault(key(arrival[1]), arrival)
        for name in () if all_new else self._known(db, kind, new):
            del new[name]
        first = self._next_row(db, kind)
        edges: tuple[Sequence[int], ...] = ()
        left: list[Arrival] = []
        if kind is Kind.NODE:
            fresh = self._arriving[kind] = {}
            edges, left = self._edges(db, new, fresh, first)
            admitted = [new[name] for name in fresh] if left else list(new.values())
        else:
            fresh = self._arriving[kind] = dict(zip(new, count(first)))
            admitted = list(new.values())
        rows = range(first, first + len(admitted))
        locs = [arrival[2] for arrival in admitted]
        _insert(db, kind, zip(rows, *edges, locs, strict=True))
        # Keys in their order, so that neighbours go into one page.
        names = sorted(fresh)
        _insert(db, f"{kind}_id", zip(names, map(fresh.__getitem__, names), strict=True))
        if min(locs, default=0) < 0:
            loose = [
                (_NUMBER[kind], row, bytes.fromhex(each.oid))
                for row, each in zip(rows, admitted, strict=True)
                if each.loc < 0
            ]
            db.executemany("INSERT OR REPLACE INTO loose VALUES (?, ?, ?)", loose)
        added = [(row, each[3]) for row, each in zip(rows, admitted, strict=True) if each[3] is not None]
        for part in self._of_kind[kind] if added else ():
            part.add(db, self, added)
        return left

    def _edges(
        self, db: sqlite3.Connection, new: Mapping[bytes, Arrival], fresh: dict[bytes, int], first: int
    ) -> tuple[tuple[list[int], list[int], list[int]], list[Arrival]]:
        """(parent rows, message rows, depths) of the nodes whose edges are all there, and the other nodes.

        The rows of the first go into `fresh`, from row `first` on.
        """
        parents: list[int] = []
        messages: list[int] = []
        depths: list[int] = []
        left: list[Arrival] = []
        arriving = self._arriving.get(Kind.MESSAGE, {})
        row, before, depth = first, "", 0
        for name, arrival in new.items():
            node = arrival[3]
            assert isinstance(node, Node)
            message = arriving.get(bytes.fromhex(node.message[:32]))
            if message is None:
                message = self.row(Kind.MESSAGE, node.message)
            called = node.called_by
            if message is None or (called is not None and self.row(Kind.NODE, called) is None):
                left.append(arrival)
                continue
            if node.parent == before:  # as most are
                parent, depth = row - 1, depth + 1
            else:
                found = self._parent(db, node.parent, fresh, depths, first)
                if found is None:
                    left.append(arrival)
                    continue
                parent, depth = found[0], found[1] + 1
            parents.append(parent)
            messages.append(message)
            depths.append(depth)
            fresh[name] = row
            row, before = row + 1, arrival[1]
        return (parents, messages, depths), left

    def _parent(
        self, db: sqlite3.Connection, oid: NodeId, fresh: Mapping[bytes, int], depths: Sequence[int], first: int
    ) -> tuple[int, int] | None:
        """(row, depth) of a node, or None if it isn't there."""
        if oid == ROOT:
            return ROOT_ROW, 0
        name = key(oid)
        row = fresh.get(name)
        if row is not None:
            return row, depths[row - first]
        found = db.execute(
            "SELECT n.row, n.depth FROM node_id i JOIN node n ON n.row = i.row WHERE i.id=?", (name,)
        ).fetchone()
        return None if found is None else (found[0], found[1])

    def arriving(self, kind: Kind) -> Mapping[bytes, int]:
        """The rows of what is just being admitted, by the objects' names: for the parts."""
        return self._arriving.get(kind, {})

    def _next_row(self, db: sqlite3.Connection, kind: Kind) -> int:
        return self._whole(db.execute(f"SELECT coalesce(max(row), 0) + 1 FROM {kind}").fetchone()[0])

    def move_rows(self, db: sqlite3.Connection, kind: Kind, places: Iterable[tuple[int, int]]) -> None:
        """Objects, given as (loc, row), stand in packs now."""
        moved = list(places)
        db.executemany(f"UPDATE {kind} SET loc=? WHERE row=?", moved)
        if db.execute(f"SELECT 1 FROM loose WHERE kind={_NUMBER[kind]} LIMIT 1").fetchone():
            gone = [(row,) for _, row in moved]
            db.executemany(f"DELETE FROM loose WHERE kind={_NUMBER[kind]} AND row=?", gone)

    def take_from_loose(self, db: sqlite3.Connection, arrivals: Iterable[Arrival]) -> None:
        """What is known as a loose file stands in a pack as well: from now on it is read there."""
        for kind in Kind:
            places = {each.oid: each.loc for each in arrivals if each.kind is kind}
            loose = {oid: row for row, oid in self.loose_rows(kind)} if places else {}
            self.move_rows(db, kind, [(loc, loose[oid]) for oid, loc in places.items() if oid in loose])

    def link(self, db: sqlite3.Connection) -> None:
        """Join what came before the objects it names: after a pack was adopted or all was read."""
        for part in self._parts:
            part.link(db)

    def forget(self, db: sqlite3.Connection, kind: Kind, rows: Iterable[int]) -> None:
        """Objects are no longer stored: in the same transaction as what is built on them, see gc."""
        gone = list(rows)
        self.set_meta(db, NUMBERING, os.urandom(8).hex())
        db.execute("CREATE TEMP TABLE IF NOT EXISTS gone(row INTEGER PRIMARY KEY)")
        db.execute("DELETE FROM gone")
        db.executemany("INSERT INTO gone VALUES (?)", [(row,) for row in gone])
        # One pass over the keys, rather than reading packs for the ids.
        for table in (f"{kind}_id", kind):
            db.execute(f"DELETE FROM {table} WHERE row IN (SELECT row FROM gone)")
        db.execute(f"DELETE FROM loose WHERE kind={_NUMBER[kind]} AND row IN (SELECT row FROM gone)")
        for part in self._parts:
            part.forget(db, kind, gone)


_ADMISSION_ORDER: Final = (
    Kind.PAYLOAD,
    Kind.MESSAGE,
    Kind.NODE,
    Kind.DESCRIPTION,
    Kind.CALL,
    Kind.NOTE,
)
_NUMBER: Final = {kind: number for number, kind in enumerate(Kind)}
_ROW_OF: Final = {kind: f"SELECT row FROM {kind}_id WHERE id=?" for kind in Kind}
_LOC_OF: Final = {
    kind: f"SELECT o.loc FROM {kind}_id i JOIN {kind} o ON o.row = i.row WHERE i.id=?" for kind in Kind
}
_CHILDREN: Final = (
    "SELECT row, loc FROM node WHERE row = ?1 + 1 AND parent = ?1"
    " UNION ALL SELECT row, loc FROM node WHERE parent = ?1 AND parent <> row - 1 ORDER BY row"
)


def _insert(db: sqlite3.Connection, table: str, rows: Iterable[Sequence[Any]]) -> None:
    """Add rows to a table, some of them with each statement: half the cost of one after the other."""
    left = list(rows)
    if not left:
        return
    marks = f"({','.join('?' * len(left[0]))})"
    statement = f"INSERT INTO {table} VALUES {','.join([marks] * _ROWS_AT_ONCE)}"
    whole = len(left) - len(left) % _ROWS_AT_ONCE
    for start in range(0, whole, _ROWS_AT_ONCE):
        db.execute(statement, list(chain.from_iterable(left[start : start + _ROWS_AT_ONCE])))
    db.executemany(f"INSERT INTO {table} VALUES {marks}", left[whole:])
