"""How files that aren't text begin."""

from __future__ import annotations

from typing import Final

SQLITE_MAGIC: Final = b"SQLite format 3\0"
