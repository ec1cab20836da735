"""What is known *about* nodes and conversations: calls, notes, descriptions, tombstones.

Time and ULIDs live here and in the reflog, never in a message or a node. All four are frozen, are written
as canonical JSON with the members that are there, and refuse members they don't know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import date
from typing import Any, ClassVar, Final, Self

import orjson

from objstore.jsonvalue import Json, dumps, freeze_object, text, thaw
from objstore.kinds import Kind
from objstore.limits import MAX_TEXT_FIELD_CHARS
from refs.errors import InvalidValue
from refs.ids import ROOT, MessageId, NodeId, Oid, PayloadId, is_oid

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z", re.ASCII)
_ULID: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", re.ASCII)


def check_time(value: object, path: str) -> str:
    """A time in UTC to the millisecond, `2026-01-02T03:04:05.678Z`: sorted as text, it is sorted by time."""
    made = value if isinstance(value, str) else ""
    try:
        if _TIME.fullmatch(made):
            date.fromisoformat(made[:10])  # 30 February is refused here
            return text(made, path)
    except ValueError:
        pass
    raise InvalidValue(path, "a time like 2026-01-02T03:04:05.678Z is needed")


def check_ulid(value: object, path: str) -> str:
    if not isinstance(value, str) or not _ULID.fullmatch(value):
        raise InvalidValue(path, "a ULID (26 upper-case base32 digits) is needed")
    return text(value, path)


def _text(value: object, path: str) -> str:
    made = text(value, path)
    if len(made) > MAX_TEXT_FIELD_CHARS:
        raise InvalidValue(path, f"longer than {MAX_TEXT_FIELD_CHARS} characters")
    return made


def _name(value: object, path: str) -> str:
    if not (made := _text(value, path)):
        raise InvalidValue(path, "empty")
    return made


def _count(value: object, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise InvalidValue(path, "an integer from 0 to 2^63 - 1 is needed")
    return int(value)


def _oid(value: object, path: str) -> str:
    if not is_oid(value):
        raise InvalidValue(path, "64 lower-case hex digits are needed")
    return text(value, path)


def _object(value: object, path: str) -> Json:
    return freeze_object(value, path, depth=1)


def _nodes(value: object, path: str) -> Json:
    frozen = freeze_object(value, path, depth=1)
    for oid, about in frozen.items():
        _oid(oid, f"{path}.{oid[:80]}")
        if not isinstance(about, Mapping):
            raise InvalidValue(f"{path}.{oid}", "an object is needed")
    return frozen


def _tags(value: object, path: str) -> Json:
    if not isinstance(value, list | tuple):
        raise InvalidValue(path, "a list of strings is needed")
    return tuple(_name(tag, f"{path}[{i}]") for i, tag in enumerate(value))


def _source(value: object, path: str) -> Json:
    frozen = freeze_object(value, path, depth=1)
    if frozen.keys() - {"format", "id", "importer"} or not all(isinstance(v, str) for v in frozen.values()):
        raise InvalidValue(path, "an object of the strings format, id and importer is needed")
    return frozen


class Record:
    """Base of the first three: `_rules` says how each member is checked, `_needed` which must be there."""

    __slots__ = ("_plain",)  # set where orjson is known to write what `dumps` would, but for what it refuses
    kind: ClassVar[Kind]
    _rules: ClassVar[Mapping[str, Any]]
    _needed: ClassVar[frozenset[str]]

    def __post_init__(self) -> None:
        for key, check in self._rules.items():
            value = getattr(self, key)
            if value is not None:
                object.__setattr__(self, key, check(value, key))
            elif key in self._needed:
                raise InvalidValue(key, "missing")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON with the members that are there."""
        return {key: list(value) if isinstance(value, tuple) else thaw(value) for key, value in self._members()}

    def canonical(self) -> bytes:
        return self.write(dict(self._members()))

    def write(self, value: Json) -> bytes:
        """`dumps` for what is made of this record's own members."""
        if hasattr(self, "_plain"):
            try:
                return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
            except TypeError:  # an integer beyond 64 bits, or a lone surrogate
                pass
        return dumps(value)

    def _members(self) -> Iterator[tuple[str, Json]]:
        for key in self._rules:
            value = getattr(self, key)
            if value is not None:
                yield key, value

    @classmethod
    def from_dict(cls, value: object) -> Self:
        """From parsed JSON; an unknown or null member is refused with `InvalidValue`."""
        if not isinstance(value, Mapping):
            raise InvalidValue("", f"a {cls.kind} is an object, not {type(value).__name__}")
        unknown = value.keys() - cls._rules.keys()
        if unknown:
            raise InvalidValue(min(map(str, unknown)), f"no such key in a {cls.kind}")
        for key in sorted(cls._needed - value.keys()):
            raise InvalidValue(key, "missing")
        for key, member in value.items():
            if member is None:
                raise InvalidValue(key, "is left out rather than null")
        return cls(**value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return type(self) is type(other) and self.canonical() == other.canonical()

    def __hash__(self) -> int:
        return hash(self.canonical())


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Call(Record):
    """One LLM call: asked at `head_input`, answered with the chain up to `head_output`.

    `call` is its ULID; `duration_ms` in milliseconds; token counts in the provider's tokens;
    `instructions` the message and `tools` the payload (a JSON list) that travelled outside the chain;
    `request` and `response` what else was sent and came back, never headers.
    """

    call: str
    model: str
    head_input: NodeId
    started_at: str
    head_output: NodeId | None = None
    conversation: str | None = None
    duration_ms: int | None = None
    error: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    token_details: Mapping[str, Json] | None = None
    resolved_model: str | None = None
    instructions: MessageId | None = None
    tools: PayloadId | None = None
    options: Mapping[str, Json] | None = None
    request: Mapping[str, Json] | None = None
    response: Mapping[str, Json] | None = None

    kind: ClassVar[Kind] = Kind.CALL
    _needed: ClassVar[frozenset[str]] = frozenset({"call", "model", "head_input", "started_at"})
    _rules: ClassVar[Mapping[str, Any]] = {
        "call": check_ulid,
        "conversation": _name,
        "duration_ms": _count,
        "error": _text,
        "head_input": lambda value, path: ROOT if value == ROOT else _oid(value, path),
        "head_output": _oid,
        "input_tokens": _count,
        "instructions": _oid,
        "model": _name,
        "options": _object,
        "output_tokens": _count,
        "request": _object,
        "resolved_model": _name,
        "response": _object,
        "started_at": check_time,
        "token_details": _object,
        "tools": _oid,
    }


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Note(Record):
    """What one transaction knew about the nodes it stored: source ids, times, flags. `note` is its ULID."""

    note: str
    at: str
    nodes: Mapping[str, Mapping[str, Json]]

    kind: ClassVar[Kind] = Kind.NOTE
    _needed: ClassVar[frozenset[str]] = frozenset({"note", "at", "nodes"})
    _rules: ClassVar[Mapping[str, Any]] = {"at": check_time, "nodes": _nodes, "note": check_ulid}

    @classmethod
    def trusted(cls, note: str, at: str, nodes: Mapping[str, Mapping[str, Json]]) -> Note:
        """A note of members that are known to be good: many times faster.

        What is said about each node holds text without surrogates and frozen values in which nothing is `odd`.
        Neither `nodes` nor what is in it may be changed from now on.
        """
        made = cls.__new__(cls)
        put = object.__setattr__
        put(made, "note", note)
        put(made, "at", at)
        put(made, "nodes", nodes)
        put(made, "_plain", True)
        return made


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Description(Record):
    """What is known about the conversation named `description`. Replaced as a whole."""

    description: str
    created_at: str
    title: str | None = None
    model: str | None = None
    forked_from: NodeId | None = None
    source: Mapping[str, Json] | None = None
    tags: tuple[str, ...] | None = None

    kind: ClassVar[Kind] = Kind.DESCRIPTION
    _needed: ClassVar[frozenset[str]] = frozenset({"description", "created_at"})
    _rules: ClassVar[Mapping[str, Any]] = {
        "created_at": check_time,
        "description": _name,
        "forked_from": _oid,
        "model": _name,
        "source": _source,
        "tags": _tags,
        "title": _text,
    }


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Stands where the bytes of a message or payload were erased on purpose."""

    kind: Kind
    id: Oid
    at: str
    reason: str

    def __post_init__(self) -> None:
        put = object.__setattr__
        if self.kind not in (Kind.MESSAGE, Kind.PAYLOAD):
            raise InvalidValue("tombstone.kind", "only a message or a payload can be erased")
        put(self, "kind", Kind(self.kind))
        put(self, "id", Oid(_oid(self.id, "tombstone.id")))
        put(self, "at", check_time(self.at, "tombstone.at"))
        put(self, "reason", _text(self.reason, "tombstone.reason"))

    def canonical(self) -> bytes:
        members = {"at": self.at, "id": self.id, "kind": self.kind.value, "reason": self.reason}
        return dumps({"tombstone": members})

    @classmethod
    def from_dict(cls, value: object) -> Tombstone:
        held = value.get("tombstone") if isinstance(value, Mapping) and len(value) == 1 else None
        if not isinstance(held, Mapping) or held.keys() != {each.name for each in fields(cls)}:
            raise InvalidValue("tombstone", "an object of exactly kind, id, at and reason is needed")
        return cls(**held)
