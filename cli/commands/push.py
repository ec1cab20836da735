"""dag push: conversations to a remote."""

from __future__ import annotations

import click

from cli.completion import revisions
from cli.context import App, pass_app
from cli.progress import progress_line
from cli.syncing import tell
from refs.ids import NodeId, Oid, parse_oid


@click.command()
@click.argument("ref", nargs=-1, shell_complete=revisions)
@click.option("--remote", default="origin", metavar="REMOTE", show_default=True, help="Where to.")
@click.option("--all", "everything", is_flag=True, help="All conversations, and calls that belong to none.")
@click.option("--tags", is_flag=True, help="All tags too.")
@click.option("--force", metavar="OLD", help="Let one conversation's head OLD (its whole id) go there.")
@click.option("--delete", is_flag=True, help="Take the names away there instead.")
@click.option("--dry-run", is_flag=True, help="Tell what would be done, and do nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@pass_app
def command(
    app: App,
    ref: tuple[str, ...],
    remote: str,
    everything: bool,
    tags: bool,
    force: str | None,
    delete: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Send each REF (a conversation, or tags/NAME; the current conversation if none is given) to a remote.

    Heads there only move forward. If somebody else was faster the exit code is 3, nothing is lost, and
    'dag pull' tells what they have. Tags there are never moved.

    \b
    Example:
      dag push
      dag push --all --tags
      dag push trip --force 62b9e2a4f2d0c08a0ffec6d5a5b3ab9c1a2d8be9df9ad2f6c1f8e1a0a1f3d9c7
    """
    if everything and (ref or delete):
        raise click.UsageError("--all goes without a REF and without --delete")
    names = [name for name in ref if not name.startswith("tags/")]
    tagged = [name.removeprefix("tags/") for name in ref if name.startswith("tags/")]
    if not ref and not everything and not tags:
        names = [app.current]
    if delete and (not ref or tags or force):
        raise click.UsageError("--delete takes the names to delete and nothing else")
    if force is not None and (everything or tags or len(names) != 1 or tagged):
        raise click.UsageError("--force is for one conversation")
    with progress_line() as progress:
        report = app.store.push(
            remote,
            names,
            everything=everything,
            tags=tags or tagged,
            force=NodeId(Oid(parse_oid(force))) if force is not None else None,
            delete=delete,
            dry_run=dry_run,
            progress=progress,
        )
    tell(app, report, "sent", dry_run=dry_run, json=as_json)
