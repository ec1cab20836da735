"""What all generations of `llm`'s log share: attachments and usage; and messages as 0.36 stores them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from objstore.attachment import Attachment
from objstore.jsonvalue import Json, loads_exactly
from objstore.message import Message, Part, UnknownPart
from objstore.transcripts.build import message_or_none, note_of, time_of
from objstore.transcripts.databases import Database, Row, Value, int_of, text_of
from objstore.transcripts.draft import holds_float, mapping, sequence
from objstore.transcripts.model import SourceCall
from objstore.transcripts.warnings import Warner
from refs.errors import InvalidValue


def object_in(value: Value, place: str, warn: Warner) -> Mapping[str, Json]:
    """A column of JSON text as an object; an empty one where it is anything else."""
    written = text_of(value)
    if not written:
        return {}
    try:
        found = loads_exactly(written.encode("utf-8", "surrogatepass"))
    except InvalidValue as error:
        warn("invalid-json", place, str(error))
        return {}
    return mapping(found)


def call_of(row: Row, head_input: str | None, head_output: str | None) -> SourceCall:
    """The LLM call that a turn or a response tells of."""

    def no_warning(kind: str, place: str, text: str) -> None:
        """Usage and options that can't be read are not worth one."""

    return SourceCall(
        text_of(row["id"]) or "-",
        text_of(row["model"]) or "unknown",
        head_input,
        head_output,
        started_at=time_of(text_of(row["datetime_utc"])),
        duration_ms=int_of(row["duration_ms"]),
        input_tokens=int_of(row["input_tokens"]),
        output_tokens=int_of(row["output_tokens"]),
        token_details=note_of(**object_in(row["token_details"], "-", no_warning)) or None,
        resolved_model=text_of(row["resolved_model"]) or None,
        options=note_of(**object_in(row["options_json"], "-", no_warning)) or None,
    )


def attachments_of(database: Database, ids: Iterable[Value], place: str, warn: Warner) -> list[Attachment]:
    """Attachments by their ids; those that aren't there are told."""
    made = []
    for key in ids:
        row = next(iter(database.rows("attachments", ("type", "path", "url", "content"), {"id": key})), None)
        if row is None:
            warn("missing-attachment", place, text_of(key) or "")
            continue
        content = row["content"]
        if isinstance(content, str):
            content = content.encode("utf-8", "surrogatepass")
        kind, path, url = (text_of(row[name]) for name in ("type", "path", "url"))
        made.append(Attachment(kind, url, path, content if isinstance(content, bytes) else None))
    return made


def fragments_of(database: Database, ids: Iterable[Value], place: str, warn: Warner) -> list[str]:
    """The texts of fragments by their ids; those that aren't there are told."""
    made = []
    for key in ids:
        row = next(iter(database.rows("fragments", ("content",), {"id": key})), None)
        if row is None:
            warn("missing-fragment", place, text_of(key) or "")
        made.append((text_of(row["content"]) or "") if row is not None else "")
    return made


def read_message(database: Database, row: Row, key: str, warn: Warner) -> tuple[Message, dict[str, Json]]:
    """A row of `messages` with its parts, and what of it belongs into the note."""
    note: dict[str, Json] = {}
    columns = ("type", "tool_name", "text", "payload")
    rows = list(database.rows("parts", columns, {"message_hash": key}, ("position",)))
    parts = [_part(database, part, i, key, note, warn) for i, part in enumerate(rows)]
    metadata = _sendable(object_in(row["provider_metadata"], key, warn), note)
    message = message_or_none(text_of(row["role"]) or "user", parts, warn, key, metadata)
    return message if message is not None else Message("user", parts), note


def _sendable(metadata: Mapping[str, Json], note: dict[str, Json]) -> dict[str, Json]:
    """provider_metadata without the members that hold floats: those go into the note."""
    floats = {name: value for name, value in metadata.items() if holds_float(value)}
    if floats:
        note.setdefault("provider_metadata", []).append(floats)
    return {name: value for name, value in metadata.items() if name not in floats}


def _part(database: Database, row: Row, i: int, key: str, note: dict[str, Json], warn: Warner) -> Part:
    given: dict[str, Any] = {**object_in(row["payload"], key, warn), "type": text_of(row["type"]) or "unknown"}
    if row["text"] is not None:
        given["text"] = text_of(row["text"])
    if "text_ref" in given:
        given["text"] = _text(database, given.pop("text_ref"), key, warn)
    kind = given["type"]
    metadata = _sendable(mapping(given.pop("provider_metadata", None)), note)
    if metadata and kind == "attachment":  # an attachment has no place for it
        note.setdefault("parts", {})[str(i)] = {"provider_metadata": metadata}
    elif metadata:
        given["provider_metadata"] = metadata
    if kind == "attachment" and (ids := _ids([given.get("attachment")])):
        given["attachment"] = next(iter(attachments_of(database, ids, key, warn)), None)
    if kind == "tool_result" and (ids := _ids(given.get("attachments"))):
        given["attachments"] = attachments_of(database, ids, key, warn)
    try:
        part = Part.from_dict(given)
    except InvalidValue as error:
        warn("invalid-part", key, str(error))
        return _kept(row)
    if isinstance(part, UnknownPart):
        warn("unknown-part", key, kind)
    return part


def _kept(row: Row) -> Part:
    """A part that can't be what it says it is, as its columns."""
    return UnknownPart({"type": "unknown", "value": {name: text_of(value) for name, value in row.items()}})


def _ids(references: Json) -> list[Value]:
    found = (mapping(each).get("id") for each in sequence(references))
    return [each for each in found if isinstance(each, str | int)]


def _text(database: Database, pieces: Json, key: str, warn: Warner) -> str:
    """Text that is stored as pieces: literal ones, and references to fragments."""
    words = []
    for piece in map(mapping, sequence(pieces)):
        literal, fragment = piece.get("literal"), piece.get("fragment")
        if isinstance(literal, str):
            words.append(literal)
        elif isinstance(fragment, str | int):
            words += fragments_of(database, [fragment], key, warn)
    return "".join(words)
