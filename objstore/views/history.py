"""One line through the graph, and what stands beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from objstore.views.rows import Row, Rows


def linear_history(rows: Iterable[Row], head: str) -> list[Row]:
    """The chain that ends at `head`, in reading order; empty for an unknown head.

    Follows `parent` alone. Stops at the root, at a row that is missing, and at one it has been at.
    """
    return list(Rows.of(rows).up(head))[::-1]


@dataclass(frozen=True, slots=True)
class Siblings:
    """Rows at one place: "`index` of `len(ids)`", counted from 1, and the deepest leaf below each."""

    ids: tuple[str, ...] = ()
    index: int = 0
    leaves: tuple[str, ...] = ()


def siblings(rows: Iterable[Row], oid: str) -> Siblings:
    """The answers (or prompts) at the place of `oid`, oldest first, itself among them.

    A run is no alternative to a turn: a row at the root that a call, a tool or a program put there, or that
    sums others up, is alone. `ids` is empty for an unknown row. Asking for every row of one `Rows` is linear.
    """
    rows = Rows.of(rows)
    row = rows.get(oid)
    if row is None:
        return Siblings()
    if not row.is_turn:
        return Siblings((oid,), 1, (rows.deepest_leaf[oid],))
    place = rows.turns[row.parent]
    return Siblings(place.ids, place.numbers[oid], place.leaves)


@dataclass(frozen=True, slots=True)
class Spawn:
    """What asked for a chain: tool call `tool_call_id` in `called_by`, which put row `first` there."""

    first: str
    called_by: str
    tool_call_id: str | None


def spawned_from(rows: Iterable[Row], oid: str) -> Spawn | None:
    """What asked for the chain that `oid` is in: a chain inherits the nearest `called_by` before it.

    None for a row of a conversation that nothing called, and for an unknown one.
    """
    for row in Rows.of(rows).up(oid):
        if row.called_by is not None:
            return Spawn(row.id, row.called_by, row.tool_call_id)
    return None
