"""Canonical bytes and ids of messages: a contract that never changes (docs/format.md).

An attachment's bytes may be large, so there are two more writers of the same form: one that feeds the hash
piece by piece, and one for the *condensed* form a store keeps, in which the base64 of a large attachment is
replaced by the id of a payload object.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, BinaryIO, Final, NamedTuple

import orjson

from objstore.attachment import Attachment, ContentWriter, base64_of, write_base64
from objstore.jsonvalue import Json, dumps, dumps_text
from objstore.limits import CHUNK_BYTES, PAYLOAD_THRESHOLD_BYTES
from objstore.message import Message, TextPart
from refs.ids import MessageId, Oid, PayloadId

_sha256: Any = sha256  # Any: making a MessageId of its result would cost a fifth of the hash
_END: Final = b',"type":"text"}],"role":%b}'
_ENDS: Final = {role: _END % dumps_text(role) for role in ("user", "assistant", "system", "tool", "developer")}


def canonical_message_json(message: Message, include_provider_metadata: bool = True) -> bytes:
    """The canonical UTF-8 JSON of a message, all attachment bytes in it.

    May raise what reading a stored attachment raises: `Redacted`, `ObjectMissing`, `CorruptObject`.
    """
    return _write(message, include_provider_metadata, write_base64)


def message_content_hash(message: Message, include_provider_metadata: bool = True) -> MessageId:
    """The sha256 of the canonical bytes, as 64 hex digits. Remembered in the message itself."""
    if not include_provider_metadata:
        return _hash(message, False)
    known = message._id
    if known is None:
        raw = _write_at_once(message)
        known = _hash(message, True) if raw is None else _sha256(raw).hexdigest()
        object.__setattr__(message, "_id", known)
    return known


def canonical_and_id(message: Message) -> tuple[bytes, MessageId]:
    """`canonical_message_json` and `message_content_hash` in one pass."""
    raw = _write_at_once(message) or _write_in_pieces(message, True, write_base64)
    return raw, message._id or _remember(message, raw)


class Condensed(NamedTuple):
    """A message as a store keeps it: `raw` without the bytes of its `payloads`."""

    oid: MessageId
    raw: bytes
    payloads: tuple[tuple[PayloadId, Attachment], ...]


def condense(message: Message, threshold: int = PAYLOAD_THRESHOLD_BYTES) -> Condensed:
    """The stored form: attachments of `threshold` bytes and more give way to their payload's id.

    Without such attachments `raw` is the canonical form and `payloads` is empty.
    """
    payloads: list[tuple[PayloadId, Attachment]] = []
    raw = _write_at_once(message)
    if raw is not None:
        return Condensed(message._id or _remember(message, raw), raw, ())

    def content(attachment: Attachment) -> bytes:
        payload = attachment.payload
        if payload is None:
            held = attachment.content or b""
            if len(held) < threshold:
                return write_base64(attachment)
            payload = PayloadId(Oid(sha256(held).hexdigest()))
        payloads.append((payload, attachment))
        return b'"content":{"payload":"%b"}' % payload.encode("ascii")

    raw = _write_in_pieces(message, True, content)
    if payloads:
        return Condensed(message_content_hash(message), raw, tuple(payloads))
    return Condensed(message._id or _remember(message, raw), raw, ())


def _remember(message: Message, raw: bytes) -> MessageId:
    oid: MessageId = _sha256(raw).hexdigest()
    object.__setattr__(message, "_id", oid)
    return oid


def _write(message: Message, metadata: bool, content: ContentWriter) -> bytes:
    return _write_at_once(message, metadata) or _write_in_pieces(message, metadata, content)


def _write_at_once(message: Message, metadata: bool = True) -> bytes | None:
    """The bytes as orjson makes them, or None where they would not be the canonical ones."""
    parts = message.parts
    try:
        if len(parts) == 1 and type(parts[0]) is TextPart and not message.provider_metadata:
            part = parts[0]
            if not part.provider_metadata:  # most messages: nothing to ask, nothing to sort
                end = _ENDS.get(message.role) or _END % orjson.dumps(message.role)
                return b'{"parts":[{"text":' + orjson.dumps(part.text) + end
        members = []
        for each in parts:
            if not each.plain:
                return None
            members.append(each.members(metadata))
        value: dict[str, Json] = {"parts": members, "role": message.role}
        if metadata and message.provider_metadata:
            value["provider_metadata"] = message.provider_metadata
        # What orjson gives keeps the room it was written in: 4 KiB for 200 bytes, thousands of times.
        return bytes(memoryview(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)))
    except TypeError:  # an integer beyond 64 bits or a lone surrogate
        return None


def _write_in_pieces(message: Message, metadata: bool, content: ContentWriter) -> bytes:
    role = dumps_text(message.role)
    parts = b",".join([part.canonical(metadata, content) for part in message.parts])
    if metadata and message.provider_metadata:
        return b'{"parts":[%b],"provider_metadata":%b,"role":%b}' % (parts, dumps(message.provider_metadata), role)
    return b'{"parts":[%b],"role":%b}' % (parts, role)


def _hash(message: Message, metadata: bool) -> MessageId:
    large: list[Attachment] = []

    def content(attachment: Attachment) -> bytes:
        held = attachment.content if attachment.payload is None else None
        if held is not None and len(held) < PAYLOAD_THRESHOLD_BYTES:
            return write_base64(attachment)
        large.append(attachment)
        return b'"content":"\0"'  # canonical JSON holds no NUL: it marks where the base64 goes

    raw = _write(message, metadata, content)
    if not large:
        return MessageId(Oid(sha256(raw).hexdigest()))
    pieces = raw.split(b"\0")
    digest = sha256(pieces[0])
    for attachment, piece in zip(large, pieces[1:], strict=True):
        _feed_base64(digest.update, attachment)
        digest.update(piece)
    return MessageId(Oid(digest.hexdigest()))


def _feed_base64(feed: Callable[[bytes], None], attachment: Attachment) -> None:
    """Feed the base64 of an attachment in pieces; CHUNK_BYTES is a multiple of 3, so they join."""
    stream: BinaryIO | None = attachment.open()
    if stream is None:
        view = memoryview(attachment.content or b"")
        for start in range(0, len(view), CHUNK_BYTES):
            feed(base64_of(view[start : start + CHUNK_BYTES]))
        return
    with stream:
        rest = b""  # what a short read leaves over: the next piece begins with it
        while chunk := stream.read(CHUNK_BYTES):
            chunk = rest + chunk
            whole = len(chunk) - len(chunk) % 3
            feed(base64_of(memoryview(chunk)[:whole]))
            rest = chunk[whole:]
        feed(base64_of(rest))
