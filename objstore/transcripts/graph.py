"""From "this record names that one as its parent" to a forest that can be walked. Never recursive."""

from __future__ import annotations

from array import array
from collections.abc import (
    Callable,
    Container,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSet,
    Sequence,
)
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from objstore.message import ToolCallPart, ToolResultPart
from objstore.transcripts.model import Entry, Head
from objstore.transcripts.warnings import Warner

K = TypeVar("K", bound=Hashable)
MAX_SAME_CALLS: Final = 1000
"""Calls of one id, beyond which they are not compared."""
_MAX_TRIES: Final = 64  # records before one whose parent is missing
_STEPS_A_KEY: Final = 8  # how far repairs may walk in all, for each key


@dataclass(slots=True)
class Forest(Generic[K]):
    """`order` lists parents before their children, and otherwise keeps the order of the source.

    `parents` is what is left after repairs: every parent is a key, and there is no cycle. `inferred` are the
    keys whose parent was not named by the source.
    """

    parents: MutableMapping[K, K | None]
    order: list[K] = field(default_factory=list)
    inferred: MutableSet[K] = field(default_factory=set)

    def leaves(self) -> list[K]:
        """The keys that are nobody's parent, in the order of the source."""
        inner = set(self.parents.values())
        return [key for key in self.parents if key not in inner]


def children_of(parents: Mapping[K, K | None]) -> dict[K | None, list[K]]:
    """The keys below each key (below None: the roots), in the order of `parents`."""
    below: dict[K | None, list[K]] = {}
    for key, parent in parents.items():
        below.setdefault(parent, []).append(key)
    return below


def plant(parents: Mapping[str, str | None], warn: Warner, *, attach_dangling: bool = True) -> Forest[str]:
    """The forest of `parents`, which is in the order of the source and may name keys that don't exist.

    A dangling parent is told as `dangling-parent` and replaced by the key before it (with
    `attach_dangling`), or by none. A cycle is told as `parent-cycle` and cut at its earliest key, which
    becomes a root.
    """
    forest = Forest(dict(parents))
    previous: str | None = None
    for key, parent in parents.items():
        if parent is not None and parent not in parents:
            warn("dangling-parent", key, f"its parent {parent[:80]!r} is not there")
            forest.parents[key] = previous if attach_dangling else None
            if forest.parents[key] is not None:
                forest.inferred.add(key)
        previous = key
    cut_cycles(forest, lambda key: warn("parent-cycle", key, "cut at the earliest record"))
    forest.order = parents_first(forest.parents)
    return forest


def cut_cycles(forest: Forest[K], tell: Callable[[K], None]) -> None:
    """Make every chain of parents end. `tell` gets the key at which a cycle of the source was cut."""
    keys = list(forest.parents)
    position = {key: i for i, key in enumerate(keys)}
    cut_cycles_of(forest, keys, position.__getitem__, set(), tell)


def cut_cycles_of(
    forest: Forest[K],
    keys: Sequence[K],
    position: Callable[[K], int],
    done: MutableSet[K],
    tell: Callable[[K], None],
) -> None:
    """As `cut_cycles`, for who has a smaller way to hold the keys, where they stand and which were looked at."""
    steps = _STEPS_A_KEY * len(keys)
    for start in keys:
        path: dict[K, None] = {}
        key: K | None = start
        while key is not None and key not in done and key not in path:
            path[key] = None
            key = forest.parents[key]
        if key is not None and key in path:
            walked = list(path)
            cycle = walked[walked.index(key) :]
            guessed = next((each for each in cycle if each in forest.inferred), None)
            if guessed is not None:
                # The record before it is its own descendant: the one before those is what it follows.
                earlier = keys[max(0, position(guessed) - _MAX_TRIES) : position(guessed)]
                steps -= _attach_elsewhere(forest, guessed, earlier, steps)
            else:
                first = min(cycle, key=position)
                tell(first)
                forest.parents[first] = None
        for each in path:
            done.add(each)


def _attach_elsewhere(forest: Forest[K], key: K, earlier: Sequence[K], steps: int) -> int:
    """Attach `key` to the last of `earlier` that does not descend from it, or to none. Gives the steps it took."""
    taken = 0
    for candidate in reversed(earlier):
        seen: set[K] = set()
        above: K | None = candidate
        while above is not None and above != key and above not in seen and taken < steps:
            taken += 1
            seen.add(above)
            above = forest.parents[above]
        if above is None:
            forest.parents[key] = candidate
            return taken
    forest.parents[key] = None
    forest.inferred.discard(key)
    return taken


def parents_first(parents: Mapping[K, K | None]) -> list[K]:
    """The keys in their order, but each after its parent. `parents` has no cycles."""
    order: list[K] = []
    place_parents_first(parents, parents.__getitem__, set(), order.append)
    return order


def place_parents_first(
    keys: Iterable[K], parent_of: Callable[[K], K | None], placed: MutableSet[K], place: Callable[[K], object]
) -> None:
    """Place keys in their order, but each after its parent. There are no cycles."""
    for key in keys:
        waiting = []
        above: K | None = key
        while above is not None and above not in placed:
            waiting.append(above)
            placed.add(above)
            above = parent_of(above)
        for each in reversed(waiting):
            place(each)


