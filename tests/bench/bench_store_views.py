"""What the views cost a node through the store, at 10,000 and 100,000 nodes: the columns should be alike.

Run it: `python -m tests.bench.bench_store_views`. One long conversation, packed by a gc as it is after a
while; every fiftieth turn has another answer, a function's run and an agent beside it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable

from objstore.gc import GcOptions, collect
from objstore.message import Message, TextPart, ToolCallPart, ToolResultPart
from objstore.store import Store
from refs.ids import NodeId
from tests.storetools import init_quiet, say, talk

SIZES = (10_000, 100_000)
EVERY = 200

VIEWS: dict[str, Callable[[Store, NodeId], object]] = {
    "history_rows": Store.history_rows,
    "chat_view": Store.chat_view,
    "context": Store.context,
    "alternatives": Store.alternatives,
    "caller": Store.caller,
    "calls_along": Store.calls_along,
}


def filled(path: str, size: int) -> tuple[Store, NodeId]:
    """A store of about `size` nodes, and the head of its conversation."""
    store = init_quiet(path)
    messages = []
    for turn in range(size // 4):
        messages.append(say(f"What is in folder {turn}?"))
        messages.append(Message("assistant", [ToolCallPart("ls", {"path": f"/{turn}"}, f"call_{turn % 7}")]))
        messages.append(Message("tool", [ToolResultPart("ls", f"a b {turn}", f"call_{turn % 7}")]))
        messages.append(Message("assistant", [TextPart(f"Two files and {turn}.")]))
    head = store.commit("long", messages)
    rows = store.history_rows(head)
    for place in range(1, len(rows), EVERY):
        node, before = NodeId(rows[place].id), NodeId(rows[place].parent)
        store.fork(store.save_chain(talk("x", "y"), before), f"fork-{place}")
        store.save_chain([Message("tool", [ToolResultPart("index", "done")])], called_by=node)
        store.save_chain(talk("Count them.", "7"), called_by=node)
    collect(store.storage, GcOptions(prune_before=None, now=time.time()))
    return store, head


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        stores = [filled(f"{folder}/{size}", size) for size in SIZES]
        print(f"{'microseconds a node':<22}" + "".join(f"{size:>12,}" for size in SIZES))
        for name, view in VIEWS.items():
            costs = []
            for (store, head), size in zip(stores, SIZES, strict=True):
                start = time.perf_counter()
                view(store, head)
                costs.append((time.perf_counter() - start) * 1e6 / size)
            print(f"{name:<22}" + "".join(f"{cost:>12.2f}" for cost in costs))


if __name__ == "__main__":
    main()
