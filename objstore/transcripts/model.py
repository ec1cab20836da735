"""What every reader gives: conversations as entries, in an order in which parents come first.

Nothing here knows a store. Keys are the source's own ids (or made from positions where it has none) and
mean something only within their transcript.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from objstore.jsonvalue import EMPTY, Json
from objstore.limits import MAX_FILE_WARNINGS
from objstore.message import Message

IMPORTER: Final = "msgdag 1"
"""Named in every description an import writes: which reading of a format this was."""


class Certainty(StrEnum):
    """How sure `sniff` is that a file is of its format."""

    NO = "no"
    MAYBE = "maybe"  # the shape fits, but it would fit other formats too
    YES = "yes"


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of a transcript. `parent` is the key of the entry before it, None for a first one.

    `called_by` is the key of the entry that asked for this one (only on the first message of a side chain,
    or a later prompt to the same agent), `tool_call_id` which tool call in it. `at` is a time as in
    `records.check_time`. `note` holds what is known about the message and is no part of it: source ids,
    `hidden`, `sidechain`, `inferred_parent`, model, weight, …
    """

    key: str
    parent: str | None
    message: Message
    at: str | None = None
    called_by: str | None = None
    tool_call_id: str | None = None
    note: Mapping[str, Json] = EMPTY


@dataclass(frozen=True, slots=True)
class Head:
    """Where a branch ends. `label` is stable from one import to the next (a session id, a leaf's id)."""

    key: str
    label: str
    active: bool = False
    title: str | None = None


@dataclass(frozen=True, slots=True)
class SourceCall:
    """One LLM call as the source tells it; the fields of `records.Call`, nodes given as entry keys.

    `id` is the source's own (a response or request id): each is counted once, however often it is repeated.
    """

    id: str
    model: str
    head_input: str | None
    head_output: str | None = None
    started_at: str | None = None
    duration_ms: int | None = None
    error: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    token_details: Mapping[str, Json] | None = None
    resolved_model: str | None = None
    options: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class Warn:
    """Something a reader repaired, skipped or could not hold: a named kind, and where (`line 12`, `m4`)."""

    kind: str
    place: str
    text: str = ""


@dataclass(slots=True)
class Transcript:
    """One conversation of a source.

    `entries` may be a generator that reads as it goes: it yields parents before their children, and
    `heads`, `calls`, `warnings` and `title` are complete only when it is used up. `id` names the
    conversation within its format for ever (a session or conversation id).
    """

    format: str
    id: str
    entries: Iterable[Entry]
    heads: list[Head] = field(default_factory=list)
    calls: list[SourceCall] = field(default_factory=list)
    warnings: list[Warn] = field(default_factory=list)
    title: str | None = None
    model: str | None = None
    created_at: str | None = None
    tags: tuple[str, ...] = ()
    place: str = ""
    """Which file (and where in it) this came from, for reports."""

    _told: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    def warn(self, kind: str, place: str, text: str = "") -> None:
        """Add a warning. No more than `MAX_FILE_WARNINGS` of one kind: they must not grow with the file."""
        told = self._told[kind] = self._told.get(kind, 0) + 1
        if told < MAX_FILE_WARNINGS:
            self.warnings.append(Warn(kind, place, text))
        elif told == MAX_FILE_WARNINGS:
            self.warnings.append(Warn(kind, place, "and more of this kind that are not listed"))

    def read_all(self) -> list[Entry]:
        """All entries in memory: for tests and small sources."""
        self.entries = list(self.entries)
        return self.entries


@dataclass(frozen=True, slots=True)
class Skipped:
    """A conversation, file or record that could not be read at all. Never stops the rest."""

    kind: str
    place: str
    text: str = ""


ReaderOutput = Transcript | Skipped
