"""Reading what may be damaged: a pack without its seek table, single loose files, the journal."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Final

import zstandard

from objstore.frames import decompress
from objstore.journal import Journal
from objstore.kinds import Kind
from objstore.limits import MAX_FRAME_BYTES, MAX_OBJECT_BYTES, MAX_STORED_BYTES, MAX_WINDOW_BYTES
from objstore.loose import Form, loose_name
from objstore.pack import PackReader
from refs.errors import CorruptFile, CorruptObject, DagError
from refs.files import Files
from refs.ids import Oid

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_BLOCK_BYTES: Final = 1 << 20


def pack_frames(reader: PackReader) -> tuple[list[tuple[int, int]], str | None]:
    """(offset, size) of each frame of a pack, and what is wrong with its seek table, if anything.

    Without a table the frames are found by their first bytes and by where each ends.
    """
    try:
        return list(reader.frames()), None
    except CorruptFile as error:
        return list(_find_frames(reader)), error.reason


def _find_frames(reader: PackReader) -> Iterator[tuple[int, int]]:
    at = 0
    while (start := _find(reader, at)) is not None:
        size = _frame_size(reader, start)
        if size is not None:
            yield start, size
        at = start + (size or len(_MAGIC))


def _find(reader: PackReader, at: int) -> int | None:
    while block := reader.read_at(at, _BLOCK_BYTES):
        found = block.find(_MAGIC)
        if found >= 0:
            return at + found
        if len(block) < _BLOCK_BYTES:
            return None
        at += len(block) - len(_MAGIC) + 1
    return None


def _frame_size(reader: PackReader, start: int) -> int | None:
    """How many bytes a frame has, or None if it isn't a whole one within the limits."""
    unpack = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES).decompressobj()
    at, unpacked = start, 0
    try:
        while not unpack.eof:
            block = reader.read_at(at, 1 << 16)
            if not block:
                return None
            unpacked += len(unpack.decompress(block))
            at += len(block)
            if unpacked > MAX_FRAME_BYTES:
                return None
    except zstandard.ZstdError:
        return None
    return at - len(unpack.unused_data) - start


def read_form(files: Files, kind: Kind, oid: Oid, form: Form) -> bytes:
    """The stored bytes of one loose file, whatever other forms of the object there are.

    Raises `CorruptFile` for a file that isn't a frame, `CorruptObject` for other bytes than its name says.
    """
    name = loose_name(kind, oid, form)
    raw = decompress(files.read(name, MAX_STORED_BYTES), MAX_OBJECT_BYTES, name)
    if form is Form.PLAIN and sha256(raw).hexdigest() != oid:
        raise CorruptObject(kind, oid, "its bytes have another hash")
    return raw


def recorded(files: Files) -> set[tuple[Kind, Oid]]:
    """What stands in the journal: the files of it may be half written, until a checkpoint has synced them."""
    journal = Journal(files, bytes(16))
    try:
        return {(each.kind, each.oid) for record, _ in journal.records() for each in record.objects}
    except (DagError, FileNotFoundError):
        return set()  # the journal's own check tells
    finally:
        journal.close()
