"""Writing packs anew: which objects, in which order, and the check of what was written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from objstore.database import oid_in
from objstore.index import LINES_PER_FRAME
from objstore.kinds import Kind
from objstore.limits import GIB
from objstore.mark import Graph, Live
from objstore.pack import PackReader, PackWriter, Written, pack_name
from objstore.storage import Storage
from refs.errors import CorruptFile
from refs.files import Files

PACK_TARGET_BYTES: Final = GIB
"""Uncompressed bytes after which another pack is begun."""


class Picker:
    """Says which objects are written anew (loose ones, and those in the frames given), and in which order."""

    def __init__(self, graph: Graph, frames: set[int]) -> None:
        self._graph, self._frames = graph, frames

    def picks(self, loc: int) -> bool:
        return loc < 0 or self.in_source(loc)

    def in_source(self, loc: int) -> bool:
        return loc >= 0 and loc // LINES_PER_FRAME in self._frames

    def in_order(self, live: Live, without: Live | None) -> Iterator[tuple[Kind, int, int]]:
        """(kind, row, loc): each message before its node, notes and calls behind the nodes they name."""
        graph = self._graph
        written = bytearray(without.messages) if without else bytearray(len(graph.message_loc))
        behind, waiting = self._records(live, without)
        done: set[tuple[Kind, int]] = set()
        for row in graph.in_chain_order():
            if not live.nodes[row] or (without and without.nodes[row]) or not self.picks(graph.loc[row]):
                continue
            message = graph.message[row]
            if not written[message]:
                written[message] = 1
                if self.picks(graph.message_loc[message]):
                    yield Kind.MESSAGE, message, graph.message_loc[message]
            yield Kind.NODE, row, graph.loc[row]
            for record in behind.get(row, ()):
                waiting[record] -= 1
                if not waiting[record]:
                    done.add(record)
                    yield (*record, graph.locs[record[0]][record[1]])
        for row in range(len(graph.message_loc)):
            if live.messages[row] and not written[row] and self.picks(graph.message_loc[row]):
                yield Kind.MESSAGE, row, graph.message_loc[row]
        for kind in (Kind.DESCRIPTION, Kind.CALL, Kind.NOTE):
            for row, loc in graph.locs[kind].items():
                if self._wanted(kind, row, live, without) and (kind, row) not in done and self.picks(loc):
                    yield kind, row, loc

    def _wanted(self, kind: Kind, row: int, live: Live, without: Live | None) -> bool:
        return live.holds(kind, row) and not (without and without.holds(kind, row))

    def _records(
        self, live: Live, without: Live | None
    ) -> tuple[dict[int, list[tuple[Kind, int]]], dict[tuple[Kind, int], int]]:
        """Which records follow which nodes, and how many of its nodes each waits for."""
        graph = self._graph
        behind: dict[int, list[tuple[Kind, int]]] = {}
        waiting: dict[tuple[Kind, int], int] = {}

        def wait(kind: Kind, record: int, node: int | None) -> None:
            if node and live.nodes[node] and self.picks(graph.loc[node]) and not (without and without.nodes[node]):
                behind.setdefault(node, []).append((kind, record))
                waiting[kind, record] = waiting.get((kind, record), 0) + 1

        for node, note in zip(graph.note_nodes, graph.note_notes, strict=True):
            if self._wanted(Kind.NOTE, note, live, without) and self.picks(graph.locs[Kind.NOTE][note]):
                wait(Kind.NOTE, note, node)
        for call in graph.calls:
            if self._wanted(Kind.CALL, call.row, live, without) and self.picks(graph.locs[Kind.CALL][call.row]):
                wait(Kind.CALL, call.row, call.answered or call.asked)
        return behind, waiting


class Packer:
    """Reads objects where they stand and writes them into packs of bearable size."""

    def __init__(self, storage: Storage, level: int, *, publish: bool) -> None:
        self._storage, self._level, self._publish = storage, level, publish
        self._writer: PackWriter | None = None
        self.written: list[Written] = []

    def add(self, kind: Kind, row: int, loc: int, *, starts: bool) -> None:
        """One object; `starts` says that a conversation begins with it."""
        database = self._storage.database
        if self._writer is not None and starts and self._writer.raw_bytes > PACK_TARGET_BYTES:
            self.finish()
        if self._writer is None:
            self._writer = PackWriter(self._storage.files, self._level, publish=self._publish)
        oid = database.oid_of(kind, row, loc)
        if kind is Kind.NODE:
            node = database.node(oid)
            if starts:
                self._writer.start_chain()
            self._writer.node(oid, node, lambda: database.read(Kind.MESSAGE, node.message))
        else:
            form, raw = database.read(kind, oid)
            if kind is Kind.MESSAGE:
                self._writer.message(oid, raw, form)
            else:
                self._writer.record(kind, oid, raw)

    def finish(self) -> None:
        """Publish what has been added so far."""
        if self._writer is not None:
            written = self._writer.finish()
            self._writer = None
            if written is not None:
                self.written.append(written)

    def close(self) -> None:
        """Throw away what was not finished."""
        if self._writer is not None:
            self._writer.discard()
            self._writer = None


def verify(files: Files, written: Written) -> None:
    """Read a new pack back: every frame decodes, and every line stands for what was put there."""
    reader = PackReader(files, written.pack)
    wrong = CorruptFile(pack_name(written.pack), "it was not written as it was meant; nothing was deleted")
    try:
        if not reader.verify_name():
            raise wrong
        placed = iter(written.placed)
        for number, (offset, size) in enumerate(reader.frames()):
            frame = reader.frame(offset, size)
            for line in range(len(frame.lines)):
                each = next(placed)
                if (each.frame, each.line, each.oid) != (number, line, oid_in(frame, each.kind, line)):
                    raise wrong
    finally:
        reader.close()
