"""Stores to try upkeep on: an old chain, a naive account of what is reachable, and files made older."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from objstore.attachment import Attachment
from objstore.kinds import Kind
from objstore.message import AttachmentPart, Message
from objstore.records import Call
from objstore.store import Store

DAY = 86_400
ULIDS = (f"01J0000000000000000000{i:04d}" for i in range(10_000))


def said(text, role="user"):
    return Message.of(role, text)


def picture(content: bytes):
    return Message("user", (AttachmentPart(Attachment("image/png", content=content)),))


def call(head_input, head_output=None, at="2026-01-02T03:04:05.678Z", **members):
    return Call(
        call=next(ULIDS), model="m", head_input=head_input, head_output=head_output, started_at=at, **members
    )


def everything(store: Store) -> set[tuple[Kind, str]]:
    """All objects that the store says it holds."""
    return {(kind, oid) for kind in Kind for oid in store.storage.database.ids(kind)}


def reachable(store: Store, since: str | None, calls_since: str = "") -> set[tuple[Kind, str]]:
    """What must stay, worked out from the objects' JSON alone, by going over all of them until nothing is new."""
    database = store.storage.database
    read = {kind: {oid: json.loads(store.read_object(kind, oid)) for oid in database.ids(kind)} for kind in NAMING}
    live = {(kind, oid) for _, oid in store.refs() for kind in (Kind.NODE, Kind.DESCRIPTION) if oid in read[kind]}
    for entry in store.reflog():
        if since is None or entry.time >= since:
            live |= {(kind, oid) for oid in (entry.old, entry.new) for kind in NAMING if oid in read[kind]}
    for oid, value in read[Kind.CALL].items():
        nameless = "conversation" not in value or (value["head_input"] == "root" and "head_output" not in value)
        if nameless and value["started_at"] >= calls_since:
            live.add((Kind.CALL, oid))
    while True:
        more = set()
        for kind, oid in live:
            more |= set(_needs(kind, oid, read))
        more |= {(Kind.NOTE, oid) for oid, note in read[Kind.NOTE].items() if _any_live(note["nodes"], live)}
        for oid, value in read[Kind.CALL].items():
            at = value["head_input"] if value["head_input"] != "root" else value.get("head_output")
            if (Kind.NODE, at) in live:
                more.add((Kind.CALL, oid))
        if more <= live:
            return live
        live |= more


NAMING = (Kind.MESSAGE, Kind.NODE, Kind.CALL, Kind.NOTE, Kind.DESCRIPTION)


def _any_live(nodes, live):
    return any((Kind.NODE, node) in live for node in nodes)


def _needs(kind, oid, read):
    if kind is Kind.NODE:
        node = read[kind][oid]
        yield Kind.MESSAGE, node["message"]
        yield from ((Kind.NODE, node[key]) for key in ("parent", "called_by") if node.get(key, "root") != "root")
        for other, value in read[kind].items():
            if value.get("called_by") == oid:
                yield from ((kind, each) for each in _with_descendants(other, read[kind]))
    elif kind is Kind.CALL:
        value = read[kind][oid]
        ends = (value["head_input"], value.get("head_output", "root"))
        yield from ((Kind.NODE, end) for end in ends if end != "root")
        yield from ((Kind.MESSAGE, value[key]) for key in ("instructions",) if key in value)
        yield from ((Kind.PAYLOAD, value[key]) for key in ("tools",) if key in value)
    elif kind is Kind.MESSAGE:
        yield from ((Kind.PAYLOAD, payload) for payload in _payloads(read[kind][oid]))


def _payloads(value):
    if isinstance(value, dict):
        if value.keys() == {"payload"}:
            yield value["payload"]
        for each in value.values():
            yield from _payloads(each)
    elif isinstance(value, list):
        for each in value:
            yield from _payloads(each)


def _with_descendants(oid, nodes):
    found = [oid]
    for each in found:
        found += [child for child, value in nodes.items() if value["parent"] == each]
    return found


def make_older(store: Store, seconds: float) -> None:
    """As if everything in the store had been written `seconds` earlier."""
    then = time.time() - seconds
    for path in Path(store.path).joinpath("objects").rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


def objects_on_disk(store: Store) -> dict[str, tuple[int, int]]:
    """Name -> (inode, time) of all files of objects."""
    return {
        str(path.relative_to(store.path)): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in Path(store.path).joinpath("objects").rglob("*")
        if path.is_file()
    }


def packs(store: Store) -> list[Path]:
    return sorted(Path(store.path).joinpath("objects/pack").glob("*.pack"))
