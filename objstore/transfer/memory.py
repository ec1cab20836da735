"""What was learnt of a remote, so that the next sync need not ask again: `sync/<key>.sqlite`. A cache.

Delete it and the next sync compares everything, and may send or fetch again what is there already; nothing
is lost or believed that would not be without it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from objstore.index import Index
from objstore.indexfile import BUSY_MILLISECONDS, DAMAGE, is_damage
from objstore.kinds import Kind
from refs.errors import CorruptFile, DagError, StorageFailure
from refs.files import Files
from refs.ids import Oid

FOLDER: Final = "sync"
_IDS_AT_ONCE: Final = 500
_NUMBER: Final = {kind: number for number, kind in enumerate(Kind)}


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a store had been compared: its numbering of rows, and the last row of each kind."""

    numbering: str
    rows: Mapping[Kind, int]

    @classmethod
    def of(cls, index: Index) -> Mark:
        """Where a store stands now."""
        return cls(index.numbering(), index.last_rows())

    def text(self) -> str:
        return json.dumps({"numbering": self.numbering, **self.rows})

    @classmethod
    def parse(cls, text: str | None) -> Mark | None:
        """What `text` wrote; None for anything else."""
        try:
            value = json.loads(text or "")
            return cls(str(value["numbering"]), {kind: int(value[kind]) for kind in Kind})
        except (ValueError, TypeError, KeyError):
            return None


