"""dag tree: who asked for what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import click

from cli.completion import revisions
from cli.context import App, pass_app
from cli.parts import summary
from cli.render import SCHEMA, count, one_line, width_of
from objstore.exchange import SideChain
from objstore.message import ToolCallPart
from objstore.records import Tombstone
from objstore.store import Store
from refs.ids import NodeId, abbreviate

MAX_DRAWN_LEVELS: Final = 20
"""Deeper chains are drawn at this level, with their own told."""

_ROOM: Final = 20


@click.command()
@click.argument("rev", required=False, shell_complete=revisions)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a side chain.")
@pass_app
def command(app: App, rev: str | None, as_json: bool) -> None:
    """Draw the call hierarchy of REV: the side chains of agents and functions, below what asked for them.

    Each line is a side chain by its first message: what it was asked for with, and by which message.

    \b
    Example:
      dag tree trip
    """
    head = app.resolve(rev)
    chains = app.store.side_chains(head)
    if as_json:
        app.screen.json(_as_json(app.store, each) for each in chains)
    else:
        app.screen.lines(_lines(app, head, chains))


def _lines(app: App, head: NodeId, chains: Sequence[SideChain]) -> Iterator[str]:
    inside = sum(each.calls for each in chains)
    calls = count(len(app.store.calls_along(head)) - inside, "call")
    yield f"{app.screen.paint(abbreviate(head), 'yellow')} {count(app.store.depth(head), 'message')}, {calls}"
    for each, branches in zip(chains, _branches([min(c.level, MAX_DRAWN_LEVELS) for c in chains]), strict=True):
        node = each.first
        sizes = f"{count(each.messages, 'message')}, {count(each.calls, 'call')}"
        tool = _tool(app.store, each)
        asked = f"{one_line(tool)} asked for by" if tool else "asked for by"
        told = f"{asked} {abbreviate(each.called_by)}: {sizes}"
        if each.level > MAX_DRAWN_LEVELS:
            told = f"(level {each.level}) {told}"
        room = app.screen.width - width_of(branches) - width_of(told) - 11
        words = summary(app.store.chains.message(app.store.node(node).message), max(room, _ROOM))
        yield f"{branches}{app.screen.paint(abbreviate(node), 'yellow')} {told}  {words}"


def _branches(levels: Sequence[int]) -> list[str]:
    """What stands before each line, for lines at these levels (from 1)."""
    drawn: list[str] = []
    open_below: set[int] = set()  # the levels at which another line follows
    for level in reversed(levels):
        bars = "".join("│  " if above in open_below else "   " for above in range(1, level))
        drawn.append(f"{bars}{'├─' if level in open_below else '└─'} ")
        open_below = {each for each in open_below if each < level} | {level}
    return drawn[::-1]


def _tool(store: Store, each: SideChain) -> str:
    """The name of the tool call that a side chain was asked for with."""
    oid = each.tool_call_id
    if oid is None:
        return ""
    asker = store.chains.message(store.node(each.called_by).message)
    parts = () if isinstance(asker, Tombstone) else asker.parts
    named = (part.name for part in parts if isinstance(part, ToolCallPart) and part.tool_call_id == oid)
    return f"{next(named, '')} ({oid})".strip()


def _as_json(store: Store, each: SideChain) -> dict[str, object]:
    message = store.chains.message(store.node(each.first).message)
    return {
        "schema": SCHEMA,
        "first": each.first,
        "called_by": each.called_by,
        "tool_call_id": each.tool_call_id,
        "level": each.level,
        "messages": each.messages,
        "calls": each.calls,
        "first_line": summary(message, 200),
    }
