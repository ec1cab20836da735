"""RefStore: loose ref files and packed-refs as one mapping from names to ids.

A loose file wins over a packed line. Readers take no lock. Whoever changes refs holds the store's lock from
`check` to the end of `apply`, and logs the moves: a ref's value is not synced unless asked for, because the
journal can write it again.
"""

from __future__ import annotations

import contextlib
import heapq
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from refs.errors import CorruptFile, DagError, InvalidRefName, RefChanged, RefExists
from refs.files import Files
from refs.ids import Oid
from refs.loose import LooseRefs
from refs.names import CONVERSATIONS, RefName, check_ref_name
from refs.packed import Identity, PackedRefs
from refs.reflog import Reflog
from refs.taken import NameSet, Taken

HEAD: Final = "HEAD"
STAMP: Final = "refs-stamp"
"""16 random digits, new with each change of the set of names; a hint between processes, never needed."""

MAX_LOOSE_MOVES: Final = 64
"""More moves than this in one `apply` go into packed-refs at once: one sync for all."""
MAX_HEAD_BYTES: Final = 1024
MAX_STAMP_BYTES: Final = 1024

Problems = list[tuple[str, str]]
"""(name, what is wrong with it)."""


class Move(NamedTuple):
    """`ref` goes from `expected` (None: it isn't there yet) to `new` (None: it is deleted)."""

    ref: RefName
    expected: Oid | None
    new: Oid | None


