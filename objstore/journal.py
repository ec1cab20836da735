"""What makes small transactions durable: one checksummed record, one fdatasync (docs/format.md).

A record holds the new objects' stored bytes, the ref moves and the reflog fields of one transaction; it is
the commit point. Index rows, ref files and the reflog follow without waiting for the disk, and are written again
from here after a crash. The objects stand here until a checkpoint makes loose files or a pack of them. All
methods that change anything need the store's lock.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
from collections.abc import Iterator
from hashlib import sha256
from typing import Final, NamedTuple

from objstore.journalrecord import HEAD, MAGIC, Record, StoredObject, checksum, decode_payload, encode_record
from objstore.kinds import Kind
from objstore.limits import MAX_JOURNAL_RECORD_BYTES
from objstore.loose import Form
from refs.errors import CorruptFile, DagError, LimitExceeded, StorageFailure
from refs.files import Files, Handle
from refs.forks import renew_after_fork
from refs.ids import Oid

JOURNAL: Final = "journal"
_MAGIC: Final = b"msgdag-journal1\n"
_HEADER: Final = struct.Struct("<16s16s16sQ16s")  # magic, id, the id before, its end, boot
_APPLIED: Final = struct.Struct("<Q8s")  # the applied end, and the first bytes of its sha256
_APPLIED_AT: Final = 128
_COPY_AT: Final = 160
"""A second copy of the header: without the id in it no record could be believed."""
START: Final = 256
"""Where the first record begins."""
ROOM_BYTES: Final = 1 << 17
"""Who appends often writes so many zeros ahead: a sync within a file's size costs less than one at its end."""
ROOM_AFTER: Final = 8
"""Appends of one process before it does so."""
_BLOCK_BYTES: Final = 1 << 16
_NO_RECORD: Final = bytes(HEAD.size)
_MAX_CANDIDATES: Final = 16
"""Places tried behind a damaged record: what looks like the beginning of one by chance comes once in 4 GiB."""


class Position(NamedTuple):
    """A place in the life of a journal: which emptying (`id`), and the byte. The index is stamped with it."""

    id: str
    end: int


