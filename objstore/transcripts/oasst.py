"""Open Assistant: message trees (one a line) and flat rows that name their parents.

All that is known about a message (rank, labels, language, `deleted`) is in its note. The active head is the
end of the best-ranked path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from objstore.jsonvalue import Json
from objstore.limits import MIB
from objstore.message import TextPart
from objstore.transcripts.build import message_or_none, note_of, text_of, time_of
from objstore.transcripts.documents import Document, read_documents
from objstore.transcripts.draft import mapping, sequence, string
from objstore.transcripts.exports import kept_fields, title_from
from objstore.transcripts.graph import children_of, heads_of, plant
from objstore.transcripts.model import Certainty, Entry, ReaderOutput, Skipped, Transcript, Warn
from objstore.transcripts.peek import values_in
from objstore.transcripts.source import Source, SourceFile
from objstore.transcripts.warnings import collector

FORMAT: Final = "oasst"

_HELD_BYTES: Final = 256 * MIB
"""Files up to this size may have their rows in any order; in larger ones each tree's rows stand together."""
_LOOKED_AT: Final = 16  # records: how far a file is looked into to tell its format
_ROLES: Final = {"prompter": "user"}
_IDS: Final = ("message_id", "user_message_id")
_PARENTS: Final = ("parent_id", "parent_message_id")
_TREE: Final = "message_tree_id"
_SAID: Final = frozenset({*_IDS, *_PARENTS, "text", "role", "replies", "created_date", _TREE})


@dataclass(slots=True)
class _Tree:
    id: str | None
    place: str
    rows: dict[str, Mapping[str, Json]] = field(default_factory=dict)
    told: list[Warn] = field(default_factory=list)
    about: Mapping[str, Json] = field(default_factory=dict)

    def add(self, row: Mapping[str, Json], place: str) -> None:
        """A row and its replies, however deep."""
        waiting: list[tuple[Json, str | None]] = [(row, None)]
        while waiting:
            given, above = waiting.pop()
            each = mapping(given)
            key = _first(each, _IDS)
            if key is None:
                self.told.append(Warn("missing-id", place, type(given).__name__))
                continue
            known = self.rows.get(key)
            if known is None:
                self.rows[key] = {_PARENTS[0]: above, **each} if above is not None else each
            elif known.get("text") != each.get("text"):
                self.told.append(Warn("duplicate-id", key, f"{place}: the first one is kept"))
            waiting += [(reply, key) for reply in reversed(sequence(each.get("replies")))]


def _first(row: Mapping[str, Json], keys: Iterable[str]) -> str | None:
    found = (row.get(key) for key in keys)
    return next((str(each) for each in found if each and isinstance(each, str | int)), None)


def sniff(file_start: bytes, name: str) -> Certainty:
    """A tree's `prompt`, or rows with ids, parents and Open Assistant's roles."""
    for value in values_in(file_start)[:_LOOKED_AT]:
        for each in value[:_LOOKED_AT] if isinstance(value, list) else (value,):
            about = mapping(each)
            row = mapping(about.get("prompt")) or about
            if _first(row, _IDS) and string(row.get("role")) in ("prompter", "assistant") and "text" in row:
                return Certainty.YES
    return Certainty.NO


def read(source: Source) -> Iterator[ReaderOutput]:
    """A conversation for each tree."""
    ids: set[str] = set()
    for file in source.files():
        told: list[Warn] = []
        for tree in _trees(file, told):
            yield from _transcripts(tree, ids)
        yield from (Skipped(warn.kind, warn.place, warn.text) for warn in told)


def _trees(file: SourceFile, told: list[Warn]) -> Iterator[_Tree]:
    held = file.size <= _HELD_BYTES
    trees: dict[str | None, _Tree] = {}
    documents = read_documents(file, collector(told))
    for document in documents:
        place, about = document.place or file.name, mapping(document.value)
        if (prompt := mapping(about.get("prompt"))) and _first(prompt, _IDS):
            tree = _Tree(
                _first(about, (_TREE,)), f"{file.name}, {place}", about=kept_fields(about, {"prompt", _TREE})
            )
            tree.add(prompt, place)
            yield tree
        elif (row := _row(document)) is None:
            told.append(Warn("not-a-message", place, ""))
        elif row.get("replies") and _first(row, _PARENTS) is None:
            tree = _Tree(_first(row, (_TREE,)), f"{file.name}, {place}")
            tree.add(row, place)
            yield tree
        else:
            tree_id = _first(row, (_TREE,))
            if not held and tree_id is not None and tree_id not in trees:
                yield from trees.values()
                trees.clear()
            trees.setdefault(tree_id, _Tree(tree_id, f"{file.name}, {place}")).add(row, place)
    yield from trees.values()


def _row(document: Document) -> Mapping[str, Json] | None:
    row = mapping(document.value)
    return row if _first(row, _IDS) is not None else None


def _transcripts(tree: _Tree, ids: set[str]) -> Iterator[ReaderOutput]:
    """A transcript for each root: rows that name no tree may hold many."""
    told = tree.told

    warn = collector(told)
    forest = plant({key: _first(row, _PARENTS) for key, row in tree.rows.items()}, warn, attach_dangling=False)
    root_of: dict[str, str] = {}
    below: dict[str, list[str]] = {}
    for key in forest.order:
        parent = forest.parents[key]
        root_of[key] = key if parent is None else root_of[parent]
        below.setdefault(root_of[key], []).append(key)
    for root, keys in below.items():
        tree_id = tree.id if tree.id is not None and len(below) == 1 else root
        if tree_id in ids:
            yield Skipped("duplicate-conversation", tree.place, tree_id[:80])
            continue
        ids.add(tree_id)
        made = Transcript(FORMAT, tree_id, (), place=tree.place)
        made.warnings = [each for each in told if root_of.get(each.place, forest.order[0]) == root]
        entries = _entries(tree, keys, forest.parents, made)
        if not entries:
            yield Skipped("no-messages", tree.place, tree_id[:80])
            continue
        made.entries, made.title = entries, title_from(entries)
        made.created_at = entries[0].at
        made.heads = heads_of(entries, _best(entries))
        yield made


def _entries(tree: _Tree, keys: Iterable[str], parents: Mapping[str, str | None], made: Transcript) -> list[Entry]:
    entries: list[Entry] = []
    kept: dict[str | None, str | None] = {None: None}
    for key in keys:
        row, parent = tree.rows[key], kept[parents[key]]
        role = string(row.get("role")) or "user"
        parts = [TextPart(text_of(row.get("text")))]
        message = message_or_none(_ROLES.get(role, role), parts, made.warn, key)
        kept[key] = parent
        if message is not None:
            kept[key] = key
            about = {} if entries else {"tree": tree.about}
            note = note_of(**kept_fields(row, _SAID), **about)
            entries.append(Entry(key, parent, message, time_of(row.get("created_date")), note=note))
    return entries


def _best(entries: list[Entry]) -> str:
    """The end of the path that takes the best-ranked answer each time; deleted ones come last."""
    below = children_of({entry.key: entry.parent for entry in entries})
    notes = {entry.key: entry.note for entry in entries}
    key = entries[0].key
    while children := below.get(key):
        key = min(children, key=lambda each: (notes[each].get("deleted") is True, _rank(notes[each])))
    return key


def _rank(note: Mapping[str, Json]) -> float:
    rank = note.get("rank")
    return rank if isinstance(rank, int | float) else float("inf")
