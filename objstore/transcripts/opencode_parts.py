"""opencode's messages and parts as entries.

A message of the assistant holds its tools' results beside the calls, and what was said after them: it
becomes an answer with calls, a message for each result, the next answer, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from objstore.attachment import Attachment
from objstore.jsonvalue import Json
from objstore.message import ToolCallPart, ToolResultPart, UnknownPart
from objstore.transcripts.anthropic_blocks import FAILED
from objstore.transcripts.build import arguments_of, attachment_of_url, message_or_none, note_of, text_of, time_of
from objstore.transcripts.databases import int_of
from objstore.transcripts.draft import Draft, holds_float, mapping, sequence, string
from objstore.transcripts.exports import kept_fields, title_from
from objstore.transcripts.model import Entry, ReaderOutput, Skipped, SourceCall, Transcript
from objstore.transcripts.warnings import Warner, bounded
from refs.errors import DagError

_EVENTS: Final = frozenset({"step-start", "step-finish", "snapshot", "patch", "retry"})
_PROMPTS: Final = frozenset({"subtask", "compaction", "agent"})
_OF_THE_MESSAGE: Final = frozenset({"id", "sessionID", "role", "time", "modelID", "providerID", "parentID"})
_OF_A_PART: Final = frozenset({"id", "messageID", "sessionID", "type", "text", "metadata"})

CalledBy = tuple[str, str | None]
"""The entry that a chain hangs from, and which tool call in it."""


class Session:
    """Makes the entries of a session and of those that it started. `started` says which call did it."""

    def __init__(self, made: Transcript) -> None:
        self._made = made
        self._warn = bounded(made.warn)
        self._entries: list[Entry] = []
        self._keys: set[str] = set()
        self.started: dict[str, CalledBy] = {}

    def add(
        self,
        messages: Iterable[tuple[Mapping[str, Json], list[Mapping[str, Json]]]],
        info: Mapping[str, Json],
        called_by: CalledBy | None,
    ) -> str | None:
        """Add a session's messages in the order of their times; the key of the last one, or None."""
        about = kept_fields(info, {"id", "title", "time", "share", "data", "summary_diffs"})
        last: str | None = None
        seen: set[str] = set()
        for message, parts in sorted(messages, key=_order):
            message_id = string(message.get("id")) or ""
            if message_id in seen:
                self._warn("duplicate-message", message_id, "the first one is kept")
                continue
            if message_id:
                seen.add(message_id)
            before = last
            for piece in _pieces(message, parts, self._warn):
                if last is None:
                    piece.draft.note["session"] = about
                last = self._entry(piece, last, called_by if last is None else None) or last
            self._call(message, before, last if last != before else None)
        return last

    def _entry(self, piece: _Piece, parent: str | None, called_by: CalledBy | None) -> str | None:
        draft = piece.draft
        message = message_or_none(draft.role, draft.parts, self._warn, draft.place)
        if message is None:
            return None
        key = piece.key
        while key in self._keys:
            key += "+"
        self._keys.add(key)
        for child, call_id in piece.started:
            self.started.setdefault(child, (key, call_id))
        caller, call_id = called_by or (None, None)
        note = note_of(**draft.note)
        self._entries.append(Entry(key, parent, message, piece.at, caller, call_id, note))
        return key

    def _call(self, message: Mapping[str, Json], head_input: str | None, head_output: str | None) -> None:
        model, key = string(message.get("modelID")), string(message.get("id"))
        if message.get("role") != "assistant" or not model or not key:
            return
        if any(call.id == key for call in self._made.calls[-1:]):
            return
        time, tokens, error = (mapping(message.get(name)) for name in ("time", "tokens", "error"))
        started, ended = int_of(time.get("created")), int_of(time.get("completed"))
        self._made.calls.append(
            SourceCall(
                key,
                model,
                head_input,
                head_output,
                started_at=time_of(started),
                duration_ms=ended - started if started and ended and ended >= started else None,
                error=_error(error) if error else None,
                input_tokens=int_of(tokens.get("input")),
                output_tokens=int_of(tokens.get("output")),
                token_details=note_of(**kept_fields(tokens, {"input", "output", "total"})) or None,
            )
        )

    def finish(self) -> ReaderOutput:
        made = self._made
        if not self._entries:
            return Skipped("empty-conversation", made.place, made.title or "")
        unique = {call.id: call for call in reversed(made.calls)}
        made.calls = list(reversed(unique.values()))
        made.entries = self._entries
        if not any(head.active for head in made.heads):
            first, *others = made.heads
            made.heads = [type(first)(first.key, first.label, True, first.title), *others]
        made.model = made.calls[-1].model if made.calls else None
        made.title = made.title or title_from(self._entries)
        return made


def _pieces(message: Mapping[str, Json], parts: list[Mapping[str, Json]], warn: Warner) -> list[_Piece]:
    try:
        return list(_split(message, parts, warn))
    except DagError as error:
        warn("invalid-message", string(message.get("id")) or "-", str(error))
        return []


def _order(message: tuple[Mapping[str, Json], list[Mapping[str, Json]]]) -> tuple[str, str]:
    info = message[0]
    return time_of(mapping(info.get("time")).get("created")) or "", string(info.get("id")) or ""


