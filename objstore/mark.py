"""Which objects are reachable: the marking half of gc. Reads edges from the index, never a body.

A live node keeps its parent, its message, its called_by, the notes about it, the calls asked at it with what
they were answered, and the chains that it called. A live message keeps its payloads. Rows are small integers,
so a million nodes are a few arrays.
"""

from __future__ import annotations

import contextlib
import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import compress

from objstore.index import Index
from objstore.kinds import Kind
from objstore.wholetables import read_whole
from refs.errors import CorruptFile


def rows_in(marks: bytearray, first: int = 0) -> Iterator[int]:
    """The rows that are marked, from row `first` on."""
    row = marks.find(1, first)
    while row >= 0:
        yield row
        row = marks.find(1, row + 1)


def without(marks: bytearray, other: bytearray) -> bytearray:
    """What is marked in `marks` and not in `other`, which is as long."""
    left = int.from_bytes(marks) & ~int.from_bytes(other)
    return bytearray(left.to_bytes(len(marks)))


@contextlib.contextmanager
def _fitting(path: str) -> Iterator[None]:
    """A damaged index may name rows that no table has."""
    try:
        yield
    except (IndexError, TypeError, OverflowError) as error:
        raise CorruptFile(path, f"a row that isn't there is named ({error}); run 'dag fsck'") from error


class Live:
    """A set of objects, as a byte for each row of each kind."""

    __slots__ = ("behind", "rows")

    def __init__(self, graph: Graph) -> None:
        self.rows = {kind: bytearray(len(graph.locs[kind])) for kind in Kind}
        self.behind = bytearray(len(graph.parent))
        """Nodes that all nodes behind them have been marked with."""

    def holds(self, kind: Kind, row: int) -> bool:
        marks = self.rows[kind]
        return row < len(marks) and marks[row] == 1

    def count(self, kind: Kind) -> int:
        return self.rows[kind].count(1)

    def of(self, kind: Kind) -> Iterator[int]:
        """The rows of a kind."""
        return rows_in(self.rows[kind])

    def add(self, other: Live) -> None:
        """All of another set, which may be of a moment before."""
        for kind, held in other.rows.items():
            self.take(kind, held)

    def take(self, kind: Kind, held: bytearray) -> None:
        """All that is marked in `held`."""
        marks = self.rows[kind]
        size = min(len(marks), len(held))
        both = int.from_bytes(marks[:size]) | int.from_bytes(held[:size])
        marks[:size] = both.to_bytes(size)


