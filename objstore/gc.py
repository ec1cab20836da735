"""gc: give back what nothing needs, and pack what stays in chain order.

Marks and packs without the lock, then takes it, marks what has come since, and sweeps: a commit can't lose.
Whoever the store belongs to decides when it runs; nothing is deleted on doubt. What is unreachable but
younger than the grace period stays, together with all that it needs.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from objstore.arrival import LINES_PER_FRAME
from objstore.frames import SMALL_LEVEL
from objstore.kinds import Kind
from objstore.loose import loose_name
from objstore.mark import Graph, Live, rows_in, without
from objstore.pack import list_packs, pack_name
from objstore.repack import NewPack, Packer, Picker
from objstore.storage import Storage
from objstore.sweep import PACKED_WELL, loose_files, remove_leftovers, sweep
from refs.errors import CorruptFile, DamagedStore, StorageFailure
from refs.files import Files
from refs.ids import Oid

SMALL_PACK_BYTES: Final = 16 << 20
"""Packs up to this size are put together by a quick run."""
_DAY: Final = 86_400
_YOUNG_DAYS: Final = 64
_JUST_BEFORE: Final = 1.0  # seconds
_RUN: Final = "gc_run"
_NAMED_BY_REFS: Final = (Kind.DESCRIPTION, Kind.NODE)  # the fewer first

Progress = Callable[[str, int, int], None]
"""(what, done, in all)"""


@dataclass(frozen=True, slots=True)
class GcOptions:
    """`prune_before`, `reflog_before`, `calls_before`: seconds since 1970, or None for never.

    Unreachable objects last written before `prune_before` go; reflog entries before `reflog_before` no longer
    keep what they name; calls without a conversation started before `calls_before` no longer keep theirs.
    `now` is the time of the run. `quick` looks only at loose objects and small packs.
    """

    prune_before: float | None
    now: float
    reflog_before: float | None = None
    calls_before: float | None = None
    dry_run: bool = False
    quick: bool = False
    level: int = SMALL_LEVEL


@dataclass(slots=True)
class GcReport:
    """Counts by kind; `stored` in bytes of the files of objects, `disk` in bytes of the blocks they take.

    `kept` is reachable, `young` isn't but is within the grace period, `pruned` went.
    """

    kept: dict[Kind, int] = field(default_factory=dict)
    young: dict[Kind, int] = field(default_factory=dict)
    pruned: dict[Kind, int] = field(default_factory=dict)
    stored_before: int = 0
    stored_after: int = 0
    disk_before: int = 0
    disk_after: int = 0
    packs_before: int = 0
    packs_after: int = 0
    loose_before: int = 0
    strays: int = 0
    reflog_expired: int = 0


def collect(storage: Storage, options: GcOptions, progress: Progress | None = None) -> GcReport:
    """Run gc. Raises `CorruptFile` or `CorruptObject` where something can't be read; then nothing is deleted."""
    run = _Run(storage, options, progress or _silent)
    try:
        return run.run()
    except (_Overtaken, DamagedStore):
        if not run.overtaken():
            raise
        with storage.lock():  # now nobody can
            return _Run(storage, options, progress or _silent).run()


def pack_loose(storage: Storage, level: int = SMALL_LEVEL) -> int:
    """Put all loose objects but payloads into a new pack, whether anything needs them or not; how many."""
    with storage.lock():
        storage.adopt_loose()
        loose = storage.index.loose_count()
        storage.checkpoint()
        graph = Graph(storage.index)
        everything = Live(graph)
        for kind in Kind:
            everything.take(kind, graph.there[kind])
        picker = Picker(graph, set())
        with Packer(storage, level) as packer:
            for kind, row, loc in picker.in_order(everything):
                packer.add(kind, row, loc, starts=kind is Kind.NODE and graph.parent[row] == 0)
            packer.seal()
            sweep(storage, graph, everything, picker, set(), packer, full=False)
        return loose


class _Overtaken(Exception):
    """Another gc or a rebuild of the index has given rows to other objects since they were marked."""


