"""Google AI Studio prompts, as they are saved to Drive: one file, one conversation.

What the model gave back in one go (thoughts, code that it ran, text) lies in several chunks and becomes one
message; so do the pieces of one prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from objstore.attachment import Attachment
from objstore.jsonvalue import Json
from objstore.message import ToolCallPart, ToolResultPart
from objstore.transcripts.build import (
    arguments_of,
    attachment_of_base64,
    message_or_none,
    note_of,
    text_of,
    time_of,
)
from objstore.transcripts.draft import Draft, mapping, sequence, string
from objstore.transcripts.exports import kept_fields, title_from
from objstore.transcripts.graph import heads_of
from objstore.transcripts.jsonfile import read_json
from objstore.transcripts.model import Certainty, Entry, ReaderOutput, Skipped, SourceCall, Transcript, Warn
from objstore.transcripts.source import Source, SourceFile
from objstore.transcripts.warnings import bounded
from refs.errors import DagError

FORMAT: Final = "ai-studio"

_CHUNKS: Final = re.compile(rb'"(?:chunkedPrompt|chunked_prompt)"\s*:\s*\{')
_RUN_SETTINGS: Final = re.compile(rb'"runSettings"\s*:\s*\{')
_ROLES: Final = {"user": "user", "model": "assistant", "system": "system"}
_FILES: Final = {
    "driveDocument": None,
    "driveImage": "image/*",
    "driveVideo": "video/*",
    "driveAudio": "audio/*",
    "youtubeVideo": "video/*",
}
_CODE: Final = "code_execution"
_OK: Final = "OUTCOME_OK"
_SAID: Final = frozenset(
    {"role", "text", "parts", "isThought", "thoughtSignatures", "executableCode", "codeExecutionResult"}
    | {"inlineFile", "inlineData", "inlineImage", "functionCall", "functionResponse", "createTime"}
).union(_FILES)


def sniff(start: bytes, name: str) -> Certainty:
    """An object with a `chunkedPrompt`, or one that was never run and has settings only."""
    if _CHUNKS.search(start):
        return Certainty.YES
    return Certainty.MAYBE if _RUN_SETTINGS.search(start) else Certainty.NO


def split(source: Source) -> list[list[SourceFile]]:
    """Each file by itself."""
    return [[file] for file in source.files()]


def read(source: Source) -> Iterator[ReaderOutput]:
    """A conversation for each file."""
    for file in source.files():
        yield _transcript(file)


def _transcript(file: SourceFile) -> ReaderOutput:
    told: list[Warn] = []
    document = mapping(read_json(file, lambda kind, place, text: told.append(Warn(kind, place, text))))
    prompt = mapping(document.get("chunkedPrompt") or document.get("chunked_prompt"))
    if not prompt:
        first = told[0] if told else Warn("missing-messages", file.name, "no chunkedPrompt")
        return Skipped(first.kind, first.place, first.text)
    name = file.name.rpartition("/")[2].removesuffix(".json")
    # Files from Drive have no id of their own; their name is what tells them apart.
    made = Transcript(FORMAT, string(document.get("id")) or name, (), warnings=told, place=file.name)
    settings = mapping(document.get("runSettings"))
    made.model = (string(settings.get("model")) or "").removeprefix("models/") or None
    made.created_at = time_of(document.get("createTime"))
    entries = _entries(document, prompt, made)
    if not entries:
        return Skipped("empty-conversation", file.name, "")
    made.entries = entries
    title = string(document.get("displayName")) or string(document.get("title"))
    made.title = title or (title_from(entries) if document.get("id") else name)
    made.heads = heads_of(entries)
    if made.model:
        options = kept_fields(settings, {"model"}) or None
        made.calls = [
            SourceCall(entry.key, made.model, entry.parent, entry.key, entry.at, options=options)
            for entry in entries
            if entry.message.role == "assistant"
        ]
    return made


def _entries(document: Mapping[str, Json], prompt: Mapping[str, Json], made: Transcript) -> list[Entry]:
    warn = bounded(made.warn)
    turns: list[tuple[Draft, str | None]] = []
    instruction = document.get("systemInstruction") or document.get("system_instruction")
    if isinstance(instruction, str):
        instruction = {"text": instruction}
    chunks = [{**mapping(instruction), "role": "system"}] if instruction else []
    chunks += [dict(mapping(chunk)) for chunk in sequence(prompt.get("chunks"))]
    pending = sequence(prompt.get("pendingInputs"))
    chunks += [{**mapping(chunk), "pending": True} for chunk in pending if mapping(chunk).get("text")]
    ended = True
    for i, chunk in enumerate(chunks):
        role = _ROLES.get(string(chunk.get("role")) or "user", string(chunk.get("role")) or "user")
        if ended or turns[-1][0].role != role:
            turns.append((Draft(role, string(chunk.get("id")) or f"chunk-{i}", warn), _time(chunk)))
        draft = turns[-1][0]
        try:
            _fill(draft, chunk)
        except DagError as error:
            warn("invalid-message", draft.place, str(error))
        about = kept_fields(chunk, _SAID)
        if about:
            draft.note.setdefault("chunks", []).append(about)
        # A second answer of the model to the same prompt is a message of its own.
        ended = role == "assistant" and bool(chunk.get("finishReason"))
    entries: list[Entry] = []
    for i, (draft, at) in enumerate(turns):
        message = message_or_none(draft.role, draft.parts, warn, draft.place) if draft.parts else None
        if message is None:
            if not draft.parts:
                warn("empty-content", draft.place, "")
            continue
        parent = entries[-1].key if entries else None
        entries.append(Entry(f"m{i}", parent, message, at, note=note_of(**draft.note)))
    return entries


def _time(chunk: Mapping[str, Json]) -> str | None:
    return time_of(chunk.get("createTime") or chunk.get("create_time"))


def _fill(draft: Draft, chunk: Mapping[str, Json]) -> None:
    before = len(draft.parts)
    words, parts = string(chunk.get("text")), sequence(chunk.get("parts"))
    signatures = chunk.get("thoughtSignatures")
    metadata = draft.sendable("google", {"thought_signatures": signatures or None})
    if words is None and parts:
        for part in parts:
            _part(draft, mapping(part), chunk)
    elif words is not None and chunk.get("isThought") is True:
        draft.reasoning(words, metadata)
    elif words:
        draft.text(words, metadata)
    _tools(draft, chunk)
    _files(draft, chunk)
    if len(draft.parts) == before and (more := kept_fields(chunk, {"role", "text", "createTime", "tokenCount"})):
        draft.unknown({"type": "chunk", **more})


def _part(draft: Draft, part: Mapping[str, Json], chunk: Mapping[str, Json]) -> None:
    """One of a chunk's `parts`. They stand in for its `text` where it has none."""
    words = string(part.get("text"))
    if words is not None:
        metadata = draft.sendable("google", {"thought_signature": part.get("thoughtSignature")})
        if part.get("thought") is True or chunk.get("isThought") is True:
            draft.reasoning(words, metadata)
        else:
            draft.text(words, metadata)
    before = len(draft.parts)
    _tools(draft, part)
    _files(draft, part)
    if words is None and len(draft.parts) == before:
        draft.unknown(part)


