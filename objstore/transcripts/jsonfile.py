"""JSON documents: as a whole, or an array's elements one by one in memory that does not grow with the file.

As lenient as `lines`: a byte order mark, UTF-16, lone surrogates, `NaN`. A document that is cut gives what
comes before the cut, and the warning `torn-document`.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from objstore.jsonvalue import Json, check_nesting, loads, loads_exactly
from objstore.limits import KIB, MAX_DOCUMENT_BYTES, MAX_NESTING, MAX_RECORD_BYTES
from objstore.transcripts.lines import (
    decode_leniently,
    has_lone_surrogate,
    lenient_decoder,
    may_hold_big_integer,
    skip_space,
)
from objstore.transcripts.source import SourceFile
from objstore.transcripts.warnings import Warner, bounded
from refs.errors import DagError, InvalidValue

_CHUNK_BYTES: Final = 256 * KIB
_CUT_CHARS: Final = 16  # how far from the end a cut literal, number or escape is noticed
_BOMS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def read_json(file: SourceFile, warn: Warner) -> Json:
    """The whole document, or None with a warning that says why not."""
    try:
        if file.size > MAX_DOCUMENT_BYTES:
            warn("document-too-long", file.name, f"{file.size} bytes, more than {MAX_DOCUMENT_BYTES}")
            return None
        with file.open() as stream:
            raw = stream.read(MAX_DOCUMENT_BYTES)
    except DagError as error:
        warn("unreadable-file", file.name, str(error))
        return None
    return parse_json(raw, file.name, warn)


def parse_json(raw: bytes, place: str, warn: Warner) -> Json:
    """A document from its bytes, or None with a warning that says why not."""
    bom, encoding = _encoding(raw)
    raw = raw[len(bom) :]
    if encoding != "utf-8":
        raw = raw.decode(encoding, "replace").encode("utf-8", "replace")
    try:
        value = loads_exactly(raw) if may_hold_big_integer(raw) else loads(raw)
    except InvalidValue:
        try:
            check_nesting(raw)
            constants: list[str] = []
            value = lenient_decoder(constants).decode(decode_leniently(raw, place, warn))
            if constants:
                warn("non-finite-number", place, constants[0])
        except (ValueError, RecursionError) as error:  # InvalidValue is a ValueError
            warn("torn-document", place, str(error))
            return None
    if has_lone_surrogate(raw):
        warn("lone-surrogate", place, "")
    return value


@dataclass(frozen=True, slots=True)
class Element:
    """One element of an array; `index` counts from 0."""

    index: int
    value: Json

    @property
    def place(self) -> str:
        return f"element {self.index}"


def _encoding(start: bytes) -> tuple[bytes, str]:
    return next(((bom, name) for bom, name in _BOMS if start.startswith(bom)), (b"", "utf-8"))


class _Torn(Exception):
    """The text ends, or stops being JSON, inside a value."""


@dataclass(slots=True)
class _Text:
    """The text of a stream from `at` on, as much of it as is needed."""

    stream: BinaryIO
    place: str
    warn: Warner
    held: str = ""
    at: int = 0
    ended: bool = False
    _decoder: codecs.IncrementalDecoder | None = None

    def more(self, size: int) -> bool:
        """Read at least a little further; False at the end."""
        if self.ended:
            return False
        chunk = self.stream.read(size)
        self.ended = not chunk
        if self._decoder is None:
            bom, encoding = _encoding(chunk)
            chunk = chunk[len(bom) :]
            self._decoder = codecs.getincrementaldecoder(encoding)("strict")
        try:
            added = self._decoder.decode(chunk, self.ended)
        except UnicodeDecodeError:
            self.warn("invalid-utf8", self.place, "")
            self._decoder.errors = "replace"
            added = self._decoder.decode(chunk, self.ended)
        self.held = self.held[self.at :] + added
        self.at = 0
        return True

    def peek(self) -> str:
        """The next character that isn't white space, or an empty string at the end."""
        while True:
            self.at = skip_space(self.held, self.at)
            if self.at < len(self.held):
                return self.held[self.at]
            if not self.more(_CHUNK_BYTES):
                return ""

    def take(self, expected: str) -> bool:
        if self.peek() != expected:
            return False
        self.at += 1
        return True

    def value(self) -> Json:
        """The JSON value that stands here. Reads further, twice as much each time, until it is whole."""
        self.peek()
        size = _CHUNK_BYTES
        constants: list[str] = []
        decoder = lenient_decoder(constants)
        while True:
            constants.clear()
            try:
                value, end = decoder.raw_decode(self.held, self.at)
                if end < len(self.held) or self.ended:  # a number may go on in what is not read yet
                    break
            except RecursionError as error:
                raise _Torn(f"{self.place}: nested too deep") from error
            except ValueError as error:
                if self.ended or self._is_malformed(error):
                    raise _Torn(f"{self.place}: {getattr(error, 'msg', error)}") from error
            if len(self.held) - self.at > MAX_RECORD_BYTES:
                raise _Torn(f"more than {MAX_RECORD_BYTES} characters, or not JSON")
            self.more(size)
            size *= 2
        written = self.held[self.at : end]
        if "\\u" in written and has_lone_surrogate(written):
            self.warn("lone-surrogate", self.place, "")
        if constants:
            self.warn("non-finite-number", self.place, constants[0])
        self.at = end
        if written.count("{") + written.count("[") > MAX_NESTING and _is_too_deep(written):
            self.warn("record-too-deep", self.place, f"more than {MAX_NESTING} levels")
            return None
        return value

    def _is_malformed(self, error: ValueError) -> bool:
        """Whether more text could not make it JSON: the error stands well before the end."""
        if not isinstance(error, json.JSONDecodeError) or "Unterminated" in error.msg:
            return False
        return error.pos + _CUT_CHARS < len(self.held)