class Journal:
    """The file `journal`, kept open. `boot` names this start of the machine (any 16 bytes)."""

    def __init__(self, files: Files, boot: bytes) -> None:
        self._files = files
        self._boot = boot
        self._handle: Handle | None = None
        self._start = START
        self._appends = 0
        self._objects: dict[tuple[Kind, Oid], tuple[Form, int, int]] = {}  # form, place and size of each
        self._objects_of = b""
        self._objects_end = START
        self._mutex = threading.Lock()
        self._header_read = b"", _Header(_NOWHERE, _NOWHERE, 0, b"", START, False)
        renew_after_fork(self)
        self.damaged = 0
        """How many places the latest reading had to pass over, with whole records behind them."""

    def renew(self) -> None:
        """In a forked child: another thread may have been amidst."""
        self._mutex = threading.Lock()
        self._objects_of = b""

    def exists(self) -> bool:
        return self._files.stat(JOURNAL) is not None

    def create(self) -> None:
        """A new, empty journal, durably."""
        self._files.replace(JOURNAL, self._header(os.urandom(16), _NOWHERE, 0, START))

    def revive(self, journal: str) -> bool:
        """Write the header anew, of which both copies are damaged, if the records are those of that id.

        Everything counts as not applied then: to apply a record again changes nothing.
        """
        handle = self._open()
        name = bytes.fromhex(journal)
        if len(name) != len(_NOWHERE) or self._record_at(handle, name, START, handle.size()) is None:
            return False
        handle.write_at(0, self._header(name, _NOWHERE, 0, START))
        handle.sync()
        return True

    def put_aside(self) -> str | None:
        """Give a journal that can't be read another name; that name, or None if there is no journal any more."""
        self.close()
        name = f"{JOURNAL}.damaged-{os.urandom(4).hex()}"
        try:
            self._files.rename(JOURNAL, name)
        except FileNotFoundError:
            return None
        return name

    def pending(self) -> bool:
        """Whether something recorded may not have been applied. Needs no lock.

        After a clean stop nothing; after a crash of the process the tail not yet marked; after a crash of
        the machine (another boot) everything since the journal was last emptied.
        """
        return self.another_boot() or self.cut_short()

    def another_boot(self) -> bool:
        """Whether the machine was started anew since something was recorded."""
        return self._read_header().boot != self._boot and self._open().size() > START

    def cut_short(self) -> bool:
        """Whether the latest record isn't marked as applied: somebody is at it, or was stopped."""
        return self._behind(self._open(), self._read_header().applied) != _NO_RECORD

    def position(self) -> Position:
        """Up to where the journal has been applied."""
        header = self._read_header()
        return Position(header.id.hex(), header.applied)

    def emptied_from(self) -> Position:
        """Where the journal stood before it was last emptied: an index stamped so is up to date at `START`."""
        header = self._read_header()
        return Position(header.before.hex(), header.before_end)

    def state(self) -> bytes:
        """The header as it stands, and what is behind the mark: equal as long as nobody has changed anything."""
        try:
            data, header = self._header_and_bytes()
            return data + self._behind(self._open(), header.applied)
        except (FileNotFoundError, CorruptFile, StorageFailure):
            return b""

    def append(self, record: Record) -> Position:
        """Write a record and sync it: on return the transaction is committed. Its end, for `mark`.

        Where the disk refuses, the journal is as it was and `StorageFailure` is raised.
        """
        handle = self._open()
        header = self._read_header()
        self._start = start = self._end(handle, header)
        data = encode_record(record, header.id, start)
        if len(data) > MAX_JOURNAL_RECORD_BYTES:
            raise LimitExceeded("a transaction", len(data), MAX_JOURNAL_RECORD_BYTES)
        end = start + len(data)
        self._appends += 1
        try:
            if self._appends > ROOM_AFTER and end > handle.size():
                self._write_with_room(handle, data)
            else:
                handle.write_at(start, data)
            handle.sync()
        except BaseException:
            self.cut()
            raise
        return Position(header.id.hex(), end)

    def _write_with_room(self, handle: Handle, data: bytes) -> None:
        try:
            handle.write_at(self._start, data.ljust(len(data) + ROOM_BYTES, b"\0"))
        except StorageFailure:  # on a disk that is nearly full the record itself may fit
            handle.truncate(self._start)
            handle.write_at(self._start, data)

    def find(self, kind: Kind, oid: Oid) -> StoredObject | None:
        """An object that stands here, or None. Needs no lock: another process may empty the journal meanwhile."""
        with self._mutex:
            header = self._read_header()
            if self._objects_of != header.id:
                self._objects, self._objects_of, self._objects_end = {}, header.id, START
            place = self._objects.get((kind, oid))
            if place is None:
                for record, end in self._records(self._objects_end):
                    if end <= header.applied:
                        self._learn(record, end)
                        continue
                    # It may yet be taken back, and another one stand here: not to be remembered.
                    for each in record.objects:
                        if (each.kind, each.oid) == (kind, oid) and each.packed:
                            return each
                place = self._objects.get((kind, oid))
            if place is None:
                return None
            form, at, size = place
            packed = self._open().read_at(at, size)
            return StoredObject(kind, oid, form, packed) if self._read_header().id == header.id else None

    def _learn(self, record: Record, end: int) -> None:
        """Note where the objects of the record that ends at `end` stand: at its end, one behind the other."""
        at = end - sum(len(each.packed) for each in record.objects)
        for each in record.objects:
            if each.packed:
                self._objects[each.kind, each.oid] = each.form, at, len(each.packed)
            at += len(each.packed)
        self._objects_end = end

    def cut(self) -> bool:
        """Take back the latest record: what belongs to it could not be written. Whether that was possible."""
        with contextlib.suppress(StorageFailure):  # else its checksum or the next writer deals with it
            self._open().truncate(self._start)
            self._open().sync()
            return True
        return False

    def mark(self, position: Position) -> bytes:
        """Note that everything up to `position` has been applied; the new `state`.

        Not synced: after a crash of the machine everything is applied again.
        """
        applied = _applied(position.end)
        self._open().write_at(_APPLIED_AT, applied)
        data, parsed = self._header_read  # by `append`, if nothing came between
        if parsed.id.hex() != position.id:
            return self.state()
        data = data[:_APPLIED_AT] + applied + data[_APPLIED_AT + _APPLIED.size :]
        self._header_read = data, parsed._replace(applied=position.end)
        return data + _NO_RECORD

    def replay(self) -> Iterator[tuple[Record, int]]:
        """(record, its end) of what is pending, oldest first; what was torn behind them is cut off."""
        handle = self._open()
        header = self._read_header()
        # A process may have been killed before its sync: what follows from a record must not be safe before it.
        handle.sync()
        end = header.applied if header.boot == self._boot else START
        for found in self._records(end):
            yield found
            end = found[1]
        if end < handle.size():
            # Room, or what an append left that never returned: nothing in it was acknowledged.
            handle.truncate(end)

    def records(self, after: int = START) -> Iterator[tuple[Record, int]]:
        """All whole records since the journal was last emptied, or those behind the one that ends at `after`."""
        return self._records(max(START, after))

    def _records(self, at: int) -> Iterator[tuple[Record, int]]:
        """Whole records from `at` on; damage that has whole records behind it is passed over and counted."""
        handle = self._open()
        journal, size = self._read_header().id, handle.size()
        self.damaged = 0
        while at < size:
            found = self._record_at(handle, journal, at, size)
            if found is None:  # the end, if nothing comes behind it
                found = self._resume(handle, journal, at, size)
                if found is None:
                    return
                self.damaged += 1
            yield found
            at = found[1]

    def _resume(self, handle: Handle, journal: bytes, at: int, size: int) -> tuple[Record, int] | None:
        """The first whole record behind a place where there is none."""
        rest = handle.read_at(at, size - at)
        place = 0
        for _ in range(_MAX_CANDIDATES):
            place = rest.find(MAGIC, place + 1)
            if place < 0:
                break
            found = self._record_at(handle, journal, at + place, size)
            if found is not None:
                return found
        return None

    def is_whole(self) -> bool:
        """Whether the header is what was written: both copies, the mark, and the zeros between."""
        return self._read_header().sound

    def adopt_boot(self) -> None:
        """Say that everything has been applied in this boot, and make that durable."""
        handle = self._open()
        header = self._read_header()
        end = self._end(handle, header)
        handle.write_at(0, self._header(header.id, header.before, header.before_end, end))
        handle.sync()

    def empty(self, *, swept: bool = False) -> None:
        """Forget all records: what they cover has been synced. Atomic, since old records name the old id.

        `swept` says that objects were deleted: an index from before is not to be believed then.
        """
        handle = self._open()
        header = self._read_header()
        before, end = (_NOWHERE, 0) if swept else (header.id, self._end(handle, header))
        handle.write_at(0, self._header(os.urandom(16), before, end, START))
        # In between too: the old id with a shorter file would give places that have been stamped a second time.
        handle.sync()
        handle.truncate(START)
        handle.sync()

    @property
    def size(self) -> int:
        """Bytes of records."""
        return self._end(self._open(), self._read_header()) - START

    def verify(self) -> list[str]:
        """What is wrong with the journal, in words; empty if nothing is."""
        try:
            header = self._read_header()
            end = max((end for _, end in self.records()), default=START)
            size = self._open().size()
            torn = not self._is_blank(end, size)
        except DagError as error:
            return [str(error)]
        problems = []
        if torn:
            problems.append(f"{size - end} bytes behind the last whole record, at {end}")
        if not header.sound:
            problems.append("a part of its header is damaged that can be told from the rest")
        if header.applied > end:
            problems.append("more is marked as applied than there is")
        return problems

    def _behind(self, handle: Handle, end: int) -> bytes:
        """The head of the record that begins at `end`; zeros if there is none."""
        head = handle.read_at(end, HEAD.size)
        if not head and handle.size() < end:  # cut off: there are no records up to there
            return b"cut".ljust(HEAD.size)
        return head.ljust(HEAD.size, b"\0")

    def _end(self, handle: Handle, header: _Header) -> int:
        """Where the last whole record ends."""
        if self._behind(handle, header.applied) == _NO_RECORD:
            return header.applied
        return max((end for _, end in self._records(START)), default=START)

    def _is_blank(self, start: int, end: int) -> bool:
        """Whether there are only zeros: room for records to come."""
        handle = self._open()
        for at in range(start, end, _BLOCK_BYTES):
            if handle.read_at(at, min(_BLOCK_BYTES, end - at)).strip(b"\0"):
                return False
        return True

    def close(self) -> None:
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    def _open(self) -> Handle:
        if self._handle is None:
            try:
                self._handle = self._files.open_rw_existing(JOURNAL)
            except StorageFailure:
                self._handle = self._files.open_read(JOURNAL)
        return self._handle

    def _header(self, journal: bytes, before: bytes, before_end: int, applied: int) -> bytes:
        fields = _HEADER.pack(_MAGIC, journal, before, before_end, self._boot)
        head = fields + sha256(fields).digest()[:16]
        written = head.ljust(_APPLIED_AT, b"\0") + _applied(applied)
        return written.ljust(_COPY_AT, b"\0") + head.ljust(START - _COPY_AT, b"\0")

    def _read_header(self) -> _Header:
        return self._header_and_bytes()[1]

    def _header_and_bytes(self) -> tuple[bytes, _Header]:
        data = self._open().read_at(0, START)
        read = self._header_read
        if data != read[0]:
            # Both at once: other threads read it too.
            self._header_read = read = data, self._parse_header(data)
        return read

    def _parse_header(self, data: bytes) -> _Header:
        where = self._files.path(JOURNAL)
        whole = [fields for at in (0, _COPY_AT) if (fields := _whole(data, at)) is not None]
        if len(data) != START or not whole:
            raise CorruptFile(where, "its header is damaged")
        magic, journal, before, before_end, boot = _HEADER.unpack(whole[0])
        end, check = _APPLIED.unpack_from(data, _APPLIED_AT)
        if magic != _MAGIC:
            raise CorruptFile(where, "not a journal")
        marked = _applied(end)[8:] == check and START <= end < _FAR
        if not marked:
            end, boot = START, b""  # not to be believed: replay everything, which is harmless
        blank = b"".join([data[start:stop] for start, stop in _BLANKS])
        sound = marked and len(whole) == 2 and whole[0] == whole[1] and not blank.strip(b"\0")
        return _Header(journal, before, before_end, boot, end, sound)

    def _record_at(self, handle: Handle, journal: bytes, at: int, size: int) -> tuple[Record, int] | None:
        head = handle.read_at(at, HEAD.size)
        if len(head) < HEAD.size:
            return None
        magic, length, check = HEAD.unpack(head)
        if magic != MAGIC or length > min(MAX_JOURNAL_RECORD_BYTES, size - at - HEAD.size):
            return None
        payload = handle.read_at(at + HEAD.size, length)
        if checksum(journal, at, payload) != check:
            return None
        return decode_payload(payload, self._files.path(JOURNAL)), at + HEAD.size + length


_NOWHERE: Final = bytes(16)
_HEAD_BYTES: Final = _HEADER.size + 16
_BLANKS: Final = (
    (_HEAD_BYTES, _APPLIED_AT),
    (_APPLIED_AT + _APPLIED.size, _COPY_AT),
    (_COPY_AT + _HEAD_BYTES, START),
)
_FAR: Final = 1 << 62


class _Header(NamedTuple):
    id: bytes
    before: bytes
    before_end: int
    boot: bytes
    applied: int
    sound: bool
    """Whether both copies are whole, and the same, and the mark, and all else is zeros."""


def _whole(data: bytes, at: int) -> bytes | None:
    """The fields of the header that stands at `at`, or None if it is damaged."""
    fields = data[at : at + _HEADER.size]
    return fields if data[at + _HEADER.size :][:16] == sha256(fields).digest()[:16] else None


def _applied(end: int) -> bytes:
    raw = struct.pack("<Q", end)
    return raw + sha256(raw).digest()[:8]
