"""How far long work has come: one line on standard error, where that is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_SECONDS_BETWEEN: Final = 0.1


@contextmanager
def progress_line() -> Iterator[Callable[[str, int, int], None] | None]:
    """A function that is told (what, done, in all), or None where nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
    last = 0.0

    def show(what: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _SECONDS_BETWEEN or done == total:
            last = now
            share = f" {100 * done // total} %" if total > 1 else ""
            sys.stderr.write(f"\r\x1b[K{what}{share}")
            sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
