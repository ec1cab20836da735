"""Sources into a store: told apart by content, read unit by unit, passed over where nothing has changed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from objstore.collector import paused
from objstore.columns import Scratch, using
from objstore.convnames import DEFAULT_PATTERN, check_pattern
from objstore.imports import ARCHIVE, Imports, Kept, Seen, look, unit_of
from objstore.ingest import Ingest, Ingested
from objstore.storage import Storage
from objstore.store import Store
from objstore.transcripts.archive import ZipSource, looks_like_zip
from objstore.transcripts.files import View, open_source
from objstore.transcripts.model import Certainty, Entry, ReaderOutput, Skipped, Transcript
from objstore.transcripts.peek import start_of
from objstore.transcripts.registry import Detection, Found, detect, format_of, read, reader, units
from objstore.transcripts.source import Source, SourceFile
from objstore.transcripts.streams import local_path
from refs.errors import Conflict, InvalidValue, LimitExceeded, ReadOnlyStore

NOTHING_LOST: Final = frozenset({"empty-conversation", "no-messages", "duplicate-conversation"})
"""Kinds of what was skipped in which there was nothing to import, or nothing else."""

_INDEX_CACHE_KIB: Final = 16 * 1024
_ENTRIES_BETWEEN: Final = 256  # calls of the progress

Tell = Callable[[Ingested | Skipped], None]
Progress = Callable[[str, int, int], None]
"""Told what is being read, and how many of how many bytes are done."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to import. `format` reads everything as that; `since` leaves out conversations that ended before.

    `again` reads what hasn't changed since it was imported.
    """

    pattern: str = DEFAULT_PATTERN
    format: str | None = None
    since: str | None = None
    dry_run: bool = False
    again: bool = False


@dataclass(slots=True)
class Report:
    """What became of one source.

    `unchanged` and `unknown` count files, `older` what `since` left out; of what was skipped, something was
    `missed`.
    """

    source: str
    conversations: int = 0
    messages: int = 0
    new: int = 0
    repaired: int = 0
    skipped: int = 0
    missed: int = 0
    unchanged: int = 0
    unknown: int = 0
    older: int = 0

    @property
    def known(self) -> int:
        """Messages that were here already."""
        return self.messages - self.new

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing that could be imported, now or before."""
        return not (self.conversations or self.unchanged or self.older)

    def __iadd__(self, other: Report) -> Report:
        for name in self.__slots__:
            if name != "source":
                setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


class _SourceFailed(Exception):
    """A reader stopped in the middle of a conversation."""


