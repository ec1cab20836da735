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