class Graph:
    """All edges of a store at one moment. Row 0 is none, and the parent of every first node."""

    def __init__(self, index: Index) -> None:
        """Raises `CorruptFile` where the tables don't fit each other."""
        self._path = index.path
        with _fitting(index.path), index.reading() as db:
            db.execute("BEGIN")
            try:
                self.there: dict[Kind, bytearray] = {}
                """1 for each row that holds an object."""
                self.locs: dict[Kind, array[int]] = {}
                """Where each object stands; 0 for a row that is empty."""
                for kind in Kind:
                    if kind is not Kind.NODE:
                        self.there[kind], (self.locs[kind],) = read_whole(db, self._path, kind, ("loc",))
                self._read_nodes(db)
                self._read_calls(db)
                known = (len(self.parent),)
                self.notes: list[tuple[int, int, int]] = db.execute(
                    "SELECT note, first, last FROM note_run WHERE last < ?", known
                ).fetchall()
                """Notes, each with the first and the last of a run of nodes that it speaks of."""
                self._payloads: dict[int, list[int]] = {}
                for message, payload in db.execute(
                    "SELECT m.message, i.row FROM message_payload m"
                    " JOIN payload_id i ON i.id = substr(m.payload, 1, 16)"
                ):
                    self._payloads.setdefault(message, []).append(payload)
            finally:
                db.execute("COMMIT")
        self._children: tuple[array[int], array[int]] | None = None

    def _read_nodes(self, db: sqlite3.Connection) -> None:
        columns = ("parent", "message", "loc")
        self.there[Kind.NODE], (parents, messages, self.locs[Kind.NODE]) = read_whole(
            db, self._path, Kind.NODE, columns
        )
        if min(parents) < 0 or min(messages) < 0:
            raise CorruptFile(self._path, "a row below the first; run 'dag fsck'")
        if max(parents) >= len(parents) or max(messages) >= len(self.there[Kind.MESSAGE]):
            raise CorruptFile(self._path, "a node names a row that isn't there; run 'dag fsck'")
        self.parent, self.message = parents, messages
        self._caller: dict[int, int] = dict(db.execute("SELECT node, by FROM called"))
        self._called: dict[int, list[int]] = {}
        for node, by in self._caller.items():
            self._called.setdefault(by, []).append(node)

    def _read_calls(self, db: sqlite3.Connection) -> None:
        size = len(self.locs[Kind.CALL])
        self.asked, self.answered = array("q", [0]) * size, array("q", [0]) * size
        self._instructions, self._tools = array("q", [0]) * size, array("q", [0]) * size
        self._first_call, self._next_call = array("q", [0]) * len(self.parent), array("q", [0]) * size
        for row, asked, answered, instructions, tools in db.execute(
            "SELECT call, ifnull(asked, 0), ifnull(answered, 0), ifnull(instructions, 0), ifnull(tools, 0)"
            " FROM call_edge"
        ):
            self.asked[row], self.answered[row] = asked, answered
            self._instructions[row], self._tools[row] = instructions, tools
            at = self._at(row)
            if 0 < at < len(self.parent):
                self._next_call[row] = self._first_call[at]
                self._first_call[at] = row
        self._more = bytearray(len(self.parent))
        """1 for each node that keeps more than its parent and its message."""
        for node in (*self._caller, *self._called, *filter(None, map(self._at, range(1, size)))):
            if node < len(self._more):
                self._more[node] = 1

    def _at(self, call: int) -> int:
        """The node that a call hangs on: one that was asked at nothing on its answer."""
        return self.asked[call] or self.answered[call]

    def outside(self, kind: Kind, live: Live) -> bytearray:
        """A mark for each row of a kind that `live` doesn't hold."""
        return without(self.there[kind], live.rows[kind])

    def in_chain_order(self) -> Iterator[int]:
        """Every node after its parent, the shared past first, then each branch."""
        first, following = self._child_links()
        todo = [first[0]] if first[0] else []
        while todo:
            row = todo.pop()
            if following[row]:
                todo.append(following[row])
            yield row
            if first[row]:
                todo.append(first[row])

    def mark(self, roots: Mapping[Kind, Iterable[int]], live: Live | None = None) -> Live:
        """Mark objects, given by their rows, and all that they keep, into `live` where there is one.

        Raises `CorruptFile` if a node's parent or message isn't there: nothing is deleted on doubt.
        """
        live = Live(self) if live is None else live
        with _fitting(self._path):
            self._mark_all(roots, live)
        return live

    def _mark_all(self, roots: Mapping[Kind, Iterable[int]], live: Live) -> None:
        todo: list[int] = []
        for kind, rows in roots.items():
            if kind is Kind.NODE:
                todo += rows
            elif kind is Kind.CALL:
                for row in rows:
                    self._mark_call(row, live, todo)
            else:
                for row in rows:
                    live.rows[kind][row] = 1
        self._mark_chains(todo, live)
        self._mark_messages(live)
        nodes, notes = live.rows[Kind.NODE], live.rows[Kind.NOTE]
        for note, first, last in self.notes:
            if nodes.find(1, first, last + 1) >= 0:
                notes[note] = 1
        for message, payloads in self._payloads.items():
            if live.rows[Kind.MESSAGE][message]:
                for payload in payloads:
                    live.rows[Kind.PAYLOAD][payload] = 1

    def _mark_chains(self, todo: list[int], live: Live) -> None:
        """Walk from each node to its first, and from there to what else they keep, until all is marked."""
        nodes, parents, more = live.rows[Kind.NODE], self.parent, self._more
        try:
            while todo:
                row = todo.pop()
                while row and not nodes[row]:
                    nodes[row] = 1
                    if more[row]:
                        self._mark_more(row, live, todo)
                    row = parents[row]
        except IndexError:
            whole = False
        else:
            whole = not any(without(nodes, self.there[Kind.NODE]))
        if not whole:
            raise CorruptFile(self._path, "a node's parent is missing; run 'dag fsck'")

    def _mark_more(self, row: int, live: Live, todo: list[int]) -> None:
        """Who asked for a node, the calls at it, and what it called."""
        if row in self._caller:
            todo.append(self._caller[row])
        call = self._first_call[row]
        while call:
            self._mark_call(call, live, todo)
            call = self._next_call[call]
        if row in self._called:
            self._mark_behind(self._called[row], live, todo)

    def _mark_messages(self, live: Live) -> None:
        """The messages of all nodes that are marked."""
        there = self.there[Kind.MESSAGE]
        named = bytearray(len(there))
        try:
            for message in compress(self.message, live.rows[Kind.NODE]):
                named[message] = 1
        except IndexError:
            whole = False
        else:
            whole = not any(without(named, there))
        if not whole:
            raise CorruptFile(self._path, "a node's message is missing; run 'dag fsck'")
        live.take(Kind.MESSAGE, named)

    def _mark_call(self, call: int, live: Live, todo: list[int]) -> None:
        if not live.rows[Kind.CALL][call]:
            live.rows[Kind.CALL][call] = 1
            todo += [row for row in (self.asked[call], self.answered[call]) if row]
            for kind, row in ((Kind.MESSAGE, self._instructions[call]), (Kind.PAYLOAD, self._tools[call])):
                if row:
                    live.rows[kind][row] = 1

    def _mark_behind(self, rows: list[int], live: Live, todo: list[int]) -> None:
        """The chains that begin at some nodes, to their ends; each node once, however often it was called."""
        first, following = self._child_links()
        stack = list(rows)
        while stack:
            node = stack.pop()
            if live.behind[node]:
                continue
            live.behind[node] = 1
            todo.append(node)
            child = first[node]
            while child:
                stack.append(child)
                child = following[child]

    def _child_links(self) -> tuple[array[int], array[int]]:
        if self._children is None:
            first, following = array("q", [0]) * len(self.parent), array("q", [0]) * len(self.parent)
            for row in range(len(self.parent) - 1, 0, -1):
                if self.there[Kind.NODE][row]:
                    parent = self.parent[row]
                    following[row] = first[parent]
                    first[parent] = row
            self._children = first, following
        return self._children