class Importer:
    """Imports one source after the other. Use as a context manager: at its end all is durable.

    `tell` is told of each conversation, and of each thing that was skipped, as they come. Raises
    `InvalidRefName` for a pattern that makes no name, `KeyError` for a format that isn't known, and
    `ReadOnlyStore`.
    """

    def __init__(self, store: Store, options: Options, tell: Tell, progress: Progress | None = None) -> None:
        check_pattern(options.pattern)
        if options.format is not None:
            reader(options.format)
        if store.storage.read_only and not options.dry_run:
            raise ReadOnlyStore(str(store.path), "the folder is read-only for this user")
        self._options, self._tell, self._progress = options, tell, progress
        self._ingest = Ingest(store, pattern=options.pattern, dry_run=options.dry_run)
        self._imports = Imports(store.storage, (options.pattern, options.format or ""), read_only=options.dry_run)
        self._storage = store.storage
        self._scratch = Scratch(str(store.path))  # the system's own folder for temporary files may be in memory
        self._waiting: list[tuple[int, list[tuple[Seen, str | None]]]] = []
        self._refused = 0

    def __enter__(self) -> Importer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None or issubclass(kind, KeyboardInterrupt):  # what has been read by then is whole
                self.commit()
        finally:
            self._imports.close()

    @property
    def refused(self) -> Sequence[Conflict]:
        """Conversations that somebody else moved in the meantime: they were left alone."""
        return self._ingest.refused

    def commit(self) -> None:
        """Make durable what has been imported so far."""
        with _little_of_the_index(self._storage):
            self._ingest.flush()
        self._settle()

    def add(self, path: str, label: str | None = None) -> Report:
        """Import the file, folder or archive at a path."""
        with using(self._scratch), _little_of_the_index(self._storage), paused():
            return self._add(path, label)

    def _add(self, path: str, label: str | None) -> Report:
        source = open_source(path, label)
        report = Report(source.label)
        self._skip_all(report, source.skipped)
        if isinstance(source, ZipSource):
            seen = look(os.path.realpath(path))
            if seen is not None and self._kept(seen) is not None:
                report.unchanged += 1
                return report
            jobs = [self._archive(detect(source, told=self._format_of), seen, report)]
        else:
            jobs = self._jobs(source, report)
        total, done = sum(job.size for job in jobs), 0
        for job in jobs:
            self._run(job, report, done, total)
            done += job.size
        return report

    # -- what there is to read --------------------------------------------------------------------

    def _jobs(self, source: Source, report: Report) -> list[_Job]:
        """What of a folder, or of one file, is new or has changed, with all that must be read with it."""
        files = source.files()
        seen = {file.name: at for file in files if (at := look(local_path(file))) is not None}
        kept = {name: held for name, at in seen.items() if (held := self._kept(at)) is not None}
        if len(kept) == len(files):
            report.unchanged += sum(format is not None for format, _ in kept.values())
            return []
        report.unchanged += sum(format == ARCHIVE for format, _ in kept.values())
        # A file that is unchanged is still part of its unit, but isn't looked into to tell its format.
        known = {name: format for name, (format, _) in kept.items() if format not in (None, ARCHIVE)}
        left = [file for file in files if file.name not in kept or file.name in known]
        alone = len(files) == 1

        def told(file: SourceFile) -> str | None:
            return known[file.name] if file.name in known else self._format_of(file, alone=alone)

        detection = detect(View(source, left), told=told)
        report.unknown += len(detection.unknown)
        for file in detection.unknown:
            self._keep_later([(seen[file.name], None)] if file.name in seen else [])
        jobs: list[_Job] = []
        inside: dict[str, Detection] = {}
        for each in detection.found:
            if each.source.label != source.label:
                inside.setdefault(each.source.label, Detection()).found.append(each)
            elif all(file.name in kept for file in each.source.files()):
                report.unchanged += len(each.source.files())
            else:
                jobs += self._units(each, seen, kept, report)
        self._skip_all(report, detection.skipped)
        for label, found in inside.items():
            jobs.append(self._archive(found, seen.get(label.removeprefix(f"{source.label}/")), report))
        return jobs

    def _units(
        self, found: Found, seen: Mapping[str, Seen], kept: Mapping[str, Kept], report: Report
    ) -> Iterator[_Job]:
        for unit in units(found):
            names = [file.name for file in unit.files()]
            keeps: list[tuple[Seen, str | None]] = [(seen[name], found.format) for name in names if name in seen]
            name = unit_of(at for at, _ in keeps)
            if all(each in kept and kept[each][1] == name for each in names):
                report.unchanged += len(names)
            else:
                yield _Job([Found(found.format, unit)], keeps if len(keeps) == len(names) else [])

    def _archive(self, detection: Detection, seen: Seen | None, report: Report) -> _Job:
        self._skip_all(report, detection.skipped)
        report.unknown += len(detection.unknown)
        parts = [Found(each.format, unit) for each in detection.found for unit in units(each)]
        return _Job(parts, [(seen, ARCHIVE)] if seen is not None else [])

    def _kept(self, seen: Seen) -> Kept | None:
        return None if self._options.again else self._imports.kept(seen)

    def _format_of(self, file: SourceFile, alone: bool = False) -> str | None:
        wanted = self._options.format
        if wanted is None:
            return format_of(file)
        if looks_like_zip(file):
            return None
        sure = alone or reader(wanted).sniff(start_of(file), file.name) is not Certainty.NO
        return wanted if sure else None

    # -- reading it -------------------------------------------------------------------------------

    def _run(self, job: _Job, report: Report, done: int, total: int) -> None:
        def show(messages: int) -> None:
            if self._progress is not None:
                self._progress(f"{report.source}: {report.messages + messages:,} messages", done, total)

        whole = True
        for part in job.parts:
            recent = self._recent(part) if self._options.since is not None else None
            number = -1
            for output in _outputs(part):
                if isinstance(output, Skipped):
                    whole &= not output.kind.startswith("unread")
                    self._skip(report, output)
                    continue
                number += 1
                if recent is not None and number not in recent:
                    report.older += 1
                    whole = False
                else:
                    whole &= self._take(output, report, show)
        if whole:
            self._keep_later(job.keeps)
        self._settle()

    def _take(self, transcript: Transcript, report: Report, show: Callable[[int], None]) -> bool:
        """Import one conversation; False where that failed."""
        transcript.entries = _guarded(transcript.entries, show)
        try:
            done = self._ingest.add(transcript)
        except (_SourceFailed, InvalidValue, LimitExceeded) as error:
            kind = "unreadable-conversation" if isinstance(error, _SourceFailed) else "unstorable-conversation"
            for warn in transcript.warnings:
                self._skip(report, Skipped(warn.kind, f"{transcript.place}, {warn.place}", warn.text))
            self._skip(report, Skipped(kind, transcript.place, str(error)))
            return False
        report.conversations += 1
        report.messages += done.messages
        report.new += done.new
        report.repaired += len(done.warnings)
        self._tell(done)
        return True

    def _recent(self, part: Found) -> set[int]:
        """Which of the conversations of a part went on at the wanted time, or tell no time at all."""
        recent = set()
        number = -1
        for output in _outputs(part):
            if isinstance(output, Transcript):
                number += 1
                try:
                    last = max((entry.at for entry in output.entries if entry.at is not None), default=None)
                except Exception:  # the next reading tells it
                    last = None
                if last is None or last >= (self._options.since or ""):
                    recent.add(number)
        return recent

    def _skip_all(self, report: Report, skipped: Iterable[Skipped]) -> None:
        for each in skipped:
            self._skip(report, each)

    def _skip(self, report: Report, skipped: Skipped) -> None:
        report.skipped += 1
        report.missed += skipped.kind not in NOTHING_LOST
        self._tell(skipped)

    # -- remembering it ---------------------------------------------------------------------------

    def _keep_later(self, keeps: list[tuple[Seen, str | None]]) -> None:
        if keeps and not self._options.dry_run:
            self._waiting.append((self._ingest.commits, keeps))

    def _settle(self) -> None:
        """Remember what was imported before the last commit: only what is durable counts as imported."""
        durable = [each for each in self._waiting if each[0] < self._ingest.commits]
        if not durable:
            return
        self._waiting = self._waiting[len(durable) :]
        if len(self._ingest.refused) == self._refused:
            self._imports.keep([keeps for _, keeps in durable])
        self._refused = len(self._ingest.refused)


