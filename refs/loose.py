"""Loose refs: one file a ref, holding 64 hex digits and a newline."""

from __future__ import annotations

import re
import stat
import time
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from refs.errors import CorruptFile, StorageFailure
from refs.files import TEMP_PREFIX, Files
from refs.ids import Oid
from refs.names import CONVERSATIONS, DESCRIPTIONS, REMOTES, TAGS, RefName

MAX_REF_FILE_BYTES: Final = 256

_VALUE = re.compile(rb"([0-9a-f]{64})\n")
_VALUE_BYTES: Final = 65
# Seconds between two looks at a ref file that is shorter than a value: its creator has yet to write it.
_PAUSES: Final = (0.0, 0.0, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032)


class LooseRefs:
    """The files below `refs/`. Changes need the store's lock, and are not synced; reading needs none."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def names(self, prefix: str = "") -> Iterator[str]:
        """The names of all files that start with `prefix`, in no order and unchecked: anything may lie there."""
        classes = (CONVERSATIONS, DESCRIPTIONS, TAGS, REMOTES)
        # Only constants become paths here: a prefix may come from outside.
        folder = next((name for name in classes if prefix.startswith(name)), "refs/")
        for name in self._files.walk(folder[:-1]):
            if name.startswith(prefix) and not name.rpartition("/")[2].startswith(TEMP_PREFIX):
                yield name

    def read(self, name: str) -> Oid | None:
        """The value of a ref, or None if there is no file; `CorruptFile` if the file holds anything else.

        A value is overwritten in place, and a read may see half of a write: it counts once two agree.
        """
        try:
            for pause in _PAUSES:
                data, again = self._files.read_twice(name, MAX_REF_FILE_BYTES)
                if len(data) >= _VALUE_BYTES and data == again:
                    break
                time.sleep(pause)
        except FileNotFoundError:
            return None
        except CorruptFile:
            if self._is_folder(name):
                return None
            raise
        match = _VALUE.fullmatch(data)
        if match is None:
            raise CorruptFile(self._files.path(name), "not 64 hex digits and a newline")
        return Oid(match[1].decode())

    def overwrite(self, ref: RefName, oid: Oid) -> bool:
        """Change an existing file; False if there is none."""
        try:
            handle = self._files.open_rw_existing(ref)
        except FileNotFoundError:
            return False
        except StorageFailure:
            if not self._is_folder(ref):
                raise
            self._remove_empty_folders(ref)
            return False
        with handle:
            # In place is ten times cheaper than a rename, and safe for a value that stays as long as it was.
            if handle.size() == _VALUE_BYTES:
                handle.write_at(0, _line(oid))
                return True
        self._files.replace(ref, _line(oid), durable=False)
        return True

    def place(self, ref: RefName, oid: Oid) -> None:
        """Create a file, and its folders where needed."""
        if not self._files.place(ref, _line(oid)):
            self.overwrite(ref, oid)

    def remove(self, ref: RefName) -> None:
        """Remove a file if it is there, and the folders that are empty then."""
        if self._is_folder(ref) or not self._files.remove(ref):
            return
        folder = _folder(ref)
        while folder.count("/") > 1 and self._files.remove_dir(folder):
            folder = _folder(folder)

    def sync(self, refs: Collection[RefName]) -> None:
        """Make these files durable, or their absence."""
        for ref in refs:
            found = self._files.stat(ref)
            if found is not None and stat.S_ISREG(found.st_mode):
                self._files.sync(ref)
        self.sync_folders(refs)

    def sync_folders(self, refs: Iterable[RefName]) -> None:
        """Make it durable which of these files are there."""
        folders = {_folder(ref) for ref in refs}
        for folder in sorted({self._nearest(folder) for folder in folders}):
            self._files.sync_dir(folder)

    def _nearest(self, folder: str) -> str:
        """The folder, or the first above it that is left."""
        while folder and not self._is_folder(folder):
            folder = _folder(folder)
        return folder

    def _remove_empty_folders(self, name: str) -> None:
        """Clear a ref's place of the folders that a crash has left there."""
        folders = [name]
        for folder in folders:
            folders += [f"{folder}/{entry}" for entry, is_dir in self._files.entries(folder) if is_dir]
        for folder in reversed(folders):
            self._files.remove_dir(folder)

    def _is_folder(self, name: str) -> bool:
        found = self._files.stat(name)
        return found is not None and stat.S_ISDIR(found.st_mode)


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _line(oid: Oid) -> bytes:
    return f"{oid}\n".encode()
