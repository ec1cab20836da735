"""Which objects are reachable: the marking half of gc. Reads edges from the index, never a body.

A live node keeps its parent, its message, its called_by, the notes about it, the calls asked at it with what
they were answered, and the chains that it called. A live message keeps its payloads. Rows are small integers,
so a million nodes are a few arrays.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from objstore.index import Index
from objstore.kinds import Kind
from refs.errors import CorruptFile

_ABSENT = -1


@dataclass(frozen=True, slots=True)
class CallEdges:
    """What a call connects; `named` says that it belongs to a conversation, `at` when it started."""

    row: int
    asked: int | None
    answered: int | None
    named: bool
    at: str
    instructions: int | None
    tools: int | None


@dataclass(slots=True)
class Live:
    """What was found reachable, as rows."""

    nodes: bytearray
    messages: bytearray
    calls: set[int] = field(default_factory=set)
    notes: set[int] = field(default_factory=set)
    payloads: set[int] = field(default_factory=set)
    descriptions: set[int] = field(default_factory=set)

    def of(self, kind: Kind) -> bytearray | set[int]:
        """The live rows of a kind: index a bytearray, ask a set (see `holds`)."""
        if kind is Kind.NODE:
            return self.nodes
        if kind is Kind.MESSAGE:
            return self.messages
        return {
            Kind.CALL: self.calls,
            Kind.NOTE: self.notes,
            Kind.PAYLOAD: self.payloads,
            Kind.DESCRIPTION: self.descriptions,
        }[kind]

    def holds(self, kind: Kind, row: int) -> bool:
        rows = self.of(kind)
        if isinstance(rows, bytearray):
            return row < len(rows) and bool(rows[row])
        return row in rows


class Graph:
    """All edges of a store at one moment."""

    def __init__(self, index: Index) -> None:
        with index.reading() as db:
            db.execute("BEGIN")
            try:
                self._path = index.path
                size = db.execute("SELECT coalesce(max(row), 0) + 1 FROM node").fetchone()[0]
                self.parent = array("q", [_ABSENT]) * size
                self.message = array("q", [0]) * size
                self.loc = array("q", [0]) * size
                self.parent[0] = 0
                for row, parent, message, loc in db.execute("SELECT row, parent, message, loc FROM node"):
                    self.parent[row] = parent
                    self.message[row] = message
                    self.loc[row] = loc
                size = db.execute("SELECT coalesce(max(row), 0) + 1 FROM message").fetchone()[0]
                self.message_loc = array("q", [0]) * size
                for row, loc in db.execute("SELECT row, loc FROM message"):
                    self.message_loc[row] = loc
                self.locs = {
                    kind: dict(db.execute(f"SELECT row, loc FROM {kind}"))
                    for kind in (Kind.CALL, Kind.NOTE, Kind.DESCRIPTION, Kind.PAYLOAD)
                }
                self.called_of: dict[int, int] = dict(db.execute("SELECT node, by FROM called"))
                self.calls = [
                    CallEdges(row, asked, answered, bool(named), at, instructions, tools)
                    for row, asked, answered, named, at, instructions, tools in db.execute(
                        "SELECT call, asked, answered, named, at, instructions, tools FROM call_edge"
                    )
                ]
                self.note_nodes = array("q")
                self.note_notes = array("q")
                for node, note in db.execute("SELECT node, note FROM note_node"):
                    self.note_nodes.append(node)
                    self.note_notes.append(note)
                self.payloads: dict[int, list[int]] = {}
                for message, payload in db.execute(
                    "SELECT m.message, i.row FROM message_payload m"
                    " JOIN payload_id i ON i.id = substr(m.payload, 1, 16)"
                ):
                    self.payloads.setdefault(message, []).append(payload)
            finally:
                db.execute("COMMIT")
        self._children: tuple[array[int], array[int]] | None = None
        self._called: dict[int, list[int]] = {}
        for node, by in self.called_of.items():
            self._called.setdefault(by, []).append(node)
        self._asked: dict[int, list[CallEdges]] = {}
        for call in self.calls:
            self._asked.setdefault(call.asked or 0, []).append(call)

    def rows(self) -> Iterator[tuple[Kind, int, int]]:
        """(kind, row, loc) of every object."""
        for row, loc in enumerate(self.loc):
            if loc:
                yield Kind.NODE, row, loc
        for row, loc in enumerate(self.message_loc):
            if loc:
                yield Kind.MESSAGE, row, loc
        for kind, locs in self.locs.items():
            for row, loc in locs.items():
                yield kind, row, loc

    def loc_of(self, kind: Kind, row: int) -> int | None:
        """Where an object stands, or None if it isn't there."""
        if kind in self.locs:
            return self.locs[kind].get(row)
        locs = self.loc if kind is Kind.NODE else self.message_loc
        return (locs[row] or None) if row < len(locs) else None

    def children(self, row: int) -> Iterator[int]:
        """The nodes behind a node, in order of arrival; row 0 gives all first ones."""
        first, following = self._child_links()
        child = first[row]
        while child:
            yield child
            child = following[child]

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

    def mark(self, roots: Iterable[int], live: Live | None = None, calls: Iterable[CallEdges] = ()) -> Live:
        """Mark what the nodes in rows `roots` and the given calls keep, into `live` where there is one.

        Raises `CorruptFile` if a node's parent isn't there: nothing is deleted on doubt.
        """
        if live is None:
            live = Live(bytearray(len(self.parent)), bytearray(len(self.message_loc)))
        todo = [row for row in roots if row]
        for call in calls:
            self._mark_call(call, live, todo)
        while todo:
            self._mark_chain(todo.pop(), live, todo)
        for node, note in zip(self.note_nodes, self.note_notes, strict=True):
            if live.nodes[node]:
                live.notes.add(note)
        for message, payloads in self.payloads.items():
            if live.messages[message]:
                live.payloads.update(payloads)
        return live

    def _mark_chain(self, row: int, live: Live, todo: list[int]) -> None:
        nodes, messages, parents, names = live.nodes, live.messages, self.parent, self.message
        while row and not nodes[row]:
            if parents[row] == _ABSENT:
                raise CorruptFile(self._path, "a node's parent is missing; run 'dag fsck'")
            nodes[row] = 1
            messages[names[row]] = 1
            if row in self.called_of:
                todo.append(self.called_of[row])
            for call in self._asked.get(row, ()):
                self._mark_call(call, live, todo)
            if row in self._called:
                todo += self._chains_called_by(row)
            row = parents[row]

    def _mark_call(self, call: CallEdges, live: Live, todo: list[int]) -> None:
        if call.row in live.calls:
            return
        live.calls.add(call.row)
        todo += [row for row in (call.asked, call.answered) if row]
        if call.instructions is not None:
            live.messages[call.instructions] = 1
        if call.tools is not None:
            live.payloads.add(call.tools)

    def _chains_called_by(self, row: int) -> list[int]:
        """Every node of the chains that a node called: their first ones and all behind them."""
        found = []
        todo = list(self._called[row])
        while todo:
            node = todo.pop()
            found.append(node)
            todo += self.children(node)
        return found

    def _child_links(self) -> tuple[array[int], array[int]]:
        if self._children is None:
            first = array("q", [0]) * len(self.parent)
            following = array("q", [0]) * len(self.parent)
            for row in range(len(self.parent) - 1, 0, -1):
                parent = self.parent[row]
                if parent != _ABSENT:
                    following[row] = first[parent]
                    first[parent] = row
            self._children = first, following
        return self._children
