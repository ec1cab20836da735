"""One object a file: `objects/<kind>s/ab/ab12….zst`, a zstd frame of the bytes that the name is the hash of.

Two forms have a suffix of their own, since their bytes are not those that were hashed: `.condensed.zst` (a
message without its attachments' bytes) and `.tombstone.zst` (what stands where bytes were erased).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from hashlib import sha256
from typing import BinaryIO

from objstore.frames import PayloadReader, decompress
from objstore.kinds import Kind
from objstore.limits import MAX_OBJECT_BYTES, MAX_STORED_BYTES
from refs.errors import CorruptFile, CorruptObject, ObjectMissing
from refs.files import TEMP_PREFIX, Files
from refs.ids import Oid, is_oid


class Form(IntEnum):
    """What stands in an object's file or line."""

    PLAIN = 0  # the bytes that were hashed
    CONDENSED = 1
    TOMBSTONE = 2

    @property
    def suffix(self) -> str:
        return (".zst", ".condensed.zst", ".tombstone.zst")[self]


FOLDERS = {kind: f"objects/{kind.folder}" for kind in Kind}


def loose_name(kind: Kind, oid: str, form: Form = Form.PLAIN) -> str:
    """The file of an object. `oid` has been parsed: it never comes here as text from outside."""
    return f"{FOLDERS[kind]}/{oid[:2]}/{oid}{form.suffix}"


def read_loose(files: Files, kind: Kind, oid: Oid) -> tuple[Form, bytes]:
    """An object's form and stored bytes. Plain bytes are checked against the id.

    Raises `ObjectMissing` and `CorruptObject`. Not for payloads: see `open_loose_payload`.
    """
    for form in Form if kind is Kind.MESSAGE else (Form.PLAIN,):
        name = loose_name(kind, oid, form)
        stored = files.read_or_none(name, MAX_STORED_BYTES)
        if stored is None:
            continue
        try:
            raw = decompress(stored, MAX_OBJECT_BYTES, name)
        except CorruptFile as error:
            raise CorruptObject(kind, oid, error.reason) from error
        if form is Form.PLAIN and sha256(raw).hexdigest() != oid:
            raise CorruptObject(kind, oid, "its bytes have another hash")
        return form, raw
    raise ObjectMissing(kind, oid)


def open_loose_payload(files: Files, oid: Oid) -> BinaryIO:
    """A payload's raw bytes as a stream, or `ObjectMissing`."""
    try:
        handle = files.open_read(loose_name(Kind.PAYLOAD, oid))
    except FileNotFoundError:
        raise ObjectMissing(Kind.PAYLOAD, oid) from None
    return PayloadReader(handle, oid)  # type: ignore[return-value]


def list_loose(files: Files, kind: Kind) -> Iterator[tuple[Oid, Form]]:
    """Every loose object of a kind by its file's name; other files are passed over (fsck names them)."""
    for folder, is_dir in files.entries(FOLDERS[kind]):
        if is_dir and len(folder) == 2:
            for name, _ in files.entries(f"{FOLDERS[kind]}/{folder}"):
                parsed = parse_loose_name(name)
                if parsed is not None and parsed[0].startswith(folder):
                    yield parsed


def parse_loose_name(name: str) -> tuple[Oid, Form] | None:
    """(id, form) from a file's name, or None for a file that isn't an object."""
    oid, _, suffix = name.partition(".")
    if not is_oid(oid) or name.startswith(TEMP_PREFIX):
        return None
    for form in Form:
        if form.suffix == f".{suffix}":
            return Oid(oid), form
    return None
