"""dag list: all conversations."""

from __future__ import annotations

from collections.abc import Iterator

import click

from cli.context import App, pass_app
from cli.render import SCHEMA, count, first_line, one_line
from cli.times import said_at, shown
from refs.ids import abbreviate


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a conversation.")
@pass_app
def command(app: App, as_json: bool) -> None:
    """List the conversations; a star marks the current one.

    \b
    Example:
      dag list
    """
    if as_json:
        app.screen.json(_as_json(app))
    else:
        app.screen.lines(_lines(app))


def _lines(app: App) -> Iterator[str]:
    current = app.current
    for each in app.store.conversations():
        mark = "*" if each.name == current else " "
        about = app.store.description(each.name)
        title = f"  {first_line(about.title, 60)}" if about is not None and about.title else ""
        name = app.screen.paint(one_line(each.name), "green") if mark == "*" else one_line(each.name)
        messages = count(app.store.depth(each.head), "message")
        at = shown(said_at(app.store, each.head))
        yield f"{mark} {name}  {app.screen.paint(abbreviate(each.head), 'yellow')}  {messages}  {at}{title}"


def _as_json(app: App) -> Iterator[dict[str, object]]:
    current = app.current
    for each in app.store.conversations():
        about = app.store.description(each.name)
        yield {
            "schema": SCHEMA,
            "conversation": each.name,
            "current": each.name == current,
            "head": each.head,
            "messages": app.store.depth(each.head),
            "at": said_at(app.store, each.head),
            "description": about.to_dict() if about is not None else None,
        }
