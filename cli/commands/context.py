"""dag context: what the next request would show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from cli.completion import revisions
from cli.context import App, pass_app
from cli.failures import say
from cli.inputs import shortened
from cli.parts import text_of
from cli.render import SCHEMA, Screen, count, escape_json, one_line
from objstore.message import Message
from objstore.views import Row
from refs.ids import abbreviate

FORMATS = ("plain", "openai", "anthropic")


@click.command()
@click.argument("rev", shell_complete=revisions)
@click.option("--format", "form", type=click.Choice(FORMATS), default="plain", help="How to write it (plain).")
@click.option("--levels", type=click.IntRange(min=0), metavar="N", help="Follow calls N levels deep (0: none).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with the messages as we have them.")
@pass_app
def command(app: App, rev: str, form: str, levels: int | None, as_json: bool) -> None:
    """Print the context for the next request after REV, by call hierarchy.

    That is its chain, with summaries in place of what they cover, and what was asked for on it, as far as each
    function exposes it; a function goes on from its caller. --levels 0 keeps to the chain. openai and
    anthropic print a request without a model; what that form can't hold is told on standard error.

    \b
    Example:
      dag context trip
      dag context trip --format anthropic > request.json
    """
    if as_json and form != "plain":
        raise click.UsageError("--json prints our own form: it goes without --format")
    rows = app.store.context(app.resolve(rev), max_call_levels=levels)
    if form == "plain" and not as_json:
        app.screen.lines(_lines(rows, app.screen))
        return
    whole = [(row, row.message) for row in rows if row.message is not None]
    if len(whole) < len(rows):
        say(f"{count(len(rows) - len(whole), 'erased message')} left out")
    if as_json:
        messages = [{"node": row.id, "message": message.to_dict()} for row, message in whole]
        app.screen.json([{"schema": SCHEMA, "messages": messages}])
    else:
        written, losses = _written([message for _, message in whole], form)
        app.screen.utf8([written])
        for loss in shortened(losses):
            say(f"not in this form: {loss}")


def _written(messages: Sequence[Message], form: str) -> tuple[str, list[str]]:
    from objstore.transcripts.export import anthropic, openai  # noqa: PLC0415  plain needs neither
    from objstore.transcripts.export.model import ExportEntry  # noqa: PLC0415

    writer = openai if form == "openai" else anthropic
    written, losses = writer.write([ExportEntry(message) for message in messages])
    return escape_json(written).rstrip("\n"), [f"{loss.place}: {loss.kind} ({loss.text})" for loss in losses]


def _lines(rows: Sequence[Row], screen: Screen) -> Iterator[str]:
    for number, row in enumerate(rows):
        if number:
            yield ""
        role = screen.paint(f"[{one_line(row.role) or 'erased'}]", "cyan", bold=True)
        yield f"{role} {screen.paint(abbreviate(row.id), 'yellow')}"
        yield from ["(erased)"] if row.message is None else text_of(row.message)
