"""The file of the SQLite index: opened, made, followed by what was just committed, or copied into memory."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

from objstore.arrival import Arrival, Location
from objstore.kinds import Kind
from objstore.recent import MAX_RECENT_OBJECTS, Recent
from refs.errors import CorruptFile, DagError, StorageFailure
from refs.forks import renew_after_fork

INDEX: Final = "index.sqlite"
APPLICATION_ID: Final = 0x64616731  # "dag1"
SCHEMA_VERSION: Final = 2
BUSY_MILLISECONDS: Final = 60_000
DAMAGE: Final = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What SQLite raises over a damaged file; the second where its words quote what is no UTF-8."""
_AS_IT_STANDS: Final = "ro&immutable=1"
_COPY_TRIES: Final = 40  # a quarter of a second each
NUMBERING: Final = "numbering"
_STAMP: Final = "journal"


def is_damage(error: Exception) -> bool:
    """Whether one of `DAMAGE` is damage, rather than a lock, the disk or missing rights.

    Our statements are good: a table or column that isn't as we made it is damage, as is text that is none, of
    which Python tells without a code.
    """
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return not isinstance(error, sqlite3.OperationalError) or code == sqlite3.SQLITE_ERROR


class IndexPart(Protocol):
    """A table of its own that is filled with the objects of some kinds and rebuilt with the rest."""

    name: str
    version: int
    kinds: frozenset[Kind]

    def create(self, db: sqlite3.Connection) -> None: ...
    def add(self, db: sqlite3.Connection, index: Any, added: Sequence[tuple[int, Any]]) -> None: ...
    def forget(self, db: sqlite3.Connection, kind: Kind, rows: Sequence[int]) -> None: ...
    def link(self, db: sqlite3.Connection) -> None: ...


