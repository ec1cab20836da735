"""What a receiver lacks of some histories: chains until a node that it has, then what hangs on shared nodes.

Histories that were compared before need no second look: what has hung itself on them since has come later,
and rows of the index are in the order of arrival. Nothing recurses; each node is looked at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from objstore.hierarchy import Hierarchy
from objstore.index import ROOT_ROW
from objstore.kinds import Kind
from objstore.storage import Storage
from objstore.transfer.memory import Mark
from refs.errors import ObjectMissing
from refs.ids import Oid

Missing = Callable[[Kind, Iterable[Oid]], set[Oid]]
"""Those of some ids that the receiver isn't known to have."""

_NODES_AT_ONCE: Final = 256
_ROWS_AT_ONCE: Final = 500


@dataclass(slots=True)
class Selection:
    """What to send, as rows of the sender's index.

    `nodes` are in an order in which each comes behind its parent; `records` are calls and notes with the row
    of the latest node that they name. `descriptions` are ids.
    """

    nodes: array[int] = field(default_factory=lambda: array("q"))
    records: dict[tuple[Kind, int], int] = field(default_factory=dict)
    descriptions: list[Oid] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.nodes or self.records or self.descriptions)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the receiver is to have: `heads` of histories and `descriptions`; with `calls` also every call
    that belongs to no conversation, which keeps what a stateless client asked and was answered."""

    heads: Collection[Oid]
    descriptions: Collection[Oid] = ()
    calls: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """What was compared before: `heads` with all that led to them, up to `mark`; `calls` as in `Wanted`."""

    heads: Collection[Oid] = frozenset()
    mark: Mark | None = None
    calls: Mark | None = None


def select(source: Storage, missing: Missing, wanted: Wanted, known: Known) -> Selection:
    """What the receiver lacks of `wanted`. Raises `ObjectMissing` for a head that the source doesn't hold."""
    return _Comparison(source, missing).run(wanted, known)


