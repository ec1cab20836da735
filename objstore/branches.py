"""Where the branches of a transcript stand to the conversations that are here already.

A node is covered when some conversation of the transcript holds it: a head that is covered brings nothing.
Marking costs each node one step, however many heads there are.
"""

from __future__ import annotations

from objstore.entrytree import NOWHERE, EntryTree
from objstore.index import ROOT_ROW
from objstore.kinds import Kind
from objstore.message import Message, TextPart
from objstore.store import Store
from refs.errors import DagError
from refs.ids import NodeId


class Branches:
    """The conversations `known` (their heads by name) of the transcript called `name`, laid over its tree."""

    def __init__(self, store: Store, tree: EntryTree, known: dict[str, NodeId], name: str) -> None:
        self.tree, self.known, self._store = tree, known, store
        self._marks = bytearray(len(tree))
        self._rows: set[int] | None = None
        # The transcript's own conversation before its branches, where several stand at one node.
        names = sorted(known, key=lambda each: (each != name, each), reverse=True)
        by_id = {known[each]: each for each in names}
        self._heads = {place: by_id[oid] for place, oid in tree.find(by_id).items()}
        self._places = {name: place for place, name in self._heads.items()}
        here = {tree.id(place) for place in self._heads}
        self.elsewhere = [each for each in names if known[each] not in here]
        """Conversations whose heads are no nodes of the transcript: it was rewound, or somebody went on."""
        for place in self._heads:
            self._mark(place)

    def covers(self, place: int) -> bool:
        """Whether a conversation holds the node at a place."""
        if place == NOWHERE or self._marks[place]:
            return True
        if not self.elsewhere:
            return False
        if self._rows is None:
            self._rows = self._rows_elsewhere()
        row = self._store.storage.index.row(Kind.NODE, self.tree.id(place)) if self._rows else None
        return row is not None and row in self._rows

    def leaves(self, place: int) -> tuple[int, int]:
        """(the first place on the way to `place` that isn't covered, the place before it)."""
        first = place
        for each in self.tree.up(place):
            if self.covers(each):
                return first, each
            first = each
        return first, NOWHERE

    def behind(self, place: int) -> str | None:
        """The conversation whose head is at a place."""
        return self._heads.get(place)

    def grown(self, first: int) -> str | None:
        """The conversation whose last message is the beginning of the one at `first`, after the same node.

        So it is where an answer was still being written when it was imported.
        """
        before = self.tree.id(self.tree.parents[first])
        for name in self.elsewhere:
            try:
                node = self._store.node(self.known[name])
                if node.parent == before and _begins(
                    self._store.message(node.message),
                    self._store.message(self._store.node(self.tree.id(first)).message),
                ):
                    return name
            except DagError:  # erased, or damaged: then nobody can tell
                continue
        return None

    def move(self, name: str, place: int) -> None:
        """The conversation `name` is at `place` from now on."""
        self.known[name] = self.tree.id(place)
        if name in self._places:
            del self._heads[self._places[name]]
        self._heads[place], self._places[name] = name, place
        if name in self.elsewhere:
            self.elsewhere.remove(name)
        self._mark(place)

    def _mark(self, place: int) -> None:
        for each in self.tree.up(place):
            if self._marks[each]:
                return
            self._marks[each] = 1

    def _rows_elsewhere(self) -> set[int]:
        """The index's rows of all nodes before heads that are elsewhere."""
        index = self._store.storage.index
        rows: set[int] = set()
        for name in self.elsewhere:
            row = index.row(Kind.NODE, self.known[name]) or ROOT_ROW
            while row != ROOT_ROW and row not in rows:
                rows.add(row)
                edges = index.node_edges(row)
                row = edges[0] if edges else ROOT_ROW
        return rows


def _begins(old: Message, new: Message) -> bool:
    """Whether a message is the beginning of another one."""
    count = len(old.parts)
    if old.role != new.role or not 0 < count <= len(new.parts):
        return False
    *others, last = old.parts
    if any(a != b for a, b in zip(others, new.parts, strict=False)):
        return False
    now = new.parts[count - 1]
    if isinstance(last, TextPart) and isinstance(now, TextPart):
        return now.text.startswith(last.text)
    return last == now
