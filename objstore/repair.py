"""Repair: take good copies where there are any, and never invent.

What is bad is moved aside, into `quarantine/<time>/` under the name it had; nothing is deleted. A good copy may
stand in a pack, in a loose file or in the journal; a ref's last value stands in the reflog. The index is made
anew in the end. What has no good copy remains a finding.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from objstore.arrival import Arrival
from objstore.codec import decode
from objstore.findings import Finding, Level
from objstore.frames import FAST_LEVEL
from objstore.fsck import LOCK, QUARANTINE, Progress, check
from objstore.index import Index
from objstore.indexfile import INDEX
from objstore.journal import JOURNAL, START, Journal
from objstore.kinds import Kind
from objstore.loose import FOLDERS, Form, loose_name, parse_loose_name
from objstore.node import Node
from objstore.pack import PACK_FOLDER, PackReader
from objstore.packwriter import PackWriter
from objstore.parts import ALL_PARTS
from objstore.salvage import pack_frames
from objstore.scan import line_arrival
from objstore.survey import Survey
from refs.errors import DagError
from refs.files import Files
from refs.ids import Oid
from refs.names import CONVERSATIONS, RefName, check_ref_name, conversation_ref
from refs.packed import MAX_PACKED_BYTES, PACKED_REFS
from refs.packedfile import HEADER, salvage
from refs.store import HEAD, Move, RefStore

_PACK: Final = re.compile(rf"{PACK_FOLDER}/pack-([0-9a-f]{{64}})\.pack")
_PACKED_LINE: Final = re.compile(rb"([0-9a-f]{64}) (refs/\S+)")


@dataclass(slots=True)
class Repaired:
    """What was done, in words, and what is still wrong."""

    done: list[str] = field(default_factory=list)
    remaining: list[Finding] = field(default_factory=list)


def repair(
    files: Files, now: str, rebuild: Callable[[], None] | None = None, progress: Progress | None = None
) -> Repaired:
    """Mend what can be mended, under the store's lock. `now` names the quarantine's folder.

    `rebuild` makes the index of an open store anew; without it the index is deleted, and the next opening
    does it. Raises `CorruptFile` where there is no readable config: then this may be no store at all.
    """
    with files.lock(LOCK):
        run = _Repair(files, f"{QUARANTINE}/{re.sub('[^0-9TZ]', '', now)}", progress or _silent)
        findings = list(check(files, Level.FULL, progress))
        if findings:
            run.run(findings)
            if rebuild is not None:
                rebuild()
            else:
                for name in (INDEX, f"{INDEX}-wal", f"{INDEX}-shm"):
                    files.remove(name)
            run.report.done.append(
                "made the index anew" if rebuild else "deleted the index: the next command makes it anew"
            )
        run.report.remaining = list(check(files, Level.FULL, progress)) if findings else []
    return run.report


class _Repair:
    def __init__(self, files: Files, quarantine: str, progress: Progress) -> None:
        self.files, self.quarantine, self.progress = files, quarantine, progress
        self.report = Repaired()
        self.good = Index("", ALL_PARTS)

    def run(self, findings: list[Finding]) -> None:
        self.good.create(building=True)
        try:
            for folder in (PACK_FOLDER, *FOLDERS.values()):
                self.files.make_dirs(folder)
            self._journal(findings)
            self._misplaced(findings)
            for _ in Survey(self.files, self.good, full=True, progress=self.progress).run():
                pass
            self._packs(findings)
            self._loose(findings)
            self._refs()
        finally:
            self.good.close()

    # -- aside ------------------------------------------------------------------------------------

    def _aside(self, name: str) -> str:
        """Move a file into the quarantine; its new name."""
        kept = f"{self.quarantine}/{name}"
        self.files.make_dirs(kept.rpartition("/")[0])
        self.files.rename(name, kept)
        self.files.sync_dir(kept.rpartition("/")[0])
        self.files.sync_dir(name.rpartition("/")[0])
        return kept

    def _copy_aside(self, name: str, limit: int) -> None:
        data = self.files.read_or_none(name, limit)
        if data is not None:
            self.files.make_dirs(f"{self.quarantine}/{name}".rpartition("/")[0])
            self.files.replace(f"{self.quarantine}/{name}", data)

    def _say(self, text: str) -> None:
        self.report.done.append(text)

    # -- objects ----------------------------------------------------------------------------------

    def _journal(self, findings: list[Finding]) -> None:
        """Keep a copy: opening the store cuts a torn end, and begins a new journal for a damaged one."""
        if any(each.name in ("torn-journal", "bad-journal") for each in findings):
            self._copy_aside(JOURNAL, MAX_PACKED_BYTES)
            self._say(f"kept a copy of the journal in {self.quarantine}")
            if any(each.name == "torn-journal" for each in findings):
                journal = Journal(self.files, bytes(16))
                end = max((end for _, end in journal.records()), default=START)
                journal.close()
                with self.files.open_rw(JOURNAL) as handle:
                    handle.truncate(end)
                    handle.sync()
                self._say("cut the torn end of the journal")

    def _misplaced(self, findings: list[Finding]) -> None:
        for each in findings:
            if each.name != "misplaced-object":
                continue
            parsed = parse_loose_name(each.place.rpartition("/")[2])
            kind = next(kind for kind in Kind if each.place.startswith(f"{FOLDERS[kind]}/"))
            if parsed is not None:
                target = loose_name(kind, *parsed)
                if self.files.stat(target) is None:
                    self.files.make_dirs(target.rpartition("/")[0])
                    self.files.rename(each.place, target)
                    self.files.sync_dir(target.rpartition("/")[0])
                    self._say(f"moved {each.place} to where it is looked for")
                else:
                    self._say(f"moved {each.place} to {self._aside(each.place)}")

    def _packs(self, findings: list[Finding]) -> None:
        """Write what is good of a bad pack into a new one."""
        for name in sorted({match[0] for each in findings if (match := _PACK.match(each.place))}):
            match = _PACK.match(name)
            if match is None or self.files.stat(name) is None:
                continue
            kept = 0
            try:
                reader = PackReader(self.files, match[1])
            except DagError:
                self._say(f"moved {name} to {self._aside(name)}: nothing in it can be read")
                continue
            with PackWriter(self.files, FAST_LEVEL) as writer:
                for offset, size in pack_frames(reader)[0]:
                    kept += self._salvage(reader, offset, size, writer)
                writer.finish()
            reader.close()
            self._say(f"wrote {kept} good objects of {name} into a new pack, and moved it to {self._aside(name)}")

    def _salvage(self, reader: PackReader, offset: int, size: int, writer: PackWriter) -> int:
        try:
            frame = reader.frame(offset, size)
        except DagError:
            return 0
        kept = 0
        for at in range(len(frame.lines)):
            try:
                arrival: Arrival = line_arrival(frame, 1, at)
                if isinstance(arrival.value, Node):
                    writer.node(arrival.oid, arrival.value)
                elif arrival.kind is Kind.MESSAGE:
                    _, form, raw = frame.message(at)
                    if form is Form.PLAIN:
                        decode(Kind.MESSAGE, raw)
                    writer.message(arrival.oid, raw, form)
                else:
                    writer.record(arrival.kind, arrival.oid, frame.record(at)[1])
            except DagError:
                continue
            kept += 1
        return kept

    def _loose(self, findings: list[Finding]) -> None:
        """Bad loose files go aside: a good copy is found behind them, or may be written anew by a resend."""
        for name in sorted({each.place for each in findings if each.name in ("bad-frame", "bad-object")}):
            parsed = parse_loose_name(name.rpartition("/")[2])
            kind = next((kind for kind in Kind if name.startswith(f"{FOLDERS[kind]}/")), None)
            if parsed is None or kind is None or self.files.stat(name) is None:
                continue
            kept = self._aside(name)
            there = self.good.row(kind, parsed[0]) is not None
            self._say(f"moved {name} to {kept}: " + ("a good copy is there" if there else "there is no good copy"))

    # -- refs -------------------------------------------------------------------------------------

    def _refs(self) -> None:
        refs = RefStore(self.files)
        try:
            mended = refs.reflog.mend(lambda archive: self._copy_aside(archive, MAX_PACKED_BYTES))
            if mended is not None:
                self._say(mended)
            problems = dict(refs.verify())
            if PACKED_REFS in problems:
                self._packed_refs(refs)
            for name in problems:
                if name == HEAD:
                    self._head(refs)
                elif name.startswith("refs/") and self.files.stat(name) is not None:
                    self._loose_ref(refs, name)
            for ref, oid in list(refs.list()):
                value = self._last_value(refs, ref)
                if not self._stored(oid) and value not in (None, oid):
                    self._loose_ref(refs, ref)
        except DagError as failure:
            self._say(f"left refs alone: {failure}")
        finally:
            refs.close()

    def _stored(self, oid: Oid) -> bool:
        return any(self.good.row(kind, oid) is not None for kind in (Kind.NODE, Kind.DESCRIPTION))

    def _last_value(self, refs: RefStore, ref: str) -> Oid | None:
        """Where the log says that a ref stood last, if that is stored."""
        try:
            entry = refs.reflog.entry(check_ref_name(ref), 0)
        except DagError:
            return None
        new = None if entry is None else entry.new
        return new if new is not None and self._stored(new) else None

    def _loose_ref(self, refs: RefStore, name: str) -> None:
        value = self._last_value(refs, name)
        if value is not None:
            old = f"; the file is in {self._aside(name)}" if self.files.stat(name) is not None else ""
            refs.apply([Move(RefName(name), None, value)], durable=True)
            self._say(f"set {name} to {value}, its last value in the reflog{old}")

    def _packed_refs(self, refs: RefStore) -> None:
        self._copy_aside(PACKED_REFS, MAX_PACKED_BYTES)
        values: dict[str, Oid] = {}
        with self.files.open_read(PACKED_REFS) as handle:
            for line in salvage(handle):
                match = _PACKED_LINE.fullmatch(line)
                try:
                    if match is not None:
                        values[check_ref_name(match[2].decode())] = Oid(match[1].decode())
                except (DagError, UnicodeDecodeError):
                    continue
        logged = {entry.ref for entry in refs.reflog.entries()}
        for ref in logged - values.keys():
            value = self._last_value(refs, ref)
            if value is not None and self.files.stat(ref) is None:
                values[ref] = value
        lines = sorted(f"{oid} {name}\n".encode() for name, oid in values.items())
        lines.sort(key=lambda line: line[65:])
        self.files.replace(PACKED_REFS, HEADER + b"".join(lines))
        self._say(f"wrote packed-refs anew with {len(values)} refs; the old one is in {self.quarantine}")

    def _head(self, refs: RefStore) -> None:
        moved = (entry.ref for entry in refs.reflog.entries() if entry.ref.startswith(CONVERSATIONS))
        ref = next((ref for ref in moved if self._last_value(refs, ref) is not None), conversation_ref("main"))
        self._copy_aside(HEAD, 1 << 16)
        refs.set_head(ref)
        self._say(f"made {ref.removeprefix(CONVERSATIONS)} the current conversation: HEAD couldn't be read")


def _silent(what: str, done: int, total: int) -> None:
    """The progress nobody asked to see."""
