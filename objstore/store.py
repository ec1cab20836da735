"""Store: the facade that programs and the command line use."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from objstore import clock as clocks
from objstore.about import read_notes, rows_about
from objstore.chain import Chains, Entry, node_ids, whole
from objstore.codec import decode
from objstore.engine import Clock
from objstore.jsonvalue import Json
from objstore.kinds import Kind
from objstore.message import Message
from objstore.node import Node
from objstore.parts import NOTES_OF
from objstore.records import Description
from objstore.revisions import Revisions, ref_name
from objstore.scan import Notice, Progress
from objstore.storage import Storage
from objstore.store_calls import StoreCalls
from objstore.store_drafts import StoreDrafts
from objstore.store_sync import StoreSync
from objstore.store_upkeep import StoreUpkeep
from objstore.store_views import StoreViews
from refs.errors import NoSuchRef, RefExists
from refs.files import Files
from refs.ids import ROOT, MessageId, NodeId, Oid, PayloadId
from refs.names import CONVERSATIONS, RefName, conversation_ref, description_ref, tag_ref
from refs.reflog import ReflogEntry

if TYPE_CHECKING:
    from pathlib import Path

    from objstore.newcall import NewCall
    from objstore.saving import Notes
    from objstore.transaction import Transaction


class _Unset:
    """The default of `expected`: wherever the head is now."""


UNSET: Final = _Unset()


class ConversationInfo(NamedTuple):
    """A conversation in a listing."""

    name: str
    head: NodeId


class NoteEntry(NamedTuple):
    """What one note says of a node: when it was written, and the members."""

    at: str
    members: Mapping[str, Json]


class Store(StoreCalls, StoreDrafts, StoreSync, StoreUpkeep, StoreViews):
    """A store of conversations in a folder (usually called `.dag`).

    Safe to use from several threads and several processes at once: readers take no lock, writers take turns
    under one kernel lock. Every method that changes something is one transaction, durable on return: for
    writers, and after a crash, it is there whole or not at all. A reader may see the first of several refs
    moved and not yet the second; HEAD follows `rename` as a step of its own. All errors derive from `DagError`.
    """

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._revisions = Revisions(storage.refs, storage.database, storage.index, self._chains)

    # -- life -------------------------------------------------------------------------------------

    @classmethod
    def init(
        cls,
        path: str | os.PathLike[str],
        *,
        conversation: str = "main",
        clock: Clock = clocks.now,
        notice: Notice | None = None,
    ) -> Store:
        """Make a new store in the folder `path` and open it. Raises `StoreExists`."""
        files = Files(path)
        return cls(Storage.create(files, clocks.new_ulid(), clock, notice or _silent, conversation))

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        clock: Clock = clocks.now,
        notice: Notice | None = None,
        progress: Progress | None = None,
    ) -> Store:
        """Open the store in the folder `path`.

        What a crash cut short is finished first; a missing or damaged index is rebuilt. `notice` is told of
        either in one line, `progress` how far a rebuild has come. Raises `StoreNotFound`,
        `UnsupportedFormat` and `CorruptFile`.
        """
        return cls(Storage.open(Files(path), clock, notice or _silent, progress))

    def close(self) -> None:
        """Give back all files. Everything committed is durable already."""
        self._storage.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """The store's folder."""
        return self._storage.files.root

    @property
    def id(self) -> str:
        """The store's own ULID."""
        return self._storage.config.id

    @property
    def storage(self) -> Storage:
        """The engine below: for maintenance, transfer and tests."""
        return self._storage

    @property
    def chains(self) -> Chains:
        return self._chains

    @property
    def prefix_checks(self) -> int:
        """How many existence checks prefix searches have made so far."""
        return self._storage.index.checks

    # -- chains -----------------------------------------------------------------------------------

    def save_chain(
        self,
        messages: Sequence[Message],
        starting_parent_id: NodeId = ROOT,
        *,
        called_by: NodeId | None = None,
        tool_call_id: str | None = None,
        note: Notes = None,
    ) -> NodeId:
        """Store messages one after the other behind a node; the last node's id.

        What is stored already is not written again. `called_by` says which node asked for this chain: it is
        written on its first node. `note` says what is known about the messages: one mapping for all, or one
        for each. No ref moves: fork or record a call to keep the chain from gc. Raises `ObjectMissing` if
        the parent isn't stored.
        """
        saved = self._saver.save(
            messages, starting_parent_id, called_by=called_by, tool_call_id=tool_call_id, note=note
        )
        return saved.head

    def save_with_dedup(self, messages: Sequence[Message]) -> NodeId:
        """Store a whole history as a client sends it again and again: only what is new is written."""
        return self.save_chain(messages)

    def find_longest_existing_prefix(
        self, messages: Sequence[Message], starting_parent_id: NodeId = ROOT
    ) -> tuple[NodeId | None, int]:
        """(last stored node, how many of `messages` it covers); (None, 0) if not even the first is stored.

        Costs one hash a message and at most 4 + 2·log2(n) existence checks, usually one or two.
        """
        ids = node_ids(messages, starting_parent_id)
        count = self._chains.longest_prefix(ids)
        return (ids[count - 1] if count else None), count

    def load_chain(self, head: NodeId) -> list[Message]:
        """All messages up to a node, oldest first, every id checked. Raises `ObjectMissing`, `Redacted`."""
        return self._chains.load(head)

    def walk(self, head: NodeId) -> Iterator[Entry]:
        """Nodes and messages from `head` back to the first."""
        return self._chains.walk(head)

    def node(self, node: NodeId) -> Node:
        return self._storage.database.node(node)

    def message(self, message: MessageId) -> Message:
        """A message by its id. Raises `ObjectMissing`, `Redacted`."""
        return whole(NodeId(message), self._chains.message(message))

    def children(self, node: NodeId) -> list[NodeId]:
        """The nodes that follow a node (or `ROOT`), oldest first."""
        return self._chains.children(node)

    def common_ancestor(self, a: NodeId, b: NodeId) -> NodeId:
        """The last node that two chains have in common; `ROOT` if they have none."""
        return self._chains.common_ancestor(a, b)

    def depth(self, node: NodeId) -> int:
        """How many messages the chain up to a node has."""
        return self._chains.depth(node)

    # -- conversations ----------------------------------------------------------------------------

    def commit(
        self,
        name: str,
        messages: Sequence[Message],
        *,
        expected: NodeId | _Unset | None = UNSET,
        note: Notes = None,
        reason: str = "commit",
        call: NewCall | None = None,
    ) -> NodeId:
        """Append messages to a conversation (made if there is none of that name); its new head.

        `expected` is where the caller believes the head to be (None: there is no such conversation yet). If
        it is elsewhere, the messages are stored all the same behind what was expected, and `RefChanged` is
        raised with their head in `stored`. `note` says what is known about the messages: one mapping for
        all, or one for each. `call` is the LLM call that was asked at the old head and answered with the
        messages; one that failed may have none. `record_exchange` tells prompts and answer apart.
        """
        from objstore.saving import Asking, Moving  # noqa: PLC0415  only writers need it

        ref = conversation_ref(name)
        looked = None
        if isinstance(expected, _Unset):
            looked = self._storage.look()
            current = self._storage.refs.resolve(ref)
            expected = None if current is None else NodeId(current)
        saved = self._saver.save(
            messages,
            ROOT if expected is None else expected,
            note=note,
            moving=Moving(ref, expected, reason, looked),
            asking=None if call is None else Asking(call, 0, name),
        )
        return saved.head

    def commit_history(
        self,
        name: str,
        history: Sequence[Message],
        *,
        note: Notes = None,
        reason: str = "commit",
    ) -> tuple[NodeId, int]:
        """Bring a conversation up to a whole history, as a client sends it; (its head, how many were new).

        The history must continue the conversation: it may also be a part of it that is there already, which
        changes nothing. Raises `Diverged` where it leaves the conversation.
        """
        from objstore.saving import Moving  # noqa: PLC0415  only writers need it

        if not history:
            return self._known(name), 0
        ids = node_ids(history)
        looked = self._storage.look()
        head, known = self._saver.continues(name, ids)
        if head is not None and known == len(ids):
            return head, 0
        saved = self._saver.save(
            history[known:],
            ROOT if head is None else head,
            note=note if note is None or isinstance(note, Mapping) else note[known:],
            moving=Moving(conversation_ref(name), head, reason, looked),
        )
        return saved.head, len(ids) - known

    def fork(self, node: NodeId, name: str | None = None, *, title: str | None = None) -> str:
        """A new conversation at a node; its name (a ULID where none is given). Costs one ref.

        Raises `RefExists`, `InvalidRefName`, and `ObjectMissing` for a node that isn't stored.
        """
        name = clocks.new_ulid() if name is None else name
        self._absent(name)
        with self._storage.transaction() as transaction:
            transaction.rely_on(node)
            transaction.move(conversation_ref(name), None, node, f"fork from {node[:8]}")
            if title is not None:
                made = Description(
                    description=name, created_at=self._storage.clock(), title=title, forked_from=node
                )
                transaction.move(description_ref(name), None, transaction.put_record(made), "fork")
        return name

    def conversation(self, name: str) -> Conversation:
        """A conversation that exists. Raises `NoSuchRef`."""
        ref = conversation_ref(name)
        if self._storage.refs.resolve(ref) is None:
            raise NoSuchRef(name)
        return Conversation(self, name)

    def conversations(self) -> Iterator[ConversationInfo]:
        """All conversations, by name."""
        for ref, head in self._storage.refs.list(CONVERSATIONS):
            yield ConversationInfo(ref.removeprefix(CONVERSATIONS), NodeId(head))

    def head(self, name: str) -> NodeId | None:
        """Where a conversation's head is, or None if there is no such conversation."""
        head = self._storage.refs.resolve(conversation_ref(name))
        return None if head is None else NodeId(head)

    def current(self) -> str:
        """The name of the current conversation (HEAD). It may have no message yet."""
        return self._storage.refs.head().removeprefix(CONVERSATIONS)

    def switch(self, name: str) -> None:
        """Make a conversation the current one. It need not have a message yet."""
        with self._storage.lock():
            self._storage.refs.set_head(conversation_ref(name))

    def rename(self, old: str, new: str) -> None:
        """Give a conversation another name; its description goes with it. HEAD follows."""
        head = self._known(old)
        self._absent(new)
        was_current = self.current() == old
        with self._storage.transaction() as transaction:
            transaction.move(conversation_ref(old), head, None, f"rename to {new}")
            transaction.move(conversation_ref(new), None, head, f"rename from {old}")
            told = self._storage.refs.resolve(description_ref(old))
            description = self.description(old)
            if told is not None and description is not None:
                moved = Description.from_dict({**description.to_dict(), "description": new})
                transaction.move(description_ref(old), told, None, "rename")
                transaction.move(description_ref(new), None, transaction.put_record(moved), "rename")
        if was_current:
            self.switch(new)

    def delete(self, name: str, expected: NodeId | None = None) -> NodeId:
        """Delete a conversation's ref and description; its last head. The messages stay until gc.

        The reflog keeps the head reachable for a while: `fork` it to undo.
        """
        head = self._known(name)
        with self._storage.transaction() as transaction:
            transaction.move(conversation_ref(name), expected or head, None, "delete")
            told = self._storage.refs.resolve(description_ref(name))
            if told is not None:
                transaction.move(description_ref(name), told, None, "delete")
        return head

    def reset(self, name: str, node: NodeId, *, expected: NodeId | None = None, reason: str = "reset") -> None:
        """Set a conversation's head to a node that is stored, wherever it was."""
        with self._storage.transaction() as transaction:
            transaction.rely_on(node)
            transaction.move(conversation_ref(name), expected or self.head(name), node, reason)

    def tag(self, name: str, node: NodeId) -> None:
        """A name for a node that doesn't move. Raises `RefExists`."""
        with self._storage.transaction() as transaction:
            transaction.rely_on(node)
            if self._storage.refs.resolve(tag_ref(name)) is not None:
                raise RefExists(f"tags/{name}")
            transaction.move(tag_ref(name), None, node, "tag")

    def tags(self) -> Iterator[tuple[str, NodeId]]:
        """All tags, by name."""
        for ref, node in self._storage.refs.list("refs/tags/"):
            yield ref.removeprefix("refs/tags/"), NodeId(node)

    def delete_tag(self, name: str) -> NodeId:
        """Delete a tag; the node it named. Raises `NoSuchRef`."""
        node = self._storage.refs.resolve(tag_ref(name))
        if node is None:
            raise NoSuchRef(f"tags/{name}")
        with self._storage.transaction() as transaction:
            transaction.move(tag_ref(name), node, None, "delete")
        return NodeId(node)

    def refs(self, prefix: str = "refs/", *, at: Collection[Oid] | None = None) -> Iterator[tuple[RefName, Oid]]:
        """All refs whose names begin with `prefix`, by name; with `at` only those that stand at one of these."""
        return self._storage.refs.list(prefix, at)

    def resolve(self, revision: str) -> NodeId:
        """The node that a revision names: a conversation, `HEAD`, an id or its beginning, `X~3`, `X@{2}`.

        Raises `UnknownRevision` and `AmbiguousRevision`.
        """
        return self._revisions.resolve(revision)

    @property
    def revisions(self) -> Revisions:
        return self._revisions

    def reflog(self, name: str | None = None) -> Iterator[ReflogEntry]:
        """The moves of a conversation or other ref (of all where none is named), newest first."""
        return self._storage.refs.reflog.entries(None if name is None else ref_name(name))

    # -- what is known about them -----------------------------------------------------------------

    def describe(self, name: str, **changes: Any) -> Description:
        """Set members of a conversation's description (`title`, `tags`, `model`, `source`); None removes one."""
        self._known(name)
        told = self._storage.refs.resolve(description_ref(name))
        held = self.description(name)
        members = held.to_dict() if held else {"description": name, "created_at": self._storage.clock()}
        members |= changes
        made = Description.from_dict({key: value for key, value in members.items() if value is not None})
        with self._storage.transaction() as transaction:
            oid = transaction.put_record(made)
            if oid != told:
                transaction.move(description_ref(name), told, oid, "describe")
        return made

    def description(self, name: str) -> Description | None:
        """What is known about a conversation, or None."""
        oid = self._storage.refs.resolve(description_ref(name))
        if oid is None:
            return None
        value = decode(Kind.DESCRIPTION, self._storage.database.read(Kind.DESCRIPTION, oid)[1])
        assert isinstance(value, Description)
        return value

    def notes(self, node: NodeId) -> list[NoteEntry]:
        """What is known about a node, oldest first: source ids and times of an import, flags…"""
        rows = rows_about(self._storage, NOTES_OF, node)
        notes = [note for _, note in read_notes(self._storage, rows)]
        return [NoteEntry(note.at, note.nodes[node]) for note in notes if node in note.nodes]

    def first_stored(self, node: NodeId) -> str | None:
        """When a node was first stored here (UTC), or None if no note tells."""
        notes = self.notes(node)
        return notes[0].at if notes else None

    # -- plumbing ---------------------------------------------------------------------------------

    def transaction(self) -> Transaction:
        """Objects and ref moves of one's own, all or none; see `objstore.transaction`."""
        return self._storage.transaction()

    def read_object(self, kind: Kind, oid: Oid) -> bytes:
        """An object's stored bytes (a condensed message's without its payloads; not for payloads)."""
        return self._storage.database.read(kind, oid)[1]

    def open_payload(self, payload: PayloadId) -> Any:
        """An attachment's raw bytes as a stream."""
        return self._storage.database.open_payload(payload)

    def reindex(self) -> None:
        """Delete the index and build it anew from the objects, everything read and checked."""
        with self._storage.lock():
            self._storage.rebuild_index("asked for")

    def _known(self, name: str) -> NodeId:
        head = self.head(name)
        if head is None:
            raise NoSuchRef(name)
        return head

    def _absent(self, name: str) -> None:
        if self.head(name) is not None:
            raise RefExists(name)


class Conversation:
    """One conversation: a name whose head moves. Raises `NoSuchRef` once it is deleted."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self.name = store, name

    @property
    def head(self) -> NodeId:
        head = self._store.head(self.name)
        if head is None:
            raise NoSuchRef(self.name)
        return head

    def messages(self) -> list[Message]:
        """All messages, oldest first."""
        return self._store.load_chain(self.head)

    def append(self, messages: Sequence[Message], *, note: Mapping[str, Json] | None = None) -> NodeId:
        """Add messages at the head; the new head. Raises `RefChanged` if another writer was faster."""
        return self._store.commit(self.name, messages, expected=self.head, note=note)

    def fork(self, name: str | None = None, *, title: str | None = None) -> Conversation:
        """A new conversation at this one's head."""
        return Conversation(self._store, self._store.fork(self.head, name, title=title))

    def __repr__(self) -> str:
        return f"Conversation({self.name!r})"


def _silent(_: str) -> None:
    """The notices of a library nobody asked to hear."""
