"""Messages and their parts: frozen values, equal when their canonical bytes are equal.

What a message *is* stands in docs/format.md; this module holds the shapes, `objstore.canonical` makes the
bytes and ids. `to_dict` and `from_dict` speak plain JSON. Every constructor raises `InvalidValue` with the
path of what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from objstore.attachment import Attachment, ContentWriter, write_base64
from objstore.jsonvalue import (
    EMPTY,
    FrozenDict,
    Json,
    dumps,
    freeze,
    freeze_object,
    is_odd,
    text,
    thaw,
)
from refs.errors import InvalidValue
from refs.ids import MessageId

_PART_DEPTH = 3  # a part's own members stand at this level of the message's JSON
RAW_ARGUMENTS = "_raw"
"""The key that keeps tool arguments which are not an object: `{"_raw": "<the text>"}`."""


class Part:
    """Base of everything a message can hold."""

    __slots__ = ()
    type: ClassVar[str] = ""

    @property
    def plain(self) -> bool:
        """Whether `members` is all there is, and holds no float that orjson would write otherwise."""
        return True

    def members(self, metadata: bool = True) -> Mapping[str, Json]:
        """The members of the canonical form but for attachments; no provider_metadata where `metadata` is off."""
        raise TypeError(f"{type(self).__name__} is not a part")

    def canonical(self, metadata: bool = True, content: ContentWriter = write_base64) -> bytes:
        """Canonical JSON of the part."""
        return dumps(self.members(metadata))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON: the members of the canonical form."""
        made: dict[str, Any] = thaw(self.members())
        return made

    @classmethod
    def _read(cls, value: Mapping[str, Any], tell_floats: bool) -> Part:
        raise TypeError(f"{cls.__name__} is not a part")

    @staticmethod
    def from_dict(value: object, *, tell_floats: bool = False) -> Part:
        """A part from its JSON. A type that isn't known becomes an `UnknownPart`."""
        if not isinstance(value, Mapping):
            raise InvalidValue("", f"an object is needed, not {value.__class__.__name__}")
        known = _TYPES.get(value["type"]) if isinstance(value.get("type"), str) else None
        return (known or UnknownPart)._read(value, tell_floats)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Part):
            return NotImplemented
        return type(self) is type(other) and self.canonical() == other.canonical()

    def __hash__(self) -> int:
        return hash(self.canonical())


def _metadata(value: object, depth: int, tell_floats: bool = False) -> FrozenDict:
    if not value and (value is None or isinstance(value, Mapping)):
        return EMPTY
    return freeze_object(value, "provider_metadata", floats=False, tell_floats=tell_floats, depth=depth)


def _flag(value: object, path: str) -> bool:
    if isinstance(value, bool) or value is None:
        return bool(value)
    raise InvalidValue(path, f"true or false is needed, not {type(value).__name__}")


def _optional_text(value: object, path: str) -> str | None:
    return None if value is None else text(value, path)


def _required(value: Mapping[str, Any], key: str) -> Any:
    if key not in value:
        raise InvalidValue(key, "missing")
    return value[key]


def _sequence(value: object, path: str) -> tuple[Any, ...]:
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | bytearray | memoryview | Mapping | Set):
        raise InvalidValue(path, f"a list is needed, not {type(value).__name__}")
    return tuple(value)


@dataclass(frozen=True, slots=True, eq=False)
class TextPart(Part):
    """What was said."""

    text: str
    provider_metadata: Mapping[str, Json] = EMPTY
    type: ClassVar[str] = "text"

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", text(self.text, "text"))
        if self.provider_metadata is not EMPTY:
            object.__setattr__(self, "provider_metadata", _metadata(self.provider_metadata, _PART_DEPTH))

    def members(self, metadata: bool = True) -> Mapping[str, Json]:
        if metadata and self.provider_metadata:
            return {"provider_metadata": self.provider_metadata, "text": self.text, "type": "text"}
        return {"text": self.text, "type": "text"}

    @classmethod
    def _read(cls, value: Mapping[str, Any], tell_floats: bool) -> Self:
        return cls(_required(value, "text"), _metadata(value.get("provider_metadata"), _PART_DEPTH, tell_floats))


