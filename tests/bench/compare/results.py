"""What a run has found, before it is written down."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.bench.compare.disk import Usage
from tests.bench.compare.timing import Outcome, Timed

OURS = "msgdag"


@dataclass(slots=True)
class Work:
    """One kind of work: what a unit of it is, and how long each contestant took for one."""

    title: str
    unit: str
    outcomes: dict[str, Outcome]

    def ratio(self, peer: str, base: str = OURS) -> float | None:
        """How many times as long as `base` a peer takes; None where either has no time."""
        one, other = self.outcomes.get(peer), self.outcomes.get(base)
        if isinstance(one, Timed) and isinstance(other, Timed):
            return one.wall / other.wall
        return None


@dataclass(slots=True)
class Sizes:
    """What one corpus takes; `shares` tells what our own bytes are for.

    `lines` and `limit` are its unique messages as one file, as they are and at zstd's best; `packs_limit` is
    what else our packs hold too: nodes, notes and descriptions.
    """

    title: str
    usages: dict[str, Usage | str]
    shares: dict[str, int]
    lines: int
    limit: int
    packs_limit: int

    @property
    def packs(self) -> int:
        """Of our own store."""
        return self.shares["packs"]


@dataclass(frozen=True, slots=True)
class Growth:
    """A store of so many nodes. Seconds, except `memory` (MB) and `checks`."""

    nodes: int
    turn: Timed
    lookup: Timed
    load: Timed
    mark: float
    repack: float
    reindex: float
    reindex_cpu: float
    memory: float


@dataclass(frozen=True, slots=True)
class Prefix:
    """The longest stored prefix of a history of which so many are stored: a search against a SELECT for each."""

    nodes: int
    messages: int
    stored: int
    checks: int
    work: Work


@dataclass(frozen=True, slots=True)
class Profile:
    """Microseconds a unit by function, the dearest first, beside the floor nothing can go below."""

    title: str
    unit: str
    micros: float
    floor: float
    floor_is: str
    functions: list[tuple[str, float]]


@dataclass(slots=True)
class Results:
    """All of a run. Work is by key: the report and the aims look it up."""

    facts: list[tuple[str, str]] = field(default_factory=list)
    origins: dict[str, str] = field(default_factory=dict)
    durable: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    syncs: dict[str, float | str] = field(default_factory=dict)
    work: dict[str, Work] = field(default_factory=dict)
    sizes: dict[str, Sizes] = field(default_factory=dict)
    growth: list[Growth] = field(default_factory=list)
    prefixes: list[Prefix] = field(default_factory=list)
    session_turns: int = 0
    profiles: list[Profile] = field(default_factory=list)
