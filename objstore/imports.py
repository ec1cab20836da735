"""Which files have been imported and are unchanged since: `imports.sqlite` in the store.

A cache: without it the next import reads everything again, and still writes nothing twice. A file is known
by the hash of its absolute path; what was read of it counts only under the same options, and only while its
size, its times and its inode are the same.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from objstore.indexfile import DAMAGE
from objstore.storage import Storage
from objstore.transcripts.model import IMPORTER

IMPORTS: Final = "imports.sqlite"
ARCHIVE: Final = "zip"
"""What stands for the format of an archive, whatever is in it."""

_VERSION: Final = 1
_UNUSABLE: Final = (sqlite3.Error, *DAMAGE)
_TICK_NS: Final = 20_000_000
"""A file that was written so shortly before it was looked at may change again and keep its time."""
_SCHEMA: Final = (
    "CREATE TABLE file (path BLOB PRIMARY KEY, state BLOB NOT NULL, options BLOB NOT NULL, format TEXT,"
    " unit BLOB NOT NULL) WITHOUT ROWID"
)


@dataclass(frozen=True, slots=True)
class Seen:
    """A file on the disk as it was found: which, and in what state."""

    path: bytes
    state: bytes
    young: bool


Kept = tuple[str | None, bytes]
"""The format of a file that was imported, and which files were imported together with it."""


def look(path: str | None) -> Seen | None:
    """The state of a file on the disk, by its real path; None where there is none."""
    if path is None:
        return None
    try:
        about = os.lstat(path)
    except OSError:
        return None
    state = f"{about.st_size} {about.st_mtime_ns} {about.st_ctime_ns} {about.st_ino} {about.st_dev}"
    young = time.time_ns() - max(about.st_mtime_ns, about.st_ctime_ns) < _TICK_NS
    return Seen(sha256(os.fsencode(path)).digest()[:16], state.encode(), young)


class Imports:
    """What was imported into a store. Never an error: a cache that can't be read or written is as none."""

    def __init__(self, storage: Storage, options: Sequence[str], *, read_only: bool = False) -> None:
        """`options` are those that change what an import makes of a file."""
        self._options = sha256("\0".join((IMPORTER, *options)).encode()).digest()[:16]
        self._db: sqlite3.Connection | None = None
        path = storage.files.path(IMPORTS)
        with contextlib.suppress(*_UNUSABLE, OSError):  # another process may be making it just now
            self._db = _opened(path)
            if self._db is None and not (read_only or storage.read_only):
                self._db = _opened_anew(path)

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def kept(self, seen: Seen) -> Kept | None:
        """(format, unit) of a file as it was imported; None if it wasn't, or has changed since."""
        if self._db is None:
            return None
        try:
            found = self._db.execute(
                "SELECT state, options, format, unit FROM file WHERE path=?", (seen.path,)
            ).fetchone()
        except _UNUSABLE:
            return None
        return (found[2], found[3]) if found and found[:2] == (seen.state, self._options) else None

    def keep(self, units: Iterable[Sequence[tuple[Seen, str | None]]]) -> None:
        """These units were imported, durably: files, each with its format (None: of no format)."""
        rows = []
        for files in units:
            unit = unit_of(seen for seen, _ in files)
            rows += [
                (seen.path, seen.state, self._options, format, unit) for seen, format in files if not seen.young
            ]
        if self._db is not None:
            with contextlib.suppress(*_UNUSABLE), self._db:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.executemany("INSERT OR REPLACE INTO file VALUES (?,?,?,?,?)", rows)


def unit_of(files: Iterable[Seen]) -> bytes:
    """A name for the files that are imported together."""
    return sha256(b"".join(sorted(seen.path for seen in files))).digest()[:16]


def _opened(path: str) -> sqlite3.Connection | None:
    if not os.path.exists(path):
        return None
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("PRAGMA synchronous=OFF")
        db.execute("PRAGMA trusted_schema=OFF")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == _VERSION:
            db.execute("SELECT * FROM file LIMIT 1").fetchone()
            return db
    except _UNUSABLE:
        pass
    db.close()
    return None


def _opened_anew(path: str) -> sqlite3.Connection:
    for name in (path, f"{path}-journal"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA synchronous=OFF")
    db.execute(_SCHEMA)
    db.execute(f"PRAGMA user_version={_VERSION}")
    return db
