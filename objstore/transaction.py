"""A transaction: new objects and ref moves together, all of them or none.

Making values, hashing and compressing happen here, before the lock; `storage.Storage.commit` does the rest.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from objstore.arrival import Value
from objstore.canonical import Condensed, condense
from objstore.codec import decode, encode
from objstore.frames import Readable, compress_stream
from objstore.kinds import KINDS, Kind
from objstore.limits import MAX_OBJECT_BYTES
from objstore.loose import FOLDERS, Form, loose_name
from objstore.message import Message
from objstore.node import Node
from objstore.records import Call, Description, Note, Record
from refs.errors import DagError, LimitExceeded
from refs.files import Files, Handle
from refs.ids import CallId, MessageId, NodeId, Oid, PayloadId, parse_oid
from refs.names import RefName
from refs.store import Move

_EXACT: Final = frozenset({Kind.MESSAGE, Kind.NODE})
"""Kinds whose canonical bytes come in memory of their own size."""


@dataclass(slots=True)
class NewObject:
    """An object a transaction brings: its stored bytes, and what the index must know of it."""

    kind: Kind
    oid: Oid
    raw: bytes
    value: Value = None
    form: Form = Form.PLAIN
    unique: bool = False
    """Named by a ULID that was made for it: nobody can have stored it before."""


@dataclass(slots=True)
class Batch:
    """What a transaction holds when it is committed. `reasons` are those of `moves`, for the reflog."""

    objects: dict[Kind, dict[Oid, NewObject]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    moves: list[Move] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    relies_on: set[NodeId] = field(default_factory=set)
    """Nodes that are not in the batch and must still be there when it is committed."""
    planned: bytes | None = None
    """A state of the store (`Storage.look`) in which none of its nodes were stored."""
    held: bool = False
    """Whether all that it relies on was stored in the state `planned`."""
    absent: set[tuple[Kind, Oid]] = field(default_factory=set)
    """What was not stored in the state `planned`."""
    resolved: bytes | None = None
    """A state of the store after which its moves' refs were found where the moves expect them."""

    @property
    def count(self) -> int:
        """How many objects there are."""
        return sum(map(len, self.objects.values()))

    def all(self) -> Iterator[NewObject]:
        """The objects, by kind and in the order in which they came."""
        return itertools.chain.from_iterable(objects.values() for objects in self.objects.values())

    def add(self, new: NewObject) -> None:
        objects = self.objects[new.kind]
        if new.oid not in objects:
            if new.kind not in _EXACT:
                # What orjson gives keeps the room it was written in: 4 KiB for 200 bytes, thousands of times.
                new.raw = bytes(memoryview(new.raw))
            objects[new.oid] = new


