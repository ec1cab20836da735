"""The files that lie beside an export, found by the ids that its messages point with."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from typing import Final

from objstore.attachment import Attachment
from objstore.limits import MAX_PAYLOAD_BYTES
from objstore.transcripts.source import Source, SourceFile
from objstore.transcripts.warnings import Warner
from refs.errors import DagError

_AFTER_ID: Final = "-_."
# The first bytes of common media types: names and declared types are often missing, or wrong.
_SIGNATURES: Final = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (4, b"ftypM4A", "audio/mp4"),
    (4, b"ftyp", "video/mp4"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"OggS", "audio/ogg"),
    (0, b"%PDF-", "application/pdf"),
)


def media_type_of(content: bytes) -> str | None:
    """The media type that bytes begin like, or None."""
    return next((kind for at, start, kind in _SIGNATURES if content.startswith(start, at)), None)


class Assets:
    """Finds files by the id that their name begins with: `file-abc` is in `…/file-abc-photo.png`."""

    def __init__(self, source: Source) -> None:
        read = {file.name for file in source.files()}
        beside = [(file.name.rpartition("/")[2], file) for file in source.beside() if file.name not in read]
        beside.sort(key=lambda each: (each[0], each[1].name))
        self._names = [name for name, _ in beside]
        self._files = [file for _, file in beside]

    def find(self, file_id: str) -> SourceFile | None:
        """The file whose name is `file_id`, or goes on after it with `-`, `_` or `.`."""
        for start in (file_id, *(file_id + mark for mark in _AFTER_ID)) if file_id else ():
            i = bisect.bisect_left(self._names, start)
            if i < len(self._names) and (
                self._names[i] == start or (start != file_id and self._names[i].startswith(start))
            ):
                return self._files[i]
        return None

    def attachment(
        self, pointer: str, file_id: str, media_type: str | None, path: str | None, warn: Warner, place: str
    ) -> Attachment:
        """What a message points at: with its bytes where they lie beside the export, else by reference."""
        found = self.find(file_id)
        content = _content(found, warn, place) if found is not None else None
        if content:
            media_type = media_type_of(content) or media_type
        return Attachment(media_type, pointer, path, content)


def _content(file: SourceFile, warn: Warner, place: str) -> bytes | None:
    if file.size > MAX_PAYLOAD_BYTES:
        warn("attachment-too-large", place, f"{file.name}: {file.size} bytes, more than {MAX_PAYLOAD_BYTES}")
        return None
    try:
        with file.open() as stream:
            return stream.read(MAX_PAYLOAD_BYTES)
    except DagError as error:
        warn("unreadable-file", place, str(error))
        return None


def types_by_id(listed: object) -> Mapping[str, str]:
    """Media types from a list of `{"id", "mime_type"}`, by id."""
    if not isinstance(listed, list):
        return {}
    return {
        each["id"]: each["mime_type"]
        for each in listed
        if isinstance(each, dict) and isinstance(each.get("id"), str) and isinstance(each.get("mime_type"), str)
    }
