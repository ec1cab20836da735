"""dag rev-parse: revisions as whole ids."""

from __future__ import annotations

import click

from cli.completion import revisions
from cli.context import App, pass_app
from cli.render import SCHEMA


@click.command("rev-parse")
@click.argument("revs", metavar="REV...", nargs=-1, required=True, shell_complete=revisions)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a revision.")
@pass_app
def command(app: App, revs: tuple[str, ...], as_json: bool) -> None:
    """Print the whole id of the node that each REV names.

    A revision is a conversation, tags/NAME, HEAD, an id or at least 4 of its first digits, 'root', and any
    of these followed by ~N (N messages earlier), ^ (one) or, behind a name, @{N} (where it was N moves ago).

    \b
    Example:
      dag rev-parse HEAD~3 'trip@{1}'
    """
    nodes = [app.resolve(rev) for rev in revs]
    if as_json:
        app.screen.json(
            {"schema": SCHEMA, "revision": rev, "node": node} for rev, node in zip(revs, nodes, strict=True)
        )
    else:
        app.screen.lines(nodes)
