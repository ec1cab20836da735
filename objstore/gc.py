"""gc: give back what nothing needs, and pack what stays in chain order.

Marks and packs without the lock, then takes it, marks what has come since, and sweeps: a commit can't lose.
Whoever the store belongs to decides when it runs; nothing is deleted on doubt. What is unreachable but
younger than the grace period stays, together with all that it needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from objstore.frames import SMALL_LEVEL
from objstore.index import place_packed
from objstore.kinds import Kind
from objstore.loose import loose_name
from objstore.mark import Graph, Live
from objstore.pack import PACK_FOLDER, Written, list_packs, pack_name
from objstore.repack import Packer, Picker, verify
from objstore.storage import Storage
from refs.files import TEMP_PREFIX, Files

STRAY_SECONDS: Final = 3600
"""Younger files that nothing names may belong to a transaction under way."""
SMALL_PACK_BYTES: Final = 16 << 20
"""Packs up to this size are put together by a quick run."""

Progress = Callable[[str, int, int], None]
_GC_PACKS: Final = "gc_packs"


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
    """Counts by kind; bytes of objects as stored (compressed) and of disk (allocated blocks)."""

    kept: dict[Kind, int] = field(default_factory=dict)
    pruned: dict[Kind, int] = field(default_factory=dict)
    young: dict[Kind, int] = field(default_factory=dict)
    stored_before: int = 0
    stored_after: int = 0
    disk_before: int = 0
    disk_after: int = 0
    packs_before: int = 0
    packs_after: int = 0
    loose_before: int = 0
    strays: int = 0
    reflog_expired: int = 0

    @property
    def pruned_objects(self) -> int:
        return sum(self.pruned.values())


def collect(storage: Storage, options: GcOptions, progress: Progress | None = None) -> GcReport:
    """Run gc. Raises `CorruptFile` or `CorruptObject` where something can't be read; then nothing is deleted."""
    return _Run(storage, options, progress or _silent).run()


