"""Wall and CPU time of contestants that take turns, so that a slow moment of the machine hits all of them."""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Prepare = Callable[[int], Callable[[], int]]
"""Given the round, makes its input ready outside the clock; what it gives does the work and counts the units."""


class Unable(Exception):
    """A contestant can't do this; the text says why."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds a unit. CPU includes that of child processes."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Timed:
    """All rounds of one contestant at one kind of work."""

    samples: tuple[Sample, ...]

    @property
    def wall(self) -> float:
        return statistics.median(each.wall for each in self.samples)

    @property
    def cpu(self) -> float:
        return statistics.median(each.cpu for each in self.samples)

    @property
    def least(self) -> float:
        return min(each.wall for each in self.samples)

    @property
    def most(self) -> float:
        return max(each.wall for each in self.samples)


Outcome = Timed | str
"""Times, or the reason why there are none."""


def measure(act: Callable[[], int]) -> Sample:
    """Run once. What is in memory by then is the benchmark's: Python's collector doesn't look at it."""
    gc.collect()
    gc.freeze()
    wall, cpu = time.perf_counter(), cpu_seconds()
    units = act()
    sample = Sample((time.perf_counter() - wall) / units, (cpu_seconds() - cpu) / units)
    gc.unfreeze()
    return sample


def in_turns(contestants: Mapping[str, Prepare], rounds: int) -> dict[str, Outcome]:
    """All contestants, round by round, each round begun by another of them."""
    taken: dict[str, list[Sample]] = {name: [] for name in contestants}
    unable: dict[str, str] = {}
    names = list(contestants)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            if name in unable:
                continue
            try:
                taken[name].append(measure(contestants[name](number)))
            except Unable as error:
                unable[name] = str(error)
    return {name: unable.get(name) or Timed(tuple(taken[name])) for name in names}


def cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)
