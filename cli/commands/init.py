"""dag init: a new store."""

from __future__ import annotations

import os

import click

from cli.context import FOLDER, App, pass_app
from cli.failures import say
from cli.render import SCHEMA, one_line


@click.command()
@click.argument("path", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@pass_app
def command(app: App, path: str | None, as_json: bool) -> None:
    """Make a new store: .dag in the folder PATH, or here.

    Without PATH, --store or DAG_DIR name the store's own folder.

    \b
    Example:
      dag init
      dag --store ~/.local/share/msgdag init
    """
    from objstore.store import Store  # noqa: PLC0415

    named = None if path is not None else app.given or app.environ.get("DAG_DIR")
    folder = os.path.abspath(named or os.path.join(path or "", FOLDER))
    with Store.init(folder, notice=say) as store:
        if as_json:
            app.screen.json([{"schema": SCHEMA, "store": folder, "id": store.id}])
        else:
            click.echo(f"new store in {one_line(folder)}")
