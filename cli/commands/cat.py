"""dag cat: a conversation in reading order."""

from __future__ import annotations

import click

from cli import outputs
from cli.completion import revisions
from cli.context import App, pass_app
from cli.failures import say
from cli.inputs import shortened

FORMATS = ("text", "markdown", "json", "jsonl", "openai")


@click.command()
@click.argument("rev", required=False, shell_complete=revisions)
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", help="How to write it (text).")
@click.option("--json", "form", flag_value="json", help="The same as --format json.")
@pass_app
def command(app: App, rev: str | None, form: str) -> None:
    """Print the conversation up to REV, oldest message first.

    json, jsonl and openai go back in through 'dag commit' unchanged; what OpenAI's form can't hold is told
    on standard error.

    \b
    Example:
      dag cat trip --format markdown > trip.md
      dag cat --format openai | dag commit - --fork copy
    """
    head = app.resolve(rev)
    chain = list(app.store.walk(head))[::-1]
    if form == "text":
        app.screen.lines(outputs.text(app.store, chain, app.screen))
    elif form == "markdown":
        app.screen.lines(outputs.markdown(app.store, chain))
    elif form == "json":
        app.screen.utf8(outputs.json_document(head, chain))
    elif form == "jsonl":
        app.screen.utf8(outputs.json_lines(chain))
    else:
        written, losses = outputs.openai(app.store, chain)
        app.screen.utf8([written.rstrip("\n")])
        for loss in shortened(losses):
            say(f"not in OpenAI's form: {loss}")
