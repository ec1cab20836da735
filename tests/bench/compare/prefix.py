"""The search for the longest stored prefix of a history, against asking for one message after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from objstore.chain import node_ids
from objstore.message import Message
from refs.ids import NodeId
from tests.bench.compare.chat import Plain
from tests.bench.compare.peers import Ours
from tests.bench.compare.results import Prefix, Work
from tests.bench.compare.timing import Prepare, in_turns

_RUNS = 10


def prefix(ours: Ours, history: Sequence[Plain], stored: int, nodes: int, rounds: int) -> Prefix:
    """The first `stored` messages of the history are there; the store holds `nodes` others."""
    store, index = ours.store, ours.store.storage.index
    store.save_with_dedup(ours.native(history[:stored]))
    known = ours.native(history)
    ids = node_ids(known)
    before = store.prefix_checks
    store.find_longest_existing_prefix(known)
    checks = store.prefix_checks - before

    def one_by_one(ids: Sequence[NodeId]) -> None:
        """One SELECT a message, until one is missing."""
        for each in ids:
            if not index.has_node(each):
                break

    contestants: dict[str, Prepare] = {
        "search, ids at hand": lambda _: _again(lambda: store.chains.longest_prefix(ids)),
        "one SELECT a message, ids at hand": lambda _: _again(lambda: one_by_one(ids)),
        "search, messages seen before": lambda _: _again(lambda: store.find_longest_existing_prefix(known)),
        "search, messages as they arrive": lambda _: _on_fresh(ours, history, store.find_longest_existing_prefix),
        "one SELECT a message, as they arrive": lambda _: _on_fresh(
            ours, history, lambda fresh: one_by_one(node_ids(fresh))
        ),
    }
    work = Work("the longest stored prefix", "search", in_turns(contestants, rounds))
    return Prefix(nodes, len(history), stored, checks, work)


def _again(act: Callable[[], object]) -> Callable[[], int]:
    """Several times: one search is over before a clock could tell."""

    def run() -> int:
        for _ in range(_RUNS):
            act()
        return _RUNS

    return run


def _on_fresh(
    ours: Ours, history: Sequence[Plain], act: Callable[[Sequence[Message]], object]
) -> Callable[[], int]:
    """On messages whose ids aren't known yet."""
    copies = [ours.native(history) for _ in range(_RUNS)]

    def run() -> int:
        for fresh in copies:
            act(fresh)
        return _RUNS

    return run
