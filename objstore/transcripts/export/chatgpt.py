"""A `conversations.json` of ChatGPT with one conversation.

There a message is one thing: words, thoughts, a call (its `recipient` is the tool) or a result. A message that
is more becomes several nodes.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from objstore.jsonvalue import Json, thaw
from objstore.message import (
    AttachmentPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
)
from objstore.transcripts.draft import extras_of, mapping, sequence, string
from objstore.transcripts.export.model import ExportEntry, Losses, Written, arguments_text, to_json

_KEPT: Final = ("status", "end_turn", "channel", "update_time")
_HELD: Final = "content_type author recipient weight metadata model hidden id conversation status end_turn channel"
_TEXT_MEMBERS: Final = {
    "code": "text",
    "execution_output": "text",
    "system_error": "text",
    "tether_quote": "text",
    "sonic_webpage": "text",
    "tether_browsing_display": "result",
    "citable_code_output": "output_str",
    "reasoning_recap": "content",
}
"""Where each type of content that holds one text keeps it."""

_Indexed = tuple[int, Part]


def write(chain: Sequence[ExportEntry], title: str | None = None) -> Written:
    """`[{"title": …, "mapping": …, "current_node": …}]`."""
    losses = Losses()
    root = _id(chain[0].node_id if chain else "", -1, 0)
    nodes: dict[str, dict[str, Any]] = {root: {"id": root, "message": None, "parent": None, "children": []}}
    last = root
    for number, entry in enumerate(chain):
        for step, message in enumerate(_messages(entry, number, losses)):
            key = _id(entry.node_id, number, step)
            nodes[last]["children"].append(key)
            message["id"] = string(entry.note.get("id")) or key
            nodes[key] = {"id": key, "message": message, "parent": last, "children": []}
            last = key
    times = [time for entry in chain if (time := _seconds(entry.at)) is not None]
    conversation = {
        "title": title,
        "create_time": times[0] if times else None,
        "update_time": times[-1] if times else None,
        "mapping": nodes,
        "current_node": last,
        "conversation_id": root,
        "id": root,
    }
    losses.about(chain, times=True, held=_HELD)
    return to_json([conversation]), losses


def _id(node_id: str, number: int, step: int) -> str:
    """An id that is the same in every export of the message."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{node_id or number} {number if number < 0 else step}"))


def _seconds(at: str | None) -> float | None:
    return None if at is None else datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp()


def _messages(entry: ExportEntry, number: int, losses: Losses) -> Iterator[dict[str, Any]]:
    groups = list(_groups(entry.message.parts))
    if len(groups) > 1:
        losses.add("parts", number, f"one message written as {len(groups)}")
    for provider in entry.message.provider_metadata:
        losses.add("provider-metadata", number, provider)
    for group in groups:
        yield _message(entry, group, number, losses)


def _groups(parts: Sequence[Part]) -> Iterator[list[_Indexed]]:
    """Parts that can stand in one message: a call or a result alone (and its unknown parts), thoughts, words."""
    group: list[_Indexed] = []
    held = ""
    for index, part in enumerate(parts):
        kind = "thoughts" if isinstance(part, ReasoningPart) else "words"
        if isinstance(part, ToolCallPart | ToolResultPart):
            kind = "tool"
        joins = held == kind != "tool" or (held == "tool" and isinstance(part, UnknownPart | AttachmentPart))
        if group and not joins:
            yield group
            group = []
        if not (group and joins):
            held = kind
        group.append((index, part))
    yield group


def _message(entry: ExportEntry, group: list[_Indexed], number: int, losses: Losses) -> dict[str, Any]:
    note = entry.note
    first = group[0][1] if group else None
    role = entry.message.role
    author: dict[str, Any] = {"role": role, **thaw(mapping(note.get("author")))}
    recipient = "all"
    for _, part in group:
        _tell(part, number, losses)
    if isinstance(first, ToolCallPart):
        recipient = first.name or "unknown"
        author["role"] = "assistant"
    elif isinstance(first, ToolResultPart):
        author = {**author, "role": "tool", **({"name": first.name} if first.name else {})}
    elif role == "tool":
        losses.add("role", number, "'tool' without a result is read as one")
    if author["role"] != role:
        losses.add("role", number, f"{role!r} written as {author['role']!r}")
    return {
        "author": author,
        "create_time": _seconds(entry.at),
        "content": _content(entry, group),
        "status": "finished_successfully",
        "weight": thaw(note.get("weight", 1)),
        "metadata": thaw(mapping(note.get("metadata"))),
        "recipient": recipient,
        **{key: thaw(note[key]) for key in _KEPT if key in note},
    }


