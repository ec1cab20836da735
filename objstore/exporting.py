"""A chain of the store as the writers of foreign formats take it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from objstore.hierarchy import Hierarchy
from objstore.jsonvalue import Json
from objstore.message import Message
from objstore.records import Tombstone
from objstore.store import Store
from objstore.transcripts.export.model import ExportEntry, Loss
from objstore.transcripts.export.registry import writer
from refs.ids import NodeId

_OWN: Final = ("key", "at")
"""What an import notes beside what its reader said: the entry's key, and when it was said."""


def export(store: Store, head: NodeId, format: str, title: str | None = None) -> tuple[str, list[Loss]]:
    """The conversation up to `head` in a format, and what it doesn't say. `KeyError` for an unknown format."""
    write = writer(format)
    losses: list[Loss] = []
    chain = []
    for number, entry in enumerate(list(store.walk(head))[::-1], 1):
        message = entry.message_or_tombstone
        if isinstance(message, Tombstone):
            losses.append(Loss("erased", f"message {number}", message.reason))
            message = Message.of("user", "[erased]")
        if entry.node.called_by is not None:
            losses.append(Loss("called-by", f"message {number}", entry.node.called_by))
        note = _notes(store, entry.id)
        at = note.get("at")
        kept = {key: value for key, value in note.items() if key not in _OWN}
        chain.append(ExportEntry(message, at if isinstance(at, str) else None, kept, entry.id))
    graph = Hierarchy(store.storage.index)
    asked = len(graph.called(graph.ancestors(store.chains.row(head))))
    if asked:
        losses.append(Loss("side-chains", "conversation", f"{asked} that it asked for"))
    text, lost = write(chain, title)
    return text, [*losses, *lost]


def _notes(store: Store, node: NodeId) -> Mapping[str, Json]:
    """All that is noted about a node; the first word counts."""
    known: dict[str, Json] = {}
    for note in store.notes(node):
        known = {**note.members, **known}
    return known
