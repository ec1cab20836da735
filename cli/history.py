"""Which nodes a log shows, and in which order."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from cli.times import said_at
from refs.ids import ROOT, NodeId
from refs.names import CONVERSATIONS, REMOTES, TAGS, RefName, conversation_ref, short_name

if TYPE_CHECKING:
    from objstore.chain import Entry
    from objstore.message import Message
    from objstore.records import Tombstone
    from objstore.store import Store

MAX_NAMED_AT_ONCE: Final = 4096
"""Nodes whose names are looked up together: each look reads all refs."""

Wanted = Callable[[str | None, "Callable[[], Message | Tombstone]"], bool]
"""Whether a log shows a message, by when it was said and what is read only if it is asked for."""


class Shown(NamedTuple):
    """A node that a log shows, and when it was said. `parent` is the next one shown below it."""

    entry: Entry
    at: str | None
    parent: NodeId


def wanted(roles: frozenset[str], since: str | None, until: str | None) -> Wanted:
    """Of these roles (of all, if there are none), said at `since` or after and at `until` or before."""

    def is_wanted(at: str | None, message: Callable[[], Message | Tombstone]) -> bool:
        if since is not None and (at is None or at < since):
            return False
        if until is not None and (at is None or at > until):
            return False
        return not roles or getattr(message(), "role", None) in roles

    return is_wanted


def named(store: Store, current: str, shown: Iterable[Shown]) -> Iterator[tuple[Shown, list[str]]]:
    """Each node with the names that stand at it. The first is there as soon as it is found."""
    rest, size = iter(shown), 1
    while some := list(islice(rest, size)):
        names = names_by_node(store, current, {each.entry.id for each in some})
        for each in some:
            yield each, names.get(each.entry.id, [])
        size = min(4 * size, MAX_NAMED_AT_ONCE)


def names_by_node(store: Store, current: str, nodes: Collection[NodeId]) -> dict[NodeId, list[str]]:
    """The refs that stand at `nodes`, by node: the current conversation first, as `HEAD -> name`."""
    head = conversation_ref(current)
    names: dict[NodeId, list[str]] = {}
    for ref, node in heads(store, nodes):
        beside = names.setdefault(node, [])
        if ref == head:
            beside.insert(0, f"HEAD -> {short_name(ref)}")
        else:
            beside.append(short_name(ref))
    return names


def heads(store: Store, at: Collection[NodeId] | None = None) -> Iterator[tuple[RefName, NodeId]]:
    """All refs that stand at nodes, or at one of these."""
    for prefix in (CONVERSATIONS, TAGS, REMOTES):
        for ref, oid in store.refs(prefix, at=at):
            # refs/remotes/<remote>/descriptions/<name> stands at a description
            if prefix != REMOTES or ref.split("/")[3:4] != ["descriptions"]:
                yield ref, NodeId(oid)


def newest_first(store: Store, starts: Iterable[NodeId], is_wanted: Wanted) -> Iterator[Shown]:
    """The nodes up to `starts`, newest first, each once, read only as far as they are asked for."""
    waiting: list[tuple[int, int, NodeId, Entry, Iterator[Entry], str | None, str | None]] = []
    seen: set[NodeId] = set()

    def wait(chain: Iterator[Entry], latest: str | None) -> None:
        entry = next(chain, None)
        if entry is None or entry.id in seen:
            return
        seen.add(entry.id)
        at = said_at(store, entry.id)
        # Where clocks went back, a node counts as no newer than what follows it.
        effective = at if latest is None or (at is not None and at < latest) else latest
        age = -_rank(effective or ""), -store.depth(entry.id)
        heapq.heappush(waiting, (*age, entry.id, entry, chain, at, effective))

    for start in starts:
        wait(store.walk(start), None)
    while waiting:
        _, _, _, entry, chain, at, effective = heapq.heappop(waiting)
        if is_wanted(at, lambda entry=entry: entry.message_or_tombstone):  # type: ignore[misc]
            yield Shown(entry, at, entry.node.parent)
        wait(chain, effective)


def _rank(at: str) -> int:
    """A number that is larger for a later time: stored times are written to the millisecond."""
    return int("".join(filter(str.isdecimal, at)) or 0)


def in_branches(store: Store, starts: Iterable[NodeId], is_wanted: Wanted) -> list[Shown]:
    """The nodes up to `starts`, branches together, for drawing."""
    from cli.graph import branches_together  # noqa: PLC0415  only for drawings

    entries: dict[NodeId, Entry] = {}
    ages: dict[NodeId, str] = {}
    for start in starts:
        if start not in entries and start != ROOT:
            ages[start] = said_at(store, start) or ""
        for entry in store.walk(start):
            if entry.id in entries:
                break
            entries[entry.id] = entry
    parents = {node: entry.node.parent for node, entry in entries.items()}
    below: dict[NodeId, NodeId] = {ROOT: ROOT}  # for each node: itself if it is shown, else the next that is
    shown: list[Shown] = []
    for node in reversed(branches_together(parents, ages)):
        entry = entries[node]
        at = said_at(store, node)
        if is_wanted(at, lambda entry=entry: entry.message_or_tombstone):  # type: ignore[misc]
            shown.append(Shown(entry, at, below[parents[node]]))
            below[node] = node
        else:
            below[node] = below[parents[node]]
    shown.reverse()
    return shown
