"""A disk that can lose power: every change a store makes is recorded, and any moment's remains can be laid out.

What a crash may leave is everything that was synced, and of the rest any part:

- a file's bytes are safe up to its last sync; of what was written since, each write and cut may be there or not
- a name in a folder (made, moved there, removed) is safe from the next sync of that folder on
- a rename is one step; a write of up to 512 bytes inside a sector that was there before is one step too

The index goes around `Files`, straight through SQLite: it is photographed beside each step instead.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from refs.files import Bytes, Files

INDEX_NAMES = ("index.sqlite", "index.sqlite-wal", "index.sqlite-shm", "index.sqlite-journal")
FOLDER = -1


def is_index(name: str) -> bool:
    return name.removeprefix(".tmp-") in INDEX_NAMES


@dataclass(frozen=True)
class Op:
    """One step: `kind` is a primitive of `Files`; `file` names the open file, whatever its name has become."""

    kind: str
    name: str
    file: int = 0
    offset: int = 0
    data: bytes = b""
    other: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name} {self.other or (self.offset, len(self.data))}"


@dataclass
class _File:
    synced: bytes = b""
    pending: list[Op] = field(default_factory=list)

    def content(self, kept: Callable[[Op], bool] = lambda _: True) -> bytes:
        data = self.synced
        for op in self.pending:
            if kept(op):
                data = _done(data, op)
        return data

    def zeroed(self) -> bytes:
        """As long as it was, but zeros behind what was synced: what delayed allocation leaves."""
        return self.synced[: len(self.content())].ljust(len(self.content()), b"\0")


def _done(data: bytes, op: Op) -> bytes:
    if op.kind == "truncate":
        return data[: op.offset].ljust(op.offset, b"\0")
    return data[: op.offset].ljust(op.offset, b"\0") + op.data + data[op.offset + len(op.data) :]


Names = dict[str, int]


class Disk:
    """The files of a folder: as a process sees them, and what of them is safe."""

    def __init__(self) -> None:
        self.files: dict[int, _File] = {}
        self.names: Names = {}
        self._safe: Names = {}
        self._renamed: list[Op] = []  # name changes that no sync of their folder has made safe
        self._last: Op | None = None

    @classmethod
    def of(cls, root: Path) -> Disk:
        """What is in a folder, all of it safe."""
        disk = cls()
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.is_dir():
                disk.names[name] = FOLDER
            elif not is_index(name):
                number = len(disk.files) + 1
                disk.files[number] = _File(path.read_bytes())
                disk.names[name] = number
        disk._safe = dict(disk.names)
        return disk

    def apply(self, op: Op) -> None:
        self._last = op
        if op.kind == "create":
            self.files[op.file] = _File()
        if op.kind in ("write", "truncate"):
            self.files[op.file].pending.append(op)
        elif op.kind == "sync":
            held = self.files[op.file]
            held.synced, held.pending = held.content(), []
        elif op.kind == "sync_dir":
            mine = [change for change in self._renamed if _folder(change.other or change.name) == op.name]
            for change in mine:
                _rename(self._safe, change)
            self._renamed = [change for change in self._renamed if change not in mine]
        else:
            change = replace(op, file=self.names.get(op.name, 0)) if op.kind == "rename" else op
            _rename(self.names, change)
            self._renamed.append(change)

    def states(self, rng: random.Random) -> Iterator[tuple[str, dict[str, bytes | None]]]:
        """(what was lost, what is there: bytes by name, None for a folder) of the crashes at this moment."""
        everything = {number: held.content() for number, held in self.files.items()}
        synced = {number: held.synced for number, held in self.files.items()}
        zeroed = {number: held.zeroed() for number, held in self.files.items()}
        yield "nothing", _laid_out(self.names, everything)
        yield "all that wasn't synced", _laid_out(self._safe, synced)
        yield "names that weren't synced", _laid_out(self._safe, everything)
        yield "bytes that weren't synced", _laid_out(self.names, synced)
        yield "bytes that weren't synced, zeros in their place", _laid_out(self.names, zeroed)
        names = dict(self._safe)
        for change in self._renamed:
            if rng.random() < 0.5:
                _rename(names, change)
        some = {number: held.content(lambda _: rng.random() < 0.5) for number, held in self.files.items()}
        yield "a part of it", _laid_out(names, some)
        last = self._last
        if last is not None and last.kind == "write":
            held = self.files[last.file]
            before = _File(held.synced, held.pending[:-1]).content()
            # The record of a transaction is what must be told from its beginnings: there it matters most.
            sizes = _tears(len(last.data), rng) if last.name == "journal" else [rng.randrange(1 + len(last.data))]
            for size in sizes:
                torn = _done(before, replace(last, data=last.data[:size]))
                yield (
                    f"the end of {last.name} from byte {size} on",
                    _laid_out(self.names, {**everything, last.file: torn}),
                )

    def copy(self) -> Disk:
        made = Disk()
        made.files = {number: _File(held.synced, list(held.pending)) for number, held in self.files.items()}
        made.names, made._safe, made._renamed = dict(self.names), dict(self._safe), list(self._renamed)
        return made


TEARS = 40
"""A record of up to so many bytes is torn at each, a longer one at so many, its first and last 8 among them."""


def _tears(size: int, rng: random.Random) -> list[int]:
    if size <= TEARS:
        return list(range(size))
    return sorted({*range(8), *range(size - 8, size), *rng.sample(range(size), TEARS - 16)})


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _rename(names: Names, op: Op) -> None:
    if op.kind == "create":
        names[op.name] = op.file
    elif op.kind == "mkdir":
        names[op.name] = FOLDER
    elif op.kind == "rename":
        names.pop(op.name, None)
        names[op.other] = op.file
    else:
        names.pop(op.name, None)


def _laid_out(names: Names, contents: dict[int, bytes]) -> dict[str, bytes | None]:
    made: dict[str, bytes | None] = {}
    for name in sorted(names):
        folder = _folder(name)
        if folder == "" or (folder in made and made[folder] is None):
            made[name] = None if names[name] == FOLDER else contents[names[name]]
    return made


def lay_out(root: Path, state: dict[str, bytes | None], index: dict[str, bytes]) -> None:
    """Write a state down as files."""
    root.mkdir(parents=True)
    for name, data in state.items():
        if data is None:
            (root / name).mkdir()
        else:
            (root / name).write_bytes(data)
    for name, data in index.items():
        (root / name).write_bytes(data)


def photograph(root: Path) -> dict[str, bytes]:
    """The index as it stands: the file and its write-ahead log."""
    return {name: (root / name).read_bytes() for name in INDEX_NAMES[:2] if (root / name).exists()}


class RecordingFiles(Files):
    """Files that write down each step, with the index as it stood after it."""

    def __init__(self, root: Path, disk: Disk) -> None:
        super().__init__(root)
        self.ops: list[Op] = []
        self.indexes: list[dict[str, bytes]] = []
        self._numbers = {
            (root / name).stat().st_ino: number for name, number in disk.names.items() if number != FOLDER
        }
        self._next = max(disk.files, default=0) + 1

    def _record(self, op: Op) -> None:
        if not is_index(op.name):
            self.ops.append(op)
            self.indexes.append(photograph(self.root))

    def _number(self, fd: int) -> int:
        return self._numbers[os.fstat(fd).st_ino]

    def _made(self, name: str, fd: int) -> int:
        self._numbers[os.fstat(fd).st_ino] = self._next
        self._record(Op("create", name, self._next))
        self._next += 1
        return fd

    def _create(self, name: str) -> int:
        return self._made(name, super()._create(name))

    def _open_rw(self, name: str) -> int:
        new = self.stat(name) is None
        fd = super()._open_rw(name)
        return self._made(name, fd) if new else fd

    def _write(self, name: str, fd: int, offset: int, data: Bytes) -> None:
        super()._write(name, fd, offset, data)
        self._record(Op("write", name, self._number(fd), offset, bytes(data)))

    def _truncate(self, name: str, fd: int, size: int) -> None:
        super()._truncate(name, fd, size)
        self._record(Op("truncate", name, self._number(fd), size))

    def _sync(self, name: str, fd: int) -> None:
        super()._sync(name, fd)
        self._record(Op("sync", name, self._number(fd)))

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self._record(Op("rename", old, other=new))

    def remove(self, name: str) -> bool:
        removed = super().remove(name)
        if removed:
            self._record(Op("remove", name))
        return removed

    def mkdir(self, name: str) -> bool:
        made = super().mkdir(name)
        if made:
            self._record(Op("mkdir", name))
        return made

    def remove_dir(self, name: str) -> bool:
        removed = super().remove_dir(name)
        if removed:
            self._record(Op("remove_dir", name))
        return removed

    def sync_dir(self, name: str) -> None:
        super().sync_dir(name)
        self._record(Op("sync_dir", name))
