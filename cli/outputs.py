"""A conversation as a whole, in the formats of `dag cat`. JSON, JSON Lines and OpenAI's go back in unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from cli.parts import markdown_of, text_of
from cli.render import SCHEMA, Screen, escape_json, one_line
from cli.times import said_at, shown
from objstore.canonical import canonical_message_json
from objstore.jsonvalue import Json
from refs.ids import NodeId

if TYPE_CHECKING:
    from objstore.chain import Entry
    from objstore.message import Message
    from objstore.records import Tombstone
    from objstore.store import Store

_OF_A_MESSAGE: Final = ("parts", "weight")
"""What a note says about the form of a message; the rest of it is no loss to a message list."""


def text(store: Store, chain: Sequence[Entry], screen: Screen) -> Iterator[str]:
    """Lines for reading, role and time above each message."""

    def heading(role: str, at: str) -> str:
        return f"{screen.paint(f'[{role}]', 'cyan', bold=True)} {screen.paint(at, 'bright_black')}"

    yield from _to_read(store, chain, heading, text_of)


def markdown(store: Store, chain: Sequence[Entry]) -> Iterator[str]:
    """Lines of Markdown, a heading for each message."""
    yield from _to_read(store, chain, lambda role, _: f"## {role}\n", markdown_of)


def _to_read(
    store: Store,
    chain: Sequence[Entry],
    heading: Callable[[str, str], str],
    body: Callable[[Message | Tombstone], Iterator[str]],
) -> Iterator[str]:
    for number, entry in enumerate(chain):
        if number:
            yield ""
        message = entry.message_or_tombstone
        yield heading(one_line(getattr(message, "role", "erased")), shown(said_at(store, entry.id)))
        yield from body(message)


def json_document(head: NodeId, chain: Sequence[Entry]) -> Iterator[str]:
    """One JSON object, a message a line."""
    yield f'{{"schema": {SCHEMA}, "head": "{head}", "messages": ['
    for number, entry in enumerate(chain, 1):
        yield f"{_json(entry)}{',' if number < len(chain) else ''}"
    yield "]}"


def json_lines(chain: Sequence[Entry]) -> Iterator[str]:
    """A message a line."""
    return map(_json, chain)


def _json(entry: Entry) -> str:
    return escape_json(canonical_message_json(entry.message).decode())


def openai(store: Store, chain: Sequence[Entry]) -> tuple[str, list[str]]:
    """A chat-completions request without its model, and what it can't hold."""
    from objstore.transcripts.export.model import ExportEntry  # noqa: PLC0415  the other formats need neither
    from objstore.transcripts.export.openai import write  # noqa: PLC0415

    written, losses = write([ExportEntry(entry.message, None, _form(store, entry.id)) for entry in chain])
    return escape_json(written), [f"{loss.place}: {loss.kind} ({loss.text})" for loss in losses]


def _form(store: Store, node: NodeId) -> Mapping[str, Json]:
    """What the notes say of how a message was written; the first word counts."""
    form: dict[str, Json] = {}
    for note in store.notes(node):
        for key in _OF_A_MESSAGE:
            if key in note.members:
                form.setdefault(key, note.members[key])
    return form
