"""The SQLite index: is this object here, where does it stand, and what hangs on it. A cache.

A node is stored when the index holds it, and the index admits it only after its parent, its message and its
called_by: that is what makes the prefix search true. Delete the file and it is rebuilt from the objects.

An object is known by the first 16 bytes of its id: two that share them take 2^64 tries to make, and whoever
reads one by the other's id gets `CorruptObject`, never wrong bytes. Inside, rows are numbered in the order
of their arrival, so that edges are small integers and grow at the tables' ends.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

from objstore.kinds import Kind
from objstore.loose import Form
from objstore.node import Node
from objstore.recent import MAX_RECENT_OBJECTS, Recent
from objstore.records import Call, Description, Note
from refs.errors import CorruptFile, DagError, StorageFailure
from refs.forks import renew_after_fork
from refs.ids import ROOT, NodeId, Oid, PayloadId

INDEX: Final = "index.sqlite"
APPLICATION_ID: Final = 0x64616731  # "dag1"
SCHEMA_VERSION: Final = 2
ROOT_ROW: Final = 0
LINES_PER_FRAME: Final = 16384
_LOOSE: Final = -1  # and -2, -3: the form, counted down
BUSY_MILLISECONDS: Final = 60_000
_IDS_AT_ONCE: Final = 500
_NUMBERING: Final = "numbering"
_STAMP: Final = "journal"

Value = Node | Call | Note | Description | Sequence[PayloadId] | None
"""What the index must know of an object: of a message only the payloads it needs."""


class Location(NamedTuple):
    """Where an object stands: at a line of a frame of a pack, or (`pack` is None) as a file or in the journal."""

    pack: str | None
    offset: int = 0
    size: int = 0
    line: int = 0
    form: Form = Form.PLAIN
    frame: int = 0
    """The frame's row: names the frame in a cache."""


class Arrival(NamedTuple):
    """An object to be indexed. `loc` comes from `place_loose` or `place_packed`."""

    kind: Kind
    oid: Oid
    loc: int
    value: Value = None


class IndexPart(Protocol):
    """A table of its own that is filled with the objects of some kinds and rebuilt with the rest."""

    name: str
    version: int
    kinds: frozenset[Kind]

    def create(self, db: sqlite3.Connection) -> None: ...
    def add(self, db: sqlite3.Connection, index: Index, added: Sequence[tuple[int, Any]]) -> None: ...
    def forget(self, db: sqlite3.Connection, kind: Kind, rows: Sequence[int]) -> None: ...
    def link(self, db: sqlite3.Connection) -> None: ...


def key(oid: str) -> bytes:
    """What an id is known by in the index."""
    return bytes.fromhex(oid[:32])


def batches(values: Sequence[Any]) -> Iterator[tuple[str, Sequence[Any]]]:
    """(question marks, values) for statements that ask for many at once."""
    marks = ",".join("?" * _IDS_AT_ONCE)
    for start in range(0, len(values), _IDS_AT_ONCE):
        batch = values[start : start + _IDS_AT_ONCE]
        yield marks[: 2 * len(batch) - 1], batch


def place_loose(form: Form) -> int:
    return _LOOSE - form


def place_packed(frame: int, line: int) -> int:
    return frame * LINES_PER_FRAME + line


