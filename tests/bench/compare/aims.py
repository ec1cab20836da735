"""What the project promises itself about speed and size, looked up in what a run has found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.bench.compare.disk import Usage
from tests.bench.compare.results import OURS, Results
from tests.bench.compare.timing import Timed

_MS = 1e3


@dataclass(frozen=True, slots=True)
class Aim:
    """`found` should be at least `bound`, or at most."""

    what: str
    found: float
    bound: float
    at_least: bool

    @property
    def met(self) -> bool:
        return self.found >= self.bound if self.at_least else self.found <= self.bound


def aims(results: Results) -> Iterator[Aim]:
    """Those that the run has figures for."""
    yield from _times(results)
    yield from _prefix(results)
    yield from _bytes(results)
    yield from _growth(results)
    yield from _startup(results)


_TIMES = (
    ("turns filled", "llm", "a durable turn: llm's time against ours", 3.0),
    ("whole", "llm", "a turn with the whole history sent again: llm's time against ours", 5.0),
    ("turns filled", "openai-agents", "a durable turn: openai-agents' time against ours", 1.1),
    ("turns filled", "pygit2", "a turn: pygit2's (not synced) against ours", 1.1),
    ("import", "llm", "import: llm's time against ours", 5.0),
    ("import", "git, a tree a conversation", "import: git fast-import's time against ours", 1.0),
    ("load 40", "llm", "load of 40 messages: llm's time against ours", 3.0),
    ("load 1000", "llm", "load of 1000 messages: llm's time against ours", 5.0),
)
_ONE_BLOB = (
    ("load 40", "load of 40 messages: ours against LangGraph's one blob"),
    ("load 1000", "load of 1000 messages: ours against LangGraph's one blob"),
)


def _times(results: Results) -> Iterator[Aim]:
    for key, peer, what, bound in _TIMES:
        ratio = results.work[key].ratio(peer) if key in results.work else None
        if ratio is not None:
            yield Aim(what, ratio, bound, True)
    for key, what in _ONE_BLOB:
        ratio = results.work[key].ratio("LangGraph") if key in results.work else None
        if ratio is not None:
            yield Aim(what, 1 / ratio, 6.0, False)
    for profile in results.profiles:
        if profile.title == "import":
            yield Aim(
                "import: ours against canonical JSON, two hashes and zstd",
                profile.micros / profile.floor,
                3.0,
                False,
            )


def _prefix(results: Results) -> Iterator[Aim]:
    if not results.prefixes:
        return
    *_, usual = results.prefixes
    what = f"longest stored prefix of {usual.messages:,}, all but the last stored"
    yield Aim(f"{what}: existence checks", usual.checks, 2, False)
    for one, other, bound in (
        ("one SELECT a message, ids at hand", "search, ids at hand", 100.0),
        ("one SELECT a message, as they arrive", "search, messages as they arrive", 3.0),
        ("one SELECT a message, as they arrive", "search, messages seen before", 4.0),
    ):
        ratio = usual.work.ratio(one, other)
        if ratio is not None:
            yield Aim(f"{what}: {one}, against {other}", ratio, bound, True)
    most = max(each.checks for each in results.prefixes)
    yield Aim("longest stored prefix: existence checks at most", most, 24, False)


_BYTES = (
    ("corpus", "llm", 4.0),
    ("corpus", "git, a tree a conversation", 1.8),
    ("corpus", "git, a commit a message", 2.5),
    ("chats", "LangGraph", 50.0),
)
_LANGGRAPH_A_TURN = 1.5
_PACKS = (("corpus", 1.4), ("coding", 1.15), ("tools", 1.9))


def _bytes(results: Results) -> Iterator[Aim]:
    for key, peer, bound in _BYTES:
        if key not in results.sizes:
            continue
        sizes = results.sizes[key]
        other, ours = sizes.usages.get(peer), sizes.usages[OURS]
        if isinstance(other, Usage) and isinstance(ours, Usage):
            yield Aim(f"bytes, {sizes.title}: {peer} against ours", other.apparent / ours.apparent, bound, True)
    sizes = results.sizes["session"]
    other, ours = sizes.usages.get("LangGraph"), sizes.usages[OURS]
    if isinstance(other, Usage) and isinstance(ours, Usage):  # it grows with the square of the turns
        bound = _LANGGRAPH_A_TURN * results.session_turns
        yield Aim(f"bytes, {sizes.title}: LangGraph against ours", other.apparent / ours.apparent, bound, True)
    for key, bound in _PACKS:
        if key in results.sizes:
            sizes = results.sizes[key]
            what = f"packs against zstd -19 --long=27 of the same lines, {sizes.title}"
            yield Aim(what, sizes.packs / sizes.packs_limit, bound, False)


def _growth(results: Results) -> Iterator[Aim]:
    if len(results.growth) < 2:
        return
    first, last = results.growth[0], results.growth[-1]
    grown = f"from {first.nodes:,} to {last.nodes:,} nodes"
    for name in ("turn", "lookup", "load"):
        yield Aim(f"a {name} {grown}", getattr(last, name).wall / getattr(first, name).wall, 1.5, False)
    millions = last.nodes / 1e6
    yield Aim("gc's mark, seconds a million nodes", last.mark / millions, 3.0, False)
    yield Aim("rebuild of the index, seconds of CPU a million nodes", last.reindex_cpu / millions, 20.0, False)
    yield Aim(f"rebuild of the index at {last.nodes:,} nodes, MB of memory", last.memory, 500.0, False)


def _startup(results: Results) -> Iterator[Aim]:
    outcomes = results.work["startup"].outcomes if "startup" in results.work else {}
    bare = outcomes.get("import click")
    for name in ("dag --version", "dag log -n 5"):
        taken = outcomes.get(name)
        if isinstance(bare, Timed) and isinstance(taken, Timed):
            yield Aim(f"{name}, milliseconds", taken.wall * _MS, (1.5 * bare.wall + 0.020) * _MS, False)
