"""OpenTelemetry GenAI traces: conversations put together from calls that each repeat their history.

Calls of one conversation (or session, or trace) become one tree: what was said before at the same place is
one entry, several choices are siblings. System instructions that travel outside the messages are kept with
each call and in the note of the first message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from objstore.attachment import Attachment
from objstore.jsonvalue import Json
from objstore.message import ToolCallPart, ToolResultPart
from objstore.transcripts.api import count_of
from objstore.transcripts.build import attachment_of_base64, text_of
from objstore.transcripts.chains import Chain, Spoken
from objstore.transcripts.chat_messages import read_chat_message
from objstore.transcripts.documents import read_documents
from objstore.transcripts.draft import Draft, mapping, sequence, string
from objstore.transcripts.model import Certainty, Entry, ReaderOutput, Skipped, SourceCall, Transcript, Warn
from objstore.transcripts.otel_spans import Told, calls_in, conversation_of
from objstore.transcripts.peek import values_in
from objstore.transcripts.source import Source
from objstore.transcripts.warnings import Warner, collector

FORMAT: Final = "otel"

_REQUEST: Final = "gen_ai.request."
_TOKENS: Final = (
    ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
    ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
)
_ROOTS: Final = ("resourceSpans", "resourceLogs", "resource_spans")


@dataclass(slots=True)
class _Conversation:
    transcript: Transcript
    chain: Chain
    entries: list[Entry] = field(default_factory=list)
    active: str | None = None
    active_since: str = ""


def sniff(file_start: bytes, name: str) -> Certainty:
    """An export of spans or log records that speak of `gen_ai`."""
    values = values_in(file_start)
    first = values[0][0] if values and isinstance(values[0], list) and values[0] else next(iter(values), None)
    about = mapping(first)
    exported = any(key in about for key in _ROOTS)
    if not exported and "attributes" not in about and "spans" not in about and "scopeSpans" not in about:
        return Certainty.NO
    if b"gen_ai." in file_start:
        return Certainty.YES
    return Certainty.MAYBE if exported else Certainty.NO


def read(source: Source) -> Iterator[ReaderOutput]:
    """The conversations of all files of `source` together: one may lie in several."""
    conversations: dict[str, _Conversation] = {}
    for file in source.files():
        told: list[Warn] = []
        found = False
        for document in read_documents(file, collector(told)):
            for number, call in enumerate(calls_in(document.value)):
                if call.sent or call.answers:
                    found = True
                    place = " ".join(filter(None, (document.place, call.span and f"span {call.span}")))
                    _add(conversations, call, place or f"call {number + 1}", file.name)
        yield from (Skipped(warn.kind, f"{file.name}, {warn.place}", warn.text) for warn in told)
        if not found and not told:
            yield Skipped("no-messages", file.name, "no span holds what was said")
    for conversation in conversations.values():
        if conversation.entries:
            conversation.chain.finish(conversation.active)
            conversation.transcript.entries = conversation.entries
            yield conversation.transcript
        else:
            yield Skipped("no-messages", conversation.transcript.place, conversation.transcript.id[:80])


def _add(conversations: dict[str, _Conversation], call: Told, place: str, name: str) -> None:
    conversation_id = conversation_of(call) or name
    conversation = conversations.get(conversation_id)
    if conversation is None:
        transcript = Transcript(FORMAT, conversation_id, (), place=name)
        conversation = conversations[conversation_id] = _Conversation(transcript, Chain(transcript, merge=True))
    transcript, chain, entries = conversation.transcript, conversation.chain, conversation.entries
    model = string(call.attributes.get("gen_ai.request.model")) or string(
        call.attributes.get("gen_ai.response.model")
    )
    transcript.model = transcript.model or model
    transcript.created_at = transcript.created_at or call.started_at
    names: dict[str, str] = {}
    chain.again()
    sent = _messages(call, call.sent, place, transcript.warn, names)
    entries += chain.follow(_noted(sent, call, not entries))
    asked_at, output = chain.last, None
    for answer in call.answers:
        chain.last = asked_at
        entries += chain.follow(_messages(call, [answer], place, transcript.warn, names, answered=True))
        chain.end()
        output = output or (chain.last if chain.last != asked_at else None)
    if not call.answers:
        chain.end()
    if (call.started_at or "") >= conversation.active_since and (output or asked_at):
        conversation.active, conversation.active_since = output or asked_at, call.started_at or ""
    made = _call(call, model, asked_at, output)
    if made is not None and all(made.id != known.id for known in transcript.calls):
        transcript.calls.append(made)


def _noted(sent: Iterator[Spoken], call: Told, first: bool) -> Iterator[Spoken]:
    for spoken in sent:
        if first and call.instructions:
            spoken.draft.note["instructions"] = call.instructions
        first = False
        yield spoken


def _call(call: Told, model: str | None, asked_at: str | None, output: str | None) -> SourceCall | None:
    attributes = call.attributes
    call_id = string(attributes.get("gen_ai.response.id")) or call.span
    if not call_id:
        return None
    options: dict[str, Json] = {
        key.removeprefix(_REQUEST): value
        for key, value in attributes.items()
        if key.startswith(_REQUEST) and key != "gen_ai.request.model"
    }
    if call.instructions:
        options["system_instructions"] = call.instructions
    tokens = [next((attributes[key] for key in keys if key in attributes), None) for keys in _TOKENS]
    return SourceCall(
        call_id,
        model or "unknown",
        asked_at,
        output,
        call.started_at,
        call.duration_ms,
        call.error,
        count_of(tokens[0]),
        count_of(tokens[1]),
        resolved_model=string(attributes.get("gen_ai.response.model")),
        options=options or None,
    )


def _messages(
    call: Told, messages: list[Json], place: str, warn: Warner, names: dict[str, str], answered: bool = False
) -> Iterator[Spoken]:
    at = call.ended_at or call.started_at if answered else call.started_at
    for number, given in enumerate(messages):
        where = f"{place} {'answer' if answered else 'message'} {number + 1}"
        message = mapping(given)
        if not message:
            warn("not-a-message", where, type(given).__name__)
        elif call.chat or "parts" not in message:
            if (draft := read_chat_message(message, where, warn, names)) is not None:
                yield Spoken(draft, at)
        else:
            yield Spoken(_message(message, where, warn, names), at)


def _message(message: Mapping[str, Json], place: str, warn: Warner, names: dict[str, str]) -> Draft:
    draft = Draft(string(message.get("role")) or "user", place, warn)
    parts = message.get("parts")
    for part in sequence(parts) if isinstance(parts, list) else [parts]:
        _part(draft, part, names)
    draft.note |= {key: value for key, value in message.items() if key not in ("role", "parts")}
    return draft


def _part(draft: Draft, given: Json, names: dict[str, str]) -> None:
    part = mapping(given)
    kind, part_id = string(part.get("type")), string(part.get("id"))
    content = part.get("content")
    if isinstance(given, str):
        draft.text(given)
    elif kind == "text" and isinstance(content, str):
        draft.text(content)
    elif kind == "reasoning" and isinstance(content, str):
        draft.reasoning(content)
    elif kind == "tool_call":
        name = names[part_id or ""] = string(part.get("name")) or ""
        draft.call(name, part.get("arguments"), part_id)
    elif kind == "tool_call_response":
        output = text_of(part.get("response", part.get("result")))
        draft.parts.append(ToolResultPart(names.get(part_id or "", ""), output, part_id))
    elif kind == "server_tool_call":
        name = names[part_id or ""] = string(part.get("name")) or ""
        draft.parts.append(ToolCallPart(name, mapping(part.get(kind)), part_id, True))
    elif kind == "server_tool_call_response":
        output = text_of(part.get(kind))
        draft.parts.append(ToolResultPart(names.get(part_id or "", ""), output, part_id, True))
    elif kind in ("blob", "uri", "file", "file_data"):
        draft.attach_or_keep(_attachment(part), given)
    else:
        draft.unknown(given)


def _attachment(part: Mapping[str, Json]) -> Attachment | None:
    modality = string(part.get("modality"))
    media = string(part.get("mime_type")) or (f"{modality}/*" if modality else None)
    data = part.get("content", part.get("data"))
    if isinstance(data, str):
        return attachment_of_base64(data, media)
    url = next((each for each in map(string, map(part.get, ("uri", "file_uri", "file_id"))) if each), None)
    return Attachment(media, url=url) if url else None