class _Run:
    def __init__(self, storage: Storage, options: GcOptions, progress: Progress) -> None:
        self.storage, self.options, self.progress = storage, options, progress
        self.report = GcReport()
        self.ages: dict[str, float] = {}
        self.youngest = 0.0

    def run(self) -> GcReport:
        storage, options, report = self.storage, self.options, self.report
        with storage.lock():
            storage.checkpoint()
            storage.adopt_loose()
            if not options.dry_run and options.reflog_before is not None:
                before = _iso(options.reflog_before)
                report.reflog_expired = storage.refs.reflog.expire(before, keep_last=True)
            report.stored_before, report.disk_before = usage(storage.files)
            packs = list_packs(storage.files)
            graph = Graph(storage.index)
        report.packs_before, report.loose_before = len(packs), storage.index.loose_count()
        self.progress("mark", 0, 1)
        live = self._mark(graph)
        young = self._mark_young(graph, live, packs)
        self.progress("mark", 1, 1)
        sources = self._sources(graph, live, young, packs)
        picker = Picker(graph, self._frames_of(sources))
        written = self._write(graph, picker, live, None, "pack")
        kept_young = self._write(graph, picker, young, live, "pack what is young")
        if options.dry_run:
            self._expect(graph, live, young, picker, sources, [*written, *kept_young])
            return report
        for each in (*written, *kept_young):
            verify(storage.files, each)
        self.progress("sweep", 0, 1)
        with storage.lock():
            self._sweep(graph, live, young, picker, sources, written, kept_young)
        self.progress("sweep", 1, 1)
        report.stored_after, report.disk_after = usage(storage.files)
        report.packs_after = len(list_packs(storage.files))
        return report

    # -- marking ----------------------------------------------------------------------------------

    def _mark(self, graph: Graph, also: Iterable[int] = ()) -> Live:
        """What refs, young reflog entries, calls without a conversation, and the rows `also` keep."""
        index = self.storage.index
        nodes, descriptions = set(also), set()
        since = "" if self.options.reflog_before is None else _iso(self.options.reflog_before)
        for oid in self.storage.refs.roots(since):
            row = index.row(Kind.NODE, oid)
            if row is not None and row < len(graph.parent):
                nodes.add(row)
            row = index.row(Kind.DESCRIPTION, oid)
            if row is not None:
                descriptions.add(row)
        cut = "" if self.options.calls_before is None else _iso(self.options.calls_before)
        live = graph.mark(nodes, calls=[call for call in graph.calls if not call.named and call.at >= cut])
        live.descriptions |= descriptions
        return live

    def _mark_young(self, graph: Graph, live: Live, packs: list[str]) -> Live:
        """What is unreachable but too young to go, and all that it needs."""
        for pack in packs:
            found = self.storage.files.stat(pack_name(pack))
            if found is not None:
                self.ages[pack] = found.st_mtime
        cut = self.options.prune_before
        rows: dict[Kind, set[int]] = {kind: set() for kind in Kind}
        for kind, row, loc in graph.rows():
            if not live.holds(kind, row):
                age = self._age(kind, row, loc)
                if cut is None or age >= cut:
                    rows[kind].add(row)
                    self.youngest = max(self.youngest, min(age, self.options.now))
        young = graph.mark(rows[Kind.NODE], calls=[call for call in graph.calls if call.row in rows[Kind.CALL]])
        for row in rows[Kind.MESSAGE]:
            young.messages[row] = 1
            young.payloads.update(graph.payloads.get(row, ()))
        young.notes |= rows[Kind.NOTE]
        young.payloads |= rows[Kind.PAYLOAD]
        young.descriptions |= rows[Kind.DESCRIPTION]
        return young

    def _age(self, kind: Kind, row: int, loc: int) -> float:
        """When the file that holds an object was last written (seconds since 1970)."""
        place = self.storage.index.location(loc)
        if place.pack is not None:
            return self.ages.get(place.pack, float("inf"))
        oid = self.storage.index.loose_oid(kind, row)
        found = self.storage.files.stat(loose_name(kind, oid, place.form)) if oid else None
        return found.st_mtime if found is not None else float("inf")

    # -- packing ----------------------------------------------------------------------------------

    def _sources(self, graph: Graph, live: Live, young: Live, packs: list[str]) -> set[str]:
        """The packs that are written anew: none if all is packed well already and nothing in them is to go."""
        if self.options.quick:
            sizes = {pack: self.storage.files.stat(pack_name(pack)) for pack in packs}
            small = {pack for pack, found in sizes.items() if found and found.st_size <= SMALL_PACK_BYTES}
            return small if len(small) > 1 else set()
        done = set((self.storage.index.meta(_GC_PACKS) or "").split())
        if set(packs) <= done and not any(
            (loc < 0 and kind is not Kind.PAYLOAD) or not (live.holds(kind, row) or young.holds(kind, row))
            for kind, row, loc in graph.rows()
        ):
            return set()
        return set(packs)

    def _frames_of(self, packs: set[str]) -> set[int]:
        rows = {row for pack, row in self.storage.index.packs().items() if pack in packs}
        with self.storage.index.reading() as db:
            return {frame for frame, pack in db.execute("SELECT row, pack FROM frame") if pack in rows}

    def _write(self, graph: Graph, picker: Picker, live: Live, without: Live | None, what: str) -> list[Written]:
        """New packs with what `picker` picks of `live`, in chain order."""
        packer = Packer(self.storage, self.options.level, publish=not self.options.dry_run)
        total = sum(live.nodes) - (sum(without.nodes) if without else 0)
        try:
            for done, (kind, row, loc) in enumerate(picker.in_order(live, without)):
                packer.add(kind, row, loc, starts=kind is Kind.NODE and graph.parent[row] == 0)
                if done % 2000 == 0:
                    self.progress(what, min(done // 2, total), max(total, 1))
            packer.finish()
        finally:
            packer.close()
        return packer.written

    # -- sweeping: the lock is held ---------------------------------------------------------------

    def _sweep(
        self,
        graph: Graph,
        live: Live,
        young: Live,
        picker: Picker,
        sources: set[str],
        written: list[Written],
        young_packs: list[Written],
    ) -> None:
        """Make the new packs known, forget what nothing needs, then delete the files that held it."""
        storage = self.storage
        storage.checkpoint()
        late = Graph(storage.index)
        again = self._mark(late, range(len(graph.parent), len(late.parent)))
        doomed: list[tuple[Kind, int, int]] = []
        rescued: list[tuple[Kind, int, int]] = []
        for kind, row, loc in graph.rows():
            if not picker.picks(loc) or live.holds(kind, row) or young.holds(kind, row):
                continue
            now = late.loc_of(kind, row)
            if now is None:
                continue
            if not again.holds(kind, row):
                doomed.append((kind, row, now))
            elif picker.in_source(now):
                rescued.append((kind, row, now))
        extra = self._rescue(rescued)
        packs = [*written, *young_packs, *extra]
        gone = self._doomed_files(doomed)
        gone += self._move(packs, doomed, sources)
        # From here on a crash leaves files that nothing needs, and the next opening or gc finds them.
        storage.index.checkpoint()
        storage.empty_journal()
        for name in gone:
            storage.files.remove(name)
        for pack in sources - {each.pack for each in packs}:
            storage.files.remove(pack_name(pack))
        self._age_young(young_packs)
        storage.files.sync_dir(PACK_FOLDER)
        storage.refs.pack()
        self._remove_strays()
        if not self.options.quick:
            storage.index.compact()
        storage.database.forget_packs()
        self._count(late, again, live, young, doomed)

    def _rescue(self, rescued: list[tuple[Kind, int, int]]) -> list[Written]:
        """Pack what somebody came to need while the rest was packed."""
        packer = Packer(self.storage, self.options.level, publish=True)
        order = {Kind.MESSAGE: 0, Kind.NODE: 1}
        try:
            for kind, row, loc in sorted(rescued, key=lambda each: (order.get(each[0], 2), each[1])):
                packer.add(kind, row, loc, starts=False)
            packer.finish()
        finally:
            packer.close()
        return packer.written

    def _doomed_files(self, doomed: list[tuple[Kind, int, int]]) -> list[str]:
        names = []
        for kind, row, loc in doomed:
            place = self.storage.index.location(loc)
            oid = self.storage.index.loose_oid(kind, row) if place.pack is None else None
            if oid is not None:
                names.append(loose_name(kind, oid, place.form))
        return names

    def _move(self, packs: list[Written], doomed: list[tuple[Kind, int, int]], sources: set[str]) -> list[str]:
        """One transaction of the index; the loose files that are not needed any more."""
        index = self.storage.index
        names: list[str] = []
        forgotten: dict[Kind, list[tuple[int, str]]] = {}
        for kind, row, loc in doomed:
            oid = self.storage.database.oid_of(kind, row, loc)
            forgotten.setdefault(kind, []).append((row, oid))
        with index.changing() as db:
            for written in packs:
                if written.pack in index.packs():
                    continue
                first = index.add_pack(db, written.pack, written.frames)
                for kind in Kind:
                    places = {
                        p.oid: place_packed(first + p.frame, p.line)
                        for p in reversed(written.placed)
                        if p.kind is kind
                    }
                    names += [
                        loose_name(kind, oid, place.form)
                        for oid in places
                        if (place := index.locate(kind, oid)) is not None and place.pack is None
                    ]
                    index.move(db, kind, places.items())
            for kind, objects in forgotten.items():
                index.forget(db, kind, objects)
            for pack in sources - {each.pack for each in packs}:
                index.forget_pack(db, pack)
            known = {pack for pack in (index.meta(_GC_PACKS) or "").split() if pack not in sources}
            if not self.options.quick:
                known |= {each.pack for each in packs}
            index.set_meta(db, _GC_PACKS, " ".join(sorted(known)))
        return names

    def _age_young(self, packs: list[Written]) -> None:
        """A pack of young garbage is as old as the youngest in it: being packed doesn't renew its time."""
        for written in packs:
            self.storage.files.touch(pack_name(written.pack), self.youngest)

    def _remove_strays(self) -> None:
        """Temporary files that no running transaction can still mean to rename."""
        files = self.storage.files
        for folder in ("", "objects"):
            names = files.walk(folder) if folder else [name for name, is_dir in files.entries("") if not is_dir]
            for name in names:
                found = files.stat(name)
                if (
                    name.rpartition("/")[2].startswith(TEMP_PREFIX)
                    and found
                    and found.st_mtime < self.options.now - STRAY_SECONDS
                ):
                    files.remove(name)
                    self.report.strays += 1

    # -- the report -------------------------------------------------------------------------------

    def _count(
        self, graph: Graph, again: Live, live: Live, young: Live, doomed: list[tuple[Kind, int, int]]
    ) -> None:
        report = self.report
        for kind, _, _ in doomed:
            report.pruned[kind] = report.pruned.get(kind, 0) + 1
        for kind, row, _ in graph.rows():
            reached = live.holds(kind, row) or again.holds(kind, row)
            if reached or young.holds(kind, row):
                where = report.kept if reached else report.young
                where[kind] = where.get(kind, 0) + 1

    def _expect(
        self, graph: Graph, live: Live, young: Live, picker: Picker, sources: set[str], packs: list[Written]
    ) -> None:
        """What a run would give: the new packs have been written and thrown away again."""
        files, report = self.storage.files, self.report
        doomed = [
            (kind, row, loc)
            for kind, row, loc in graph.rows()
            if picker.picks(loc) and not live.holds(kind, row) and not young.holds(kind, row)
        ]
        self._count(graph, live, live, young, doomed)
        for kind, _, _ in doomed:
            for where in (report.kept, report.young):
                where.setdefault(kind, 0)
        gone = {pack_name(pack) for pack in sources} | set(self._doomed_files(doomed))
        for written in packs:
            for each in written.placed:
                place = self.storage.index.locate(each.kind, each.oid)
                if place is not None and place.pack is None:
                    gone.add(loose_name(each.kind, each.oid, place.form))
        found = [stat for name in gone if (stat := files.stat(name)) is not None]
        report.stored_after = report.stored_before - sum(each.st_size for each in found)
        report.stored_after += sum(written.size for written in packs)
        report.disk_after = report.disk_before - sum(each.st_blocks for each in found) * 512
        report.disk_after += sum(-(-written.size // 4096) * 4096 for written in packs)
        report.packs_after = report.packs_before - len(sources) + len(packs)


def usage(files: Files) -> tuple[int, int]:
    """(bytes of all stored objects, bytes of disk that the whole store takes)."""
    stored = disk = 0
    for name in files.walk(""):
        found = files.stat(name)
        if found is not None:
            disk += found.st_blocks * 512
            if name.startswith("objects/"):
                stored += found.st_size
    return stored, disk


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))


def _silent(what: str, done: int, total: int) -> None:
    """The progress nobody asked to see."""
