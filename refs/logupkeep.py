"""What gc and repair do to the reflog: drop old moves, put older ones into the archive, mend it.

The store's lock is held. Before moves are dropped or archived the journal has been emptied: a replay would add
them again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, compress, islice, pairwise
from typing import Final

from refs.errors import CorruptFile, StorageFailure
from refs.files import Files, Handle
from refs.logfiles import PLAIN, REFLOG, LogFiles, archive_name, archives, header, newest_first
from refs.logline import MAX_LINE_BYTES, fields
from refs.members import MemberWriter, split_lines, unpack_member

SMALL_BYTES: Final = 8192
"""So many bytes of lines stay plain: two blocks of a disk, where an archive would take one of them itself."""

_MEMBER_BYTES: Final = 48_000
_Marks = dict[int, bytearray]
"""By the number of a member, or `PLAIN`: a byte a line, newest first, 0 for a line that goes."""


class LogUpkeep:
    """A part of `Reflog`."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def archive_problems(self) -> Iterator[str]:
        """What is wrong with the archive, in words."""
        with LogFiles(self._files) as log:
            if log.missing is not None:
                yield f"{log.missing} holds older moves, and isn't there"
            elif log.archive is not None and not _is_as_written(log):
                yield f"{log.archive.name} isn't what was written: its name is the hash of other bytes"
            elif self._is_beheaded(log):
                yield "its first line is damaged: it may name an archive"

    def strays(self) -> list[str]:
        """Archives that nothing names: a crash left them. None where the line that names one may be damaged."""
        with LogFiles(self._files) as log:
            named = log.missing if log.archive is None else log.archive.name
            return [] if self._is_beheaded(log) else [name for name in archives(self._files) if name != named]

    def expire(self, before: str, *, keep_last: bool) -> int:
        """Durably drop the entries older than `before`, and damaged lines; returns how many went.

        `keep_last` spares the newest entry of each ref whatever its age. `CorruptFile` where a part of the archive
        can't be read.
        """
        oldest = before.encode()
        kept: _Marks = {PLAIN: bytearray()}
        dropped, refs_seen = 0, set()
        with LogFiles(self._files) as log:
            for number, raw in log.backwards():
                if raw is None:
                    raise self._unreadable(log)
                marks = bytearray()
                for data in newest_first(raw):
                    match = fields(data)
                    stays = match is not None and (match[1] >= oldest or (keep_last and match[4] not in refs_seen))
                    marks.append(stays)
                    if match is not None and stays:
                        refs_seen.add(match[4])
                gone = marks.count(0)
                dropped += gone
                if number == PLAIN:
                    kept[PLAIN] += marks
                elif gone:
                    kept[number] = marks
            if dropped:
                self._check(log)
                self._rewrite(log, kept, compress(log.forwards(), reversed(kept[PLAIN])))
        return dropped

    def compact(self) -> bool:
        """Put the lines of `reflog` into the archive, durably, if they are worth it; damaged ones go."""
        with LogFiles(self._files) as log:
            if log.end() - log.start <= SMALL_BYTES:
                return False
            self._check(log)
            self._rewrite(log, {}, (data for data in log.forwards() if fields(data[:-1])))
            return True

    def sweep(self) -> int:
        """Delete the archives that nothing names; how many there were."""
        return sum(map(self._files.remove, self.strays()))

    def mend(self, keep: Callable[[str], None]) -> str | None:
        """Make the archive readable again, without what is damaged in it; what was done, in words.

        `keep` is called with its name while it is still there.
        """
        with LogFiles(self._files) as log:
            if self._is_beheaded(log):
                return self._name_again(log)
            lost: _Marks = {number: bytearray() for number, raw in log.backwards() if raw is None}
            if not lost and _is_as_written(log):
                return None
            if log.archive is not None:
                keep(log.archive.name)
            # The lines of `reflog` stay in it: a replay of the journal looks for them there.
            self._rewrite(log, lost, (), log.forwards())
            return f"wrote the reflog's archive anew, without {len(lost)} parts that can't be read"

    def _name_again(self, log: LogFiles) -> str | None:
        """Put the line that names the archive in the place of a damaged first line, if it is clear which one."""
        sound = []
        for name in archives(self._files):
            with self._files.open_read(name) as handle:
                if archive_name(handle) == name:
                    sound.append(name)
        if len(sound) != 1:
            return None
        self._replace(chain([header(sound[0])], islice(log.forwards(), 1, None)))
        return f"the reflog names its archive {sound[0]} again"

    def _rewrite(
        self, log: LogFiles, kept: _Marks, archived: Iterable[bytes], plain: Iterable[bytes] = ()
    ) -> None:
        """Write a new archive of what is kept of the old one and the lines `archived`; `plain` stay in `reflog`.

        Members without marks are taken as they are. A crash leaves the log as it was, or as it is to be, and
        perhaps an archive that nothing names. `CorruptFile` where a member can't be what is written anew.
        """
        handle = self._files.create_temp("")
        try:
            writer = MemberWriter(handle, _MEMBER_BYTES, SMALL_BYTES)
            for number, (begin, end) in enumerate(pairwise(log.members())):
                marks = kept.get(number)
                if marks is None:
                    writer.copy(log.member(begin, end))
                elif any(marks):
                    writer.add(compress(split_lines(unpack_member(log.member(begin, end))), reversed(marks)))
            writer.add(archived)
            lines = writer.finish()
            name = None
            if lines is None:
                name = archive_name(handle)
                lines = header(name)
                self._files.publish(handle, name)
        except ValueError as error:
            raise self._unreadable(log) from error
        finally:
            self._drop(handle)
        self._replace(chain([lines], plain))
        if log.archive is not None and log.archive.name != name:
            self._files.remove(log.archive.name)

    def _replace(self, lines: Iterable[bytes]) -> None:
        handle = self._files.create_temp("")
        try:
            size = 0
            for data in lines:
                handle.write_at(size, data)
                size += len(data)
            self._files.publish(handle, REFLOG)
        except BaseException:
            self._drop(handle)
            raise

    def _drop(self, handle: Handle) -> None:
        handle.close()
        with contextlib.suppress(StorageFailure):  # the first error is the one to tell
            self._files.remove(handle.name)

    def _unreadable(self, log: LogFiles) -> CorruptFile:
        if log.archive is None:
            return CorruptFile(self._files.path(log.missing or REFLOG), "it holds older moves, and isn't there")
        return CorruptFile(self._files.path(log.archive.name), "a part of it can't be read")

    def _check(self, log: LogFiles) -> None:
        """`CorruptFile` if the archive isn't what was written, or it isn't clear whether there is one."""
        if log.missing is not None or not _is_as_written(log):
            raise self._unreadable(log)
        if self._is_beheaded(log):
            raise CorruptFile(self._files.path(REFLOG), "its first line is damaged: it may name an archive")

    def _is_beheaded(self, log: LogFiles) -> bool:
        """Whether the first line is damaged, and there is an archive that it may have named."""
        if log.plain is None or log.start or not archives(self._files):
            return False
        first = log.plain.read_at(0, MAX_LINE_BYTES).partition(b"\n")[0]
        return bool(first) and fields(first) is None


def _is_as_written(log: LogFiles) -> bool:
    return log.archive is None or archive_name(log.archive) == log.archive.name
