"""zstd in and out, under the limits.

One object or one run of lines is one frame that declares its size and carries a checksum, and is read by
any zstd. Contexts are kept for each thread (a new one for each call costs twice the time).
"""

from __future__ import annotations

import io
import threading
from hashlib import sha256
from typing import Any, Final, Protocol

import zstandard

from objstore.limits import CHUNK_BYTES, MAX_PAYLOAD_BYTES, MAX_WINDOW_BYTES
from refs.errors import CorruptFile, LimitExceeded
from refs.files import Bytes, Handle

FAST_LEVEL: Final = 3
SMALL_LEVEL: Final = 10
_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_FEW_BYTES: Final = 4096
_UNKNOWN_SIZE: Final = (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR)

_kept = threading.local()


def compress(data: Bytes, level: int = FAST_LEVEL) -> bytes:
    """One frame that declares its content size and carries a checksum."""
    return _compressor(level).compress(data)


def enframe(data: bytes) -> bytes:
    """One frame around bytes: as they are where they are few, since packing them costs more than it gives.

    For what is packed well later. Such a frame has no checksum of its own (RFC 8878, section 3.1.1).
    """
    size = len(data)
    if size < 256:
        return _MAGIC + bytes((0x20, size)) + (size << 3 | 1).to_bytes(3, "little") + data
    if size < _FEW_BYTES:
        return b"%b\x60%b%b%b" % (
            _MAGIC,
            (size - 256).to_bytes(2, "little"),
            (size << 3 | 1).to_bytes(3, "little"),
            data,
        )
    return compress(data)


def decompress(data: Bytes, bound: int, where: str) -> bytes:
    """The content of exactly one frame, at most `bound` bytes of it, or `CorruptFile` naming `where`."""
    try:
        head = zstandard.get_frame_parameters(data)
        # max_output_size is ignored where the header declares a size (python-zstandard), so look first.
        if head.content_size in _UNKNOWN_SIZE or head.content_size > bound:
            raise CorruptFile(where, f"a frame of unknown size or of more than {bound} bytes")
        if head.dict_id or head.window_size > MAX_WINDOW_BYTES:
            raise CorruptFile(where, "a frame that needs a dictionary or too much memory")
        raw = _decompressor().decompress(data, allow_extra_data=False, read_across_frames=False)
    except (zstandard.ZstdError, ValueError) as error:
        raise CorruptFile(where, f"not a whole zstd frame ({error})") from error
    if len(raw) != head.content_size:
        raise CorruptFile(where, "a frame shorter than it says")
    return raw


class Readable(Protocol):
    """Something to read raw bytes from."""

    def read(self, size: int, /) -> Bytes: ...


def compress_stream(source: Readable, sink: Handle, bound: int = MAX_PAYLOAD_BYTES) -> tuple[str, int, int]:
    """Copy `source` into `sink` as one frame; (sha256 of the content, its bytes, the frame's bytes).

    The content size isn't known beforehand, so it is not declared: readers bound what they unpack. Raises
    `LimitExceeded` beyond `bound` bytes.
    """
    writer = zstandard.ZstdCompressor(level=FAST_LEVEL, write_checksum=True).compressobj()
    digest, size, at = sha256(), 0, 0
    while chunk := source.read(CHUNK_BYTES):
        size += len(chunk)
        if size > bound:
            raise LimitExceeded("an attachment", size, bound)
        digest.update(chunk)
        packed = writer.compress(chunk)
        sink.write_at(at, packed)
        at += len(packed)
    packed = writer.flush()
    sink.write_at(at, packed)
    return digest.hexdigest(), size, at + len(packed)


class PayloadReader(io.RawIOBase):
    """A payload's bytes as a stream: bounded, and checked against its id when the end is reached.

    Raises `CorruptFile` from `read` where the file isn't what its name promises.
    """

    def __init__(self, handle: Handle, oid: str, bound: int = MAX_PAYLOAD_BYTES) -> None:
        self._handle, self._oid, self._left = handle, oid, bound
        self._digest = sha256()
        self._at = 0
        self._packed = memoryview(b"")
        self._unpack: Any = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES).decompressobj()
        self._ready = memoryview(b"")
        self._done = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and not self._done:
            self._fill()
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def _fill(self) -> None:
        # 1 KiB of frame unpacks to at most 32 MiB (128 KiB for 4 bytes), so a bomb is noticed before it fills the
        # memory.
        packed, self._packed = self._packed[:1024], self._packed[1024:]
        if not packed:
            block = memoryview(self._handle.read_at(self._at, 64 * 1024))
            self._at += len(block)
            packed, self._packed = block[:1024], block[1024:]
        try:
            raw = self._unpack.decompress(packed) if packed else b""
        except zstandard.ZstdError as error:
            raise CorruptFile(self._handle.name, f"not a whole zstd frame ({error})") from error
        self._left -= len(raw)
        if self._left < 0:
            raise CorruptFile(self._handle.name, "more bytes than an attachment may have")
        self._digest.update(raw)
        self._ready = memoryview(raw)
        if self._unpack.eof or not packed:
            self._done = True
            more = self._unpack.unused_data or self._packed or self._handle.read_at(self._at, 1)
            if not self._unpack.eof or more or self._digest.hexdigest() != self._oid:
                raise CorruptFile(self._handle.name, "its content is not what its name says")

    def close(self) -> None:
        self._handle.close()
        super().close()


def _compressor(level: int) -> zstandard.ZstdCompressor:
    name = f"compressor{level}"
    made: zstandard.ZstdCompressor | None = getattr(_kept, name, None)
    if made is None:
        made = zstandard.ZstdCompressor(level=level, write_checksum=True, write_content_size=True)
        setattr(_kept, name, made)
    return made


def _decompressor() -> zstandard.ZstdDecompressor:
    made: zstandard.ZstdDecompressor | None = getattr(_kept, "decompressor", None)
    if made is None:
        made = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
        _kept.decompressor = made
    return made
