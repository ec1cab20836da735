"""Times as they are stored, and new ULIDs. Below the command line these are the only makers of either."""

from __future__ import annotations

import time


def now() -> str:
    """The time in UTC to the millisecond: `2026-01-02T03:04:05.678Z`."""
    seconds, millis = divmod(time.time_ns() // 1_000_000, 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{millis:03d}Z"


def milliseconds(at: str) -> int:
    """A time as `now` writes it, in milliseconds since 1970."""
    from calendar import timegm  # noqa: PLC0415  1 ms to import, and only imports ask

    return timegm(time.strptime(at[:19], "%Y-%m-%dT%H:%M:%S")) * 1000 + int(at[20:23])


def new_ulid() -> str:
    """A new ULID: 26 base32 digits that sort by the millisecond they were made in."""
    from ulid import ULID  # noqa: PLC0415  10 ms to import, and only writers need it

    return str(ULID())
