"""Drafts: messages that are being streamed, kept on disk until they are whole and in the chain.

A draft is a file of lines below `drafts/`: what it is, then a line for each delta. Every delta is written at
once, so a crash of the process loses none; it is on the disk after `SYNC_SECONDS` or `SYNC_BYTES`, when the
next delta comes, so a crash of the machine loses no more than that. The end makes one transaction of it, and
then the file goes. Who writes a draft holds the kernel lock on its file: one without is left over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final, Self

from objstore import clock as clocks
from objstore.chain import Chains, node_ids
from objstore.draft import MAX_DRAFT_BYTES, Delta, DeltaKind, DraftBuffer
from objstore.jsonvalue import Json, dumps, loads
from objstore.limits import KIB
from objstore.message import Message
from objstore.newcall import NewCall
from objstore.records import check_time, check_ulid
from objstore.saving import Asking, Moving, Saver
from objstore.storage import Storage
from refs.errors import (
    CorruptFile,
    DagError,
    DraftInUse,
    InvalidValue,
    LimitExceeded,
    NoSuchDraft,
    ReadOnlyStore,
    RefChanged,
    RefExists,
)
from refs.files import Handle
from refs.ids import ROOT, NodeId, Oid, parse_parent
from refs.names import conversation_ref

FOLDER: Final = "drafts"
SUFFIX: Final = ".jsonl"
SYNC_SECONDS: Final = 0.25
"""Deltas are synced when the first that isn't has waited so long."""
SYNC_BYTES: Final = 64 * KIB
"""Deltas are synced when so many bytes of them are not."""
MAX_HEADER_BYTES: Final = 4 * KIB


