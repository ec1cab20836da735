"""A line of the log of moves: which ref went from where to where, when and why.

    2026-01-02T03:04:05.678Z <old> <new> refs/conversations/trip commit

A missing side is a dash; 64 zeros are read as the same. The reason comes last; what would break the line is
escaped in it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from refs.errors import InvalidRefName
from refs.ids import OID_DIGITS, Oid
from refs.names import RefName, check_ref_name

MAX_REASON_CHARS: Final = 500
MAX_LINE_BYTES: Final = 4096
"""More than the longest ref and a reason of which each character is escaped."""

_NOTHING: Final = "-"
_ZEROS: Final = "0" * OID_DIGITS
NO_SIDE: Final = frozenset({_NOTHING, _ZEROS})
"""What stands for a side that is missing."""
# Patterns as text: `re` compiles each, and keeps it, for the first who reads or writes a line.
_TIME: Final = rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)"
_LINE: Final = _TIME + rb" ([0-9a-f]{64}|-) ([0-9a-f]{64}|-) (refs/[^\s\x00]{1,600}) ([^\n]{0,3000})"
MOVES: Final = (
    rb"(?m:^" + _TIME + rb" ((?:[0-9a-f]{64}|-) (?:[0-9a-f]{64}|-)) refs/[^\s\x00]{1,600} [^\n]{0,3000}$)"
)
"""The same for many lines: their times, and both ends together."""
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
    if fields(data) is None:
        raise ValueError(f"not a reflog entry: {entry}")
    return data + b"\n"


def parse_line(data: bytes) -> ReflogEntry:
    """A line, with or without its newline, as an entry; `ValueError` if it is damaged."""
    match = fields(data.removesuffix(b"\n"))
    if match is None:
        raise ValueError("not a line of the reflog")
    time, old, new, ref, reason = (group.decode() for group in match.groups())
    try:
        name = check_ref_name(ref)
    except InvalidRefName as error:
        raise ValueError(str(error)) from error
    return ReflogEntry(time, name, _side(old), _side(new), re.sub(_ESCAPE, _unescaped, reason))


def fields(data: bytes) -> re.Match[bytes] | None:
    """Time, both ids, ref and reason of a line without its newline; None if it is none."""
    return re.fullmatch(_LINE, data)


def _side(oid: str) -> Oid | None:
    return None if oid in NO_SIDE else Oid(oid)


def _escaped(match: re.Match[str]) -> str:
    return r"\\" if match[0] == "\\" else f"\\u{ord(match[0]):04x}"


def _unescaped(match: re.Match[str]) -> str:
    return "\\" if match[1] == "\\" else chr(int(match[1][1:], 16))
