"""Files whose failures are all told as `DagError`: in memory, and on the disk."""

from __future__ import annotations

import io
import os
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol, cast

from objstore.limits import CHUNK_BYTES, MIB
from objstore.transcripts.source import SourceFile
from refs.errors import CorruptFile, DagError, StorageFailure

_COPY_IN_MEMORY_BYTES: Final = 32 * MIB
FAILURES: Final = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    ValueError,
    NotImplementedError,
    RuntimeError,
    struct.error,
)
"""What opening and reading raise where the file, the disk or the archive is damaged."""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes | None: ...
    def close(self) -> None: ...
    def seekable(self) -> bool: ...
    def seek(self, offset: int, whence: int = 0, /) -> int: ...
    def tell(self) -> int: ...


class Guarded(io.RawIOBase):
    """Reads what it wraps; `StorageFailure` and `CorruptFile` are all that it raises."""

    def __init__(self, inner: _Readable, name: str) -> None:
        self._inner, self._name = inner, name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data = self._inner.read(len(buffer)) or b""
        except FAILURES as error:
            raise _told(error, self._name) from error
        buffer[: len(data)] = data
        return len(data)

    def seekable(self) -> bool:
        return self._inner.seekable()

    def seek(self, offset: int, whence: int = 0) -> int:
        try:
            return self._inner.seek(offset, whence)
        except FAILURES as error:
            raise _told(error, self._name) from error

    def tell(self) -> int:
        return self._inner.tell()

    def close(self) -> None:
        self._inner.close()
        super().close()


def _told(error: Exception, name: str) -> DagError:
    if isinstance(error, OSError):
        return StorageFailure(name, error)
    return CorruptFile(name, str(error) or type(error).__name__)


@dataclass(frozen=True, slots=True)
class BytesFile:
    """A file that is in memory."""

    name: str
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def open(self) -> BinaryIO:
        return io.BytesIO(self.data)


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A regular file on the disk. `path` is where it is, for what needs one (a database)."""

    name: str
    size: int
    path: str

    def open(self) -> BinaryIO:
        try:
            # O_NONBLOCK: opening a pipe that took the file's place must not wait for a writer.
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise StorageFailure(self.path, error) from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise CorruptFile(self.path, "not a regular file")
        return io.BufferedReader(Guarded(io.FileIO(fd), self.path), buffer_size=1 << 18)


def local_path(file: SourceFile) -> str | None:
    """The file's path on the disk, or None where it has none of its own (in an archive, in memory)."""
    return file.path if isinstance(file, LocalFile) else None


def open_to_seek(file: SourceFile) -> BinaryIO:
    """The file as a stream in which going back costs nothing: a member of an archive is copied first."""
    stream = file.open()
    if isinstance(file, BytesFile | LocalFile):
        return stream
    copy = tempfile.SpooledTemporaryFile(max_size=_COPY_IN_MEMORY_BYTES)  # noqa: SIM115 - it is what is returned
    with stream:
        shutil.copyfileobj(stream, copy, CHUNK_BYTES)
    copy.seek(0)
    return cast(BinaryIO, copy)
