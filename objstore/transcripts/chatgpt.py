"""ChatGPT exports: the tree of each conversation, with the branches that were edited or tried again.

Read from a folder or ZIP with `conversations.json`, from the shards of 2026 (`conversations-000.json`, …),
from one such file, or from one conversation as the service's interface gives it. What the parts mean is in
`chatgpt_content`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from objstore.jsonvalue import Json
from objstore.message import Message
from objstore.transcripts.assets import Assets
from objstore.transcripts.build import message_or_none, note_of, time_of
from objstore.transcripts.chatgpt_content import HIDDEN_TYPES, fill
from objstore.transcripts.draft import Draft, mapping, sequence, string
from objstore.transcripts.exports import (
    Found,
    is_forked,
    kept_fields,
    newest_leaf,
    read_conversations,
    title_from,
)
from objstore.transcripts.graph import contract, heads_of, plant
from objstore.transcripts.model import Certainty, Entry, ReaderOutput, Skipped, Transcript
from objstore.transcripts.source import Source
from objstore.transcripts.warnings import Warner, bounded
from refs.errors import DagError

FORMAT: Final = "chatgpt"

# A quote in a string is escaped, so these are members of the document and not words of a message.
_MAPPING: Final = re.compile(rb'"mapping"\s*:\s*(?:null|\{\s*(?:\}|"[^"]*"\s*:\s*\{))')
_LIKELY: Final = re.compile(rb'"(?:current_node|conversation_template_id|default_model_slug|content_type)"\s*:')
_Read = tuple[Message, dict[str, Json], str | None]
_ROOT_PARENT: Final = "client-created-root"
_OF_THE_MESSAGE: Final = frozenset({"id", "author", "content", "create_time", "weight", "recipient", "metadata"})
_OF_THE_TRANSCRIPT: Final = frozenset(
    {"id", "conversation_id", "title", "mapping", "current_node", "create_time", "update_time"}
)


def sniff(start: bytes, name: str) -> Certainty:
    """An object with a `mapping` of nodes."""
    if not _MAPPING.search(start):
        return Certainty.NO
    return Certainty.YES if _LIKELY.search(start) or b'"author"' in start else Certainty.MAYBE


def read(source: Source) -> Iterator[ReaderOutput]:
    """The conversations of an export."""
    assets = Assets(source)
    for number, each in enumerate(read_conversations(source, _id_of)):
        yield each if isinstance(each, Skipped) else _transcript(each, number, assets)


def _id_of(value: Json) -> str | None:
    found = mapping(value)
    return string(found.get("conversation_id")) or string(found.get("id")) or None


def _transcript(copies: list[Found], number: int, assets: Assets) -> ReaderOutput:
    best = max(reversed(copies), key=_rank)
    conversation = mapping(best.value)
    title = string(conversation.get("title"))
    if not isinstance(conversation.get("mapping"), dict):
        return Skipped("missing-mapping", best.place, title or "")
    made = Transcript(FORMAT, _id_of(conversation) or f"#{number}", (), place=best.place)
    for copy in copies:
        made.warnings.extend(copy.warnings)
    if len(copies) > 1:
        conversation = {**conversation, "mapping": _merged(best, copies, made)}
    warn = bounded(made.warn)
    entries = _entries(conversation, assets, warn)
    if not entries:
        return Skipped("empty-mapping", best.place, title or "")
    made.entries = entries
    made.created_at = time_of(conversation.get("create_time"))
    made.title = title or title_from(entries)
    made.heads = heads_of(entries, _active(conversation, entries, warn))
    slugs = [slug for entry in entries if (slug := string(entry.note.get("model")))]
    made.model = string(conversation.get("default_model_slug")) or (slugs[-1] if slugs else None)
    if conversation.get("is_archived") is True:
        made.tags = ("archived",)
    return made


def _rank(copy: Found) -> tuple[str, int]:
    value = mapping(copy.value)
    return time_of(value.get("update_time")) or "", len(mapping(value.get("mapping")))


def _merged(best: Found, copies: list[Found], made: Transcript) -> dict[str, Json]:
    """The nodes of all copies: those of the best one, then what only the others have."""
    nodes = dict(mapping(mapping(best.value).get("mapping")))
    for copy in copies:
        if copy is best:
            continue
        made.warn("duplicate-conversation", copy.place, f"the same conversation is at {best.place}")
        for key, node in mapping(mapping(copy.value).get("mapping")).items():
            said, other = (mapping(mapping(each).get("message")).get("content") for each in (nodes.get(key), node))
            if key not in nodes:
                nodes[key] = node
            elif said != other:
                made.warn("duplicate-uuid-conflict", key, f"what {best.place} says is kept")
    return nodes


def _entries(conversation: Mapping[str, Json], assets: Assets, warn: Warner) -> list[Entry]:
    nodes = {key or "-": mapping(node) for key, node in mapping(conversation.get("mapping")).items()}
    parents, inferred = _parents(nodes, warn)
    forest = plant(parents, warn)
    guessed = inferred | forest.inferred
    said = {key: made for key, node in nodes.items() if (made := _said(key, node, assets, warn))}
    above = contract(forest.parents, said)
    entries: list[Entry] = []
    for key in forest.order:
        if key not in said:
            continue
        message, note, at = said[key]
        if not entries:
            note["conversation"] = kept_fields(conversation, _OF_THE_TRANSCRIPT)
        note["inferred_parent"] = above[key] is not None and key in guessed
        entries.append(Entry(key, above[key], message, at, note=note_of(**note)))
    return entries


def _parents(nodes: Mapping[str, Mapping[str, Json]], warn: Warner) -> tuple[dict[str, str | None], set[str]]:
    """Each node's parent, and which of them are guessed.

    A node says it itself, or its parent says so under `children`. Where neither is said anywhere, the
    nodes follow each other as they stand in the file.
    """
    listed: dict[str, str] = {}
    for key, node in nodes.items():
        for child in sequence(node.get("children")):
            if isinstance(child, str) and child != key:
                listed.setdefault(child, key)
    parents: dict[str, str | None] = {}
    for key, node in nodes.items():
        parent = string(node.get("parent")) or listed.get(key)
        parents[key] = None if parent == _ROOT_PARENT and parent not in nodes else parent
    if any(parents.values()) or len(nodes) < 2:
        return parents, set()
    warn("missing-links", next(iter(nodes)), f"{len(nodes)} nodes, none with a parent: taken in the file's order")
    keys = list(nodes)
    return dict(zip(keys, [None, *keys], strict=False)), set(keys[1:])


def _said(key: str, node: Mapping[str, Json], assets: Assets, warn: Warner) -> _Read | None:
    """The node's message, or None where it has none: then its children go to its parent."""
    message = node.get("message")
    if message is None:
        return None
    if not isinstance(message, dict):
        warn("invalid-message", key, "not an object")
        return None
    role = string(mapping(message.get("author")).get("role"))
    if not role:
        warn("missing-role", key, "taken for the user's")
    draft = Draft(role or "user", key, warn)
    try:
        fill(draft, message, assets, warn)
    except DagError as error:
        warn("invalid-message", key, str(error))
        return None
    if not draft.parts:
        warn("empty-content", key, "")
        return None
    made = message_or_none(draft.role, draft.parts, warn, key)
    if made is None:
        return None
    return made, {**draft.note, **_note(key, message)}, time_of(message.get("create_time"))


