"""A selection as a pack, in chain order, and the attachments that go beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from objstore.codec import decode, payload_ids
from objstore.kinds import Kind
from objstore.loose import Form, loose_name
from objstore.node import Node
from objstore.pack import Written
from objstore.packwriter import PackWriter
from objstore.records import Call
from objstore.scan import Progress
from objstore.storage import Storage
from objstore.transfer.negotiate import Missing, Selection, ids_in_rows
from refs.files import Files
from refs.ids import ROOT, MessageId, Oid, PayloadId

_NODES_AT_ONCE = 512


@dataclass(slots=True)
class Outgoing:
    """A sealed pack under its temporary name (None where there is nothing to send), and what goes with it."""

    sealed: Written | None = None
    payloads: list[PayloadId] = field(default_factory=list)
    objects: dict[Kind, int] = field(default_factory=dict)

    def bytes(self, source: Files) -> int:
        """What it takes to send all of it."""
        sizes = (source.stat(loose_name(Kind.PAYLOAD, payload)) for payload in self.payloads)
        return sum(found.st_size for found in sizes if found) + (self.sealed.size if self.sealed else 0)

    def discard(self, scratch: Files) -> None:
        """Remove the pack."""
        if self.sealed is not None and self.sealed.temp is not None:
            scratch.remove(self.sealed.temp)


def pack(
    source: Storage, selection: Selection, missing: Missing, scratch: Files, progress: Progress | None = None
) -> Outgoing:
    """Write what was selected into a pack below `scratch`. Raises what reading the source raises."""
    with PackWriter(scratch) as writer:
        return _Packing(source, selection, missing, writer, progress).run()


class _Packing:
    def __init__(
        self,
        source: Storage,
        selection: Selection,
        missing: Missing,
        writer: PackWriter,
        progress: Progress | None,
    ) -> None:
        self._source, self._selection, self._missing, self._writer = source, selection, missing, writer
        self._progress = progress or (lambda what, done, total: None)
        self._messages: set[bytes] = set()
        self._payloads: dict[PayloadId, None] = {}
        self._counts = dict.fromkeys(Kind, 0)

    def run(self) -> Outgoing:
        nodes = self._selection.nodes
        behind = self._by_node()
        for start in range(0, len(nodes), _NODES_AT_ONCE):
            self._progress("pack", start, len(nodes))
            for row, oid, node, gone in self._read(nodes[start : start + _NODES_AT_ONCE]):
                if node.parent == ROOT:
                    self._writer.start_chain()
                if gone:
                    self._message(node.message)
                self._writer.node(oid, node, lambda node=node: self._copy(node.message))  # type: ignore[misc]
                self._counts[Kind.NODE] += 1
                for kind, record in behind.pop(row, ()):
                    self._record(kind, record)
            self._writer.drain()
        for records in behind.values():
            for kind, record in records:
                self._record(kind, record)
        for oid in self._selection.descriptions:
            self._writer.record(Kind.DESCRIPTION, oid, self._source.database.read(Kind.DESCRIPTION, oid)[1])
            self._counts[Kind.DESCRIPTION] += 1
        self._writer.drain()
        absent = self._missing(Kind.PAYLOAD, list(self._payloads))
        payloads = [payload for payload in self._payloads if payload in absent]
        self._counts[Kind.PAYLOAD] = len(payloads)
        return Outgoing(self._writer.seal(), payloads, {kind: n for kind, n in self._counts.items() if n})

    def _by_node(self) -> dict[int, list[tuple[Kind, int]]]:
        """Records by the node that they are to stand behind: so they name it by a few bytes."""
        found: dict[int, list[tuple[Kind, int]]] = {}
        for (kind, row), node in sorted(self._selection.records.items()):
            found.setdefault(node, []).append((kind, row))
        return found

    def _read(self, rows: Sequence[int]) -> Iterator[tuple[int, Oid, Node, bool]]:
        """(row, id, node, whether its message is to be sent) of some nodes."""
        database = self._source.database
        ids = ids_in_rows(self._source, Kind.NODE, rows)
        read = [(row, oid, database.node(oid)) for row, oid in zip(rows, ids, strict=True)]
        gone = self._missing(Kind.MESSAGE, {node.message for _, _, node in read})
        for row, oid, node in read:
            yield row, oid, node, node.message in gone

    def _message(self, oid: MessageId) -> None:
        """A message that the receiver lacks, once."""
        name = bytes.fromhex(oid)
        if name in self._messages:
            return
        self._messages.add(name)
        form, raw = self._source.database.read(Kind.MESSAGE, oid)
        if form is Form.CONDENSED:
            self._payloads.update(dict.fromkeys(payload_ids(raw)))
        self._writer.message(oid, raw, form)
        self._counts[Kind.MESSAGE] += 1

    def _copy(self, oid: MessageId) -> tuple[Form, bytes]:
        """A message that stands in another frame, to be written again where it is short; not what isn't sent."""
        if bytes.fromhex(oid) not in self._messages:
            return Form.CONDENSED, b""
        return self._source.database.read(Kind.MESSAGE, oid)

    def _record(self, kind: Kind, row: int) -> None:
        [oid] = ids_in_rows(self._source, kind, [row])
        raw = self._source.database.read(kind, oid)[1]
        value = decode(kind, raw)
        if isinstance(value, Call):
            if value.instructions is not None and self._missing(Kind.MESSAGE, [value.instructions]):
                self._message(value.instructions)
            if value.tools is not None:
                self._payloads[value.tools] = None
        self._writer.record(kind, oid, raw, value)
        self._counts[kind] += 1