class IndexFile:
    """One connection to `index.sqlite`, safe to use from several threads (one at a time) and after a fork."""

    def __init__(self, path: str, parts: Sequence[IndexPart], *, read_only: bool = False) -> None:
        self.path = path
        self.checks = 0
        """Existence look-ups so far: what a prefix search costs."""
        self._parts = tuple(parts)
        self._of_kind = {kind: [part for part in parts if kind in part.kinds] for kind in Kind}
        self._read_only = read_only
        self._mutex = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._pid = os.getpid()
        self.inode = 0
        """Which file is open: another one of the same name has another."""
        self._frames: dict[int, Location] = {}
        _LIVE.add(self)
        renew_after_fork(self)
        self._arriving: dict[Kind, dict[bytes, int]] = {}
        """Rows of what `add` is just admitting."""
        self._recent: Recent | None = None
        self._mode = "rw"
        """How the file was opened, as SQLite's URIs say it."""
        self.in_memory = False
        """Whether a copy takes the place of a file that can't be changed."""
        self._reader = 0
        """The thread that is within `reading`."""
        self.look: Callable[[bool], bool] = _nothing_new
        """Called before a question is put to the tables, since what others have committed must be there first.

        And, with True, where something is missing: it waits for who is committing. Whether to ask again.
        """

    def renew(self) -> None:
        """In a forked child: begin with a lock that is free. The connection is the parent's: see `reading`.

        What was just committed is the parent's to take in; the child finds it in the journal.
        """
        self._mutex = threading.RLock()
        self._arriving = {}
        self._recent = None
        self._reader = 0

    @property
    def version(self) -> int:
        """Changes with the schema and with each part's: another version is rebuilt, never migrated."""
        return SCHEMA_VERSION * 1000 + sum(part.version for part in self._parts)

    # -- life -------------------------------------------------------------------------------------

    def open(self) -> bool:
        """Open what is there; False if there is nothing, or not an index of this version."""
        modes: tuple[str, ...] = ("rw",)
        if self._read_only:
            # A write-ahead log needs a file for its readers to meet in, which can't be made in such a folder.
            modes = ("ro",) if os.path.exists(f"{self.path}-wal") else ("ro", _AS_IT_STANDS)
        for mode in modes:
            inode = self._inode_now()
            # SQLite finds the log by its name: opened while the file is replaced, it could take the other's.
            if self._open(mode) and inode == self._inode_now():
                self.inode, self._mode = inode, mode
                return True
            self.close()
        if not self._read_only and self._stands_alone() and self._open(_AS_IT_STANDS):
            # On a full disk there is no room for what a log needs beside it.
            self._mode = _AS_IT_STANDS
            self.go_on_in_memory()
            return True
        return False

    def _stands_alone(self) -> bool:
        """Whether the file holds all there is: nothing in the log, or no log."""
        try:
            return os.stat(f"{self.path}-wal").st_size == 0
        except OSError:
            return os.path.exists(self.path)

    def _open(self, mode: str) -> bool:
        try:
            uri = f"file:{_quoted(self.path)}?mode={mode}"
            db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        except sqlite3.OperationalError:
            return False
        try:
            db.execute(f"PRAGMA busy_timeout={BUSY_MILLISECONDS}")
            application = db.execute("PRAGMA application_id").fetchone()[0]
            version = db.execute("PRAGMA user_version").fetchone()[0]
            page = db.execute("PRAGMA page_size").fetchone()[0]
            # SQLite takes a file that was cut within its last page for a whole one.
            if (application, version) != (APPLICATION_ID, self.version) or os.stat(self.path).st_size % page:
                db.close()
                return False
            if not self._read_only and mode == "rw":
                db.execute("PRAGMA journal_mode=WAL")
            self._tune(db)
            db.execute("SELECT value FROM meta").fetchall()
        except (*DAMAGE, OSError):
            db.close()
            return False
        self._db = db
        return True

    def _inode_now(self) -> int:
        try:
            return os.stat(self.path).st_ino
        except OSError:
            return 0

    @property
    def is_open(self) -> bool:
        return self._db is not None

    def is_current(self) -> bool:
        """Whether an index is open, and the one that has its name now."""
        return self._db is not None and (self.in_memory or self.inode == self._inode_now())

    @contextlib.contextmanager
    def replacing(self) -> Iterator[None]:
        """Close for as long as the block takes, then open what is there. Other threads wait."""
        with self._mutex:
            self.close()
            try:
                yield
            finally:
                self.open()

    def reopen(self) -> bool:
        """Open what has the name now; see `open`."""
        with self.replacing():
            pass
        return self.is_open

    def forget_places(self) -> None:
        """Ask anew where frames stand."""
        self._frames.clear()

    def go_on_in_memory(self) -> sqlite3.Connection:
        """Until it is opened again, answer from a copy that can be changed, where the file can't; the copy."""
        with self._mutex:
            copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            # Not from the connection that gave up: it may still be in the middle of a change.
            source = sqlite3.connect(f"file:{_quoted(self.path)}?mode={self._mode}", uri=True)
            try:
                source.backup(copy, progress=_tries())
            finally:
                source.close()
            recent = self._recent
            self.close()
            self._db, self._recent, self.in_memory = copy, recent, True
            return copy

    def checkpoint(self) -> None:
        """Bring what was committed from the write-ahead log into the file, and sync both."""
        with self.reading() as db:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def compact(self, *, anew: bool) -> None:
        """Give back the room that deleted rows left, where it is a quarter of the file.

        `anew` writes the file anew in any case: keys that came in no order leave a third of their pages empty.
        That takes half a second a million objects, and the file's size twice on the disk meanwhile.
        """
        with self.reading() as db:
            free, pages = (db.execute(f"PRAGMA {each}").fetchone()[0] for each in ("freelist_count", "page_count"))
            if anew or free * 4 > pages:
                db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def create(self, *, building: bool = False) -> None:
        """A new, empty index at `path`; the store's lock is held and nothing is there.

        One that is being built is of use only when it is whole, so nothing needs to survive a crash before
        it is closed. Raises `StorageFailure`.
        """
        try:
            self._create(self.path, building)
        except sqlite3.OperationalError as error:
            raise StorageFailure(self.path, OSError(0, str(error))) from error

    def begin_in_memory(self) -> None:
        """Begin anew, empty, in memory, where no file can be made."""
        self.close()
        self._create(":memory:", True)
        self.in_memory = True

    def _create(self, path: str, building: bool) -> None:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        db.execute(f"PRAGMA busy_timeout={BUSY_MILLISECONDS}")
        db.execute(f"PRAGMA journal_mode={'MEMORY' if building else 'WAL'}")
        self._tune(db)
        db.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA:
            db.execute(statement)
        for part in self._parts:
            part.create(db)
        self.set_meta(db, NUMBERING, os.urandom(8).hex())
        db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        db.execute(f"PRAGMA user_version={self.version}")
        db.execute("COMMIT")
        self._db = db

    @staticmethod
    def _tune(db: sqlite3.Connection) -> None:
        # The index is a cache, so a lost last transaction is fine, and the stamp tells of it; NORMAL in WAL
        # mode keeps the file whole through a power cut.
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute("PRAGMA cache_size=-65536")
        db.execute("PRAGMA mmap_size=268435456")
        db.execute("PRAGMA wal_autocheckpoint=4000")
        db.execute("PRAGMA trusted_schema=OFF")

    def close(self) -> None:
        """Give back the file. What was just committed and isn't in its tables is to be found in the journal."""
        with self._mutex:
            self._recent, self.in_memory = None, False
            if self._db is not None:
                self._db.close()
                self._db = None
            self._frames.clear()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone while in the block. All that is committed is in the tables."""
        thread = threading.get_ident()
        if self._reader != thread:
            self.look(False)  # takes the store's lock, and so must come before the mutex
        with self._mutex:
            before, self._reader = self._reader, thread
            try:
                yield self._settled()
            except DAMAGE as error:
                raise self._failure(error) from error
            finally:
                self._reader = before

    @contextlib.contextmanager
    def unsettled(self) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone while in the block; what was just committed may be missing."""
        with self._mutex:
            try:
                yield self._connection()
            except DAMAGE as error:
                raise self._failure(error) from error

    def _connection(self) -> sqlite3.Connection:
        """The connection, in a forked child one of its own. The mutex is held."""
        if self._pid != os.getpid():
            # A connection must not be used, nor closed, on the other side of a fork (sqlite.org/howtocorrupt).
            _LEFT_TO_THE_PARENT.append(self._db)
            self._db, self._pid = None, os.getpid()
            self._frames.clear()
            self.open()
        if self._db is None:
            raise CorruptFile(self.path, "the index is closed")
        return self._db

    def _failure(self, error: Exception) -> DagError:
        if not is_damage(error):
            return StorageFailure(self.path, OSError(0, str(error)))
        if not (self._read_only or self.in_memory):
            # It is a cache: gone, it is built anew by whoever looks next.
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        return CorruptFile(self.path, f"a damaged index ({error}); it will be made anew")

    @contextlib.contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """A write transaction: committed at the end of the block, rolled back on an error."""
        with self.reading() as db, self._transaction(db):
            yield db

    @contextlib.contextmanager
    def _transaction(self, db: sqlite3.Connection) -> Iterator[None]:
        try:
            db.execute("BEGIN IMMEDIATE")  # interrupted, it may have begun all the same
            yield
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            self._frames.clear()
            raise

    # -- what was just committed ------------------------------------------------------------------

    def take_in_later(self, arrivals: Sequence[Arrival], until: str) -> None:
        """Know what a record of the journal brought that ends at the stamp `until`.

        The lock is held, and all that was recorded before is known; none of this is, and what it builds on is.
        """
        with self._mutex:
            if self._recent is not None and len(self._recent) >= MAX_RECENT_OBJECTS:
                with contextlib.suppress(*DAMAGE, DagError):  # they wait on, safe in the journal
                    self._settled()
            if self._recent is None:
                self._recent = Recent(self._settled_to() or "")
            self._recent.add(arrivals, until)

    def _settled(self) -> sqlite3.Connection:
        """The connection, when all that was just committed is in the tables. The mutex is held."""
        db = self._connection()
        recent = self._recent
        if recent is None or db.in_transaction:
            return db
        # What comes now asks for rows, and must not look for others' changes while it holds the mutex.
        self._recent, before, self._reader = None, self._reader, threading.get_ident()
        try:
            try:
                self._settle(db, recent)
            except sqlite3.OperationalError:  # a full disk is no reason not to read what is there
                db = self.go_on_in_memory()
                self._settle(db, recent)
        except BaseException:
            self._recent = recent
            raise
        finally:
            self._reader = before
        return db

    def _settle(self, db: sqlite3.Connection, recent: Recent) -> None:
        with self._transaction(db):
            arrivals = recent.after(self._settled_to())
            if arrivals is not None:  # else somebody has taken all in, and the journal was emptied since
                if self.add(db, arrivals, all_new=True):
                    raise CorruptFile(self.path, "it lacks what was there when the latest objects came")
                self.set_stamp(db, recent.until)

    def stamp(self) -> str | None:
        """Up to where in the journal this holds everything, what was just committed too."""
        with self._mutex:
            held = self._settled_to()
            if self._recent is None:
                return held
            if self._recent.after(held) is not None:
                return self._recent.until
            self._recent = None  # another process has taken it in from the journal
            return held

    def _settled_to(self) -> str | None:
        found = self._one("SELECT value FROM meta WHERE key=?", (_STAMP,), settled=False)
        return None if found is None else self._text(found[0])

    def set_stamp(self, db: sqlite3.Connection, stamp: str) -> None:
        self.set_meta(db, _STAMP, stamp)

    # -- asking -----------------------------------------------------------------------------------

    def add(self, db: sqlite3.Connection, arrivals: Sequence[Arrival], *, all_new: bool = False) -> list[Arrival]:
        """Admit objects; see `Index`."""
        raise NotImplementedError

    def _one(self, statement: str, values: tuple[Any, ...], *, settled: bool = True) -> Any:
        """The first row that a query gives, or None. The same as in `reading`, at a third of the cost.

        What others have committed meanwhile may be missing: who misses something looks again.
        """
        with self._mutex:
            try:
                db = self._db
                if db is None or self._pid != os.getpid() or (settled and self._recent is not None):
                    db = self._settled() if settled else self._connection()
                return db.execute(statement, values).fetchone()
            except DAMAGE as error:
                raise self._failure(error) from error

    def meta(self, name: str) -> str | None:
        found = self._one("SELECT value FROM meta WHERE key=?", (name,))
        return None if found is None else self._text(found[0])

    def _text(self, value: Any) -> str:
        if not isinstance(value, str):
            raise self._odd(value)
        return value

    def _odd(self, value: object) -> DagError:
        """A damaged file may hold any value in any place."""
        return self._failure(sqlite3.DatabaseError(f"{str(value)[:40]!r} where something else belongs"))

    def set_meta(self, db: sqlite3.Connection, name: str, value: str) -> None:
        db.execute(
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT(key) DO UPDATE SET value=excluded.value", (name, value)
        )