@dataclass(frozen=True, slots=True, eq=False)
class ReasoningPart(Part):
    """What was thought. `redacted`: the provider keeps the text; `token_count`: its length in tokens."""

    text: str = ""
    redacted: bool = False
    token_count: int | None = None
    provider_metadata: Mapping[str, Json] = EMPTY
    type: ClassVar[str] = "reasoning"

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "text", text(self.text, "text"))
        put(self, "redacted", _flag(self.redacted, "redacted"))
        count = self.token_count
        if count is not None and (isinstance(count, bool) or not isinstance(count, int)):
            raise InvalidValue("token_count", f"an integer is needed, not {count.__class__.__name__}")
        put(self, "token_count", freeze(count, "token_count"))
        put(self, "provider_metadata", _metadata(self.provider_metadata, _PART_DEPTH))

    def members(self, metadata: bool = True) -> Mapping[str, Json]:
        members: dict[str, Json] = {"text": self.text, "type": "reasoning"}
        if self.redacted:
            members["redacted"] = True
        if self.token_count is not None:
            members["token_count"] = self.token_count
        if metadata and self.provider_metadata:
            members["provider_metadata"] = self.provider_metadata
        return members

    @classmethod
    def _read(cls, value: Mapping[str, Any], tell_floats: bool) -> Self:
        # A count of 2^64 and more may have been read as a float; it is told like any other float.
        count = freeze(value.get("token_count"), "token_count", tell_floats=tell_floats)
        return cls(
            _required(value, "text"),
            value.get("redacted", False),
            count,
            _metadata(value.get("provider_metadata"), _PART_DEPTH, tell_floats),
        )


@dataclass(frozen=True, slots=True, eq=False)
class ToolCallPart(Part):
    """A request to run a tool. Arguments that are not an object are kept as `{"_raw": "<the text>"}`."""

    name: str
    arguments: Mapping[str, Json] = EMPTY
    tool_call_id: str | None = None
    server_executed: bool = False
    provider_metadata: Mapping[str, Json] = EMPTY
    type: ClassVar[str] = "tool_call"

    def __post_init__(self) -> None:
        self._check(False)

    def _check(self, tell_floats: bool) -> None:
        put = object.__setattr__
        put(self, "name", text(self.name, "name"))
        frozen = freeze_object(self.arguments, "arguments", tell_floats=tell_floats, depth=_PART_DEPTH)
        put(self, "arguments", frozen)
        put(self, "tool_call_id", _optional_text(self.tool_call_id, "tool_call_id"))
        put(self, "server_executed", _flag(self.server_executed, "server_executed"))
        put(self, "provider_metadata", _metadata(self.provider_metadata, _PART_DEPTH, tell_floats))

    @property
    def plain(self) -> bool:
        return not is_odd(self.arguments)

    def members(self, metadata: bool = True) -> Mapping[str, Json]:
        members: dict[str, Json] = {"arguments": self.arguments, "name": self.name, "type": "tool_call"}
        if self.server_executed:
            members["server_executed"] = True
        if self.tool_call_id is not None:
            members["tool_call_id"] = self.tool_call_id
        if metadata and self.provider_metadata:
            members["provider_metadata"] = self.provider_metadata
        return members

    @classmethod
    def _read(cls, value: Mapping[str, Any], tell_floats: bool) -> Self:
        made = cls.__new__(cls)
        put = object.__setattr__
        put(made, "name", _required(value, "name"))
        put(made, "arguments", _required(value, "arguments"))
        put(made, "tool_call_id", value.get("tool_call_id"))
        put(made, "server_executed", value.get("server_executed", False))
        put(made, "provider_metadata", value.get("provider_metadata"))
        made._check(tell_floats)
        return made