class Transaction:
    """Collects objects and moves; nothing is visible before `commit`. A context manager that commits.

    `commit` raises `RefChanged` and leaves everything alone if a ref isn't where its move expects it.
    """

    def __init__(self, files: Files, commit: Callable[[Batch], None]) -> None:
        self._files, self._commit = files, commit
        self.batch = Batch()

    def put(self, kind: Kind, raw: bytes) -> Oid:
        """An object by its canonical bytes; `CorruptObject` if they aren't. Payloads: see `put_payload`."""
        value = decode(kind, raw)
        if isinstance(value, Message):
            return self.put_message(value)
        if isinstance(value, Node):
            return self.put_node(value)
        if isinstance(value, Record):
            return self.put_record(value)
        raise DagError(f"a {kind} can't be put as bytes")

    def put_message(self, message: Message, condensed: Condensed | None = None) -> MessageId:
        """A message, if need be with its condensed form; large attachments become payloads at once."""
        condensed = condensed or condense(message)
        messages = self.batch.objects[Kind.MESSAGE]
        if condensed.oid not in messages:
            if len(condensed.raw) > MAX_OBJECT_BYTES:
                raise LimitExceeded("a message", len(condensed.raw), MAX_OBJECT_BYTES)
            if not condensed.payloads:  # nearly always
                messages[condensed.oid] = NewObject(Kind.MESSAGE, condensed.oid, condensed.raw)
                return condensed.oid
            for payload, attachment in condensed.payloads:
                stream = attachment.open()
                if stream is not None:
                    with stream:
                        self._put_payload(payload, stream)
                else:
                    self._put_payload(payload, _BytesStream(attachment.content or b""))
            payloads = [payload for payload, _ in condensed.payloads]
            self.batch.add(NewObject(Kind.MESSAGE, condensed.oid, condensed.raw, payloads, Form.CONDENSED))
        return condensed.oid

    def put_node(self, node: Node) -> NodeId:
        oid = node.id
        self.put_known_node(oid, node)
        return oid

    def put_known_node(self, oid: NodeId, node: Node) -> None:
        """A node whose id has been worked out before."""
        self.batch.add(NewObject(Kind.NODE, oid, node.canonical(), node))

    def put_record(self, record: Call | Note | Description | Record, *, unique: bool = False) -> CallId:
        """A call, note or description; `unique` says that its ULID was made just now."""
        assert isinstance(record, Call | Note | Description)
        kind, oid, raw = encode(record)
        self.batch.add(NewObject(kind, oid, raw, record, unique=unique))
        return CallId(oid)

    def put_payload(self, stream: Readable) -> PayloadId:
        """Raw bytes of any length up to `MAX_PAYLOAD_BYTES`, as a stream; durable at once."""
        folder = FOLDERS[Kind.PAYLOAD]
        handle = self._files.create_temp(folder)
        with self._thrown_away(handle):
            oid, _, _ = compress_stream(stream, handle)
            self._publish(handle, parse_oid(oid))
        return PayloadId(parse_oid(oid))

    def put_payload_bytes(self, data: bytes) -> PayloadId:
        """Raw bytes that are often stored already, such as a tool list: then nothing is written."""
        payload = PayloadId(Oid(sha256(data).hexdigest()))
        self._put_payload(payload, _BytesStream(data))
        return payload

    def rely_on(self, node: NodeId) -> None:
        """Say that a node outside this transaction must still be stored when it is committed."""
        self.batch.relies_on.add(node)

    def move(self, ref: RefName, expected: Oid | None, new: Oid | None, reason: str) -> None:
        """Move a ref (None creates or deletes), with a reason for the reflog."""
        self.batch.moves.append(Move(ref, expected, new))
        self.batch.reasons.append(reason)

    def commit(self) -> None:
        """Make it all durable and visible. The transaction is empty afterwards."""
        batch, self.batch = self.batch, Batch()
        self._commit(batch)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.commit()

    def _put_payload(self, payload: PayloadId, stream: Readable) -> None:
        if payload in self.batch.objects[Kind.PAYLOAD]:
            return
        if self._files.stat(loose_name(Kind.PAYLOAD, payload)) is not None:
            self._files.touch(loose_name(Kind.PAYLOAD, payload))
            self.batch.add(NewObject(Kind.PAYLOAD, payload, b""))
            return
        self.put_payload(stream)

    def _publish(self, handle: Handle, oid: Oid) -> None:
        name = loose_name(Kind.PAYLOAD, oid)
        self._files.make_dirs(name.rpartition("/")[0])
        handle.sync()
        handle.close()
        self._files.rename(handle.name, name)
        self._files.sync_dir(name.rpartition("/")[0])
        self.batch.add(NewObject(Kind.PAYLOAD, oid, b""))

    @contextlib.contextmanager
    def _thrown_away(self, handle: Handle) -> Iterator[None]:
        try:
            yield
        except BaseException:
            handle.close()
            with contextlib.suppress(DagError):  # the first error is the one to tell
                self._files.remove(handle.name)
            raise


class _BytesStream:
    """Bytes in memory as a stream, without the copy that io.BytesIO makes of a slice."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = memoryview(data), 0

    def read(self, size: int = -1) -> memoryview:
        start, self._at = self._at, len(self._data) if size < 0 else self._at + size
        return self._data[start : self._at]
