"""Writing packs anew: which objects, in which order, and the check of what was written."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from objstore.arrival import LINES_PER_FRAME
from objstore.database import oid_in, record_oid
from objstore.kinds import Kind
from objstore.limits import GIB
from objstore.loose import Form
from objstore.mark import Graph, Live
from objstore.node import Node
from objstore.pack import PackReader, Placed, Written, pack_name
from objstore.packframe import Frame
from objstore.packorder import packing_order
from objstore.packwriter import PackWriter
from objstore.plainlines import plain_note
from objstore.records import Note
from objstore.scan import frame_arrivals
from objstore.storage import Storage
from refs.errors import CorruptFile, CorruptObject
from refs.files import Files
from refs.ids import Oid

_ROWS_AT_ONCE: Final = 4096
PACK_TARGET_BYTES: Final = GIB
"""Uncompressed bytes after which another pack is begun."""


class Picker:
    """Says which objects are written anew (loose ones, and those in the frames given), and in which order."""

    def __init__(self, graph: Graph, frames: set[int]) -> None:
        self._graph, self._frames = graph, frames
        self._places: array[int] | None = None

    @property
    def _place(self) -> array[int]:
        """Where each node comes in the order of packing, from 1; 0 for none."""
        if self._places is None:
            self._places = array("q", [0]) * len(self._graph.parent)
            for at, row in enumerate(packing_order(self._graph), start=1):
                self._places[row] = at
        return self._places

    def picks(self, kind: Kind, loc: int) -> bool:
        """Whether an object of this kind at `loc` is written anew. Payloads never are."""
        return kind is not Kind.PAYLOAD and (loc < 0 or self.in_source(loc))

    def in_source(self, loc: int) -> bool:
        return loc >= 0 and loc // LINES_PER_FRAME in self._frames

    def in_order(self, wanted: Live) -> Iterator[tuple[Kind, int, int]]:
        """(kind, row, loc) of what is wanted and picked: each message before its node, records behind theirs."""
        graph = self._graph
        node_locs, message_locs = graph.locs[Kind.NODE], graph.locs[Kind.MESSAGE]
        messages = bytearray(wanted.rows[Kind.MESSAGE])
        behind = [(kind, *self._behind(kind, wanted)) for kind in (Kind.CALL, Kind.NOTE)]
        for row in sorted(wanted.of(Kind.NODE), key=self._place.__getitem__):
            if not self.picks(Kind.NODE, node_locs[row]):
                continue
            message = graph.message[row]
            if messages[message]:
                messages[message] = 0
                if self.picks(Kind.MESSAGE, message_locs[message]):
                    yield Kind.MESSAGE, message, message_locs[message]
            yield Kind.NODE, row, node_locs[row]
            for kind, first, following, _ in behind:
                record = first[row]
                while record:
                    yield kind, record, graph.locs[kind][record]
                    record = following[record]
        left = {kind: rest for kind, _, _, rest in behind}
        left |= {Kind.MESSAGE: messages, Kind.DESCRIPTION: wanted.rows[Kind.DESCRIPTION]}
        for kind, rows in left.items():
            for row, (mark, loc) in enumerate(zip(rows, graph.locs[kind], strict=True)):
                if mark and self.picks(kind, loc):
                    yield kind, row, loc

    def _behind(self, kind: Kind, wanted: Live) -> tuple[array[int], array[int], bytearray]:
        """The first record behind each node, the one after each record, and the records that name no node here.

        A record stands behind the last of its nodes, so that it names all of them by a few bytes.
        """
        graph = self._graph
        rest = bytearray(wanted.rows[kind])
        place, last = self._place, array("q", [0]) * len(rest)
        for node, record in self._names(kind) if any(rest) else ():
            if rest[record] and node and wanted.rows[Kind.NODE][node] and place[node] > place[last[record]]:
                last[record] = node
        first, following = array("q", [0]) * len(graph.parent), array("q", [0]) * len(rest)
        for record in range(len(rest) - 1, 0, -1):
            node = last[record]
            if node and self.picks(Kind.NODE, graph.locs[Kind.NODE][node]):
                rest[record] = 0
                if self.picks(kind, graph.locs[kind][record]):
                    following[record] = first[node]
                    first[node] = record
        return first, following, rest

    def _names(self, kind: Kind) -> Iterator[tuple[int, int]]:
        graph = self._graph
        if kind is Kind.NOTE:
            return ((node, note) for note, first, last in graph.notes for node in range(first, last + 1))
        ends = zip(graph.asked, graph.answered, strict=True)
        return ((answered or asked, row) for row, (asked, answered) in enumerate(ends))


@dataclass(slots=True)
class NewPack:
    """A sealed pack, and where it holds what: rows, and places counted from its first frame."""

    written: Written
    age: float | None
    """The time its file is to have (seconds since 1970); None for now."""
    rows: dict[Kind, array[int]] = field(default_factory=lambda: {kind: array("q") for kind in Kind})
    places: dict[Kind, array[int]] = field(default_factory=lambda: {kind: array("q") for kind in Kind})
    check: bytes = b""
    """sha256 over the ids of all lines."""


class Packer:
    """Reads objects where they stand and writes them into packs of bearable size, under temporary names.

    A context manager: what hasn't been published in the end is removed.
    """

    def __init__(self, storage: Storage, level: int) -> None:
        self._storage, self._level = storage, level
        self._writer: PackWriter | None = None
        self._pack = NewPack(Written("", [], [], 0), None)
        self._check = sha256()
        self._waiting: dict[tuple[Kind, Oid], int] = {}
        self._rows: dict[Kind, dict[Oid, int]] = {kind: {} for kind in Kind}
        self.age: float | None = None
        self.packs: list[NewPack] = []

    def __enter__(self) -> Packer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.discard()
        for pack in self.packs:
            if pack.written.temp is not None:
                self._storage.files.remove(pack.written.temp)

    def add(self, kind: Kind, row: int, loc: int, *, starts: bool) -> None:
        """One object; `starts` says that a conversation begins with it."""
        if self._writer is not None and starts and self._writer.raw_bytes > PACK_TARGET_BYTES:
            self.seal()
        if self._writer is None:
            self._writer = PackWriter(self._storage.files, self._level)
            self._pack = NewPack(Written("", [], [], 0), self.age)
            self._check = sha256()
        database = self._storage.database
        oid, value = self._read(kind, row, loc)
        self._waiting[kind, oid] = row
        rows = self._rows[kind]
        if rows.setdefault(oid, row) != row:
            raise self._misled(kind)
        if len(rows) >= _ROWS_AT_ONCE:
            self._check_rows(kind)
        if isinstance(value, Node):
            node = value
            if starts:
                self._writer.start_chain()
            self._writer.node(oid, node, lambda: database.read(Kind.MESSAGE, node.message))
        elif kind is Kind.MESSAGE:
            self._writer.message(oid, value[1], value[0])
        else:
            self._writer.record(kind, oid, value[1], value[2])
        self._note_places(self._writer.drain())

    def _check_rows(self, kind: Kind) -> None:
        """Whether what was read is what the index has in these rows: else something would be lost for another."""
        rows, self._rows[kind] = self._rows[kind], {}
        if self._storage.index.rows_of(kind, rows) != rows:
            raise self._misled(kind)

    def _misled(self, kind: Kind) -> CorruptFile:
        reason = f"it says wrongly where a {kind} stands; nothing was deleted, and 'dag reindex' makes it anew"
        return CorruptFile(self._storage.index.path, reason)

    def _note_places(self, placed: Iterable[Placed]) -> None:
        """What was written where; copies of messages beside the object itself are only checked."""
        for kind, oid, frame, line in placed:
            self._check.update(oid.encode("ascii"))
            row = self._waiting.pop((kind, oid), None)
            if row is not None:
                self._pack.rows[kind].append(row)
                self._pack.places[kind].append(frame * LINES_PER_FRAME + line)

    def _read(self, kind: Kind, row: int, loc: int) -> tuple[Oid, Node | tuple[Form, bytes, Note | None]]:
        """The id of an object, and what is written of it: a node, or its form, bytes and perhaps value."""
        database = self._storage.database
        # Another process may have moved it meanwhile: then the database finds it by its id.
        with contextlib.suppress(FileNotFoundError):
            place = self._storage.index.location(loc)
            if place.pack is not None:
                frame = database.frame(place)
                if kind is Kind.NODE:
                    node, node_id = frame.node_and_oid(place.line)
                    return node_id, node
                if kind is Kind.MESSAGE:
                    oid, form, raw = frame.message(place.line)
                    return oid, (form, raw, None)
                short = plain_note(frame, place.line) if kind is Kind.NOTE else None
                if short is not None:
                    return short[0], (Form.PLAIN, short[1].canonical(), short[1])
                raw = frame.record(place.line)[1]
                return record_oid(raw), (Form.PLAIN, raw, None)
        oid = database.oid_of(kind, row, loc)
        return oid, database.node(oid) if kind is Kind.NODE else (*database.read(kind, oid), None)

    def seal(self) -> None:
        """Close the pack that is being written, and read it back."""
        if self._writer is None:
            return
        for kind in Kind:
            self._check_rows(kind)
        written = self._writer.seal()
        if written is not None:
            self._note_places(written.placed)
            self._pack.written, self._pack.check = written, self._check.digest()
            self.packs.append(self._pack)
            verify(self._storage.files, self._pack)
        self._writer = None


def verify(files: Files, pack: NewPack) -> None:
    """Read a new pack back: every frame decodes, and every line stands for what was put there."""
    written = pack.written
    reader = PackReader(files, written.pack, written.temp)
    try:
        check = sha256()
        for offset, size in reader.frames():
            frame = reader.frame(offset, size)
            check.update("".join(_ids(frame)).encode("ascii"))
        if not reader.verify_name() or check.digest() != pack.check:
            raise CorruptFile(pack_name(written.pack), "it was not written as it was meant; nothing was deleted")
    finally:
        reader.close()


def _ids(frame: Frame) -> list[Oid]:
    """What each line stands for."""
    try:
        return [each.oid for each in frame_arrivals(frame, 0)]
    except CorruptObject:  # a record that perhaps a later version understands: it was copied as it is
        return [oid_in(frame, frame.kind(line), line) for line in range(len(frame.lines))]