class Memory:
    """The file, open. Use from one thread.

    Raises `StorageFailure`, and `CorruptFile` once it has removed a damaged one.
    """

    def __init__(self, files: Files, url: str, remote: str) -> None:
        """`remote` is the id that the remote gives itself: only together with the address it names a file."""
        key = sha256(f"{url}\n{remote}".encode("utf-8", "surrogatepass")).hexdigest()
        name = f"{FOLDER}/{key[:32]}.sqlite"
        self._path = files.path(name)
        files.make_dirs(FOLDER)
        files.place(name, b"")  # with our permissions: SQLite would make it readable for all
        try:
            self._db = self._open()
        except DAMAGE as error:
            if not is_damage(error):
                raise StorageFailure(self._path, OSError(0, str(error))) from error
            self._remove()
            files.place(name, b"")
            self._db = self._open()

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, isolation_level=None)
        try:
            db.execute(f"PRAGMA busy_timeout={BUSY_MILLISECONDS}")
            db.execute("PRAGMA trusted_schema=OFF")
            db.execute("PRAGMA synchronous=NORMAL")
            for statement in _SCHEMA:
                db.execute(statement)
            db.execute("SELECT m.proof, r.proof FROM meta m, ref r LIMIT 1").fetchone()  # those of before had none
        except BaseException:
            db.close()
            raise
        return db

    def close(self) -> None:
        self._db.close()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        except DAMAGE as error:
            raise self._failure(error) from error

    def _ask(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        try:
            return self._db.execute(query, values).fetchall()
        except DAMAGE as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> DagError:
        if not is_damage(error):
            return StorageFailure(self._path, OSError(0, str(error)))
        self._remove()
        return CorruptFile(self._path, f"damaged ({error}); it is a cache, and made anew the next time")

    def _remove(self) -> None:
        for suffix in ("", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path + suffix)

    # -- how far one side was compared with the other ---------------------------------------------

    def mark(self, side: str) -> Mark | None:
        """Up to where a side's objects were compared; None if never."""
        return Mark.parse(self._meta(f"mark {side}"))

    def covered(self, side: str) -> set[Oid]:
        """The heads up to which a side's histories were compared, with all that hangs on them."""
        found = self._ask("SELECT id FROM covered WHERE side=?", (side,))
        return _ids(found)

    def remember(self, side: str, mark: Mark, heads: Collection[Oid], *, everything: bool) -> None:
        """A comparison has ended, and what was lacking is there. `everything`: no other head counts."""
        with self._changing():
            self._set_meta(f"mark {side}", mark.text())
            if everything:
                self._db.execute("DELETE FROM covered WHERE side=?", (side,))
                self._set_meta(f"all {side}", mark.text())
            rows = [(side, bytes.fromhex(oid)) for oid in heads]
            self._db.executemany("INSERT OR IGNORE INTO covered VALUES (?, ?)", rows)

    def mark_of_all(self, side: str) -> Mark | None:
        """As `mark`, of the last comparison of everything."""
        return Mark.parse(self._meta(f"all {side}"))

    def _meta(self, key: str) -> str | None:
        found = self._ask("SELECT value, proof FROM meta WHERE key=?", (key,))
        return found[0][0] if found and found[0][1] == _proof(key, found[0][0]) else None

    def _set_meta(self, key: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", (key, value, _proof(key, value)))

    def flag(self, name: str) -> bool:
        """Whether something was noted once and for all."""
        return self._meta(name) is not None

    def set_flag(self, name: str) -> None:
        with self._changing():
            self._set_meta(name, "")

    # -- what an object storage holds -------------------------------------------------------------

    def held(self, kind: Kind, ids: Iterable[Oid]) -> set[Oid]:
        """Those of `ids` that were fetched from there, or sent."""
        wanted = list(ids)
        found: set[Oid] = set()
        for start in range(0, len(wanted), _IDS_AT_ONCE):
            names = {bytes.fromhex(oid[:32]): oid for oid in wanted[start : start + _IDS_AT_ONCE]}
            marks = ",".join("?" * len(names))
            query = f"SELECT id FROM held WHERE kind=? AND id IN ({marks})"
            found.update(names[name] for (name,) in self._ask(query, (_NUMBER[kind], *names)))
        return found

    def packs(self) -> set[Oid]:
        """The packs that were taken or sent."""
        return _ids(self._ask("SELECT id FROM pack"))

    def learn(self, packs: Iterable[Oid], ids: Iterable[tuple[Kind, Oid]]) -> None:
        """Packs that are there, and what they hold."""
        rows = sorted((_NUMBER[kind], bytes.fromhex(oid[:32])) for kind, oid in ids)
        with self._changing():
            self._db.executemany("INSERT OR IGNORE INTO held VALUES (?, ?)", rows)
            self._db.executemany("INSERT OR IGNORE INTO pack VALUES (?)", [(bytes.fromhex(p),) for p in packs])

    # -- refs of an object storage by their version -----------------------------------------------

    def values(self) -> dict[str, tuple[str, str]]:
        """name -> (version, value) of refs as they were last read; an empty value is a deleted ref's."""
        rows = self._ask("SELECT name, tag, value, proof FROM ref")
        return {name: (tag, value) for name, tag, value, proof in rows if proof == _proof(name, tag, value)}

    def keep_values(self, values: Mapping[str, tuple[str, str]], gone: Iterable[str]) -> None:
        """Refs that were read, and names that are no longer there."""
        with self._changing():
            self._db.executemany("DELETE FROM ref WHERE name=?", [(name,) for name in gone])
            rows = [(name, tag, value, _proof(name, tag, value)) for name, (tag, value) in values.items()]
            self._db.executemany("INSERT OR REPLACE INTO ref VALUES (?, ?, ?, ?)", rows)


def _ids(rows: Iterable[tuple[Any]]) -> set[Oid]:
    return {Oid(oid.hex()) for (oid,) in rows if isinstance(oid, bytes) and len(oid) == 32}


def _proof(*texts: object) -> str:
    """What goes with values that nothing else would show to be damaged."""
    return sha256("\0".join(map(str, texts)).encode("utf-8", "surrogatepass")).hexdigest()[:16]


_SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT, proof TEXT) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS covered(side TEXT, id BLOB, PRIMARY KEY(side, id)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS held(kind INTEGER, id BLOB, PRIMARY KEY(kind, id)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS pack(id BLOB PRIMARY KEY) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS ref(name TEXT PRIMARY KEY, tag TEXT, value TEXT, proof TEXT) WITHOUT ROWID",
)
