"""Values as LangGraph writes them into checkpoints: MessagePack with types of its own, or JSON."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from typing import Any, Final

from objstore.jsonvalue import Json, loads
from objstore.limits import MAX_NESTING
from objstore.transcripts.langchain_messages import class_type
from objstore.transcripts.msgpack import Ext, unpack
from refs.errors import InvalidValue

_CONSTRUCTED: Final = frozenset({2, 4, 5})  # keyword arguments, pydantic 1, pydantic 2
_WITH_ARGUMENTS: Final = frozenset({0, 1, 3})  # one argument, several, a class method's


@dataclass(frozen=True, slots=True)
class Overwrite:
    """A write that takes the place of what was there."""

    value: Json


def decode(kind: str | None, raw: object) -> Any:
    """A stored value as JSON, or as an `Overwrite` of it. Raises `InvalidValue`; nothing is ever run.

    Messages come as `{"lc": 1, "type": "constructor", "id": [module, class], "kwargs": {…}}`, other objects
    as the arguments that they would be made from.
    """
    if isinstance(raw, str):
        raw = raw.encode("utf-8", "surrogatepass")
    if not isinstance(raw, bytes) or kind in ("null", "empty"):
        return None
    if kind == "json" or (kind is None and raw.lstrip().startswith((b"{", b"["))):
        return loads(raw)
    if kind == "bytes":
        return _plain(raw, 0)
    if kind not in (None, "msgpack"):
        raise InvalidValue("", f"serialized as {kind[:40]!r}, which is not read")
    value = unpack(raw)
    if isinstance(value, Ext) and value.code in _CONSTRUCTED:
        _, name, arguments = _object(value)
        if name == "Overwrite" and isinstance(arguments, dict):
            return Overwrite(_plain(arguments.get("value"), 0))
    return _plain(value, 0)


def _object(value: Ext) -> tuple[str, str, Any]:
    """(module, class, arguments) of an object."""
    made = unpack(value.data)
    if not isinstance(made, list) or len(made) < 3 or not isinstance(made[0], str) or not isinstance(made[1], str):
        raise InvalidValue("", "an object without module, class and arguments")
    return made[0], made[1], made[2]


def _plain(value: Any, depth: int) -> Json:
    """JSON from unpacked values. Recursion is bounded by `MAX_NESTING`, the objects' levels included."""
    if depth > MAX_NESTING:
        raise InvalidValue("", f"nested more than {MAX_NESTING} levels deep")
    if isinstance(value, dict):
        return {key: _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, Ext):
        return _from_ext(value, depth)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _from_ext(value: Ext, depth: int) -> Json:
    if value.code not in _CONSTRUCTED and value.code not in _WITH_ARGUMENTS:
        return None  # an array of numbers, or what a later version has: no message is one
    module, name, arguments = _object(value)
    made = _plain(arguments, depth + 1)
    if value.code in _CONSTRUCTED and class_type(name) is not None:
        return {"lc": 1, "type": "constructor", "id": [module, name], "kwargs": made}
    return made
