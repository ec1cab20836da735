"""dag rename: another name for a conversation."""

from __future__ import annotations

import click

from cli.completion import conversations
from cli.context import App, pass_app
from cli.render import one_line


@click.command()
@click.argument("old", shell_complete=conversations)
@click.argument("new")
@pass_app
def command(app: App, old: str, new: str) -> None:
    """Call the conversation OLD by the name NEW. A name that is taken is refused.

    \b
    Example:
      dag rename trip rome
    """
    app.store.rename(old, new)
    click.echo(f"{one_line(old)} is now {one_line(new)}")
