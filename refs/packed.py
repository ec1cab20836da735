"""`packed-refs`: many refs in one file, a line each, sorted by name; from `SMALL_BYTES` on in gzip members.

    # packed-refs sorted
    <64 hex digits> refs/conversations/trip

It is only ever replaced whole, so an open handle is a snapshot. Neither a lookup nor a listing holds the file in
memory. How it is read is in `refs.packedfile`.
"""

from __future__ import annotations

import contextlib
import re
import threading
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import ge
from typing import Final, cast

from refs.errors import CorruptFile, LimitExceeded, StorageFailure
from refs.files import Files
from refs.forks import renew_after_fork
from refs.ids import OID_DIGITS, Oid
from refs.members import MemberWriter
from refs.names import MAX_REF_BYTES, RefName
from refs.packedfile import HEADER, NAME_AT, Block, PackedFile, PlainFile, blocks, opened, parse, reason

PACKED_REFS: Final = "packed-refs"
MAX_PACKED_BYTES: Final = 1 << 30
"""About ten million refs."""
MAX_FOUND: Final = 4096
"""Names whose values are kept in memory as long as the file stays."""

SMALL_BYTES: Final = 16_384
"""Fewer bytes of lines stay plain: so many refs fit into few blocks of a disk either way."""

_MEMBER_BYTES: Final = SMALL_BYTES // 2  # a lookup unpacks one
_LINES = re.compile(
    rb"[0-9a-f]{64} [^\s\x00]{1,%d}(?:\n[0-9a-f]{64} [^\s\x00]{1,%d})*" % (MAX_REF_BYTES, MAX_REF_BYTES)
)

Identity = tuple[int, int, int]


