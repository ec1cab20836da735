"""A remote that is a folder: another store, on this disk, a mounted one or a stick.

It is opened as a store, under its own lock, by this very program; its objects, its index and its refs are
believed no more than what a stranger sends.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from typing import BinaryIO, Final

from objstore.config import CONFIG
from objstore.indexfile import DAMAGE, INDEX
from objstore.kinds import Kind
from objstore.pack import PackReader, Written
from objstore.scan import Notice, Progress
from objstore.storage import Storage
from objstore.transfer.memory import Mark, Memory
from objstore.transfer.negotiate import Known, Wanted, select
from objstore.transfer.outgoing import Outgoing, pack
from objstore.transfer.quarantine import Quarantine
from refs.errors import BadTransfer, NoSuchRemote
from refs.files import Files
from refs.ids import Oid, PayloadId
from refs.names import RefName

_IN: Final = "in"
_OUT: Final = "out"


class FolderRemote:
    """See `remote.Remote`. `storage` is the other store, open; it is closed with the remote."""

    def __init__(self, url: str, storage: Storage, here: Storage, progress: Progress | None = None) -> None:
        self.url, self.id = url, storage.config.id
        self._storage, self._here, self._progress = storage, here, progress
        self._memory = Memory(here.files, url, self.id)
        self._mark: Mark | None = None

    @classmethod
    def open(cls, path: str, here: Storage, *, notice: Notice, progress: Progress | None = None) -> FolderRemote:
        """The store in the folder `path`, or in the `.dag` in it. Raises `NoSuchRemote`, `BadTransfer`."""
        files = Files(path)
        if files.stat(CONFIG) is None:
            files = Files(files.path(".dag"))
        if files.stat(CONFIG) is None:
            raise NoSuchRemote(path, "no store is there")
        if files.root.resolve() == here.files.root.resolve():
            raise NoSuchRemote(path, "that is this very store")
        _refuse_code(files)
        return cls(path, Storage.open(files, here.clock, notice), here, progress)

    def refs(self) -> Iterator[tuple[str, str]]:
        yield from self._storage.refs.list()
        yield from ((name, "") for name, _ in self._storage.refs.suspicious)

    def missing(self, kind: Kind, ids: Iterable[Oid]) -> set[Oid]:
        return self._storage.index.missing(kind, ids)

    def get(
        self, wanted: Wanted, *, again: bool = False
    ) -> Iterator[contextlib.AbstractContextManager[PackReader]]:
        self._mark = Mark.of(self._storage.index)
        outgoing = self._pack(wanted, Known() if again else self._known(_IN))
        try:
            if outgoing.sealed is not None:
                sealed = outgoing.sealed
                yield contextlib.closing(PackReader(self._here.files, sealed.pack, sealed.temp))
        finally:
            outgoing.discard(self._here.files)

    def weigh(self, wanted: Wanted) -> tuple[dict[Kind, int], int]:
        outgoing = self._pack(wanted, self._known(_IN))
        outgoing.discard(self._here.files)
        return outgoing.objects, outgoing.bytes(self._storage.files)

    def taken(self, wanted: Wanted) -> None:
        if self._mark is not None:
            self._memory.remember(_IN, self._mark, wanted.heads, everything=wanted.calls)

    def sent(self, wanted: Wanted, mark: Mark) -> None:
        self._memory.remember(_OUT, mark, wanted.heads, everything=wanted.calls)

    def known(self) -> Known:
        return self._known(_OUT)

    def open_payload(self, payload: PayloadId) -> BinaryIO:
        return self._storage.database.open_payload(payload)

    def put(self, sealed: Written | None, payloads: Collection[PayloadId]) -> int:
        if sealed is None:
            return 0
        here = self._here
        with Quarantine(self._storage, here.database.open_payload, self._progress) as quarantine:
            with contextlib.closing(PackReader(here.files, sealed.pack, sealed.temp)) as reader:
                quarantine.take(reader)
            quarantine.commit()
            return sealed.size + quarantine.payload_bytes

    def move(self, ref: RefName, expected: Oid | None, new: Oid | None) -> None:
        with self._storage.transaction() as transaction:
            transaction.move(ref, expected, new, "push")

    def close(self) -> None:
        self._memory.close()
        self._storage.close()

    def _pack(self, wanted: Wanted, known: Known) -> Outgoing:
        missing = self._here.index.missing
        selection = select(self._storage, missing, wanted, known)
        return pack(self._storage, selection, missing, self._here.files, self._progress)

    def _known(self, side: str) -> Known:
        memory = self._memory
        return Known(memory.covered(side), memory.mark(side), memory.mark_of_all(side))


def _refuse_code(files: Files) -> None:
    """Refuse an index in which asking for a row runs what somebody wrote there: it may never end."""
    if files.stat(INDEX) is None:
        return
    try:
        with contextlib.closing(sqlite3.connect(f"file:{files.path(INDEX)}?mode=ro", uri=True)) as db:
            code = db.execute("SELECT 1 FROM sqlite_master WHERE type IN ('view', 'trigger') LIMIT 1").fetchone()
    except DAMAGE:
        return  # none that can be read: it will be made anew
    if code is not None:
        raise BadTransfer(str(files.root), "its index holds code")