@dataclass(frozen=True, slots=True, eq=False)
class ToolResultPart(Part):
    """What a tool gave back. `exception` says that it failed, and how."""

    name: str
    output: str
    tool_call_id: str | None = None
    server_executed: bool = False
    exception: str | None = None
    attachments: Sequence[Attachment] = ()
    provider_metadata: Mapping[str, Json] = EMPTY
    type: ClassVar[str] = "tool_result"

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "name", text(self.name, "name"))
        put(self, "output", text(self.output, "output"))
        put(self, "tool_call_id", _optional_text(self.tool_call_id, "tool_call_id"))
        put(self, "server_executed", _flag(self.server_executed, "server_executed"))
        put(self, "exception", _optional_text(self.exception, "exception"))
        put(self, "attachments", _sequence(self.attachments, "attachments"))
        for i, attachment in enumerate(self.attachments):
            if not isinstance(attachment, Attachment):
                raise InvalidValue(f"attachments[{i}]", f"not an Attachment: {type(attachment).__name__}")
        put(self, "provider_metadata", _metadata(self.provider_metadata, _PART_DEPTH))

    @property
    def plain(self) -> bool:
        return not self.attachments

    def members(self, metadata: bool = True) -> Mapping[str, Json]:
        members: dict[str, Json] = {"name": self.name, "output": self.output, "type": "tool_result"}
        if self.exception is not None:
            members["exception"] = self.exception
        if self.server_executed:
            members["server_executed"] = True
        if self.tool_call_id is not None:
            members["tool_call_id"] = self.tool_call_id
        if metadata and self.provider_metadata:
            members["provider_metadata"] = self.provider_metadata
        return members

    def canonical(self, metadata: bool = True, content: ContentWriter = write_base64) -> bytes:
        rest = Part.canonical(self, metadata)
        if not self.attachments:
            return rest
        # "attachments" sorts before every other key of this part.
        return b'{"attachments":[' + b",".join(a.canonical(content) for a in self.attachments) + b"]," + rest[1:]

    def to_dict(self) -> dict[str, Any]:
        made = Part.to_dict(self)
        if self.attachments:
            made["attachments"] = [attachment.to_dict() for attachment in self.attachments]
        return made

    @classmethod
    def _read(cls, value: Mapping[str, Any], tell_floats: bool) -> Self:
        given = value.get("attachments")
        attachments = []
        for i, item in enumerate(() if given is None else _sequence(given, "attachments")):
            try:
                attachments.append(item if isinstance(item, Attachment) else Attachment.from_dict(item))
            except InvalidValue as error:
                raise error.under(f"attachments[{i}]") from error
        return cls(
            _required(value, "name"),
            _required(value, "output"),
            value.get("tool_call_id"),
            value.get("server_executed", False),
            value.get("exception"),
            attachments,
            _metadata(value.get("provider_metadata"), _PART_DEPTH, tell_floats),
        )


@dataclass(frozen=True, slots=True, eq=False)
class AttachmentPart(Part):
    """A file that stands in a message by itself."""

    attachment: Attachment | None = None
    type: ClassVar[str] = "attachment"

    def __post_init__(self) -> None:
        if self.attachment is not None and not isinstance(self.attachment, Attachment):
            raise InvalidValue("attachment", f"not an Attachment: {self.attachment.__class__.__name__}")

    @property
    def plain(self) -> bool:
        return self.attachment is None

    def members(self, metadata: bool = True) -> Mapping[str, Json]:
        return {"type": "attachment"}

    def canonical(self, metadata: bool = True, content: ContentWriter = write_base64) -> bytes:
        if self.attachment is None:
            return Part.canonical(self)
        return b'{"attachment":%b,"type":"attachment"}' % self.attachment.canonical(content)

    def to_dict(self) -> dict[str, Any]:
        if self.attachment is None:
            return {"type": "attachment"}
        return {"type": "attachment", "attachment": self.attachment.to_dict()}

    @classmethod
    def _read(cls, value: Mapping[str, Any], tell_floats: bool) -> Self:
        given = value.get("attachment")
        if given is None or isinstance(given, Attachment):
            return cls(given)
        try:
            return cls(Attachment.from_dict(given))
        except InvalidValue as error:
            raise error.under("attachment") from error


