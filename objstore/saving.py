"""Saving chains: what is stored already is found and relied on, the rest is written in one transaction.

Together with a chain a ref may move and a call may be recorded: all of it becomes durable, or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from objstore import clock as clocks
from objstore.canonical import condense, message_content_hash
from objstore.chain import Chains, node_ids
from objstore.jsonvalue import EMPTY, Json
from objstore.kinds import Kind
from objstore.loose import loose_name
from objstore.message import Message
from objstore.node import Node
from objstore.pack import pack_name
from objstore.records import Note, check_time
from objstore.storage import Storage
from objstore.transaction import Transaction
from refs.errors import Diverged, ObjectMissing, RefChanged
from refs.ids import ROOT, CallId, MessageId, NodeId, Oid, is_oid
from refs.names import RefName, conversation_ref, short_name

if TYPE_CHECKING:
    from objstore.newcall import NewCall

NODES_PER_NOTE: Final = 64
"""A note speaks of at most so many nodes: in a pack it names those of its own frame by a few bytes each."""

_ASKED_AT_ONCE: Final = 7
_TRIES: Final = 5

Notes = Mapping[str, Json] | Sequence[Mapping[str, Json]] | None
"""What is known about the messages that are saved: one mapping for all, or one for each."""


class Moving(NamedTuple):
    """The ref that moves to the head of what is saved, and where it must be before.

    `looked` is a state of the store (`Storage.look`) after which it was found there.
    """

    ref: RefName
    expected: NodeId | None
    reason: str
    looked: bytes | None = None


@dataclass(frozen=True, slots=True)
class Asking:
    """The call that is recorded with a chain: asked behind its first `asked` messages, answered by the rest.

    Without `resends` a call that was answered, and whose answer and all before it were stored already, is
    left out.
    """

    call: NewCall
    asked: int
    conversation: str | None = None
    resends: bool = True


class Saved(NamedTuple):
    """`ids` are the nodes of the messages, the first `known` of them stored before; `call` what was recorded."""

    parent: NodeId
    ids: Sequence[NodeId]
    known: int
    call: CallId | None = None

    @property
    def head(self) -> NodeId:
        """The last node: what came before, where there were no messages."""
        return self.at(len(self.ids))

    def at(self, count: int) -> NodeId:
        """The node of the first `count` messages."""
        return self.ids[count - 1] if count else self.parent


class Saver:
    """Writes chains. Safe for several threads."""

    def __init__(self, storage: Storage, chains: Chains) -> None:
        self._storage, self._chains = storage, chains

    def save(
        self,
        messages: Sequence[Message],
        parent: NodeId = ROOT,
        *,
        called_by: NodeId | None = None,
        tool_call_id: str | None = None,
        note: Notes = None,
        moving: Moving | None = None,
        asking: Asking | None = None,
    ) -> Saved:
        """Store messages behind a node, with a ref's move and a call.

        Raises `ObjectMissing` where what they build on isn't stored. Where the ref is elsewhere, all the rest
        is stored and `RefChanged` raised, with its head in `stored`.
        """
        notes = _notes(note, len(messages))

        def once(moving: Moving | None) -> Saved:
            return self._save(_Job(messages, parent, called_by, tool_call_id, notes, moving, asking))

        try:
            return once(moving)
        except RefChanged as error:
            if moving is None:
                raise
            stored = once(None).head
            raise RefChanged(short_name(moving.ref), moving.expected, error.actual, stored) from error

    def continues(self, name: str, ids: Sequence[NodeId]) -> tuple[NodeId | None, int]:
        """(a conversation's head or None, how many of a history's nodes it has already).

        The history may also be a part of the conversation. Raises `Diverged` where it leaves it.
        """
        found = self._storage.refs.resolve(conversation_ref(name))
        if found is None:
            return None, 0
        head = NodeId(found)
        self._storage.database.locate(Kind.NODE, head)  # waits for who has moved the ref just now
        if head in ids:
            return head, ids.index(head) + 1
        count = self._chains.longest_prefix(ids)
        at = self._chains.common_ancestor(ids[count - 1], head) if count else ROOT
        common = self._chains.depth(at)
        if common < len(ids):
            raise Diverged(name, common, at, head)
        return head, common

    def _save(self, job: _Job) -> Saved:
        """Plan without the lock, commit with it; plan again where a gc took what was relied on."""
        looked = None if job.moving is None else job.moving.looked
        for last in (False,) * (_TRIES - 1) + (True,):
            transaction = self._storage.transaction()
            saved = self._put(transaction, job, looked or self._storage.look())
            try:
                transaction.commit()
                return saved
            except ObjectMissing:
                looked = None
                if last:
                    raise
        raise AssertionError

    def _put(self, transaction: Transaction, job: _Job, planned: bytes | None) -> Saved:
        # A message that isn't known by its id is written out once, for its hash and for the store.
        condensed = [None if message._id is not None else condense(message) for message in job.messages]
        ids = node_ids(job.messages, job.parent, job.called_by, job.tool_call_id)
        # What continues a chain is mostly new from its first message on.
        new = job.parent != ROOT and ids and self._is_new(transaction, ids, job.messages)
        saved = Saved(job.parent, ids, 0 if new else self._chains.longest_prefix(ids, looked=True))
        base = saved.at(saved.known)
        if base != ROOT:
            transaction.rely_on(base)
        if saved.known or base == ROOT or self._storage.index.has(Kind.NODE, base):
            transaction.batch.planned, transaction.batch.held = planned, True
        about: dict[str, Mapping[str, Json]] = {}
        for i in range(saved.known, len(ids)):
            message = transaction.put_message(job.messages[i], condensed[i])
            transaction.put_known_node(ids[i], job.node(saved, i, message))
            about[ids[i]] = job.notes[i]
        now = check_time(self._storage.clock(), "the clock's time")
        names = list(about)
        for start in range(0, len(names), NODES_PER_NOTE):
            part = {name: about[name] for name in names[start : start + NODES_PER_NOTE]}
            transaction.put_record(_note(now, part), unique=True)
        if not about and ids:
            self._freshen(ids[-1])
        if job.moving is not None and saved.head not in (job.moving.expected, ROOT):
            transaction.batch.resolved = job.moving.looked
            transaction.move(job.moving.ref, job.moving.expected, saved.head, job.moving.reason)
        if job.asking is None or _is_resend(job.asking, saved):
            return saved
        call = _put_call(transaction, job.asking, saved, now)
        return Saved(saved.parent, saved.ids, saved.known, call)

    def _is_new(self, transaction: Transaction, ids: Sequence[NodeId], messages: Sequence[Message]) -> bool:
        """Whether no node of a chain is stored, asked together with its messages."""
        asked: list[tuple[Kind, Oid]] = [(Kind.NODE, ids[0])]
        asked += [(Kind.MESSAGE, message_content_hash(each)) for each in messages[:_ASKED_AT_ONCE]]
        transaction.batch.absent = self._storage.index.absent(asked)
        return asked[0] in transaction.batch.absent

    def _freshen(self, node: NodeId) -> None:
        """Make what holds a node young again: a history that is sent again must outlive gc's grace period."""
        place = self._storage.index.locate(Kind.NODE, node)
        if place is not None and not self._storage.read_only:
            name = loose_name(Kind.NODE, node) if place.pack is None else pack_name(place.pack)
            self._storage.files.touch(name)


