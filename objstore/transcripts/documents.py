"""Files of JSON values, whatever holds them: JSON Lines, an array, one document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from objstore.jsonvalue import Json, loads
from objstore.limits import MIB
from objstore.transcripts.draft import is_deep
from objstore.transcripts.jsonfile import ArrayReader, read_json
from objstore.transcripts.lines import read_records
from objstore.transcripts.source import SourceFile
from objstore.transcripts.warnings import Warner
from refs.errors import DagError, InvalidValue

_FIRST_LINE_BYTES: Final = MIB
"""How much is read to tell lines from a document; where that isn't enough, the file's name tells."""
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Document:
    """One JSON object or array of a file. `place` says where; it is empty where it is the whole file."""

    value: Json
    place: str


def read_documents(file: SourceFile, warn: Warner, arrays: Sequence[str] = ()) -> Iterator[Document]:
    """The lines of JSON Lines, the elements of an array, or the one object that a file holds.

    From an object that is cut, the first of its `arrays` that is found is saved as far as it goes.
    """
    for document in _documents(file, warn, arrays):
        if is_deep(document.value):
            warn("record-too-deep", document.place or file.name, "")
        else:
            yield document


def _documents(file: SourceFile, warn: Warner, arrays: Sequence[str]) -> Iterator[Document]:
    start = _start(file)
    if _holds_lines(start, file.name):
        for record in read_records(file, warn):
            yield Document(record.value, record.place)
    elif start.startswith(b"["):
        for element in ArrayReader(file, warn):
            yield Document(element.value, element.place)
    else:
        value = read_json(file, warn)
        if isinstance(value, dict):
            yield Document(value, "")
        elif value is None:
            yield from _saved(file, arrays)


def _saved(file: SourceFile, arrays: Sequence[str]) -> Iterator[Document]:
    for name in arrays:
        reader = ArrayReader(file, lambda kind, place, text: None, (name,))
        elements = [element.value for element in reader]
        if reader.found:
            yield Document({**reader.members, name: elements}, "")
            return


def _start(file: SourceFile) -> bytes:
    try:
        with file.open() as stream:
            return stream.read(_FIRST_LINE_BYTES).removeprefix(_BOM).lstrip()
    except DagError:
        return b""


def _holds_lines(start: bytes, name: str) -> bool:
    line, found, rest = start.partition(b"\n")
    named = name.lower().endswith((".jsonl", ".ndjson"))
    if not found:
        return named
    try:
        loads(line.strip(b"\0 \t\r"))
    except InvalidValue:
        return named
    return bool(rest.strip())