@dataclass(frozen=True, slots=True, eq=False)
class UnknownPart(Part):
    """A part of a type that isn't known here, kept as its JSON so that nothing is lost."""

    value: Mapping[str, Json] = field(default=EMPTY)

    def __post_init__(self) -> None:
        self._check(False)

    def _check(self, tell_floats: bool) -> None:
        frozen = freeze_object(self.value, "", tell_floats=tell_floats, depth=_PART_DEPTH - 1)
        if isinstance(frozen.get("type"), str) and frozen["type"] in _TYPES:
            raise InvalidValue("type", f"{frozen['type']!r} is a known type of part")
        if "provider_metadata" in frozen:
            freeze(frozen["provider_metadata"], "provider_metadata", floats=False)
        object.__setattr__(self, "value", frozen)

    @property
    def plain(self) -> bool:
        return not is_odd(self.value)

    def members(self, metadata: bool = True) -> Mapping[str, Json]:
        if metadata or "provider_metadata" not in self.value:
            return self.value
        return {key: item for key, item in self.value.items() if key != "provider_metadata"}

    @classmethod
    def _read(cls, value: Mapping[str, Any], tell_floats: bool) -> Self:
        made = cls.__new__(cls)
        object.__setattr__(made, "value", value)
        made._check(tell_floats)
        return made


_TYPES: dict[str, type[Part]] = {
    part.type: part for part in (TextPart, ReasoningPart, ToolCallPart, ToolResultPart, AttachmentPart)
}


def attachments_of(part: Part) -> Sequence[Attachment]:
    """The attachments of a part, in order."""
    if isinstance(part, AttachmentPart):
        return () if part.attachment is None else (part.attachment,)
    return part.attachments if isinstance(part, ToolResultPart) else ()


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """What somebody said: a role (any non-empty string), parts, and what the provider must get back.

    What is known *about* a message (times, source ids, flags) belongs into a note, not in here.
    """

    role: str
    parts: Sequence[Part] = ()
    provider_metadata: Mapping[str, Json] = EMPTY
    _id: MessageId | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self._check(False)

    def _check(self, tell_floats: bool) -> None:
        put = object.__setattr__
        put(self, "role", text(self.role, "role"))
        if not self.role:
            raise InvalidValue("role", "a role is a non-empty string")
        put(self, "parts", _sequence(self.parts, "parts"))
        for i, part in enumerate(self.parts):
            if not isinstance(part, Part) or type(part) is Part:
                raise InvalidValue(f"parts[{i}]", f"not a part: {type(part).__name__}")
        if self.provider_metadata is not EMPTY:
            put(self, "provider_metadata", _metadata(self.provider_metadata, 1, tell_floats))

    @classmethod
    def of(cls, role: str, words: str) -> Message:
        """A message of one text part."""
        return cls(role, (TextPart(words),))

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON: the members of the canonical form."""
        made: dict[str, Any] = {"role": self.role, "parts": [part.to_dict() for part in self.parts]}
        if self.provider_metadata:
            made["provider_metadata"] = thaw(self.provider_metadata)
        return made

    @classmethod
    def from_dict(cls, value: object, *, tell_floats: bool = False) -> Message:
        """A message from its JSON; keys that aren't known are dropped. Raises `InvalidValue`.

        `tell_floats` raises `FloatFound` at the first float (see `objstore.jsonvalue.loads`).
        """
        if not isinstance(value, Mapping):
            raise InvalidValue("", f"a message is an object, not {value.__class__.__name__}")
        read: list[Part] = []
        for i, part in enumerate(_sequence(_required(value, "parts"), "parts")):
            try:
                read.append(part if isinstance(part, Part) else Part.from_dict(part, tell_floats=tell_floats))
            except InvalidValue as error:
                raise error.under(f"parts[{i}]") from error
        made = cls.__new__(cls)
        put = object.__setattr__
        put(made, "role", _required(value, "role"))
        put(made, "parts", read)
        put(made, "provider_metadata", _metadata(value.get("provider_metadata"), 1, tell_floats))
        put(made, "_id", None)
        made._check(tell_floats)
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return (
            self.role == other.role
            and self.parts == other.parts
            and dumps(self.provider_metadata) == dumps(other.provider_metadata)
        )

    def __hash__(self) -> int:
        return hash((self.role, self.parts))
