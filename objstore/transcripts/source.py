"""Where a reader's bytes come from: one file, a folder, or an archive, behind one shape.

Names are for people and for telling files apart; formats are told by content. Nothing at the source is ever
changed, links are not followed, and only regular files are opened.
"""

from __future__ import annotations

from typing import BinaryIO, Protocol


class SourceFile(Protocol):
    """One file of a source. `name` is relative to the source, with `/`; `size` in bytes."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    def open(self) -> BinaryIO:
        """The raw bytes from the start; may be opened again and again."""
        ...


class Source(Protocol):
    """A file, a folder or an archive. `label` is how the user named it."""

    @property
    def label(self) -> str: ...
    def files(self) -> list[SourceFile]:
        """All files, sorted by name."""
        ...

    def find(self, name: str) -> SourceFile | None:
        """The file of exactly this name, or None."""
        ...
