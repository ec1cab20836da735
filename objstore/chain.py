"""Chains of nodes: reading them, their children and common ancestors, and the longest stored prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from objstore.canonical import message_content_hash
from objstore.database import Database, Run
from objstore.index import ROOT_ROW, Index
from objstore.kinds import Kind
from objstore.message import Message
from objstore.node import Node, plain_node_id
from objstore.packframe import Step
from objstore.records import Tombstone
from refs.errors import ObjectMissing, Redacted
from refs.ids import ROOT, MessageId, NodeId


class Entry(NamedTuple):
    """A node of a chain as it is read: `id`, `node`, and its message, loaded when it is asked for."""

    id: NodeId
    node: Node
    read: Callable[[], Message | Tombstone]

    @property
    def message(self) -> Message:
        """The message; `Redacted` where its bytes were erased."""
        return whole(self.id, self.read())

    @property
    def message_or_tombstone(self) -> Message | Tombstone:
        """The message, or what stands in its place."""
        return self.read()


def whole(node: NodeId, value: Message | Tombstone) -> Message:
    """A message, or `Redacted` for a tombstone."""
    if isinstance(value, Tombstone):
        raise Redacted(value.kind, value.id, value.reason)
    return value


class Chains:
    """Reads chains through a database and its index. Raises `ObjectMissing` and `CorruptObject`."""

    def __init__(self, database: Database, index: Index) -> None:
        self._database, self._index = database, index

    def load(self, head: NodeId) -> list[Message]:
        """All messages up to `head`, oldest first. Every id is checked. Raises `Redacted`."""
        runs = []
        while head != ROOT:
            run = self._database.run(head)
            runs.append(run)
            head = run.before
        found: list[Message] = []
        for run in reversed(runs):
            for step, known in zip(run.steps, self._database.known(run), strict=True):
                value = known if known is not None else self._message(run, step)
                found.append(value if type(value) is Message else whole(step.oid, value))
        return found

    def walk(self, head: NodeId) -> Iterator[Entry]:
        """Entries from `head` back to the first, each read as it is asked for."""
        while head != ROOT:
            run = self._database.run(head)
            for step in reversed(run.steps):
                yield Entry(step.oid, run.node(step), lambda run=run, step=step: self._message(run, step))  # type: ignore[misc]
            head = run.before

    def message(self, oid: MessageId) -> Message | Tombstone:
        """A message by its id."""
        return self._database.message(oid)

    def children(self, node: NodeId) -> list[NodeId]:
        """The nodes whose parent is `node` (or `ROOT`), oldest first."""
        row = ROOT_ROW if node == ROOT else self.row(node)
        found = (
            NodeId(self._database.oid_of(Kind.NODE, child, loc)) for child, loc in self._index.child_rows(row)
        )
        return list(found)

    def common_ancestor(self, a: NodeId, b: NodeId) -> NodeId:
        """The last node that both chains have; `ROOT` if they have none."""
        rows = [ROOT_ROW if each == ROOT else self.row(each) for each in (a, b)]
        edges = [self._edges(row) for row in rows]
        while rows[0] != rows[1]:
            deeper = 0 if edges[0][2] >= edges[1][2] else 1
            rows[deeper] = edges[deeper][0]
            edges[deeper] = self._edges(rows[deeper])
        return self.id_of(rows[0])

    def ancestor(self, node: NodeId, back: int) -> NodeId:
        """The node `back` places before `node`; `ROOT` at the beginning and before it."""
        row = self.row(node) if node != ROOT else ROOT_ROW
        while back and row != ROOT_ROW:
            row, back = self._edges(row)[0], back - 1
        return self.id_of(row)

    def depth(self, node: NodeId) -> int:
        """How many messages the chain up to `node` has."""
        return 0 if node == ROOT else self._edges(self.row(node))[2]

    def longest_prefix(self, ids: Sequence[NodeId], *, looked: bool = False) -> int:
        """How many of a chain's nodes, from the first on, are stored; `looked`: the index is up to date."""
        if not looked:
            self._index.look(False)
        return longest_prefix(len(ids), lambda i: self._index.has_node(ids[i]))

    def _message(self, run: Run, step: Step) -> Message | Tombstone:
        if run.frame is None or step.message_line < 0:
            return self.message(step.message)
        return self._database.message_in(run.frame, step)

    def id_of(self, row: int) -> NodeId:
        """The node in a row of the index."""
        if row == ROOT_ROW:
            return ROOT
        loc = self._index.loc_of_row(Kind.NODE, row)
        if loc is None:
            raise ObjectMissing(Kind.NODE, f"in row {row} of the index")
        return NodeId(self._database.oid_of(Kind.NODE, row, loc))

    def row(self, node: NodeId) -> int:
        """The index's row of a node, or `ObjectMissing`."""
        self._database.locate(Kind.NODE, node)
        row = self._index.row(Kind.NODE, node)
        if row is None:
            raise ObjectMissing(Kind.NODE, node)
        return row

    def _edges(self, row: int) -> tuple[int, int, int]:
        return self._index.node_edges(row) or (ROOT_ROW, 0, 0)


def node_ids(
    messages: Iterable[Message],
    parent: NodeId = ROOT,
    called_by: NodeId | None = None,
    tool_call_id: str | None = None,
) -> list[NodeId]:
    """The ids of the nodes that `messages` make after `parent`; a message's hash is worked out once.

    `called_by` is who asked for the first of them. Raises `InvalidValue`.
    """
    ids = []
    for message in messages:
        oid = message._id or message_content_hash(message)
        if called_by is None:
            parent = plain_node_id(parent, oid)
        else:
            parent, called_by = Node(parent, oid, called_by, tool_call_id).id, None
        ids.append(parent)
    return ids


def longest_prefix(count: int, stored: Callable[[int], bool]) -> int:
    """How many of `count` things are stored, if a stored one implies all before it.

    Asks for the last, the one before it and the first (the usual cases), then gallops back and bisects: at
    most 4 + 2·log2(count) questions.
    """
    if count == 0:
        return 0
    if stored(count - 1):
        return count
    if count == 1:
        return 0
    if stored(count - 2):
        return count - 1
    if count == 2 or not stored(0):
        return 0
    low, high, step = 0, count - 2, 1  # low is stored, high isn't
    while high - step > low:
        if stored(high - step):
            low = high - step
            break
        high, step = high - step, step * 2
    while high - low > 1:
        middle = (low + high) // 2
        if stored(middle):
            low = middle
        else:
            high = middle
    return low + 1
