"""dag export: conversations in the formats of other programs."""

from __future__ import annotations

import os
import tempfile

import click

from cli.completion import revisions
from cli.context import App, pass_app
from cli.failures import say
from cli.progress import progress_line
from cli.render import SCHEMA, escape, escape_json, one_line
from objstore.exporting import export, is_asked_for
from objstore.store import Store
from objstore.transcripts.export.model import Loss
from objstore.transcripts.export.registry import SUFFIXES, sides_writer
from refs.errors import InvalidRefName
from refs.ids import NodeId


@click.command()
@click.argument("rev", required=False, shell_complete=revisions)
@click.option("--all", "everything", is_flag=True, help="Every conversation, each into a file of the folder -o.")
@click.option("--format", type=click.Choice(tuple(SUFFIXES)), required=True, help="What to write.")
@click.option("-o", "--output", type=click.Path(), metavar="PATH", help="A file; with --all a folder.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a conversation; needs -o.")
@pass_app
def command(
    app: App,
    rev: str | None,
    everything: bool,
    format: str,
    output: str | None,
    as_json: bool,
) -> None:
    """Write the conversation up to REV (the current one, if none is given) in a format of other programs.

    What the format can't hold is told on standard error, message by message. HTML is one file that needs
    nothing else, with nothing in it that could run. A session of Claude Code holds the side chains that the
    conversation asked for.

    \b
    Example:
      dag export --format markdown
      dag export trip --format html -o trip.html
      dag export --all --format openai -o everything
    """
    if everything and (rev is not None or output is None):
        raise click.UsageError("--all goes with a folder -o, and without a REV")
    if as_json and output is None:
        raise click.UsageError("--json goes with -o: else the conversation itself is printed")
    if not everything:
        name = app.current if rev is None else rev
        _export(app, name, app.resolve(rev), format, output, as_json=as_json)
        return
    assert output is not None
    conversations = list(app.store.conversations())
    if sides_writer(format) is not None:  # a side chain needs no file of its own where another's holds it
        conversations.sort(key=lambda each: is_asked_for(app.store, each.head))
    files: dict[NodeId, str] = {}
    with progress_line() as progress:
        for number, each in enumerate(conversations):
            if progress is not None:
                progress(f"exporting {one_line(each.name)}", number, len(conversations))
            # Names of conversations are fit for paths: docs/format.md.
            file = os.path.join(output, f"{each.name}{SUFFIXES[format]}")
            if each.head in files:
                _tell(app, each.name, each.head, format, files[each.head], [], as_json=as_json)
                continue
            sides = _export(app, each.name, each.head, format, file, as_json=as_json)
            files |= dict.fromkeys(sides - files.keys(), file)


def _export(
    app: App, name: str, head: NodeId, format: str, output: str | None, *, as_json: bool
) -> frozenset[NodeId]:
    """Write a conversation, and give the nodes of side chains that its file holds."""
    text, losses, sides = export(app.store, head, format, _title(app.store, name, head))
    if output is None:
        app.screen.utf8(
            [(escape_json if SUFFIXES[format].startswith(".json") else escape)(text).removesuffix("\n")]
        )
    else:
        _write(output, text)
    _tell(app, name, head, format, output, losses, as_json=as_json)
    return sides


def _tell(
    app: App, name: str, head: NodeId, format: str, output: str | None, losses: list[Loss], *, as_json: bool
) -> None:
    for loss in losses:
        say(f"{name}: {loss.place}: {loss.kind}{f' ({loss.text})' if loss.text else ''}")
    if as_json:
        lost = [{"kind": loss.kind, "place": loss.place, "text": loss.text} for loss in losses]
        made = {"conversation": name, "head": head, "format": format, "file": output, "losses": lost}
        app.screen.json([{"schema": SCHEMA, **made}])
    elif output is not None:
        click.echo(f"{one_line(name)}: {one_line(output)}")


def _title(store: Store, name: str, head: NodeId) -> str | None:
    try:
        about = store.description(name) if store.head(name) == head else None
    except InvalidRefName:  # some other revision
        return None
    return about.title if about is not None else None


def _write(path: str, text: str) -> None:
    """Write a file, whole or not at all; straight into what is no regular file, such as a device."""
    data = text.encode()
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as stream:
            stream.write(data)
        return
    folder = os.path.dirname(os.path.realpath(path))
    os.makedirs(folder, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".dag-export-", dir=folder)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.replace(temporary, os.path.realpath(path))
    except BaseException:
        os.unlink(temporary)
        raise