class _Run:
    def __init__(self, storage: Storage, options: GcOptions, progress: Progress) -> None:
        self.storage, self.options, self.progress = storage, options, progress
        self.report = GcReport()
        self.token = secrets.token_hex(16)
        self.ages: dict[int, float] = {}

    def run(self) -> GcReport:
        storage, options, report = self.storage, self.options, self.report
        with storage.lock():
            self._begin()
            graph, seen = Graph(storage.index), self._index_state()
            packs = list_packs(storage.files)
        self.progress("mark", 0, 1)
        self._look_at_ages()
        sources = self._candidates(packs)
        picker = Picker(graph, self._frames_of(sources))
        live = graph.mark(self._roots(graph))
        keep = Live(graph)
        keep.add(live)
        graph.mark(self._too_young(graph, picker, live), keep)
        if not self._worth_it(graph, packs, keep):
            sources, picker = set(), Picker(graph, set())
        self.progress("mark", 1, 1)
        with Packer(storage, options.level) as packer:
            if sources or storage.index.loose_count():
                self._write(graph, picker, live, keep, packer)
            if options.dry_run:
                self._count(graph, live, keep)
                self._expect(graph, keep, sources, packer.packs)
                return report
            self.progress("sweep", 0, 1)
            with storage.lock():
                same = seen == self._index_state()
                storage.checkpoint()
                if self.overtaken():
                    raise _Overtaken
                late, live, keep = self._look_again(graph, picker, live, keep, same)
                sweep(storage, late, keep, picker, sources, packer, full=not options.quick)
                self._finish(anew=bool(packer.packs) and not options.quick)
                self._count(late, live, keep)
        self.progress("sweep", 1, 1)
        report.stored_after, report.disk_after = usage(storage.files)
        report.packs_after = len(list_packs(storage.files))
        return report

    def overtaken(self) -> bool:
        return not self.options.dry_run and self.storage.index.meta(_RUN) != self.token

    def _begin(self) -> None:
        """The lock is held: bring everything to where it can be counted."""
        storage, report, before = self.storage, self.report, self.options.reflog_before
        report.stored_before, report.disk_before = usage(storage.files)
        report.packs_before, report.loose_before = len(list_packs(storage.files)), storage.index.loose_count()
        if not self.options.dry_run:
            self._checkpoint()
        storage.adopt_loose()
        if before is not None and self.options.dry_run:
            report.reflog_expired = self._would_expire(_iso(before))
        elif before is not None:
            report.reflog_expired = storage.refs.reflog.expire(_iso(before), keep_last=True)
        if not self.options.dry_run:
            storage.refs.reflog.compact()
            with storage.index.changing() as db:
                storage.index.set_meta(db, _RUN, self.token)

    def _checkpoint(self) -> None:
        """What stands in the journal gets files, which count as written just before this run."""
        index, files = self.storage.index, self.storage.files
        ids = [(each.kind, each.oid) for record, _ in self.storage.journal.records() for each in record.objects]
        self.storage.checkpoint()
        places = ((kind, oid, index.locate(kind, oid)) for kind, oid in ids if kind is not Kind.PAYLOAD)
        names = {
            loose_name(kind, oid, place.form) if place.pack is None else pack_name(place.pack)
            for kind, oid, place in places
            if place is not None
        }
        for name in names:
            files.touch(name, self.options.now - _JUST_BEFORE)

    def _would_expire(self, before: str) -> int:
        expired, seen = 0, set()
        for entry in self.storage.refs.reflog.entries():
            if entry.time < before and entry.ref in seen:
                expired += 1
            seen.add(entry.ref)
        return expired + self.storage.refs.reflog.damaged

    def _index_state(self) -> tuple[int, int, int]:
        """Changes whenever anybody changes the index, and so with every commit."""
        with self.storage.index.reading() as db:
            return self.storage.index.inode, db.execute("PRAGMA data_version").fetchone()[0], db.total_changes

    # -- marking ----------------------------------------------------------------------------------

    def _roots(self, graph: Graph) -> dict[Kind, list[int]]:
        """What refs, young reflog entries and calls without a conversation keep. What is new isn't in `graph`."""
        index, refs = self.storage.index, self.storage.refs
        since = "" if self.options.reflog_before is None else _iso(self.options.reflog_before)
        held, moved = refs.roots(since)
        roots, missing = self._rows_of(held)
        # A ref that has just been moved may name what has come since.
        for ref, oid in refs.list(at=missing) if missing else ():
            there = any(index.row(kind, oid) for kind in _NAMED_BY_REFS)
            if not there and refs.resolve(ref) == oid:
                raise CorruptFile(self.storage.files.path(ref), f"it names {oid}, which isn't stored")
        for kind, rows in self._rows_of(moved)[0].items():
            roots[kind] += rows
        cut = "" if self.options.calls_before is None else _iso(self.options.calls_before)
        with index.reading() as db:
            calls = db.execute(
                "SELECT call FROM call_edge"
                " WHERE at >= ? AND (NOT named OR ifnull(asked, 0) = 0 AND answered IS NULL)",
                (cut,),
            ).fetchall()
        roots[Kind.CALL] = [row for (row,) in calls]
        return {kind: [row for row in rows if row < len(graph.locs[kind])] for kind, rows in roots.items()}

    def _rows_of(self, ids: Set[Oid]) -> tuple[dict[Kind, list[int]], Set[Oid]]:
        """The rows of the nodes and descriptions among `ids`, and those that are neither."""
        found, left = {}, ids
        for kind in _NAMED_BY_REFS:
            rows = self.storage.index.rows_of(kind, left)
            found[kind] = list(rows.values())
            left = left - rows.keys()
        return found, left

    def _too_young(self, graph: Graph, picker: Picker, live: Live) -> dict[Kind, list[int]]:
        """What is unreachable and stays all the same: young, or in a pack that isn't written anew."""
        cut = self.options.prune_before
        found: dict[Kind, list[int]] = {kind: [] for kind in Kind}
        for kind, rows in found.items():
            locs = graph.locs[kind]
            for row in rows_in(graph.outside(kind, live)):
                loc = locs[row]
                swept = loc < 0 or picker.in_source(loc)
                if not swept or cut is None or self._age(kind, row, loc) >= cut:
                    rows.append(row)
        return found

    def _look_at_ages(self) -> None:
        """When the packs were last written, by their frames."""
        index, files = self.storage.index, self.storage.files
        ages = {}
        for pack, row in index.packs().items():
            found = files.stat(pack_name(pack))
            ages[row] = self.options.now if found is None else found.st_mtime
        with index.reading() as db:
            self.ages = {
                frame: ages.get(pack, self.options.now)
                for frame, pack in db.execute("SELECT row, pack FROM frame")
            }

    def _age(self, kind: Kind, row: int, loc: int) -> float:
        """When the file that holds an object was last written (seconds since 1970); now if that isn't clear."""
        now = self.options.now
        if loc >= 0:
            return self.ages.get(loc // LINES_PER_FRAME, now)
        oid = self.storage.index.loose_oid(kind, row)
        form = self.storage.index.location(loc).form
        found = self.storage.files.stat(loose_name(kind, oid, form)) if oid else None
        if found is None:  # in a dry run it stands in the journal, else it is gone
            return now - _JUST_BEFORE if self.options.dry_run else now
        return found.st_mtime

    def _look_again(
        self, graph: Graph, picker: Picker, live: Live, keep: Live, same: bool
    ) -> tuple[Graph, Live, Live]:
        """The lock is held: what there is now, what of it is reachable, and what must stay."""
        self._look_at_ages()
        late = graph if same else Graph(self.storage.index)
        if not same:
            live, before = late.mark(self._roots(late)), keep
            new = {kind: rows_in(late.there[kind], len(graph.locs[kind])) for kind in Kind}
            keep = Live(late)
            keep.add(live)
            late.mark(new, keep)
            keep.add(before)
        # Somebody may have found an object stored, and touched its file to keep it.
        late.mark(self._too_young(late, picker, keep), keep)
        return late, live, keep

    # -- packing ----------------------------------------------------------------------------------

    def _candidates(self, packs: list[str]) -> set[str]:
        """The packs that may be written anew: a quick run joins small ones with what is loose."""
        if not self.options.quick:
            return set(packs)
        sizes = {pack: self.storage.files.stat(pack_name(pack)) for pack in packs}
        small = {pack for pack, found in sizes.items() if found and found.st_size <= SMALL_PACK_BYTES}
        return small if len(small) + bool(self.storage.index.loose_count()) > 1 else set()

    def _worth_it(self, graph: Graph, packs: list[str], keep: Live) -> bool:
        """Whether packs need to be written anew: not if all is packed well and nothing in them is to go."""
        if self.options.quick or not set(packs) <= set((self.storage.index.meta(PACKED_WELL) or "").split()):
            return True
        for kind in Kind:
            locs = graph.locs[kind]
            if kind is Kind.PAYLOAD:
                continue
            if any(locs[row] > 0 for row in rows_in(graph.outside(kind, keep))):
                return True
            if min(locs) < 0 and any(locs[row] < 0 for row in keep.of(kind)):
                return True
        return False

    def _frames_of(self, packs: set[str]) -> set[int]:
        rows = {row for pack, row in self.storage.index.packs().items() if pack in packs}
        with self.storage.index.reading() as db:
            return {frame for frame, pack in db.execute("SELECT row, pack FROM frame") if pack in rows}

    def _write(self, graph: Graph, picker: Picker, live: Live, keep: Live, packer: Packer) -> None:
        """New packs: what is reachable, then what is young, by days, so that packing doesn't renew its time."""
        self._write_one(graph, picker, live, packer, "pack")
        for wanted, age in self._by_days(graph, picker, live, keep):
            packer.age = age
            self._write_one(graph, picker, wanted, packer, "pack what is young")
        packer.age = None

    def _write_one(self, graph: Graph, picker: Picker, wanted: Live, packer: Packer, what: str) -> None:
        total = sum(wanted.count(kind) for kind in Kind)
        for done, (kind, row, loc) in enumerate(picker.in_order(wanted)):
            packer.add(kind, row, loc, starts=kind is Kind.NODE and graph.parent[row] == 0)
            if done % 1000 == 0:
                self.progress(what, min(done, total), total)
        packer.seal()

    def _by_days(self, graph: Graph, picker: Picker, live: Live, keep: Live) -> list[tuple[Live, float]]:
        """Sets of young objects, and the time of the youngest of each."""
        days: dict[int, tuple[Live, float]] = {}
        oldest = int(self.options.now // _DAY) - _YOUNG_DAYS
        for kind in Kind:
            for row in rows_in(without(keep.rows[kind], live.rows[kind])):
                loc = graph.locs[kind][row]
                if picker.picks(kind, loc):
                    age = min(self._age(kind, row, loc), self.options.now)
                    day = max(int(age // _DAY), oldest)
                    wanted, youngest = days.get(day) or (Live(graph), 0.0)
                    wanted.rows[kind][row] = 1
                    days[day] = wanted, max(age, youngest)
        return [days[day] for day in sorted(days)]

    # -- the end, and the report ------------------------------------------------------------------

    def _finish(self, *, anew: bool) -> None:
        """What can be done once the objects are where they belong; the lock is held. `anew`: so is the index."""
        storage = self.storage
        storage.refs.pack()
        self.report.strays = remove_leftovers(storage, self.options.now)
        with suppress(StorageFailure):  # no room to give back room: another time
            storage.index.compact(anew=anew)
        storage.database.forget_packs()

    def _count(self, graph: Graph, live: Live, keep: Live) -> None:
        for kind in Kind:
            kept = live.count(kind)
            self.report.kept[kind] = kept
            self.report.young[kind] = keep.count(kind) - kept
            self.report.pruned[kind] = graph.outside(kind, keep).count(1)

    def _expect(self, graph: Graph, keep: Live, sources: set[str], packs: list[NewPack]) -> None:
        """What a run would give: the new packs have been written, and are thrown away again."""
        files, report = self.storage.files, self.report
        gone = {pack_name(pack) for pack in sources}
        gone.update(loose_files(self.storage, graph, keep, packs))
        new = [stat for pack in packs if (stat := files.stat(pack.written.temp or "")) is not None]
        old = [stat for name in gone if (stat := files.stat(name)) is not None]
        report.stored_after = report.stored_before + sum(each.st_size for each in new)
        report.stored_after -= sum(each.st_size for each in old)
        report.disk_after = report.disk_before + sum(each.st_blocks for each in new) * 512
        report.disk_after -= sum(each.st_blocks for each in old) * 512
        report.packs_after = report.packs_before - len(sources) + len(packs)


def usage(files: Files) -> tuple[int, int]:
    """(bytes of the files of all objects, bytes of disk that they take)."""
    stored = disk = 0
    for name in files.walk("objects"):
        found = files.stat(name)
        if found is not None:
            stored += found.st_size
            disk += found.st_blocks * 512
    return stored, disk


def _iso(seconds: float) -> str:
    """Rounded up: what was logged earlier in the same millisecond is before it."""
    whole, millis = divmod(math.ceil(seconds * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{millis:03d}Z"


def _silent(what: str, done: int, total: int) -> None:
    """The progress nobody asked to see."""
