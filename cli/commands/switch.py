"""dag switch: another current conversation."""

from __future__ import annotations

import click

from cli.completion import conversations
from cli.context import App, pass_app
from cli.render import one_line
from refs.errors import NoSuchRef
from refs.ids import abbreviate


@click.command()
@click.argument("name", shell_complete=conversations)
@pass_app
def command(app: App, name: str) -> None:
    """Make NAME the current conversation, for everyone who uses this store.

    DAG_CONVERSATION=NAME does so for one process.

    \b
    Example:
      dag switch trip
    """
    head = app.store.head(name)
    if head is None:
        error = NoSuchRef(name)
        error.hint = f"'dag commit -c {name}' starts it, 'dag fork REV {name}' forks it off"
        raise error
    app.store.switch(name)
    click.echo(f"on {one_line(name)}, head {abbreviate(head)}")