def _is_too_deep(written: str) -> bool:
    try:
        check_nesting(written.encode("utf-8", "replace"))
    except InvalidValue:
        return True
    return False


@dataclass(slots=True)
class ArrayReader:
    """Iterates over the elements of a document's array, once.

    The array is the document itself, or the first of its members called one of `names`. `members` then holds
    the document's other members as far as they were read: all of them once the iteration is over. A document
    without such an array gives no elements and has `found` False; one that is no object or array is told.
    """

    file: SourceFile
    warn: Warner
    names: Collection[str] = ()
    members: dict[str, Json] = field(default_factory=dict)
    found: bool = False
    is_object: bool = False

    def __iter__(self) -> Iterator[Element]:
        warn = bounded(self.warn)
        try:
            with self.file.open() as stream:
                yield from self._read(_Text(stream, self.file.name, warn))
        except _Torn as error:
            warn("torn-document", self.file.name, str(error))
        except DagError as error:
            warn("unreadable-file", self.file.name, str(error))

    def _read(self, text: _Text) -> Iterator[Element]:
        if text.take("["):
            self.found = True
            yield from self._elements(text)
        elif text.take("{"):
            self.is_object = True
            yield from self._object(text)
        else:
            raise _Torn("neither an array nor an object")

    def _elements(self, text: _Text) -> Iterator[Element]:
        if text.take("]"):
            return
        index = 0
        while True:
            text.place = f"element {index}"
            yield Element(index, text.value())
            index += 1
            if text.take("]"):
                return
            if not text.take(","):
                raise _Torn(f"cut after element {index - 1}")

    def _object(self, text: _Text) -> Iterator[Element]:
        if text.take("}"):
            return
        while True:
            text.place = self.file.name
            key = text.value()
            if not isinstance(key, str) or not text.take(":"):
                raise _Torn("a member's name and a colon are needed")
            if not self.found and key in self.names and text.take("["):
                self.found = True
                yield from self._elements(text)
            else:
                self.members[key] = text.value()
            if text.take("}"):
                return
            if not text.take(","):
                raise _Torn(f"cut after {key[:80]!r}")
