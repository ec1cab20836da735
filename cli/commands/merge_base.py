"""dag merge-base: where two chains part."""

from __future__ import annotations

import click

from cli.completion import revisions
from cli.context import App, pass_app
from cli.failures import NOT_FOUND
from cli.render import SCHEMA
from refs.ids import ROOT


@click.command()
@click.argument("a", shell_complete=revisions)
@click.argument("b", shell_complete=revisions)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@pass_app
def command(app: App, a: str, b: str, as_json: bool) -> None:
    """Print the last node that A and B have in common; exits with 1 if there is none.

    \b
    Example:
      dag merge-base trip remotes/origin/conversations/trip
    """
    common = app.store.common_ancestor(app.resolve(a), app.resolve(b))
    if as_json:
        app.screen.json([{"schema": SCHEMA, "common": common, "depth": app.store.depth(common)}])
    elif common != ROOT:
        click.echo(common)
    if common == ROOT:
        raise click.exceptions.Exit(NOT_FOUND)