@contextlib.contextmanager
def _little_of_the_index(storage: Storage) -> Iterator[None]:
    """What SQLite holds of the index must not follow its size: an import looks everywhere into it."""
    wanted = {"cache_size": -_INDEX_CACHE_KIB, "mmap_size": 0}
    with storage.index.reading() as db:
        usual = {name: db.execute(f"PRAGMA {name}").fetchone() for name in wanted}
        for name, value in wanted.items():
            db.execute(f"PRAGMA {name}={value}")
    try:
        yield
    finally:
        with storage.index.reading() as db:
            for name, value in usual.items():
                if value is not None:  # an index in memory has no file to map
                    db.execute(f"PRAGMA {name}={value[0]}")


@dataclass(frozen=True, slots=True)
class _Job:
    """What is read together, and remembered together once it was read as a whole."""

    parts: list[Found]
    keeps: list[tuple[Seen, str | None]]

    @property
    def size(self) -> int:
        return sum(file.size for part in self.parts for file in part.source.files())


def _outputs(part: Found) -> Iterator[ReaderOutput]:
    """What a reader gives. One that fails, as none should, ends this part and nothing else."""
    try:
        yield from read(part.format, part.source)
    except Exception as error:
        yield Skipped("unreadable-file", part.source.label, f"{type(error).__name__}: {error}")


def _guarded(entries: Iterable[Entry], show: Callable[[int], None]) -> Iterator[Entry]:
    count = 0
    try:
        for entry in entries:
            if count % _ENTRIES_BETWEEN == 0:
                show(count)
            count += 1
            yield entry
    except Exception as error:
        raise _SourceFailed(f"{type(error).__name__}: {error}") from error
