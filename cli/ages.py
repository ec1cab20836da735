"""How old something must be: `2w`, `30d`, `12h`, `90m`, `now`, `never`, or a date."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Final

import click

GRACE: Final = "2w"
"""What is unreachable stays so long: whoever deleted it may want it back, or be just about to name it."""
REFLOG: Final = "90d"
"""Where refs stood keeps what it names so long."""

_AGE: Final = re.compile(r"(\d{1,6})([mhdw])", re.ASCII)
_SECONDS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def age(_: click.Context, __: click.Parameter, value: str) -> float | None:
    """For an option: the moment an age began, in seconds since 1970, or None for never."""
    try:
        return moment(value, time.time())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def moment(text: str, now: float) -> float | None:
    """The moment `text` ago, in seconds since 1970; None for never. `ValueError` says what may be written."""
    text = text.strip()
    if text == "now":
        return now
    if text == "never":
        return None
    found = _AGE.fullmatch(text)
    if found is not None:
        return now - int(found[1]) * _SECONDS[found[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is no age: 90m, 12h, 30d, 2w, 'now', 'never', or a date like 2026-01-31"
        ) from None