class PackedRefs:
    """The refs of `packed-refs`. Changes need the store's lock; reading needs none, from any thread."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._guard = threading.Lock()  # a handle mustn't be closed while another thread reads it
        self._file: PackedFile | None = None
        self._identity: Identity | None = None
        self._found: dict[str, Oid | None] = {}  # what was looked up in the file as it is now
        self._found_identity: Identity | None = None
        renew_after_fork(self)

    def renew(self) -> None:
        """In a forked child: another thread may have been amidst."""
        self._guard = threading.Lock()
        self._file = self._identity = None  # not closed: another thread may have done so already

    def find_all(self, names: Iterable[str]) -> dict[str, Oid]:
        """The values of those of many refs that are here, in one walk along the file."""
        wanted = sorted(map(_key, names))
        found: dict[str, Oid] = {}
        file = self._open()
        if file is None or not wanted:
            return found
        with file.handle:
            at = 0
            for block in self._sound_blocks(file):
                end = bisect_right(wanted, block.lines[-1][NAME_AT:], at)
                if at < end:
                    values = {line[NAME_AT:]: line for line in block.lines}
                    for key in wanted[at:end]:
                        if (line := values.get(key)) is not None:
                            found[key.decode()] = Oid(line[:OID_DIGITS].decode())
                at = end
        return found

    def find(self, name: str) -> Oid | None:
        """The value of one ref. Raises `CorruptFile` if the way to it is damaged."""
        key = _key(name)
        with self._guard:
            file = self._current()
            if file is None:
                return None
            if self._found_identity != self._identity or len(self._found) >= MAX_FOUND:
                self._found, self._found_identity = {}, self._identity
            if name in self._found:
                return self._found[name]
            line = file.find(key)
            try:
                self._found[name] = None if line is None else parse(line, b"")[1]
            except ValueError:
                for _ in self._sound_blocks(file):  # tells which line it is
                    pass
                raise CorruptFile(file.path, f"the line of {name!r} is damaged") from None
            return self._found[name]

    def items(self, prefix: str = "") -> Iterator[tuple[str, Oid]]:
        """Name and value of each ref whose name starts with `prefix`, in order. Names aren't checked.

        Raises `CorruptFile` with the line's number at the first line that is damaged or out of order.
        """
        key = _key(prefix)
        file = self._open()
        if file is None:
            return
        with file.handle:
            previous = b""
            for block in blocks(file, file.seek(key)):
                for number, line in enumerate(block.lines):
                    try:
                        name, oid = parse(line, previous)
                    except ValueError as error:
                        raise file.corrupt(block, number, error) from None
                    previous = name
                    if name.startswith(key):
                        yield name.decode(), oid
                    elif name > key:
                        return

    def standing_at(self, values: Collection[Oid], prefix: str = "") -> Iterator[tuple[str, Oid]]:
        """Those of `items` whose value is one of `values`. Of other lines only the first bytes are looked at."""
        key = _key(prefix)
        wanted = {oid.encode() for oid in values}
        file = self._open()
        if file is None:
            return
        with file.handle:
            for block in blocks(file, file.seek(key)):
                for number, line in enumerate(block.lines):
                    if line[:OID_DIGITS] not in wanted:
                        continue
                    try:
                        name, oid = parse(line, b"")
                    except ValueError as error:
                        raise file.corrupt(block, number, error) from None
                    if name.startswith(key):
                        yield name.decode(), oid
                last = block.lines[-1][NAME_AT:]
                if last > key and not last.startswith(key):
                    return

    def values(self, but: Collection[str] = ()) -> set[Oid]:
        """The values of all refs but some. Raises what `items` does; much cheaper, as names are only skimmed."""
        hidden = set(but)
        found: set[Oid] = set()
        file = self._open()
        if file is None:
            return found
        with file.handle:
            for block in self._sound_blocks(file):
                raw = b"\n".join(block.lines)
                try:
                    lines = raw.decode().split("\n")
                except UnicodeDecodeError as error:
                    raise file.corrupt(block, raw.count(b"\n", 0, error.start), error) from None
                if hidden:
                    lines = [line for line in lines if line[NAME_AT:] not in hidden]
                found.update(cast("list[Oid]", [line[:OID_DIGITS] for line in lines]))
        return found

    def audit(self) -> Iterator[tuple[str, str | None]]:
        """(name, None) for each good line, (`packed-refs`, what is wrong) for each other one.

        Raises `CorruptFile` where the file can't be read as lines at all.
        """
        file = self._open()
        if file is None:
            return
        with file.handle:
            previous = b""
            number = 1
            for part in file.parts():
                if isinstance(part, CorruptFile):
                    yield PACKED_REFS, part.reason
                    continue
                for line in part.lines:
                    number += 1
                    try:
                        name, _ = parse(line, previous)
                    except ValueError as error:
                        yield PACKED_REFS, f"line {number}: {reason(error)}"
                    else:
                        previous = name
                        yield name.decode(), None

    def rewrite(self, changes: Mapping[RefName, Oid | None], *, settle: bool = False) -> None:
        """Set or (None) remove refs, durably, in one replacement of the file.

        Nothing is written if there is nothing to set, and none of what is to be removed is there; but with
        `settle` a long file that is still plain is.
        """
        nothing = all(new is None and self.find(name) is None for name, new in changes.items())
        if nothing and not (settle and self._is_long()):
            return
        handle = self._files.create_temp("")
        try:
            writer = MemberWriter(handle, _MEMBER_BYTES, SMALL_BYTES, HEADER)
            self._merge(changes, writer)
            lines = writer.finish()
            if lines is not None:
                handle.write_at(0, HEADER + lines)
            if handle.size() > MAX_PACKED_BYTES:
                raise LimitExceeded(self._files.path(PACKED_REFS), handle.size(), MAX_PACKED_BYTES)
            self._files.publish(handle, PACKED_REFS)
        except BaseException:
            handle.close()
            with contextlib.suppress(StorageFailure):  # the first error is the one to tell
                self._files.remove(handle.name)
            raise

    def _is_long(self) -> bool:
        """Whether the file is plain though it has too many lines for that."""
        with self._guard:
            file = self._current()
            return isinstance(file, PlainFile) and file.handle.size() > SMALL_BYTES + len(HEADER)

    def _merge(self, changes: Mapping[RefName, Oid | None], writer: MemberWriter) -> None:
        """Write the lines that there are, with changes made. Members in which nothing changes stay as they are."""
        keys = sorted((_key(name), name) for name in changes)
        names = [key for key, _ in keys]
        at = 0
        file = self._open()
        if file is not None:
            with file.handle:
                for block in self._sound_blocks(file):
                    end = bisect_right(names, block.lines[-1][NAME_AT:], at)
                    if at == end and block.member is not None:
                        writer.copy(block.member)
                    else:
                        left = block.lines if at == end else _changed(block.lines, keys[at:end], changes)
                        writer.add(line + b"\n" for line in left)
                    at = end
        writer.add(f"{new} {name}\n".encode() for _, name in keys[at:] if (new := changes[name]) is not None)

    def _sound_blocks(self, file: PackedFile) -> Iterator[Block]:
        """All blocks. Raises `CorruptFile` at the first line that is damaged or out of order."""
        previous = b""
        for block in blocks(file):
            names = [previous, *(line[NAME_AT:] for line in block.lines)]
            if not _LINES.fullmatch(b"\n".join(block.lines)) or any(map(ge, names, names[1:])):
                for number, line in enumerate(block.lines):  # which one it is
                    try:
                        previous = parse(line, previous)[0]
                    except ValueError as error:
                        raise file.corrupt(block, number, error) from None
            previous = names[-1]
            yield block

    def identity(self) -> Identity | None:
        """Changes whenever the file does; None while there is none."""
        with self._guard:
            self._current()
            return self._identity

    def close(self) -> None:
        with self._guard:
            self._drop()

    def _current(self) -> PackedFile | None:
        """The cached file, if it still is the one of that name. It stays open, so its inode isn't reused."""
        found = self._files.stat(PACKED_REFS)
        if found is None:
            self._drop()
        elif self._identity != (found.st_ino, found.st_size, found.st_mtime_ns):
            self._drop()
            self._file = self._open()
            if self._file is not None:
                status = self._file.handle.stat()
                self._identity = status.st_ino, status.st_size, status.st_mtime_ns
        return self._file

    def _drop(self) -> None:
        if self._file is not None:
            self._file.handle.close()
        self._file = self._identity = None

    def _open(self) -> PackedFile | None:
        try:
            handle = self._files.open_read(PACKED_REFS)
        except FileNotFoundError:
            return None
        try:
            size = handle.size()
            if size > MAX_PACKED_BYTES:
                raise LimitExceeded(self._files.path(PACKED_REFS), size, MAX_PACKED_BYTES)
            return opened(handle, self._files.path(PACKED_REFS))
        except BaseException:
            handle.close()
            raise


def _changed(
    lines: Sequence[bytes], keys: Sequence[tuple[bytes, RefName]], changes: Mapping[RefName, Oid | None]
) -> list[bytes]:
    """Lines with the changes of some names made."""
    held = {line[NAME_AT:]: line for line in lines}
    for key, name in keys:
        new = changes[name]
        if new is None:
            held.pop(key, None)
        else:
            held[key] = new.encode() + b" " + key
    return [held[key] for key in sorted(held)]


def _key(name: str) -> bytes:
    return name.encode("utf-8", "replace")  # a name found on a disk may hold any bytes: it isn't in here
