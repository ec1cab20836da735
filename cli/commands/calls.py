"""dag calls: the LLM calls that were made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

import click

from cli.calls import place, told
from cli.completion import revisions
from cli.context import App, pass_app
from cli.render import SCHEMA, one_line
from cli.times import first_moment
from objstore.records import Call


@click.command()
@click.argument("rev", required=False, shell_complete=revisions)
@click.option("--model", metavar="MODEL", help="Only of this model, asked for or answering; may be a glob.")
@click.option("--since", callback=first_moment, metavar="TIME", help="Not older: 2026-01-31T12:00, '3 days'.")
@click.option("--errors", is_flag=True, help="Only those that failed.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a call.")
@pass_app
def command(app: App, rev: str | None, model: str | None, since: str | None, errors: bool, as_json: bool) -> None:
    """List the LLM calls of the store, or those of REV: asked on its chain and in what that asked for.

    Newest first: when, which model, tokens, how long, and the nodes it was asked at and answered with.

    \b
    Example:
      dag calls trip --errors
      dag calls --model 'gpt-*' --since '2 weeks'
    """
    found = app.store.calls(since=since) if rev is None else app.store.calls_along(app.resolve(rev))
    wanted = [
        call
        for call in reversed(found)
        if (since is None or call.started_at >= since)
        and (not errors or call.error is not None)
        and (model is None or any(fnmatchcase(name, model) for name in (call.model, call.resolved_model or "")))
    ]
    if as_json:
        app.screen.json({"schema": SCHEMA, **call.to_dict()} for call in wanted)
    else:
        app.screen.lines(_lines(wanted))


def _lines(calls: Iterable[Call]) -> Iterator[str]:
    for call in calls:
        where = "" if call.conversation is None else f"  {one_line(call.conversation)}"
        yield f"{told(call)}  {place(call)}{where}"
