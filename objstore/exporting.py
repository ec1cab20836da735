"""A chain of the store as the writers of foreign formats take it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from objstore.chain import Entry
from objstore.hierarchy import Hierarchy
from objstore.jsonvalue import Json
from objstore.message import Message
from objstore.records import Tombstone
from objstore.store import Store
from objstore.transcripts.export.model import ExportEntry, Loss, SideEntry
from objstore.transcripts.export.registry import sides_writer, writer
from refs.ids import ROOT, NodeId, Oid

_OWN: Final = ("key", "at")
"""What an import notes beside what its reader said: the entry's key, and when it was said."""


class Exported(NamedTuple):
    """A conversation in a format, what that doesn't say, and the nodes of side chains that it holds."""

    text: str
    losses: list[Loss]
    sides: frozenset[NodeId]


def export(store: Store, head: NodeId, format: str, title: str | None = None) -> Exported:
    """The conversation up to `head` in a format. `KeyError` for one that isn't known.

    Where the format has a place for the side chains that it asked for, they are in it.
    """
    write, write_sides = writer(format), sides_writer(format)
    losses: list[Loss] = []
    chain = []
    for number, entry in enumerate(list(store.walk(head))[::-1], 1):
        place = f"message {number}"
        if entry.node.called_by is not None:
            losses.append(Loss("called-by", place, entry.node.called_by))
        chain.append(ExportEntry(*_told(store, entry, place, losses), entry.id))
    graph = Hierarchy(store.storage.index)
    path = graph.ancestors(store.chains.row(head))
    if write_sides is not None:
        text, lost, held = write_sides(chain, _sides(store, graph, path, losses), title)
        return Exported(text, [*losses, *lost], frozenset(NodeId(Oid(each)) for each in held))
    asked = len(graph.called(path))
    if asked:
        losses.append(Loss("side-chains", "conversation", f"{asked} that it asked for"))
    text, lost = write(chain, title)
    return Exported(text, [*losses, *lost], frozenset())


def is_asked_for(store: Store, head: NodeId) -> bool:
    """Whether a conversation is a side chain: whether any of its messages was asked for by another chain."""
    return Hierarchy(store.storage.index).caller(store.chains.row(head)) is not None


def _sides(store: Store, graph: Hierarchy, path: list[int], losses: list[Loss]) -> list[SideEntry]:
    """The side chains below a chain, what comes first first."""
    parents = graph.asked_below(path).parents
    found: dict[int, Entry] = {}
    for leaf in parents.keys() - set(parents.values()):
        row = leaf
        for entry in store.walk(store.chains.id_of(leaf)):
            if row in found or row not in parents:
                break
            found[row] = entry
            row = parents[row]
    sides = []
    for _, entry in sorted(found.items()):
        node = entry.node
        parent = "" if node.parent == ROOT else node.parent
        told = _told(store, entry, f"message {entry.id}", losses)
        sides.append(SideEntry(*told, entry.id, parent, node.called_by or "", node.tool_call_id))
    return sides


def _told(
    store: Store, entry: Entry, place: str, losses: list[Loss]
) -> tuple[Message, str | None, Mapping[str, Json]]:
    """What a message says, when, and what is noted about it."""
    message = entry.message_or_tombstone
    if isinstance(message, Tombstone):
        losses.append(Loss("erased", place, message.reason))
        message = Message.of("user", "[erased]")
    note = _notes(store, entry.id)
    at = note.get("at")
    kept = {key: value for key, value in note.items() if key not in _OWN}
    return message, at if isinstance(at, str) else None, kept


def _notes(store: Store, node: NodeId) -> Mapping[str, Json]:
    """All that is noted about a node; the first word counts."""
    known: dict[str, Json] = {}
    for note in store.notes(node):
        known = {**note.members, **known}
    return known
