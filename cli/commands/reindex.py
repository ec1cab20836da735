"""dag reindex: the index made anew."""

from __future__ import annotations

import click

from cli.context import App, pass_app
from cli.render import count
from objstore.kinds import Kind


@click.command()
@pass_app
def command(app: App) -> None:
    """Delete the index and make it anew from the objects, all of which are read and checked.

    \b
    Example:
      dag reindex
    """
    app.store.reindex()
    nodes = sum(1 for _ in app.store.storage.index.rows(Kind.NODE))
    click.echo(f"the index is new: {count(nodes, 'node')}")
