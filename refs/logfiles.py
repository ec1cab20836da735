"""The files of a reflog: new lines in `reflog`, older ones in an archive of gzip members that it names.

    # older moves: zcat reflog-0123456789abcdef0123456789abcdef.gz
    2026-01-02T03:04:05.678Z <old> <new> refs/conversations/trip commit

The digits are the beginning of the sha256 of the archive's bytes. An archive never changes: another one is
written, `reflog` is replaced by one that names it, and then the old one goes. So a reader who took no lock has
both files open, or looks again; and a crash leaves at most an archive that nothing names.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from refs.files import Files, Handle
from refs.logline import MAX_LINE_BYTES
from refs.members import places, read_member, unpack_member

REFLOG: Final = "reflog"
PLAIN: Final = -1
"""Instead of a member's number: the lines of `reflog` itself."""
MAX_MEMBERS: Final = 1 << 20
"""Hundreds of millions of moves."""

_HEADER: Final = rb"# older moves: zcat (reflog-[0-9a-f]{32}\.gz)\n"
_ARCHIVE: Final = r"reflog-[0-9a-f]{32}\.gz"
_HEADER_BYTES: Final = len("# older moves: zcat reflog-.gz\n") + 32
_BLOCK_BYTES: Final = 1 << 16


class LogFiles:
    """The files as they are at this moment, open for reading. A context manager."""

    def __init__(self, files: Files) -> None:
        self.archive: Handle | None = None
        """None if there is none."""
        self.missing: str | None = None
        """The name of an archive that should be there and isn't."""
        self.start = 0
        """Where the lines of `reflog` begin, behind the one that names the archive."""
        self.plain = self._open(files)

    def _open(self, files: Files) -> Handle | None:
        while True:
            try:
                plain = files.open_read(REFLOG)
            except FileNotFoundError:
                return None
            try:
                name = archive_named(plain)
                if name is None:
                    return plain
                self.start = _HEADER_BYTES
                try:
                    self.archive = files.open_read(name)
                    return plain
                except FileNotFoundError:
                    found = files.stat(REFLOG)
                    if found is not None and found.st_ino == plain.stat().st_ino:
                        self.missing = name
                        return plain
            except BaseException:
                plain.close()
                raise
            plain.close()  # replaced since: that one names another archive, or none
            self.start = 0

    def __enter__(self) -> LogFiles:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in (self.plain, self.archive):
            if handle is not None:
                handle.close()

    def end(self) -> int:
        """Where the last whole line of `reflog` ends."""
        return self.start if self.plain is None else max(self.start, whole(self.plain, self.plain.size()))

    def members(self) -> Sequence[int]:
        """Where each member of the archive begins, in order, and where the last one ends."""
        begins = array("Q")
        if self.archive is not None:
            end = self.archive.size()
            # Behind so many the rest counts as one that can't be read: this is held in memory.
            begins.extend(at for at, _ in islice(places(self.archive, 0, end), MAX_MEMBERS))
            begins.append(end)
        return begins

    def member(self, begin: int, end: int) -> bytes:
        """A member as it is. Raises `ValueError` if there is none at this place."""
        if self.archive is None:
            raise ValueError("there is no archive")
        return read_member(self.archive, begin, end - begin)

    def backwards(self) -> Iterator[tuple[int, bytes | None]]:
        """(number of the member or `PLAIN`, lines without the last newline): the newest part first.

        None stands for what can't be read: a damaged member, or an archive that is missing.
        """
        if self.plain is not None:
            for raw in self._plain_backwards(self.plain):
                yield PLAIN, raw
        begins = self.members()
        for number in range(len(begins) - 2, -1, -1):
            try:
                raw = unpack_member(self.member(begins[number], begins[number + 1]))
            except ValueError:
                yield number, None
            else:
                if raw:
                    yield number, raw.removesuffix(b"\n")
        if self.missing is not None:
            yield 0, None

    def _plain_backwards(self, handle: Handle) -> Iterator[bytes]:
        end = self.end() - 1  # without the last newline
        if end < self.start:
            return
        rest = b""
        while end > self.start:
            start = max(self.start, end - _BLOCK_BYTES)
            rest, newline, lines = (handle.read_at(start, end - start) + rest).partition(b"\n")
            if newline:
                yield lines
            # Of what is too long for a line the end is enough: still too long, and the rest needs no memory.
            rest = rest[-MAX_LINE_BYTES - 1 :]
            end = start
        yield rest

    def forwards(self) -> Iterator[bytes]:
        """The lines of `reflog` with their newlines, oldest first."""
        if self.plain is None:
            return
        at, end = self.start, self.end()
        rest = b""
        while at < end:
            *lines, rest = (rest + self.plain.read_at(at, min(_BLOCK_BYTES, end - at))).split(b"\n")
            yield from (line + b"\n" for line in lines)
            rest = rest[-MAX_LINE_BYTES - 1 :]
            at += _BLOCK_BYTES


def archive_named(plain: Handle) -> str | None:
    """The archive that the first line of a `reflog` names, if that is what it is."""
    match = re.fullmatch(_HEADER, plain.read_at(0, _HEADER_BYTES))
    return match[1].decode() if match else None


def header(archive: str) -> bytes:
    """The first line of a `reflog` that has this archive."""
    return f"# older moves: zcat {archive}\n".encode()


def archives(files: Files) -> list[str]:
    """The names of all archives that there are, whether anything names them or not."""
    return [name for name, is_dir in files.entries("") if not is_dir and is_archive(name)]


def is_archive(name: str) -> bool:
    return re.fullmatch(_ARCHIVE, name) is not None


def archive_name(handle: Handle) -> str:
    """What an archive of these bytes is called."""
    digest = hashlib.sha256()
    for at in range(0, handle.size(), _BLOCK_BYTES):
        digest.update(handle.read_at(at, _BLOCK_BYTES))
    return f"reflog-{digest.hexdigest()[:32]}.gz"


def whole(handle: Handle, end: int) -> int:
    """Where the last whole line ends. What follows is torn, or being written."""
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        newline = handle.read_at(start, end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def newest_first(raw: bytes) -> Iterator[bytes]:
    """The lines of a part that `backwards` gave."""
    return reversed(raw.split(b"\n"))
