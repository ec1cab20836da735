"""dag merge: what another store has, without making it a remote."""

from __future__ import annotations

import click

from cli.context import App, pass_app
from cli.progress import progress_line
from cli.syncing import tell


@click.command()
@click.argument("store")
@click.argument("name", nargs=-1)
@click.option("--fork", is_flag=True, help="Where both went on, make theirs a conversation beside ours.")
@click.option("--dry-run", is_flag=True, help="Tell what would be fetched, and do nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@pass_app
def command(app: App, store: str, name: tuple[str, ...], fork: bool, dry_run: bool, as_json: bool) -> None:
    """Take all conversations (or those called NAME) of STORE, a folder or an object storage's address.

    Equal histories are stored once. Where both sides went on, both heads are kept and told, and the exit code
    is 3.

    \b
    Example:
      dag merge /media/stick/.dag
      dag merge ../other trip --fork
    """
    with progress_line() as progress:
        report = app.store.merge_from(store, name, fork=fork, dry_run=dry_run, progress=progress)
    tell(app, report, "taken", dry_run=dry_run, json=as_json)
