"""A message while a reader makes it: its parts, and what is known about them and is no part of them.

What belongs to one part (an image's `detail`, the text that its arguments were written as) goes into the
message's note under `parts`, by the part's position: `{"parts": {"1": {"detail": "high"}}}`. The writers of
`objstore.transcripts.export` look there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from objstore.attachment import Attachment
from objstore.jsonvalue import EMPTY, Json, dumps, freeze
from objstore.limits import MAX_NESTING
from objstore.message import RAW_ARGUMENTS, AttachmentPart, Part, ReasoningPart, TextPart, ToolCallPart
from objstore.transcripts.build import arguments_of, unknown_part
from objstore.transcripts.warnings import Warner

_MAX_DEPTH: Final = MAX_NESTING - 16
"""Levels of a foreign record: some room for what a message and a note put around it."""


def extras_of(note: Mapping[str, Json], index: int) -> Mapping[str, Json]:
    """What a note holds about the part at `index`."""
    parts = note.get("parts")
    found = parts.get(str(index)) if isinstance(parts, Mapping) else None
    return found if isinstance(found, Mapping) else EMPTY


def string(value: object) -> str | None:
    """`value` if it is a string, else None: what a foreign field is worth that should hold one."""
    return value if isinstance(value, str) else None


def mapping(value: object) -> Mapping[str, Json]:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else EMPTY  # many times faster than asking for a Mapping


def sequence(value: object) -> Sequence[Json]:
    """`value` if it is a list, else an empty one."""
    return value if isinstance(value, list | tuple) else ()


def written(arguments: Mapping[str, Json]) -> str:
    """Tool arguments as the writers write them: what need not be noted."""
    if list(arguments) == [RAW_ARGUMENTS] and isinstance(arguments[RAW_ARGUMENTS], str):
        return str(arguments[RAW_ARGUMENTS])
    return dumps(freeze(arguments, "")).decode()


def holds_float(value: Json) -> bool:
    """Whether a float stands anywhere in it. Iterative: foreign JSON may be deep."""
    open_values = [value]
    while open_values:
        each = open_values.pop()
        if isinstance(each, float):
            return True
        if isinstance(each, Mapping):
            open_values.extend(each.values())
        elif isinstance(each, list | tuple):
            open_values.extend(each)
    return False


def is_deep(value: Json) -> bool:
    """Whether a value is nested too deeply to stand in a message or a note."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            item
            for each in level
            if isinstance(each, dict | list)
            for item in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


class Draft:
    """One message in the making. `warn` tells at its place, `warn_at` at any."""

    __slots__ = ("metadata", "note", "parts", "place", "role", "warn_at")

    def __init__(self, role: str, place: str, warn: Warner) -> None:
        self.role, self.place, self.warn_at = role, place, warn
        self.parts: list[Part] = []
        self.note: dict[str, Json] = {}
        self.metadata: dict[str, Json] = {}

    def warn(self, kind: str, text: str = "") -> None:
        self.warn_at(kind, self.place, text)

    def extra(self, **extras: Json) -> None:
        """Keep what belongs to the part that is added next, as far as it isn't None."""
        for key, value in extras.items():
            if value is not None:
                self.note.setdefault("parts", {}).setdefault(str(len(self.parts)), {})[key] = value

    def sendable(self, provider: str, values: Mapping[str, Json]) -> Mapping[str, Json]:
        """provider_metadata for the part that is added next: what isn't None. Floats go into the note."""
        for key, value in values.items():
            if holds_float(value):
                self.extra(**{key: value})
        kept = {key: value for key, value in values.items() if value is not None and not holds_float(value)}
        return {provider: kept} if kept else EMPTY

    def text(self, value: Json, metadata: Mapping[str, Json] = EMPTY) -> None:
        """A text part; anything but a string is kept as what it is."""
        if isinstance(value, str):
            self.parts.append(TextPart(value, metadata))
        elif value is not None:
            self.unknown(value)

    def reasoning(self, text: str, metadata: Mapping[str, Json] = EMPTY, redacted: bool = False) -> None:
        self.parts.append(ReasoningPart(text, redacted=redacted, provider_metadata=metadata))

    def attach(self, attachment: Attachment) -> None:
        self.parts.append(AttachmentPart(attachment))

    def attach_or_keep(self, attachment: Attachment | None, given: Json) -> None:
        """Attach, or keep the block that should have held something to attach."""
        if attachment is None:
            self.unknown(given)
        else:
            self.attach(attachment)

    def call(
        self,
        name: str,
        given: Json,
        call_id: str | None,
        metadata: Mapping[str, Json] = EMPTY,
        server: bool = False,
    ) -> None:
        """A tool call, its arguments as text or as an object; how a text was written is noted where needed."""
        arguments = arguments_of(given, self.warn_at, self.place)
        if isinstance(given, str) and given != written(arguments):
            self.extra(arguments=given)
        self.parts.append(ToolCallPart(name, arguments, call_id, server, metadata))

    def unknown(self, value: Json, kind: str = "unknown-part") -> None:
        """Keep what has no part of its own, and say so."""
        part = unknown_part(value, lambda _, place, text: self.warn_at(kind, place, text), self.place)
        self.parts.append(part)
