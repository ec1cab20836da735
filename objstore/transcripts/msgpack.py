"""MessagePack as values, bounded: a small reader for data that nobody vouches for.

Nothing is built but plain values: an extension stays its code and bytes (`Ext`), to be looked into by
whoever knows the code. The work is bounded by the input: each item takes at least one byte of it, and a
length that claims more than is there is refused.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

from objstore.limits import MAX_NESTING
from refs.errors import InvalidValue

_NUMBERS: Final[dict[int, struct.Struct]] = {
    0xCA: struct.Struct(">f"),
    0xCB: struct.Struct(">d"),
    0xCC: struct.Struct(">B"),
    0xCD: struct.Struct(">H"),
    0xCE: struct.Struct(">I"),
    0xCF: struct.Struct(">Q"),
    0xD0: struct.Struct(">b"),
    0xD1: struct.Struct(">h"),
    0xD2: struct.Struct(">i"),
    0xD3: struct.Struct(">q"),
}
_CONSTANTS: Final = {0xC0: None, 0xC2: False, 0xC3: True}
# First byte -> (what it is, bytes of the length that follows).
_SIZED: Final[dict[int, tuple[str, int]]] = {
    0xC4: ("bin", 1),
    0xC5: ("bin", 2),
    0xC6: ("bin", 4),
    0xC7: ("ext", 1),
    0xC8: ("ext", 2),
    0xC9: ("ext", 4),
    0xD9: ("str", 1),
    0xDA: ("str", 2),
    0xDB: ("str", 4),
    0xDC: ("array", 2),
    0xDD: ("array", 4),
    0xDE: ("map", 2),
    0xDF: ("map", 4),
}


@dataclass(frozen=True, slots=True)
class Ext:
    """An extension: the application's own type `code`, and its bytes."""

    code: int
    data: bytes


class _Open:
    """An array or map that is being filled; `left` counts items, a map's keys among them."""

    __slots__ = ("key", "left", "made")

    def __init__(self, made: list[Any] | dict[Any, Any], left: int) -> None:
        self.made, self.left, self.key = made, left, _NO_KEY

    def add(self, value: Any) -> None:
        self.left -= 1
        if isinstance(self.made, list):
            self.made.append(value)
        elif self.key is _NO_KEY:
            self.key = value if isinstance(value, str) else _key(value)
        else:
            self.made[self.key] = value
            self.key = _NO_KEY


_NO_KEY: Final[Any] = object()


def _key(value: Any) -> str:
    if value is None or isinstance(value, bool | int | float | bytes):
        return str(value)
    raise InvalidValue("", f"a map's key is a {type(value).__name__}")


def unpack(data: bytes) -> Any:
    """The one value in `data`, or `InvalidValue`. Map keys that aren't strings become their text."""
    value, end = _unpack(data)
    if end != len(data):
        raise InvalidValue("", f"{len(data) - end} bytes after the value")
    return value


def _unpack(data: bytes) -> tuple[Any, int]:
    at = 0
    stack: list[_Open] = []
    while True:
        try:
            value, at, count = _item(data, at)
        except (IndexError, struct.error) as error:
            raise InvalidValue("", f"cut at byte {at}") from error
        if count is not None:
            if count > len(data) - at:
                raise InvalidValue("", f"{count} items in the {len(data) - at} bytes after byte {at}")
            if len(stack) >= MAX_NESTING:
                raise InvalidValue("", f"nested more than {MAX_NESTING} levels deep")
            stack.append(_Open(value, count))
        elif not stack:
            return value, at
        else:
            stack[-1].add(value)
        while stack and stack[-1].left == 0:
            whole = stack.pop().made
            if not stack:
                return whole, at
            stack[-1].add(whole)


def _item(data: bytes, at: int) -> tuple[Any, int, int | None]:
    """(value, where it ends, how many items are to follow into it) of the item at `at`."""
    first = data[at]
    at += 1
    if first < 0x80:
        return first, at, None
    if first >= 0xE0:
        return first - 0x100, at, None
    if first in _CONSTANTS:
        return _CONSTANTS[first], at, None
    if first in _NUMBERS:
        shape = _NUMBERS[first]
        return shape.unpack_from(data, at)[0], at + shape.size, None
    if 0xD4 <= first <= 0xD8:  # an extension of 1, 2, 4, 8 or 16 bytes
        return _sized("ext", data, at, 1 << (first - 0xD4))
    if first in _SIZED:
        kind, width = _SIZED[first]
        return _sized(kind, data, at + width, int.from_bytes(_slice(data, at, width), "big"))
    if first < 0x90:
        return {}, at, 2 * (first & 0x0F)
    if first < 0xA0:
        return [], at, first & 0x0F
    if first < 0xC0:
        return _sized("str", data, at, first & 0x1F)
    raise InvalidValue("", f"byte {at - 1} begins no value")


def _sized(kind: str, data: bytes, at: int, size: int) -> tuple[Any, int, int | None]:
    if kind == "array":
        return [], at, size
    if kind == "map":
        return {}, at, 2 * size
    if kind == "ext":
        code = int.from_bytes(_slice(data, at, 1), "big", signed=True)
        return Ext(code, _slice(data, at + 1, size)), at + 1 + size, None
    raw = _slice(data, at, size)
    if kind == "bin":
        return raw, at + size, None
    # Half a character can stand alone in damaged text; other damage can't be told from text any more.
    try:
        return raw.decode("utf-8", "surrogatepass"), at + size, None
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace"), at + size, None


def _slice(data: bytes, at: int, size: int) -> bytes:
    piece = data[at : at + size]
    if len(piece) != size:
        raise InvalidValue("", f"cut at byte {at}: {size} bytes are promised, {len(piece)} are there")
    return piece
