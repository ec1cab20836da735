"""JSON values: frozen copies, and the one way they are written.

Written as `json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))` writes them, in
UTF-8. orjson writes the bytes wherever it provably writes the same ones; small and large floats, integers
beyond 64 bits and lone surrogates go through the standard library.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

import orjson

from objstore.limits import MAX_INT_DIGITS, MAX_NESTING
from refs.errors import InvalidValue

Json = Any
"""None, bool, int, float, str, or a list or str-keyed dict of these."""

_WORD: Final = 1 << 63
_BIG_FLOAT: Final = float(_WORD)
_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{}"'))
_STRINGS: Final = re.compile(rb'"[^"]*"?')


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError(f"{type(self).__name__} can't be changed; make a new value from a copy")


class FrozenDict(dict[str, Json]):
    """A dict that can't be changed, made by `freeze`. Equal to a plain dict of the same items, dumped like one.

    `odd`: somewhere inside stands a float that orjson writes otherwise than the standard library.
    """

    __slots__ = ("odd",)
    odd: bool
    __init__ = __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self))  # the keys alone: 1 == 1.0 == True among the values

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, memo: object) -> FrozenDict:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (thaw(self), "")


class FrozenList(list[Json]):
    """A list that can't be changed, made by `freeze`. Equal to a plain list of the same items, dumped like one."""

    __slots__ = ("odd",)
    odd: bool
    __init__ = __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(len(self))

    def __copy__(self) -> FrozenList:
        return self

    def __deepcopy__(self, memo: object) -> FrozenList:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (thaw(self), "")


class FloatFound(Exception):
    """A float of 2^63 or more, which may be an integer that orjson could not hold."""


class _Bad(Exception):
    """What is wrong inside a value; `trail` collects the way to it while the walk unwinds."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.trail: list[str] = []


def text(value: object, path: str) -> str:
    """`value` as a plain str with surrogate halves that meet joined, or `InvalidValue`."""
    if type(value) is not str:
        if not isinstance(value, str):
            raise InvalidValue(path, f"a string is needed, not {type(value).__name__}")
        value = str.__str__(value)
    if value.isascii():
        return value
    try:
        orjson.dumps(value)  # the fastest search for surrogates: what it makes of the text stays cached there
    except TypeError:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return value


def freeze(value: object, path: str, *, floats: bool = True, tell_floats: bool = False, depth: int = 0) -> Json:
    """A frozen copy of a JSON value, or `InvalidValue` with the path of what isn't one.

    `floats=False` refuses floats; `tell_floats` raises `FloatFound` at one that may be an integer (orjson
    reads an integer of 2^64 and more as a float, without a word). `depth` is how deep `value` stands already.
    """
    try:
        return _frozen(value, depth, floats, tell_floats)
    except _Bad as bad:
        way = "".join(reversed(bad.trail))
        raise InvalidValue(path + way if path else way.removeprefix("."), bad.reason) from None


def _frozen(value: object, depth: int, floats: bool, tell: bool) -> Json:
    """Recursion is bounded by `MAX_NESTING`."""
    keys: list[str] | None = None
    items: Iterable[Any]
    shape = _SHAPES.get(type(value)) or _shape(value)
    if shape is Mapping:
        mapping: Any = value
        keys = [key if type(key) is str and key.isascii() else _key(key) for key in mapping]
        items = mapping.values()
    elif shape is Sequence:
        items = value  # type: ignore[assignment]
    else:
        return _scalar(value, floats, tell)
    if depth >= MAX_NESTING:
        raise _Bad(f"nested more than {MAX_NESTING} levels deep")
    frozen: list[Json] = []
    odd = False
    for item in items:
        kind = type(item)
        if (kind is str and item.isascii()) or (kind is int and -_WORD < item < _WORD) or item is None:
            frozen.append(item)
            continue
        try:
            each = _frozen(item, depth + 1, floats, tell)
        except _Bad as bad:
            bad.trail.append(f"[{len(frozen)}]" if keys is None else f".{keys[len(frozen)]}")
            raise
        frozen.append(each)
        odd = odd or is_odd(each)
    return _list(frozen, odd) if keys is None else _dict(keys, frozen, odd)


def _shape(value: object) -> type:
    if isinstance(value, Mapping):
        return Mapping
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview):
        return Sequence
    return object


def _list(items: list[Json], odd: bool) -> FrozenList:
    made: FrozenList = FrozenList.__new__(FrozenList)
    list.extend(made, items)
    made.odd = odd
    return made


def _dict(keys: list[str], items: list[Json], odd: bool) -> FrozenDict:
    made: FrozenDict = FrozenDict.__new__(FrozenDict)
    dict.update(made, zip(keys, items, strict=True))
    made.odd = odd
    if len(made) != len(keys):
        raise _Bad("the same key twice, once its surrogate halves are joined")
    return made


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise _Bad(f"object keys are strings, not {type(key).__name__}")
    return text(key, "")


def _scalar(value: object, floats: bool, tell: bool) -> Json:
    if isinstance(value, str):
        return text(value, "")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _integer(int.__int__(value))
    if not isinstance(value, float):
        raise _Bad(f"not a JSON value: {type(value).__name__}")
    if tell and abs(value) >= _BIG_FLOAT:
        raise FloatFound
    if not math.isfinite(value):
        raise _Bad("not a finite number")
    if not floats:
        raise _Bad("floats are not permitted here; use an integer or a string")
    return float.__float__(value)


def _integer(value: int) -> int:
    if -(1 << 64) < value < 1 << 64:
        return value
    digits = min(MAX_INT_DIGITS, sys.get_int_max_str_digits() or MAX_INT_DIGITS)
    if abs(value) >= 10**digits:
        raise _Bad(f"an integer of more than {digits} digits")
    return value


def is_odd(value: Json) -> bool:
    """Whether there is a float in `value` that orjson writes otherwise than the standard library."""
    if isinstance(value, FrozenDict | FrozenList):
        return bool(value.odd)
    if isinstance(value, float):
        return orjson.dumps(value) != float.__repr__(value).encode("ascii")
    if isinstance(value, dict):
        return any(map(is_odd, value.values()))
    return isinstance(value, list | tuple) and any(map(is_odd, value))


_SHAPES: Final[dict[type, type]] = {
    **dict.fromkeys((dict, FrozenDict), Mapping),
    **dict.fromkeys((list, FrozenList, tuple), Sequence),
    **dict.fromkeys((str, int, float), object),
}
_ATOMS: Final = frozenset((str, int, bool, type(None)))
EMPTY: Final[FrozenDict] = freeze({}, "")


def freeze_object(value: object, path: str, **how: Any) -> FrozenDict:
    """`freeze` for a value that must be an object."""
    if not isinstance(value, Mapping):
        raise InvalidValue(path, f"an object is needed, not {type(value).__name__}")
    frozen: FrozenDict = freeze(value, path, **how)
    return frozen


def freeze_parsed(value: dict[str, Json], *, floats: bool = True) -> FrozenDict:
    """What `freeze` makes of an object that orjson parsed from JSON that isn't nested too deep.

    Raises `FloatFound` at a float that `freeze` would not take, or that may be an integer.
    """
    made: FrozenDict = FrozenDict.__new__(FrozenDict)
    dict.update(made, value)
    odd = False
    for key, item in value.items():
        if type(item) not in _ATOMS:
            frozen = _freeze_parsed(item, floats)
            dict.__setitem__(made, key, frozen)
            odd = odd or is_odd(frozen)
    made.odd = odd
    return made


def _freeze_parsed(value: Json, floats: bool) -> Json:
    """Recursion is bounded by `check_nesting`."""
    if type(value) is dict:
        return freeze_parsed(value, floats=floats)
    if type(value) is list:
        items = [item if type(item) in _ATOMS else _freeze_parsed(item, floats) for item in value]
        return _list(items, any(map(is_odd, items)))
    if floats and -_BIG_FLOAT < value < _BIG_FLOAT:
        return value
    raise FloatFound


def thaw(value: Json) -> Json:
    """A plain, changeable copy of a frozen JSON value. Recursion is bounded by how it was frozen."""
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, list):
        return [thaw(item) for item in value]
    return value


def dumps(value: Json) -> bytes:
    """The canonical bytes of a frozen value (or of a plain one that would freeze without a change)."""
    try:
        if not is_odd(value):
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        pass  # an integer beyond 64 bits or a lone surrogate (orjson.JSONEncodeError is a TypeError)
    return dumps_by_standard_library(value)


def dumps_text(value: str) -> bytes:
    """`dumps` for a string."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return dumps_by_standard_library(value)


