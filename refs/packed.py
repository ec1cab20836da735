"""`packed-refs`: many refs in one file, a line each, sorted by name.

    # packed-refs sorted
    <64 hex digits> refs/conversations/trip

It is only ever replaced whole, so an open handle is a snapshot. One ref is found by bisecting the file
with short reads: neither a lookup nor a listing holds the file in memory.
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
from refs.files import Files, Handle
from refs.forks import renew_after_fork
from refs.ids import OID_DIGITS, Oid
from refs.names import MAX_REF_BYTES, RefName

PACKED_REFS: Final = "packed-refs"
MAX_PACKED_BYTES: Final = 1 << 30
"""About ten million refs."""
MAX_FOUND: Final = 4096
"""Names whose values are kept in memory as long as the file stays."""

_HEADER: Final = b"# packed-refs sorted\n"
_MAX_LINE_BYTES: Final = 64 + 1 + MAX_REF_BYTES + 1
_WINDOW_BYTES: Final = 4096  # what is left of a bisection is read at once; several times a line
_BLOCK_BYTES: Final = 1 << 18
_LINE = re.compile(rb"([0-9a-f]{64}) ([^\s\x00]{1,%d})" % MAX_REF_BYTES)

_LINES = re.compile(
    rb"[0-9a-f]{64} [^\s\x00]{1,%d}(?:\n[0-9a-f]{64} [^\s\x00]{1,%d})*" % (MAX_REF_BYTES, MAX_REF_BYTES)
)
_NAME_AT: Final = OID_DIGITS + 1

Identity = tuple[int, int, int]


class PackedRefs:
    """The refs of `packed-refs`. Changes need the store's lock; reading needs none, from any thread."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._guard = threading.Lock()  # a handle mustn't be closed while another thread reads it
        self._handle: Handle | None = None
        self._identity: Identity | None = None
        self._found: dict[str, Oid | None] = {}  # what was looked up in the file as it is now
        self._found_identity: Identity | None = None
        renew_after_fork(self)

    def renew(self) -> None:
        """In a forked child: another thread may have been amidst."""
        self._guard = threading.Lock()
        self._handle = self._identity = None  # not closed: another thread may have done so already

    def find_all(self, names: Iterable[str]) -> dict[str, Oid]:
        """The values of those of many refs that are here, in one walk along the file."""
        wanted = sorted(map(_key, names))
        found: dict[str, Oid] = {}
        opened = self._open()
        if opened is None or not wanted:
            return found
        with opened as handle:
            at = 0
            for lines in self._sound_blocks(handle):
                last = lines[-1][_NAME_AT:]
                end = bisect_right(wanted, last, at)
                if at < end:
                    values = {line[_NAME_AT:]: line for line in lines}
                    for key in wanted[at:end]:
                        if (line := values.get(key)) is not None:
                            found[key.decode()] = Oid(line[:OID_DIGITS].decode())
                at = end
        return found

    def find(self, name: str) -> Oid | None:
        """The value of one ref. Raises `CorruptFile` if the way to it is damaged."""
        key = _key(name)
        with self._guard:
            handle = self._current()
            if handle is None:
                return None
            if self._found_identity != self._identity or len(self._found) >= MAX_FOUND:
                self._found, self._found_identity = {}, self._identity
            if name in self._found:
                return self._found[name]
            start, end = self._seek(handle, key)
            block = handle.read_at(start, end - start)
            at = block.find(b" " + key + b"\n")
            if at < 0:
                self._found[name] = None
                return None
            line = block[max(0, at - 65) : at + 1 + len(key)].removeprefix(b"\n")
            try:
                self._found[name] = _parse(line, b"")[1]
            except ValueError as error:
                raise self._corrupt(handle, start + at, error) from None
            return self._found[name]

    def items(self, prefix: str = "") -> Iterator[tuple[str, Oid]]:
        """Name and value of each ref whose name starts with `prefix`, in order. Names aren't checked.

        Raises `CorruptFile` with the line's number at the first line that is damaged or out of order.
        """
        key = _key(prefix)
        opened = self._open()
        if opened is None:
            return
        with opened as handle:
            previous = b""
            for offset, line in self._lines(handle, self._seek(handle, key)[0]):
                try:
                    name, oid = _parse(line, previous)
                except ValueError as error:
                    raise self._corrupt(handle, offset, error) from None
                previous = name
                if name.startswith(key):
                    yield name.decode(), oid
                elif name > key:
                    return

    def standing_at(self, values: Collection[Oid], prefix: str = "") -> Iterator[tuple[str, Oid]]:
        """Those of `items` whose value is one of `values`. Of other lines only the first bytes are looked at."""
        key = _key(prefix)
        wanted = {oid.encode() for oid in values}
        opened = self._open()
        if opened is None:
            return
        with opened as handle:
            for offset, lines in self._blocks(handle, self._seek(handle, key)[0]):
                for number, line in enumerate(lines):
                    if line[:OID_DIGITS] not in wanted:
                        continue
                    try:
                        name, oid = _parse(line, b"")
                    except ValueError as error:
                        at = offset + sum(len(each) + 1 for each in lines[:number])
                        raise self._corrupt(handle, at, error) from None
                    if name.startswith(key):
                        yield name.decode(), oid
                last = lines[-1][OID_DIGITS + 1 :]
                if last > key and not last.startswith(key):
                    return

    def values(self, but: Collection[str] = ()) -> set[Oid]:
        """The values of all refs but some. Raises what `items` does; much cheaper, as names are only skimmed."""
        hidden = set(but)
        found: set[Oid] = set()
        opened = self._open()
        if opened is None:
            return found
        with opened as handle:
            offset = len(_HEADER)
            for lines in self._sound_blocks(handle):
                block = b"\n".join(lines)
                try:
                    text = block.decode()
                except UnicodeDecodeError as error:
                    at = offset + block.rfind(b"\n", 0, error.start) + 1
                    raise self._corrupt(handle, at, error) from None
                offset += len(block) + 1
                whole = text.split("\n")
                if hidden:
                    whole = [line for line in whole if line[_NAME_AT:] not in hidden]
                found.update(cast("list[Oid]", [line[:OID_DIGITS] for line in whole]))
        return found

    def audit(self) -> Iterator[tuple[str, str | None]]:
        """(name, None) for each good line, (`packed-refs`, what is wrong) for each other one.

        Raises `CorruptFile` where the rest can't be read as lines at all.
        """
        opened = self._open()
        if opened is None:
            return
        with opened as handle:
            previous = b""
            for number, (_, line) in enumerate(self._lines(handle, len(_HEADER)), start=2):
                try:
                    name, _ = _parse(line, previous)
                except ValueError as error:
                    yield PACKED_REFS, f"line {number}: {_reason(error)}"
                else:
                    previous = name
                    yield name.decode(), None

    def rewrite(self, changes: Mapping[RefName, Oid | None]) -> None:
        """Set or (None) remove refs, durably, in one replacement of the file.

        Nothing is written if there is nothing to set, and none of what is to be removed is there.
        """
        if all(new is None and self.find(name) is None for name, new in changes.items()):
            return
        handle = self._files.create_temp("")
        try:
            size = 0
            for piece in self._merged(changes):
                handle.write_at(size, piece)
                size += len(piece)
                if size > MAX_PACKED_BYTES:
                    raise LimitExceeded(self._files.path(PACKED_REFS), size, MAX_PACKED_BYTES)
            self._files.publish(handle, PACKED_REFS)
        except BaseException:
            handle.close()
            with contextlib.suppress(StorageFailure):  # the first error is the one to tell
                self._files.remove(handle.name)
            raise

    def _merged(self, changes: Mapping[RefName, Oid | None]) -> Iterator[bytes]:
        """The file as it is with changes made, in pieces."""
        keys = sorted((_key(name), name) for name in changes)
        names = [key for key, _ in keys]
        yield _HEADER
        at = 0
        opened = self._open()
        if opened is not None:
            with opened as handle:
                for lines in self._sound_blocks(handle):
                    end = bisect_right(names, lines[-1][_NAME_AT:], at)
                    left = lines if at == end else _changed(lines, keys[at:end], changes)
                    at = end
                    if left:
                        yield b"\n".join(left) + b"\n"
        rest = [f"{new} {name}\n".encode() for _, name in keys[at:] if (new := changes[name]) is not None]
        if rest:
            yield b"".join(rest)

    def _sound_blocks(self, handle: Handle) -> Iterator[list[bytes]]:
        """All lines in blocks. Raises `CorruptFile` at the first that is damaged or out of order."""
        previous = b""
        for offset, lines in self._blocks(handle, len(_HEADER)):
            names = [previous, *(line[_NAME_AT:] for line in lines)]
            if not _LINES.fullmatch(b"\n".join(lines)) or any(map(ge, names, names[1:])):
                at = offset
                for line in lines:  # which one it is
                    try:
                        previous = _parse(line, previous)[0]
                    except ValueError as error:
                        raise self._corrupt(handle, at, error) from None
                    at += len(line) + 1
            previous = names[-1]
            yield lines

    def identity(self) -> Identity | None:
        """Changes whenever the file does; None while there is none."""
        with self._guard:
            self._current()
            return self._identity

    def close(self) -> None:
        with self._guard:
            self._drop()

    def _current(self) -> Handle | None:
        """The cached handle, if it still is the file of that name. It stays open, so its inode isn't reused."""
        found = self._files.stat(PACKED_REFS)
        if found is None:
            self._drop()
        elif self._identity != (found.st_ino, found.st_size, found.st_mtime_ns):
            self._drop()
            self._handle = self._open()
            if self._handle is not None:
                status = self._handle.stat()
                self._identity = status.st_ino, status.st_size, status.st_mtime_ns
        return self._handle

    def _drop(self) -> None:
        if self._handle is not None:
            self._handle.close()
        self._handle = self._identity = None

    def _open(self) -> Handle | None:
        try:
            handle = self._files.open_read(PACKED_REFS)
        except FileNotFoundError:
            return None
        try:
            size = handle.size()
            if size > MAX_PACKED_BYTES:
                raise LimitExceeded(self._files.path(PACKED_REFS), size, MAX_PACKED_BYTES)
            if handle.read_at(0, len(_HEADER)) != _HEADER:
                raise CorruptFile(self._files.path(PACKED_REFS), "line 1: not the header of packed-refs")
        except BaseException:
            handle.close()
            raise
        return handle

    def _seek(self, handle: Handle, key: bytes) -> tuple[int, int]:
        """Two beginnings of lines (or the end), close together: the first name from `key` on is between."""
        start, end = len(_HEADER), handle.size()
        while end - start > _WINDOW_BYTES:
            middle = (start + end) // 2
            block = handle.read_at(middle, 2 * _MAX_LINE_BYTES)
            first = block.find(b"\n") + 1
            last = block.find(b"\n", first)
            if first == 0 or last < 0:
                raise self._corrupt(handle, middle, ValueError("the line is too long"))
            try:
                name, _ = _parse(block[first:last], b"")
            except ValueError as error:
                raise self._corrupt(handle, middle + first, error) from None
            if name < key:
                start = middle + last + 1
            elif name > key:
                end = middle + first
            else:
                return middle + first, middle + last + 1
        return start, end

    def _lines(self, handle: Handle, offset: int) -> Iterator[tuple[int, bytes]]:
        """(offset, line without its newline) from the beginning of a line on. A last line without one is cut."""
        for start, lines in self._blocks(handle, offset):
            at = start
            for line in lines:
                yield at, line
                at += len(line) + 1

    def _blocks(self, handle: Handle, offset: int) -> Iterator[tuple[int, list[bytes]]]:
        """(offset of the first, at least one line) from the beginning of a line on; see `_lines`."""
        end = handle.size()
        rest = b""
        position = offset
        while position < end:
            block = handle.read_at(position, min(_BLOCK_BYTES, end - position))
            if not block:
                break
            position += len(block)
            *lines, rest = (rest + block).split(b"\n")
            if lines:
                yield offset, lines
            offset = position - len(rest)
            if len(rest) > _MAX_LINE_BYTES:
                raise self._corrupt(handle, offset, ValueError("the line is too long"))
        if rest:
            raise self._corrupt(handle, offset, ValueError("the file ends in the middle of a line"))

    def _corrupt(self, handle: Handle, offset: int, error: ValueError) -> CorruptFile:
        number = 1 + sum(
            handle.read_at(at, min(_BLOCK_BYTES, offset - at)).count(b"\n")
            for at in range(0, offset, _BLOCK_BYTES)
        )
        return CorruptFile(self._files.path(PACKED_REFS), f"line {number}: {_reason(error)}")


def _changed(
    lines: Sequence[bytes], keys: Sequence[tuple[bytes, RefName]], changes: Mapping[RefName, Oid | None]
) -> list[bytes]:
    """Lines with the changes of some names made."""
    held = {line[_NAME_AT:]: line for line in lines}
    for key, name in keys:
        new = changes[name]
        if new is None:
            held.pop(key, None)
        else:
            held[key] = new.encode() + b" " + key
    return [held[key] for key in sorted(held)]


def _parse(line: bytes, previous: bytes) -> tuple[bytes, Oid]:
    """Name and value of a line that follows the name `previous`; `ValueError` says what is wrong with it."""
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError("not an id and a name")
    oid, name = match.groups()
    if name <= previous:
        raise ValueError("the name is out of order")
    name.decode()
    return name, Oid(oid.decode())


def _reason(error: ValueError) -> str:
    return "the name isn't UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


def _key(name: str) -> bytes:
    return name.encode("utf-8", "replace")  # a name found on a disk may hold any bytes: it isn't in here
