"""dag describe: what is known about a conversation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from cli.completion import conversations
from cli.context import App, pass_app
from cli.render import SCHEMA, one_line
from cli.times import shown
from objstore.records import Description
from refs.errors import NoSuchRef


@click.command()
@click.argument("name", required=False, shell_complete=conversations)
@click.option("--title", metavar="TEXT", help="Set the title; an empty one removes it.")
@click.option("--model", metavar="MODEL", help="Set the model; an empty one removes it.")
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="Add a tag; may be repeated.")
@click.option("--untag", "untags", metavar="TAG", multiple=True, help="Remove a tag; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@pass_app
def command(
    app: App,
    name: str | None,
    title: str | None,
    model: str | None,
    tags: tuple[str, ...],
    untags: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show or change the description of the conversation NAME (the current one if none is given).

    \b
    Example:
      dag describe trip --title "Rome in three days" --tag travel
    """
    name = app.current if name is None else name
    if app.store.head(name) is None:
        raise NoSuchRef(name)
    about = app.store.description(name)
    changes: dict[str, Any] = {}
    if title is not None:
        changes["title"] = title or None
    if model is not None:
        changes["model"] = model or None
    if tags or untags:
        held = about.tags or () if about is not None else ()
        kept = [tag for tag in dict.fromkeys((*held, *tags)) if tag not in untags]
        changes["tags"] = kept or None
    if changes:
        about = app.store.describe(name, **changes)
    if as_json:
        members = about.to_dict() if about is not None else None
        app.screen.json([{"schema": SCHEMA, "conversation": name, "description": members}])
    else:
        app.screen.lines(_lines(name, about))


def _lines(name: str, about: Description | None) -> Iterator[str]:
    yield one_line(f"conversation  {name}")
    if about is None:
        return
    if about.title is not None:
        yield one_line(f"title         {about.title}")
    if about.model is not None:
        yield one_line(f"model         {about.model}")
    if about.tags:
        yield one_line(f"tags          {', '.join(about.tags)}")
    if about.source is not None:
        yield one_line(f"source        {' '.join(str(value) for value in about.source.values())}")
    if about.forked_from is not None:
        yield f"forked from   {about.forked_from}"
    yield f"created       {shown(about.created_at)}"
