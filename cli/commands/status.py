"""dag status: where one is."""

from __future__ import annotations

import click

from cli.context import App, pass_app
from cli.render import SCHEMA, count, one_line
from cli.times import said_at, shown
from refs.ids import abbreviate


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@pass_app
def command(app: App, as_json: bool) -> None:
    """Show which store and conversation this is, and what is in them.

    \b
    Example:
      dag status
    """
    store, name = app.store, app.current
    head = store.head(name)
    about = store.description(name)
    messages = 0 if head is None else store.depth(head)
    conversations = sum(1 for _ in store.conversations())
    if as_json:
        app.screen.json(
            [
                {
                    "schema": SCHEMA,
                    "store": str(store.path),
                    "id": store.id,
                    "conversation": name,
                    "head": head,
                    "messages": messages,
                    "at": None if head is None else said_at(store, head),
                    "description": about.to_dict() if about is not None else None,
                    "conversations": conversations,
                }
            ]
        )
        return
    click.echo(f"store         {one_line(str(store.path))} ({count(conversations, 'conversation')})")
    click.echo(f"conversation  {one_line(name)}")
    if about is not None and about.title:
        click.echo(f"title         {one_line(about.title)}")
    if head is None:
        click.echo("head          none: it has no message yet")
    else:
        at = shown(said_at(store, head))
        click.echo(f"head          {abbreviate(head)} ({count(messages, 'message')}, the last {at})")
