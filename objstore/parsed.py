"""Messages from their bytes by the shortest way: what `Message.from_dict` makes of the same JSON, much faster.

What orjson gives is of Python's own types, and holds neither lone surrogates nor endless numbers; so little
is left to check. Whatever isn't as it is in nearly all messages is left to `from_dict`, and so is every error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from sys import getsizeof
from typing import Any, Final, TypeVar

import orjson

from objstore.attachment import Attachment
from objstore.jsonvalue import EMPTY, FloatFound, Json, check_nesting, freeze_parsed
from objstore.message import Message, Part, ReasoningPart, TextPart, ToolCallPart, ToolResultPart, attachments_of
from objstore.records import Tombstone
from refs.errors import InvalidValue
from refs.ids import Oid

_Made = TypeVar("_Made", bound=Part)


class _Unusual(Exception):
    """Left to `Message.from_dict`."""


def parsed_message(raw: bytes, oid: Oid | None = None) -> Message | None:
    """The message whose JSON is `raw` and whose id is `oid`, if that is known.

    None where it takes a closer look to tell whether it is one, and for one with attachments.
    """
    try:
        check_nesting(raw)
        value = orjson.loads(raw)
        return _message(value, oid) if type(value) is dict else None
    except (orjson.JSONDecodeError, InvalidValue, FloatFound, _Unusual):
        return None


def weight(value: Message | Tombstone) -> int:
    """Bytes of memory that a decoded value takes, about."""
    if not isinstance(value, Message):
        return _OBJECT + getsizeof(value.reason)
    size = _OBJECT
    for part in value.parts:
        size += _OBJECT
        if type(part) is TextPart and part.provider_metadata is EMPTY:  # most parts
            size += getsizeof(part.text)
        else:
            size += _weight_of_json(part.members()) + sum(map(_weight_of_attachment, attachments_of(part)))
    return size if value.provider_metadata is EMPTY else size + _weight_of_json(value.provider_metadata)


_OBJECT: Final = 256  # of a message or part with its slots, its place in a table, and short texts


def _weight_of_attachment(value: Attachment) -> int:
    return _OBJECT + sum(map(getsizeof, (value.type, value.url, value.path, value._content)))


def _weight_of_json(value: Json) -> int:
    """Recursion is bounded by how the value was frozen."""
    size = getsizeof(value)
    if isinstance(value, dict):
        for key, item in value.items():
            size += getsizeof(key) + (getsizeof(item) if type(item) in _SIMPLE else _weight_of_json(item))
    elif isinstance(value, list):
        for item in value:
            size += getsizeof(item) if type(item) in _SIMPLE else _weight_of_json(item)
    return size


_SIMPLE: Final = frozenset((str, int, bool, float, type(None)))


def _message(value: dict[str, Any], oid: Oid | None) -> Message:
    given, role = value.get("parts"), value.get("role")
    if type(given) is not list or type(role) is not str or not role or "tombstone" in value:
        raise _Unusual
    parts: list[Part] = []
    for each in given:
        if type(each) is not dict:
            raise _Unusual
        kind = each.get("type")
        if kind == "text" and len(each) == 2:  # most parts
            part: Part = _new(TextPart)
            _text_of_text(part, _text(each.get("text")))
            _metadata_of_text(part, EMPTY)
        else:
            part = _read(kind)(each)
        parts.append(part)
    made: Message = _new(Message)
    _role(made, role)
    _parts(made, tuple(parts))
    _metadata_of_message(made, EMPTY if len(value) == 2 else _metadata(value))
    _id(made, oid)
    return made


def _read(kind: object) -> Callable[[dict[str, Any]], Part]:
    reader = _READERS.get(kind) if type(kind) is str else None
    if reader is None:
        raise _Unusual
    return reader


def _text_part(value: dict[str, Any]) -> TextPart:
    made: TextPart = _new(TextPart)
    _text_of_text(made, _text(value.get("text")))
    _metadata_of_text(made, _metadata(value))
    return made


def _reasoning(value: dict[str, Any]) -> ReasoningPart:
    count = value.get("token_count")
    if count is not None and type(count) is not int:
        raise _Unusual
    return _made(ReasoningPart, _text(value.get("text")), _flag(value.get("redacted")), count, _metadata(value))


def _tool_call(value: dict[str, Any]) -> ToolCallPart:
    arguments = value.get("arguments")
    if type(arguments) is not dict:
        raise _Unusual
    return _made(
        ToolCallPart,
        _text(value.get("name")),
        freeze_parsed(arguments),
        _text_or_none(value.get("tool_call_id")),
        _flag(value.get("server_executed")),
        _metadata(value),
    )


def _tool_result(value: dict[str, Any]) -> ToolResultPart:
    if "attachments" in value:
        raise _Unusual
    return _made(
        ToolResultPart,
        _text(value.get("name")),
        _text(value.get("output")),
        _text_or_none(value.get("tool_call_id")),
        _flag(value.get("server_executed")),
        _text_or_none(value.get("exception")),
        (),
        _metadata(value),
    )


_READERS: Final[Mapping[str, Callable[[dict[str, Any]], Part]]] = {
    "text": _text_part,
    "reasoning": _reasoning,
    "tool_call": _tool_call,
    "tool_result": _tool_result,
}


def _text(value: object) -> str:
    if type(value) is not str:
        raise _Unusual
    return value


def _text_or_none(value: object) -> str | None:
    if value is not None and type(value) is not str:
        raise _Unusual
    return value


def _flag(value: object) -> bool:
    if value is None or value is False:
        return False
    if value is not True:
        raise _Unusual
    return True


def _metadata(value: dict[str, Any]) -> Mapping[str, Json]:
    given = value.get("provider_metadata")
    if not given:
        if given is None or type(given) is dict:
            return EMPTY
        raise _Unusual
    if type(given) is not dict:
        raise _Unusual
    return freeze_parsed(given, floats=False)


def _made(cls: type[_Made], *fields: object) -> _Made:
    """A part of fields that are known to be good, in the order of its class."""
    made: _Made = _new(cls)
    for put, field in zip(_SLOTS[cls], fields, strict=True):
        put(made, field)
    return made


_new: Final[Any] = object.__new__
# The slots' own setters take half as long as `object.__setattr__`.
_text_of_text, _metadata_of_text = (vars(TextPart)[name].__set__ for name in ("text", "provider_metadata"))
_role, _parts, _metadata_of_message, _id = (
    vars(Message)[name].__set__ for name in ("role", "parts", "provider_metadata", "_id")
)
_SLOTS: Final[Mapping[type[Part], list[Any]]] = {
    cls: [vars(cls)[name].__set__ for name in cls.__slots__]
    for cls in (ReasoningPart, ToolCallPart, ToolResultPart)
}
