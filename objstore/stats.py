"""What a store holds and what it takes: objects by kind, bytes raw, stored and on disk, and what was saved."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import zstandard

from objstore.database import Database
from objstore.index import Index
from objstore.indexfile import INDEX
from objstore.journal import JOURNAL
from objstore.kinds import Kind
from objstore.limits import CHUNK_BYTES
from objstore.loose import open_loose_payload
from objstore.pack import list_packs, pack_name
from objstore.storage import Storage
from refs.errors import DagError
from refs.files import Files
from refs.logfiles import REFLOG, is_archive
from refs.names import CONVERSATIONS

LARGEST: Final = 10
"""Conversations that are listed as the largest."""
BLOCK_BYTES: Final = 4096
"""Disk that a loose object takes at least."""

_ROW_BITS: Final = 40  # a place and a row in one integer take a third of the memory of a pair
_ROWS: Final = (1 << _ROW_BITS) - 1

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class ConversationSize:
    """`raw_bytes` of all its messages, with their attachments."""

    name: str
    messages: int
    raw_bytes: int


@dataclass(slots=True)
class Stats:
    """All sizes in bytes. `raw`: uncompressed, each object once; `stored`: the files; `disk`: their blocks."""

    objects: dict[Kind, int] = field(default_factory=dict)
    raw: dict[Kind, int] = field(default_factory=dict)
    packs: int = 0
    pack_stored: int = 0
    pack_disk: int = 0
    packed_objects: int = 0
    loose_objects: int = 0
    loose_stored: int = 0
    loose_disk: int = 0
    payload_stored: int = 0
    payload_disk: int = 0
    index_bytes: int = 0
    journal_bytes: int = 0
    refs_bytes: int = 0
    disk: int = 0
    conversations: int = 0
    chain_messages: int = 0
    """Messages of all conversations, as if each had its own copy; `chain_raw` their bytes."""
    chain_raw: int = 0
    largest: list[ConversationSize] = field(default_factory=list)

    @property
    def dedup_messages(self) -> int:
        """How many messages need not be stored because others are the same."""
        return max(0, self.chain_messages - self.objects[Kind.MESSAGE])

    @property
    def dedup_bytes(self) -> int:
        return max(0, self.chain_raw - self.raw[Kind.MESSAGE] - self.raw[Kind.PAYLOAD])

    @property
    def packing_bytes(self) -> int:
        """Disk that the packed objects would take more as loose files, a block each."""
        return max(0, self.packed_objects * BLOCK_BYTES - self.pack_disk)


def measure(storage: Storage, progress: Progress | None = None) -> Stats:
    """Reads every object's size once. Needs no lock: what is written meanwhile may be counted or not."""
    stats = Stats()
    stats.objects = storage.index.counts()
    _files(storage.files, stats)
    sizes = _sizes(storage, stats, progress or _silent)
    _chains(storage, stats, sizes)
    return stats


def _files(files: Files, stats: Stats) -> None:
    for pack in list_packs(files):
        found = files.stat(pack_name(pack))
        if found is not None:
            stats.packs += 1
            stats.pack_stored += found.st_size
            stats.pack_disk += found.st_blocks * 512
    for name in files.walk(""):
        found = files.stat(name)
        if found is None:
            continue
        stats.disk += found.st_blocks * 512
        if name.startswith("objects/payloads/"):
            stats.payload_stored += found.st_size
            stats.payload_disk += found.st_blocks * 512
        elif name.startswith("objects/") and not name.startswith("objects/pack/"):
            stats.loose_stored += found.st_size
            stats.loose_disk += found.st_blocks * 512
        elif name.startswith(INDEX):
            stats.index_bytes += found.st_size
        elif name == JOURNAL:
            stats.journal_bytes += found.st_size
        elif name.startswith("refs/") or name in ("packed-refs", REFLOG, "HEAD") or is_archive(name):
            stats.refs_bytes += found.st_size


