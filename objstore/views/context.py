"""The context for a next request, by call hierarchy. The rules stand in docs/calls.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from objstore.views.rows import AGENT_SPAWN, Expose, Row, Rows


def render_context(
    rows: Iterable[Row],
    head: str | None = None,
    *,
    until: int | None = None,
    frame: int | None = None,
    max_caller_rows: int | None = None,
    max_call_levels: int | None = None,
) -> list[Row]:
    """The rows that the next request after `head` shows, in order; empty for an unknown head.

    That is the chain of `head`, continued by the callers of a function that it is in; summaries in place
    of what they cover; and what those rows called, as far as each function exposes it. Without a head the
    newest row that nothing called is taken.

    `until` leaves out rows of a later `order`. `frame` is the `order` of the row that began the running
    frame: it and what came before it are caller rows, of which the newest `max_caller_rows` stay.
    `max_call_levels` is how many levels of calls below the chain are followed (0: the chain alone).
    """
    rows = Rows.of(rows)
    path = list(_path(rows, _newest(rows) if head is None else head))
    on_path = {row.id for row in path}
    owners = _owners(rows)
    places = _summed_up(rows, path, until)
    for row in _called(rows, owners, places, on_path, max_call_levels):
        places[row.id] = row.order
    shown = [row for row in rows if row.id in places and (until is None or row.order <= until)]
    shown.sort(key=lambda row: places[row.id])
    if frame is not None and max_caller_rows is not None:
        outside = sum(places[row.id] <= frame for row in shown)
        shown = shown[max(0, outside - max_caller_rows) :]
    return _exposed(shown, owners, on_path)


def _newest(rows: Rows) -> str | None:
    return next((row.id for row in reversed(list(rows)) if row.called_by is None and not row.covers), None)


def _path(rows: Rows, head: str | None) -> Iterable[Row]:
    """The chain of `head`, nearest first, and where a function's run begins the chain of what called it."""
    seen: set[str] = set()
    while head is not None:
        first = None
        for row in rows.up(head):
            if row.id in seen:
                return
            seen.add(row.id)
            yield row
            first = row
        head = None if first is None or not _sees_its_caller(rows, first) else first.called_by


def _sees_its_caller(rows: Rows, first: Row) -> bool:
    """A function and what it asked for go on from the caller; an agent that a message spawned does not."""
    caller = rows.get(first.called_by)
    return caller is not None and first.source != AGENT_SPAWN and (first.is_function or caller.is_function)


def _summed_up(rows: Rows, path: list[Row], until: int | None) -> dict[str, int]:
    """Where each row of the path stands, by `order`: what a summary covers gives way to the summary.

    A summary stands only where all that it covers is on the path, or is a summary that stands. The newest
    is asked first; one that shares a row with a newer one is left out. Linear in what is covered.
    """
    places = {row.id: row.order for row in path}
    stands: dict[str, int] = dict(places)
    summaries = [row for row in rows if row.covers and row.id not in places]
    for row in summaries:
        if all(oid in stands for oid in row.covers) and (until is None or row.order <= until):
            stands[row.id] = min(stands[oid] for oid in row.covers)
    covering: defaultdict[str, list[str]] = defaultdict(list)
    for row in summaries:
        for oid in row.covers if row.id in stands else ():
            covering[oid].append(row.id)
    taken: set[str] = set()
    spoiled: set[str] = set()
    for row in reversed(summaries):
        if row.id not in stands or row.id in spoiled:
            continue
        places[row.id] = stands[row.id]
        covered = list(row.covers)
        while covered:
            oid = covered.pop()
            if oid in taken:
                continue
            taken.add(oid)
            inner = rows.get(oid)
            covered.extend(inner.covers if inner is not None and oid not in places else ())
            sharing = [oid]
            while sharing:
                more = [each for each in covering[sharing.pop()] if each not in spoiled]
                spoiled.update(more)
                sharing += more
    for oid in taken:
        places.pop(oid, None)
    return places


def _called(
    rows: Rows,
    owners: Mapping[str, str | None],
    shown: Iterable[str],
    path: set[str],
    max_levels: int | None,
) -> list[Row]:
    """What the shown rows asked for, and what that asked for, level by level. Never a row of the path."""
    asked_by: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        owner = owners[row.id]
        if owner is not None and not row.covers:
            asked_by[owner].append(row)
    found: list[Row] = []
    seen, level, levels = set(path), list(shown), 0
    while level and (max_levels is None or levels < max_levels):
        below = []
        for oid in level:
            for row in asked_by.get(oid, ()):
                if row.id not in seen:
                    seen.add(row.id)
                    below.append(row)
        found += below
        level, levels = [row.id for row in below], levels + 1
    return found


def _owners(rows: Rows) -> dict[str, str | None]:
    """Who asked for each row. A function's chain inherits it; a spawned agent's chain does not."""
    owners: dict[str, str | None] = {}
    for row in rows.downward:
        parent = rows.get(row.parent)
        owner = row.called_by
        if owner is None and parent is not None:
            inherited = parent.id if parent.is_function else owners.get(parent.id)
            asker = rows.get(inherited)
            owner = inherited if asker is not None and asker.is_function else None
        owners[row.id] = owner
    return owners


def _exposed(shown: list[Row], owners: Mapping[str, str | None], path: set[str]) -> list[Row]:
    """Without what a function in view keeps to itself, and what that called. The path is always shown."""
    in_view = {row.id: row for row in shown}
    sealed: dict[str, bool] = dict.fromkeys(path, False)
    for row in shown:
        # Up to a row whose fate is known, then back down; a cycle ends where it was entered.
        line: list[Row] = []
        each: Row | None = row
        while each is not None and each.id not in sealed:
            sealed[each.id] = False
            line.append(each)
            each = in_view.get(owners[each.id] or "")
        for below in reversed(line):
            above = in_view.get(owners[below.id] or "")
            sealed[below.id] = below.expose is Expose.HIDDEN or (
                above is not None and (sealed[above.id] or _keeps(above, below))
            )
    return [
        row
        for row in shown
        if row.id in path or not (sealed[row.id] or (row.is_function and row.expose is Expose.LLM))
    ]


def _keeps(function: Row, below: Row) -> bool:
    """Whether `function` keeps what it called to itself, with all that hangs on it."""
    if not function.is_function or function.expose is Expose.FULL:
        return False
    if function.expose is Expose.HIDDEN:
        return True
    return below.is_function is (function.expose is Expose.LLM)
