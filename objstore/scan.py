"""From objects to the index: adopting packs, and building the index anew. Verifies all that it reads.

Reading a pack from front to back gives every object's id (they are worked out, not read), so the index needs
nothing but the objects. What can't be read is told through `notice` and passed over: fsck names it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final

from objstore.arrival import Arrival, Value, place_loose, place_packed
from objstore.codec import decode, payload_ids, record_of
from objstore.collector import paused
from objstore.database import record_oid
from objstore.index import Index
from objstore.jsonvalue import dumps
from objstore.kinds import Kind
from objstore.loose import Form, list_loose, read_loose
from objstore.node import Node, plain_node_id
from objstore.pack import PackReader, list_packs, pack_name
from objstore.packframe import PAIRS, Frame
from objstore.plainlines import plain_description, plain_note
from objstore.records import Call, Description, Note
from refs.errors import DagError
from refs.files import Files
from refs.ids import ROOT, MessageId, Oid

Notice = Callable[[str], None]
Progress = Callable[[str, int, int], None]
"""(what, done, in all): called now and then during long work."""

_BATCH: Final = 20_000
_LINES_AT_ONCE: Final = 40000
"""Indexed together: in order, so many keys meet neighbours in the tables. They take about 30 MB."""
_sha256: Any = sha256  # Any: making an Oid of its result would cost a fifth of the hash
_MESSAGE: Final = Kind.MESSAGE  # looking up a member of an enum costs a quarter of a hash
_NODE: Final = Kind.NODE
_arrival: Callable[[tuple[Any, ...]], Arrival] = partial(tuple.__new__, Arrival)  # without a call in Python


def value_of(kind: Kind, form: Form, raw: bytes) -> Value:
    """What the index must know of an object's stored bytes; `CorruptObject` if they aren't what they should be."""
    if kind is Kind.MESSAGE:
        return payload_ids(raw) if form is Form.CONDENSED else None
    if kind is Kind.PAYLOAD:
        return None
    value = decode(kind, raw)
    assert isinstance(value, Node | Call | Note | Description)
    return value


def frame_arrivals(frame: Frame, row: int) -> list[Arrival]:
    """Every object of a frame, as rows for the index. Raises `CorruptFile` or `CorruptObject`."""
    start = place_packed(row, 0)
    messages, nodes = frame.messages, frame.nodes
    arrivals: list[Arrival] = []
    for at, line in enumerate(frame.lines):
        if line.startswith(b'{"parts":'):  # these and nodes of a few forms are nearly all there is
            message = messages.get(at)
            if message is None:
                message = messages[at] = _sha256(line).hexdigest()
            arrivals.append(_arrival((_MESSAGE, message, start + at, None)))
            continue
        pair = PAIRS.get(line)
        if pair is not None:
            before, said = pair
            parent = nodes.get(at - before) if type(before) is int else ROOT
            message = messages.get(at - said)
            if parent is not None and message is not None:
                node = nodes.get(at)
                if node is None:
                    node = nodes[at] = plain_node_id(parent, message)
                arrivals.append(_arrival((_NODE, node, start + at, Node.trusted(parent, MessageId(message)))))
                continue
        arrivals.append(line_arrival(frame, row, at))
    return arrivals


def line_arrival(frame: Frame, row: int, at: int) -> Arrival:
    """The object of one line. Raises `CorruptFile` or `CorruptObject`."""
    kind = frame.kind(at)
    loc = place_packed(row, at)
    if kind is Kind.MESSAGE:
        oid, form, raw = frame.message(at)
        return Arrival(kind, oid, loc, payload_ids(raw) if form is Form.CONDENSED else None)
    if kind is Kind.NODE:
        node, node_id = frame.node_and_oid(at)
        return Arrival(kind, node_id, loc, node)
    short: tuple[Oid, Note | Description] | None = None
    if kind is Kind.NOTE:
        short = plain_note(frame, at)
    elif kind is Kind.DESCRIPTION:
        short = plain_description(frame.line(at))
    return Arrival(kind, short[0], loc, short[1]) if short is not None else record_arrival(frame, row, at)


def record_arrival(frame: Frame, row: int, at: int) -> Arrival:
    """`line_arrival` for a call, note or description, however unusual."""
    kind = frame.kind(at)
    members = frame.record_value(at, kind)
    raw = dumps(members)
    if kind is Kind.DESCRIPTION and raw != frame.line(at):
        raise frame.bad(at, "not in canonical form")
    return Arrival(kind, record_oid(raw), place_packed(row, at), record_of(kind, members, raw))


def adopt_pack(files: Files, index: Index, db: sqlite3.Connection, pack: str, notice: Notice) -> list[Arrival]:
    """Index a pack; what is known already as a loose file is now known to stand here.

    Gives what couldn't be admitted yet, because something before it isn't there.
    """
    left: list[Arrival] = []
    try:
        reader = PackReader(files, pack)
    except (DagError, FileNotFoundError) as error:
        notice(f"{pack_name(pack)} can't be read: {error}")
        return left
    try:
        frames = list(reader.frames())
        first = index.add_pack(db, pack, frames)
        with paused():
            arrivals: list[Arrival] = []
            for number, (offset, size) in enumerate(frames):
                try:
                    arrivals += frame_arrivals(reader.frame(offset, size), first + number)
                except DagError as error:
                    notice(f"a frame is passed over: {error}")
                if len(arrivals) >= _LINES_AT_ONCE or number == len(frames) - 1:
                    left += index.add(db, arrivals)
                    index.take_from_loose(db, arrivals)
                    arrivals = []
    except DagError as error:
        notice(f"{pack_name(pack)} can't be read: {error}")
    finally:
        reader.close()
    return left


def loose_arrivals(files: Files, kind: Kind, notice: Notice) -> Iterator[Arrival]:
    """Every loose object of a kind. Payloads are taken by their name: fsck reads them."""
    for oid, form in list_loose(files, kind):
        try:
            value = None
            if kind is not Kind.PAYLOAD:
                found, raw = read_loose(files, kind, oid)
                value = value_of(kind, found, raw)
            yield Arrival(kind, oid, place_loose(form), value)
        except DagError as error:
            notice(f"a loose object is passed over: {error}")


def fill(
    files: Files,
    index: Index,
    notice: Notice,
    progress: Progress | None = None,
    recorded: Sequence[Arrival] = (),
) -> None:
    """Fill an empty index with everything that is on the disk; `recorded` is what stands in the journal."""
    packs = sorted(list_packs(files), key=lambda pack: (_age(files, pack), pack))
    left: list[Arrival] = []
    for done, pack in enumerate(packs):
        if progress is not None:
            progress("packs", done, len(packs))
        with index.changing() as db:
            left += adopt_pack(files, index, db, pack, notice)
    for kind in (Kind.PAYLOAD, Kind.MESSAGE, Kind.NODE, Kind.DESCRIPTION, Kind.CALL, Kind.NOTE):
        batch: list[Arrival] = []
        for arrival in loose_arrivals(files, kind, notice):
            batch.append(arrival)
            if len(batch) >= _BATCH:
                with index.changing() as db:
                    left += index.add(db, batch)
                batch = []
        batch += [arrival for arrival in recorded if arrival.kind is kind]
        if kind is Kind.NODE:
            batch, left = [*left, *batch], []
        with index.changing() as db:
            left += admit(index, db, batch)
    for arrival in left:
        notice(f"node {arrival.oid} is passed over: something before it is missing")
    with index.changing() as db:
        index.link(db)


def admit(index: Index, db: sqlite3.Connection, arrivals: Sequence[Arrival]) -> list[Arrival]:
    """Admit objects in whatever order they come; gives those that stay out."""
    waiting = _chained(arrivals)
    while waiting:
        left = index.add(db, waiting)
        if len(left) == len(waiting):
            return left
        waiting = left
    return []


def _chained(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """Parents before children where both are among `arrivals`, so that one pass admits them."""
    nodes = {arrival.oid: arrival for arrival in arrivals if isinstance(arrival.value, Node)}
    ordered: dict[Oid, Arrival] = {}
    for start in nodes.values():
        todo = [start]
        while todo:
            arrival = todo[-1]
            assert isinstance(arrival.value, Node)
            before = [
                nodes[oid]
                for oid in (arrival.value.parent, arrival.value.called_by)
                if oid is not None and oid in nodes and oid not in ordered
            ]
            # Ids are hashes of what they name, so there are no cycles.
            if before:
                todo.extend(before)
            else:
                ordered[arrival.oid] = todo.pop()
    return [*(each for each in arrivals if each.oid not in nodes), *ordered.values()]


def _age(files: Files, pack: str) -> float:
    found = files.stat(pack_name(pack))
    return found.st_mtime if found is not None else 0.0
