"""The store's engine: opening, committing, the checkpoint. The lock and following others are in `engine`.

The order of a commit: payloads (durable before), then either one journal record or one pack and a journal
record that names it: that is the commit point, one fdatasync. Refs and the reflog follow without waiting for
the disk; whoever takes the lock next after a crash writes them again from the journal. Objects of small
transactions stand in the journal until a checkpoint, and the index takes them in from there by the hundred, or
when it is asked. Knows nothing of conversations.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from objstore.arrival import Arrival, place_loose, place_packed
from objstore.catchup import (
    arrival_of,
    stamp_of,
)
from objstore.collector import paused
from objstore.config import CONFIG, Config, config_text, read_config
from objstore.engine import LOCK, Clock, Engine
from objstore.frames import FAST_LEVEL, compress, decompress, enframe
from objstore.journal import Position
from objstore.journalrecord import Record as JournalRecord
from objstore.journalrecord import StoredObject
from objstore.kinds import KINDS, Kind
from objstore.limits import (
    JOURNAL_CHECKPOINT_BYTES,
    MAX_OBJECT_BYTES,
    MAX_STORED_BYTES,
    SMALL_TRANSACTION_BYTES,
    SMALL_TRANSACTION_OBJECTS,
)
from objstore.loose import list_loose, loose_name
from objstore.node import Node
from objstore.pack import PACK_FOLDER, Placed, Written, pack_name, publish
from objstore.packing import write_in_order
from objstore.packwriter import PackWriter
from objstore.records import Call, check_time
from objstore.scan import Notice, Progress, admit, adopt_pack, loose_arrivals, value_of
from refs.errors import (
    CorruptFile,
    DagError,
    ObjectMissing,
    StorageFailure,
    StoreExists,
)
from refs.files import Files
from refs.ids import ROOT, Oid, parse_oid
from refs.names import CONVERSATIONS, DESCRIPTIONS, TAGS, RefName, check_ref_name, conversation_ref
from refs.reflog import ReflogEntry
from refs.store import Move

if TYPE_CHECKING:
    from objstore.transaction import Batch, NewObject, Transaction

_FOLDERS: Final = ("objects", PACK_FOLDER, *(f"objects/{kind.folder}" for kind in Kind), "refs/conversations")


class Storage(Engine):
    """An open store. Safe for several threads and processes; after a fork in the child as well.

    Open with `Storage.open`, make with `Storage.create`; `close` when done. `notice` is told, in one line
    each, what was repaired or rebuilt on the way.
    """

    # -- life -------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls, files: Files, store_id: str, clock: Clock, notice: Notice, conversation: str = "main"
    ) -> Storage:
        """A new store in `files`' folder, or `StoreExists`. The config comes last: without it it is none."""
        head = conversation_ref(conversation)
        files.make_root()
        if files.stat(CONFIG) is not None:
            raise StoreExists(str(files.root))
        with files.lock(LOCK):
            if files.stat(CONFIG) is not None:  # another process was faster
                raise StoreExists(str(files.root))
            for folder in _FOLDERS:
                files.make_dirs(folder)
            files.replace(".gitignore", b"*\n")
            made = cls(files, Config(store_id), clock, notice)
            made.journal.create()
            made.refs.set_head(head)
            made._new_index(lambda _: None)
            files.replace(CONFIG, config_text(store_id))
        return made

    @classmethod
    def open(cls, files: Files, clock: Clock, notice: Notice, progress: Progress | None = None) -> Storage:
        """Open what is there; finishes what a crash left undone, if it can take the lock at once.

        Raises `StoreNotFound`, `UnsupportedFormat`, `CorruptFile`.
        """
        made = cls(files, read_config(files), clock, notice, progress)
        if not made.index.open() or not made._up_to_date():
            made._catch_up_if_possible()
        made.index.look = made._look
        return made

    def close(self) -> None:
        """Give back all files, after a checkpoint if this process has recorded anything.

        What was committed is durable already. Where another process holds the lock the journal stays as it is.
        """
        self.index.look = lambda _: False
        if self._recorded and not self.index.in_memory:
            with (
                contextlib.suppress(DagError),  # closing must not hide what led to it; the journal stays
                self.files.lock(LOCK, wait=False) as held,
            ):
                if held:
                    self._catch_up()  # in a forked child what was just committed is the parent's to know
                    if self.journal.size:
                        self.checkpoint()
        self.database.close()
        self.index.close()
        self.journal.close()
        self.refs.close()
        self.files.close()

    # -- committing -------------------------------------------------------------------------------

    def transaction(self) -> Transaction:
        """Collect objects and moves, then `commit`."""
        from objstore.transaction import Transaction  # noqa: PLC0415  only writers need it

        return Transaction(self.files, self.commit)

    def commit(self, batch: Batch) -> None:
        """Make a batch durable and visible, all of it or nothing.

        Raises `RefChanged` or `RefExists` (nothing happened), `ObjectMissing` if a node of the batch builds on
        one that isn't stored, and `StorageFailure` where the disk refuses.
        """
        count = batch.count
        if count > SMALL_TRANSACTION_OBJECTS:
            with paused():
                self._commit(batch, None)
        elif count or batch.moves:
            self._commit(batch, self._pack_small(list(batch.all())))

    def _commit(self, batch: Batch, packed: dict[tuple[Kind, Oid], bytes] | None) -> None:
        with self.lock():
            self._check_moves(batch.moves, batch.resolved)
            # Nobody has committed since it was looked up: it holds as it was found.
            unchanged = batch.planned is not None and batch.planned == self._seen
            new = self._unknown(batch, unchanged)
            self._check_edges(batch, new, unchanged and batch.held)
            if not new and not batch.moves:
                return
            now = check_time(self.clock(), "the clock's time")
            moves = tuple(
                ReflogEntry(now, move.ref, move.expected, move.new, reason)
                for move, reason in zip(batch.moves, batch.reasons, strict=True)
            )
            if packed is not None and len(new) <= SMALL_TRANSACTION_OBJECTS:
                position = self._commit_to_journal(new, packed, batch.moves, moves)
            else:
                position = self._commit_to_pack(new, batch.moves, moves)
            if position.end > JOURNAL_CHECKPOINT_BYTES:
                self.checkpoint()

    def _unknown(self, batch: Batch, unchanged: bool = False) -> list[NewObject]:
        """Those of a batch's objects that aren't stored. `unchanged`: none of its nodes are."""
        if batch.count <= SMALL_TRANSACTION_OBJECTS:
            has = self.index.has
            return [
                each
                for each in batch.all()
                if each.unique
                or (unchanged and (each.kind is Kind.NODE or (each.kind, each.oid) in batch.absent))
                or not has(each.kind, each.oid)
            ]
        new: list[NewObject] = []
        for kind, objects in batch.objects.items():
            if kind is Kind.NODE and unchanged:
                new += objects.values()
                continue
            known = [oid for oid, each in objects.items() if not each.unique]
            missing = self.index.missing(kind, known)
            if len(missing) == len(known):
                new += objects.values()
            else:
                new += [each for oid, each in objects.items() if each.unique or oid in missing]
        return new

    def _check_moves(self, moves: Sequence[Move], resolved: bytes | None = None) -> None:
        for move in moves:
            check_ref_name(move.ref)  # it becomes a path, and may come from anywhere
            if move.new is not None:
                parse_oid(move.new)
        # Where nobody has committed since they were resolved, refs that are there are still where they were.
        if resolved is None or resolved != self._seen or any(None in (move.expected, move.new) for move in moves):
            self.refs.check(moves)

    def _pack_small(self, new: Sequence[NewObject]) -> dict[tuple[Kind, Oid], bytes] | None:
        """What the journal keeps of each object, or None if they are so large that a pack is better."""
        # By kind too: an attachment may hold the very bytes of a message, and has its id then.
        packed = {(each.kind, each.oid): enframe(each.raw) if each.raw else b"" for each in new}
        return packed if sum(map(len, packed.values())) <= SMALL_TRANSACTION_BYTES else None

    def _check_edges(self, batch: Batch, new: Sequence[NewObject], held: bool = False) -> None:
        """Whether all that new nodes and refs build on is stored or comes with them: gc may have been here.

        `held`: nothing that the batch relies on can have gone.
        """
        needed = _edges(new)
        nodes = needed[Kind.NODE]
        for move in batch.moves:
            if move.new is not None and move.ref.startswith(DESCRIPTIONS):
                needed[Kind.DESCRIPTION].add(move.new)
            elif move.new is not None and move.ref.startswith((CONVERSATIONS, TAGS)):
                nodes.add(move.new)
        if held:
            nodes -= batch.relies_on
        else:
            nodes |= batch.relies_on
        self._check_payloads(batch)
        nodes.discard(ROOT)
        for kind, objects in batch.objects.items():  # what of it isn't new is there
            needed[kind].difference_update(objects)
        for kind, ids in needed.items():
            if ids:
                for oid in sorted(self.index.missing(kind, ids)):
                    raise ObjectMissing(kind, oid)

    def _check_payloads(self, batch: Batch) -> None:
        for oid in batch.objects[Kind.PAYLOAD]:
            # A payload is published before the lock is taken, so a gc may have found that nothing needs it.
            if self.files.stat(loose_name(Kind.PAYLOAD, oid)) is None:
                raise ObjectMissing(Kind.PAYLOAD, oid)

    def _commit_to_journal(
        self,
        new: Sequence[NewObject],
        packed: dict[tuple[Kind, Oid], bytes],
        moves: Sequence[Move],
        entries: tuple[ReflogEntry, ...],
    ) -> Position:
        stored = [StoredObject(each.kind, each.oid, each.form, packed[each.kind, each.oid]) for each in new]
        position = self.journal.append(JournalRecord(tuple(stored), (), entries))
        self._recorded = True
        arrivals = [Arrival(each.kind, each.oid, place_loose(each.form), each.value) for each in new]
        self.index.take_in_later(arrivals, stamp_of(position))
        self._finish(moves, entries, position)
        return position

    def _commit_to_pack(
        self, new: Sequence[NewObject], moves: Sequence[Move], entries: tuple[ReflogEntry, ...]
    ) -> Position:
        with PackWriter(self.files, FAST_LEVEL) as writer:
            write_in_order(writer, new)
            written = writer.finish()
        known = self.index.packs()
        payloads = tuple(StoredObject(e.kind, e.oid, e.form, b"") for e in new if e.kind is Kind.PAYLOAD)
        position = self.journal.append(JournalRecord(payloads, (written.pack,) if written else (), entries))
        try:
            with self.index.changing() as db:
                first = self.index.add_pack(db, written.pack, written.frames) if written else 0
                self._admit_all(db, _arrivals(new, written.placed if written else (), first))
                self.index.set_stamp(db, stamp_of(position))
        except BaseException:
            self._take_back([pack_name(written.pack)] if written and written.pack not in known else [])
            raise
        self._finish(moves, entries, position)
        return position

    def commit_sealed(self, batch: Batch, sealed: Written | None, check: Callable[[], None]) -> None:
        """Commit a pack that was written and checked beforehand, with the payloads and moves of a batch.

        `check` looks again, under the lock, whether all is here that the pack's objects build on. Raises what
        it raises, and what `commit` does; then nothing has happened.
        """
        with self.lock():
            self._check_moves(batch.moves)
            check()
            self._check_payloads(batch)
            payloads = self._unknown(batch)
            if sealed is None and not payloads and not batch.moves:
                return
            now = check_time(self.clock(), "the clock's time")
            entries = tuple(
                ReflogEntry(now, move.ref, move.expected, move.new, reason)
                for move, reason in zip(batch.moves, batch.reasons, strict=True)
            )
            fresh = sealed is not None and sealed.pack not in self.index.packs()
            if sealed is not None:
                publish(self.files, sealed)
            stored = tuple(StoredObject(each.kind, each.oid, each.form, b"") for each in payloads)
            packs = (sealed.pack,) if sealed is not None else ()
            position = self.journal.append(JournalRecord(stored, packs, entries))
            try:
                with self.index.changing() as db:
                    self.index.add(db, [arrival_of(each) for each in stored])
                    if sealed is not None and fresh:
                        self._admit_sealed(db, sealed.pack)
                    self.index.set_stamp(db, stamp_of(position))
            except BaseException:
                self._take_back([pack_name(sealed.pack)] if sealed is not None and fresh else [])
                raise
            self._finish(batch.moves, entries, position)
            if self.journal.size > JOURNAL_CHECKPOINT_BYTES:
                self.checkpoint()

    def _admit_sealed(self, db: sqlite3.Connection, pack: str) -> None:
        told: list[str] = []
        left = admit(self.index, db, adopt_pack(self.files, self.index, db, pack, told.append))
        if left:
            raise ObjectMissing(left[0].kind, f"before {left[0].oid}")
        if told:
            raise CorruptFile(self.files.path(pack_name(pack)), told[0])
        self.index.link(db)

    def _take_back(self, names: Sequence[str]) -> None:
        """A commit failed behind its record: take that back, and then the files that came with it."""
        self._seen = None  # the index may have been committed
        if self.journal.cut():
            for name in names:
                with contextlib.suppress(StorageFailure):  # the first error is the one to tell
                    self.files.remove(name)

    def _admit_all(self, db: sqlite3.Connection, arrivals: Sequence[Arrival]) -> None:
        left = admit(self.index, db, self.index.add(db, arrivals, all_new=True))
        if left:
            raise ObjectMissing(left[0].kind, f"before {left[0].oid}")

    def _finish(self, moves: Sequence[Move], entries: Sequence[ReflogEntry], position: Position) -> None:
        """Behind the commit point: an error is told only if the rest can't be done now, but by the next writer."""
        try:
            self.refs.apply(moves)
            if entries:
                self.refs.reflog.append(entries)
            self._seen = self.journal.mark(position)
        except DagError as error:
            self._seen = None
            try:
                self._catch_up()
            except DagError:
                raise error from None

    # -- checkpoint -------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Make files of what stands in the journal, sync all that it covers, then empty it.

        A few objects become loose files; many go into a pack, which takes one sync for all.
        """
        with self.lock():
            objects: dict[tuple[Kind, Oid], StoredObject] = {}
            moved: set[RefName] = set()
            for record, _ in self.journal.records():
                objects.update({(each.kind, each.oid): each for each in record.objects})
                moved.update(entry.ref for entry in record.moves)
            loose = self._in_no_pack(objects.values())
            if len(loose) > SMALL_TRANSACTION_OBJECTS:
                self.pack_loose([self._opened(each) for each in loose])
                loose = []
            for each in loose:
                self._place(each)
            self._sync_since_checkpoint(loose, moved)
            self.index.checkpoint()
            self.empty_journal(swept=False)

    def empty_journal(self, *, swept: bool = True) -> None:
        """Forget the journal's records: all they cover is synced. The lock is held.

        After a sweep an index from before it, restored or brought back by a crash, is of another time.
        """
        self.journal.empty(swept=swept)
        with self.index.changing() as db:
            self.index.set_stamp(db, stamp_of(self.journal.position()))
        self._seen = self.journal.state()

    def adopt_loose(self) -> int:
        """Index loose files that the index doesn't know (copied in, or left by a crash); how many."""
        arrivals = []
        for kind in Kind:
            unknown = self.index.missing(kind, [oid for oid, _ in list_loose(self.files, kind)])
            if unknown:
                arrivals += [a for a in loose_arrivals(self.files, kind, self.notice) if a.oid in unknown]
        if arrivals:
            with self.index.changing() as db:
                admit(self.index, db, arrivals)
                self.index.link(db)
        return len(arrivals)

    def _in_no_pack(self, objects: Collection[StoredObject]) -> list[StoredObject]:
        """Those that stand in the journal alone, or in a loose file."""
        packed = set()
        for kind in KINDS:
            rows = self.index.rows_of(kind, [each.oid for each in objects if each.kind is kind])
            loose = {row for row, _ in self.index.loose_rows(kind)} if rows else set()
            packed |= {(kind, oid) for oid, row in rows.items() if row not in loose}
        return [e for e in objects if e.kind is not Kind.PAYLOAD and (e.kind, e.oid) not in packed]

    def _place(self, each: StoredObject) -> None:
        """Make an object's loose file; the folder is still to be synced."""
        name, packed = loose_name(each.kind, each.oid, each.form), compress(self._raw(each))
        if self.files.read_or_none(name, MAX_STORED_BYTES) != packed:
            self.files.replace(name, packed, sync_folder=False)

    def _opened(self, each: StoredObject) -> NewObject:
        from objstore.transaction import NewObject  # noqa: PLC0415  only writers need it

        raw = self._raw(each)
        return NewObject(each.kind, each.oid, raw, value_of(each.kind, each.form, raw), each.form)

    def _raw(self, each: StoredObject) -> bytes:
        return decompress(each.packed, MAX_OBJECT_BYTES, loose_name(each.kind, each.oid, each.form))

    def _sync_since_checkpoint(self, loose: Iterable[StoredObject], moved: Collection[RefName]) -> None:
        """Make durable what the journal's records changed: the names of these loose files, refs, reflog."""
        for folder in sorted({loose_name(each.kind, each.oid).rpartition("/")[0] for each in loose}):
            self.files.sync_dir(folder)
        self.refs.sync(moved)
        self.refs.reflog.sync()

    def pack_loose(self, objects: Sequence[NewObject], level: int = FAST_LEVEL) -> Written | None:
        """Move loose objects into a new pack; the lock is held."""
        with PackWriter(self.files, level) as writer:
            write_in_order(writer, objects)
            written = writer.finish()
        if written is None:
            return None
        with self.index.changing() as db:
            first = self.index.add_pack(db, written.pack, written.frames)
            for kind in Kind:
                places = {p.oid: place_packed(first + p.frame, p.line) for p in written.placed if p.kind is kind}
                rows = self.index.rows_of(kind, places)
                self.index.move_rows(db, kind, [(places[oid], row) for oid, row in rows.items()])
        kinds = {each.kind for each in objects}
        there = {(kind, oid, form) for kind in kinds for oid, form in list_loose(self.files, kind)}
        for each in objects:  # most of what was only in the journal never had a file
            if (each.kind, each.oid, each.form) in there:
                self.files.remove(loose_name(each.kind, each.oid, each.form))
        return written


