"""dag remote: the stores that this one meets."""

from __future__ import annotations

import click

from cli.completion import remotes
from cli.context import App, pass_app
from cli.render import SCHEMA, one_line


@click.group()
def command() -> None:
    """Name the stores that this one meets: folders, and object storages.

    \b
    Example:
      dag remote add origin s3://our-team/dag
      dag remote list
    """


@command.command()
@click.argument("name")
@click.argument("url")
@pass_app
def add(app: App, name: str, url: str) -> None:
    """Call the store at URL by NAME. An object storage is tried, and becomes a store if it is none.

    A server in which two writers would overwrite each other is refused.

    \b
    Example:
      dag remote add stick /media/stick/.dag
    """
    app.store.add_remote(name, url)
    click.echo(f"{one_line(name)} is {one_line(app.store.remotes()[name])}")


@command.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a remote.")
@pass_app
def list_them(app: App, as_json: bool) -> None:
    """List the remotes and their addresses.

    \b
    Example:
      dag remote list
    """
    known = app.store.remotes()
    if as_json:
        app.screen.json({"schema": SCHEMA, "remote": name, "url": url} for name, url in known.items())
    else:
        app.screen.lines(f"{one_line(name)}  {one_line(url)}" for name, url in known.items())


@command.command()
@click.argument("name", shell_complete=remotes)
@pass_app
def remove(app: App, name: str) -> None:
    """Forget the remote NAME and where its heads stood. Nothing changes there.

    \b
    Example:
      dag remote remove stick
    """
    app.store.remove_remote(name)
    click.echo(f"{one_line(name)} is forgotten")


@command.command()
@click.argument("old", shell_complete=remotes)
@click.argument("new")
@pass_app
def rename(app: App, old: str, new: str) -> None:
    """Call the remote OLD by the name NEW.

    \b
    Example:
      dag remote rename origin team
    """
    app.store.rename_remote(old, new)
    click.echo(f"{one_line(old)} is now {one_line(new)}")