def _tools(draft: Draft, given: Mapping[str, Json]) -> None:
    code, result = given.get("executableCode"), given.get("codeExecutionResult")
    if isinstance(code, dict):
        draft.parts.append(ToolCallPart(_CODE, _arguments(draft, code), server_executed=True))
    if isinstance(result, dict):
        outcome = string(result.get("outcome"))
        failed = outcome if outcome and outcome != _OK else None
        output = text_of(result.get("output"))
        draft.parts.append(ToolResultPart(_CODE, output, server_executed=True, exception=failed))
    call, response = mapping(given.get("functionCall")), mapping(given.get("functionResponse"))
    if call:
        name = string(call.get("name")) or ""
        given_arguments = call.get("args", call.get("parameters"))
        draft.parts.append(ToolCallPart(name, _arguments(draft, given_arguments), string(call.get("id"))))
    if response:
        output = text_of(response.get("response"))
        draft.parts.append(ToolResultPart(string(response.get("name")) or "", output, string(response.get("id"))))


def _arguments(draft: Draft, given: Json) -> Mapping[str, Json]:
    return arguments_of(given, lambda kind, place, text: draft.warn(kind, text), draft.place)


def _files(draft: Draft, given: Mapping[str, Json]) -> None:
    for key in ("inlineFile", "inlineData", "inlineImage"):
        if key in given:
            file = mapping(given[key])
            attachment = attachment_of_base64(file.get("data"), string(file.get("mimeType")))
            draft.attach_or_keep(attachment, {"type": key, "value": given[key]})
    for key, kind in _FILES.items():
        if key in given:
            file = mapping(given[key])
            file_id = string(file.get("id"))
            if not file_id:
                draft.unknown({"type": key, "value": given[key]})
                continue
            where = (
                "https://www.youtube.com/watch?v=" if key == "youtubeVideo" else "https://drive.google.com/file/d/"
            )
            draft.extra(file={key: file})
            draft.attach(
                Attachment(string(file.get("mimeType")) or kind, where + file_id, string(file.get("name")))
            )
