"""The store's doors to `objstore.views`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from objstore.index import ROOT_ROW
from objstore.message import Message
from objstore.store_base import StoreBase
from refs.errors import ObjectMissing
from refs.ids import ROOT, NodeId, Oid

if TYPE_CHECKING:
    from objstore.rowreader import RowReader
    from objstore.views import ChatItem, Row, Siblings

OPENING: Final = frozenset({"system", "developer"})
"""The roles of what stands before a conversation's first turn."""


class StoreViews(StoreBase):
    """Part of `Store`. What a view reads is imported with the first view: most uses of a store need none."""

    def history_rows(self, head: NodeId) -> list[Row]:
        """The chain up to a node as rows, in reading order. Raises `ObjectMissing`."""
        reader = self._reader()
        return reader.read(reader.chain(self._chains.row(head)))

    def chat_view(self, head: NodeId) -> list[ChatItem]:
        """What a chat window shows of the chain up to a node and of the runs that it asked for."""
        from objstore.views import aggregate_tool_messages  # noqa: PLC0415

        return aggregate_tool_messages(self._reader().around(self._chains.row(head), callers=False))

    def context(
        self,
        head: NodeId,
        *,
        until: NodeId | None = None,
        frame: NodeId | None = None,
        max_caller_rows: int | None = None,
        max_call_levels: int | None = None,
    ) -> list[Row]:
        """The rows that the next request after `head` shows, in order, by call hierarchy.

        `until` leaves out what came after that node. `frame` is the node that began the running frame: of
        what came up to it the newest `max_caller_rows` rows stay. `max_call_levels` is how many levels of
        calls below the chain are followed. The rules stand in docs/calls.md. Raises `ObjectMissing` for a
        node that is not on the chain, of its callers, or called by them.
        """
        from objstore.views import Rows, render_context  # noqa: PLC0415

        rows = Rows(self._reader().around(self._chains.row(head), callers=True))

        def order(node: NodeId | None) -> int | None:
            if node is None:
                return None
            row = rows.get(node)
            if row is None:
                raise ObjectMissing("node", f"{node} in the context of {head}")
            return row.order

        return render_context(
            rows,
            head,
            until=order(until),
            frame=order(frame),
            max_caller_rows=max_caller_rows,
            max_call_levels=max_call_levels,
        )

    def siblings(self, node: NodeId, among: Iterable[NodeId] = ()) -> Siblings:
        """The turns at the place of a node, oldest first ("2 of 3"), and the deepest leaf below each.

        The first message of a conversation has siblings only among the chains of the heads `among`: all
        conversations begin at the root.
        """
        graph = self._graph
        row = self._chains.row(node)
        parent = self._storage.database.node(node).parent
        if parent == ROOT:
            heads = [graph.ancestors(self._chains.row(head)) for head in among]
            places = [row, *(path[-1] for path in heads)]
        else:
            places = graph.children(self._chains.row(parent))
        found = self._siblings(graph.below(places), [row])
        return self._named(found[row])

    def alternatives(self, head: NodeId) -> dict[NodeId, Siblings]:
        """The nodes on a chain that have siblings, with those.

        Not so the first turn, or a system prompt before it: conversations that have nothing else in common
        begin there.
        """
        graph = self._graph
        path = graph.ancestors(self._chains.row(head))[::-1]
        first = 0
        while first < len(path) and self._role(path[first]) in OPENING:
            first += 1
        found = self._siblings(graph.below(path[first : first + 1]), path[first + 1 :])
        named = (self._named(each) for each in found.values() if len(each.ids) > 1)
        return {NodeId(Oid(each.ids[each.index - 1])): each for each in named}

    def _siblings(self, parents: dict[int, int], wanted: Iterable[int]) -> dict[int, Siblings]:
        """The siblings of rows among `parents` (rows and their parents), as row numbers."""
        from objstore.views import Row, Rows, siblings  # noqa: PLC0415

        # Only of what stands beside something else does it matter what it is: most rows are not read.
        beside = Counter(parents.values())
        doubtful = {row: parent for row, parent in parents.items() if beside[parent] > 1}
        known = dict(zip(doubtful, self._reader().read(doubtful), strict=True))
        rows = []
        for row, parent in parents.items():
            here = known.get(row) or Row("", "")
            place = ROOT if parent == ROOT_ROW else str(parent)
            rows.append(replace(here, id=str(row), parent=place, order=row))
        indexed = Rows(rows)
        return {row: siblings(indexed, str(row)) for row in wanted}

    def _named(self, found: Siblings) -> Siblings:
        ids, leaves = ([self._chains.id_of(int(row)) for row in each] for each in (found.ids, found.leaves))
        return replace(found, ids=tuple(ids), leaves=tuple(leaves))

    def _role(self, row: int) -> str:
        message = self._chains.message(self._storage.database.node(self._chains.id_of(row)).message)
        return message.role if isinstance(message, Message) else ""

    def _reader(self) -> RowReader:
        from objstore.rowreader import RowReader  # noqa: PLC0415

        return RowReader(self._storage, self._chains)
