"""Drawing forks: an order in which branches stay together, and lines that lead to their parents.

Nothing here recurses: a chain may have any length, and a node any number of children.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from refs.ids import ROOT, NodeId


@dataclass(frozen=True, slots=True)
class Row:
    """A node to draw: what is written beside it, and the node below it (`ROOT` for none)."""

    node: NodeId
    parent: NodeId
    lines: Sequence[str]


def branches_together(parents: Mapping[NodeId, NodeId], ages: Mapping[NodeId, str]) -> list[NodeId]:
    """All nodes of `parents`, each before its parent, branches in one piece, the newest first.

    `ages` has the time of (at least) every node that has no child; a branch is as new as its newest node.
    """
    children: dict[NodeId, list[NodeId]] = {}
    for node, parent in parents.items():
        children.setdefault(parent, []).append(node)
    newest = {node: ages.get(node, "") for node in parents}
    for node in reversed(_parents_first(children)):
        parent = parents[node]
        if parent != ROOT and newest[node] > newest[parent]:
            newest[parent] = newest[node]
    for below in children.values():
        below.sort(key=newest.__getitem__, reverse=True)
    return _parents_first(children)[::-1]


def _parents_first(children: Mapping[NodeId, Sequence[NodeId]]) -> list[NodeId]:
    """Every node behind its parent; the children of one in the reverse of their order."""
    order: list[NodeId] = []
    waiting = list(children.get(ROOT, ()))
    while waiting:
        node = waiting.pop()
        order.append(node)
        waiting.extend(children.get(node, ()))
    return order


def draw(rows: Iterable[Row]) -> Iterator[str]:
    """The rows as lines with their branches. Each node must come before its parent."""
    lanes: list[NodeId] = []  # the node that each line leads to
    for row in rows:
        if row.node in lanes:
            here = lanes.index(row.node)
        else:
            here = len(lanes)
            lanes.append(row.node)
        bars = ["|"] * len(lanes)
        bars[here] = "*"
        first, *rest = row.lines or ("",)
        yield f"{' '.join(bars)} {first}".rstrip()
        bars[here] = "|" if row.parent != ROOT else " "
        for line in rest:
            yield f"{' '.join(bars)} {line}".rstrip()
        yield from _move(lanes, here, row.parent)


def _move(lanes: list[NodeId], here: int, parent: NodeId) -> Iterator[str]:
    """Lead lane `here` on to `parent`; the line that joins it to another, or closes its gap."""
    if parent == ROOT:
        del lanes[here]
        if here < len(lanes):
            yield "| " * here + " /" * (len(lanes) - here)
    elif parent in lanes:
        left, right = sorted((here, lanes.index(parent)))
        lanes[left] = parent
        del lanes[right]
        # From the right one a line goes below those between, and whatever is right of it moves up.
        yield "| " * left + "|" + "_|" * (right - left - 1) + "/" + " /" * (len(lanes) - right)
    else:
        lanes[here] = parent
