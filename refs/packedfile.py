"""The two forms of the file `packed-refs`: plain lines, and the same lines in gzip members (`refs.members`).

Both begin with a header and go on with blocks of whole lines, sorted by name. In the plain form a block is what
was read at once, in the other it is a member. One name is found by bisecting the file with short reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from refs.errors import CorruptFile
from refs.files import Handle
from refs.ids import OID_DIGITS, Oid
from refs.members import END, MAGIC, find_member, first_bytes, member_size, places, read_member, unpack_member
from refs.names import MAX_REF_BYTES

HEADER: Final = b"# packed-refs sorted\n"
NAME_AT: Final = OID_DIGITS + 1

_MAX_LINE_BYTES: Final = NAME_AT + MAX_REF_BYTES + 1
_WINDOW_BYTES: Final = 4096  # what is left of a bisection is read at once; several times a line
_BLOCK_BYTES: Final = 1 << 18
_LOOK_BYTES: Final = 8192  # mostly there is the beginning of a member in so many, and its first line
_MAX_SEEN: Final = 4096
_LINE = re.compile(rb"([0-9a-f]{64}) ([^\s\x00]{1,%d})" % MAX_REF_BYTES)


class Block(NamedTuple):
    """Lines without their newlines; `member` is what holds them, if that is a member."""

    offset: int
    lines: list[bytes]
    member: bytes | None


class PackedFile(Protocol):
    """An open file of either form. `path` is for errors."""

    handle: Handle
    path: str

    def seek(self, key: bytes) -> int:
        """The offset of a block in which, or behind which, the first name from `key` on stands."""

    def parts(self, offset: int | None = None) -> Iterator[Block | CorruptFile]:
        """The blocks from an offset on (None: all); in the place of one that can't be read, what is wrong."""

    def find(self, key: bytes) -> bytes | None:
        """The line of a name. Raises `CorruptFile` if the way to it is damaged."""

    def corrupt(self, block: Block, number: int, error: ValueError) -> CorruptFile:
        """What to say about the line of this number in a block, counted from 0."""


def opened(handle: Handle, path: str) -> PackedFile:
    """The file as what its first bytes say that it is, or `CorruptFile`."""
    if handle.read_at(0, len(HEADER)) == HEADER:
        return PlainFile(handle, path)
    if handle.read_at(0, len(MAGIC)) == MAGIC:
        return MemberFile(handle, path)
    raise CorruptFile(path, "line 1: not the header of packed-refs")


def blocks(file: PackedFile, offset: int | None = None) -> Iterator[Block]:
    """The blocks from an offset on; `CorruptFile` at the first that can't be read."""
    for part in file.parts(offset):
        if isinstance(part, CorruptFile):
            raise part
        yield part


def parse(line: bytes, previous: bytes) -> tuple[bytes, Oid]:
    """Name and value of a line that follows the name `previous`; `ValueError` says what is wrong with it."""
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError("not an id and a name")
    oid, name = match.groups()
    if name <= previous:
        raise ValueError("the name is out of order")
    name.decode()
    return name, Oid(oid.decode())


class PlainFile:
    """Lines as they are."""

    def __init__(self, handle: Handle, path: str) -> None:
        self.handle, self.path = handle, path

    def find(self, key: bytes) -> bytes | None:
        start, end = self._bisect(key)
        return _line_of(self.handle.read_at(start, end - start), key)

    def seek(self, key: bytes) -> int:
        return self._bisect(key)[0]

    def _bisect(self, key: bytes) -> tuple[int, int]:
        """Two beginnings of lines (or the end), close together: the first name from `key` on is between."""
        start, end = len(HEADER), self.handle.size()
        while end - start > _WINDOW_BYTES:
            middle = (start + end) // 2
            block = self.handle.read_at(middle, 2 * _MAX_LINE_BYTES)
            first = block.find(b"\n") + 1
            last = block.find(b"\n", first)
            if first == 0 or last < 0:
                raise self._corrupt_at(middle, ValueError("the line is too long"))
            try:
                name, _ = parse(block[first:last], b"")
            except ValueError as error:
                raise self._corrupt_at(middle + first, error) from None
            if name < key:
                start = middle + last + 1
            elif name > key:
                end = middle + first
            else:
                return middle + first, middle + last + 1
        return start, end

    def parts(self, offset: int | None = None) -> Iterator[Block | CorruptFile]:
        end = self.handle.size()
        rest = b""
        offset = len(HEADER) if offset is None else offset
        position = offset
        while position < end:
            block = self.handle.read_at(position, min(_BLOCK_BYTES, end - position))
            if not block:
                break
            position += len(block)
            *lines, rest = (rest + block).split(b"\n")
            if lines:
                yield Block(offset, lines, None)
            offset = position - len(rest)
            if len(rest) > _MAX_LINE_BYTES:
                yield self._corrupt_at(offset, ValueError("the line is too long"))
                return
        if rest:
            yield self._corrupt_at(offset, ValueError("the file ends in the middle of a line"))

    def corrupt(self, block: Block, number: int, error: ValueError) -> CorruptFile:
        return self._corrupt_at(block.offset + sum(len(line) + 1 for line in block.lines[:number]), error)

    def _corrupt_at(self, offset: int, error: ValueError) -> CorruptFile:
        number = 1 + sum(
            self.handle.read_at(at, min(_BLOCK_BYTES, offset - at)).count(b"\n")
            for at in range(0, offset, _BLOCK_BYTES)
        )
        return CorruptFile(self.path, f"line {number}: {reason(error)}")


class _Seen(NamedTuple):
    """A member that a bisection met: where it is, and its first name, which isn't proved."""

    offset: int
    end: int
    first: bytes


