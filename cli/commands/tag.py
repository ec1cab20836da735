"""dag tag: names that stay where they are."""

from __future__ import annotations

import click

from cli.completion import revisions
from cli.context import App, pass_app
from cli.render import SCHEMA, one_line
from refs.ids import abbreviate


@click.command()
@click.argument("name", required=False)
@click.argument("rev", required=False, shell_complete=revisions)
@click.option("-d", "--delete", is_flag=True, help="Delete the tag NAME.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a tag.")
@pass_app
def command(app: App, name: str | None, rev: str | None, delete: bool, as_json: bool) -> None:
    """Give REV (the head if none is given) a NAME that doesn't move; without NAME, list all tags.

    As a revision a tag is written NAME or tags/NAME.

    \b
    Example:
      dag tag before-the-storm HEAD~3
    """
    if delete:
        if name is None or rev is not None:
            raise click.UsageError("--delete takes the NAME of a tag and nothing else")
        node = app.store.delete_tag(name)
        click.echo(f"{one_line(name)} deleted; undo: dag tag {one_line(name)} {node}")
        return
    if name is None:
        tags = list(app.store.tags())
    else:
        node = app.resolve(rev)
        app.store.tag(name, node)
        tags = [(name, node)]
    if as_json:
        app.screen.json({"schema": SCHEMA, "tag": each, "node": node} for each, node in tags)
    else:
        app.screen.lines(f"{one_line(each)}  {abbreviate(node)}" for each, node in tags)
