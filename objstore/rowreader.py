"""Rows for the views, read from a store: nodes, their messages, and what the notes say about them.

Which rows are read is told by the index alone; objects are read a chain at a time. A row's `order` is its
place in time: when it was said, where an import knows it, else when it was stored; never before its parent
or what asked for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from objstore.about import read_notes
from objstore.chain import Chains
from objstore.hierarchy import Hierarchy
from objstore.jsonvalue import Json
from objstore.message import Message
from objstore.node import Node
from objstore.records import Tombstone
from objstore.storage import Storage
from objstore.views.rows import Row
from refs.ids import NodeId


@dataclass(slots=True)
class _About:
    """What notes say of a node: when it came, and their members, of which a later note's count."""

    stored_at: str = ""
    said_at: str = ""
    members: dict[str, Json] = field(default_factory=dict)

    @property
    def at(self) -> str:
        return self.said_at or self.stored_at

    def take(self, at: str, members: Mapping[str, Json]) -> None:
        said = members.get("at")
        self.stored_at = self.stored_at or at
        self.said_at = self.said_at or (said if isinstance(said, str) else "")
        self.members.update(members)


class RowReader:
    """Reads rows. Linear in how many there are; nothing recurses."""

    def __init__(self, storage: Storage, chains: Chains) -> None:
        self._storage, self._chains = storage, chains
        self.graph = Hierarchy(storage.index)

    def around(self, head: int, *, callers: bool) -> list[Row]:
        """The chain of a node and all that it asked for; with `callers` also the chains it was asked from."""
        parents = self.chain(head)
        asked = self.graph.caller(head) if callers else None
        while asked is not None and asked[1] not in parents:
            parents |= self.chain(asked[1])
            asked = self.graph.caller(asked[1])
        parents |= self.graph.asked_below(parents).parents
        return self.read(parents)

    def chain(self, head: int) -> dict[int, int]:
        """The rows of a chain, the first one first, each with its parent."""
        path = self.graph.ancestors(head)[::-1]
        return dict(zip(path, [0, *path[:-1]], strict=True))

    def read(self, parents: Mapping[int, int]) -> list[Row]:
        """The rows given with their parents, in that order."""
        nodes = self._nodes(parents)
        about = self._about({row: oid for row, (oid, _, _) in nodes.items()})
        times: dict[int, str] = {}
        callers = self.graph.callers(nodes)
        for row in sorted(nodes):  # whatever a row names has a smaller one
            before = (times.get(parents[row], ""), times.get(callers.get(row, 0), ""))
            times[row] = max(about[row].at, *before)
        order = {row: i for i, row in enumerate(sorted(times, key=lambda row: (times[row], row)))}
        return [
            Row.of(oid, node, message, about[row].members, order[row])
            for row, (oid, node, message) in nodes.items()
        ]

    def _nodes(self, parents: Mapping[int, int]) -> dict[int, tuple[NodeId, Node, Message | None]]:
        """The nodes in rows, and their messages (None where they were erased)."""
        found: dict[int, tuple[NodeId, Node, Message | None]] = {}
        inner = set(parents.values())
        for leaf in parents:
            if leaf in inner:
                continue
            oid = self._chains.id_of(leaf)
            if parents[leaf] in found or parents[leaf] not in parents:
                node = self._storage.database.node(oid)
                found[leaf] = oid, node, _whole(self._chains.message(node.message))
                continue
            row = leaf
            for entry in self._chains.walk(oid):
                if row in found or row not in parents:
                    break
                found[row] = entry.id, entry.node, _whole(entry.message_or_tombstone)
                row = parents[row]
        return {row: found[row] for row in parents}

    def _about(self, ids: Mapping[int, NodeId]) -> dict[int, _About]:
        """What the notes say of nodes given by row. Each note is read once, the oldest first."""
        rows_of = self.graph.notes(ids)
        about = {row: _About() for row in ids}
        for number, note in read_notes(self._storage, rows_of):
            for row in rows_of[number]:
                about[row].take(note.at, note.nodes.get(ids[row], {}))
        return about


def _whole(value: Message | Tombstone) -> Message | None:
    return value if isinstance(value, Message) else None