@dataclass(frozen=True, slots=True)
class Header:
    """What a draft is: the message that follows node `at`, in a conversation or in none."""

    id: str
    at: NodeId
    started_at: str
    conversation: str | None = None

    def line(self) -> bytes:
        told = {"at": self.at, "draft": self.id, "started_at": self.started_at}
        if self.conversation is not None:
            told["conversation"] = self.conversation
        return dumps(told) + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Raises `InvalidValue`."""
        value = loads(line)
        if not isinstance(value, Mapping) or not line.endswith(b"\n"):
            raise InvalidValue("", "its first line doesn't say what it is")
        name = value.get("conversation")
        if name is not None:
            conversation_ref(name)
        return cls(
            check_ulid(value.get("draft"), "draft"),
            parse_parent(value.get("at")),
            check_time(value.get("started_at"), "started_at"),
            name,
        )


@dataclass(frozen=True, slots=True)
class LeftDraft:
    """A draft that a process left behind. `size` in bytes; `ended` says that the message is whole.

    `message` is what there is of it. Where the file can't be read, `damage` says why, and the rest is None.
    """

    id: str
    size: int
    header: Header | None = None
    message: Message | None = None
    ended: bool = False
    damage: str | None = None


class Draft:
    """A message that is being streamed. For one thread; a context manager.

    Leaving the block without `finish` or `abandon` keeps the file, to be recovered. A forked child has no
    part in it.
    """

    def __init__(self, drafts: Drafts, header: Header, handle: Handle) -> None:
        self._drafts, self._header, self._handle = drafts, header, handle
        self._buffer = DraftBuffer()
        self._unwritten = header.line()
        self._written = self._synced = 0
        self._synced_at = monotonic()

    @property
    def id(self) -> str:
        """Its ULID: the name by which it can be recovered."""
        return self._header.id

    @property
    def at(self) -> NodeId:
        """The node that the message will follow."""
        return self._header.at

    def message(self) -> Message:
        """What there is of the message."""
        return self._buffer.message(partial=True)

    def feed(self, delta: Delta) -> None:
        """Take in a delta and write it down. Raises as `DraftBuffer.feed`, and `StorageFailure`.

        A delta that could not be written down is part of the message all the same, and is written with the
        next one.
        """
        self._unwritten += self._buffer.feed(delta)
        self._write()
        if self._written - self._synced >= SYNC_BYTES or monotonic() - self._synced_at >= SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """See that all that was fed is on the disk."""
        self._write()
        if self._synced < self._written:
            self._handle.sync()
        self._synced, self._synced_at = self._written, monotonic()

    def finish(self, *, call: NewCall | None = None, note: Mapping[str, Json] | None = None) -> NodeId:
        """Put the whole message into the chain, with its call, as one transaction; its node.

        Without a conversation no ref moves and the call keeps the message, so there must be one. Raises
        `RefChanged` where the conversation has gone on meanwhile: message and call are stored all the same,
        the message's node is in `stored`.
        """
        if not self._buffer.ended:
            self.feed(Delta(DeltaKind.END))
        self.sync()
        return self._drafts.commit(self._header, self._handle, self._buffer.message(), call, note)

    def abandon(self) -> None:
        """Forget the message: nothing of it is kept."""
        self._drafts.remove(self._handle)

    def close(self) -> None:
        """Leave the file as it is, to be recovered by whoever wants to."""
        self._handle.close()

    def __enter__(self) -> Draft:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self) -> None:
        if self._unwritten:
            self._handle.write_at(self._written, self._unwritten)
            self._written += len(self._unwritten)
            self._unwritten = b""


class Drafts:
    """The drafts of a store. Safe for several threads and processes."""

    def __init__(self, storage: Storage, chains: Chains, saver: Saver) -> None:
        self._storage, self._chains, self._saver = storage, chains, saver
        self._files = storage.files

    def begin(self, conversation: str | None, at: NodeId) -> Draft:
        """A new draft of the message after node `at`; its file is durable on return."""
        if conversation is not None:
            conversation_ref(conversation)
        if self._storage.read_only:
            raise ReadOnlyStore(str(self._files.root), "the folder is read-only for this user")
        header = Header(clocks.new_ulid(), at, self._storage.clock(), conversation)
        while True:
            handle = self._files.create(_name(header.id))
            handle.lock(wait=True)
            if self._is_there(handle):  # else somebody took it for one that was left over, and removed it
                break
            handle.close()
        draft = Draft(self, header, handle)
        draft.sync()
        self._files.sync_dir(FOLDER)
        return draft

    def left(self) -> list[LeftDraft]:
        """The drafts whose writers are gone, oldest first."""
        found = []
        for name, is_dir in self._files.entries(FOLDER):
            draft = name.removesuffix(SUFFIX)
            if is_dir or draft == name:
                continue
            try:
                with self._taken(draft) as handle:
                    found.append(self._told(draft, handle))
            except (DraftInUse, NoSuchDraft, InvalidValue):
                continue  # alive, just gone, or no draft's name
            except CorruptFile as error:
                found.append(LeftDraft(draft, 0, damage=str(error)))
        return found

    def recover(
        self, draft: str, conversation: str | None, call: NewCall | None, note: Mapping[str, Json] | None
    ) -> NodeId:
        """Put what is left of a draft into the chain; see `Store.recover_draft`."""
        with self._taken(draft) as handle:
            header, buffer = self._read(handle)
            message = buffer.message(partial=True)
            if not message.parts:
                raise InvalidValue("", f"there is nothing in the draft {draft} to recover")
            told = dict(note or {})
            if not buffer.ended:
                told["partial"] = True
            if conversation is None and self._is_in(header, message):
                # It was put there, and what did so was ended before the file could go.
                self.remove(handle)
                return node_ids([message], header.at)[0]
            return self.commit(header, handle, message, call, told, conversation)

    def drop(self, draft: str) -> None:
        """Remove a draft that was left over."""
        with self._taken(draft) as handle:
            self.remove(handle)

    def commit(
        self,
        header: Header,
        handle: Handle,
        message: Message,
        call: NewCall | None,
        note: Mapping[str, Json] | None,
        fork: str | None = None,
    ) -> NodeId:
        """Store a draft's message behind its node and move its conversation (or make the new one `fork`).

        The file goes once the message is stored, wherever the conversation is.
        """
        if fork is not None and self._storage.refs.resolve(conversation_ref(fork)) is not None:
            raise RefExists(fork)
        name = fork or header.conversation
        if name is None and call is None:
            raise InvalidValue("call", "a draft in no conversation is kept by its call, so there must be one")
        asking = moving = None
        if name is not None:
            expected = None if fork is not None or header.at == ROOT else header.at
            moving = Moving(conversation_ref(name), expected, "draft")
        if call is not None:
            asking = Asking(replace(call, started_at=call.started_at or header.started_at), 0, name)
        try:
            saved = self._saver.save([message], header.at, note=note, moving=moving, asking=asking)
        except RefChanged:
            self.remove(handle)
            raise
        self.remove(handle)
        return saved.head

    def remove(self, handle: Handle) -> None:
        """Remove the file of a draft that is locked. One that a crash brings back does no harm."""
        self._files.remove(handle.name)
        handle.close()

    def _is_in(self, header: Header, message: Message) -> bool:
        """Whether the message stands in the draft's conversation already."""
        if header.conversation is None:
            return False
        head = self._storage.refs.resolve(conversation_ref(header.conversation))
        node = node_ids([message], header.at)[0]
        known = head is not None and self._storage.index.has_node(node)
        return known and self._chains.common_ancestor(node, NodeId(Oid(str(head)))) == node

    @contextmanager
    def _taken(self, draft: str) -> Iterator[Handle]:
        """The file of a draft that was left over, locked."""
        try:
            handle = self._files.open_rw_existing(_name(draft))
        except FileNotFoundError as error:
            raise NoSuchDraft(draft) from error
        with handle:
            if not handle.lock(wait=False):
                raise DraftInUse(draft)
            if not self._is_there(handle):
                raise NoSuchDraft(draft)
            yield handle

    def _is_there(self, handle: Handle) -> bool:
        """Whether an open file still has its name: whoever held the lock before may have removed it."""
        found = self._files.stat(handle.name)
        return found is not None and found.st_ino == handle.stat().st_ino

    def _read(self, handle: Handle) -> tuple[Header, DraftBuffer]:
        """Raises `CorruptFile`: a last line that was cut off is no damage, all else is."""
        if handle.size() > MAX_HEADER_BYTES + MAX_DRAFT_BYTES:
            raise LimitExceeded("a draft", handle.size(), MAX_HEADER_BYTES + MAX_DRAFT_BYTES)
        header, *deltas = handle.read_at(0, handle.size()).splitlines(keepends=True) or [b""]
        try:
            return Header.from_line(header), DraftBuffer.recover(deltas)
        except DagError as error:
            raise CorruptFile(self._files.path(handle.name), f"deltas: {error}") from error

    def _told(self, draft: str, handle: Handle) -> LeftDraft:
        try:
            header, buffer = self._read(handle)
            return LeftDraft(draft, handle.size(), header, buffer.message(partial=True), buffer.ended)
        except DagError as error:
            return LeftDraft(draft, handle.size(), damage=str(error))


def _name(draft: str) -> str:
    return f"{FOLDER}/{check_ulid(draft, 'draft')}{SUFFIX}"