def _arrivals(new: Iterable[NewObject], placed: Iterable[Placed], first: int) -> list[Arrival]:
    """Objects, most of which stand in a pack whose first frame has the row `first`."""
    waiting: dict[Kind, dict[Oid, NewObject]] = {kind: {} for kind in KINDS}
    for each in new:
        waiting[each.kind][each.oid] = each
    arrivals = []
    for kind, oid, frame, line in placed:
        found = waiting[kind].pop(oid, None)
        if found is not None:  # else it is a copy
            arrivals.append(Arrival(kind, oid, place_packed(first + frame, line), found.value))
    for left in waiting.values():
        arrivals += [Arrival(each.kind, oid, place_loose(each.form), each.value) for oid, each in left.items()]
    return arrivals


def _edges(objects: Iterable[NewObject]) -> dict[Kind, set[Oid]]:
    """What nodes and calls name."""
    named: dict[Kind, set[Oid]] = {kind: set() for kind in KINDS}
    nodes, messages = named[Kind.NODE], named[Kind.MESSAGE]
    for each in objects:
        value = each.value
        if isinstance(value, Node):
            messages.add(value.message)
            nodes.add(value.parent)
            if value.called_by is not None:
                nodes.add(value.called_by)
        elif isinstance(value, Call):
            nodes.add(value.head_input)
            if value.head_output is not None:
                nodes.add(value.head_output)
            if value.instructions is not None:
                messages.add(value.instructions)
            if value.tools is not None:
                named[Kind.PAYLOAD].add(value.tools)
    return named