def _error(error: Mapping[str, Json]) -> str:
    words = string(mapping(error.get("data")).get("message")) or string(error.get("message"))
    return ": ".join(filter(None, (string(error.get("name")), words))) or FAILED


# -- one message ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Piece:
    """What becomes one entry. `started`: (session, call id) of the sessions that its calls started."""

    key: str
    at: str | None
    draft: Draft
    started: list[tuple[str, str | None]] = field(default_factory=list)


def _split(info: Mapping[str, Json], parts: list[Mapping[str, Json]], warn: Warner) -> Iterator[_Piece]:
    """A message as entries: a tool's results end an answer, what follows them begins another."""
    key = string(info.get("id")) or "-"
    at = time_of(mapping(info.get("time")).get("created"))
    note = {
        **kept_fields(info, _OF_THE_MESSAGE),
        "model": info.get("modelID"),
        "provider": info.get("providerID"),
        "asked_by": info.get("parentID"),
    }
    role = string(info.get("role")) or "user"
    piece = _Piece(key, at, Draft(role, key, warn))
    piece.draft.note = {name: value for name, value in note.items() if value is not None}
    results: list[_Piece] = []
    told = False
    for part in parts:
        kind = string(part.get("type"))
        if results and kind != "tool" and (kind not in _EVENTS or kind == "step-start"):
            yield piece
            yield from results
            told = True
            results = []
            piece = _Piece(f"{string(part.get('id')) or key}/{role}", at, Draft(role, key, warn))
            piece.draft.note = {"message": key, "model": info.get("modelID")}
        if kind in _EVENTS:
            piece.draft.note.setdefault("events", []).append(kept_fields(part, _OF_A_PART - {"type"}))
        elif kind == "tool":
            results += _tool(piece, part, at, warn)
        else:
            _add(piece.draft, part)
    if piece.draft.parts:
        yield piece
        yield from results
    elif not told:
        warn("empty-content", key, "")


def _add(draft: Draft, part: Mapping[str, Json]) -> None:
    kind, words = string(part.get("type")), part.get("text")
    if kind == "text" and isinstance(words, str):
        draft.extra(part=kept_fields(part, _OF_A_PART) or None)
        draft.text(words, _sendable(draft, part))
    elif kind == "reasoning" and isinstance(words, str):
        draft.extra(part=kept_fields(part, _OF_A_PART) or None)
        draft.reasoning(words, _sendable(draft, part))
    elif kind == "file" and isinstance(part.get("url"), str):
        draft.extra(part=kept_fields(part, _OF_A_PART | {"url", "mime", "filename"}) or None)
        draft.attach(_file(part))
    elif kind in _PROMPTS:
        draft.parts.append(UnknownPart(kept_fields(part, {"id", "messageID", "sessionID"})))
    else:
        draft.unknown(kept_fields(part, {"id", "messageID", "sessionID"}))


def _file(part: Mapping[str, Json]) -> Attachment:
    made = attachment_of_url(part["url"], string(part.get("mime")))
    name = string(part.get("filename"))
    return Attachment(made.type, made.url, name, made.content) if name else made


def _sendable(draft: Draft, part: Mapping[str, Json]) -> dict[str, Json]:
    """What providers must get back, by provider; the rest of the part's metadata goes into the note."""
    metadata = mapping(part.get("metadata"))
    kept = {name: value for name, value in metadata.items() if isinstance(value, dict) and not holds_float(value)}
    draft.extra(metadata={name: value for name, value in metadata.items() if name not in kept} or None)
    return kept


def _tool(piece: _Piece, part: Mapping[str, Json], at: str | None, warn: Warner) -> list[_Piece]:
    """Add a tool's call to `piece`; its result, where there is one, is a message of its own."""
    draft, state = piece.draft, mapping(part.get("state"))
    name, call_id = string(part.get("tool")) or "", string(part.get("callID"))
    server = mapping(part.get("metadata")).get("providerExecuted") is True
    arguments = arguments_of(state.get("input"), warn, draft.place)
    draft.parts.append(ToolCallPart(name, arguments, call_id, server, _sendable(draft, part)))
    about = mapping(state.get("metadata"))
    child = string(about.get("sessionId")) or string(about.get("sessionID"))
    if child:
        piece.started.append((child, call_id))
    status = state.get("status")
    if status not in ("completed", "error"):
        warn("unanswered-tool-call", draft.place, call_id or name)
        return []
    output = state.get("output") if status == "completed" else state.get("output", state.get("error"))
    attached = [
        _file(each) for each in map(mapping, sequence(state.get("attachments"))) if string(each.get("url"))
    ]
    failed = FAILED if status == "error" else None
    key = f"{string(part.get('id')) or call_id or draft.place}/result"
    time = mapping(state.get("time"))
    result = _Piece(key, time_of(time.get("end")) or at, Draft("tool", draft.place, warn))
    result.draft.note = {**kept_fields(state, {"status", "input", "output", "error", "attachments"})}
    result.draft.parts.append(
        ToolResultPart(name, text_of(output), call_id, server, exception=failed, attachments=attached)
    )
    return [result]
