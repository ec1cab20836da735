"""ZIP archives as sources. A member is only ever a stream of bytes: nothing is unpacked to the disk.

What could harm is left out and told: names that climb out, links, encrypted members, second members of a
name, members that share their bytes, and those that grow beyond all measure when they are decompressed.
"""

from __future__ import annotations

import io
import stat
import struct
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from objstore.limits import (
    MAX_ARCHIVE_DIRECTORY_BYTES,
    MAX_MEMBER_BYTES,
    MAX_MEMBER_RATIO,
    MAX_SOURCE_FILES,
    MEMBER_RATIO_FROM_BYTES,
)
from objstore.transcripts.model import Skipped
from objstore.transcripts.source import SourceFile
from objstore.transcripts.streams import FAILURES, Guarded
from refs.errors import CorruptFile, DagError, LimitExceeded

_LOCAL_HEADER: Final = b"PK\x03\x04"
_EMPTY_ARCHIVE: Final = b"PK\x05\x06"
_ENCRYPTED: Final = 0x1
_END: Final = struct.Struct("<4s4H2LH")  # the end record: … members, bytes of the directory, its offset, …
_END64: Final = struct.Struct("<4sQ2H2L4Q")
_LOCATOR: Final = struct.Struct("<4sLQL")


def looks_like_zip(file: SourceFile) -> bool:
    """Whether a file starts like an archive. One that can't be read doesn't."""
    try:
        with file.open() as stream:
            return stream.read(4) in (_LOCAL_HEADER, _EMPTY_ARCHIVE)
    except DagError:
        return False


@dataclass(frozen=True, slots=True)
class ZipMember:
    """One file in an archive."""

    name: str
    size: int
    _info: zipfile.ZipInfo = field(repr=False)
    _archive: zipfile.ZipFile = field(repr=False)

    def open(self) -> BinaryIO:
        try:
            stream = self._archive.open(self._info)
        except FAILURES as error:
            raise CorruptFile(self.name, str(error) or type(error).__name__) from error
        # zipfile gives no more than the declared size (which was checked) and then compares the checksum.
        return io.BufferedReader(Guarded(stream, self.name), buffer_size=1 << 18)


class ZipSource:
    """The files of an archive. One that can't be opened has no files, and `skipped` says why."""

    def __init__(self, file: SourceFile, label: str | None = None) -> None:
        self.label = label if label is not None else file.name
        self._skipped: list[Skipped] = []
        self._files: dict[str, SourceFile] = {}
        try:
            stream = file.open()
            _check_directory(stream, file.name)
            archive = zipfile.ZipFile(stream)
        except FAILURES as error:
            self._skipped.append(Skipped("unreadable-archive", self.label, str(error) or type(error).__name__))
            return
        except DagError as error:
            self._skipped.append(Skipped("unreadable-archive", self.label, str(error)))
            return
        members = {name: ZipMember(name, info.file_size, info, archive) for name, info in self._allowed(archive)}
        self._files = {name: members[name] for name in sorted(members)}

    def _allowed(self, archive: zipfile.ZipFile) -> Iterator[tuple[str, zipfile.ZipInfo]]:
        infos = archive.infolist()
        if len(infos) > MAX_SOURCE_FILES:
            self._skipped.append(Skipped("too-many-files", self.label, f"more than {MAX_SOURCE_FILES}"))
        infos = infos[:MAX_SOURCE_FILES]
        shared = _overlapping(infos)
        seen: set[str] = set()
        for info in infos:
            name = info.orig_filename.replace("\\", "/")  # some archivers on Windows write their own separator
            if name.endswith("/") and not info.file_size:
                continue
            kind = "duplicate-member" if name in seen else _refusal(info, name, id(info) in shared)
            if kind:
                self._skipped.append(Skipped(kind, name))
            else:
                seen.add(name)
                yield name, info

    @property
    def skipped(self) -> Sequence[Skipped]:
        return self._skipped

    def files(self) -> list[SourceFile]:
        return list(self._files.values())

    def beside(self) -> list[SourceFile]:
        return self.files()

    def find(self, name: str) -> SourceFile | None:
        return self._files.get(name)


def _refusal(info: zipfile.ZipInfo, name: str, shared: bool) -> str:
    """Why a member is not read, or an empty string."""
    if not _stays_inside(name):
        return "unsafe-name"
    mode = info.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        return "link-not-followed" if stat.S_ISLNK(mode) else "not-a-file"
    if info.flag_bits & _ENCRYPTED:
        return "encrypted-member"
    # Deflate is read in bounded steps; zipfile decompresses the others' input in one go.
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "unknown-compression"
    grows = info.file_size > MEMBER_RATIO_FROM_BYTES and info.file_size > MAX_MEMBER_RATIO * info.compress_size
    if grows or shared or info.file_size > MAX_MEMBER_BYTES:
        return "archive-bomb"
    return ""


def _stays_inside(name: str) -> bool:
    parts = name.split("/")
    drive = len(parts[0]) > 1 and parts[0][1] == ":"
    return not drive and name.isprintable() and all(part not in ("", ".", "..") for part in parts)


def _overlapping(infos: list[zipfile.ZipInfo]) -> set[int]:
    """Members whose bytes begin before those of the one before them end: one kernel, many members."""
    shared: set[int] = set()
    end = 0
    for info in sorted(infos, key=lambda info: info.header_offset):
        if info.header_offset < end:
            shared.add(id(info))
        end = max(end, info.header_offset + info.compress_size)
    return shared


def _check_directory(stream: BinaryIO, name: str) -> None:
    """Refuse a list of members that would not fit, before zipfile reads it as a whole."""
    size = stream.seek(0, io.SEEK_END)
    start = max(0, size - (1 << 16) - _END.size - _LOCATOR.size)
    stream.seek(start)
    tail = stream.read()
    at = tail.rfind(_EMPTY_ARCHIVE)
    if at < 0 or at + _END.size > len(tail):
        raise CorruptFile(name, "not a ZIP archive, or cut")
    directory = _END.unpack_from(tail, at)[5]
    if directory == 0xFFFFFFFF and at >= _LOCATOR.size and tail.startswith(b"PK\x06\x07", at - _LOCATOR.size):
        stream.seek(_LOCATOR.unpack_from(tail, at - _LOCATOR.size)[2])
        directory = _END64.unpack(stream.read(_END64.size))[8]
    stream.seek(0)
    if directory > MAX_ARCHIVE_DIRECTORY_BYTES:
        raise LimitExceeded(f"{name}: its list of members", directory, MAX_ARCHIVE_DIRECTORY_BYTES)