class Index:
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
            modes = ("ro",) if os.path.exists(f"{self.path}-wal") else ("ro", "ro&immutable=1")
        for mode in modes:
            inode = self._inode_now()
            # SQLite finds the log by its name: opened while the file is replaced, it could take the other's.
            if self._open(mode) and inode == self._inode_now():
                self.inode = inode
                return True
            self.close()
        return False

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
            if not self._read_only:
                db.execute("PRAGMA journal_mode=WAL")
            self._tune(db)
            db.execute("SELECT value FROM meta").fetchall()
        except (sqlite3.DatabaseError, OSError):
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
            self._connection().backup(copy)
            recent = self._recent
            self.close()
            self._db, self._recent, self.in_memory = copy, recent, True
            return copy

    def checkpoint(self) -> None:
        """Bring what was committed from the write-ahead log into the file, and sync both."""
        with self.reading() as db:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def compact(self) -> None:
        """Give back the room that deleted rows left, where it is a quarter of the file."""
        with self.reading() as db:
            free, pages = (db.execute(f"PRAGMA {each}").fetchone()[0] for each in ("freelist_count", "page_count"))
            if free * 4 > pages:
                db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def create(self, *, building: bool = False) -> None:
        """A new, empty index at `path`; the store's lock is held and nothing is there.

        One that is being built is of use only when it is whole, so nothing needs to survive a crash before
        it is closed.
        """
        self._create(self.path, building)

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
        self.set_meta(db, _NUMBERING, os.urandom(8).hex())
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
            except sqlite3.DatabaseError as error:
                raise self._failure(error) from error
            finally:
                self._reader = before

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

    def _failure(self, error: sqlite3.DatabaseError) -> DagError:
        if isinstance(error, sqlite3.OperationalError):
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
        db.execute("BEGIN IMMEDIATE")
        try:
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
                with contextlib.suppress(sqlite3.DatabaseError, DagError):  # they wait on, safe in the journal
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
                if self.add(db, arrivals):
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
        return None if found is None else found[0]

    def set_stamp(self, db: sqlite3.Connection, stamp: str) -> None:
        self.set_meta(db, _STAMP, stamp)

    # -- asking -----------------------------------------------------------------------------------

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
            except sqlite3.DatabaseError as error:
                raise self._failure(error) from error

    def row(self, kind: Kind, oid: str) -> int | None:
        """The row of an object, or None if the store doesn't hold it."""
        name = key(oid)
        row = self._row(kind, name)
        # A ref moves before the index of another process knows what it names.
        if row is None and self._reader != threading.get_ident() and self.look(True):
            row = self._row(kind, name)
        return row

    def _row(self, kind: Kind, name: bytes) -> int | None:
        with self._mutex:  # another thread must not see what may yet be rolled back
            arriving = self._arriving.get(kind)
            if arriving is not None and name in arriving:
                return arriving[name]
            found = self._one(_ROW_OF[kind], (name,))
        return None if found is None else found[0]

    def rows_of(self, kind: Kind, ids: Iterable[Oid]) -> dict[Oid, int]:
        """The rows of those of `ids` that are stored: much cheaper than one after the other."""
        names = {key(oid): oid for oid in ids}
        found: dict[Oid, int] = {}
        with self.reading() as db:
            for marks, batch in batches(list(names)):
                for name, row in db.execute(f"SELECT id, row FROM {kind}_id WHERE id IN ({marks})", batch):
                    found[names[name]] = row
        return found

    def has(self, kind: Kind, oid: Oid) -> bool:
        """Whether an object is stored. The cheapest question."""
        with self._mutex:
            if self._recent is not None and oid in self._recent.locs[kind]:
                return True
            return self._one(_ROW_OF[kind], (key(oid),), settled=False) is not None

    def has_node(self, oid: NodeId) -> bool:
        """Whether a node, and so everything before it, is stored. One check; `ROOT` always is."""
        self.checks += 1
        return oid == ROOT or self.has(Kind.NODE, oid)

    def missing(self, kind: Kind, ids: Iterable[Oid]) -> set[Oid]:
        """Those of `ids` that the store doesn't hold."""
        wanted = list(ids)
        if len(wanted) <= 8:  # bytes of one statement are kept ready, so a few are cheaper one by one
            return {oid for oid in wanted if not self.has(kind, oid)}
        names = {key(oid): oid for oid in wanted}
        with self.reading() as db:
            for marks, batch in batches(list(names)):
                for found in db.execute(f"SELECT id FROM {kind}_id WHERE id IN ({marks})", batch):
                    del names[found[0]]
        return set(names.values())

    def locate(self, kind: Kind, oid: str) -> Location | None:
        """Where an object stands, or None if the store doesn't hold it."""
        with self._mutex:
            loc = None if self._recent is None else self._recent.locs[kind].get(Oid(oid))
            if loc is None:
                found = self._one(_LOC_OF[kind], (key(oid),), settled=False)
                loc = None if found is None else found[0]
        return None if loc is None else self.location(loc)

    def loc_of_row(self, kind: Kind, row: int) -> int | None:
        found = self._one(f"SELECT loc FROM {kind} WHERE row=?", (row,))
        return None if found is None else found[0]

    def location_of_row(self, kind: Kind, row: int) -> Location | None:
        loc = self.loc_of_row(kind, row)
        return None if loc is None else self.location(loc)

    def loose_oid(self, kind: Kind, row: int) -> Oid | None:
        """The whole id of an object that stands as a loose file or in the journal."""
        found = self._one("SELECT oid FROM loose WHERE kind=? AND row=?", (_NUMBER[kind], row))
        return None if found is None else Oid(found[0].hex())

    def child_rows(self, row: int) -> list[tuple[int, int]]:
        """(row, loc) of the nodes whose parent is node `row`, oldest first."""
        with self.reading() as db:
            return db.execute(_CHILDREN, (row,)).fetchall()

    def node_edges(self, row: int) -> tuple[int, int, int] | None:
        """(parent row, message row, depth) of a node. The depth of a first message is 1."""
        found = self._one("SELECT parent, message, depth FROM node WHERE row=?", (row,))
        return None if found is None else (found[0], found[1], found[2])

    def prefix_matches(self, kind: Kind, prefix: str, limit: int) -> list[tuple[int, int]]:
        """(row, loc) of objects whose ids begin with `prefix` (up to 32 of its digits count)."""
        low = prefix[:32].ljust(32, "0")
        high = prefix[:32].ljust(32, "f")
        with self.reading() as db:
            return db.execute(
                f"SELECT o.row, o.loc FROM {kind}_id i JOIN {kind} o ON o.row = i.row"
                " WHERE i.id BETWEEN ? AND ? ORDER BY i.id LIMIT ?",
                (bytes.fromhex(low), bytes.fromhex(high), limit),
            ).fetchall()

    def rows(self, kind: Kind) -> Iterator[tuple[int, int]]:
        """(row, loc) of all objects of a kind, in order of arrival."""
        after = 0
        while True:
            with self.reading() as db:
                batch = db.execute(
                    f"SELECT row, loc FROM {kind} WHERE row > ? ORDER BY row LIMIT 5000", (after,)
                ).fetchall()
            if not batch:
                return
            yield from batch
            after = batch[-1][0]

    def location(self, loc: int) -> Location:
        """What a `loc` means."""
        if loc < 0:
            return Location(None, form=Form(_LOOSE - loc))
        frame, line = divmod(loc, LINES_PER_FRAME)
        known = self._frames.get(frame)
        if known is None:
            found = self._one(
                "SELECT p.name, f.offset, f.size FROM frame f JOIN pack p ON p.row = f.pack WHERE f.row=?",
                (frame,),
            )
            if found is None:
                raise CorruptFile(self.path, "an object in a frame that isn't there")
            if len(self._frames) > 100_000:
                self._frames.clear()
            known = self._frames[frame] = Location(found[0].hex(), found[1], found[2], frame=frame)
        return Location(known.pack, known.offset, known.size, line, frame=frame)

    def meta(self, name: str) -> str | None:
        found = self._one("SELECT value FROM meta WHERE key=?", (name,))
        return None if found is None else found[0]

    def numbering(self) -> str:
        """Stays the same as long as no row was given up, and so none can come to mean another object."""
        return self.meta(_NUMBERING) or ""

    def last_rows(self) -> dict[Kind, int]:
        """The row of the latest arrival of each kind."""
        with self.reading() as db:
            return {kind: db.execute(f"SELECT coalesce(max(row), 0) FROM {kind}").fetchone()[0] for kind in Kind}

    def counts(self) -> dict[Kind, int]:
        with self.reading() as db:
            return {kind: db.execute(f"SELECT count(*) FROM {kind}").fetchone()[0] for kind in Kind}

    def loose_rows(self, kind: Kind) -> list[tuple[int, Oid]]:
        """(row, id) of all objects of a kind that stand as loose files or in the journal."""
        with self.reading() as db:
            found = db.execute("SELECT row, oid FROM loose WHERE kind=?", (_NUMBER[kind],)).fetchall()
        return [(row, Oid(oid.hex())) for row, oid in found]

    def loose_count(self) -> int:
        """How many objects that a pack could hold stand as loose files or in the journal."""
        with self.reading() as db:
            found: int = db.execute(
                "SELECT count(*) FROM loose WHERE kind != ?", (_NUMBER[Kind.PAYLOAD],)
            ).fetchone()[0]
        return found

    def packs(self) -> dict[str, int]:
        """Pack ids and their rows."""
        with self.reading() as db:
            return {name.hex(): row for row, name in db.execute("SELECT row, name FROM pack")}

    # -- changing: inside `changing`, with the store's lock held ----------------------------------

    def set_meta(self, db: sqlite3.Connection, name: str, value: str) -> None:
        db.execute(
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT(key) DO UPDATE SET value=excluded.value", (name, value)
        )

    def add_pack(self, db: sqlite3.Connection, pack: str, frames: Sequence[tuple[int, int]]) -> int:
        """Make a pack and its frames known; the row of its first frame (the others follow it)."""
        row = db.execute("INSERT INTO pack(name) VALUES (?)", (bytes.fromhex(pack),)).lastrowid
        # Never a row that was in use before: another process may remember where the old frame stood.
        first: int = db.execute("SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence").fetchone()[0]
        db.executemany(
            "INSERT INTO frame VALUES (?, ?, ?, ?)",
            [(first + i, row, offset, size) for i, (offset, size) in enumerate(frames)],
        )
        return first

    def first_frame(self, pack: str) -> int | None:
        """The row of the first frame of a pack, or None if the pack isn't known."""
        with self.reading() as db:
            found = db.execute(
                "SELECT min(f.row) FROM frame f JOIN pack p ON p.row = f.pack WHERE p.name=?",
                (bytes.fromhex(pack),),
            ).fetchone()
        return None if found is None else found[0]

    def forget_pack(self, db: sqlite3.Connection, pack: str) -> None:
        """Forget a pack in which nothing stands any more."""
        row = db.execute("SELECT row FROM pack WHERE name=?", (bytes.fromhex(pack),)).fetchone()
        if row is not None:
            db.execute("DELETE FROM frame WHERE pack=?", row)
            db.execute("DELETE FROM pack WHERE row=?", row)
            self._frames.clear()

    def check_places(self, db: sqlite3.Connection) -> None:
        """Raise `CorruptFile` if any object stands in a frame that isn't known (any more)."""
        for kind in Kind:
            lost = f"SELECT 1 FROM {kind} WHERE loc >= 0 AND loc / ? NOT IN (SELECT row FROM frame) LIMIT 1"
            if db.execute(lost, (LINES_PER_FRAME,)).fetchone():
                raise CorruptFile(self.path, f"a {kind} in a frame that isn't there")

    def add(self, db: sqlite3.Connection, arrivals: Sequence[Arrival], *, all_new: bool = False) -> list[Arrival]:
        """Admit objects, in their order; those whose parent, message or called_by isn't there come back.

        One that is known already is passed over; `all_new` says that none is. Keys go into their trees in
        sorted batches: the trees are the only places where rows don't come in order.
        """
        by_kind: dict[Kind, list[Arrival]] = {}
        for arrival in arrivals:
            by_kind.setdefault(arrival.kind, []).append(arrival)
        left: list[Arrival] = []
        try:
            for kind in _ADMISSION_ORDER:
                if kind in by_kind:
                    left += self._add_kind(db, kind, by_kind[kind], all_new)
        finally:
            self._arriving = {}
        return left

    def _add_kind(
        self, db: sqlite3.Connection, kind: Kind, arrivals: Sequence[Arrival], all_new: bool
    ) -> list[Arrival]:
        row = first = self._next_row(db, kind)
        fresh = self._arriving[kind] = {}
        rows: list[tuple[int, ...]] = []
        left: list[Arrival] = []
        added: list[tuple[int, Value]] = []
        loose: list[tuple[int, int, bytes]] = []
        absent = None if all_new else self.missing(kind, [arrival.oid for arrival in arrivals])
        for arrival in arrivals:
            _, oid, loc, value = arrival
            name = bytes.fromhex(oid[:32])
            if name in fresh or (absent is not None and oid not in absent):
                continue
            if kind is Kind.NODE:
                edges = self._edges(db, value, fresh, rows, first)
                if edges is None:
                    left.append(arrival)
                    continue
                rows.append((row, *edges, loc))
            else:
                rows.append((row, loc))
            fresh[name] = row
            added.append((row, value))
            if loc < 0:
                loose.append((_NUMBER[kind], row, bytes.fromhex(oid)))
            row += 1
        db.executemany(f"INSERT INTO {kind} VALUES ({_MARKS[kind]})", rows)
        db.executemany(f"INSERT INTO {kind}_id VALUES (?, ?)", sorted(fresh.items()))
        if loose:
            db.executemany("INSERT OR REPLACE INTO loose VALUES (?, ?, ?)", loose)
        for part in self._of_kind[kind]:
            part.add(db, self, added)
        return left

    def _edges(
        self,
        db: sqlite3.Connection,
        value: Value,
        fresh: dict[bytes, int],
        rows: list[tuple[int, ...]],
        first: int,
    ) -> tuple[int, int, int] | None:
        """(parent row, message row, depth) of a node whose edges are all there, else None."""
        assert isinstance(value, Node)
        arriving = self._arriving.get(Kind.MESSAGE)
        message = None if arriving is None else arriving.get(key(value.message))
        if message is None:
            message = self.row(Kind.MESSAGE, value.message)
        if message is None or (value.called_by is not None and self.row(Kind.NODE, value.called_by) is None):
            return None
        if value.parent == ROOT:
            return ROOT_ROW, message, 1
        name = key(value.parent)
        if name in fresh:
            parent = fresh[name]
            return parent, message, rows[parent - first][3] + 1
        found = db.execute(
            "SELECT n.row, n.depth FROM node_id i JOIN node n ON n.row = i.row WHERE i.id=?", (name,)
        ).fetchone()
        return None if found is None else (found[0], message, found[1] + 1)

    def _next_row(self, db: sqlite3.Connection, kind: Kind) -> int:
        found: int = db.execute(f"SELECT coalesce(max(row), 0) + 1 FROM {kind}").fetchone()[0]
        return found

    def move(self, db: sqlite3.Connection, kind: Kind, places: Iterable[tuple[Oid, int]]) -> None:
        """Objects that are known stand somewhere else now."""
        gone = []
        for oid, loc in places:
            found = db.execute(_ROW_OF[kind], (key(oid),)).fetchone()
            if found is None:
                continue
            db.execute(f"UPDATE {kind} SET loc=? WHERE row=?", (loc, found[0]))
            if loc < 0:
                db.execute(
                    "INSERT OR REPLACE INTO loose VALUES (?, ?, ?)",
                    (_NUMBER[kind], found[0], bytes.fromhex(oid)),
                )
            else:
                gone.append((_NUMBER[kind], found[0]))
        db.executemany("DELETE FROM loose WHERE kind=? AND row=?", gone)

    def move_rows(self, db: sqlite3.Connection, kind: Kind, places: Iterable[tuple[int, int]]) -> None:
        """`move` for objects given as (loc, row), all of them into packs."""
        moved = list(places)
        db.executemany(f"UPDATE {kind} SET loc=? WHERE row=?", moved)
        db.executemany(f"DELETE FROM loose WHERE kind={_NUMBER[kind]} AND row=?", [(row,) for _, row in moved])

    def take_from_loose(self, db: sqlite3.Connection, arrivals: Iterable[Arrival]) -> None:
        """What is known as a loose file stands in a pack as well: from now on it is read there."""
        for kind in Kind:
            places = [(each.oid, each.loc) for each in arrivals if each.kind is kind]
            if places and db.execute("SELECT 1 FROM loose WHERE kind=? LIMIT 1", (_NUMBER[kind],)).fetchone():
                self.move(db, kind, [each for each in places if self._is_loose(db, kind, each[0])])

    def _is_loose(self, db: sqlite3.Connection, kind: Kind, oid: Oid) -> bool:
        found = db.execute(_LOC_OF[kind], (key(oid),)).fetchone()
        return found is not None and found[0] < 0

    def link(self, db: sqlite3.Connection) -> None:
        """Join what came before the objects it names: after a pack was adopted or all was read."""
        for part in self._parts:
            part.link(db)

    def forget(self, db: sqlite3.Connection, kind: Kind, rows: Iterable[int]) -> None:
        """Objects are no longer stored: in the same transaction as what is built on them, see gc."""
        gone = list(rows)
        self.set_meta(db, _NUMBERING, os.urandom(8).hex())
        db.execute("CREATE TEMP TABLE IF NOT EXISTS gone(row INTEGER PRIMARY KEY)")
        db.execute("DELETE FROM gone")
        db.executemany("INSERT INTO gone VALUES (?)", [(row,) for row in gone])
        # One pass over the keys, rather than reading packs for the ids.
        for table in (f"{kind}_id", kind):
            db.execute(f"DELETE FROM {table} WHERE row IN (SELECT row FROM gone)")
        db.execute(f"DELETE FROM loose WHERE kind={_NUMBER[kind]} AND row IN (SELECT row FROM gone)")
        for part in self._parts:
            part.forget(db, kind, gone)


