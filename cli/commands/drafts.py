"""dag drafts: what cut streams have left behind."""

from __future__ import annotations

from collections.abc import Iterator

import click

from cli.completion import conversations
from cli.context import App, pass_app
from cli.parts import summary
from cli.render import SCHEMA, count, one_line
from cli.times import shown
from objstore.drafts import LeftDraft
from refs.errors import AmbiguousRevision, NoSuchDraft, RefChanged
from refs.ids import abbreviate


@click.command()
@click.option("--recover", metavar="ID", help="Put what is left of a draft where it was meant for.")
@click.option("--fork", metavar="NAME", shell_complete=conversations, help="Into a new conversation instead.")
@click.option("--drop", metavar="ID", help="Forget a draft.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a draft.")
@pass_app
def command(app: App, recover: str | None, fork: str | None, drop: str | None, as_json: bool) -> None:
    """List streamed messages that never came to their end, because the process that wrote them ended.

    Those that are being written are not among them. ID is a draft's, or the beginning of it.

    \b
    Example:
      dag drafts
      dag drafts --recover 01KB --fork rescued
    """
    if recover is not None and drop is not None:
        raise click.UsageError("--recover and --drop exclude each other")
    if fork is not None and recover is None:
        raise click.UsageError("--fork goes with --recover")
    left = app.store.drafts()
    if recover is not None:
        _recover(app, _one(left, recover), fork, as_json)
    elif drop is not None:
        found = _one(left, drop)
        app.store.drop_draft(found.id)
        if as_json:
            app.screen.json([{"schema": SCHEMA, "dropped": found.id}])
        else:
            click.echo(f"dropped {found.id}")
    elif as_json:
        app.screen.json(_as_json(each) for each in left)
    else:
        app.screen.lines(_lines(app, left))


def _one(left: list[LeftDraft], prefix: str) -> LeftDraft:
    found = [each for each in left if prefix and each.id.startswith(prefix.upper())]
    if not found:
        raise NoSuchDraft(prefix)
    if len(found) > 1:
        raise AmbiguousRevision(prefix, [each.id for each in found])
    return found[0]


def _recover(app: App, draft: LeftDraft, fork: str | None, as_json: bool) -> None:
    try:
        node = app.store.recover_draft(draft.id, conversation=fork)
    except RefChanged as error:
        error.hint = f"the message is stored: 'dag fork {error.stored} NAME' makes a conversation of it"
        raise
    name = fork or (draft.header.conversation if draft.header is not None else None)
    if as_json:
        app.screen.json([{"schema": SCHEMA, "recovered": draft.id, "conversation": name, "node": node}])
    else:
        click.echo(f"{one_line(name or '(no conversation)')}: recovered {draft.id}, node {abbreviate(node)}")


def _lines(app: App, left: list[LeftDraft]) -> Iterator[str]:
    for each in left:
        if each.header is None or each.message is None:
            yield one_line(f"{each.id}  unreadable: {each.damage}")
            continue
        where = one_line(each.header.conversation or "(no conversation)")
        state = "whole" if each.ended else "cut"
        told = f"{where} after {abbreviate(each.header.at)}, {state}, {count(each.size, 'byte')}"
        yield f"{each.id}  {shown(each.header.started_at)}  {told}"
        yield f"    {summary(each.message, max(app.screen.width - 4, 20))}"


def _as_json(each: LeftDraft) -> dict[str, object]:
    header = each.header
    return {
        "schema": SCHEMA,
        "draft": each.id,
        "bytes": each.size,
        "conversation": header.conversation if header is not None else None,
        "at": header.at if header is not None else None,
        "started_at": header.started_at if header is not None else None,
        "ended": each.ended,
        "message": each.message.to_dict() if each.message is not None else None,
        "damage": each.damage,
    }
