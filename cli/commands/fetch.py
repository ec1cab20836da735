"""dag fetch: what a remote has, without moving a conversation."""

from __future__ import annotations

import click

from cli.completion import remotes
from cli.context import App, pass_app
from cli.progress import progress_line
from cli.syncing import tell


@click.command()
@click.argument("remote", default="origin", shell_complete=remotes)
@click.option("--dry-run", is_flag=True, help="Tell what would be done, and do nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@pass_app
def command(app: App, remote: str, dry_run: bool, as_json: bool) -> None:
    """Bring what REMOTE has here, and remember its heads as remotes/REMOTE/conversations/NAME.

    No conversation of yours moves. All that comes is checked before anything of it is seen; interrupted, run
    it again.

    \b
    Example:
      dag fetch
      dag log --all --graph
    """
    with progress_line() as progress:
        report = app.store.fetch(remote, dry_run=dry_run, progress=progress)
    tell(app, report, "fetched", dry_run=dry_run, json=as_json)
