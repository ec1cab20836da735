"""What the exports of chat services share: many conversations in one JSON file, some of them twice.

A file is an array of conversations, an object with one under `conversations` (or other names), or one bare
conversation. It is read as a stream, twice: first for the ids alone, because copies of one conversation may
lie anywhere in several files and become one conversation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from objstore.jsonvalue import Json
from objstore.transcripts.jsonfile import ArrayReader
from objstore.transcripts.model import Entry, Skipped, Warn
from objstore.transcripts.source import Source, SourceFile

_TITLE_CHARS: Final = 80
_UNREADABLE: Final = frozenset({"record-too-deep", "record-too-long", "torn-document", "unreadable-file"})

IdOf = Callable[[Json], str | None]


@dataclass(slots=True)
class Found:
    """One copy of a conversation: its JSON, where it stands, and what reading it told."""

    value: Json
    place: str
    warnings: list[Warn] = field(default_factory=list)

    def warn(self, kind: str, place: str, text: str = "") -> None:
        self.warnings.append(Warn(kind, place, text))


def read_conversations(
    source: Source, id_of: IdOf, names: Collection[str] = ("conversations",)
) -> Iterator[list[Found] | Skipped]:
    """Each conversation with all its copies, at the place of the last one; and what couldn't be read."""
    files = source.files()
    left: Counter[str] = Counter()
    for file in files:
        # What this tells is told again in the second reading.
        left.update(
            key for each in _elements(file, names) if isinstance(each, Found) and (key := id_of(each.value))
        )
    waiting: dict[str, list[Found]] = {}
    for file in files:
        for each in _elements(file, names):
            if isinstance(each, Skipped):
                yield each
                continue
            key = id_of(each.value)
            if key is None:
                yield [each]
                continue
            left[key] -= 1
            if left[key] > 0:
                waiting.setdefault(key, []).append(each)
            else:
                yield [*waiting.pop(key, ()), each]


def _elements(file: SourceFile, names: Collection[str]) -> Iterator[Found | Skipped]:
    told: list[Warn] = []
    reader = ArrayReader(file, lambda kind, place, text: told.append(Warn(kind, place, text)), names)
    for element in reader:
        place = f"{file.name}#{element.index}"
        unread = [each for each in told if each.kind in _UNREADABLE]
        yield (
            Skipped(unread[0].kind, place, unread[0].text) if unread else Found(element.value, place, told.copy())
        )
        told.clear()
    if reader.is_object and not reader.found:
        unread = [each for each in told if each.kind in _UNREADABLE]
        yield (
            Skipped(unread[0].kind, file.name, unread[0].text)
            if unread
            else Found(reader.members, file.name, told)
        )
    else:
        yield from (Skipped(each.kind, f"{file.name}: {each.place}", each.text) for each in told)


def newest_leaf(entries: Sequence[Entry]) -> str | None:
    """The key of the leaf with the latest time; the last one where times are equal or unknown."""
    inner = {entry.parent for entry in entries}
    leaves = [(entry.at or "", i, entry.key) for i, entry in enumerate(entries) if entry.key not in inner]
    return max(leaves)[2] if leaves else None


def is_forked(entries: Sequence[Entry]) -> bool:
    """Whether there is more than one leaf."""
    inner = {entry.parent for entry in entries}
    return sum(entry.key not in inner for entry in entries) > 1


def title_from(entries: Sequence[Entry]) -> str | None:
    """A title for a conversation without one: how its first user message begins."""
    for entry in entries:
        words = entry.message.text.split() if entry.message.role == "user" else ()
        if words and not entry.note.get("hidden"):
            title = " ".join(words)
            return title if len(title) <= _TITLE_CHARS else title[: _TITLE_CHARS - 1] + "…"
    return None


def kept_fields(value: Mapping[str, Json], without: Collection[str]) -> dict[str, Json]:
    """What a record holds beside `without`: for its note. Null and empty values are left out."""
    return {
        key: item
        for key, item in value.items()
        if key not in without and item is not None and not (isinstance(item, str | list | dict) and not item)
    }
