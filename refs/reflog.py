"""The log of moves: which ref went from where to where, when and why. One file for all refs.

    2026-01-02T03:04:05.678Z <old> <new> refs/conversations/trip commit

A missing side is a dash; 64 zeros are read as the same. The reason comes last; what would break the line is
escaped in it. Lines are in the order in which they were written; their times are as good as the clocks were.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, cast

from refs.errors import InvalidRefName
from refs.files import Files, Handle
from refs.ids import OID_DIGITS, Oid
from refs.names import RefName, check_ref_name

REFLOG: Final = "reflog"
MAX_REASON_CHARS: Final = 500
MAX_LINE_BYTES: Final = 4096
"""More than the longest ref and a reason of which each character is escaped."""

_BLOCK_BYTES: Final = 1 << 16
_NOTHING: Final = "-"
_ZEROS: Final = "0" * OID_DIGITS
# Patterns as text: `re` compiles each, and keeps it, for the first who reads or writes a line.
_TIME: Final = rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)"
_LINE: Final = _TIME + rb" ([0-9a-f]{64}|-) ([0-9a-f]{64}|-) (refs/[^\s\x00]{1,600}) ([^\n]{0,3000})"
_MOVES: Final = (  # the same for many lines: their times, and both ends together
    rb"(?m:^" + _TIME + rb" ((?:[0-9a-f]{64}|-) (?:[0-9a-f]{64}|-)) refs/[^\s\x00]{1,600} [^\n]{0,3000}$)"
)
_UNSAFE: Final = "[\\\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"
_ESCAPE: Final = r"\\(\\|u[0-9a-f]{4})"


class ReflogEntry(NamedTuple):
    """One move. `time` is UTC with milliseconds: `2026-01-02T03:04:05.678Z`."""

    time: str
    ref: RefName
    old: Oid | None
    new: Oid | None
    reason: str


def line(entry: ReflogEntry) -> bytes:
    """An entry as its line, newline included. A reason over `MAX_REASON_CHARS` is cut."""
    reason = entry.reason
    if len(reason) > MAX_REASON_CHARS:
        reason = f"{reason[: MAX_REASON_CHARS - 1]}…"
    reason = re.sub(_UNSAFE, _escaped, reason)
    data = f"{entry.time} {entry.old or _NOTHING} {entry.new or _NOTHING} {entry.ref} {reason}".encode()
    if _fields(data) is None:
        raise ValueError(f"not a reflog entry: {entry}")
    return data + b"\n"


def parse_line(data: bytes) -> ReflogEntry:
    """A line, with or without its newline, as an entry; `ValueError` if it is damaged."""
    match = _fields(data.removesuffix(b"\n"))
    if match is None:
        raise ValueError("not a line of the reflog")
    time, old, new, ref, reason = (group.decode() for group in match.groups())
    try:
        name = check_ref_name(ref)
    except InvalidRefName as error:
        raise ValueError(str(error)) from error
    return ReflogEntry(time, name, _side(old), _side(new), re.sub(_ESCAPE, _unescaped, reason))


class Reflog:
    """The file `reflog` of a store. Whoever writes holds the store's lock; readers need none."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._handle: Handle | None = None
        self._inode = self._end = -1
        self.damaged = 0
        """How many lines the latest reading had to skip."""

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
            tail = handle.read_at(start, end - start)
            if [each for each in tail.splitlines(keepends=True) if each in mine] == lines and tail.endswith(b"\n"):
                return
            # What stands before the first of these lines, or before what is no line, stays as it is.
            at = tail.find(b"\n") + 1 if start else 0
            for each in tail[at:].splitlines(keepends=True):
                if each in mine or _fields(each.removesuffix(b"\n")) is None or not each.endswith(b"\n"):
                    break
                at += len(each)
            kept = [
                each
                for each in tail[at:].splitlines(keepends=True)
                if each not in mine and each.endswith(b"\n") and _fields(each[:-1])
            ]
            wanted = b"".join([*kept, *lines])
            if tail[at:] != wanted:
                handle.truncate(start + at)
                handle.write_at(start + at, wanted)

    def entries(self, ref: RefName | None = None) -> Iterator[ReflogEntry]:
        """All entries, or those of one ref, newest first. Damaged lines are skipped and counted."""
        self.damaged = 0
        wanted = b"" if ref is None else f" {ref} ".encode()
        for data in self._backwards():
            if wanted in data:
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
        """Both ids of every entry that isn't older than `since`.

        Reads the whole log: a clock that was set back must not end the search early.
        """
        self.damaged = 0
        oldest = since.encode()
        ends: set[str] = set()
        for lines in self._blocks_backwards():
            moves = re.findall(_MOVES, b"\n".join(lines))
            self.damaged += len(lines) - len(moves)
            ends.update(b" ".join([both for time, both in moves if time >= oldest]).decode().split())
        return cast("set[Oid]", ends - {_NOTHING, _ZEROS})

    def expire(self, before: str, *, keep_last: bool) -> int:
        """Durably drop the entries older than `before`, and damaged lines; returns how many went.

        `keep_last` spares the newest entry of each ref whatever its age. The journal must have been
        emptied: a replay would add again what was dropped.
        """
        oldest = before.encode()
        kept, dropped, refs_seen = [], 0, set()
        for data in self._backwards():
            match = _fields(data)
            if match is not None and (match[1] >= oldest or (keep_last and match[4] not in refs_seen)):
                kept.append(data + b"\n")
                refs_seen.add(match[4])
            else:
                dropped += 1
        if dropped:
            self._files.replace(REFLOG, b"".join(reversed(kept)))
        return dropped

    def size(self) -> int:
        """In bytes."""
        found = self._files.stat(REFLOG)
        return 0 if found is None else found.st_size

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
            end = _whole(self._handle, end)
            if end != found.st_size:
                self._handle.truncate(end)
        self._end = -1  # until the write has gone through
        self._handle.write_at(end, data)
        self._end = end + len(data)

    def _backwards(self) -> Iterator[bytes]:
        """All whole lines without their newlines, newest first."""
        for lines in self._blocks_backwards():
            yield from reversed(lines)

    def _blocks_backwards(self) -> Iterator[list[bytes]]:
        """All whole lines without their newlines, some at a time, the newest of them last."""
        try:
            handle = self._files.open_read(REFLOG)
        except FileNotFoundError:
            return
        with handle:
            end = _whole(handle, handle.size()) - 1  # without the last newline
            if end < 0:
                return
            rest = b""
            while end > 0:
                start = max(0, end - _BLOCK_BYTES)
                rest, *lines = (handle.read_at(start, end - start) + rest).split(b"\n")
                yield lines
                # Of what is too long for a line the end is enough: still too long, and the rest needs no memory.
                rest = rest[-MAX_LINE_BYTES - 1 :]
                end = start
            yield [rest]


def _whole(handle: Handle, end: int) -> int:
    """Where the last whole line ends. What follows is torn, or being written."""
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        newline = handle.read_at(start, end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _fields(data: bytes) -> re.Match[bytes] | None:
    """Time, both ids, ref and reason of a line without its newline; None if it is none."""
    return re.fullmatch(_LINE, data)


def _side(oid: str) -> Oid | None:
    return None if oid in (_NOTHING, _ZEROS) else Oid(oid)


def _escaped(match: re.Match[str]) -> str:
    return r"\\" if match[0] == "\\" else f"\\u{ord(match[0]):04x}"


def _unescaped(match: re.Match[str]) -> str:
    return "\\" if match[1] == "\\" else chr(int(match[1][1:], 16))
