"""Ctrl-C while something is written: asked for at once, obeyed at the next place where nothing gets lost."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred() -> Iterator[threading.Event]:
    """An event that is set by the first Ctrl-C or SIGTERM, which does nothing else. A second one acts at once."""
    asked = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        asked.set()
        signal.signal(number, before[signal.Signals(number)])

    before = {}
    with contextlib.suppress(ValueError):  # not the main thread: then signals come to others
        for each in (signal.SIGINT, signal.SIGTERM):
            before[each] = signal.getsignal(each)
            signal.signal(each, note)
    try:
        yield asked
    finally:
        for each, handler in before.items():
            with contextlib.suppress(ValueError):
                signal.signal(each, handler)
