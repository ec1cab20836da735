"""Message lists from files: our own JSON or JSON Lines, or OpenAI's chat messages, told apart by shape.

Strict where `dag import` is lenient: what a client sends is either understood as a whole or refused, with
the element that is wrong.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

from cli.render import count
from objstore.jsonvalue import Json, loads, loads_exactly
from objstore.limits import MAX_RECORD_BYTES
from objstore.message import Message
from objstore.transcripts.build import note_of
from objstore.transcripts.chat_messages import read_chat_message, time_in
from refs.errors import InvalidValue, LimitExceeded

MAX_INPUT_BYTES: Final = MAX_RECORD_BYTES
"""Of a whole file or of standard input: it is parsed in memory."""

_LOOKED_AT: Final = 8192  # bytes: a NUL among the first ones makes a file binary, as git has it
_LONG_INTEGER: Final = re.compile(rb"[0-9]{19}")  # 2^64 and more: orjson would make a float of it
_SAID: Final = ("content", "tool_calls", "function_call", "refusal", "audio")


@dataclass(frozen=True, slots=True)
class History:
    """Messages, what is known about each of them, and what was odd about them, for people."""

    messages: Sequence[Message]
    notes: Sequence[Mapping[str, Json]]
    warnings: Sequence[str]


def read_history(path: str) -> History:
    """The messages in a file, or on standard input for `-`. Raises `InvalidValue`, `LimitExceeded`, `OSError`."""
    name = "standard input" if path == "-" else path
    try:
        raw = _read(path, name)
        if b"\0" in raw[:_LOOKED_AT]:
            raise InvalidValue("", "a binary file, not JSON")
        places, values = _elements(raw.removeprefix(b"\xef\xbb\xbf"))
        if not values:
            raise InvalidValue("", "there is no message in it")
        if any(isinstance(value, Mapping) and "parts" in value for value in values):
            messages = [_own(value, place) for value, place in zip(values, places, strict=True)]
            return History(messages, [{}] * len(values), ())
        return _chat(values, places)
    except InvalidValue as error:
        raise InvalidValue(f"{name}: {error.path}" if error.path else name, error.reason) from error


def _read(path: str, name: str) -> bytes:
    if path == "-":
        return _bounded(sys.stdin.buffer, name)
    with open(path, "rb") as stream:
        about = os.fstat(stream.fileno())
        if stat.S_ISREG(about.st_mode) and about.st_size > MAX_INPUT_BYTES:
            raise LimitExceeded(name, about.st_size, MAX_INPUT_BYTES)
        return _bounded(stream, name)


def _bounded(stream: BinaryIO, name: str) -> bytes:
    raw = stream.read(MAX_INPUT_BYTES + 1)
    if len(raw) > MAX_INPUT_BYTES:
        raise LimitExceeded(name, len(raw), MAX_INPUT_BYTES, "bytes or more")
    return raw


def _elements(raw: bytes) -> tuple[Sequence[str], Sequence[Json]]:
    """What should be messages, and the place of each."""
    try:
        value = _parse(raw)
    except InvalidValue:
        first, _, rest = raw.strip().partition(b"\n")
        if not rest or not _is_object(first):
            raise
        return _lines(raw)
    if isinstance(value, Mapping) and "messages" in value:
        value = value["messages"]
        if not isinstance(value, list):
            raise InvalidValue("messages", f"a list is needed, not {type(value).__name__}")
    elif isinstance(value, Mapping) and "role" in value:
        value = [value]  # JSON Lines of one line
    if not isinstance(value, list):
        raise InvalidValue("", "neither a list of messages nor an object that has one as 'messages'")
    return [f"messages[{i}]" for i in range(len(value))], value


def _lines(raw: bytes) -> tuple[Sequence[str], Sequence[Json]]:
    places, values = [], []
    for number, line in enumerate(raw.splitlines(), 1):
        if line.strip():
            place = f"line {number}"
            try:
                value = _parse(line)
            except InvalidValue as error:
                raise InvalidValue(place, error.reason) from error
            if isinstance(value, Mapping) and "messages" in value:
                raise InvalidValue(place, "a conversation, not a message: 'dag import' reads many from one file")
            places.append(place)
            values.append(value)
    return places, values


def _parse(raw: bytes) -> Json:
    return loads_exactly(raw) if _LONG_INTEGER.search(raw) else loads(raw)


def _is_object(raw: bytes) -> bool:
    try:
        return isinstance(loads(raw), Mapping)
    except InvalidValue:
        return False


def _own(value: Json, place: str) -> Message:
    try:
        return Message.from_dict(value)
    except InvalidValue as error:
        raise error.under(place) from error


def _chat(values: Sequence[Json], places: Sequence[str]) -> History:
    messages, notes = [], []
    warnings: list[str] = []
    tools: dict[str, str] = {}

    def warn(kind: str, place: str, text: str) -> None:
        warnings.append(f"{place}: {kind}{f' ({text})' if text else ''}")

    for value, place in zip(values, places, strict=True):
        _check_chat_message(value, place)
        draft = read_chat_message(value, place, warn, tools)
        assert draft is not None
        try:
            messages.append(Message(draft.role, draft.parts, draft.metadata))
        except InvalidValue as error:
            raise error.under(place) from error
        notes.append(note_of(**draft.note, at=time_in(value)))
    return History(messages, notes, warnings)


def _check_chat_message(value: Json, place: str) -> None:
    if not isinstance(value, Mapping):
        raise InvalidValue(place, f"an object is needed, not {type(value).__name__}")
    if "role" not in value:
        raise InvalidValue(f"{place}.role", "missing")
    if not isinstance(value["role"], str) or not value["role"]:
        raise InvalidValue(f"{place}.role", "a role is a non-empty string")
    if not any(key in value for key in _SAID):
        raise InvalidValue(f"{place}.content", "missing")
    content, calls = value.get("content"), value.get("tool_calls")
    if not isinstance(content, str | list | None):
        raise InvalidValue(f"{place}.content", f"a string or a list is needed, not {type(content).__name__}")
    for i, block in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(block, str | Mapping):
            raise InvalidValue(f"{place}.content[{i}]", f"an object is needed, not {type(block).__name__}")
    if not isinstance(calls, list | None):
        raise InvalidValue(f"{place}.tool_calls", f"a list is needed, not {type(calls).__name__}")
    for i, call in enumerate(calls or ()):
        if not isinstance(call, Mapping):
            raise InvalidValue(f"{place}.tool_calls[{i}]", f"an object is needed, not {type(call).__name__}")


def shortened(warnings: Sequence[str], most: int = 10) -> list[str]:
    """The first warnings, and how many more there are."""
    rest = len(warnings) - most
    return [*warnings[:most], *([f"and {count(rest, 'more warning')}"] if rest > 0 else [])]