class MemberFile:
    """The header in a member of its own, then lines in members, then an empty one."""

    def __init__(self, handle: Handle, path: str) -> None:
        self.handle, self.path = handle, path
        self._end = handle.size() - len(END)
        if self._end < 0 or handle.read_at(self._end, len(END)) != END:
            raise CorruptFile(path, "it was cut short: the last member isn't there")
        self._start = len(self._member(0, HEADER)[0])
        self._seen: dict[int, _Seen | None] = {}  # by where it was looked for: the same few places, mostly
        self._held = -1, b""  # where the member was that was unpacked last, and its lines: names come in order

    def find(self, key: bytes) -> bytes | None:
        found = self._locate(key)
        if found is None:
            return None
        place, lines = found
        line = _line_of(lines, key)
        # With the next member proved too, and the file sorted, it can't be anywhere else either.
        if line is None and place.end < self._end and _first_name(self._member(place.end)[1]) <= key:
            raise self._corrupt_at(place.end, ValueError("the name is out of order"))
        return line

    def seek(self, key: bytes) -> int:
        found = self._locate(key)
        return self._start if found is None else found[0].offset

    def _locate(self, key: bytes) -> tuple[_Seen, bytes] | None:
        """The last member whose first name isn't behind `key`, or the very first, and its lines; None: no members.

        The bisection believes names that no checksum vouches for. So what it finds is proved.
        """
        place = self._bisect(key)
        if place is None:
            return None
        if self._held[0] != place.offset:
            self._held = place.offset, self._member(place.offset)[1]
        lines = self._held[1]
        if place.offset > self._start and _first_name(lines) > key:
            raise self._corrupt_at(place.offset, ValueError("the name is out of order"))
        return place, lines

    def _bisect(self, key: bytes) -> _Seen | None:
        end = self._end
        if self._start == end:
            return None
        low = self._look_at(self._start)
        while low.end < end:
            seen = self._look((low.end + end) // 2)
            if seen is None or seen.offset >= end:
                seen = self._look_at(low.end)
            if seen.first <= key:
                low = seen
            else:
                end = seen.offset
        return low

    def _look_at(self, offset: int) -> _Seen:
        seen = self._look(offset)
        if seen is None or seen.offset != offset:
            raise self._corrupt_at(offset, ValueError("not a gzip member"))
        return seen

    def _look(self, offset: int) -> _Seen | None:
        """The first member that begins at `offset` or behind it."""
        if offset not in self._seen:
            if len(self._seen) >= _MAX_SEEN:
                self._seen.clear()
            self._seen[offset] = self._look_anew(offset)
        return self._seen[offset]

    def _look_anew(self, offset: int) -> _Seen | None:
        data = self.handle.read_at(offset, _LOOK_BYTES)
        at = data.find(MAGIC)
        begin = offset + at if at >= 0 else find_member(self.handle, offset, self._end)
        if begin >= self._end:
            return None
        if not 0 <= at <= len(data) // 2:
            at, data = 0, self.handle.read_at(begin, _LOOK_BYTES)
        size = member_size(data[at:])
        if not 0 < size <= self._end - begin:  # else a bisection would go round in circles
            raise self._corrupt_at(begin, ValueError("not a gzip member"))
        try:
            line = first_bytes(data[at:], _MAX_LINE_BYTES).partition(b"\n")[0]
            return _Seen(begin, begin + size, parse(line, b"")[0])
        except ValueError as error:
            raise self._corrupt_at(begin, error) from None

    def _member(self, offset: int, wanted: bytes | None = None) -> tuple[bytes, bytes]:
        """(a member, the lines that it holds); `CorruptFile` if it is damaged, or holds anything but `wanted`."""
        try:
            member = read_member(self.handle, offset, member_size(self.handle.read_at(offset, len(MAGIC) + 2)))
            raw = unpack_member(member)
        except ValueError as error:
            raise self._corrupt_at(offset, error) from None
        if not raw.endswith(b"\n") or wanted not in (None, raw):
            raise self._corrupt_at(offset, ValueError("it doesn't hold what belongs there"))
        return member, raw

    def parts(self, offset: int | None = None) -> Iterator[Block | CorruptFile]:
        for at, _ in places(self.handle, self._start if offset is None else offset, self._end):
            try:
                member, raw = self._member(at)
            except CorruptFile as error:
                yield error
            else:
                yield Block(at, raw[:-1].split(b"\n"), member)

    def corrupt(self, block: Block, number: int, error: ValueError) -> CorruptFile:
        return self._corrupt_at(block.offset, ValueError(f"line {number + 1} of it: {reason(error)}"))

    def _corrupt_at(self, offset: int, error: ValueError) -> CorruptFile:
        return CorruptFile(self.path, f"the member at byte {offset}: {reason(error)}")


def salvage(handle: Handle) -> Iterator[bytes]:
    """Whatever may be lines in a damaged file of either form."""
    size = handle.size()
    if find_member(handle, 0, size) == size:
        yield from handle.read_at(0, size).split(b"\n")[:-1]
        return
    for offset, length in places(handle, 0, size):
        try:
            yield from unpack_member(read_member(handle, offset, length)).split(b"\n")
        except ValueError:
            continue


def reason(error: ValueError) -> str:
    return "the name isn't UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


def _line_of(lines: bytes, key: bytes) -> bytes | None:
    at = lines.find(b" " + key + b"\n")
    return None if at < 0 else lines[max(0, at - NAME_AT) : at + 1 + len(key)].removeprefix(b"\n")


def _first_name(lines: bytes) -> bytes:
    return lines[NAME_AT : lines.find(b"\n")]
