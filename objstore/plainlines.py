"""Records from lines of packs by the shortest way: the same as `scan` makes of them by the long one.

What orjson gives is of Python's own types, and holds no lone surrogates; where no number is but small integers,
it reads and writes what the standard library does. Whatever isn't as it is in nearly all lines is left to the
long way, and so is every error.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from objstore.codec import record_of
from objstore.database import record_oid
from objstore.jsonvalue import Json
from objstore.kinds import Kind
from objstore.packframe import Frame
from objstore.records import Description, Note, check_time, check_ulid
from refs.errors import CorruptObject, InvalidValue
from refs.ids import Oid, is_oid

_ATOMS: Final = frozenset((str, int, bool, type(None)))


def plain_note(frame: Frame, at: int) -> tuple[Oid, Note] | None:
    """(id, value) of a note line in which nothing is nested and all nodes are known; else None."""
    try:
        value: Any = orjson.loads(frame.line(at))
    except orjson.JSONDecodeError:
        return None
    if type(value) is not dict or value.keys() != {"at", "nodes", "note"} or type(value["nodes"]) is not list:
        return None
    known = frame.nodes
    told: dict[str, dict[str, Json]] = {}
    for entry in value["nodes"]:
        if type(entry) is not list or len(entry) < 2:
            return None
        reference, *said = entry
        nodes: list[str | None]
        if type(reference) is int:
            first = at - reference
            nodes = [known.get(line) for line in range(first, first + len(said))]
        else:
            nodes = [reference] if len(said) == 1 and is_oid(reference) else [None]
        for node, about in zip(nodes, said, strict=False):
            if node is None or type(about) is not dict or not _ATOMS.issuperset(map(type, about.values())):
                return None
            told[node] = about
    value["nodes"] = told
    try:
        note = Note.trusted(check_ulid(value["note"], "note"), check_time(value["at"], "at"), told)
    except InvalidValue:
        return None
    return record_oid(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)), note


def plain_description(line: bytes) -> tuple[Oid, Description] | None:
    """(id, value) of the line of a description, all members of which are text; else None."""
    try:
        value = orjson.loads(line)
        # A description takes no number, so that orjson can have changed none.
        if type(value) is dict and orjson.dumps(value, option=orjson.OPT_SORT_KEYS) == line:
            made = record_of(Kind.DESCRIPTION, value, line)
            assert isinstance(made, Description)
            return record_oid(line), made
    except (orjson.JSONDecodeError, TypeError, CorruptObject):
        pass
    return None
