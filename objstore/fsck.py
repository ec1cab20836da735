"""fsck: is what is on the disk what was written there? Looks at files, and needs no index to be right.

Three levels: names, sizes, checksums; then what everything needs; then every object read, hashed and written
again, and the index compared with what the objects say. Changes nothing.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from typing import Final

import zstandard

from objstore.audit import audit
from objstore.catchup import why_anew
from objstore.config import CONFIG, read_config
from objstore.findings import Finding, Level, Severity, error, info, warning
from objstore.frames import decompress
from objstore.index import Index
from objstore.indexfile import INDEX
from objstore.journal import JOURNAL, START, Journal
from objstore.kinds import Kind
from objstore.limits import MAX_OBJECT_BYTES, MAX_STORED_BYTES
from objstore.loose import FOLDERS, Form, parse_loose_name
from objstore.pack import PACK_FOLDER, PackReader, list_packs, pack_name
from objstore.parts import ALL_PARTS
from objstore.salvage import recorded
from objstore.survey import Survey, unfinished
from refs.errors import CorruptFile, DagError
from refs.files import TEMP_PREFIX, Files
from refs.ids import Oid, is_oid
from refs.reflog import REFLOG
from refs.store import HEAD, STAMP, RefStore

LOCK: Final = "lock"
QUARANTINE: Final = "quarantine"
"""The folder in which repair keeps what it takes away."""

MAX_FINDINGS: Final = 10_000
"""Findings after which fsck stops looking."""

_FRAME_HEADER_BYTES: Final = 18
_KNOWN_FILES: Final = frozenset({CONFIG, HEAD, LOCK, JOURNAL, REFLOG, STAMP, "packed-refs", ".gitignore"})
_DATABASES: Final = (INDEX, "imports.sqlite", "search.sqlite")
_KNOWN_FOLDERS: Final = ("refs", "drafts", "sync", QUARANTINE)  # each is checked by whoever owns it

Progress = Callable[[str, int, int], None]


def check(files: Files, level: Level = Level.FULL, progress: Progress | None = None) -> Iterator[Finding]:
    """All that is wrong with the store in `files`' folder, worst first within each step.

    Holds the store's lock where it can, so that what it sees is of one moment: writers wait.
    """
    with contextlib.ExitStack() as stack:
        if os.access(files.path(""), os.W_OK):
            stack.enter_context(files.lock(LOCK))
        for count, finding in enumerate(_check(files, level, progress or _silent)):
            if count >= MAX_FINDINGS:
                yield warning("too-many", "", f"more than {MAX_FINDINGS} findings: the rest isn't told")
                return
            yield finding


def damaged(findings: list[Finding]) -> bool:
    """Whether any of them is an error."""
    return any(finding.severity is Severity.ERROR for finding in findings)


def _check(files: Files, level: Level, progress: Progress) -> Iterator[Finding]:
    try:
        read_config(files)
    except DagError as failure:
        yield error("bad-config", CONFIG, str(failure))
    progress("files", 0, 1)
    yield from _layout(files, quick=level is Level.QUICK)
    yield from _journal(files)
    yield from _refs(files)
    yield from _stamp(files)
    progress("files", 1, 1)
    if level is Level.QUICK:
        yield from _packs(files, progress)
        return
    index = Index("", ALL_PARTS)  # a temporary database, gone when it is closed
    index.create(building=True)
    try:
        yield from Survey(files, index, full=level is Level.FULL, progress=progress).run()
        if level is Level.FULL:
            yield from audit(files, index)
    finally:
        index.close()


# -- names, kinds and permissions of files --------------------------------------------------------


def _layout(files: Files, *, quick: bool) -> Iterator[Finding]:
    exposed: list[str] = []
    for name in files.walk(""):
        found = files.stat(name)
        if found is None:
            continue
        if not stat.S_ISREG(found.st_mode):
            yield error("bad-file-kind", name, "a link or device where a regular file belongs")
            continue
        if found.st_mode & 0o077:
            exposed.append(name)
        yield from _file(files, name, quick=quick)
    root = files.stat("")
    if root is not None and root.st_mode & 0o077:
        exposed.insert(0, ".")
    if exposed:
        text = f"{len(exposed)} files or folders that others may read or write"
        yield warning("bad-permissions", exposed[0], text)
    for folder in (PACK_FOLDER, *FOLDERS.values()):
        if files.stat(folder) is None:
            yield info("missing-folder", folder, "it isn't there; it is made when it is needed")


def _file(files: Files, name: str, *, quick: bool) -> Iterator[Finding]:
    base = name.rpartition("/")[2]
    top = name.partition("/")[0]
    if base.startswith(TEMP_PREFIX):
        yield info("stray-file", name, "left by a crash, or being written; gc removes it when it is old")
    elif top == "objects":
        yield from _object_file(files, name, quick=quick)
    elif not (
        name in _KNOWN_FILES
        or name.startswith(f"{JOURNAL}.damaged-")
        or (top != name and top in _KNOWN_FOLDERS)
        or any(name == each or name in (f"{each}-wal", f"{each}-shm", f"{each}-journal") for each in _DATABASES)
    ):
        yield warning("stray-file", name, "no file of a store")


def _object_file(files: Files, name: str, *, quick: bool) -> Iterator[Finding]:
    folder, _, base = name.rpartition("/")
    if folder == PACK_FOLDER:
        if not is_oid(pack := base.removeprefix("pack-").removesuffix(".pack")) or name != pack_name(Oid(pack)):
            yield warning("stray-file", name, "not the name of a pack")
        return
    parsed = parse_loose_name(base)
    kind = next((kind for kind in Kind if folder.startswith(f"{FOLDERS[kind]}/") or folder == FOLDERS[kind]), None)
    if parsed is None or kind is None:
        yield warning("stray-file", name, "not the name of an object")
    elif folder != f"{FOLDERS[kind]}/{parsed[0][:2]}":
        yield error("misplaced-object", name, f"{kind} {parsed[0]} isn't looked for here")
    elif quick:
        for finding in _frame(files, name, kind, parsed[1]):
            yield unfinished(name) if (kind, parsed[0]) in recorded(files) else finding


def _frame(files: Files, name: str, kind: Kind, form: Form) -> Iterator[Finding]:
    """Whether a loose file is a zstd frame: of a payload only its beginning, else all of it."""
    try:
        if kind is Kind.PAYLOAD and form is Form.PLAIN:
            with files.open_read(name) as handle:
                zstandard.get_frame_parameters(handle.read_at(0, _FRAME_HEADER_BYTES))
        else:
            decompress(files.read(name, MAX_STORED_BYTES), MAX_OBJECT_BYTES, name)
    except (DagError, zstandard.ZstdError, FileNotFoundError) as failure:
        yield error("bad-frame", name, getattr(failure, "reason", str(failure)))


# -- packs, journal, refs, the index's stamp ------------------------------------------------------


def _packs(files: Files, progress: Progress) -> Iterator[Finding]:
    packs = list_packs(files)
    for done, pack in enumerate(packs):
        progress("packs", done, len(packs))
        name = pack_name(pack)
        try:
            reader = PackReader(files, pack)
        except (DagError, FileNotFoundError) as failure:
            yield error("bad-pack", name, str(failure))
            continue
        try:
            if not reader.verify_name():
                yield error("bad-pack-name", name, "its bytes have another hash than its name says")
            for _ in reader.frames():
                pass
        except CorruptFile as failure:
            yield error("bad-seek-table", name, failure.reason)
        finally:
            reader.close()


def _journal(files: Files) -> Iterator[Finding]:
    journal = Journal(files, bytes(16))
    try:
        problems = journal.verify()
        for text in problems:
            # An append that never returned, or an emptying: neither takes anything with it.
            if "behind the last" in text or "told from the rest" in text:
                yield warning("torn-journal", JOURNAL, text)
            else:
                yield error("bad-journal", JOURNAL, text)
        if problems:
            return
        if journal.damaged:
            yield error(
                "bad-journal", JOURNAL, f"{journal.damaged} places can't be read, with records behind them"
            )
        elif journal.position().end != START + journal.size:
            yield info("unapplied-journal", JOURNAL, "a crash cut a change short; the next opening completes it")
    except FileNotFoundError:
        yield warning("missing-journal", JOURNAL, "it isn't there; the next opening makes a new one")
    finally:
        journal.close()


def _refs(files: Files) -> Iterator[Finding]:
    refs = RefStore(files)
    try:
        for name, problem in refs.verify():
            yield error("bad-ref", name, problem)
        for _ in refs.reflog.entries():
            pass
        if refs.reflog.damaged:
            yield warning("damaged-reflog", REFLOG, f"{refs.reflog.damaged} lines can't be read")
    except DagError as failure:
        yield error("bad-ref", REFLOG, str(failure))
    finally:
        refs.close()


def _stamp(files: Files) -> Iterator[Finding]:
    """Whether the index is there, of this version, and of the same time as the objects."""
    index, journal = Index(files.path(INDEX), ALL_PARTS, read_only=True), Journal(files, bytes(16))
    try:
        if files.stat(INDEX) is None or not index.open():
            yield warning(
                "bad-index", INDEX, "missing, damaged or of another version: the next opening makes it anew"
            )
            return
        if why_anew(files, index, journal) is not None:
            yield warning("stale-index", INDEX, "of another time than the journal: the next opening mends it")
        elif set(list_packs(files)) != index.packs().keys():
            yield warning("stale-index", INDEX, "it knows other packs than there are: the next opening mends it")
    except (DagError, FileNotFoundError) as failure:
        yield warning("bad-index", INDEX, str(failure))
    finally:
        index.close()
        journal.close()


def _silent(what: str, done: int, total: int) -> None:
    """The progress nobody asked to see."""
