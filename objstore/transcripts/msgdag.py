"""Our own forms: the JSON Lines of `dag export`, and messages as `dag cat` writes them. Nothing is lost in them.

A file is one conversation: a line (or an element, or an element under `messages`) is a message, or an object
of a `message` with what is known about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from objstore.jsonvalue import Json
from objstore.message import Message
from objstore.transcripts.build import note_of, time_of
from objstore.transcripts.documents import Document, read_documents
from objstore.transcripts.draft import mapping, sequence, string
from objstore.transcripts.model import Certainty, Entry, Head, ReaderOutput, Skipped, Transcript, Warn
from objstore.transcripts.peek import values_in
from objstore.transcripts.source import Source, SourceFile
from refs.errors import InvalidValue

FORMAT: Final = "msgdag"

_MESSAGES: Final = "messages"
_LOOKED_AT: Final = 16
_ABOUT: Final = frozenset({"message", "node", "at", "note"})
_MEMBERS: Final = frozenset({"role", "parts", "provider_metadata"})


def sniff(file_start: bytes, name: str) -> Certainty:
    """Messages of parts that have a type, with our members and no others."""
    for value in values_in(file_start)[:_LOOKED_AT]:
        given = sequence(value) or sequence(mapping(value).get(_MESSAGES)) or [value]
        if all(map(_is_ours, given[:_LOOKED_AT])):
            return Certainty.YES
        if set(mapping(value)) != {"title"}:  # the first line may hold no more than that
            break
    return Certainty.NO


def _is_ours(value: Json) -> bool:
    about = mapping(value)
    exported = "message" in about and about.keys() <= _ABOUT
    message = mapping(about["message"]) if exported else about
    parts = message.get("parts")
    return (
        isinstance(message.get("role"), str)
        and message.keys() <= _MEMBERS
        and isinstance(parts, list)
        and (exported or all(isinstance(mapping(part).get("type"), str) and _has_text(part) for part in parts))
    )


def _has_text(part: Mapping[str, Json]) -> bool:
    return part.get("type") != "text" or "text" in part


def split(source: Source) -> Iterator[list[SourceFile]]:
    """Every file by itself."""
    for file in source.files():
        yield [file]


def read(source: Source) -> Iterator[ReaderOutput]:
    """A conversation for each file."""
    for file in source.files():
        yield from _read_file(file)


def _read_file(file: SourceFile) -> Iterator[ReaderOutput]:
    transcript = Transcript(FORMAT, file.name, (), place=file.name)
    entries = _entries(file, transcript)
    first = next(entries, None)
    if first is None:
        told = transcript.warnings or [Warn("empty-conversation", file.name)]
        yield from (Skipped(each.kind, each.place, each.text) for each in told)
        return
    transcript.entries = _with(first, entries)
    yield transcript


def _with(first: Entry, rest: Iterator[Entry]) -> Iterator[Entry]:
    yield first
    yield from rest


def _entries(file: SourceFile, transcript: Transcript) -> Iterator[Entry]:
    last: str | None = None
    count = 0
    for place, value in _messages(file, transcript):
        given = mapping(value)
        about = given if "message" in given else {}
        try:
            message = Message.from_dict(given["message"] if about else given)
        except InvalidValue as error:
            transcript.warn("invalid-message", place, str(error))
            continue
        count, at = count + 1, time_of(about.get("at"))
        transcript.created_at = transcript.created_at or at
        yield Entry(f"m{count}", last, message, at, note=note_of(**mapping(about.get("note"))))
        last = f"m{count}"
    if last is not None:
        transcript.heads = [Head(last, transcript.id, True, transcript.title)]


def _messages(file: SourceFile, transcript: Transcript) -> Iterator[tuple[str, Json]]:
    for document in read_documents(file, transcript.warn, (_MESSAGES,)):
        value = mapping(document.value)
        title = string(value.get("title"))
        if title is not None and not {"message", "role"} & value.keys():
            transcript.title = title
        listed = value.get(_MESSAGES, document.value)
        if isinstance(listed, list):
            yield from ((_place(document, i), each) for i, each in enumerate(listed, 1))
        elif title is None or {"message", "role"} & value.keys():
            yield document.place or file.name, document.value


def _place(document: Document, number: int) -> str:
    return f"{document.place} message {number}".lstrip()