def dumps_by_standard_library(value: Json) -> bytes:
    """The definition of the canonical bytes. A lone surrogate becomes its `\\udxxx` escape, lower case."""
    try:
        written = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError as error:  # not finite, or the interpreter's digit limit was lowered since it was frozen
        raise InvalidValue("", f"can't be written: {error}") from error
    return written.encode("utf-8", "backslashreplace")


def check_nesting(raw: bytes) -> None:
    """Refuse JSON text nested deeper than `MAX_NESTING`, before any parser sees it."""
    if raw.rfind(b"{") < MAX_NESTING > raw.rfind(b"["):
        return  # so few bytes hold no more: found much faster than they are counted
    if raw.count(b"{") + raw.count(b"[") <= MAX_NESTING:
        return
    depth = 0
    # Escapes first: then every quote left opens or closes a string. A text that breaks this (a backslash
    # outside a string) is refused by the parsers at that very byte.
    kept = raw.replace(rb"\\", b"").replace(rb"\"", b"").translate(None, _NOT_STRUCTURE)
    for byte in _STRINGS.sub(b"", kept):
        if byte in b"[{":
            depth += 1
            if depth > MAX_NESTING:
                raise InvalidValue("", f"nested more than {MAX_NESTING} levels deep")
        else:
            depth -= 1


def loads(raw: bytes) -> Json:
    """JSON text as plain values, or `InvalidValue`. An integer of 2^64 and more may come as a float.

    Follow with `freeze(…, tell_floats=True)` and, on `FloatFound`, with `loads_exactly`.
    """
    check_nesting(raw)
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return loads_exactly(raw)


def loads_exactly(raw: bytes) -> Json:
    """JSON text as plain values, every number and lone surrogate as written, or `InvalidValue`."""
    check_nesting(raw)
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise InvalidValue("", f"not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise InvalidValue("", f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
    except ValueError as error:  # an integer beyond the interpreter's digit limit
        raise InvalidValue("", f"not JSON we can hold: {error}") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
