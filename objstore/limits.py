"""Every bound of the store, named, with its unit. Nothing read from outside is taken beyond them."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

MAX_OBJECT_BYTES: Final = 64 * MIB
"""Canonical (uncompressed) bytes of one stored object; of a message in its condensed form."""

MAX_PAYLOAD_BYTES: Final = GIB
"""Raw bytes of one attachment."""

MAX_NESTING: Final = 128
"""Levels of objects and arrays in one object's canonical JSON."""

MAX_INT_DIGITS: Final = 4300
"""Decimal digits of an integer: what Python itself converts by default (CVE-2020-10735)."""

PAYLOAD_THRESHOLD_BYTES: Final = 4 * KIB
"""From this size on an attachment's bytes become an object of their own: one disk block."""

CHUNK_BYTES: Final = 768 * KIB
"""Attachments are hashed, compressed and copied in pieces of this size (a multiple of 3, see base64)."""

MAX_TEXT_FIELD_CHARS: Final = 64 * KIB
"""Characters of a title, reason or other short text in a record."""

MAX_RECORD_BYTES: Final = 128 * MIB
"""One line, or one element of an array, of a foreign transcript: inline images make long ones."""

MAX_DOCUMENT_BYTES: Final = 256 * MIB
"""A foreign JSON document that is read as a whole."""

MAX_FILE_WARNINGS: Final = 1000
"""Warnings of one kind that are told for one file; a file of another format would give one a line."""

MAX_SOURCE_FILES: Final = 1_000_000
"""Files looked at in one folder or archive."""

MAX_ARCHIVE_DIRECTORY_BYTES: Final = 256 * MIB
"""The list of members at the end of a ZIP, which is read as a whole."""

MAX_MEMBER_BYTES: Final = 8 * GIB
"""Decompressed bytes of one member of an archive."""

MAX_MEMBER_RATIO: Final = 400
"""Decompressed bytes for each compressed one, for members over `MEMBER_RATIO_FROM_BYTES` (deflate: 1032)."""

MAX_DATABASE_COPY_BYTES: Final = 8 * GIB
"""A foreign SQLite file that has to be copied to be read (it is in an archive, or has a log beside it)."""

MEMBER_RATIO_FROM_BYTES: Final = 32 * MIB
"""Smaller members may be as repetitive as they like."""

MAX_STORED_BYTES: Final = MAX_OBJECT_BYTES + MIB
"""Compressed bytes of one loose object's file: zstd adds a little to what can't be compressed."""

MAX_WINDOW_BYTES: Final = 128 * MIB
"""Memory a zstd frame may ask of its reader; the `zstd` program's own default."""

FRAME_BYTES: Final = 256 * KIB
"""Uncompressed bytes after which a pack's frame is closed."""

MAX_FRAME_BYTES: Final = MAX_OBJECT_BYTES + FRAME_BYTES + MIB
"""Uncompressed bytes of one frame of a pack: a frame holds at least one line, whatever its length."""

MAX_FRAME_LINES: Final = 16384
"""Lines of one frame: a place in a pack is frame * 16384 + line."""

MAX_FRAMES: Final = 1 << 24
"""Frames of one pack."""

MAX_PACK_BYTES: Final = 1 << 40
"""Bytes of one pack."""

COPY_MESSAGE_BYTES: Final = 512
"""A message up to this size is written again into a frame rather than named by its whole id."""

SMALL_TRANSACTION_OBJECTS: Final = 64
"""Objects up to which a transaction goes through the journal; larger ones write a pack at once."""

SMALL_TRANSACTION_BYTES: Final = 4 * MIB
"""Stored bytes up to which a transaction goes through the journal."""

JOURNAL_CHECKPOINT_BYTES: Final = 16 * MIB
"""Size of the journal after which the next transaction empties it."""

MAX_JOURNAL_RECORD_BYTES: Final = 256 * MIB
"""One record of the journal."""

FRAME_CACHE_BYTES: Final = 32 * MIB
"""Memory that decoded frames and their messages may take; a quarter more for what is read one by one."""

MAX_REMOTE_REFS: Final = 1_000_000
"""Refs of a remote: read and kept in memory, by name."""

MAX_REFUSED_REFS: Final = 1000
"""Refs of a remote that are named one by one in a report of what was refused."""

MAX_REMOTE_PACKS: Final = 1_000_000
"""Packs in an object storage."""

MAX_MARKER_BYTES: Final = 4 * KIB
"""A ref's object, or the marker, in an object storage."""

MAX_STORED_PAYLOAD_BYTES: Final = MAX_PAYLOAD_BYTES + 16 * MIB
"""Compressed bytes of one attachment's file: zstd adds a little to what can't be compressed."""
