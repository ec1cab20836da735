"""Where an object stands, and what the index is told of one that comes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from objstore.kinds import Kind
from objstore.loose import Form
from objstore.node import Node
from objstore.records import Call, Description, Note
from refs.ids import Oid, PayloadId

LINES_PER_FRAME: Final = 16384
_LOOSE: Final = -1  # and -2, -3: the form, counted down

Value = Node | Call | Note | Description | Sequence[PayloadId] | None
"""What the index must know of an object: of a message only the payloads it needs."""


class Location(NamedTuple):
    """Where an object stands: at a line of a frame of a pack, or (`pack` is None) as a file or in the journal."""

    pack: str | None
    offset: int = 0
    size: int = 0
    line: int = 0
    form: Form = Form.PLAIN
    frame: int = 0
    """The frame's row: names the frame in a cache."""


class Arrival(NamedTuple):
    """An object to be indexed. `loc` comes from `place_loose` or `place_packed`."""

    kind: Kind
    oid: Oid
    loc: int
    value: Value = None


def place_loose(form: Form) -> int:
    return _LOOSE - form


def place_packed(frame: int, line: int) -> int:
    return frame * LINES_PER_FRAME + line


def loose_form(loc: int) -> Form:
    """The form of an object whose `loc` is negative."""
    return Form(_LOOSE - loc)
