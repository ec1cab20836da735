"""Which objects are reachable: the marking half of gc. Reads edges from the index, never a body.

A live node keeps its parent, its message, its called_by, the notes about it, the calls asked at it with what
they were answered, and the chains that it called. A live message keeps its payloads. Rows are small integers,
so a million nodes are a few arrays.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterable, Iterator
from typing import Final

from objstore.index import Index
from objstore.kinds import Kind
from refs.errors import CorruptFile

_ABSENT: Final = -1


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
        marks = self.rows[kind]
        row = marks.find(1)
        while row >= 0:
            yield row
            row = marks.find(1, row + 1)

    def add(self, other: Live) -> None:
        """All of another set, which may be of a moment before."""
        for kind, marks in self.rows.items():
            held = other.rows[kind]
            size = min(len(marks), len(held))
            both = int.from_bytes(marks[:size]) | int.from_bytes(held[:size])
            marks[:size] = both.to_bytes(size)


class Graph:
    """All edges of a store at one moment. Row 0 is none, and the parent of every first node."""

    def __init__(self, index: Index) -> None:
        self._path = index.path
        with index.reading() as db:
            db.execute("BEGIN")
            try:
                self.locs = {kind: _by_row(db, kind) for kind in Kind}
                """Where each object stands; 0 for a row that is empty."""
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
        locs = self.locs[Kind.NODE]
        parents, messages = array("q", [_ABSENT]) * len(locs), array("q", [0]) * len(locs)
        parents[0] = 0
        for row, parent, message, loc in db.execute("SELECT row, parent, message, loc FROM node"):
            parents[row], messages[row], locs[row] = parent, message, loc
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
            # A call that was asked at nothing hangs on its answer.
            at = asked or answered
            if 0 < at < len(self.parent):
                self._next_call[row] = self._first_call[at]
                self._first_call[at] = row

    def rows(self, kind: Kind) -> Iterator[tuple[int, int]]:
        """(row, loc) of every object of a kind."""
        return ((row, loc) for row, loc in enumerate(self.locs[kind]) if loc)

    def outside(self, kind: Kind, live: Live) -> list[int]:
        """The rows of a kind that `live` doesn't hold."""
        rows = zip(self.locs[kind], live.rows[kind], strict=True)
        return [row for row, (loc, mark) in enumerate(rows) if loc and not mark]

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

    def mark(self, roots: Iterable[tuple[Kind, int]], live: Live | None = None) -> Live:
        """Mark objects and all that they keep, into `live` where there is one.

        Raises `CorruptFile` if a node's parent or message isn't there: nothing is deleted on doubt.
        """
        live = Live(self) if live is None else live
        todo: list[int] = []
        for kind, row in roots:
            if kind is Kind.NODE:
                todo.append(row)
            elif kind is Kind.CALL:
                self._mark_call(row, live, todo)
            else:
                live.rows[kind][row] = 1
        while todo:
            self._mark_chain(todo.pop(), live, todo)
        nodes, notes = live.rows[Kind.NODE], live.rows[Kind.NOTE]
        for note, first, last in self.notes:
            if nodes.find(1, first, last + 1) >= 0:
                notes[note] = 1
        for message, payloads in self._payloads.items():
            if live.rows[Kind.MESSAGE][message]:
                for payload in payloads:
                    live.rows[Kind.PAYLOAD][payload] = 1
        return live

    def _mark_chain(self, row: int, live: Live, todo: list[int]) -> None:
        nodes, messages = live.rows[Kind.NODE], live.rows[Kind.MESSAGE]
        parents, names, there = self.parent, self.message, self.locs[Kind.MESSAGE]
        callers, called, first_call = self._caller, self._called, self._first_call
        while row and not (row < len(nodes) and nodes[row]):
            if row >= len(nodes) or parents[row] == _ABSENT:
                raise CorruptFile(self._path, "a node's parent is missing; run 'dag fsck'")
            message = names[row]
            if message >= len(there) or not there[message]:
                raise CorruptFile(self._path, "a node's message is missing; run 'dag fsck'")
            nodes[row] = messages[message] = 1
            if row in callers:
                todo.append(callers[row])
            call = first_call[row]
            while call:
                self._mark_call(call, live, todo)
                call = self._next_call[call]
            if row in called:
                self._mark_behind(called[row], live, todo)
            row = parents[row]

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
                parent = self.parent[row]
                if parent != _ABSENT:
                    following[row] = first[parent]
                    first[parent] = row
            self._children = first, following
        return self._children


def _by_row(db: sqlite3.Connection, kind: Kind) -> array[int]:
    size: int = db.execute(f"SELECT coalesce(max(row), 0) + 1 FROM {kind}").fetchone()[0]
    locs: array[int] = array("q", [0]) * size
    if kind is not Kind.NODE:  # those are read with their edges
        for row, loc in db.execute(f"SELECT row, loc FROM {kind}"):
            locs[row] = loc
    return locs
