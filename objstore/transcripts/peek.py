"""The start of a file, as `sniff` sees it: enough structure to tell a format, however long its first line."""

from __future__ import annotations

import json
import re
from typing import Final

from objstore.jsonvalue import Json
from objstore.limits import KIB, MAX_NESTING, MIB
from objstore.transcripts.lines import skip_space
from objstore.transcripts.magic import SQLITE_MAGIC
from objstore.transcripts.source import SourceFile
from refs.errors import DagError

START_BYTES: Final = 64 * KIB
_ENOUGH_BYTES: Final = 8 * KIB  # of structure, once long strings are shortened
_MAX_READ_BYTES: Final = 32 * MIB
_KEPT_BYTES: Final = 256  # of a long string
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_CUT_ESCAPE: Final = re.compile(rb"\\(?:u[0-9a-fA-F]{0,3})?$")
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{},:]|[^\s\[\]{},:"]+')
_CLOSERS: Final = {"{": "}", "[": "]"}
_MAX_VALUES: Final = 64


def start_of(file: SourceFile) -> bytes:
    """The first 64 KiB of a file; nothing of one that can't be read.

    In JSON strings are cut after 256 bytes, and more of the file is looked at (up to 32 MiB) where its first
    record holds little but long strings: an image as base64 must not hide what follows it. Of a database it is
    the SQL of its tables, which may lie anywhere in it.
    """
    try:
        with file.open() as stream:
            read = stream.read(START_BYTES)
            if read.startswith(SQLITE_MAGIC):
                from objstore.transcripts.databases import schema_of  # noqa: PLC0415 - sqlite3 is for databases only

                return schema_of(file)[:START_BYTES]
            if not read.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"[")):
                return read
            start = _shortened(read)
            while len(start) < _ENOUGH_BYTES and len(read) < _MAX_READ_BYTES:
                more = stream.read(7 * len(read))
                if not more:
                    break
                read += more
                start = _shortened(read)
            return start[:START_BYTES]
    except DagError:
        return b""


def _shortened(raw: bytes) -> bytes:
    return _STRING.sub(_shorten, raw)


def _shorten(found: re.Match[bytes]) -> bytes:
    string = found[0]
    if len(string) <= 2 * _KEPT_BYTES:
        return string
    kept = _CUT_ESCAPE.sub(b"", string[:_KEPT_BYTES])
    # Half a character at the cut would make the start no UTF-8.
    return kept.decode("utf-8", "ignore").encode() + b'"'


def values_in(start: bytes) -> list[Json]:
    """The first JSON values in a file's start: a document's only one, or the first records of JSON Lines.

    The last one may be cut: what is left of it is closed. Text that isn't JSON gives what comes before it.
    """
    text = start.decode("utf-8", "replace")
    decoder = json.JSONDecoder()
    values: list[Json] = []
    at = skip_space(text, 0)
    while at < len(text) and len(values) < _MAX_VALUES:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            # A damaged line of JSON Lines, where another one follows; else a document that is cut here.
            end = text.find("\n{", at)
            value = _closed(text[at:end] if end >= 0 else text, 0 if end >= 0 else at)
            end = end if end >= 0 else len(text)
        if value is not None:
            values.append(value)
        at = skip_space(text, end)
    return values


def _closed(text: str, at: int) -> Json | None:
    """A value that is cut: the members that are whole. None where nothing is, or it nests too deep."""
    if text[at] not in _CLOSERS:
        return None
    closers: list[str] = []
    safe, closing = at, ""
    for token in _TOKEN.finditer(text, at):
        mark = token[0]
        if mark in _CLOSERS:
            closers.append(_CLOSERS[mark])
            if len(closers) > MAX_NESTING:
                break
            safe, closing = token.end(), "".join(reversed(closers))
        elif closers and mark == closers[-1]:
            closers.pop()
            safe, closing = token.end(), "".join(reversed(closers))
            if not closers:
                break
        elif mark == ",":
            safe, closing = token.start(), "".join(reversed(closers))
    try:
        value: Json = json.loads(text[at:safe] + closing)
    except (ValueError, RecursionError):
        return None
    return value
