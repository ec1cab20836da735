"""A record of the journal: one transaction as bytes (docs/format.md)."""

from __future__ import annotations

import json
import struct
from hashlib import sha256
from typing import Final, NamedTuple

import orjson

from objstore.kinds import Kind
from objstore.loose import Form
from refs.errors import CorruptFile
from refs.ids import Oid, is_oid
from refs.names import check_ref_name
from refs.reflog import ReflogEntry

HEAD: Final = struct.Struct("<4sI16s")  # magic, payload size, checksum
MAGIC: Final = b"DAGR"


class StoredObject(NamedTuple):
    """An object as a record holds it: `packed` is the very content that its loose file will have."""

    kind: Kind
    oid: Oid
    form: Form
    packed: bytes


class Record(NamedTuple):
    """One transaction: its objects, the packs it published before, and its moves (as reflog entries)."""

    objects: tuple[StoredObject, ...]
    packs: tuple[str, ...]
    moves: tuple[ReflogEntry, ...]


def checksum(journal: bytes, at: int, payload: bytes) -> bytes:
    # With the journal's id and the place in it, a record of an earlier life is never taken for a new one.
    return sha256(b"%b%d:%b" % (journal, at, payload)).digest()[:16]


def encode_record(record: Record, journal: bytes, at: int) -> bytes:
    head = {
        "moves": [[e.time, e.ref, e.old, e.new, e.reason] for e in record.moves],
        "objects": [[o.kind.value, o.oid, int(o.form), len(o.packed)] for o in record.objects],
        "packs": record.packs,
    }
    try:
        written = orjson.dumps(head)
    except TypeError:  # a lone surrogate in a reason
        written = json.dumps(head).encode("ascii")
    payload = b"\n".join((written, b"".join([each.packed for each in record.objects])))
    return HEAD.pack(MAGIC, len(payload), checksum(journal, at, payload)) + payload


def decode_payload(payload: bytes, where: str) -> Record:
    head, _, body = payload.partition(b"\n")
    try:
        value = json.loads(head)
        objects, at = [], 0
        for kind, oid, form, size in value["objects"]:
            if not is_oid(oid) or size < 0:
                raise ValueError("an object without an id")
            objects.append(StoredObject(Kind(kind), Oid(oid), Form(form), body[at : at + size]))
            at += size
        moves = tuple(
            ReflogEntry(time, check_ref_name(ref), old and Oid(old), new and Oid(new), reason)
            for time, ref, old, new, reason in value["moves"]
        )
        packs = tuple(pack for pack in value["packs"] if is_oid(pack))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(where, f"a record that can't be read: {error}") from error
    return Record(tuple(objects), packs, moves)
