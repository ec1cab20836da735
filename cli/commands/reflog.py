"""dag reflog: where a conversation has been."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import click

from cli.completion import conversations
from cli.context import App, pass_app
from cli.render import SCHEMA, one_line
from cli.times import shown
from refs.ids import abbreviate
from refs.names import short_name
from refs.reflog import ReflogEntry


@click.command()
@click.argument("name", required=False, shell_complete=conversations)
@click.option("-n", "--max-count", type=click.IntRange(min=0), metavar="N", help="Show at most N moves.")
@click.option("--all", "everything", is_flag=True, help="The moves of all refs.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a move.")
@pass_app
def command(app: App, name: str | None, max_count: int | None, everything: bool, as_json: bool) -> None:
    """Show the moves of the conversation NAME (the current one if none is given), newest first.

    Also of one that is deleted, which 'dag fork ID NAME' brings back.

    \b
    Example:
      dag reflog trip -n 3
    """
    if everything and name is not None:
        raise click.UsageError("--all goes without a NAME")
    moves = islice(app.store.reflog(None if everything else name or app.current), max_count)
    if as_json:
        app.screen.json(_as_json(move) for move in moves)
    else:
        app.screen.lines(_lines(moves, everything))


def _lines(moves: Iterator[ReflogEntry], everything: bool) -> Iterator[str]:
    for number, move in enumerate(moves):
        place = f"{abbreviate(move.new)} " if move.new else f"deleted (was {abbreviate(move.old or '')}) "
        name = short_name(move.ref) + ("" if everything else f"@{{{number}}}")
        yield one_line(f"{place}{name} {shown(move.time)}: {move.reason}")


def _as_json(move: ReflogEntry) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "time": move.time,
        "ref": move.ref,
        "old": move.old,
        "new": move.new,
        "reason": move.reason,
    }
