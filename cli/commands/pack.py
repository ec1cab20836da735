"""dag pack: loose objects into a pack."""

from __future__ import annotations

import click

from cli.context import App, pass_app
from cli.render import SCHEMA, count


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@pass_app
def command(app: App, as_json: bool) -> None:
    """Put all loose objects into one pack. Nothing is deleted; 'dag gc' also does this, and more.

    \b
    Example:
      dag pack
    """
    packed = app.store.pack()
    if as_json:
        app.screen.json([{"schema": SCHEMA, "packed": packed}])
    else:
        click.echo(f"packed {count(packed, 'object')}")
