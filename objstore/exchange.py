"""What the store tells of calls: a recorded exchange, a side chain. Made by `objstore.store_calls`."""

from __future__ import annotations

from dataclasses import dataclass

from refs.ids import CallId, NodeId


@dataclass(frozen=True, slots=True)
class Exchange:
    """What became of a recorded request and its answer.

    `call` is None for a resend that was not to be recorded; `new` counts the messages that were not stored
    before; `head_output` is None where nothing was answered.
    """

    head_input: NodeId
    head_output: NodeId | None
    call: CallId | None
    new: int


@dataclass(frozen=True, slots=True)
class SideChain:
    """A chain that a node asked for, by its first node. `level` counts the side chains above it, from 1.

    `messages` and `calls` are its own, forks of it included, but not those of the chains that it asked for,
    nor what follows a later prompt to the same agent: that is a side chain of its own.
    """

    first: NodeId
    called_by: NodeId
    tool_call_id: str | None
    level: int
    messages: int
    calls: int
