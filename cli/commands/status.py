"""dag status: where one is."""

from __future__ import annotations

import click

from cli.context import App, pass_app
from cli.render import SCHEMA, count, one_line
from cli.times import said_at, shown
from refs.ids import abbreviate


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@pass_app
def command(app: App, as_json: bool) -> None:
    """Show which store and conversation this is, and what is in them.

    \b
    Example:
      dag status
    """
    store, name = app.store, app.current
    head = store.head(name)
    about = store.description(name)
    messages = 0 if head is None else store.depth(head)
    heads = [each.head for each in store.conversations()]
    conversations, standing, tracked = len(heads), set(heads), list(store.tracked())
    apart = [each for each in tracked if each.ahead and each.behind and each.theirs not in standing]
    if as_json:
        app.screen.json(
            [
                {
                    "schema": SCHEMA,
                    "store": str(store.path),
                    "id": store.id,
                    "conversation": name,
                    "head": head,
                    "messages": messages,
                    "at": None if head is None else said_at(store, head),
                    "description": about.to_dict() if about is not None else None,
                    "conversations": conversations,
                    "remotes": [
                        {"remote": t.remote, "head": t.theirs, "ahead": t.ahead, "behind": t.behind}
                        for t in tracked
                        if t.name == name
                    ],
                    "diverged": [{"conversation": t.name, "remote": t.remote, "head": t.theirs} for t in apart],
                }
            ]
        )
        return
    click.echo(f"store         {one_line(str(store.path))} ({count(conversations, 'conversation')})")
    click.echo(f"conversation  {one_line(name)}")
    if about is not None and about.title:
        click.echo(f"title         {one_line(about.title)}")
    if head is None:
        click.echo("head          none: it has no message yet")
    else:
        at = shown(said_at(store, head))
        click.echo(f"head          {abbreviate(head)} ({count(messages, 'message')}, the last {at})")
    for each in tracked:
        if each.name == name and (each.ahead or each.behind):
            parts = [count(each.ahead, "message") + " ahead"] if each.ahead else []
            parts += [count(each.behind, "message") + " behind"] if each.behind else []
            click.echo(f"{one_line(each.remote):<13} {', '.join(parts)} (theirs {abbreviate(each.theirs)})")
    for each in apart:
        there = f"remotes/{one_line(each.remote)}/conversations/{one_line(each.name)}"
        click.echo(f"diverged      {one_line(each.name)} and {there}")
