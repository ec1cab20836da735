"""Lines in gzip members that are found without unpacking them: the layout that is called BGZF.

Each member holds whole lines, at most `MAX_RAW_BYTES` of them, and says in its header how long it is, so whoever
reads hops from one to the next and unpacks only what is wanted. The last one is empty: without it the file was cut
short. `zcat FILE` prints the lines.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from refs.files import Handle

MAX_RAW_BYTES: Final = 1 << 16
"""Of what a member holds."""
MAX_MEMBER_BYTES: Final = 1 << 16
"""Of a member itself: its header has 16 bits for that."""

# gzip, deflate, with an extra field; no time, no hint, no system; the field of 6 bytes `BC`, 2 bytes long.
MAGIC: Final = b"\x1f\x8b\x08\x04" + bytes(5) + b"\xff\x06\x00BC\x02\x00"
HEAD_BYTES: Final = len(MAGIC) + 2
END: Final = MAGIC + b"\x1b\x00\x03\x00" + bytes(8)
"""The empty member behind all others."""
_TAIL: Final = struct.Struct("<II")
_LEAST_BYTES: Final = HEAD_BYTES + 2 + _TAIL.size
_BLOCK_BYTES: Final = 1 << 18


def pack_member(raw: bytes) -> bytes:
    """A member that holds `raw`. `ValueError` if it is too much; up to 65280 bytes always fit."""
    # Filtered: the short matches that ids are full of by chance cost more than they save, an eighth of the whole.
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zlib.Z_FILTERED)
    body = deflate.compress(raw) + deflate.flush()
    size = HEAD_BYTES + len(body) + _TAIL.size
    if len(raw) > MAX_RAW_BYTES or size > MAX_MEMBER_BYTES:
        raise ValueError(f"{len(raw)} bytes are too many for a member")
    return b"".join((MAGIC, struct.pack("<H", size - 1), body, _TAIL.pack(zlib.crc32(raw), len(raw))))


def unpack_member(data: bytes) -> bytes:
    """What a member holds, proved by its checksum; `ValueError` if `data` isn't exactly one."""
    if not data or member_size(data) != len(data):
        raise ValueError("not a gzip member of the size that it says")
    inflate = zlib.decompressobj(-15)
    try:
        raw = inflate.decompress(data[HEAD_BYTES : -_TAIL.size], MAX_RAW_BYTES + 1)
    except zlib.error as error:
        raise ValueError(f"it can't be unpacked ({error})") from error
    if not inflate.eof or inflate.unused_data or (zlib.crc32(raw), len(raw)) != _TAIL.unpack(data[-_TAIL.size :]):
        raise ValueError("what it holds doesn't fit its checksum")
    if len(raw) > MAX_RAW_BYTES:
        raise ValueError("it holds too much")
    return raw


def first_bytes(data: bytes, size: int) -> bytes:
    """Up to `size` bytes of the beginning of what a member holds, not proved; `data` may be cut."""
    try:
        return zlib.decompressobj(-15).decompress(data[HEAD_BYTES:], size)
    except zlib.error as error:
        raise ValueError(f"it can't be unpacked ({error})") from error


def member_size(head: bytes) -> int:
    """How long the member is that begins so; 0 if none does."""
    if not head.startswith(MAGIC) or len(head) < HEAD_BYTES:
        return 0
    size = int.from_bytes(head[len(MAGIC) : HEAD_BYTES], "little") + 1
    return size if size >= _LEAST_BYTES else 0


def raw_size(member: bytes) -> int:
    """How much a member says that it holds."""
    return int(_TAIL.unpack(member[-_TAIL.size :])[1])


def places(handle: Handle, start: int, end: int) -> Iterator[tuple[int, int]]:
    """(offset, size) of each member from `start` to `end`; of a stretch that is none, where it is and how long."""
    while start < end:
        size = member_size(handle.read_at(start, HEAD_BYTES))
        if not 0 < size <= end - start:
            size = find_member(handle, start + 1, end) - start
        yield start, size
        start += size


def find_member(handle: Handle, start: int, end: int) -> int:
    """Where the first member begins from `start` on; `end` if none begins before it."""
    while start < end:
        block = handle.read_at(start, min(_BLOCK_BYTES, end - start + len(MAGIC)))
        at = block.find(MAGIC)
        if at >= 0:
            return min(start + at, end)
        start += max(1, len(block) - len(MAGIC) + 1)
    return end


def read_member(handle: Handle, offset: int, size: int) -> bytes:
    """The member at a place, not proved yet; `ValueError` if there is none of this size."""
    data = handle.read_at(offset, size) if size <= MAX_MEMBER_BYTES else b""
    if not data or member_size(data) != size:
        raise ValueError("not a gzip member")
    return data


class MemberWriter:
    """Writes lines to a file as members of about `limit` bytes of lines, and takes over members as they are.

    A quarter more than `limit`, and the longest line, must fit into `MAX_RAW_BYTES`. So few lines that they have
    at most `small` bytes, up to twice the limit, aren't written: `finish` gives them back. `head` gets a member of
    its own, before the first.
    """

    def __init__(self, sink: Handle, limit: int, small: int, head: bytes = b"") -> None:
        self._sink, self._limit, self._small, self._head = sink, limit, small, head
        self._lines: list[bytes] = []
        self._waiting = 0
        self.size = 0
        """Bytes written so far."""

    def add(self, lines: Iterable[bytes]) -> None:
        """Take lines, each with its newline."""
        for line in lines:
            self._lines.append(line)
            self._waiting += len(line)
            if self._waiting >= 2 * self._limit:
                self._write_lines(self._limit)

    def copy(self, member: bytes) -> None:
        """Take a whole member. Only one that is small, or stands behind few lines, is packed anew with them.

        Raises `ValueError` if it must be and can't be unpacked.
        """
        full = raw_size(member) >= self._limit // 2
        little = self.size == 0 and self._waiting + raw_size(member) <= self._small
        if little or not full or 0 < self._waiting < self._limit // 2:
            self.add(split_lines(unpack_member(member)))
            if full and not little:
                # In two halves: what is left would go on to the next member, and all would be packed anew.
                self._flush()
        else:
            self._flush()
            self._write(member)

    def finish(self) -> bytes | None:
        """Write what is left; or, if at most `small` bytes of lines came in all, return them instead."""
        if self.size == 0 and self._waiting <= self._small:
            return b"".join(self._lines)
        self._flush()
        self._write(END)
        return None

    def _flush(self) -> None:
        while self._lines:
            # Equal parts, of up to a quarter more than the limit: not a full one and a tiny one.
            parts = -(-self._waiting * 4 // (self._limit * 5))
            self._write_lines(-(-self._waiting // parts))

    def _write_lines(self, target: int) -> None:
        size = count = 0
        for count, line in enumerate(self._lines, start=1):  # noqa: B007
            size += len(line)
            if size >= target:
                break
        raw = b"".join(self._lines[:count])
        del self._lines[:count]
        self._waiting -= size
        self._write(pack_member(raw))

    def _write(self, member: bytes) -> None:
        if self.size == 0 and self._head:
            member = pack_member(self._head) + member
        self._sink.write_at(self.size, member)
        self.size += len(member)


def split_lines(raw: bytes) -> list[bytes]:
    """Lines with their newlines; what follows the last one is no line."""
    return [line + b"\n" for line in raw.split(b"\n")[:-1]]
