"""JSON Lines as programs leave them behind: cut, glued, padded.

A record is an object or an array. Read as a stream: memory is bounded by the longest line. Whatever is not
a record is told through `warn` and the reading goes on: `nul-padding`, `glued-records`, `torn-record`,
`lone-surrogate`, `invalid-utf8`, `non-finite-number`, `record-too-long`, `record-too-deep`,
`unreadable-file`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from objstore.jsonvalue import Json, check_nesting, loads, loads_exactly
from objstore.limits import MAX_RECORD_BYTES
from objstore.transcripts.source import SourceFile
from objstore.transcripts.warnings import Warner, bounded
from refs.errors import DagError, InvalidValue

_BOM: Final = b"\xef\xbb\xbf"
_NULS: Final = re.compile(rb"\0+")
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_ESCAPES: Final = re.compile(
    r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_SPACE: Final = re.compile(r"[\s\ufeff]*")
_Scan = Callable[[str, int], tuple[Json, int]]
_TORN_STARTS: Final = 64  # places at which one line is tried again
_FIRST_KEY: Final = re.compile(r'\{\s*"[^"\\]{1,64}"\s*:')


@dataclass(frozen=True, slots=True)
class Record:
    """One object or array. `line` counts from 1, `offset` is its first byte, `index` the value's place in it."""

    line: int
    offset: int
    value: Json
    index: int = 0

    @property
    def place(self) -> str:
        return f"line {self.line}"


def read_records(file: SourceFile, warn: Warner) -> Iterator[Record]:
    """The records of a file in order."""
    warn = bounded(warn)
    try:
        with file.open() as stream:
            for number, offset, line in _lines(stream, warn):
                for index, value in enumerate(_values(line, f"line {number}", warn)):
                    yield Record(number, offset, value, index)
    except DagError as error:
        warn("unreadable-file", file.name, str(error))


def read_again(stream: BinaryIO, offset: int, index: int) -> Json:
    """The value of a record that was read before, from its `offset` and `index`; None if the file has changed."""
    stream.seek(offset)
    values = list(_values(stream.readline(MAX_RECORD_BYTES), "", lambda kind, place, text: None))
    return values[index] if index < len(values) else None


def _lines(stream: BinaryIO, warn: Warner) -> Iterator[tuple[int, int, bytes]]:
    number = offset = 0
    while line := stream.readline(MAX_RECORD_BYTES):
        number, start = number + 1, offset
        offset += len(line)
        if len(line) < MAX_RECORD_BYTES or line.endswith(b"\n"):
            yield number, start, line
            continue
        while (more := stream.readline(MAX_RECORD_BYTES)) and not more.endswith(b"\n"):
            offset += len(more)
        offset += len(more)
        warn("record-too-long", f"line {number}", f"{offset - start} bytes, more than {MAX_RECORD_BYTES}")


def _values(line: bytes, place: str, warn: Warner) -> Iterator[Json]:
    if b"\0" in line:
        pieces = _NULS.split(line)
        warn("nul-padding", place, f"{line.count(0)} bytes skipped")
    else:
        pieces = [line]
    for each in pieces:
        piece = each.strip().removeprefix(_BOM)
        if not piece:
            continue
        try:
            value = loads_exactly(piece) if may_hold_big_integer(piece) else loads(piece)
        except InvalidValue:
            yield from _recovered(piece, line.endswith(b"\n"), place, warn)
            continue
        if has_lone_surrogate(piece):
            warn("lone-surrogate", place, "")
        if isinstance(value, dict | list):
            yield value
        else:
            warn("torn-record", place, "neither an object nor an array")


def may_hold_big_integer(raw: bytes) -> bool:
    """Whether an integer beyond 64 bits may stand in JSON text: orjson would make a float of it."""
    return raw.translate(_DIGITS).find(b"0" * 19) >= 0  # ten times faster than a search for nineteen digits


def has_lone_surrogate(written: bytes | str) -> bool:
    """Whether JSON text holds the escape of half a character without its other half."""
    if isinstance(written, bytes):
        if b"\\ud" not in written and b"\\uD" not in written:
            return False
        written = written.decode("utf-8", "replace")
    elif "\\ud" not in written and "\\uD" not in written:  # escapes of other characters are common
        return False
    return any(found[1] for found in _ESCAPES.finditer(written))


def decode_leniently(raw: bytes, place: str, warn: Warner) -> str:
    """Text from bytes that should be UTF-8. Raw surrogate halves are kept; other damage becomes U+FFFD."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        try:
            decoded = raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            warn("invalid-utf8", place, f"byte {error.start}")
            return raw.decode("utf-8", "replace")
        warn("lone-surrogate", place, "")
        return decoded


def skip_space(written: str, at: int) -> int:
    """The first place from `at` on that isn't white space or a byte order mark."""
    found = _SPACE.match(written, at)
    return found.end() if found else at


def lenient_decoder(found: list[str]) -> json.JSONDecoder:
    """A decoder that keeps `NaN` and `Infinity`, which JSON doesn't have, as text, and adds them to `found`."""

    def constant(name: str) -> str:
        found.append(name)
        return name

    return json.JSONDecoder(parse_constant=constant)


def _recovered(piece: bytes, ended: bool, place: str, warn: Warner) -> Iterator[Json]:
    """What can be read of a line that isn't one JSON value: all whole objects in it.

    `ended`: a newline follows, so something was written after the tear.
    """
    try:
        check_nesting(piece)
    except InvalidValue as error:
        warn("record-too-deep", place, error.reason)
        return
    written = decode_leniently(piece, place, warn)
    constants: list[str] = []
    scan = lenient_decoder(constants).raw_decode
    found: list[Json] = []
    torn = at = 0
    while at < len(written) and torn < _TORN_STARTS:
        try:
            value, end = scan(written, at)
        except (ValueError, RecursionError) as error:
            torn += 1
            at = _next_start(written, at, error, scan, ended)
            continue
        if isinstance(value, dict | list):
            found.append(value)
        at = skip_space(written, end)
    if torn:
        warn("torn-record", place, "")
    if len(found) > 1:
        warn("glued-records", place, f"{len(found)} records")
    if found and constants:
        warn("non-finite-number", place, constants[0])
    if found and has_lone_surrogate(written):
        warn("lone-surrogate", place, "")
    yield from found


def _next_start(written: str, at: int, error: Exception, scan: _Scan, ended: bool) -> int:
    """Where the next whole object may begin after the one at `at` turned out to be torn."""
    position = error.pos if isinstance(error, json.JSONDecodeError) else at + 1
    if position >= len(written) or "Unterminated" in str(error):
        # Cut, as far as JSON can tell: an object at its end is a member of the torn one, unless it begins
        # like that does (what was torn off just where a value was due).
        first = _FIRST_KEY.match(written, at)
        start = written.rfind(first[0], at + 1) if first and ended else -1
        return start if start > at and _is_whole(written, start, scan) else len(written)
    start = written.rfind('{"', at + 1, position + 2)
    if start > at and _is_whole(written, start, scan):
        return start
    start = written.find('{"', max(position, at + 1))
    return start if start > at else len(written)


def _is_whole(written: str, start: int, scan: _Scan) -> bool:
    """Whether an object stands at `start` that is followed by another one or by nothing."""
    try:
        _, end = scan(written, start)
    except (ValueError, RecursionError):
        return False
    end = skip_space(written, end)
    return end == len(written) or written[end] == "{"
