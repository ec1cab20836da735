"""Python's cyclic garbage collector, held back while very many objects are made that live until the end.

It would walk all of them again and again, and find no cycle.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator
from typing import Final

from refs.forks import renew_after_fork


class _Pause:
    """How many ask for it, in all threads, and whether the collector was on before."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.was_on = False
        self.tidied = 0
        renew_after_fork(self)

    def renew(self) -> None:
        """In a forked child: who paused it in another thread isn't there to go on."""
        if self.count and self.was_on:
            gc.enable()
        self.lock = threading.Lock()
        self.count = 0


_pause: Final = _Pause()


FULL_EVERY: Final = 64
"""Calls of `tidy` of which one looks at everything that there is."""


def tidy() -> None:
    """Within `paused`, when what was made so far has been let go: find the cycles that came with it."""
    with _pause.lock:
        if not _pause.count or not _pause.was_on:
            return
        _pause.tidied += 1
        everything = _pause.tidied % FULL_EVERY == 0
    gc.collect(2 if everything else 1)


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """No collection in any thread until the block ends, but by `tidy`: for work on a bounded number of objects."""
    with _pause.lock:
        if _pause.count == 0:
            _pause.was_on = gc.isenabled()
            gc.disable()
        _pause.count += 1
    try:
        yield
    finally:
        with _pause.lock:
            _pause.count = max(0, _pause.count - 1)  # in a child that was forked within the block it is 0
            if _pause.count == 0 and _pause.was_on:
                gc.enable()
