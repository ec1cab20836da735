"""What the views cost a row, at 10,000 and at 100,000 rows: the two columns should be about the same.

Run it: `python tests/bench/bench_views.py`. The graph is one long chain of turns with tool calls; every
tenth answer also has a sibling, a function's run and a spawned agent.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from objstore.message import Message, TextPart, ToolCallPart, ToolResultPart
from objstore.views import Row, Rows, aggregate_tool_messages, linear_history, render_context, siblings
from refs.ids import ROOT

SIZES = (10_000, 100_000)
ROUNDS = 3


def graph(size: int) -> tuple[list[Row], str]:
    """About `size` rows, and the head of the chain."""
    rows: list[Row] = []
    head = ROOT

    def add(role: str, part: object, parent: str = ROOT, **more: object) -> str:
        oid = f"{len(rows):064x}"
        rows.append(Row(oid, role, parent, order=len(rows), message=Message(role, [part]), **more))
        return oid

    turn = 0
    while len(rows) < size:
        asked = add("user", TextPart("What is in this folder?"), head)
        if turn % 10 == 0:
            add("assistant", TextPart("I can't say."), asked)
        answer = add("assistant", ToolCallPart("ls", {"path": f"/{turn}"}, f"call_{turn % 7}"), asked)
        if turn % 10 == 0:
            add("tool", ToolResultPart("index", "done"), called_by=answer)
            prompt = add("user", TextPart("Count the files."), called_by=answer)
            add("assistant", TextPart("7"), prompt)
        told = add("tool", ToolResultPart("ls", "a b c", f"call_{turn % 7}"), answer)
        head = add("assistant", TextPart("Three files."), told)
        if turn % 100 == 99:
            add("assistant", TextPart("Files were listed."), covers=(asked, answer, told, head))
        turn += 1
    return rows, head


def all_siblings(rows: list[Row], _head: str) -> None:
    indexed = Rows(rows)
    for row in indexed:
        siblings(indexed, row.id)


VIEWS: dict[str, Callable[[list[Row], str], object]] = {
    "linear_history": linear_history,
    "siblings of every row": all_siblings,
    "aggregate_tool_messages": lambda rows, _: aggregate_tool_messages(rows),
    "render_context": render_context,
}


def microseconds_a_row(view: Callable[[list[Row], str], object], rows: list[Row], head: str) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        gc.collect()
        start = time.perf_counter()
        view(rows, head)
        best = min(best, time.perf_counter() - start)
    return best * 1e6 / len(rows)


def main() -> None:
    graphs = [graph(size) for size in SIZES]
    print(f"{'microseconds a row':<26}" + "".join(f"{len(rows):>12,}" for rows, _ in graphs))
    for name, view in VIEWS.items():
        print(f"{name:<26}" + "".join(f"{microseconds_a_row(view, *each):>12.2f}" for each in graphs))


if __name__ == "__main__":
    main()
