"""dag delete: take a conversation's name away."""

from __future__ import annotations

import click

from cli.completion import conversations
from cli.context import App, pass_app
from cli.failures import say
from cli.render import one_line
from refs.ids import abbreviate


@click.command()
@click.argument("name", shell_complete=conversations)
@pass_app
def command(app: App, name: str) -> None:
    """Delete the conversation NAME. Its messages stay until a gc; the way back is printed.

    \b
    Example:
      dag delete by-train
    """
    current = app.store.current() == name
    head = app.store.delete(name)
    click.echo(f"{one_line(name)} deleted, its head was {abbreviate(head)}")
    click.echo(f"undo: dag fork {head} {one_line(name)}")
    if current:
        say("it was the current conversation", "'dag switch NAME' goes to another")
