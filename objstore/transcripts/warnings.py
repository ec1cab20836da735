"""Where readers tell what they repaired or could not hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from objstore.limits import MAX_FILE_WARNINGS
from objstore.transcripts.model import Warn

Warner = Callable[[str, str, str], None]
"""Called with the kind, the place and more words: `Transcript.warn`."""


def collector(warnings: list[Warn]) -> Warner:
    """A `bounded` warner that adds to a list: for what is told before there is a transcript."""
    return bounded(lambda kind, place, text: warnings.append(Warn(kind, place, text)))


def bounded(warn: Warner) -> Warner:
    """`warn`, but no more than `MAX_FILE_WARNINGS` of one kind: a list of them must not grow with the file."""
    told: Counter[str] = Counter()

    def tell(kind: str, place: str, text: str) -> None:
        told[kind] += 1
        if told[kind] < MAX_FILE_WARNINGS:
            warn(kind, place, text)
        elif told[kind] == MAX_FILE_WARNINGS:
            warn(kind, place, "and more of this kind that are not listed")

    return tell
