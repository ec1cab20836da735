"""From "this record names that one as its parent" to a forest that can be walked. Never recursive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from objstore.message import ToolCallPart, ToolResultPart
from objstore.transcripts.model import Entry, Head
from objstore.transcripts.warnings import Warner

_MAX_REPAIRS: Final = 1000  # each looks at all records


@dataclass(slots=True)
class Forest:
    """`order` lists parents before their children, and otherwise keeps the order of the source.

    `parents` is what is left after repairs: every parent is a key, and there is no cycle. `inferred` are the
    keys whose parent was not named by the source.
    """

    parents: dict[str, str | None]
    order: list[str] = field(default_factory=list)
    inferred: set[str] = field(default_factory=set)

    def leaves(self) -> list[str]:
        """The keys that are nobody's parent, in the order of the source."""
        inner = set(self.parents.values())
        return [key for key in self.parents if key not in inner]

    def children(self) -> dict[str | None, list[str]]:
        """The keys below each key (below None: the roots), in the order of the source."""
        below: dict[str | None, list[str]] = {}
        for key, parent in self.parents.items():
            below.setdefault(parent, []).append(key)
        return below


def plant(parents: Mapping[str, str | None], warn: Warner, *, attach_dangling: bool = True) -> Forest:
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
    _cut_cycles(forest, warn)
    _sort(forest)
    return forest


def _cut_cycles(forest: Forest, warn: Warner) -> None:
    position = {key: i for i, key in enumerate(forest.parents)}
    done: set[str] = set()
    repairs = 0
    for start in list(forest.parents):
        path: dict[str, None] = {}
        key: str | None = start
        while key is not None and key not in done and key not in path:
            path[key] = None
            key = forest.parents[key]
        if key is not None and key in path:
            walked = list(path)
            cycle = walked[walked.index(key) :]
            guessed = next((each for each in cycle if each in forest.inferred), None)
            if guessed is not None:
                # The record before it is its own descendant: the one before those is what it follows.
                repairs += 1
                _attach_elsewhere(forest, guessed, position[guessed] if repairs <= _MAX_REPAIRS else 0)
            else:
                first = min(cycle, key=position.__getitem__)
                warn("parent-cycle", first, "cut at the earliest record")
                forest.parents[first] = None
        done.update(path)


def _attach_elsewhere(forest: Forest, key: str, position: int) -> None:
    """Attach `key` to the nearest record before `position` that does not descend from it, or to none."""
    below = forest.children()
    descendants, waiting = {key}, [key]
    while waiting:
        for child in below.get(waiting.pop(), ()):
            if child not in descendants:
                descendants.add(child)
                waiting.append(child)
    earlier = list(forest.parents)[:position]
    forest.parents[key] = next((each for each in reversed(earlier) if each not in descendants), None)
    if forest.parents[key] is None:
        forest.inferred.discard(key)


def _sort(forest: Forest) -> None:
    placed: set[str] = set()
    for key in forest.parents:
        waiting = []
        above: str | None = key
        while above is not None and above not in placed:
            waiting.append(above)
            placed.add(above)
            above = forest.parents[above]
        forest.order.extend(reversed(waiting))


def contract(parents: Mapping[str, str | None], kept: Iterable[str]) -> dict[str, str | None]:
    """The parents among `kept` alone: each one's nearest kept ancestor. `parents` has no cycles."""
    keys = set(kept)
    nearest: dict[str | None, str | None] = {None: None}
    for key in parents:
        path = []
        above: str | None = key
        while above not in nearest:
            path.append(above)
            above = parents.get(above) if above is not None else None
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


def warn_of_unpaired_tools(entries: Iterable[Entry], warn: Warner) -> None:
    """Tell results whose call is not among their ancestors, and calls that no descendant answers.

    `entries` are all of a transcript's, parents first. Only ids are compared: parts without one pair by
    order, which never fails. An entry put there by another call (`called_by`) is a chain of its own.
    """
    listed = list(entries)
    span = _spans(listed)
    calls: dict[str, list[tuple[str, list[bool]]]] = {}
    for entry in listed:
        for part in entry.message.parts:
            if isinstance(part, ToolCallPart) and part.tool_call_id:
                calls.setdefault(part.tool_call_id, []).append((entry.key, [False]))
    for entry in listed:
        for part in entry.message.parts:
            if not isinstance(part, ToolResultPart) or not part.tool_call_id:
                continue
            first, _ = span[entry.key]
            above = [
                answered
                for key, answered in calls.get(part.tool_call_id, ())
                if span[key][0] <= first <= span[key][1]
            ]
            if above:
                next((each for each in reversed(above) if not each[0]), above[-1])[0] = True
            else:
                warn("orphan-tool-result", entry.key, part.tool_call_id)
    for call_id, asked in calls.items():
        for key, answered in asked:
            if not answered[0]:
                warn("unanswered-tool-call", key, call_id)


def _spans(entries: list[Entry]) -> dict[str, tuple[int, int]]:
    """For each key the first and last number of its subtree, numbered parents first: who is above whom."""
    below: dict[str | None, list[str]] = {}
    for entry in entries:
        below.setdefault(entry.parent, []).append(entry.key)
    spans: dict[str, tuple[int, int]] = {}
    started: dict[str, int] = {}
    stack = list(reversed(below.get(None, ())))
    while stack:
        key = stack[-1]
        if key in started:
            stack.pop()
            spans[key] = (started[key], len(started) - 1)
        else:
            started[key] = len(started)
            stack.extend(reversed(below.get(key, ())))
    return spans
