"""dag show: one message whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice

import click

from cli.completion import revisions
from cli.context import App, pass_app
from cli.history import names_by_node
from cli.parts import text_of
from cli.render import SCHEMA, escape_json, one_line
from cli.times import said_at, shown
from objstore.chain import Entry
from objstore.jsonvalue import thaw
from objstore.message import Message
from objstore.records import Call
from objstore.store import NoteEntry
from refs.errors import UnknownRevision


@click.command()
@click.argument("rev", required=False, shell_complete=revisions)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@pass_app
def command(app: App, rev: str | None, as_json: bool) -> None:
    """Show the message at REV whole: its parts, tool calls and results, ids, notes, and the calls it is of.

    \b
    Example:
      dag show HEAD~1
    """
    found = list(islice(app.store.walk(app.resolve(rev)), 1))
    if not found:
        raise UnknownRevision(rev or "HEAD", "before the first message there is nothing to show")
    entry = found[0]
    notes, calls = app.store.notes(entry.id), app.store.calls(entry.id)
    names = names_by_node(app.store, app.current, {entry.id}).get(entry.id, [])
    at = said_at(app.store, entry.id)
    if as_json:
        app.screen.json([_as_json(entry, at, names, notes, calls)])
    else:
        app.screen.lines(_lines(entry, at, names, notes, calls))


def _lines(
    entry: Entry, at: str | None, names: list[str], notes: list[NoteEntry], calls: list[Call]
) -> Iterator[str]:
    message = entry.message_or_tombstone
    node = entry.node
    beside = f" ({one_line(', '.join(names))})" if names else ""
    yield f"node     {entry.id}{beside}"
    yield f"parent   {node.parent}"
    yield f"message  {node.message}"
    if node.called_by is not None:
        which = f" ({node.tool_call_id})" if node.tool_call_id else ""
        yield one_line(f"called by {node.called_by}{which}")
    yield one_line(f"role     {getattr(message, 'role', '(erased)')}")
    yield f"time     {shown(at)}"
    yield ""
    yield from (f"    {line}".rstrip() for line in text_of(message))
    if isinstance(message, Message) and message.provider_metadata:
        yield from ("", f"provider metadata  {_json(message.provider_metadata)}")
    for note in notes:
        if note.members:
            yield from ("", f"note of {shown(note.at)}  {_json(note.members)}")
    for call in calls:
        used = f", {call.input_tokens} tokens in" if call.input_tokens is not None else ""
        used += f", {call.output_tokens} out" if call.output_tokens is not None else ""
        side = "asked with this" if call.head_input == entry.id else "answered with this"
        yield from ("", one_line(f"call {call.call}  {call.model}, {side}{used}"))


def _as_json(
    entry: Entry, at: str | None, names: list[str], notes: list[NoteEntry], calls: list[Call]
) -> dict[str, object]:
    message = entry.message_or_tombstone
    node = entry.node
    called = {"called_by": node.called_by, "tool_call_id": node.tool_call_id}
    return {
        "schema": SCHEMA,
        "node": entry.id,
        "parent": node.parent,
        "message_id": node.message,
        **{key: value for key, value in called.items() if value is not None},
        "message": message.to_dict() if isinstance(message, Message) else None,
        **({} if isinstance(message, Message) else {"erased": message.reason}),
        "at": at,
        "refs": [name.removeprefix("HEAD -> ") for name in names],
        "notes": [{"at": note.at, "members": thaw(note.members)} for note in notes],
        "calls": [call.to_dict() for call in calls],
    }


def _json(value: object) -> str:
    return escape_json(json.dumps(value, ensure_ascii=False))
