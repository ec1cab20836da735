"""What fsck finds: a name, how bad it is, where, and a line for a person."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    ERROR = "error"
    """Something that was stored can't be had, or a wrong answer is possible."""
    WARNING = "warning"
    """Nothing is lost, but something isn't as it should be."""
    INFO = "info"


class Level(StrEnum):
    """How far fsck goes; each holds those before it."""

    QUICK = "quick"
    CONNECTIVITY = "connectivity"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Finding:
    """`place` is a file's name in the store, or a kind and an id."""

    name: str
    severity: Severity
    place: str
    text: str

    def to_dict(self) -> dict[str, str]:
        return {"finding": self.name, "severity": self.severity, "place": self.place, "text": self.text}


def error(name: str, place: str, text: str) -> Finding:
    return Finding(name, Severity.ERROR, place, text)


def warning(name: str, place: str, text: str) -> Finding:
    return Finding(name, Severity.WARNING, place, text)


def info(name: str, place: str, text: str) -> Finding:
    return Finding(name, Severity.INFO, place, text)
