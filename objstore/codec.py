"""Values to bytes and back. Strict: what isn't exactly the canonical form of one value is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import BinaryIO, Final, TypeVar

from objstore.attachment import Attachment
from objstore.canonical import canonical_and_id
from objstore.jsonvalue import FloatFound, Json, loads, loads_exactly
from objstore.kinds import Kind
from objstore.limits import MAX_OBJECT_BYTES
from objstore.message import Message, attachments_of
from objstore.node import Node
from objstore.parsed import parsed_message
from objstore.records import Call, Description, Note, Tombstone
from refs.errors import CorruptObject, InvalidId, InvalidValue, LimitExceeded
from refs.ids import Oid, PayloadId, parse_oid

Value = Message | Node | Call | Note | Description | Tombstone | bytes
"""What can be stored; bytes are a payload."""

_MESSAGE: Final = Kind.MESSAGE  # looking up a member of an enum costs a quarter of a hash

_Built = TypeVar("_Built", bound="Message | Node | Call | Note | Description | Tombstone")

_RECORDS: Mapping[Kind, type[Call] | type[Note] | type[Description]] = {
    Kind.CALL: Call,
    Kind.NOTE: Note,
    Kind.DESCRIPTION: Description,
}


def encode(value: Value) -> tuple[Kind, Oid, bytes]:
    """(kind, id, canonical bytes) of a value. A tombstone's id is that of the object it stands for.

    Raises `LimitExceeded` for an object that no store would take.
    """
    if isinstance(value, Message):
        written, oid = canonical_and_id(value)
        return _MESSAGE, oid, written
    if isinstance(value, bytes):
        return Kind.PAYLOAD, Oid(sha256(value).hexdigest()), value
    raw = value.canonical()
    if len(raw) > MAX_OBJECT_BYTES:
        raise LimitExceeded("an object", len(raw), MAX_OBJECT_BYTES)
    if isinstance(value, Tombstone):
        return value.kind, value.id, raw
    kind = Kind.NODE if isinstance(value, Node) else value.kind
    return kind, Oid(sha256(raw).hexdigest()), raw


def decode(kind: Kind, raw: bytes) -> Value:
    """The value whose canonical form is exactly `raw`, or `CorruptObject`.

    A message may be a `Tombstone`. A payload is always bytes, whatever it looks like: only its place says
    that a tombstone stands there instead (`decode_tombstone`). `raw` may come from anywhere: a hash check
    alone would let non-canonical twins in, so the value is written again and compared.
    """
    if kind is Kind.PAYLOAD:
        return raw
    return _decode(kind, raw, _build)


def decode_tombstone(kind: Kind, raw: bytes) -> Tombstone:
    """The tombstone of a message or payload whose canonical form is exactly `raw`, or `CorruptObject`."""
    return _decode(kind, raw, _build_tombstone)


def _decode(kind: Kind, raw: bytes, build: Callable[[Kind, Mapping[str, Json]], _Built]) -> _Built:
    reason = "not in canonical form"
    for parse in (loads, loads_exactly):  # what orjson can't hold it changes: then the first try may be wrong
        try:
            value = parse(raw)
            if not isinstance(value, Mapping):
                raise InvalidValue("", "not a JSON object")
            made = build(kind, value)
            if encode(made)[2] == raw:
                return made
        except (InvalidValue, LimitExceeded) as error:
            reason = str(error)
    raise CorruptObject(kind, sha256(raw).hexdigest(), reason)


def _build(kind: Kind, value: Mapping[str, Json]) -> Message | Node | Call | Note | Description | Tombstone:
    if kind is Kind.MESSAGE:
        return _build_tombstone(kind, value) if "tombstone" in value else Message.from_dict(value)
    if kind is Kind.NODE:
        return Node.from_dict(value)
    return _RECORDS[kind].from_dict(value)


def _build_tombstone(kind: Kind, value: Mapping[str, Json]) -> Tombstone:
    made = Tombstone.from_dict(value)
    if made.kind is not kind:
        raise InvalidValue("tombstone.kind", f"stands in the place of a {kind}")
    return made


def record_of(kind: Kind, value: Mapping[str, Json], raw: bytes) -> Call | Note | Description:
    """A call, note or description from its parsed JSON, whose canonical bytes are `raw`; or `CorruptObject`."""
    try:
        return _RECORDS[kind].from_dict(value)
    except InvalidValue as error:
        raise CorruptObject(kind, sha256(raw).hexdigest(), str(error)) from error


def read_message(
    raw: bytes, oid: Oid | None = None, open_payload: Callable[[PayloadId], BinaryIO] | None = None
) -> Message | Tombstone:
    """A message from stored bytes whose hash has been checked: canonical, or condensed with `oid` its id.

    Faster than `decode`: nothing is written again. With `open_payload`, attachments whose bytes stand in a
    payload are read when they are asked for. Raises `CorruptObject`.
    """
    try:
        made = parsed_message(raw, oid) or _read_with_care(raw, open_payload)
    except (InvalidValue, InvalidId) as error:
        raise CorruptObject(Kind.MESSAGE, oid or sha256(raw).hexdigest(), str(error)) from error
    if oid is not None and isinstance(made, Message) and made._id is None:
        object.__setattr__(made, "_id", oid)
    return made


def _read_with_care(raw: bytes, open_payload: Callable[[PayloadId], BinaryIO] | None) -> Message | Tombstone:
    for parse, tell_floats in ((loads, True), (loads_exactly, False)):
        value = parse(raw)
        if open_payload is not None:
            value = _hydrate(value, open_payload)
        try:
            return _read(value, tell_floats)
        except FloatFound:
            continue  # what orjson made a float may be an integer
    raise AssertionError


def _read(value: Json, tell_floats: bool) -> Message | Tombstone:
    if not isinstance(value, dict):
        raise InvalidValue("", "not a JSON object")
    if "tombstone" in value:
        return _build_tombstone(Kind.MESSAGE, value)
    return Message.from_dict(value, tell_floats=tell_floats)


def _hydrate(value: Json, open_payload: Callable[[PayloadId], BinaryIO]) -> Json:
    """Put lazy attachments where a condensed message names payloads."""
    if not isinstance(value, dict) or not isinstance(value.get("parts"), list):
        return value
    return {**value, "parts": [_hydrate_part(part, open_payload) for part in value["parts"]]}


def _hydrate_part(part: Json, open_payload: Callable[[PayloadId], BinaryIO]) -> Json:
    if not isinstance(part, dict):
        return part
    if part.get("type") == "attachment" and "attachment" in part:
        return {**part, "attachment": _lazy(part["attachment"], open_payload)}
    if part.get("type") == "tool_result" and isinstance(part.get("attachments"), list):
        return {**part, "attachments": [_lazy(each, open_payload) for each in part["attachments"]]}
    return part


def _lazy(value: Json, open_payload: Callable[[PayloadId], BinaryIO]) -> Json:
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, dict):
        return value
    payload = content.get("payload")
    if content.keys() != {"payload"} or payload == _EMPTY_PAYLOAD:
        raise InvalidValue("content", "neither base64 nor the id of a payload that holds something")
    where = (value.get("type"), value.get("url"), value.get("path"))
    return Attachment.stored(*where, PayloadId(parse_oid(payload)), open_payload)


_EMPTY_PAYLOAD: Final = sha256(b"").hexdigest()  # no bytes are left out rather than named


def payload_ids(condensed: bytes) -> list[PayloadId]:
    """The payloads that a condensed message names, in order."""
    found: list[PayloadId] = []

    def note(payload: PayloadId) -> BinaryIO:
        raise AssertionError("a payload is not opened to learn its id")

    message = read_message(condensed, None, note)
    if isinstance(message, Message):
        for attachment in attachments(message):
            if attachment.payload is not None:
                found.append(attachment.payload)
    return found


def attachments(message: Message) -> list[Attachment]:
    """All attachments of a message, in order."""
    found: list[Attachment] = []
    for part in message.parts:
        found += attachments_of(part)
    return found
