"""The order in which gc packs chains: each whole, and beside those that say some of the same."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

from objstore.kinds import Kind
from objstore.mark import Graph

_MOST_SHARED: Final = 4
"""Nodes of one message up to which they make their chains neighbours. "Go on" is said everywhere."""


def packing_order(graph: Graph) -> Iterator[int]:
    """Every node after its parent, a chain and what branches from it together.

    Chains come in the order in which they were stored. But one that shares a message with an earlier one, as
    the pieces of a long conversation do, and one that begins anew with another prompt, comes right behind it:
    then both stand in one frame, where repeats cost next to nothing.
    """
    parents, messages = graph.parent, graph.message
    order = array("q", graph.in_chain_order())
    starts = array("q")  # where in `order` each chain begins
    chain_of = array("q", [0]) * len(parents)
    alike, following = array("q", [0]) * len(graph.locs[Kind.MESSAGE]), array("q", [0]) * len(parents)
    uses = array("q", [0]) * len(alike)
    for at, row in enumerate(order):
        if not parents[row]:
            starts.append(at)
        chain_of[row] = len(starts) - 1
        message = messages[row]
        following[row] = alike[message]
        alike[message] = row
        uses[message] += 1
    starts.append(len(order))
    done = bytearray(len(starts))
    for first in range(len(starts) - 1):
        todo = [] if done[first] else [first]
        done[first] = 1
        while todo:
            chain = todo.pop()
            rows = order[starts[chain] : starts[chain + 1]]
            yield from rows
            beside = []
            for row in rows:
                if 1 < uses[messages[row]] <= _MOST_SHARED:
                    other = alike[messages[row]]
                    while other:
                        if not done[chain_of[other]]:
                            done[chain_of[other]] = 1
                            beside.append(chain_of[other])
                        other = following[other]
            todo += reversed(beside)
