"""Columns of numbers that may be longer than memory: a few stand in memory, more of them in a file.

The file has no name, so that it is gone with the process, however that ends. It is mapped, and `give_back`
takes its pages out of the process again: what a column holds in memory does not follow its length.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
import weakref
from array import array
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Final

from objstore.limits import KIB, MIB
from refs.errors import StorageFailure
from refs.files import TEMP_PREFIX

SPILL_BYTES: Final = 256 * KIB
"""A column up to this size stands in memory."""

_FIRST_ROOM: Final = 16
_MOST_GROWTH: Final = 16 * MIB
_ZEROS: Final = bytes(16 * KIB)  # what is written at once, Linux also maps at once
_STEP: Final = 4096  # rows between two times that pages are given back


class Scratch:
    """Where columns get their files: a folder, or (None) the system's for temporary files.

    A folder in which nothing can be written counts as none. For one thread at a time.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self._mapped: weakref.WeakSet[Column] = weakref.WeakSet()

    def give_back(self) -> None:
        """Let go of the pages of all columns. They are read again, mostly from the system's cache, when needed."""
        for column in self._mapped:
            column.give_back()

    def each(self, count: int) -> Iterator[int]:
        """The numbers below `count`, for a walk along columns."""
        for start in range(0, count, _STEP):
            self.give_back()
            yield from range(start, min(start + _STEP, count))

    def open(self, column: Column) -> int:
        """The descriptor of a new file."""
        try:
            fd = _nameless(self._folder)
        except OSError as error:
            if self._folder is None:
                raise StorageFailure(tempfile.gettempdir(), error) from error
            self._folder = None
            return self.open(column)
        self._mapped.add(column)
        return fd


def _nameless(folder: str | None) -> int:
    """A new file that can be mapped, which not every file system lets its files be."""
    fd, path = tempfile.mkstemp(prefix=TEMP_PREFIX, dir=folder)
    try:
        os.unlink(path)
        os.pwrite(fd, b"\0", 0)
        mmap.mmap(fd, 1).close()
    except BaseException:
        os.close(fd)
        raise
    return fd


_SCRATCH: ContextVar[Scratch] = ContextVar("scratch")


def scratch() -> Scratch:
    """What columns that are made here and now use. Each thread has one of its own."""
    found = _SCRATCH.get(None)
    if found is None:
        found = Scratch()
        _SCRATCH.set(found)
    return found


@contextlib.contextmanager
def using(given: Scratch) -> Iterator[None]:
    """Have the files of all columns that are made meanwhile where `given` has them."""
    token = _SCRATCH.set(given)
    try:
        yield
    finally:
        _SCRATCH.reset(token)


class Column:
    """Numbers of one type of `array`, by place. New places are zero.

    `data` is what holds them, for loops that are hot: it is another object after each growth. Raises
    `StorageFailure` where the disk has no room.
    """

    __slots__ = ("__weakref__", "_code", "_count", "_fd", "_map", "_room", "_scratch", "_width", "data")

    def __init__(self, code: str, count: int = 0) -> None:
        self._code, self._count, self._room = code, 0, _FIRST_ROOM
        self.data: Any = array(code, bytes(array(code).itemsize * _FIRST_ROOM))
        self._width: int = self.data.itemsize
        self._fd = -1
        self._map: mmap.mmap | None = None
        self._scratch = scratch()
        self.extend_to(count)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> int:
        found: int = self.data[place]
        return found

    def __setitem__(self, place: int, value: int) -> None:
        self.data[place] = value

    def __iter__(self) -> Iterator[int]:
        for place in self._scratch.each(self._count):
            yield self.data[place]

    def backwards(self) -> Iterator[int]:
        """The last number first."""
        last = self._count - 1
        for place in self._scratch.each(self._count):
            yield self.data[last - place]

    def append(self, value: int) -> None:
        count = self._count
        if count == self._room:
            self._grow(count + 1)
        self.data[count] = value
        self._count = count + 1

    def extend_to(self, count: int) -> None:
        """See that there are so many places."""
        if count > self._room:
            self._grow(count)
        self._count = max(self._count, count)

    def add_bytes(self, raw: bytes) -> None:
        """Take bytes, each as a number: only of type `B`."""
        start = self._count
        self.extend_to(start + len(raw))
        self.put_bytes(start, raw)

    def put_bytes(self, start: int, raw: bytes) -> None:
        """Have other bytes from a place on: only of type `B`."""
        self.data[start : start + len(raw)] = raw if self._map is not None else array("B", raw)

    def bytes(self, start: int, end: int) -> bytes:
        """Some of the numbers as bytes: only of type `B`."""
        return bytes(self.data[start:end])

    def give_back(self) -> None:
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)  # the file's own pages stay: the mapping is shared

    def _grow(self, count: int) -> None:
        room = max(count, self._room + min(self._room, _MOST_GROWTH // self._width))
        if room * self._width <= SPILL_BYTES:
            self.data.frombytes(bytes((room - self._room) * self._width))
        else:
            self._map_anew(room)
        self._room = room

    def _map_anew(self, room: int) -> None:
        start = self._room * self._width
        held = None
        if self._fd < 0:
            held, start = self.data, 0
            self._fd = self._scratch.open(self)
            weakref.finalize(self, os.close, self._fd)
        _write_zeros(self._fd, start, room * self._width)
        if self._map is not None:
            self.data.release()
            self._map.close()
        self._map = mmap.mmap(self._fd, room * self._width)
        self.data = memoryview(self._map).cast(self._code)  # type: ignore[call-overload]
        if held is not None:
            self.data[: len(held)] = held


def _write_zeros(fd: int, start: int, end: int) -> None:
    """Take room on the disk: a mapped page for which there is none would end the process."""
    try:
        while start < end:
            start += os.pwrite(fd, memoryview(_ZEROS)[: end - start], start)
    except OSError as error:
        raise StorageFailure("a temporary file", error) from error
