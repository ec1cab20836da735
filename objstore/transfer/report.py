"""What a fetch, a push or a merge did, or would do."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from objstore.kinds import Kind
from objstore.limits import MAX_REFUSED_REFS
from refs.ids import NodeId, Oid
from refs.names import RefName


class How(StrEnum):
    """In which way a ref moved."""

    NEW = "new"
    FORWARD = "fast-forward"
    FORCED = "forced"
    GONE = "gone"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Moved:
    """A ref that went from `old` to `new`; None is for none."""

    ref: RefName
    old: Oid | None
    new: Oid | None
    how: How


@dataclass(frozen=True, slots=True)
class Parted:
    """A conversation that both sides went on with. `forked` is the name that their head has got here."""

    name: str
    ours: NodeId
    theirs: NodeId
    forked: str | None = None


@dataclass(frozen=True, slots=True)
class Tracked:
    """A conversation here and at a remote, as of the last fetch or push.

    `ahead` messages are only here, `behind` only there; both are 0 where the heads are the same.
    """

    remote: str
    name: str
    theirs: NodeId
    ahead: int
    behind: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A ref that was left alone. `name` is as the other side wrote it, and may be anything."""

    name: str
    reason: str


@dataclass(slots=True)
class Report:
    """`objects` that were sent or fetched, by kind; `bytes` of packs and attachments, compressed."""

    remote: str
    objects: dict[Kind, int] = field(default_factory=dict)
    bytes: int = 0
    moved: list[Moved] = field(default_factory=list)
    diverged: list[Parted] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    refused_count: int = 0
    skipped: list[Refused] = field(default_factory=list)
    """Refs that were left alone because that is what was asked for before."""

    def refuse(self, name: str, reason: str) -> None:
        """Note a refused ref; beyond `MAX_REFUSED_REFS` they are only counted."""
        self.refused_count += 1
        if len(self.refused) < MAX_REFUSED_REFS:
            self.refused.append(Refused(name, reason))

    def join(self, other: Report) -> None:
        """Add what a second step did."""
        for kind, number in other.objects.items():
            self.objects[kind] = self.objects.get(kind, 0) + number
        self.bytes += other.bytes
        self.moved += other.moved
        self.diverged += other.diverged
        self.refused += other.refused
        self.skipped += other.skipped
        self.refused_count += other.refused_count

    @property
    def total(self) -> int:
        """How many objects were sent or fetched."""
        return sum(self.objects.values())
