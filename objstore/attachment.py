"""An attachment: bytes, or where they were said to be. Its `path` and `url` are never opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError
from typing import Any, BinaryIO, NoReturn

from objstore.jsonvalue import dumps_text, text
from objstore.limits import MAX_PAYLOAD_BYTES
from refs.errors import InvalidValue, LimitExceeded
from refs.ids import PayloadId

ContentWriter = Callable[["Attachment"], bytes]
"""Gives the canonical `"content":…` member for an attachment that has content."""


class Attachment:
    """A file beside a message's text: `type` is its media type; `content` its bytes, if they are known.

    Immutable; equal by what it holds. Empty and None are the same. An attachment that comes from a store
    may hold its bytes there until `content` is asked for (which may raise `Redacted`, `ObjectMissing` or
    `CorruptObject`); `payload` is then their id.
    """

    __slots__ = ("_content", "_open", "path", "payload", "type", "url")

    type: str | None
    url: str | None
    path: str | None
    payload: PayloadId | None
    _content: bytes | None
    _open: Callable[[PayloadId], BinaryIO] | None

    def __init__(
        self,
        type: str | None = None,
        url: str | None = None,
        path: str | None = None,
        content: bytes | bytearray | memoryview | None = None,
    ) -> None:
        if content is not None and not isinstance(content, bytes | bytearray | memoryview):
            raise InvalidValue("content", f"bytes are needed, not {content.__class__.__name__}")
        if content is not None and len(content) > MAX_PAYLOAD_BYTES:
            raise LimitExceeded("content", len(content), MAX_PAYLOAD_BYTES)
        self._set(type, url, path, bytes(content) if content else None, None, None)

    @classmethod
    def stored(
        cls,
        type: str | None,
        url: str | None,
        path: str | None,
        payload: PayloadId,
        open_payload: Callable[[PayloadId], BinaryIO],
    ) -> Attachment:
        """An attachment whose bytes stay in a store until they are asked for."""
        made = cls.__new__(cls)
        made._set(type, url, path, None, payload, open_payload)
        return made

    def _set(
        self,
        type: str | None,
        url: str | None,
        path: str | None,
        content: bytes | None,
        payload: PayloadId | None,
        open_payload: Callable[[PayloadId], BinaryIO] | None,
    ) -> None:
        put = object.__setattr__
        put(self, "type", text(type, "type") or None if type is not None else None)
        put(self, "url", text(url, "url") or None if url is not None else None)
        put(self, "path", text(path, "path") or None if path is not None else None)
        put(self, "_content", content)
        put(self, "payload", payload)
        put(self, "_open", open_payload)

    @property
    def content(self) -> bytes | None:
        """The raw bytes, or None. Read from the store each time where they are kept there."""
        if self._open is None or self.payload is None:
            return self._content
        with self._open(self.payload) as stream:
            return stream.read()

    def open(self) -> BinaryIO | None:
        """The raw bytes as a stream where a store keeps them, else None (they are in `content`)."""
        return self._open(self.payload) if self._open is not None and self.payload is not None else None

    @property
    def has_content(self) -> bool:
        """Whether there are bytes, told without loading them."""
        return self._content is not None or self.payload is not None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON, the bytes as standard padded base64."""
        content = self.content
        given = {
            "type": self.type,
            "url": self.url,
            "path": self.path,
            "content": base64_of(content).decode("ascii") if content else None,
        }
        return {key: value for key, value in given.items() if value is not None}

    @classmethod
    def from_dict(cls, value: object) -> Attachment:
        """From `to_dict`'s form; keys that aren't known are dropped. Raises `InvalidValue`."""
        if not isinstance(value, Mapping):
            raise InvalidValue("", f"an object is needed, not {value.__class__.__name__}")
        return cls(value.get("type"), value.get("url"), value.get("path"), content=_bytes_of(value.get("content")))

    def canonical(self, content: ContentWriter) -> bytes:
        """Canonical JSON; `content` writes the member that holds the bytes."""
        members = []
        if self.has_content:
            members.append(content(self))
        if self.path is not None:
            members.append(b'"path":' + dumps_text(self.path))
        if self.type is not None:
            members.append(b'"type":' + dumps_text(self.type))
        if self.url is not None:
            members.append(b'"url":' + dumps_text(self.url))
        return b"{" + b",".join(members) + b"}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Attachment):
            return NotImplemented
        mine, theirs = (self.type, self.url, self.path), (other.type, other.url, other.path)
        if mine != theirs or self.has_content != other.has_content:
            return False
        if self.payload is not None and self.payload == other.payload:
            return True
        return self.content == other.content

    def __hash__(self) -> int:
        return hash((self.type, self.url, self.path, self.has_content))

    def __repr__(self) -> str:
        held = f", payload={self.payload[:8]}…" if self.payload else ""
        held = f", content=<{len(self._content)} bytes>" if self._content else held
        return f"Attachment(type={self.type!r}, url={self.url!r}, path={self.path!r}{held})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"can't assign to {name!r} of an Attachment")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"can't delete {name!r} of an Attachment")

    def __reduce__(self) -> tuple[Any, ...]:
        return Attachment, (self.type, self.url, self.path, self.content)


def base64_of(data: bytes | memoryview) -> bytes:
    """Standard padded base64."""
    from base64 import b64encode  # noqa: PLC0415  1 ms to import, and few messages hold bytes

    return b64encode(data)


def write_base64(attachment: Attachment) -> bytes:
    """The `"content":…` member in full: the contract's form."""
    return b'"content":"' + base64_of(attachment.content or b"") + b'"'


def _bytes_of(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    from base64 import b64decode  # noqa: PLC0415  see `base64_of`

    encoded = text(value, "content")
    try:
        raw = b64decode(encoded, validate=True)
    except ValueError as error:  # binascii.Error is one
        raise InvalidValue("content", "not standard padded base64") from error
    tail = raw[len(raw) - (len(raw) % 3 or 3) :] if raw else b""
    if base64_of(tail).decode("ascii") != encoded[-4:]:
        # Unused bits in the last digit would give two texts for the same bytes.
        raise InvalidValue("content", "not standard padded base64 (unused bits are set)")
    return raw
