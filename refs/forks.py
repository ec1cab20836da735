"""Locks in a forked child: a thread that stayed behind may have held one, and would never give it back."""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol


class Renewable(Protocol):
    """Something that holds locks."""

    def renew(self) -> None:
        """In a forked child, where no other thread runs: begin with locks that are free."""


_LIVE: Final[weakref.WeakSet[Renewable]] = weakref.WeakSet()


def renew_after_fork(owner: Renewable) -> None:
    """Call `owner.renew()` in each child that is forked while `owner` lives."""
    _LIVE.add(owner)


def _renew() -> None:
    for owner in list(_LIVE):
        owner.renew()


os.register_at_fork(after_in_child=_renew)