class _Comparison:
    def __init__(self, source: Storage, missing: Missing) -> None:
        self._source, self._index, self._missing = source, source.index, missing
        self._graph = Hierarchy(source.index)
        self._seen: set[int] = set()
        self._todo: list[int] = []
        self._out = Selection()
        self._records: dict[tuple[Kind, int], int] = {}
        self._at_root: dict[int, list[int]] | None = None
        self._numbering = self._index.numbering()

    def run(self, wanted: Wanted, known: Known) -> Selection:
        since = self._usable(known.mark)
        covered = set(known.heads) if since is not None else set()
        covered -= self._missing(Kind.NODE, covered)
        heads = [oid for oid in dict.fromkeys(wanted.heads) if oid not in covered]
        calls = self._usable(known.calls)
        last = self._index.last_rows()
        if (
            heads
            or since is None
            or since.rows != last
            or (wanted.calls and (calls is None or calls.rows != last))
        ):
            stops = (self._index.row(Kind.NODE, oid) for oid in covered)
            self._seen.update(row for row in stops if row is not None)
            for oid in heads:
                self._source.database.locate(Kind.NODE, oid)  # ObjectMissing
                self._todo.append(self._index.row(Kind.NODE, oid) or ROOT_ROW)
            self._work()
            if since is not None:
                self._later(since)
            if wanted.calls:
                self._unnamed(calls)
            self._keep_what_is_missing()
        self._out.descriptions = sorted(self._missing(Kind.DESCRIPTION, wanted.descriptions))
        return self._out

    def _usable(self, mark: Mark | None) -> Mark | None:
        """A mark, if the rows that it tells of still mean the same."""
        return mark if mark is not None and self._numbering and mark.numbering == self._numbering else None

    # -- chains -----------------------------------------------------------------------------------

    def _work(self) -> None:
        while self._todo:
            chain = self._climb(self._todo.pop())
            if chain:
                self._take_missing(chain)
                self._look_beside(chain)

    def _climb(self, row: int) -> list[int]:
        """A node and those before it, nearest first, up to one that was looked at."""
        chain = []
        while row != ROOT_ROW and row not in self._seen:
            self._seen.add(row)
            chain.append(row)
            edges = self._index.node_edges(row)
            row = edges[0] if edges is not None else ROOT_ROW
        return chain

    def _take_missing(self, chain: Sequence[int]) -> None:
        """Note the end of a chain that the receiver lacks: a node that it has, has all before it there."""
        lacking: list[int] = []
        for start in range(0, len(chain), _NODES_AT_ONCE):
            part = chain[start : start + _NODES_AT_ONCE]
            ids = ids_in_rows(self._source, Kind.NODE, part)
            gone = self._missing(Kind.NODE, ids)
            lacking += [row for row, oid in zip(part, ids, strict=True) if oid in gone]
            if len(gone) < len(part):
                break
        self._out.nodes.extend(reversed(lacking))

    def _look_beside(self, rows: Sequence[int]) -> None:
        """Whatever hangs on some nodes: calls with their answers, notes, side chains, and who asked for them."""
        self._add_calls(self._calls_at(rows))
        for note, nodes in self._graph.notes(rows).items():
            self._add(Kind.NOTE, note, max(nodes))
        self._todo += self._graph.callers(rows).values()
        starts = self._graph.called(rows)
        if starts:
            # The latest first: a chain is climbed from its end.
            self._todo += sorted(self._below(starts))

    def _below(self, starts: Iterable[int]) -> set[int]:
        """Some nodes and all behind them; the rows of a stranger's index may lead in a circle."""
        found: set[int] = set()
        waiting = list(starts)
        while waiting:
            row = waiting.pop()
            if row not in found:
                found.add(row)
                waiting += self._graph.children(row)
        return found - self._seen

    def _calls_at(self, rows: Sequence[int]) -> list[int]:
        if self._at_root is None:
            self._at_root = {}
            with self._index.reading() as db:
                query = "SELECT call, answered FROM call_edge WHERE asked=? AND answered IS NOT NULL"
                for call, answered in db.execute(query, (ROOT_ROW,)):
                    self._at_root.setdefault(answered, []).append(call)
        found = self._graph.calls(rows)
        if self._at_root:
            for row in rows:
                found += self._at_root.get(row, ())
        return found

    def _add_calls(self, calls: Iterable[int]) -> None:
        for asked, answered, call in self._ends(calls):
            self._add(Kind.CALL, call, max(asked or 0, answered or 0))
            self._todo += [row for row in (asked, answered) if row]

    def _ends(self, calls: Iterable[int]) -> Iterator[tuple[int | None, int | None, int]]:
        new = [call for call in calls if (Kind.CALL, call) not in self._records]
        for start in range(0, len(new), _ROWS_AT_ONCE):
            batch = new[start : start + _ROWS_AT_ONCE]
            marks = ",".join("?" * len(batch))
            with self._index.reading() as db:
                query = f"SELECT asked, answered, call FROM call_edge WHERE call IN ({marks})"
                found = db.execute(query, batch).fetchall()
            yield from found

    def _add(self, kind: Kind, row: int, behind: int) -> None:
        self._records[kind, row] = max(behind, self._records.get((kind, row), 0))

    # -- what has come since ----------------------------------------------------------------------

    def _later(self, since: Mark) -> None:
        """What arrived after the last comparison and hangs on nodes that both have."""
        for row in self._later_in_side_chains(since.rows[Kind.NODE]):
            self._todo.append(row)
            self._work()
        with self._index.reading() as db:
            calls = db.execute(
                "SELECT call, asked, answered FROM call_edge WHERE call > ?", (since.rows[Kind.CALL],)
            ).fetchall()
            runs = db.execute(
                "SELECT note, first, last FROM note_run WHERE note > ?", (since.rows[Kind.NOTE],)
            ).fetchall()
        notes = [(note, node) for note, first, last in runs for node in range(first, last + 1)]
        at = {row for _, *rows in calls for row in rows if row} | {node for _, node in notes}
        shared = self._shared(at)
        self._add_calls([call for call, asked, answered in calls if (asked or answered) in shared])
        for note, node in notes:
            if node in shared:
                self._add(Kind.NOTE, note, node)
        self._work()

    def _later_in_side_chains(self, last: int) -> Iterator[int]:
        """Later nodes in chains that a shared node asked for; no ref leads there."""
        with self._index.reading() as db:
            rows = db.execute("SELECT row, parent FROM node WHERE row > ? ORDER BY row", (last,)).fetchall()
        asker: dict[int, int] = {}  # what asked for the chain that a node is in; 0 for nothing
        for row, _ in rows:
            if row not in self._seen:
                found = self._asker(row, asker)
                if found and self._shared([found]):
                    yield row

    def _asker(self, row: int, known: dict[int, int]) -> int:
        path: list[int] = []
        found = 0
        while row != ROOT_ROW and not found:
            if row in known:
                found = known[row]
                break
            path.append(row)
            found = self._graph.callers([row]).get(row, 0)
            edges = self._index.node_edges(row)
            row = edges[0] if edges is not None else ROOT_ROW
        known.update(dict.fromkeys(path, found))
        return found

    def _shared(self, rows: Iterable[int]) -> set[int]:
        """Those of some nodes that the receiver has or is to get."""
        asked = set(rows)
        shared = asked & self._seen
        others = sorted(asked - shared)
        ids = dict(zip(ids_in_rows(self._source, Kind.NODE, others), others, strict=True))
        gone = self._missing(Kind.NODE, ids)
        return shared | {row for oid, row in ids.items() if oid not in gone}

    def _unnamed(self, since: Mark | None) -> None:
        last = since.rows[Kind.CALL] if since is not None else 0
        with self._index.reading() as db:
            found = db.execute("SELECT call FROM call_edge WHERE call > ? AND NOT named", (last,)).fetchall()
        self._add_calls([call for (call,) in found])
        self._work()

    # -- the end ----------------------------------------------------------------------------------

    def _keep_what_is_missing(self) -> None:
        for kind in (Kind.CALL, Kind.NOTE):
            rows = sorted(row for each, row in self._records if each is kind)
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                part = rows[start : start + _ROWS_AT_ONCE]
                ids = dict(zip(ids_in_rows(self._source, kind, part), part, strict=True))
                for oid in self._missing(kind, ids):
                    self._out.records[kind, ids[oid]] = self._records[kind, ids[oid]]


def ids_in_rows(source: Storage, kind: Kind, rows: Sequence[int]) -> list[Oid]:
    """The whole ids of the objects in rows of a store's index. Raises `ObjectMissing` if a gc has taken one."""
    places: dict[int, int] = {}
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        batch = rows[start : start + _ROWS_AT_ONCE]
        marks = ",".join("?" * len(batch))
        with source.index.reading() as db:
            places.update(db.execute(f"SELECT row, loc FROM {kind} WHERE row IN ({marks})", batch).fetchall())
    for row in rows:
        if row not in places:
            raise ObjectMissing(kind, f"in row {row} of the index")
    return [source.database.oid_of(kind, row, places[row]) for row in rows]
