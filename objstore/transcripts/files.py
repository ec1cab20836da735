"""Sources: bytes, a file, a folder; for archives see `archive`. All that is opened is a regular file.

A path that the user names may be a link (people link their configuration folders); below it no link is
followed, and nothing is opened that reading could wait for, such as a pipe.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from objstore.limits import MAX_SOURCE_FILES
from objstore.transcripts.archive import ZipSource, looks_like_zip
from objstore.transcripts.model import Skipped
from objstore.transcripts.source import Source, SourceFile
from objstore.transcripts.streams import BytesFile, LocalFile, local_path

__all__ = [
    "BytesFile",
    "BytesSource",
    "FileSource",
    "FolderSource",
    "LocalFile",
    "View",
    "ZipSource",
    "local_path",
    "open_source",
]


class _Listed:
    """What all sources share: files listed once, found by name."""

    def __init__(self, label: str, list_files: Callable[[list[Skipped]], Iterable[SourceFile]]) -> None:
        self.label = label
        self._skipped: list[Skipped] = []
        self._list_files = list_files
        self._files: dict[str, SourceFile] | None = None

    def _listed(self) -> dict[str, SourceFile]:
        if self._files is None:
            found = self._list_files(self._skipped)
            self._files = {file.name: file for file in sorted(found, key=lambda file: file.name)}
        return self._files

    @property
    def skipped(self) -> Sequence[Skipped]:
        self._listed()
        return self._skipped

    def files(self) -> list[SourceFile]:
        return list(self._listed().values())

    def beside(self) -> list[SourceFile]:
        return self.files()

    def find(self, name: str) -> SourceFile | None:
        return self._listed().get(name)


class BytesSource(_Listed):
    """Files in memory, by name: standard input, and tests."""

    def __init__(self, files: dict[str, bytes], label: str = "-") -> None:
        super().__init__(label, lambda skipped: [BytesFile(name, data) for name, data in files.items()])


class FileSource(_Listed):
    """One file on the disk, named by the user."""

    def __init__(self, path: str | os.PathLike[str], label: str | None = None) -> None:
        self._path = os.path.realpath(path)
        self._name = os.path.basename(os.fspath(path))
        super().__init__(label if label is not None else os.fspath(path), self._list)

    def _list(self, skipped: list[Skipped]) -> Iterable[SourceFile]:
        try:
            about = os.lstat(self._path)
        except OSError as error:
            skipped.append(Skipped("unreadable-file", self.label, error.strerror or str(error)))
            return
        if stat.S_ISREG(about.st_mode):
            yield LocalFile(self._name, about.st_size, self._path)
        else:
            skipped.append(Skipped("not-a-file", self.label, "neither a regular file nor a folder"))


class FolderSource(_Listed):
    """A folder and all below it."""

    def __init__(self, path: str | os.PathLike[str], label: str | None = None) -> None:
        self._root = os.path.realpath(path)
        super().__init__(label if label is not None else os.fspath(path), self._list)

    def _list(self, skipped: list[Skipped]) -> Iterable[SourceFile]:
        folders, count = [""], 0
        while folders:
            folder = folders.pop()
            try:
                with os.scandir(os.path.join(self._root, folder)) as scanned:
                    entries = sorted(scanned, key=lambda entry: entry.name)
            except OSError as error:
                skipped.append(Skipped("unreadable-folder", folder or self.label, error.strerror or str(error)))
                continue
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                if (count := count + 1) > MAX_SOURCE_FILES:
                    skipped.append(Skipped("too-many-files", name, f"more than {MAX_SOURCE_FILES}"))
                    return
                if entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                else:
                    yield from self._file(entry, name, skipped)

    def _file(self, entry: os.DirEntry[str], name: str, skipped: list[Skipped]) -> Iterable[SourceFile]:
        try:
            about = entry.stat(follow_symlinks=False)
        except OSError:
            return  # gone since it was listed
        if stat.S_ISREG(about.st_mode):
            yield LocalFile(name, about.st_size, entry.path)
        elif stat.S_ISLNK(about.st_mode):
            skipped.append(Skipped("link-not-followed", name))
        else:
            skipped.append(Skipped("not-a-file", name, "neither a regular file nor a folder"))


@dataclass(frozen=True, slots=True)
class View:
    """Some files of a source: what a reader is given. The rest of the source stays within its reach."""

    base: Source
    chosen: Sequence[SourceFile]

    @property
    def label(self) -> str:
        return self.base.label

    @property
    def skipped(self) -> Sequence[Skipped]:
        return ()  # the base tells them, once

    def files(self) -> list[SourceFile]:
        return list(self.chosen)

    def beside(self) -> list[SourceFile]:
        return self.base.beside()

    def find(self, name: str) -> SourceFile | None:
        return self.base.find(name)


def open_source(path: str | os.PathLike[str], label: str | None = None) -> Source:
    """The source at `path`: a folder, a ZIP (told by its content) or a file."""
    if os.path.isdir(path):
        return FolderSource(path, label)
    source = FileSource(path, label)
    for file in source.files():
        if looks_like_zip(file):
            return ZipSource(file, source.label)
    return source