def _nothing_new(missed: bool) -> bool:
    """For an index that nobody else adds to."""
    return False


_LEFT_TO_THE_PARENT: Final[list[sqlite3.Connection | None]] = []
_LIVE: Final[weakref.WeakSet[Index]] = weakref.WeakSet()
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
_ADMISSION_ORDER: Final = (
    Kind.PAYLOAD,
    Kind.MESSAGE,
    Kind.NODE,
    Kind.DESCRIPTION,
    Kind.CALL,
    Kind.NOTE,
)
_NUMBER: Final = {kind: number for number, kind in enumerate(Kind)}
_ROW_OF: Final = {kind: f"SELECT row FROM {kind}_id WHERE id=?" for kind in Kind}
_LOC_OF: Final = {
    kind: f"SELECT o.loc FROM {kind}_id i JOIN {kind} o ON o.row = i.row WHERE i.id=?" for kind in Kind
}
_CHILDREN: Final = (
    "SELECT row, loc FROM node WHERE row = ?1 + 1 AND parent = ?1"
    " UNION ALL SELECT row, loc FROM node WHERE parent = ?1 AND parent <> row - 1 ORDER BY row"
)
_MARKS: Final = {kind: "?, ?, ?, ?, ?" if kind is Kind.NODE else "?, ?" for kind in Kind}
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
