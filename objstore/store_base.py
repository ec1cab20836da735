"""What the parts of `Store` share. What few uses of a store need is imported by the first."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from objstore.chain import Chains
from objstore.storage import Storage

if TYPE_CHECKING:
    from objstore.hierarchy import Hierarchy
    from objstore.saving import Saver


class StoreBase:
    """The engine, and what reads and writes chains through it."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._chains = Chains(storage.database, storage.index)

    @cached_property
    def _graph(self) -> Hierarchy:
        from objstore.hierarchy import Hierarchy  # noqa: PLC0415  see above

        return Hierarchy(self._storage.index)

    @cached_property
    def _saver(self) -> Saver:
        from objstore.saving import Saver  # noqa: PLC0415  see above

        return Saver(self._storage, self._chains)
