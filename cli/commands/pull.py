"""dag pull: fetch, and go on where the remote did."""

from __future__ import annotations

import click

from cli.completion import conversations
from cli.context import App, pass_app
from cli.progress import progress_line
from cli.syncing import tell


@click.command()
@click.argument("name", nargs=-1, shell_complete=conversations)
@click.option("--remote", default="origin", metavar="REMOTE", show_default=True, help="Where from.")
@click.option("--fork", is_flag=True, help="Where both went on, make theirs a conversation beside ours.")
@click.option("--dry-run", is_flag=True, help="Tell what would be fetched, and do nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@pass_app
def command(app: App, name: tuple[str, ...], remote: str, fork: bool, dry_run: bool, as_json: bool) -> None:
    """Fetch, then bring all conversations (or those called NAME) up to where the remote has them.

    One that isn't here is made, unless you deleted it: then naming it brings it back. Where both sides went on,
    both heads are kept and told, and the exit code is 3.

    \b
    Example:
      dag pull
      dag pull trip --fork
    """
    with progress_line() as progress:
        report = app.store.pull(remote, name, fork=fork, dry_run=dry_run, progress=progress)
    tell(app, report, "fetched", dry_run=dry_run, json=as_json, label=remote)