def _content(entry: ExportEntry, group: list[_Indexed]) -> Json:
    kind = string(entry.note.get("content_type"))
    first = group[0][1] if group else None
    extras = extras_of(entry.note, group[0][0]) if group else {}
    about = thaw(mapping(extras.get("content")))
    if isinstance(first, UnknownPart) and kind is not None and first.value.get("content_type") == kind:
        return first.to_dict()
    if isinstance(first, ReasoningPart):
        return _thoughts(entry, group, kind)
    if isinstance(first, ToolCallPart):
        written = arguments_text(first, entry.note, group[0][0]) if first.arguments else ""
        language = string(extras.get("language"))
        if len(group) == 1:
            return {"content_type": "code", "language": language or "unknown", "text": written}
        return {"content_type": "multimodal_text", "parts": [written, *_pieces(entry, group[1:])]}
    if isinstance(first, ToolResultPart):
        pointers = [thaw(each) for each in sequence(extras.get("pointers"))]
        if first.exception is not None:
            return {"content_type": "system_error", "name": first.exception, "text": first.output}
        if kind in _TEXT_MEMBERS and not pointers and len(group) == 1:
            return {"content_type": kind, _TEXT_MEMBERS[kind]: first.output, **about}
        if pointers or len(group) > 1:
            pieces = [first.output] if first.output else []
            return {"content_type": "multimodal_text", "parts": [*pieces, *pointers, *_pieces(entry, group[1:])]}
        return {"content_type": "text", "parts": [first.output]}
    pieces = _pieces(entry, group)
    plain = all(isinstance(piece, str) for piece in pieces)
    if kind in _TEXT_MEMBERS and plain and len(pieces) == 1:
        return {"content_type": kind, _TEXT_MEMBERS[kind]: pieces[0]}
    return {"content_type": "text" if plain else "multimodal_text", "parts": pieces}


def _thoughts(entry: ExportEntry, group: list[_Indexed], kind: str | None) -> Json:
    texts = [part.text for _, part in group if isinstance(part, ReasoningPart)]
    if kind == "reasoning_recap" and len(texts) == 1:
        return {"content_type": kind, "content": texts[0]}
    summaries = [string(extras_of(entry.note, index).get("summary")) or "" for index, _ in group]
    thoughts = [{"summary": each, "content": text} for each, text in zip(summaries, texts, strict=True)]
    return {"content_type": "thoughts", "thoughts": thoughts}


def _pieces(entry: ExportEntry, group: list[_Indexed]) -> list[Json]:
    pieces: list[Json] = []
    for index, part in group:
        extras = extras_of(entry.note, index)
        if isinstance(part, TextPart) and "transcription" in extras:
            spoken = thaw(mapping(extras["transcription"]))
            pieces.append({"content_type": "audio_transcription", **spoken, "text": part.text})
        elif isinstance(part, TextPart):
            pieces.append(part.text)
        elif isinstance(part, UnknownPart):
            pieces.append(part.to_dict())
        elif isinstance(part, AttachmentPart) and part.attachment is not None and not extras.get("upload"):
            pointer = thaw(mapping(extras.get("pointer")))
            media = part.attachment.type
            pieces.append(
                pointer
                or {
                    "content_type": "image_asset_pointer",
                    "asset_pointer": part.attachment.url or "unknown",
                    **({"mime_type": media} if media else {}),
                }
            )
    return pieces


def _tell(part: Part, number: int, losses: Losses) -> None:
    """What of a part is not written."""
    lost: dict[str, str | None] = {}
    if isinstance(part, ToolCallPart | ToolResultPart):
        lost = {"tool-call-id": part.tool_call_id, "server-executed": "left out" if part.server_executed else None}
    if isinstance(part, TextPart | ReasoningPart | ToolCallPart | ToolResultPart):
        lost["provider-metadata"] = ", ".join(part.provider_metadata)
    if isinstance(part, ReasoningPart) and part.redacted:
        lost["reasoning"] = "encrypted"
    attached = part.attachments if isinstance(part, ToolResultPart) else ()
    if isinstance(part, AttachmentPart) and part.attachment is not None:
        attached = (part.attachment,)
    if any(each.has_content for each in attached):
        lost["attachment-bytes"] = "they lie beside the file in an export"
    if any(each.path for each in attached):
        lost["attachment-path"] = ", ".join(each.path for each in attached if each.path)
    for kind, text in lost.items():
        if text:
            losses.add(kind, number, text)
