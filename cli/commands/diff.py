"""dag diff: where two chains part, and what each side has."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

import click

from cli.completion import revisions
from cli.context import App, pass_app
from cli.parts import summary
from cli.render import SCHEMA, Screen, count, one_line, width_of
from objstore.chain import Entry
from objstore.store import Store
from refs.ids import ROOT, NodeId, abbreviate

_ROOM: int = 20  # columns of a first line on however narrow a screen
_JSON_COLUMNS: int = 200


@click.command()
@click.argument("a", shell_complete=revisions)
@click.argument("b", shell_complete=revisions)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@pass_app
def command(app: App, a: str, b: str, as_json: bool) -> None:
    """Show the last message that A and B have in common, then what only A (-) and only B (+) has.

    Exits with 1 where they differ, with 0 where they are the same.

    \b
    Example:
      dag diff main by-train
    """
    store, screen = app.store, app.screen
    nodes = app.resolve(a), app.resolve(b)
    common = store.common_ancestor(*nodes)
    sides = [_after(store, node, common) for node in nodes]
    if as_json:
        about = [
            {"revision": rev, "head": node, "messages": [_as_json(entry) for entry in side]}
            for rev, node, side in zip((a, b), nodes, sides, strict=True)
        ]
        screen.json([{"schema": SCHEMA, "common": common, "depth": store.depth(common), "sides": about}])
    else:
        screen.lines(_lines(store, screen, common, [(a, "-", "red", sides[0]), (b, "+", "green", sides[1])]))
    if nodes[0] != nodes[1]:
        raise click.exceptions.Exit(1)


def _after(store: Store, node: NodeId, common: NodeId) -> list[Entry]:
    return list(takewhile(lambda entry: entry.id != common, store.walk(node)))[::-1]


def _lines(
    store: Store, screen: Screen, common: NodeId, sides: list[tuple[str, str, str, list[Entry]]]
) -> Iterator[str]:
    if common == ROOT:
        yield "nothing in common"
    else:
        shared = count(store.depth(common), "message")
        yield f"{shared} in common, the last:"
        yield f"  {_line(next(iter(store.walk(common))), screen)}"
    for rev, sign, color, side in sides:
        if side:
            yield screen.paint(f"{sign}{sign} {one_line(rev)}: {count(len(side), 'message')}", color, bold=True)
            for entry in side:
                yield f"{screen.paint(sign, color)} {_line(entry, screen)}"


def _line(entry: Entry, screen: Screen) -> str:
    message = entry.message_or_tombstone
    role = one_line(getattr(message, "role", "erased"))
    room = max(screen.width - 14 - width_of(role), _ROOM)
    return f"{abbreviate(entry.id)} {role}: {summary(message, room)}"


def _as_json(entry: Entry) -> dict[str, object]:
    message = entry.message_or_tombstone
    return {
        "node": entry.id,
        "message": entry.node.message,
        "role": getattr(message, "role", None),
        "first_line": summary(message, _JSON_COLUMNS),
    }
