"""The graph as the index has it: ancestors, descendants and who called whom, as row numbers.

A row is larger than those of its parent and of its caller, so rising order is an order in which what comes
first is met first. Nothing here reads an object, and nothing recurses.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from objstore.index import ROOT_ROW, Index
from objstore.parts import MAX_RUN

_BATCH: Final = 500  # rows asked for in one statement


class Asked(NamedTuple):
    """The side chains below a chain, by their first rows.

    `by` is what asked for each; `parents` and `owners` are the parent and the side chain of every row in
    them; `top` are those that the chain itself asked for, `inner` those that another side chain did, in order
    of what asked and of arrival.
    """

    by: dict[int, int]
    parents: dict[int, int]
    owners: dict[int, int]
    top: list[int]
    inner: dict[int, list[int]]


class Hierarchy:
    """Reads edges between rows of nodes. Linear in the rows it gives."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def ancestors(self, row: int) -> list[int]:
        """The row and all before it, nearest first."""
        with self._index.reading() as db:
            return [found[0] for found in db.execute(f"{_UP} SELECT row FROM up", (row,))]

    def below(self, starts: Iterable[int]) -> dict[int, int]:
        """The rows `starts` and all their descendants, each with its parent."""
        parents: dict[int, int] = {}
        with self._index.reading() as db:
            for start in sorted(starts):
                if start not in parents:  # a start below another one was met with it
                    parents.update(db.execute(_DOWN, (start,)).fetchall())
        return parents

    def children(self, row: int) -> list[int]:
        """The rows that follow a row, oldest first."""
        return [child for child, _ in self._index.child_rows(row)]

    def called(self, by: Iterable[int]) -> dict[int, int]:
        """The rows that any of `by` asked for, each with the row that asked."""
        found: dict[int, int] = {}
        with self._index.reading() as db:
            for marks, batch in _batches(by):
                found.update(db.execute(f"SELECT node, by FROM called WHERE by IN ({marks})", batch).fetchall())
        return dict(sorted(found.items()))

    def callers(self, rows: Iterable[int]) -> dict[int, int]:
        """Those of `rows` that were asked for, each with the row that asked."""
        found: dict[int, int] = {}
        with self._index.reading() as db:
            for marks, batch in _batches(rows):
                statement = f"SELECT node, by FROM called WHERE node IN ({marks})"
                found.update(db.execute(statement, batch).fetchall())
        return found

    def asked_below(self, chain: Iterable[int]) -> Asked:
        """What a chain asked for, what that asked for, and so on."""
        path = set(chain)
        by: dict[int, int] = {}
        parents: dict[int, int] = {}
        new: Iterable[int] = path
        while new:
            starts = self.called(new)
            by |= starts
            below = self.below(start for start in starts if start not in parents)
            new = below.keys() - parents.keys() - path
            parents |= below
        owners: dict[int, int] = {}
        for row in sorted(parents.keys() - path):
            owner = row if row in by else owners.get(parents[row])
            if owner is not None:  # else it is a fork of the chain, below a later prompt that the chain asked for
                owners[row] = owner
        top: list[int] = []
        inner: dict[int, list[int]] = {}
        for start in sorted(owners.keys() & by.keys(), key=lambda start: (by[start], start)):
            asker = owners.get(by[start])
            (top if asker is None else inner.setdefault(asker, [])).append(start)
        return Asked(by, {row: parents[row] for row in owners}, owners, top, inner)

    def caller(self, row: int) -> tuple[int, int] | None:
        """(the nearest row at or before `row` that was asked for, the row that asked), if there is one."""
        with self._index.reading() as db:
            # CROSS JOIN keeps SQLite at the order written: up the chain, and no further than needed.
            statement = f"{_UP} SELECT c.node, c.by FROM up CROSS JOIN called c ON c.node = up.row LIMIT 1"
            found = db.execute(statement, (row,)).fetchone()
        return None if found is None else (found[0], found[1])

    def notes(self, rows: Iterable[int]) -> dict[int, list[int]]:
        """The notes that speak of any of `rows`, each with those rows."""
        found: dict[int, list[int]] = {}
        with self._index.reading() as db:
            for group in _groups(rows):
                statement = "SELECT note, first, last FROM note_run WHERE first BETWEEN ? AND ? AND last >= ?"
                for note, first, last in db.execute(statement, (group[0] - MAX_RUN + 1, group[-1], group[0])):
                    spoken_of = group[bisect_left(group, first) : bisect_right(group, last)]
                    if spoken_of:
                        found.setdefault(note, []).extend(spoken_of)
        return found

    def calls(self, rows: Iterable[int]) -> list[int]:
        """The calls that were asked at any of `rows`, oldest first."""
        found: set[int] = set()
        with self._index.reading() as db:
            for marks, batch in _batches(rows):
                statement = f"SELECT call FROM call_edge WHERE asked IN ({marks})"
                found.update(call for (call,) in db.execute(statement, batch))
        return sorted(found)

    def asked_at(self, rows: Iterable[int]) -> Iterator[int]:
        """For each call that was asked at one of `rows`, that row."""
        with self._index.reading() as db:
            for marks, batch in _batches(rows):
                statement = f"SELECT asked FROM call_edge WHERE asked IN ({marks})"
                yield from [row for (row,) in db.execute(statement, batch)]

    def calls_at_root(self, answers: Iterable[int]) -> list[int]:
        """The calls that were asked before all messages and answered with any of `answers`."""
        wanted = set(answers)
        with self._index.reading() as db:
            found = db.execute("SELECT call, answered FROM call_edge WHERE asked=?", (ROOT_ROW,)).fetchall()
        return [call for call, answered in found if answered in wanted]


def _groups(rows: Iterable[int]) -> Iterator[list[int]]:
    """Rows that stand close together, in rising order."""
    group: list[int] = []
    for row in sorted(rows):
        if group and (row - group[-1] > MAX_RUN or len(group) >= _BATCH):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _batches(rows: Iterable[int]) -> Iterator[tuple[str, Sequence[int]]]:
    ordered = sorted(rows)
    for start in range(0, len(ordered), _BATCH):
        batch = ordered[start : start + _BATCH]
        yield ",".join("?" * len(batch)), batch


_UP: Final = (
    "WITH RECURSIVE up(row) AS (SELECT row FROM node WHERE row=?1"
    " UNION ALL SELECT n.parent FROM up JOIN node n ON n.row = up.row WHERE n.parent <> 0)"
)
_DOWN: Final = (
    "WITH RECURSIVE down(row, parent) AS (SELECT row, parent FROM node WHERE row=?1"
    # What stands right behind its parent isn't in the index of parents.
    " UNION ALL SELECT n.row, n.parent FROM down JOIN node n"
    " ON (n.row = down.row + 1 AND n.parent = down.row) OR (n.parent = down.row AND n.parent <> n.row - 1))"
    " SELECT row, parent FROM down"
)