def _tries() -> Callable[[int, int, int], None]:
    """For a copy that is to be made in one step: SQLite tries again for ever where it can't be."""
    left = [_COPY_TRIES]

    def tried(_: int, remaining: int, pages: int) -> None:
        left[0] -= 1
        if remaining and left[0] <= 0:
            error = sqlite3.OperationalError("locked for too long")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error

    return tried


def _nothing_new(missed: bool) -> bool:
    """For an index that nobody else adds to."""
    return False


_LEFT_TO_THE_PARENT: Final[list[sqlite3.Connection | None]] = []
_LIVE: Final[weakref.WeakSet[IndexFile]] = weakref.WeakSet()
_HELD: Final[dict[int, list[threading.RLock]]] = {}


def _before_fork() -> None:
    """Let no thread be within SQLite while its locks are copied: the child would wait for them for ever."""
    held = _HELD[threading.get_ident()] = []
    for index in sorted(_LIVE, key=id):
        index._mutex.acquire()
        held.append(index._mutex)


def _after_fork() -> None:
    for mutex in _HELD.pop(threading.get_ident(), []):
        mutex.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork)
_SCHEMA: Final = (
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE pack(row INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE)",
    "CREATE TABLE frame(row INTEGER PRIMARY KEY AUTOINCREMENT, pack INTEGER NOT NULL, offset INTEGER NOT NULL,"
    " size INTEGER NOT NULL)",
    "CREATE TABLE loose(kind INTEGER NOT NULL, row INTEGER NOT NULL, oid BLOB NOT NULL,"
    " PRIMARY KEY(kind, row)) WITHOUT ROWID",
    *(f"CREATE TABLE {kind}_id(id BLOB PRIMARY KEY, row INTEGER NOT NULL) WITHOUT ROWID" for kind in Kind),
    *(
        f"CREATE TABLE {kind}(row INTEGER PRIMARY KEY, loc INTEGER NOT NULL)"
        for kind in Kind
        if kind is not Kind.NODE
    ),
    "CREATE TABLE node(row INTEGER PRIMARY KEY, parent INTEGER NOT NULL, message INTEGER NOT NULL,"
    " depth INTEGER NOT NULL, loc INTEGER NOT NULL)",
    # Most nodes come right behind their parents, and need no index to be found there.
    "CREATE INDEX node_parent ON node(parent) WHERE parent <> row - 1",
)


def _quoted(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
