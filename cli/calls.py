"""Calls as people read them: what was asked, what it took, where it stands. All of it safe to print."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cli.parts import summary
from cli.render import one_line
from cli.times import shown
from refs.ids import NodeId, Oid, abbreviate

if TYPE_CHECKING:
    from objstore.records import Call
    from objstore.store import Store


def told(call: Call) -> str:
    """A call in a line, but for where it stands."""
    said = [f"call {call.call}", shown(call.started_at), model_of(call), tokens(call)]
    if call.duration_ms is not None:
        said.append(f"{call.duration_ms / 1000:,.1f} s")
    if call.error is not None:
        said.append(f"failed: {call.error}")
    return one_line("  ".join(filter(None, said)))


def model_of(call: Call) -> str:
    """The model that was asked for, and the one that answered if that is another."""
    if call.resolved_model in (None, call.model):
        return call.model
    return f"{call.model} ({call.resolved_model})"


def tokens(call: Call) -> str:
    """`1,234 in, 56 out`, as far as it is known."""
    counts = ((call.input_tokens, "in"), (call.output_tokens, "out"))
    return ", ".join(f"{count:,} {which}" for count, which in counts if count is not None)


def place(call: Call) -> str:
    """The nodes it was asked at and answered with."""
    answer = "nothing" if call.head_output is None else abbreviate(call.head_output)
    return f"{abbreviate(call.head_input)} -> {answer}"


def at_node(store: Store, node: NodeId) -> list[Call]:
    """The calls to tell at a node: answered with it, or asked at it and answered with nothing."""
    return [call for call in store.calls(node) if node == (call.head_output or call.head_input)]


def call_lines(store: Store, node: NodeId, width: int) -> Iterator[str]:
    """What a log tells below a node: its calls, and the side chains that it asked for."""
    for call in at_node(store, node):
        yield told(call)
    for each in store.called_from(node):
        first = NodeId(Oid(each.first))
        which = f" ({each.tool_call_id})" if each.tool_call_id else ""
        asked = one_line(f"asked for {abbreviate(first)}{which}: ")
        words = summary(store.chains.message(store.node(first).message), max(width - len(asked) - 4, 20))
        yield f"{asked}{words}"


def call_members(store: Store, node: NodeId) -> dict[str, object]:
    """The same, for programs."""
    asked = [{"first": each.first, "tool_call_id": each.tool_call_id} for each in store.called_from(node)]
    return {"calls": [call.to_dict() for call in at_node(store, node)], "asked_for": asked}
