"""A message while it is streamed: deltas in, a journal line for each, a message out.

Every delta that is fed gives the line that makes it durable; the lines alone make the same draft again. A
line that a crash cut off at the end is dropped; what stood before it is whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final

from objstore.jsonvalue import EMPTY, FloatFound, Json, dumps, freeze, freeze_object, loads, loads_exactly, text
from objstore.limits import MAX_OBJECT_BYTES
from objstore.message import RAW_ARGUMENTS, Message, Part, ReasoningPart, TextPart, ToolCallPart
from refs.errors import InvalidValue, LimitExceeded

MAX_DRAFT_BYTES: Final = MAX_OBJECT_BYTES
"""Journal lines of one draft, in bytes: more could not become a message."""


class DeltaKind(StrEnum):
    """What a delta adds to."""

    ROLE = "role"  # whose message it is; "assistant" until it is told
    TEXT = "text"
    REASONING = "reasoning"
    TOOL_CALL = "tool_call"
    PART = "part"  # a part that came whole
    END = "end"  # the message is complete


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a streamed message. Raises `InvalidValue`.

    `text` is a fragment of the text, of the reasoning, or of a tool call's arguments (or the role). `index`
    is the provider's number of the block or call, where it gives one; without it a fragment goes on with the
    last part if that is of its kind and, for a tool call, of no other id. `id` and `name` are a tool call's.
    `metadata` joins the part's provider_metadata. `part` is the JSON of a whole part.
    """

    kind: DeltaKind
    text: str = ""
    index: int | None = None
    id: str | None = None
    name: str | None = None
    metadata: Mapping[str, Json] = EMPTY
    part: Mapping[str, Json] = EMPTY

    def __post_init__(self) -> None:
        put = object.__setattr__
        if not isinstance(self.kind, str) or self.kind not in _KINDS:
            raise InvalidValue("kind", f"one of {', '.join(sorted(_KINDS))} is needed")
        put(self, "kind", DeltaKind(self.kind))
        put(self, "text", text(self.text, "text"))
        for key in ("id", "name"):
            value = getattr(self, key)
            put(self, key, None if value is None else text(value, key))
        if self.index is not None and (isinstance(self.index, bool) or not isinstance(self.index, int)):
            raise InvalidValue("index", "an integer is needed")
        if self.metadata is not EMPTY:
            put(self, "metadata", freeze_object(self.metadata, "metadata", floats=False))
        if self.part is not EMPTY:
            put(self, "part", freeze_object(self.part, "part"))
        if self.kind is DeltaKind.PART:
            Part.from_dict(self.part)
        if self.kind is DeltaKind.ROLE and not self.text:
            raise InvalidValue("text", "a role is a non-empty string")

    @classmethod
    def whole(cls, part: Part) -> Delta:
        """The delta of a part that came whole."""
        return cls(DeltaKind.PART, part=part.to_dict())

    def line(self) -> bytes:
        """One line of the journal: the members that say something, as JSON."""
        members = {each.name: getattr(self, each.name) for each in fields(self)}
        told = {key: value for key, value in members.items() if value is not None and value != EMPTY}
        if not self.text:
            del told["text"]
        return dumps({**told, "kind": self.kind.value}) + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Delta:
        """The delta of a journal line, or `InvalidValue`."""
        value = _read_json(line)
        if not isinstance(value, Mapping):
            raise InvalidValue("", "an object is needed")
        unknown = value.keys() - {each.name for each in fields(cls)}
        if unknown or "kind" not in value:
            raise InvalidValue(min(unknown, default="kind"), "no such key in a delta" if unknown else "missing")
        return cls(**value)


_KINDS: Final = frozenset(kind.value for kind in DeltaKind)


@dataclass(slots=True)
class _Open:
    """A part that grows."""

    kind: DeltaKind
    pieces: list[str] = field(default_factory=list)
    id: str | None = None
    name: str | None = None
    metadata: dict[str, Json] = field(default_factory=dict)
    whole: Part | None = None

    def part(self) -> Part:
        said = "".join(self.pieces)
        if self.whole is not None:
            return self.whole
        if self.kind is DeltaKind.TEXT:
            return TextPart(said, self.metadata)
        if self.kind is DeltaKind.REASONING:
            return ReasoningPart(said, provider_metadata=self.metadata)
        return _tool_call(self.name or "", said, self.id, self.metadata)


