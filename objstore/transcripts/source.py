"""Where a reader's bytes come from: one file, a folder, or an archive, behind one shape.

Names are for people and for telling files apart; formats are told by content. Nothing at the source is ever
changed, links are not followed, and only regular files are opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO, Protocol

from objstore.transcripts.model import Skipped


class SourceFile(Protocol):
    """One file of a source. `name` is relative to the source, with `/`; `size` in bytes."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    def open(self) -> BinaryIO:
        """The raw bytes from the start; may be opened again and again.

        Opening and reading raise nothing but `DagError`: what a damaged archive or a disk does is told as one.
        """
        ...


class Source(Protocol):
    """A file, a folder or an archive. `label` is how the user named it."""

    @property
    def label(self) -> str: ...
    @property
    def skipped(self) -> Sequence[Skipped]:
        """What was left out of `files`: links, members of an archive that climb out of it, …"""
        ...

    def files(self) -> list[SourceFile]:
        """All files, sorted by name. What a reader is given lists those of its format."""
        ...

    def beside(self) -> list[SourceFile]:
        """`files` and all that lies beside them, such as the images that a message points at."""
        ...

    def find(self, name: str) -> SourceFile | None:
        """The file of exactly this name, or None; looked for among those `beside`."""
        ...
