"""Where what comes from outside waits, unseen, until all of it was checked.

Every object is decoded, and must be exactly what writing it again gives; every size stays within its bound
before it is believed. What is new goes into a pack of our own: nothing of the file that came is kept. Then
all that the new objects build on must be here or come with them. Ids wait in a temporary database, so the
memory needed doesn't grow with what is sent.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

from objstore.arrival import Value
from objstore.canonical import condense, message_content_hash
from objstore.codec import decode, payload_ids, read_message
from objstore.database import record_oid
from objstore.kinds import Kind
from objstore.loose import Form, loose_name, open_loose_payload
from objstore.message import Message
from objstore.node import Node
from objstore.pack import PackReader
from objstore.packframe import Frame
from objstore.packwriter import PackWriter
from objstore.records import Call, Description, Note, Tombstone
from objstore.scan import Progress
from objstore.storage import Storage
from objstore.transaction import Transaction
from refs.errors import CorruptObject, ObjectMissing
from refs.ids import ROOT, Oid, PayloadId
from refs.names import DESCRIPTIONS, REMOTES, RefName
from refs.store import Move

_IDS_AT_ONCE: Final = 500
_NUMBER: Final = {kind: number for number, kind in enumerate(Kind)}
_KINDS: Final = tuple(Kind)

OpenPayload = Callable[[PayloadId], BinaryIO]


@dataclass(frozen=True, slots=True)
class _Line:
    """An object that came, checked."""

    kind: Kind
    oid: Oid
    form: Form
    raw: bytes
    value: Value


class Quarantine:
    """Takes packs for one store, then commits what was new in them. A context manager.

    Raises `CorruptFile`, `CorruptObject` and `LimitExceeded` for what can't be believed; then nothing has
    become visible, and nothing will. `open_payload` gives attachments from where the packs come from.
    """

    def __init__(self, storage: Storage, open_payload: OpenPayload, progress: Progress | None = None) -> None:
        self._storage, self._open_payload = storage, open_payload
        self._progress = progress or (lambda what, done, total: None)
        self._writer: PackWriter | None = None
        self._transaction = Transaction(storage.files, lambda batch: None)
        self._ids = sqlite3.connect("", isolation_level=None)  # a file of its own, gone when it is closed
        self._ids.execute("PRAGMA journal_mode=OFF")
        for table in ("seen", "needed"):
            self._ids.execute(f"CREATE TABLE {table}(kind INTEGER, id BLOB, PRIMARY KEY(kind, id)) WITHOUT ROWID")
        self.objects: dict[Kind, int] = {}
        """What was new, by kind."""
        self.payload_bytes = 0

    def __enter__(self) -> Quarantine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.discard()
        self._ids.close()

    def take(self, reader: PackReader) -> None:
        """Check a pack, and keep what is new in it."""
        frames = list(reader.frames())
        for number, (offset, size) in enumerate(frames):
            self._progress("check", number, len(frames))
            self._take_frame(reader.frame(offset, size))

    def require(self, kind: Kind, ids: Iterable[Oid]) -> None:
        """Say what must be here in the end: the values of refs."""
        self._insert("needed", ((kind, oid) for oid in ids))

    def unmet(self) -> Iterator[tuple[Kind, Oid]]:
        """What is needed, hasn't come, and isn't stored here."""
        for kind in _KINDS:
            after = b""
            while True:
                rows = self._ids.execute(
                    "SELECT n.id FROM needed n LEFT JOIN seen s ON s.kind = n.kind AND s.id = n.id"
                    " WHERE n.kind=? AND n.id > ? AND s.id IS NULL ORDER BY n.id LIMIT ?",
                    (_NUMBER[kind], after, _IDS_AT_ONCE),
                ).fetchall()
                if not rows:
                    break
                after = rows[-1][0]
                ids = [Oid(oid.hex()) for (oid,) in rows]
                yield from ((kind, oid) for oid in sorted(self._storage.index.missing(kind, ids)))

    def commit(self, moves: Sequence[Move] = (), reason: str = "fetch") -> None:
        """Make what was taken, and moves of refs, durable and visible: all or nothing.

        Raises `ObjectMissing` if something that is needed is nowhere, `RefChanged` or `RefExists` if a ref
        isn't where its move expects it.
        """
        for move in moves:
            if move.new is not None:
                self.require(Kind.DESCRIPTION if names_description(move.ref) else Kind.NODE, [move.new])
        sealed = None
        if self._writer is not None:
            sealed = self._writer.seal()
            self._writer = None
        batch = self._transaction.batch
        batch.moves, batch.reasons = list(moves), [reason] * len(moves)
        try:
            self._storage.commit_sealed(batch, sealed, self._check_all)
        finally:
            if sealed is not None and sealed.temp is not None:
                self._storage.files.remove(sealed.temp)

    def _check_all(self) -> None:
        """The lock is held: what the new objects build on must still be here."""
        for kind, oid in self.unmet():
            raise ObjectMissing(kind, oid)

    # -- one frame --------------------------------------------------------------------------------

    def _take_frame(self, frame: Frame) -> None:
        lines = [_parse(frame, at) for at in range(len(frame.lines))]
        new = self._new(lines)
        messages = {line.oid: line for line in lines if line.kind is Kind.MESSAGE}
        here = {(line.kind, line.oid) for line in lines}
        needed: set[tuple[Kind, Oid]] = set()
        alone: dict[Oid, _Line] = {}
        for line in lines:
            if (line.kind, line.oid) in new:
                new.discard((line.kind, line.oid))  # a frame may hold it twice
                self._check_message(line)
                needed.update(each for each in _needs(line) if each not in here)
                self.objects[line.kind] = self.objects.get(line.kind, 0) + 1
                if line.kind is Kind.MESSAGE:
                    alone[line.oid] = line  # until its node comes
                    continue
                if isinstance(line.value, Node) and (said := alone.pop(line.value.message, None)):
                    self._write(said, messages)
                self._write(line, messages)
        for line in alone.values():
            self._write(line, messages)
        self._insert("needed", needed)
        if self._writer is not None:
            self._writer.drain()

    def _new(self, lines: Sequence[_Line]) -> set[tuple[Kind, Oid]]:
        """Those of some objects that are neither stored nor in quarantine; from now on they are."""
        new: set[tuple[Kind, Oid]] = set()
        for kind in {line.kind for line in lines}:
            ids = {line.oid for line in lines if line.kind is kind}
            absent = self._storage.index.missing(kind, ids) - self._seen(kind, ids)
            new.update((kind, oid) for oid in absent)
        self._insert("seen", new)
        return new

    def _write(self, line: _Line, messages: dict[Oid, _Line]) -> None:
        if self._writer is None:
            self._writer = PackWriter(self._storage.files)
        if isinstance(line.value, Node):
            beside = messages.get(line.value.message)
            if line.value.parent == ROOT:
                self._writer.start_chain()
            self._writer.node(line.oid, line.value, None if beside is None else lambda: (beside.form, beside.raw))
        elif line.kind is Kind.MESSAGE:
            self._writer.message(line.oid, line.raw, line.form)
        else:
            self._writer.record(line.kind, line.oid, line.raw, line.value)

    # -- messages and their attachments -----------------------------------------------------------

    def _check_message(self, line: _Line) -> None:
        """Whether a message is what its id says, written as messages are."""
        if line.kind is Kind.CALL and isinstance(line.value, Call) and line.value.tools is not None:
            self._fetch_payload(line.value.tools)
        if line.kind is not Kind.MESSAGE:
            return
        if line.form is Form.CONDENSED:
            for payload in payload_ids(line.raw):
                self._fetch_payload(payload)
            files = self._storage.files
            message = read_message(line.raw, None, lambda payload: open_loose_payload(files, payload))
            if not isinstance(message, Message) or condense(message).raw != line.raw:
                raise CorruptObject(Kind.MESSAGE, line.oid, "a condensed message that isn't written as one")
            if message_content_hash(message) != line.oid:
                raise CorruptObject(Kind.MESSAGE, line.oid, "with its attachments it has another hash")
            return
        value = decode(Kind.MESSAGE, line.raw)
        if isinstance(value, Tombstone) and value.id != line.oid:
            raise CorruptObject(Kind.MESSAGE, line.oid, "a tombstone of another message")

    def _fetch_payload(self, payload: PayloadId) -> None:
        """Bring an attachment here, checked; unnamed until the commit."""
        if self._seen(Kind.PAYLOAD, [payload]):
            return
        files = self._storage.files
        if not self._storage.index.missing(Kind.PAYLOAD, [payload]):
            return
        with self._open_payload(payload) as stream:
            if self._transaction.put_payload(stream) != payload:
                raise CorruptObject(Kind.PAYLOAD, payload, "its bytes have another hash")
        found = files.stat(loose_name(Kind.PAYLOAD, payload))
        self.payload_bytes += found.st_size if found is not None else 0
        self.objects[Kind.PAYLOAD] = self.objects.get(Kind.PAYLOAD, 0) + 1
        self._insert("seen", [(Kind.PAYLOAD, payload)])

    # -- ids --------------------------------------------------------------------------------------

    def _seen(self, kind: Kind, ids: Iterable[Oid]) -> set[Oid]:
        wanted = list(ids)
        found: set[Oid] = set()
        for start in range(0, len(wanted), _IDS_AT_ONCE):
            part = [bytes.fromhex(oid) for oid in wanted[start : start + _IDS_AT_ONCE]]
            marks = ",".join("?" * len(part))
            query = f"SELECT id FROM seen WHERE kind=? AND id IN ({marks})"
            found.update(Oid(oid.hex()) for (oid,) in self._ids.execute(query, (_NUMBER[kind], *part)))
        return found

    def _insert(self, table: str, ids: Iterable[tuple[Kind, Oid]]) -> None:
        rows = sorted((_NUMBER[kind], bytes.fromhex(oid)) for kind, oid in ids)
        self._ids.execute("BEGIN")
        self._ids.executemany(f"INSERT OR IGNORE INTO {table} VALUES (?, ?)", rows)
        self._ids.execute("COMMIT")


def _parse(frame: Frame, at: int) -> _Line:
    """The object of a line. A message isn't read yet: most of a dumb storage's are known."""
    kind = frame.kind(at)
    if kind is Kind.NODE:
        node, node_id = frame.node_and_oid(at)
        return _Line(kind, node_id, Form.PLAIN, b"", node)
    if kind is Kind.MESSAGE:
        oid, form, raw = frame.message(at)
        return _Line(kind, oid, form, raw, payload_ids(raw) if form is Form.CONDENSED else None)
    raw = frame.record(at)[1]
    value = decode(kind, raw)
    if not isinstance(value, Call | Note | Description):
        raise CorruptObject(kind, record_oid(raw), "not a record")
    return _Line(kind, record_oid(raw), Form.PLAIN, raw, value)


def names_description(ref: RefName) -> bool:
    """Whether a ref, here or as it is remembered of a remote, stands at a description rather than at a node."""
    return ref.startswith(DESCRIPTIONS) or (ref.startswith(REMOTES) and ref.split("/")[3] == "descriptions")


def _needs(line: _Line) -> Iterator[tuple[Kind, Oid]]:
    """What an object builds on. Notes and descriptions only speak of nodes."""
    value = line.value
    if isinstance(value, Node):
        yield Kind.MESSAGE, value.message
        yield from ((Kind.NODE, oid) for oid in (value.parent, value.called_by) if oid is not None and oid != ROOT)
    elif isinstance(value, Call):
        ends = (value.head_input, value.head_output)
        yield from ((Kind.NODE, oid) for oid in ends if oid is not None and oid != ROOT)
        if value.instructions is not None:
            yield Kind.MESSAGE, value.instructions
        if value.tools is not None:
            yield Kind.PAYLOAD, value.tools
    elif line.form is Form.CONDENSED:
        yield from ((Kind.PAYLOAD, payload) for payload in payload_ids(line.raw))
