"""Which nodes a log shows, and in which order."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cli.graph import branches_together
from cli.times import said_at
from refs.ids import ROOT, NodeId
from refs.names import CONVERSATIONS, REMOTES, TAGS, RefName, conversation_ref, short_name

if TYPE_CHECKING:
    from objstore.chain import Entry
    from objstore.message import Message
    from objstore.records import Tombstone
    from objstore.store import Store


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a log is restricted to: these roles (all, if empty), said at or after, at or before."""

    roles: frozenset[str]
    since: str | None
    until: str | None

    def __call__(self, at: str | None, message: Callable[[], Message | Tombstone]) -> bool:
        if self.since is not None and (at is None or at < self.since):
            return False
        if self.until is not None and (at is None or at > self.until):
            return False
        return not self.roles or getattr(message(), "role", None) in self.roles


@dataclass(frozen=True, slots=True)
class Shown:
    """A node that a log shows, and when it was said. `parent` is the next one shown below it."""

    entry: Entry
    at: str | None
    parent: NodeId


def names_by_node(store: Store, current: str) -> dict[NodeId, list[str]]:
    """Refs by the node they stand at: the current conversation first, as `HEAD -> name`."""
    head = conversation_ref(current)
    names: dict[NodeId, list[str]] = {}
    for ref, node in heads(store):
        beside = names.setdefault(node, [])
        if ref == head:
            beside.insert(0, f"HEAD -> {short_name(ref)}")
        else:
            beside.append(short_name(ref))
    return names


def heads(store: Store) -> Iterator[tuple[RefName, NodeId]]:
    """All refs that stand at nodes."""
    for prefix in (CONVERSATIONS, TAGS, REMOTES):
        for ref, oid in store.refs(prefix):
            if "/descriptions/" not in ref or prefix != REMOTES:
                yield ref, NodeId(oid)


def newest_first(store: Store, starts: Iterable[NodeId], wanted: Wanted) -> Iterator[Shown]:
    """The nodes up to `starts`, newest first, each once, read only as far as they are asked for."""
    waiting: list[tuple[_Newer, int, NodeId, Entry, Iterator[Entry], str | None]] = []
    seen: set[NodeId] = set()

    def wait(chain: Iterator[Entry], latest: str | None) -> None:
        entry = next(chain, None)
        if entry is None or entry.id in seen:
            return
        seen.add(entry.id)
        at = said_at(store, entry.id)
        # Where clocks went back, a node counts as no newer than what follows it.
        effective = at if latest is None or (at is not None and at < latest) else latest
        place = (_Newer(effective or ""), -store.depth(entry.id), entry.id, entry, chain, at)
        heapq.heappush(waiting, place)

    for start in starts:
        wait(store.walk(start), None)
    while waiting:
        newer, _, _, entry, chain, at = heapq.heappop(waiting)
        if wanted(at, lambda entry=entry: entry.message_or_tombstone):  # type: ignore[misc]
            yield Shown(entry, at, entry.node.parent)
        wait(chain, newer.at)


@dataclass(frozen=True, slots=True)
class _Newer:
    """A time that sorts before older ones."""

    at: str

    def __lt__(self, other: _Newer) -> bool:
        return self.at > other.at


def in_branches(store: Store, starts: Iterable[NodeId], wanted: Wanted) -> list[Shown]:
    """The nodes up to `starts`, branches together, for drawing."""
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
    order = branches_together(parents, ages)
    below: dict[NodeId, NodeId] = {ROOT: ROOT}  # for each node: itself if it is shown, else the next one that is
    shown: list[Shown] = []
    for node in reversed(order):
        entry = entries[node]
        at = said_at(store, node)
        if wanted(at, lambda entry=entry: entry.message_or_tombstone):  # type: ignore[misc]
            shown.append(Shown(entry, at, below[parents[node]]))
            below[node] = node
        else:
            below[node] = below[parents[node]]
    shown.reverse()
    return shown
