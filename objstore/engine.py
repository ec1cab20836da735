"""The store's engine below committing: the lock, following what others commit, and what survives a crash.

The index follows the journal: whoever finds it behind takes in what is between. Where it can't be written, one in
memory takes its place. Knows nothing of conversations.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Final

from objstore.catchup import (
    follow_in_memory,
    holds_all,
    recorded,
    stamp_of,
    stamped,
    take_in,
    take_in_beside,
    why_anew,
)
from objstore.config import Config
from objstore.database import Database
from objstore.index import Index
from objstore.indexfile import INDEX
from objstore.journal import Journal
from objstore.kinds import Kind
from objstore.pack import list_packs
from objstore.parts import ALL_PARTS
from objstore.scan import Notice, Progress, fill
from refs.errors import (
    CorruptFile,
    ReadOnlyStore,
    StorageFailure,
)
from refs.files import TEMP_PREFIX, Files
from refs.forks import renew_after_fork
from refs.ids import Oid
from refs.names import RefName
from refs.reflog import ReflogEntry
from refs.store import Move, RefStore

LOCK: Final = "lock"

Clock = Callable[[], str]
"""Now, in UTC to the millisecond, as `records.check_time` wants it."""


class Engine:
    """What of an open store follows the journal. `notice` is told what was repaired or rebuilt, a line each."""

    def __init__(
        self, files: Files, config: Config, clock: Clock, notice: Notice, progress: Progress | None = None
    ) -> None:
        self.files, self.config, self.clock, self.notice = files, config, clock, notice
        self.refs = RefStore(files)
        self.journal = Journal(files, _boot())
        self.read_only = not os.access(files.path(""), os.W_OK)
        self.index = Index(files.path(INDEX), ALL_PARTS, read_only=self.read_only)
        self.database = Database(files, self.index, self.journal, self.refresh)
        self.progress = progress
        self._seen: bytes | None = None
        """The journal's state when this process last held the lock: nothing was left undone then."""
        self._looked: bytes | None = None
        """A state of the journal of which the index holds all that was committed."""
        self._looking: set[int] = set()
        """The threads that are taking in what others have committed."""
        self._recorded = False
        renew_after_fork(self)

    def renew(self) -> None:
        """In a forked child: what was just committed, and is the parent's to take in, is still to be read."""
        self._seen = self._looked = None
        self._looking = set()

    # -- the lock, and catching up ----------------------------------------------------------------

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """The store's one lock. Everything committed by others, or cut short by a crash, is applied first.

        Raises `ReadOnlyStore` where the store can't be written.
        """
        if self.read_only:
            raise ReadOnlyStore(str(self.files.root), "the folder is read-only for this user")
        with self.files.lock(LOCK):
            if self.files.lock_depth == 1:
                self._catch_up()
            yield

    def refresh(self) -> bool:
        """Look again at what others may have changed; whether anything may be different now.

        For readers that miss an object. Packs that were copied in are adopted. Waits for who holds the lock.
        """
        self.database.forget_packs()
        self.index.forget_places()
        if not self.index.is_current() and self.index.reopen():
            self._seen = self._looked = None
            return True
        if self.index.is_open and self._up_to_date():
            return True
        if self.read_only:
            self._follow_in_memory()
            return True
        # Whoever is at it now may have moved a ref to what only the journal has yet.
        with self.files.lock(LOCK):
            self._seen = None  # a pack that was copied in leaves no mark in the journal
            self._catch_up()
        return True

    def look(self) -> bytes | None:
        """Take in what others have committed; the state of the store for a `Batch` planned with it."""
        self._look(False)
        return self._seen

    def _look(self, missed: bool) -> bool:
        """Take in what others have committed: it stands in the journal before it is in the index.

        Who `missed` something also waits for what is being committed. Whether there was anything.
        """
        thread = threading.get_ident()
        if thread in self._looking:
            return False
        self._looking.add(thread)  # what follows asks the index
        try:
            return self._look_once(missed)
        except (CorruptFile, FileNotFoundError):  # whoever writes next sees to it
            return False
        finally:
            self._looking.discard(thread)

    def _look_once(self, missed: bool) -> bool:
        state = self.journal.state()
        if state == self._seen:
            return False
        waits = missed and self.journal.cut_short()
        if state == self._looked and not waits:
            return False
        if not waits and holds_all(self.index, self.journal):
            self._looked = state
            return missed
        if self.read_only:
            self._follow_in_memory()
        elif not waits and take_in_beside(self.index, self.journal):
            self._looked = state
        else:
            with self.lock():
                pass
        return True

    def _up_to_date(self) -> bool:
        """Whether the journal has been applied and the index knows all of it and of the packs. No lock."""
        try:
            return (
                not self.journal.pending()
                and holds_all(self.index, self.journal)
                and set(list_packs(self.files)) == self.index.packs().keys()
            )
        except (CorruptFile, FileNotFoundError):  # of the journal or the index: `_catch_up` sees to either
            return False

    def _catch_up_if_possible(self) -> None:
        try:
            pending, another_boot = self.journal.pending(), self.journal.another_boot()
            behind = not (self.index.is_open and holds_all(self.index, self.journal))
            if behind and self.index.is_open and not self.read_only:
                behind = not take_in_beside(self.index, self.journal)
        except (CorruptFile, FileNotFoundError):
            pending, another_boot, behind = False, True, True
        if self.read_only:
            if pending and self.index.is_open:
                self.notice("the store can't be written: what a crash cut short is not to be seen here")
            self._follow_in_memory()
            return
        # Where somebody else holds the lock for long (a gc) the index holds all that was committed before, unless
        # they still are at it after a crash of the machine.
        with self.files.lock(LOCK, wait=another_boot or behind) as held:
            if held:
                self._catch_up()

    def _follow_in_memory(self) -> None:
        """In a folder that can't be written: go on with a copy of the index that holds all that is committed."""
        with contextlib.suppress(FileNotFoundError):
            self._looked = self.journal.state()
        if self.index.is_open:
            with contextlib.suppress(CorruptFile, FileNotFoundError):
                if follow_in_memory(self.files, self.index, self.journal, self.notice):
                    return
        self.notice("the index is missing or stale and the folder is read-only: reading all objects")
        self._index_in_memory()

    def _index_in_memory(self) -> None:
        self.index.begin_in_memory()
        fill(self.files, self.index, self.notice, self.progress, recorded(self.journal, self.notice))
        with contextlib.suppress(CorruptFile, FileNotFoundError), self.index.changing() as db:
            self.index.set_stamp(db, stamp_of(self.journal.position()))

    def _catch_up(self) -> None:
        """The lock is held: apply what is pending, and see that the index knows everything."""
        if self._seen is not None and self._seen == self.journal.state() and self.index.is_current():
            return  # every change by anybody leaves its mark in the journal's header
        self._see_to_the_journal()
        if not self.index.is_current():
            self.index.reopen()
        if not self.index.is_open or not self._up_to_date():
            # The journal first: an index that is made of the objects must find what a crash took away.
            self._replay()
            try:
                self._bring_index_up_to_date()
            except CorruptFile as error:
                if error.path != self.index.path:
                    raise
                self.rebuild_index("the index is damaged")
        if not self.journal.is_whole():
            self.journal.adopt_boot()
        self._seen = self.journal.state()

    def _see_to_the_journal(self) -> None:
        """Begin a new journal where there is none, or none that can be read: its effects are on the disk."""
        try:
            self.journal.pending()
        except FileNotFoundError:
            self.notice("the journal is missing: a new one is made")
        except CorruptFile as error:
            known = stamped(self.index) if self.index.is_open else None
            if known is not None and self.journal.revive(known.id):
                self.notice(f"{error}: it is written anew, since the index knows its id")
                return
            aside = self.journal.put_aside()
            self.notice(f"{error}; it is {f'kept as {aside}' if aside else 'gone'}, and a new one is made")
        else:
            return
        self.journal.close()
        self.journal.create()

    def _replay(self) -> None:
        """Do again what the journal records and a crash may have lost: each ref goes to its last value.

        Nothing is synced, and no object is written: the journal keeps them until it is emptied.
        """
        if not self.journal.pending():
            return
        cut_short, replayed = self.journal.cut_short(), False
        logged: list[ReflogEntry] = []
        for record, _ in self.journal.replay():
            replayed = True
            logged += record.moves
        if self.journal.damaged:
            self.notice("a part of the journal is damaged: what it held is passed over")
        self.refs.apply(self._moves_again(logged))
        if logged:
            self.refs.reflog.append_missing(logged)
        if cut_short and replayed:
            self.notice("the last change had been cut short: it is complete now")
        self.journal.adopt_boot()

    def _moves_again(self, logged: Sequence[ReflogEntry]) -> list[Move]:
        """To the last recorded value of each ref; but not back from one that no record here knows."""
        last: dict[RefName, ReflogEntry] = {}
        known: dict[RefName, set[Oid | None]] = {}
        for entry in logged:
            last[entry.ref] = entry
            known.setdefault(entry.ref, {None}).update((entry.old, entry.new))
        moves = []
        for ref, entry in last.items():
            actual = None
            with contextlib.suppress(CorruptFile):  # torn: it is written again
                actual = self.refs.resolve(ref)
            if actual in known[ref] or not self._is_stored(actual):
                moves.append(Move(ref, entry.old, entry.new))
            else:
                self.notice(f"{ref} stays where it is: the journal's record of its last move is damaged")
        return moves

    def _is_stored(self, oid: Oid | None) -> bool:
        """Whether a ref's value names anything: one that was torn while it was overwritten doesn't."""
        if oid is None:
            return True
        if not self.index.is_open:
            return False
        for kind in (Kind.NODE, Kind.DESCRIPTION):
            row = self.index.row(kind, oid)
            loc = None if row is None else self.index.loc_of_row(kind, row)
            # The whole id: the index knows only its first half, and half a value may have been written.
            if row is not None and loc is not None and self.database.oid_of(kind, row, loc) == oid:
                return True
        return False

    def _bring_index_up_to_date(self) -> None:
        """Index what was recorded after the stamp, and packs it doesn't know; rebuild where that can't do."""
        why = "the index is missing or damaged"
        if self.index.is_open:
            found = why_anew(self.files, self.index, self.journal)
            if found is None:
                self._take_in()
                return
            why = found
        try:
            self.rebuild_index(why)
        except StorageFailure as error:
            self.notice(f"{error}; for now an index in memory takes its place")
            self._index_in_memory()

    def _take_in(self) -> None:
        try:
            take_in(self.files, self.index, self.journal, self.notice)
        except StorageFailure as error:
            if error.path != self.index.path or self.index.in_memory:
                raise
            self.notice(f"{error}; for now a copy of the index in memory takes its place")
            self.index.go_on_in_memory()
            take_in(self.files, self.index, self.journal, self.notice)

    def rebuild_index(self, why: str) -> None:
        """Make the index anew from the objects; the lock is held."""
        self.notice(f"{why}: it is rebuilt from the objects")
        told = recorded(self.journal, self.notice)
        self._new_index(lambda index: fill(self.files, index, self.notice, self.progress, told))

    def _new_index(self, fill_it: Callable[[Index], None]) -> None:
        temp = f"{TEMP_PREFIX}{INDEX}"
        self._remove_index(temp)
        self.files.place(temp, b"")  # with our permissions: SQLite would make it readable for all
        made = Index(self.files.path(temp), ALL_PARTS)
        try:
            made.create(building=True)
            fill_it(made)
            with made.changing() as db:
                self.index.set_stamp(db, stamp_of(self.journal.position()))
        except BaseException:
            made.close()
            with contextlib.suppress(StorageFailure):  # the first error is the one to tell
                self._remove_index(temp)
            raise
        made.close()
        # Whoever has the old index open keeps reading it until it looks at the inode.
        with self.index.replacing():
            self._remove_index(INDEX)
            self.files.rename(temp, INDEX)
        if not self.index.is_open:
            raise CorruptFile(self.files.path(INDEX), "the new index can't be opened")
        self.database.forget_packs()

    def _remove_index(self, name: str) -> None:
        for each in (name, f"{name}-wal", f"{name}-shm", f"{name}-journal"):
            self.files.remove(each)


def _boot() -> bytes:
    """16 bytes that name this start of the machine: a crash of the machine is told from one of a process."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            text = file.read()
    except OSError:  # not Linux: every opening is taken for a new start, and the journal replayed
        text = os.urandom(16)
    return sha256(text).digest()[:16]