def _note(key: str, message: Mapping[str, Json]) -> dict[str, Json]:
    author, metadata = mapping(message.get("author")), mapping(message.get("metadata"))
    content_type = string(mapping(message.get("content")).get("content_type"))
    weight, recipient = message.get("weight"), message.get("recipient")
    return {
        **kept_fields(message, _OF_THE_MESSAGE),
        "id": message.get("id") if message.get("id") != key else None,
        "author": kept_fields(author, {"role"}),
        "content_type": content_type if content_type != "text" else None,
        "hidden": metadata.get("is_visually_hidden_from_conversation") is True or content_type in HIDDEN_TYPES,
        "metadata": metadata,
        "model": metadata.get("model_slug"),
        "recipient": recipient if recipient != "all" else None,
        "weight": weight if weight != 1 else None,
    }


def _active(conversation: Mapping[str, Json], entries: Sequence[Entry], warn: Warner) -> str | None:
    """Where the conversation stands: the node it names, or the nearest message above; else the newest leaf."""
    keys = {entry.key for entry in entries}
    nodes = mapping(conversation.get("mapping"))
    at = string(conversation.get("current_node"))
    seen: set[str] = set()
    while at is not None and at not in keys and at in nodes and at not in seen:
        seen.add(at)
        at = string(mapping(nodes[at]).get("parent"))
    if at in keys:
        return at
    newest = newest_leaf(entries)
    if newest is not None and is_forked(entries):
        warn("no-current-leaf", newest, "the newest leaf is taken")
    return newest