class DraftBuffer:
    """Collects the deltas of one streamed message. Not safe to feed from two threads."""

    def __init__(self) -> None:
        self.role = "assistant"
        self.ended = False
        self._parts: list[_Open] = []
        self._by_index: dict[tuple[DeltaKind, int], _Open] = {}
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes of the journal lines taken in: what a journal with a torn end is cut back to."""
        return self._size

    def feed(self, delta: Delta) -> bytes:
        """Take in a delta; the journal's line for it, to be written before anything is built on it.

        Raises `InvalidValue` after the end, `LimitExceeded` beyond `MAX_DRAFT_BYTES`; the draft is as before.
        """
        line = delta.line()
        if self.ended:
            raise InvalidValue("kind", "the draft has ended")
        if self._size + len(line) > MAX_DRAFT_BYTES:
            raise LimitExceeded("a draft", self._size + len(line), MAX_DRAFT_BYTES)
        self._size += len(line)
        if delta.kind is DeltaKind.END:
            self.ended = True
        elif delta.kind is DeltaKind.ROLE:
            self.role = delta.text
        elif delta.kind is DeltaKind.PART:
            self._parts.append(_Open(delta.kind, whole=Part.from_dict(delta.part)))
        else:
            part = self._part_of(delta)
            part.pieces.append(delta.text)
            part.id = part.id if delta.id is None else delta.id
            part.name = part.name if delta.name is None else delta.name
            part.metadata.update(delta.metadata)
        return line

    @classmethod
    def recover(cls, lines: Iterable[bytes]) -> DraftBuffer:
        """The draft that these journal lines are of, each with its newline; a last one without is dropped.

        Any other line that can't be read raises `InvalidValue` with its number: that is damage, not a crash.
        """
        draft = cls()
        torn = False
        for number, line in enumerate(lines, 1):
            if torn:
                raise InvalidValue(f"line {number - 1}", "cut off, but not the last")
            torn = not line.endswith(b"\n")
            if not torn:
                try:
                    draft.feed(Delta.from_line(line))
                except InvalidValue as error:
                    raise error.under(f"line {number}") from error
        return draft

    def message(self, *, partial: bool = False) -> Message:
        """The message. With `partial` what there is of it; else `InvalidValue` if it has not ended.

        Arguments that are no JSON object (yet) are kept under `_raw`.
        """
        if not self.ended and not partial:
            raise InvalidValue("", "the draft has not ended")
        return Message(self.role, [part.part() for part in self._parts])

    def _part_of(self, delta: Delta) -> _Open:
        if delta.index is not None:
            key = (delta.kind, delta.index)
            if key not in self._by_index:
                self._by_index[key] = self._new(delta.kind)
            return self._by_index[key]
        last = self._parts[-1] if self._parts else None
        if last is None or last.kind is not delta.kind or (last.id and delta.id and last.id != delta.id):
            return self._new(delta.kind)
        return last

    def _new(self, kind: DeltaKind) -> _Open:
        self._parts.append(_Open(kind))
        return self._parts[-1]


def _read_json(raw: bytes) -> Json:
    """Every number as it is written: orjson reads large integers as floats."""
    value = loads(raw)
    try:
        freeze(value, "", tell_floats=True)
    except FloatFound:
        return loads_exactly(raw)
    return value


def _tool_call(name: str, arguments: str, oid: str | None, metadata: Mapping[str, Any]) -> ToolCallPart:
    arguments = text(arguments, "arguments")  # two fragments may hold the halves of one character
    if not arguments.strip():
        return ToolCallPart(name, EMPTY, oid, provider_metadata=metadata)
    try:
        return ToolCallPart(name, _read_json(arguments.encode()), oid, provider_metadata=metadata)
    except (InvalidValue, UnicodeEncodeError):  # cut, too deep, or no object: the text is all there is to keep
        return ToolCallPart(name, {RAW_ARGUMENTS: arguments}, oid, provider_metadata=metadata)
