"""Times as people read and write them: in the clock's own zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from objstore.store import Store
    from refs.ids import NodeId

_AGO: Final = r"(\d{1,6}) ?(minute|hour|day|week|m|h|d|w)s?(?: ago)?"
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DAY: Final = r"\d{4}-\d\d-\d\d"


def said_at(store: Store, node: NodeId) -> str | None:
    """When a message was said, where an import knows it; else when its node was first stored. UTC."""
    notes = store.notes(node)
    told = (note.members.get("at") for note in notes)
    said = next((at for at in told if isinstance(at, str) and at.endswith("Z")), None)
    return said or (notes[0].at if notes else None)


def shown(at: str | None) -> str:
    """A stored time in the local zone, to the second."""
    if at is None:
        return "at an unknown time"
    try:
        return f"{datetime.fromisoformat(at).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError):  # a note's `at` may be anything; year 1 and 9999 leave the calendar
        return at


def first_moment(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """A time on the command line, written as stored times are; a day alone is its beginning."""
    return None if value is None else _moment(value.strip(), timedelta())


def last_moment(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """As `first_moment`, but a day alone is its end."""
    return None if value is None else _moment(value.strip(), timedelta(days=1, milliseconds=-1))


def _moment(text: str, into_the_day: timedelta) -> str:
    """ISO 8601 (local where it has no zone), or an age such as `90m` or `3 days ago`."""
    found = re.fullmatch(_AGO, text.lower())
    try:
        if found:
            moment = datetime.now(UTC) - timedelta(**{_UNITS[found[2][0]]: int(found[1])})
        else:
            moment = datetime.fromisoformat(text)
            if re.fullmatch(_DAY, text):
                moment += into_the_day
        moment = moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(
            f"{text!r} is neither a time like 2026-01-31T12:00 nor an age like '3 days'"
        ) from error
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
