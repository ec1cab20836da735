"""Object ids: one type for each kind, parsing and abbreviating.

An id is the sha256 of an object's canonical bytes, written as 64 lower-case hex digits. Nothing else
ever becomes part of a path: `parse_oid` stands between text from outside and the file system.
"""

from __future__ import annotations

import re
from typing import Final, NewType

from refs.errors import InvalidId

Oid = NewType("Oid", str)
MessageId = NewType("MessageId", Oid)
NodeId = NewType("NodeId", Oid)
CallId = NewType("CallId", Oid)
NoteId = NewType("NoteId", Oid)
DescriptionId = NewType("DescriptionId", Oid)
PayloadId = NewType("PayloadId", Oid)

ROOT: Final = NodeId(Oid("root"))
"""The parent of a first message. A reserved word, not an object, so that no identity holds a NULL
(SQL treats NULLs as distinct, which would allow the same root twice)."""

OID_DIGITS: Final = 64
MIN_PREFIX_DIGITS: Final = 4

_OID = re.compile(r"[0-9a-f]{64}", re.ASCII)
_PREFIX = re.compile(r"[0-9a-f]{4,64}", re.ASCII)


def is_oid(text: object) -> bool:
    """Whether `text` is exactly 64 lower-case hex digits."""
    return isinstance(text, str) and _OID.fullmatch(text) is not None


def parse_oid(text: object) -> Oid:
    """`text` as an id, or `InvalidId`."""
    if not is_oid(text):
        raise InvalidId(_shown(text), f"an object id is {OID_DIGITS} lower-case hex digits")
    return Oid(str.__str__(text))  # of a text enum too, whose str() is its name


def parse_parent(text: object) -> NodeId:
    """A node id or `ROOT`, or `InvalidId`."""
    return ROOT if text == ROOT else NodeId(parse_oid(text))


def is_prefix(text: str) -> bool:
    """Whether `text` reads as an id or the beginning of one (4 to 64 lower-case hex digits)."""
    return _PREFIX.fullmatch(text) is not None


def abbreviate(oid: str, digits: int = 8) -> str:
    """The first `digits` of an id, for people. `root` stays whole."""
    return oid if oid == ROOT else oid[:digits]


def _shown(text: object) -> str:
    shown = text if isinstance(text, str) else type(text).__name__
    return shown if len(shown) <= 80 else shown[:77] + "..."