def contract(parents: Mapping[K, K | None], kept: Iterable[K]) -> dict[K, K | None]:
    """The parents among `kept` alone: each one's nearest kept ancestor. `parents` has no cycles."""
    keys = set(kept)
    nearest: dict[K | None, K | None] = {None: None}
    for key in parents:
        path: list[K] = []
        above: K | None = key
        while above is not None and above not in nearest:
            path.append(above)
            above = parents[above]
        found = nearest[above]
        for each in reversed(path):
            nearest[each] = found = each if each in keys else found
    return {key: nearest[parents[key]] for key in parents if key in keys}


def heads_of(
    entries: Iterable[Entry],
    active: str | None = None,
    labels: Mapping[str, str] | None = None,
    titles: Mapping[str, str] | None = None,
) -> list[Head]:
    """A head for every entry that has no child; `active` marks one, else the last one is active.

    Labels are the keys unless given. An `active` that has children becomes a head too: the source says that
    the conversation stands there.
    """
    keys: dict[str, None] = {}
    inner: set[str | None] = set()
    for entry in entries:
        keys[entry.key] = None
        inner.add(entry.parent)
    leaves = [key for key in keys if key not in inner or key == active]
    if active not in keys:
        active = leaves[-1] if leaves else None
    return [Head(key, (labels or {}).get(key, key), key == active, (titles or {}).get(key)) for key in leaves]


@dataclass(slots=True)
class ToolUse(Generic[K]):
    """Who asked and who answered: (key, the call's id), in the order of the source."""

    calls: list[tuple[K, str]] = field(default_factory=list)
    results: list[tuple[K, str]] = field(default_factory=list)


def warn_of_unpaired_tools(entries: Iterable[Entry], warn: Warner) -> None:
    """`unpaired_tools` for the entries of a transcript, parents first; told by their keys."""
    parents: dict[str, str | None] = {}
    used: ToolUse[str] = ToolUse()
    answering: set[str] = set()
    for entry in entries:
        parents[entry.key] = entry.parent
        for part in entry.message.parts:
            if isinstance(part, ToolCallPart) and part.tool_call_id:
                used.calls.append((entry.key, part.tool_call_id))
            elif isinstance(part, ToolResultPart) and part.tool_call_id:
                used.results.append((entry.key, part.tool_call_id))
                answering.add(entry.key)
    for kind, key, call_id in unpaired_tools(parents, used, answering):
        warn(kind, key, call_id)


def unpaired_tools(
    parents: Mapping[K, K | None], used: ToolUse[K], answering: Container[K]
) -> Iterator[tuple[str, K, str]]:
    """(kind, key, call id): results whose call is not above them, and calls that were passed over.

    Only ids are compared: parts without one pair by order, which never fails. A call is passed over when
    something follows it that is not an answer (`answering`); at the end of a branch it may still be answered.
    """
    order = parents_first(parents)
    span = _Spans(parents, order)
    calls: dict[str, list[tuple[K, list[bool]]]] = {}
    for key, call_id in used.calls:
        calls.setdefault(call_id, []).append((key, [False]))
    for key, call_id in used.results:
        if len(calls.get(call_id, ())) > MAX_SAME_CALLS:
            continue  # an id that says nothing; comparing each with each would take for ever
        above = [done for asked, done in calls.get(call_id, ()) if span.holds(asked, key)]
        if above:
            next((each for each in reversed(above) if not each[0]), above[-1])[0] = True
        else:
            yield "orphan-tool-result", key, call_id
    went_on: set[K | None] = set()
    for key in reversed(order):
        if key not in answering or key in went_on:
            went_on.add(parents[key])
    for call_id, asked_at in calls.items():
        for key, answered in asked_at:
            if not answered[0] and key in went_on and len(asked_at) <= MAX_SAME_CALLS:
                yield "unanswered-tool-call", key, call_id


class _Spans(Generic[K]):
    """Who is above whom: the first and last number of each key's subtree, numbered parents first."""

    def __init__(self, parents: Mapping[K, K | None], order: list[K]) -> None:
        self._place = place = {key: i for i, key in enumerate(order)}
        self._size = size = array("i", [1]) * len(order)
        for i in range(len(order) - 1, -1, -1):
            above = parents[order[i]]
            if above is not None:
                size[place[above]] += size[i]
        self._first = first = array("i", bytes(4 * len(order)))
        free, roots = array("i", first), 0  # the next number below each
        for i, key in enumerate(order):
            above = parents[key]
            if above is None:
                first[i], roots = roots, roots + size[i]
            else:
                first[i] = free[place[above]]
                free[place[above]] += size[i]
            free[i] = first[i] + 1

    def holds(self, above: K, key: K) -> bool:
        """Whether a key is `above` or somewhere below it."""
        i, number = self._place[above], self._first[self._place[key]]
        return self._first[i] <= number < self._first[i] + self._size[i]