def _sizes(storage: Storage, stats: Stats, progress: Progress) -> dict[Kind, array[int]]:
    """The raw bytes of each message and payload by row; each frame is unpacked once, since places are sorted."""
    sizes = {kind: array("q") for kind in Kind}
    places = []
    for number, kind in enumerate(Kind):
        locs = sorted(loc << _ROW_BITS | row for row, loc in storage.index.rows(kind))
        sizes[kind] = array("q", [0]) * (max((place & _ROWS for place in locs), default=0) + 1)
        places.append(_numbered(locs, number))
    kinds = list(Kind)
    total = sum(stats.objects.values())
    for done, (loc, number, row) in enumerate(heapq.merge(*places)):
        kind = kinds[number]
        size = _raw_size(storage.database, storage.index, storage.files, kind, row, loc)
        sizes[kind][row] = size
        if loc < 0:
            stats.loose_objects += kind is not Kind.PAYLOAD
        else:
            stats.packed_objects += 1
        if done % 2000 == 0:
            progress("sizes", done, total)
    stats.raw = {kind: sum(sizes[kind]) for kind in Kind}
    return sizes


def _numbered(places: list[int], number: int) -> Iterator[tuple[int, int, int]]:
    return ((place >> _ROW_BITS, number, place & _ROWS) for place in places)


def _raw_size(database: Database, index: Index, files: Files, kind: Kind, row: int, loc: int) -> int:
    """The uncompressed bytes of an object, or 0 for one that is gone by now or can't be read: fsck tells."""
    try:
        place = index.location(loc)
        if place.pack is None:
            oid = index.loose_oid(kind, row)
            if oid is None:
                return 0
            if kind is Kind.PAYLOAD:
                with open_loose_payload(files, oid) as stream:
                    return sum(len(chunk) for chunk in iter(lambda: stream.read(CHUNK_BYTES), b""))
            return len(database.read(kind, oid)[1])
        frame = database.frame(place)
        if kind is Kind.NODE:
            return len(frame.node(place.line).canonical())
        if kind is Kind.MESSAGE:
            return len(frame.message(place.line)[2])
        return len(frame.record(place.line)[1])
    except (DagError, FileNotFoundError, zstandard.ZstdError):
        return 0


def _chains(storage: Storage, stats: Stats, sizes: dict[Kind, array[int]]) -> None:
    """How large every conversation is, from the sums along all chains: a parent's row comes before its child's."""
    index, weights = storage.index, sizes[Kind.MESSAGE]
    with index.reading() as db:
        for message, payload in db.execute(
            "SELECT m.message, i.row FROM message_payload m JOIN payload_id i ON i.id = substr(m.payload, 1, 16)"
        ):
            if message < len(weights) and payload < len(sizes[Kind.PAYLOAD]):
                weights[message] += sizes[Kind.PAYLOAD][payload]
        size = db.execute("SELECT coalesce(max(row), 0) + 1 FROM node").fetchone()[0]
        depths, sums = array("q", [0]) * size, array("q", [0]) * size
        for row, parent, message, depth in db.execute(
            "SELECT row, parent, message, depth FROM node WHERE row < ? ORDER BY row", (size,)
        ):
            depths[row] = depth
            sums[row] = sums[parent] + (weights[message] if message < len(weights) else 0)
    found: list[tuple[int, int, str]] = []
    for ref, head in storage.refs.list(CONVERSATIONS):
        head_row = index.row(Kind.NODE, head)
        if head_row is not None and head_row < size:
            stats.conversations += 1
            stats.chain_messages += depths[head_row]
            stats.chain_raw += sums[head_row]
            item = (sums[head_row], depths[head_row], ref.removeprefix(CONVERSATIONS))
            (heapq.heappush if len(found) < LARGEST else heapq.heappushpop)(found, item)
    stats.largest = [ConversationSize(name, depth, raw) for raw, depth, name in sorted(found, reverse=True)]


def _silent(what: str, done: int, total: int) -> None:
    """The progress nobody asked to see."""
