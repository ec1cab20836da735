"""The store's doors to calls and to the call hierarchy: what was asked of a model, and who asked for what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from objstore.chain import Chains, node_ids
from objstore.codec import decode
from objstore.hierarchy import Hierarchy
from objstore.index import ROOT_ROW
from objstore.kinds import Kind
from objstore.message import Message
from objstore.newcall import NewCall
from objstore.records import Call
from objstore.saving import Asking, Moving, Notes, Saver
from objstore.storage import Storage
from objstore.usage import By, Prices, Report, usage
from objstore.views.history import Spawn
from refs.errors import InvalidValue
from refs.ids import ROOT, CallId, NodeId, Oid
from refs.names import conversation_ref


@dataclass(frozen=True, slots=True)
class Exchange:
    """What became of a recorded request and its answer.

    `call` is None for a resend that was not to be recorded; `new` counts the messages that were not stored
    before; `head_output` is None where nothing was answered.
    """

    head_input: NodeId
    head_output: NodeId | None
    call: CallId | None
    new: int


class StoreCalls:
    """Part of `Store`."""

    _storage: Storage
    _chains: Chains
    _saver: Saver

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
        messages = [*history, *output]
        moving = None
        if conversation is not None:
            ids = node_ids(messages, ROOT, called_by, tool_call_id)
            expected, known = self._saver.continues(conversation, ids)
            if known < len(ids):
                moving = Moving(conversation_ref(conversation), expected, "call")
            elif expected is None:
                conversation = None  # it isn't there, so it could keep nothing
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
        return self._read_calls(rows)

    def calls_along(self, head: NodeId) -> list[Call]:
        """The calls asked on the chain of a node or in what that chain asked for, oldest first."""
        graph = Hierarchy(self._storage.index)
        seen = rows = set(graph.ancestors(self._chains.row(head)))
        found = set(graph.calls(rows)) | set(graph.calls_at_root(rows))
        while rows:
            rows = graph.below(graph.called(rows)).keys() - seen
            seen |= rows
            found.update(graph.calls(rows))
        return self._read_calls(found)

    def usage(self, by: By = By.MODEL, prices: Prices | None = None) -> Report:
        """What all calls used, each counted once however many conversations share it."""
        return usage(self.calls(), by, prices)

    def _read_calls(self, rows: Iterable[int]) -> list[Call]:
        calls = []
        for oid in ids_of_rows(self._storage, Kind.CALL, rows):
            value = decode(Kind.CALL, self._storage.database.read(Kind.CALL, oid)[1])
            assert isinstance(value, Call)
            calls.append(value)
        return sorted(calls, key=lambda call: (call.started_at, call.call))

    # -- the hierarchy ----------------------------------------------------------------------------

    def called_from(self, node: NodeId) -> list[Spawn]:
        """The side chains that a node asked for, oldest first."""
        called = Hierarchy(self._storage.index).called([self._chains.row(node)])
        return [self._spawn(row, node) for row in called]

    def caller(self, node: NodeId) -> Spawn | None:
        """What asked for the chain that a node is in: a chain inherits the nearest `called_by` before it."""
        found = None
        if node != ROOT:
            found = Hierarchy(self._storage.index).caller(self._chains.row(node))
        return None if found is None else self._spawn(found[0], self._chains.id_of(found[1]))

    def _spawn(self, first: int, called_by: NodeId) -> Spawn:
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


def rows_about(storage: Storage, query: str, node: NodeId, *more: str) -> list[int]:
    """Rows of the records that a query on a part of the index connects with a node."""
    index = storage.index
    row = ROOT_ROW if node == ROOT else index.row(Kind.NODE, node)
    if row is None:
        storage.database.locate(Kind.NODE, node)
        row = index.row(Kind.NODE, node)
    with index.reading() as db:
        return [found[0] for found in db.execute(query, (row, *more))]


def ids_of_rows(storage: Storage, kind: Kind, rows: Iterable[int]) -> list[Oid]:
    """The ids of the records in some rows; one that a gc took meanwhile is passed over."""
    located = [(row, storage.index.loc_of_row(kind, row)) for row in rows]
    return [storage.database.oid_of(kind, row, loc) for row, loc in located if loc is not None]
