"""The log of moves: which ref went from where to where, when and why. One log for all refs, a line a move.

New lines stand in the file `reflog`; gc puts older ones into an archive (`refs.logfiles`). They are in the order
in which they were written; their times are as good as the clocks were.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from refs.files import Files, Handle
from refs.ids import Oid
from refs.logfiles import REFLOG, LogFiles, archive_named, header, newest_first, whole
from refs.logline import (
    MAX_LINE_BYTES,
    MAX_REASON_CHARS,
    MOVES,
    NO_SIDE,
    ReflogEntry,
    fields,
    line,
    parse_line,
)
from refs.logupkeep import LogUpkeep
from refs.names import RefName

__all__ = ["MAX_LINE_BYTES", "MAX_REASON_CHARS", "REFLOG", "Reflog", "ReflogEntry", "line", "parse_line"]


class Reflog(LogUpkeep):
    """The log of a store. Whoever writes holds the store's lock; readers need none."""

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        self._handle: Handle | None = None
        self._inode = self._end = -1
        self.damaged = 0
        """How many lines the latest reading had to skip; a part of the archive that can't be read is one."""

    # -- writing at the end -----------------------------------------------------------------------

    def append(self, entries: Iterable[ReflogEntry]) -> None:
        """Add lines in one write at the end, after cutting what a crash left of a last one. Not synced."""
        self._append(b"".join(map(line, entries)))

    def append_missing(self, entries: Sequence[ReflogEntry]) -> None:
        """See that the log ends with the lines of `entries`, once and in their order: for a replay.

        `entries` must be all that were logged since some moment, in one call: what was appended since then
        is among them, so looking back by their own length is enough. A crash may have left any of them,
        and holes between.
        """
        lines = [line(entry) for entry in entries]
        mine = set(lines)
        self.close()
        with self._files.open_rw(REFLOG) as handle:
            end = handle.size()
            start = max(0, end - sum(map(len, lines)) - MAX_LINE_BYTES)  # plus what a torn line may take
            archive = archive_named(handle)
            first = 0 if archive is None else len(header(archive))
            begins = start <= first
            start = max(start, first)
            tail = handle.read_at(start, max(0, end - start))
            if [each for each in tail.splitlines(keepends=True) if each in mine] == lines and tail.endswith(b"\n"):
                return
            # What stands before the first of these lines, or before what is no line, stays as it is.
            at = 0 if begins else tail.find(b"\n") + 1
            for each in tail[at:].splitlines(keepends=True):
                if each in mine or fields(each.removesuffix(b"\n")) is None or not each.endswith(b"\n"):
                    break
                at += len(each)
            kept = [
                each
                for each in tail[at:].splitlines(keepends=True)
                if each not in mine and each.endswith(b"\n") and fields(each[:-1])
            ]
            wanted = b"".join([*kept, *lines])
            if tail[at:] != wanted:
                handle.truncate(start + at)
                handle.write_at(start + at, wanted)

    def sync(self) -> None:
        """Make all that was appended durable, and the file's name."""
        self._files.sync(REFLOG)
        self._files.sync_dir("")

    def close(self) -> None:
        if self._handle is not None:
            self._handle.close()
            self._handle = None
            self._inode = self._end = -1

    def _append(self, data: bytes) -> None:
        if not data:
            return
        # The open file keeps its inode from being reused, so a new inode means that the log was replaced.
        found = self._files.stat(REFLOG)
        if self._handle is None or found is None or found.st_ino != self._inode:
            self.close()
            self._handle = self._files.open_rw(REFLOG)
            found = self._handle.stat()
            self._inode = found.st_ino
        end = found.st_size
        if end != self._end:  # somebody else wrote here since
            end = whole(self._handle, end)
            if end != found.st_size:
                self._handle.truncate(end)
        self._end = -1  # until the write has gone through
        self._handle.write_at(end, data)
        self._end = end + len(data)

    # -- reading ----------------------------------------------------------------------------------

    def entries(self, ref: RefName | None = None) -> Iterator[ReflogEntry]:
        """All entries, or those of one ref, newest first. Damaged lines are skipped and counted."""
        self.damaged = 0
        wanted = b"" if ref is None else f" {ref} ".encode()
        with LogFiles(self._files) as log:
            for _, raw in log.backwards():
                if raw is None:
                    self.damaged += 1
                elif wanted in raw:
                    for data in newest_first(raw):
                        if wanted not in data:
                            continue
                        try:
                            entry = parse_line(data)
                        except ValueError:
                            self.damaged += 1
                            continue
                        if ref is None or entry.ref == ref:
                            yield entry

    def entry(self, ref: RefName, n: int) -> ReflogEntry | None:
        """The n-th newest entry of a ref, from 0, or None: its `new` is what `X@{n}` means."""
        for index, entry in enumerate(self.entries(ref)):
            if index == n:
                return entry
        return None

    def young(self, since: str) -> set[Oid]:
        """Both ids of every entry that isn't older than `since`. Damaged lines are counted.

        Reads the whole log: a clock that was set back must not end the search early. `CorruptFile` where a part of
        the archive can't be read: what it names may still be wanted.
        """
        self.damaged = 0
        oldest = since.encode()
        ends: set[str] = set()
        with LogFiles(self._files) as log:
            self._check(log)
            for _, raw in log.backwards():
                if raw is None:
                    raise self._unreadable(log)
                moves = re.findall(MOVES, raw)
                self.damaged += raw.count(b"\n") + 1 - len(moves)
                ends.update(
                    b" ".join([end for time, *both in moves if time >= oldest for end in both]).decode().split()
                )
        return cast("set[Oid]", ends - NO_SIDE)

    def size(self) -> int:
        """In bytes, the archive's included."""
        with LogFiles(self._files) as log:
            return sum(handle.size() for handle in (log.plain, log.archive) if handle is not None)
