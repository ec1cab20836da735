"""Nodes and messages that a database has read one by one, kept within a bound.

What an id stands for never changes, so a node's value is good for ever. A message may be erased: its value is
good as long as the index hasn't changed, or still says that the object stands by itself in the same form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from objstore.limits import FRAME_CACHE_BYTES
from objstore.loose import Form
from objstore.message import Message
from objstore.node import Node
from objstore.parsed import weight
from objstore.records import Tombstone
from refs.ids import NodeId, Oid

MOST_BYTES: Final = FRAME_CACHE_BYTES // 4
_NODE_BYTES: Final = 768


class Remembered:
    """What was read. All of it is given up when it has become too much."""

    def __init__(self) -> None:
        self.nodes: dict[NodeId, Node] = {}
        """Nodes that stand by themselves, not in a pack."""
        self.loose: dict[Oid, tuple[Form, Message | Tombstone]] = {}
        """Messages that stand by themselves, and in which form."""
        self.messages: dict[Oid, Message | Tombstone] = {}
        """Messages that stand in packs, read since the index was in the state that `at_state` was given last."""
        self._state: object = None
        self._size = 0
        self._size_at_state = 0

    def at_state(self, state: object) -> dict[Oid, Message | Tombstone]:
        """The messages that were read since the index was in this state."""
        if state != self._state:
            self._state, self.messages = state, {}
            self._size -= self._size_at_state
            self._size_at_state = 0
        return self.messages

    def add_node(self, oid: NodeId, node: Node) -> None:
        if self._has_room(_NODE_BYTES):
            self.nodes[oid] = node

    def add_loose(self, oid: Oid, form: Form, value: Message | Tombstone) -> None:
        if self._has_room(weight(value)):
            self.loose[oid] = form, value

    def add_packed(
        self, at_state: dict[Oid, Message | Tombstone], values: Mapping[Oid, Message | Tombstone]
    ) -> Mapping[Oid, Message | Tombstone]:
        """Take in what was looked up in the state for which `at_state` was given; both together."""
        if not values:
            return at_state
        size = sum(map(weight, values.values()))
        if at_state is not self.messages or not self._has_room(size):
            return {**at_state, **values}
        self._size_at_state += size
        self.messages.update(values)
        return self.messages if self.messages is at_state else {**at_state, **values}

    def _has_room(self, size: int) -> bool:
        """Make room if it can be made, and count it as taken."""
        if size > MOST_BYTES:
            return False
        if self._size + size > MOST_BYTES:
            self.nodes, self.loose, self.messages = {}, {}, {}
            self._size = self._size_at_state = 0
        self._size += size
        return True
