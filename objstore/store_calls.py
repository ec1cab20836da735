"""The store's doors to calls and to the call hierarchy: what was asked of a model, and who asked for what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from objstore.about import read_calls, rows_about
from objstore.chain import node_ids
from objstore.message import Message
from objstore.records import Call
from objstore.store_base import StoreBase
from refs.errors import InvalidValue
from refs.ids import ROOT, CallId, NodeId
from refs.names import conversation_ref

if TYPE_CHECKING:
    from objstore.exchange import Exchange, SideChain
    from objstore.newcall import NewCall
    from objstore.saving import Notes
    from objstore.usage import By, Prices, Report
    from objstore.views import Spawn


class StoreCalls(StoreBase):
    """Part of `Store`."""

    # -- recording --------------------------------------------------------------------------------

    def record(self, call: Call) -> CallId:
        """Store the record of one LLM call.

        Raises `ObjectMissing` if its nodes, its instructions or its tools aren't stored.
        """
        with self._storage.transaction() as transaction:
            return transaction.put_record(call)

    def record_exchange(
        self,
        history: Sequence[Message],
        output: Sequence[Message] = (),
        *,
        call: NewCall,
        conversation: str | None = None,
        called_by: NodeId | None = None,
        tool_call_id: str | None = None,
        note: Notes = None,
        resends: bool = True,
    ) -> Exchange:
        """Record a request with its whole history and what was answered, as one transaction.

        What is stored already is not written again: a thousand resends of a growing history store each
        message once, and a thousand calls of the same size. Without a `conversation` no ref moves, and the
        call is what keeps the history. With one it is brought up to the answer, or `Diverged` raised and
        nothing stored. A failed call has an `error` and may have no output. `called_by` says which node asked
        for this chain, `tool_call_id` which tool call in it. `resends=False` leaves the call out where it was
        answered, and history and answer were all stored before.
        """
        from objstore.exchange import Exchange  # noqa: PLC0415  most uses of a store record nothing
        from objstore.saving import Asking, Moving  # noqa: PLC0415

        messages = [*history, *output]
        moving = None
        if conversation is not None:
            ids = node_ids(messages, ROOT, called_by, tool_call_id)
            looked = self._storage.look()
            expected, known = self._saver.continues(conversation, ids)
            if known < len(ids):
                moving = Moving(conversation_ref(conversation), expected, "call", looked)
        saved = self._saver.save(
            messages,
            called_by=called_by,
            tool_call_id=tool_call_id,
            note=note,
            moving=moving,
            asking=Asking(call, len(history), conversation, resends),
        )
        head_output = saved.head if output else None
        return Exchange(saved.at(len(history)), head_output, saved.call, len(messages) - saved.known)

    # -- reading ----------------------------------------------------------------------------------

    def calls(self, node: NodeId | None = None, *, since: str | None = None) -> list[Call]:
        """The calls asked at or answered with a node (all calls where none is given), oldest first.

        `since` leaves out those that started before a time (UTC, as calls have it).
        """
        if node is None:
            with self._storage.index.reading() as db:
                found = db.execute("SELECT call FROM call_edge WHERE at >= ?", (since or "",))
                rows = [row for (row,) in found]
        else:
            query = "SELECT call FROM call_edge WHERE (asked=?1 OR answered=?1) AND at >= ?2"
            rows = rows_about(self._storage, query, node, since or "")
        return read_calls(self._storage, rows)

    def calls_along(self, head: NodeId) -> list[Call]:
        """The calls asked on the chain of a node or in what that chain asked for, oldest first."""
        graph = self._graph
        path = graph.ancestors(self._chains.row(head))
        rows = {*path, *graph.asked_below(path).owners}
        found = {*graph.calls(rows), *graph.calls_at_root(rows)}
        return read_calls(self._storage, found)

    def usage(self, by: By | None = None, prices: Prices | None = None) -> Report:
        """What all calls used, each counted once however many conversations share it. By model if not told."""
        from objstore.usage import By, usage  # noqa: PLC0415  most uses of a store need no bill

        return usage(self.calls(), by or By.MODEL, prices)

    # -- the hierarchy ----------------------------------------------------------------------------

    def called_from(self, node: NodeId) -> list[Spawn]:
        """The side chains that a node asked for, oldest first."""
        called = self._graph.called([self._chains.row(node)])
        return [self._spawn(row, node) for row in called]

    def caller(self, node: NodeId) -> Spawn | None:
        """What asked for the chain that a node is in: a chain inherits the nearest `called_by` before it."""
        found = None
        if node != ROOT:
            found = self._graph.caller(self._chains.row(node))
        return None if found is None else self._spawn(found[0], self._chains.id_of(found[1]))

    def side_chains(self, head: NodeId) -> list[SideChain]:
        """The side chains that a chain asked for, each followed by those that it asked for, a level deeper."""
        from objstore.exchange import SideChain  # noqa: PLC0415  most uses of a store ask for none

        graph = self._graph
        asked = graph.asked_below(graph.ancestors(self._chains.row(head)))
        calls = Counter(asked.owners[row] for row in graph.asked_at(asked.owners) if row in asked.owners)
        messages = Counter(asked.owners.values())
        found = []
        waiting = [(start, 1) for start in reversed(asked.top)]
        while waiting:
            start, level = waiting.pop()
            first, called_by = self._chains.id_of(start), self._chains.id_of(asked.by[start])
            which = self._storage.database.node(first).tool_call_id
            found.append(SideChain(first, called_by, which, level, messages[start], calls[start]))
            waiting += [(each, level + 1) for each in reversed(asked.inner.get(start, ()))]
        return found

    def _spawn(self, first: int, called_by: NodeId) -> Spawn:
        from objstore.views import Spawn  # noqa: PLC0415  most uses of a store need no view

        oid = self._chains.id_of(first)
        return Spawn(oid, called_by, self._storage.database.node(oid).tool_call_id)

    def summarize(self, covers: Sequence[NodeId], message: Message) -> NodeId:
        """Store a summary that stands for the nodes `covers` in a context; its node.

        It is a chain of its own that the last of them asked for. `context` shows it in their place where all
        of them are on the chain.
        """
        if not covers:
            raise InvalidValue("covers", "a summary covers at least one node")
        note = {"covers": list(covers)}
        return self._saver.save([message], called_by=covers[-1], note=note).head
