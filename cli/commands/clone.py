"""dag clone: a new store with all that another has."""

from __future__ import annotations

import os

import click

from cli.context import FOLDER, App, pass_app
from cli.failures import say
from cli.progress import progress_line
from cli.render import SCHEMA, one_line
from cli.syncing import as_json as written
from cli.syncing import lines


@click.command()
@click.argument("url")
@click.argument("dir", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@pass_app
def command(app: App, url: str, dir: str | None, as_json: bool) -> None:
    """Make a new store, .dag in the folder DIR or here, with all that is at URL: its remote 'origin'.

    URL is the folder of a store, or s3://bucket/prefix, gs://… or az://…. Without DIR, --store or DAG_DIR name
    the store's own folder. Interrupted, run it again.

    \b
    Example:
      dag clone /mnt/team/.dag notes
      dag clone s3://our-team/dag
    """
    from objstore.store import Store  # noqa: PLC0415

    named = None if dir is not None else app.given or app.environ.get("DAG_DIR")
    folder = os.path.abspath(named or os.path.join(dir or "", FOLDER))
    with progress_line() as progress:
        store, report = Store.clone(url, folder, notice=say, progress=progress)
    store.close()
    if as_json:
        app.screen.json([{"schema": SCHEMA, "store": folder, "id": store.id, **written(report)}])
    else:
        app.screen.lines([f"new store in {one_line(folder)}", *lines(report, "fetched")])
