"""What was just committed: it stands in the journal, and is not in the index's tables yet.

Writing a handful of rows into a dozen trees costs more than all else of a small commit, so the index takes
them in by the hundred, or as soon as anybody asks what only the tables can tell. Other processes find them in
the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from objstore.kinds import KINDS, Kind
from refs.ids import Oid

if TYPE_CHECKING:
    from objstore.arrival import Arrival

MAX_RECENT_OBJECTS: Final = 1024
"""Objects that wait at the most, as long as the disk takes them."""


class Recent:
    """Objects of one journal, in their order, up to the stamp `until`; `locs` tells where each stands."""

    __slots__ = ("_begun", "arrivals", "locs", "until")

    def __init__(self, since: str) -> None:
        self.until = since
        self.arrivals: list[Arrival] = []
        self.locs: dict[Kind, dict[Oid, int]] = {kind: {} for kind in KINDS}
        self._begun = {since: 0}  # by the stamp where a record begins, how many objects came before it

    def add(self, arrivals: Sequence[Arrival], until: str) -> None:
        """Take in what one record brought; the journal ends at `until` then."""
        self.arrivals += arrivals
        for each in arrivals:
            self.locs[each.kind][each.oid] = each.loc
        self.until = until
        self._begun[until] = len(self.arrivals)

    def after(self, stamp: str | None) -> list[Arrival] | None:
        """What tables lack that hold everything up to `stamp`; None if they are of another time.

        Another process may have taken some of it in from the journal, which leaves no mark there.
        """
        begun = self._begun.get(stamp or "")
        return None if begun is None else self.arrivals[begun:]

    def __len__(self) -> int:
        return len(self.arrivals)