class RefStore:
    """All refs of a store, its HEAD and its reflog."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._loose = LooseRefs(files)
        self._packed = PackedRefs(files)
        self.reflog = Reflog(files)
        self.suspicious: Problems = []
        """(name, reason) of what the latest `list` found on disk under names that aren't allowed."""
        self._stamp = b""
        self._loose_names: NameSet | None = None
        self._packed_names = NameSet()
        self._packed_identity: Identity | None = None

    # -- reading ----------------------------------------------------------------------------------

    def resolve(self, name: RefName) -> Oid | None:
        """The value of a ref, or None. Raises `CorruptFile` naming the file that can't be believed."""
        # Loose first: `pack` writes the packed line before it removes the loose file.
        oid = self._loose.read(name)
        return self._packed.find(name) if oid is None else oid

    def _resolver(self, moves: Iterable[Move]) -> Callable[[RefName], Oid | None]:
        """`resolve` for the refs of very many moves, while the lock is held."""
        taken = self.taken()
        there = [move.ref for move in moves if taken.holds(move.ref)]  # of new conversations none is
        packed, loose = self._packed.find_all(there), set(self._loose.names()) if there else set()
        return lambda name: self.resolve(name) if name in loose else packed.get(name)

    def list(self, prefix: str = "", at: Collection[Oid] | None = None) -> Iterator[tuple[RefName, Oid]]:
        """All refs whose names start with `prefix`, sorted. Names that aren't allowed go to `suspicious`.

        With `at` only those that stand at one of these: to look for few among very many is much cheaper.
        """
        self.suspicious = []
        loose = [(name, None) for name in sorted(self._loose.names(prefix))]
        # The packed file is opened after the last folder was read, so no ref is packed past this listing.
        lines = self._packed.items(prefix) if at is None else self._packed.standing_at(at, prefix)
        found = heapq.merge(loose, lines, key=itemgetter(0))
        previous = ""
        for name, packed in found:
            if name == previous:
                continue
            previous = name
            try:
                ref = check_ref_name(name)
            except InvalidRefName as error:
                self.suspicious.append((name, error.reason))
                continue
            oid = self.resolve(ref) if packed is None else packed
            if oid is not None and (at is None or oid in at):
                yield ref, oid

    def head(self) -> RefName:
        """The current conversation, which may have no message yet. `CorruptFile` if HEAD doesn't name one."""
        data = self._files.read_or_none(HEAD, MAX_HEAD_BYTES)
        if data is None:
            raise CorruptFile(self._files.path(HEAD), "it is missing")
        text = data.decode("utf-8", "surrogateescape")
        if not text.startswith(f"ref: {CONVERSATIONS}") or not text.endswith("\n"):
            raise CorruptFile(self._files.path(HEAD), f"not 'ref: {CONVERSATIONS}' and a name")
        try:
            return check_ref_name(text[len("ref: ") : -1])
        except InvalidRefName as error:
            raise CorruptFile(self._files.path(HEAD), str(error)) from error

    def roots(self, since: str) -> tuple[set[Oid], set[Oid]]:
        """What gc must keep: the values of all refs, and what else moves since `since` (ISO 8601, UTC) name.

        HEAD names a ref, so it adds nothing, but a damaged one is a reason to stop, as is a damaged ref:
        `CorruptFile`. Under a name that isn't allowed a value counts too; what has neither is no ref. Of a move
        both ends are kept. The names of packed refs are not looked at, so this is much cheaper than `list`.
        """
        self.head()
        loose = set(self._loose.names())
        # The packed file is opened after the last folder was read, so no ref is packed past this.
        held = self._packed.values(loose)
        held.update(oid for name in loose if (oid := self._value(name)) is not None)
        return held, self.reflog.young(since) - held

    def _value(self, name: str) -> Oid | None:
        """The value under a name as it was found on the disk. Where it isn't allowed, a file may hold anything."""
        try:
            return self.resolve(check_ref_name(name))
        except InvalidRefName:
            try:
                stray = self._loose.read(name)
            except CorruptFile:
                stray = None
            return self._packed.find(name) if stray is None else stray

    def verify(self) -> Problems:
        """(name, problem) of all that is wrong with refs, packed-refs and HEAD. Bad content never raises."""
        problems: Problems = []
        names = []
        for name in self._loose.names():
            try:
                names.append(check_ref_name(name))
                self._loose.read(name)
            except DagError as error:
                problems.append((name, _reason(error)))
        try:
            for name, problem in self._packed.audit():
                if problem is not None:
                    problems.append((name, problem))
                    continue
                try:
                    names.append(check_ref_name(name))
                except InvalidRefName as error:
                    problems.append((name, error.reason))
        except DagError as error:
            problems.append(("packed-refs", _reason(error)))
        try:
            self.head()
        except DagError as error:
            problems.append((HEAD, _reason(error)))
        taken = NameSet()
        for ref in sorted(set(names)):
            conflict = taken.conflict(ref)
            if conflict is not None:
                problems.append((ref, conflict))
            taken.add(ref)
        return problems

    # -- changing: the lock is held ---------------------------------------------------------------

    def check(self, moves: Sequence[Move]) -> None:
        """Raise unless all `moves` can be applied together; changes nothing.

        `RefChanged` if a ref isn't where its move expects it; `RefExists` if a new name differs only by
        case from another, or one would be a folder of the other. Names that the same moves delete are free.
        """
        if len({move.ref for move in moves}) < len(moves):
            raise ValueError("two moves of one ref")
        resolve = self.resolve if len(moves) <= MAX_LOOSE_MOVES else self._resolver(moves)
        for move in moves:
            actual = resolve(move.ref)
            if actual != move.expected:
                raise RefChanged(move.ref, move.expected, actual)
        created = [move.ref for move in moves if move.expected is None and move.new is not None]
        if created:
            deleted = [move.ref for move in moves if move.expected is not None and move.new is None]
            self._check_names(created, deleted)

    def apply(self, moves: Sequence[Move], *, durable: bool = False) -> None:
        """Make every move, whatever is there: doing it again changes nothing. `check` comes before.

        Without `durable` the caller has another record of the moves, and calls `sync` before giving it up.
        A crash may leave some of the moves made.
        """
        values = {move.ref: move.new for move in moves}
        try:
            if len(values) > MAX_LOOSE_MOVES:
                self._mark_changed()
                known = self._packed_identity == self._packed.identity()
                self._packed.rewrite(values)
                if known:  # so that the names need not be read again
                    for ref, new in values.items():
                        self._packed_names.discard(ref) if new is None else self._packed_names.add(ref)
                    self._packed_identity = self._packed.identity()
                there = set(self._loose.names())
                self._remove_loose([ref for ref in values if ref in there])
            else:
                # Deletions first: they may free the names of creations.
                self._delete([ref for ref, new in values.items() if new is None])
                self._write({ref: new for ref, new in values.items() if new is not None})
        except BaseException:
            self._loose_names = None  # it may not be what is on disk
            raise
        if durable:
            self.sync(values)

    def pack(self) -> int:
        """Move all loose refs into packed-refs, durably; returns how many there were."""
        values = {ref: self._loose.read(ref) for ref in self._allowed_loose()}
        self._packed.rewrite(values, settle=True)
        self._remove_loose(values)
        # Else a crash could bring a loose file back, and with it an old value or a deleted ref.
        self._loose.sync_folders(values)
        return len(values)

    def sync(self, names: Collection[RefName]) -> None:
        """Make the loose files of these refs durable, or their absence."""
        self._loose.sync(names)

    def set_head(self, ref: RefName) -> None:
        """Make a conversation the current one, durably."""
        if not ref.startswith(CONVERSATIONS):
            raise InvalidRefName(ref, "HEAD names a conversation")
        self._files.replace(HEAD, f"ref: {ref}\n".encode())

    def close(self) -> None:
        self._packed.close()
        self.reflog.close()

    def _write(self, values: Mapping[RefName, Oid]) -> None:
        missing = [ref for ref, oid in values.items() if not self._loose.overwrite(ref, oid)]
        if any(self._packed.find(ref) is None for ref in missing):
            self._mark_changed()
        for ref in missing:
            self._loose.place(ref, values[ref])
            if self._loose_names is not None:
                self._loose_names.add(ref)

    def _delete(self, refs: Sequence[RefName]) -> None:
        if refs:
            self._mark_changed()
            # The packed line first: were the loose file to go first, an old packed value would reappear.
            self._packed.rewrite(dict.fromkeys(refs))
            self._remove_loose(refs)

    def _remove_loose(self, refs: Iterable[RefName]) -> None:
        for ref in refs:
            self._loose.remove(ref)
            if self._loose_names is not None:
                self._loose_names.discard(ref)

    # -- which names are taken --------------------------------------------------------------------

    def _check_names(self, created: Sequence[RefName], deleted: Sequence[RefName]) -> None:
        taken = self.taken()
        freed = [(names, ref) for ref in deleted for names in taken if names.discard(ref)]
        added = []
        try:
            for ref in created:
                conflict = taken.conflict(ref)
                if conflict is not None:
                    raise RefExists(ref, conflict)
                if taken.loose.add(ref):
                    added.append(ref)
        finally:
            for ref in added:
                taken.loose.discard(ref)
            for names, ref in freed:
                names.add(ref)

    def taken(self) -> Taken:
        """The names of the loose and of the packed refs, read again only if another process changed them.

        What others change from now on isn't seen in it. Takes no lock.

        Folders' times can't tell: two changes within one tick of the clock leave the same time.
        """
        stamp = self._read_stamp()
        if self._loose_names is None or stamp != self._stamp:
            self._loose_names = NameSet(self._allowed_loose())
            self._stamp = stamp
        identity = self._packed.identity()
        if identity != self._packed_identity:
            self._packed_names = NameSet(name for name, _ in self._packed.items())
            self._packed_identity = identity
        return Taken(self._loose_names, self._packed_names)

    def _allowed_loose(self) -> Iterator[RefName]:
        for name in self._loose.names():
            with contextlib.suppress(InvalidRefName):
                yield check_ref_name(name)

    def _mark_changed(self) -> None:
        """Before the set of names changes: whoever knows it from before must read it again; we needn't."""
        if self._read_stamp() != self._stamp:
            self._loose_names = None
        self._stamp = os.urandom(8).hex().encode()
        with self._files.open_rw(STAMP) as handle:
            handle.write_at(0, self._stamp)

    def _read_stamp(self) -> bytes:
        return self._files.read_or_none(STAMP, MAX_STAMP_BYTES) or b""


def _reason(error: DagError) -> str:
    return error.reason if isinstance(error, CorruptFile | InvalidRefName) else str(error)
