"""JSON values: frozen copies, and the one way they are written.

Written as `json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))` writes them, in
UTF-8. orjson writes the bytes wherever it provably writes the same ones; floats, integers beyond 64 bits
and lone surrogates go through the standard library.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

import orjson

from objstore.limits import MAX_INT_DIGITS, MAX_NESTING
from refs.errors import InvalidValue

Json = Any
"""None, bool, int, float, str, or a list or str-keyed dict of these."""

_INT_BOUND: Final = 10**MAX_INT_DIGITS
_STRINGS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError(f"{type(self).__name__} can't be changed; make a new value from a copy")


class FrozenDict(dict[str, Json]):
    """A dict that can't be changed. Equal to a plain dict of the same items, and dumped like one."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self))  # the keys alone: 1 == 1.0 == True among the values

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, memo: object) -> FrozenDict:
        return self

    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, Json]]]:
        return FrozenDict, (dict(self),)


class FrozenList(list[Json]):
    """A list that can't be changed. Equal to a plain list of the same items, and dumped like one."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(len(self))

    def __copy__(self) -> FrozenList:
        return self

    def __deepcopy__(self, memo: object) -> FrozenList:
        return self

    def __reduce__(self) -> tuple[type[FrozenList], tuple[list[Json]]]:
        return FrozenList, (list(self),)


class FloatFound(Exception):
    """A float where the caller asked to be told of floats rather than given them."""


EMPTY: Final = FrozenDict()


def text(value: object, path: str) -> str:
    """`value` as a plain str with surrogate halves that meet joined, or `InvalidValue`."""
    if type(value) is not str:
        if not isinstance(value, str):
            raise InvalidValue(path, f"a string is needed, not {type(value).__name__}")
        value = str.__str__(value)
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return value


def freeze(value: object, path: str, *, floats: bool = True, tell_floats: bool = False, depth: int = 0) -> Json:
    """A frozen copy of a JSON value, or `InvalidValue` with the path of what isn't one.

    `floats=False` refuses floats; `tell_floats` raises `FloatFound` at the first one (orjson reads an
    integer of 2^64 and more as a float, without a word). `depth` is how deep `value` stands already.
    Recursion is bounded by `MAX_NESTING`.
    """
    kind = type(value)
    if kind is str:
        return text(value, path)
    if value is None or kind is bool:
        return value
    if isinstance(value, int):
        number = int(value)
        if -(1 << 64) < number < 1 << 64 or -_INT_BOUND < number < _INT_BOUND:
            return number
        raise InvalidValue(path, f"an integer of more than {MAX_INT_DIGITS} digits")
    if isinstance(value, float):
        return _freeze_float(value, path, floats, tell_floats)
    if isinstance(value, Mapping | Sequence) and not isinstance(value, bytes | bytearray | memoryview | str):
        if depth >= MAX_NESTING:
            raise InvalidValue(path, f"nested more than {MAX_NESTING} levels deep")
        if isinstance(value, Mapping):
            frozen = FrozenDict(_freeze_items(value, path, floats, tell_floats, depth + 1))
            if len(frozen) != len(value):  # joining surrogate halves made two keys one
                raise InvalidValue(path, "the same key twice, once its surrogate halves are joined")
            return frozen
        return FrozenList(
            freeze(item, f"{path}[{i}]", floats=floats, tell_floats=tell_floats, depth=depth + 1)
            for i, item in enumerate(value)
        )
    if isinstance(value, str):
        return text(value, path)
    raise InvalidValue(path, f"not a JSON value: {kind.__name__}")


def _freeze_float(value: float, path: str, floats: bool, tell_floats: bool) -> float:
    if tell_floats:
        raise FloatFound
    if not math.isfinite(value):
        raise InvalidValue(path, "not a finite number")
    if not floats:
        raise InvalidValue(path, "floats are not permitted here; use an integer or a string")
    return float(value)


def _freeze_items(
    value: Mapping[Any, object], path: str, floats: bool, tell_floats: bool, depth: int
) -> Iterator[tuple[str, Json]]:
    for key, item in value.items():
        if not isinstance(key, str):
            raise InvalidValue(path, f"object keys are strings, not {type(key).__name__}")
        name = text(key, path)
        yield name, freeze(item, f"{path}.{name}", floats=floats, tell_floats=tell_floats, depth=depth)


def freeze_object(value: object, path: str, **how: Any) -> FrozenDict:
    """`freeze` for a value that must be an object."""
    if not isinstance(value, Mapping):
        raise InvalidValue(path, f"an object is needed, not {type(value).__name__}")
    frozen: FrozenDict = freeze(value, path, **how)
    return frozen


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
        if not _holds_float(value):
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
    written = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return written.encode("utf-8", "backslashreplace")


def _holds_float(value: Json) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_float, value.values()))
    if isinstance(value, list):
        return any(map(_holds_float, value))
    return isinstance(value, float)


def check_nesting(raw: bytes) -> None:
    """Refuse JSON text nested deeper than `MAX_NESTING`, before any parser sees it."""
    if raw.count(b"{") + raw.count(b"[") <= MAX_NESTING:
        return
    depth = 0
    for byte in _STRINGS.sub(b"", raw).translate(None, _NOT_BRACKETS):
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
