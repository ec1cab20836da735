"""The doors of the store to its upkeep: gc, packing, fsck, statistics. Imported when they are used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from objstore.store_base import StoreBase

if TYPE_CHECKING:
    from objstore.findings import Finding, Level
    from objstore.gc import GcOptions, GcReport
    from objstore.repair import Repaired
    from objstore.scan import Progress
    from objstore.stats import Stats


class StoreUpkeep(StoreBase):
    """A part of `Store`."""

    def gc(self, options: GcOptions, *, progress: Progress | None = None) -> GcReport:
        """Give back what nothing needs, and pack the rest; see `objstore.gc`. Never runs unasked.

        Raises `CorruptFile` or `CorruptObject` where something can't be read: nothing is deleted on doubt.
        """
        from objstore.gc import collect  # noqa: PLC0415

        return collect(self._storage, options, progress)

    def pack(self) -> int:
        """Put all loose objects into a pack now; how many there were."""
        from objstore.gc import pack_loose  # noqa: PLC0415

        return pack_loose(self._storage)

    def fsck(self, level: Level | None = None, *, progress: Progress | None = None) -> Iterator[Finding]:
        """All that is wrong with the store, as far as `level` (if not given, full) looks; changes nothing."""
        from objstore.findings import Level  # noqa: PLC0415
        from objstore.fsck import check  # noqa: PLC0415

        return check(self._storage.files, Level(level or Level.FULL), progress)

    def repair(self, *, progress: Progress | None = None) -> Repaired:
        """Mend what has a good copy; see `objstore.repair`."""
        from objstore.repair import repair  # noqa: PLC0415

        storage = self._storage

        def rebuild() -> None:
            storage.rebuild_index("objects were repaired")
            storage.checkpoint()  # which writes the journal's header anew

        with storage.lock():
            return repair(storage.files, storage.clock(), rebuild, progress)

    def stats(self, *, progress: Progress | None = None) -> Stats:
        """What the store holds and what it takes; see `objstore.stats`."""
        from objstore.stats import measure  # noqa: PLC0415

        return measure(self._storage, progress)
