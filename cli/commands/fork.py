"""dag fork: a new conversation at any node."""

from __future__ import annotations

import click

from cli.completion import revisions
from cli.context import App, pass_app
from cli.render import SCHEMA, one_line
from refs.errors import UnknownRevision
from refs.ids import abbreviate


@click.command()
@click.argument("rev", required=False, shell_complete=revisions)
@click.argument("name", required=False)
@click.option("--switch", is_flag=True, help="Make the new conversation the current one.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@pass_app
def command(app: App, rev: str | None, name: str | None, switch: bool, as_json: bool) -> None:
    """Make a new conversation NAME at REV (the head of the current one if none is given).

    Nothing is copied: a fork costs one ref. Without NAME it is called by a new ULID.

    \b
    Example:
      dag fork HEAD~2 by-train --switch
    """
    try:
        node = app.resolve(rev)
    except UnknownRevision as error:
        if name is None:
            error.hint = f"'dag fork HEAD {rev}' makes a conversation of that name"
        raise
    made = app.store.fork(node, name)
    if switch:
        app.store.switch(made)
    if as_json:
        app.screen.json([{"schema": SCHEMA, "conversation": made, "head": node}])
    else:
        click.echo(f"{one_line(made)}: forked at {abbreviate(node)}{', now current' if switch else ''}")
