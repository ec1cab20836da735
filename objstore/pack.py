"""Many objects a file: JSON Lines in seekable zstd (docs/format.md).

Frames hold about 256 KiB of lines of whole chains, so that neighbours compress against each other, and end
with a seek table. Hashes don't compress, so a node names its parent and message by "so many lines back in
this frame" wherever they stand in it; a note and a call name their nodes the same way.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from hashlib import sha256
from typing import Final, NamedTuple

from objstore.frames import decompress
from objstore.kinds import Kind
from objstore.limits import MAX_FRAME_BYTES, MAX_FRAMES, MAX_PACK_BYTES
from objstore.packframe import Frame
from refs.errors import CorruptFile, DagError
from refs.files import Files
from refs.ids import Oid, is_oid

PACK_FOLDER: Final = "objects/pack"
SKIPPABLE: Final = 0x184D2A5E
SEEKABLE: Final = 0x8F92EAB1
FOOTER: Final = struct.Struct("<IBI")
ENTRY: Final = struct.Struct("<II")
SKIP_HEAD: Final = struct.Struct("<II")


def pack_name(pack: str) -> str:
    """The file of the pack whose id (the sha256 of its bytes) is `pack`."""
    return f"{PACK_FOLDER}/pack-{pack}.pack"


def list_packs(files: Files) -> list[str]:
    """The ids of all packs in a store's folder."""
    found = []
    for name, is_dir in files.entries(PACK_FOLDER):
        oid = name.removeprefix("pack-").removesuffix(".pack")
        if not is_dir and is_oid(oid) and name == f"pack-{oid}.pack":
            found.append(oid)
    return found


class Placed(NamedTuple):
    """Where the writer put an object: the frame's number in its pack, and the line in the frame."""

    kind: Kind
    oid: Oid
    frame: int
    line: int


class Written:
    """A finished pack: its id, (offset, compressed size) of each frame, its size.

    `temp` is the file's name as long as it is not published.
    """

    __slots__ = ("frames", "pack", "placed", "size", "temp")

    def __init__(
        self, pack: str, frames: list[tuple[int, int]], placed: list[Placed], size: int, temp: str | None = None
    ) -> None:
        self.pack, self.frames, self.placed, self.size, self.temp = pack, frames, placed, size, temp


def publish(files: Files, written: Written) -> None:
    """Give a sealed pack its name, durably, unless it has it already."""
    if written.temp is None:
        return
    try:
        if files.stat(pack_name(written.pack)) is None:
            files.rename(written.temp, pack_name(written.pack))
            files.sync_dir(PACK_FOLDER)
        else:
            files.remove(written.temp)
    except BaseException:
        with contextlib.suppress(DagError):  # the first error is the one to tell
            files.remove(written.temp)
        raise
    written.temp = None


class PackReader:
    """Reads frames of one pack. Raises `CorruptFile` for what no `PackWriter` writes."""

    def __init__(self, files: Files, pack: str, name: str | None = None) -> None:
        """`name` is the file of a pack that isn't published yet."""
        self.pack = pack
        self._handle = files.open_read(name or pack_name(pack))

    def frame(self, offset: int, size: int) -> Frame:
        """The frame that stands in `size` bytes at `offset`."""
        if not 0 < size <= MAX_FRAME_BYTES or offset < 0:
            raise CorruptFile(self._handle.name, "a frame of impossible size")
        packed = self._handle.read_at(offset, size)
        return Frame(decompress(packed, MAX_FRAME_BYTES, f"{self._handle.name} at {offset}"), self._handle.name)

    def frames(self) -> Iterator[tuple[int, int]]:
        """(offset, size) of each frame, from the seek table, which is checked against the file's size."""
        size = self._handle.size()
        name = self._handle.name
        if size > MAX_PACK_BYTES:
            raise CorruptFile(name, "larger than any pack")
        count, flags, magic = FOOTER.unpack(self._tail(size, FOOTER.size))
        head = SKIP_HEAD.size + count * ENTRY.size + FOOTER.size
        if magic != SEEKABLE or flags or count > MAX_FRAMES or head > size:
            raise CorruptFile(name, "no seek table at its end")
        table = self._tail(size, head)
        if SKIP_HEAD.unpack_from(table) != (SKIPPABLE, head - SKIP_HEAD.size):
            raise CorruptFile(name, "a damaged seek table")
        offset = 0
        for packed, raw in ENTRY.iter_unpack(table[SKIP_HEAD.size : -FOOTER.size]):
            if raw > MAX_FRAME_BYTES or offset + packed > size - head:
                raise CorruptFile(name, "a seek table that doesn't fit the file")
            yield offset, packed
            offset += packed
        if offset != size - head:
            raise CorruptFile(name, "a seek table that doesn't fit the file")

    def read_at(self, offset: int, size: int) -> bytes:
        """Bytes of the file as they stand there."""
        return self._handle.read_at(offset, size)

    def size(self) -> int:
        """Bytes of the file."""
        return self._handle.size()

    def verify_name(self) -> bool:
        """Whether the file's bytes still have the hash that is its name."""
        digest, at = sha256(), 0
        while chunk := self._handle.read_at(at, 1 << 20):
            digest.update(chunk)
            at += len(chunk)
        return digest.hexdigest() == self.pack

    def close(self) -> None:
        self._handle.close()

    def _tail(self, size: int, wanted: int) -> bytes:
        if size < wanted:
            raise CorruptFile(self._handle.name, "cut short")
        return self._handle.read_at(size - wanted, wanted)
