"""dag log: what was said, newest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import click

from cli.completion import revisions
from cli.context import App, pass_app
from cli.history import Shown, heads, in_branches, named, newest_first, wanted
from cli.parts import summary
from cli.render import SCHEMA, Screen, one_line, width_of
from cli.times import first_moment, last_moment, shown
from refs.ids import abbreviate

_ROOM: int = 20  # columns of a first line on however narrow a screen
_JSON_COLUMNS: int = 200


@click.command()
@click.argument("rev", required=False, shell_complete=revisions)
@click.option("-n", "--max-count", type=click.IntRange(min=0), metavar="N", help="Show at most N messages.")
@click.option("--oneline", is_flag=True, help="One line a message.")
@click.option("--graph", is_flag=True, help="Draw the forks; branches stay together.")
@click.option("--all", "everything", is_flag=True, help="From every conversation, tag and remote.")
@click.option("--role", "roles", metavar="ROLE", multiple=True, help="Only what ROLE said; may be repeated.")
@click.option("--since", callback=first_moment, metavar="TIME", help="Not older: 2026-01-31T12:00, '3 days'.")
@click.option("--until", callback=last_moment, metavar="TIME", help="Not newer.")
@click.option("--calls", "with_calls", is_flag=True, help="Add LLM calls, and the side chains asked for.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a message.")
@pass_app
def command(
    app: App,
    rev: str | None,
    max_count: int | None,
    oneline: bool,
    graph: bool,
    everything: bool,
    roles: tuple[str, ...],
    since: str | None,
    until: str | None,
    with_calls: bool,
    as_json: bool,
) -> None:
    """Show the messages up to REV, newest first, with the names that stand at them.

    The time is when a message was said, where an import knew it; else when it was stored.

    \b
    Example:
      dag log -n 5
      dag log --oneline --graph --all
      dag log trip --role user --since '2 weeks'
    """
    if graph and as_json:
        raise click.UsageError("--graph draws for people: with --json each message names its parent")
    starts = [node for _, node in heads(app.store)] if everything else []
    if rev is not None or not everything:
        starts.append(app.resolve(rev))
    find = in_branches if graph else newest_first
    some = islice(find(app.store, starts, wanted(frozenset(roles), since, until)), max_count)
    found = named(app.store, app.current, some)
    if as_json:
        app.screen.json({**_as_json(*each), **_calls_as_json(app, each[0], with_calls)} for each in found)
        return
    rows = (
        (each, _lines(each, names, app.screen, oneline) + _calls(app, each, with_calls)) for each, names in found
    )
    if graph:
        from cli.graph import Row, draw  # noqa: PLC0415  only for drawings

        app.screen.lines(draw(Row(each.entry.id, each.parent, lines) for each, lines in rows))
    else:
        app.screen.lines(_plain((lines for _, lines in rows), oneline))


def _plain(found: Iterable[Sequence[str]], oneline: bool) -> Iterator[str]:
    for number, lines in enumerate(found):
        if number and not oneline:
            yield ""
        yield from lines


def _calls(app: App, each: Shown, asked_for: bool) -> list[str]:
    if not asked_for:
        return []
    from cli.calls import call_lines  # noqa: PLC0415  only where calls are asked for

    return [f"    {line}" for line in call_lines(app.store, each.entry.id, app.screen.width)]


def _calls_as_json(app: App, each: Shown, asked_for: bool) -> dict[str, object]:
    if not asked_for:
        return {}
    from cli.calls import call_members  # noqa: PLC0415  only where calls are asked for

    return call_members(app.store, each.entry.id)


def _lines(each: Shown, names: Sequence[str], screen: Screen, oneline: bool) -> list[str]:
    message = each.entry.message_or_tombstone
    role = one_line(getattr(message, "role", "erased"))
    beside = ", ".join(map(one_line, names))
    oid = screen.paint(abbreviate(each.entry.id), "yellow")
    decoration = screen.paint(f" ({beside})", "green") if beside else ""
    if oneline:
        taken = len(abbreviate(each.entry.id)) + (width_of(beside) + 3 if beside else 0) + width_of(role) + 3
        words = summary(message, max(screen.width - taken, _ROOM))
        return [f"{oid}{decoration} {screen.paint(role, 'cyan')}: {words}"]
    heading = f"{oid} {screen.paint(role, 'cyan')} {shown(each.at)}{decoration}"
    return [heading, f"    {summary(message, max(screen.width - 4, _ROOM))}"]


def _as_json(each: Shown, names: list[str]) -> dict[str, object]:
    message = each.entry.message_or_tombstone
    return {
        "schema": SCHEMA,
        "node": each.entry.id,
        "parent": each.entry.node.parent,
        "message": each.entry.node.message,
        "role": getattr(message, "role", None),
        "at": each.at,
        "first_line": summary(message, _JSON_COLUMNS),
        "refs": [name.removeprefix("HEAD -> ") for name in names],
    }