class _Job(NamedTuple):
    messages: Sequence[Message]
    parent: NodeId
    called_by: NodeId | None
    tool_call_id: str | None
    notes: Sequence[Mapping[str, Json]]
    moving: Moving | None
    asking: Asking | None

    def node(self, saved: Saved, i: int, message: MessageId) -> Node:
        """The node of the i-th message."""
        if i or (self.called_by is None and is_oid(self.parent)):
            return Node.trusted(saved.ids[i - 1] if i else self.parent, message)
        return Node(self.parent, message, self.called_by, self.tool_call_id)


def _note(now: str, nodes: Mapping[str, Mapping[str, Json]]) -> Note:
    if all(about is EMPTY for about in nodes.values()):
        return Note.trusted(clocks.new_ulid(), now, nodes)
    return Note(note=clocks.new_ulid(), at=now, nodes=nodes)


def _is_resend(asking: Asking, saved: Saved) -> bool:
    answered = len(saved.ids) > asking.asked and asking.call.error is None
    return not asking.resends and answered and saved.known == len(saved.ids)


def _put_call(transaction: Transaction, asking: Asking, saved: Saved, now: str) -> CallId:
    call = asking.call
    return transaction.put_record(
        call.record(
            clocks.new_ulid(),
            now,
            saved.at(asking.asked),
            saved.head if len(saved.ids) > asking.asked else None,
            asking.conversation,
            None if call.instructions is None else transaction.put_message(call.instructions),
            None if call.tools is None else transaction.put_payload_bytes(call.tools_json()),
        )
    )


def _notes(note: Notes, count: int) -> Sequence[Mapping[str, Json]]:
    if note is None:
        return [EMPTY] * count
    if isinstance(note, Mapping):
        return [note] * count
    if len(note) != count:
        raise ValueError(f"{len(note)} notes for {count} messages")
    return note
