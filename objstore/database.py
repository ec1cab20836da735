"""Loose files, packs and the journal as one mapping from (kind, id) to bytes. Readers take no lock."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import BinaryIO, Final, NamedTuple, TypeVar

from objstore.codec import decode, read_message
from objstore.frames import decompress
from objstore.index import Index, Location
from objstore.journal import JOURNAL, Journal, StoredObject
from objstore.kinds import Kind
from objstore.limits import FRAME_CACHE_BYTES, MAX_OBJECT_BYTES
from objstore.loose import Form, open_loose_payload, read_loose
from objstore.message import Message
from objstore.node import Node
from objstore.pack import PackReader
from objstore.packframe import Frame, Step
from objstore.parsed import parsed_message, weight
from objstore.records import Tombstone
from refs.errors import CorruptFile, CorruptObject, ObjectMissing, StorageFailure
from refs.files import Files
from refs.forks import renew_after_fork
from refs.ids import NodeId, Oid

_T = TypeVar("_T")
_ELSEWHERE_BYTES: Final = FRAME_CACHE_BYTES // 4


class Run(NamedTuple):
    """Part of a chain, oldest first. `frame` holds its lines; a loose `node` comes alone."""

    before: NodeId
    steps: list[Step]
    frame: Frame | None
    loose: Node | None

    def node(self, step: Step) -> Node:
        """The node of a step, called_by and all."""
        if self.loose is not None:
            return self.loose
        assert self.frame is not None
        return self.frame.node(step.line)


class Database:
    """What is stored, read through the index. Every plain object's bytes are checked against its id.

    Raises `ObjectMissing`, `CorruptObject`. `refresh` is called once where a file that the index names is
    gone (a gc or checkpoint of another process moved what was in it), or where an object isn't known (a pack
    may have been copied in); it says whether to look again.
    """

    def __init__(self, files: Files, index: Index, journal: Journal, refresh: Callable[[], bool]) -> None:
        self._files, self._index, self._journal, self._refresh = files, index, journal, refresh
        self._mutex = threading.RLock()
        self._packs: OrderedDict[str, PackReader] = OrderedDict()
        self._frames: OrderedDict[tuple[str, int], Frame] = OrderedDict()
        self._cached = 0
        self._elsewhere = _Elsewhere(None)
        renew_after_fork(self)

    def renew(self) -> None:
        """In a forked child: another thread may have been amidst."""
        self._mutex = threading.RLock()
        self._packs, self._frames, self._cached = OrderedDict(), OrderedDict(), 0
        self._elsewhere = _Elsewhere(None)

    def missing(self, kind: Kind, ids: Iterable[Oid]) -> set[Oid]:
        """Those of `ids` that aren't stored."""
        return self._index.missing(kind, ids)

    def has(self, kind: Kind, oid: Oid) -> bool:
        return self._index.row(kind, oid) is not None

    def read(self, kind: Kind, oid: Oid) -> tuple[Form, bytes]:
        """An object's form and stored bytes; a record's canonical bytes. Not for payloads."""
        return self._at_place(kind, oid, lambda place: self._read_at(kind, oid, place))

    def node(self, oid: Oid) -> Node:
        """A node by its id."""

        def read(place: Location) -> Node:
            if place.pack is None:
                return node_of(oid, self._read_loose(Kind.NODE, oid)[1])
            frame = self.frame(place)
            if frame.node_oid(place.line) != oid:
                raise CorruptObject(Kind.NODE, oid, "the index names a line of another node")
            return frame.node(place.line)

        return self._at_place(Kind.NODE, oid, read)

    def run(self, oid: NodeId) -> Run:
        """As much of the chain that ends in node `oid` as stands together: see `Frame.chain`."""

        def read(place: Location) -> Run:
            if place.pack is None:
                node = node_of(oid, self._read_loose(Kind.NODE, oid)[1])
                return Run(node.parent, [Step(oid, node.message, -1, -1)], None, node)
            frame = self.frame(place)
            before, steps = frame.chain(place.line)
            if steps[-1].oid != oid:
                raise CorruptObject(Kind.NODE, oid, "the index names a line of another node")
            return Run(before, steps, frame, None)

        return self._at_place(Kind.NODE, oid, read)

    def known(self, run: Run) -> list[Message | Tombstone | None]:
        """The messages of a run, None for those that are to be asked for one by one.

        What is decoded is kept as long as its frame is, so the same objects come again.
        """
        elsewhere = self._elsewhere_now() if any(step.message_line < 0 for step in run.steps) else {}
        frame = run.frame
        if frame is None:
            return [elsewhere.get(step.message) for step in run.steps]
        values = frame.values
        made: dict[int, Message | Tombstone] = {}
        size = 0
        for _, oid, _, at in run.steps:
            if at >= 0 and at not in values and frame.lines[at].startswith(b'{"parts":'):
                message = parsed_message(frame.lines[at], oid)
                if message is not None:
                    made[at] = message
                    size += weight(message)
        if made and not self._keep(frame, made, size):
            values = made | values
        return [values.get(at) if at >= 0 else elsewhere.get(oid) for _, oid, _, at in run.steps]

    def message_in(self, frame: Frame, step: Step) -> Message | Tombstone:
        """The message of a step that stands in `frame`."""
        try:
            return self._message_in(frame, step.message_line, step.message)
        except CorruptFile as error:
            raise CorruptObject(Kind.MESSAGE, step.message, str(error)) from error

    def message(self, oid: Oid) -> Message | Tombstone:
        """A message by its id."""
        elsewhere = self._elsewhere

        def read(place: Location) -> Message | Tombstone:
            if place.pack is None:
                return read_message(self._read_loose(Kind.MESSAGE, oid)[1], oid, self.open_payload)
            return self._message_in(self.frame(place), place.line, oid)

        found = self._at_place(Kind.MESSAGE, oid, read)
        elsewhere.add(oid, found)
        return found

    def open_payload(self, oid: Oid) -> BinaryIO:
        """A payload's raw bytes as a stream, checked when its end is reached."""
        return open_loose_payload(self._files, oid)

    def ids(self, kind: Kind) -> Iterator[Oid]:
        """Every stored id of a kind, in order of arrival."""
        for row, loc in self._index.rows(kind):
            yield self.oid_of(kind, row, loc)

    def oid_of(self, kind: Kind, row: int, loc: int) -> Oid:
        """The whole id of the object in a row of the index."""
        for again in (False, True):
            place = self._index.location(loc) if not again else self._index.location_of_row(kind, row)
            if place is None:
                break
            if place.pack is None:
                oid = self._index.loose_oid(kind, row)
                if oid is not None:
                    return oid
                continue
            try:
                return self.oid_at(kind, place)
            except FileNotFoundError:
                self._refresh()
        raise ObjectMissing(kind, f"in row {row} of the index")

    def oid_at(self, kind: Kind, place: Location) -> Oid:
        """The id of what stands at a place in a pack."""
        return oid_in(self.frame(place), kind, place.line)

    def locate(self, kind: Kind, oid: Oid) -> Location:
        """Where an object stands, or `ObjectMissing`."""
        place = self._index.locate(kind, oid)
        if place is None and self._refresh():
            place = self._index.locate(kind, oid)
        if place is None:
            raise ObjectMissing(kind, oid)
        return place

    def frame(self, place: Location) -> Frame:
        """The decoded frame of a place, often from the cache. `FileNotFoundError` if its pack is gone."""
        assert place.pack is not None
        name = (place.pack, place.offset)
        with self._mutex:
            frame = self._frames.get(name)
            if frame is not None:
                self._frames.move_to_end(name)
                return frame
            frame = self._pack(place.pack).frame(place.offset, place.size)
            frame.name = name
            self._frames[name] = frame
            self._cached += frame.weight
            self._evict()
            return frame

    def forget_packs(self) -> None:
        """Close all packs and drop what was decoded of them."""
        with self._mutex:
            for pack in self._packs.values():
                pack.close()
            self._packs.clear()
            self._frames.clear()
            self._cached = 0
            self._elsewhere = _Elsewhere(None)

    close = forget_packs

    def _elsewhere_now(self) -> Mapping[Oid, Message | Tombstone]:
        """Messages that have been read by their ids since the index last changed."""
        try:
            with self._index.reading() as db:
                state = db, db.total_changes, db.execute("PRAGMA data_version").fetchone()
        except (CorruptFile, StorageFailure):  # whoever asks it for a message is told
            return {}
        if state != self._elsewhere.state:
            self._elsewhere = _Elsewhere(state)
        return self._elsewhere.values

    def _message_in(self, frame: Frame, line: int, oid: Oid) -> Message | Tombstone:
        known = frame.values.get(line)
        if known is None:
            found, _, raw = frame.message(line)
            if found == oid:
                known = read_message(raw, oid, self.open_payload)
                self._keep(frame, {line: known}, weight(known))
                return known
        elif (known._id if isinstance(known, Message) else known.id) == oid:
            return known
        raise CorruptObject(Kind.MESSAGE, oid, "its bytes have another hash")

    def _keep(self, frame: Frame, values: Mapping[int, Message | Tombstone], size: int) -> bool:
        """Keep decoded values of `size` bytes beside their lines, if the frame is kept and there is room."""
        with self._mutex:
            if self._frames.get(frame.name) is not frame or frame.weight + size > FRAME_CACHE_BYTES:
                return False
            frame.values.update(values)
            frame.weight += size
            self._cached += size
            self._evict()
        return True

    def _evict(self) -> None:
        while self._cached > FRAME_CACHE_BYTES and len(self._frames) > 1:
            self._cached -= self._frames.popitem(last=False)[1].weight

    def _pack(self, pack: str) -> PackReader:
        reader = self._packs.get(pack)
        if reader is None:
            reader = self._packs[pack] = PackReader(self._files, pack)
            if len(self._packs) > 64:
                self._packs.popitem(last=False)[1].close()
        else:
            self._packs.move_to_end(pack)
        return reader

    def _read_at(self, kind: Kind, oid: Oid, place: Location) -> tuple[Form, bytes]:
        if place.pack is None:
            return self._read_loose(kind, oid)
        frame = self.frame(place)
        form, found = Form.PLAIN, oid
        if kind is Kind.NODE:
            raw, found = frame.node(place.line).canonical(), frame.node_oid(place.line)
        elif kind is Kind.MESSAGE:
            found, form, raw = frame.message(place.line)
        else:
            raw = frame.record(place.line)[1]
            found = record_oid(raw)
        if found != oid:
            raise CorruptObject(kind, oid, "its bytes have another hash")
        return form, raw

    def _read_loose(self, kind: Kind, oid: Oid) -> tuple[Form, bytes]:
        """An object that isn't in a pack: it stands in the journal until a checkpoint makes a file of it."""
        try:
            return read_loose(self._files, kind, oid)
        except (ObjectMissing, CorruptObject):  # or a checkpoint is at it, or was cut short
            found = self._journal.find(kind, oid)
            if found is None:
                raise
            return found.form, unpack(found)

    def _at_place(self, kind: Kind, oid: Oid, read: Callable[[Location], _T]) -> _T:
        for again in (False, True):
            try:
                return read(self.locate(kind, oid))
            except (ObjectMissing, FileNotFoundError) as error:
                # Moved between the look into the index and the look into the file: the index knows better now.
                if again and isinstance(error, FileNotFoundError):
                    raise CorruptObject(kind, oid, f"its file is gone ({error.filename})") from error
                if again:
                    raise
            except CorruptFile as error:
                # A damaged index takes itself away when it is noticed, and is built anew.
                if again or error.path != self._index.path:
                    raise CorruptObject(kind, oid, str(error)) from error
            self._refresh()
        raise AssertionError


class _Elsewhere:
    """Messages by their ids, good for one state of the index: what it names may be erased or moved."""

    def __init__(self, state: object) -> None:
        self.state = state
        self.values: dict[Oid, Message | Tombstone] = {}
        self._left = _ELSEWHERE_BYTES if state is not None else 0

    def add(self, oid: Oid, value: Message | Tombstone) -> None:
        """Take a value that was looked up in this state of the index, or in a later one."""
        size = weight(value) if self._left > 0 else 0
        if 0 < size <= self._left:
            self.values[oid] = value
            self._left -= size


def unpack(stored: StoredObject) -> bytes:
    """The bytes of an object from the journal, checked against its id. Raises `CorruptObject`."""
    try:
        raw = decompress(stored.packed, MAX_OBJECT_BYTES, JOURNAL)
    except CorruptFile as error:
        raise CorruptObject(stored.kind, stored.oid, str(error)) from error
    if stored.form is Form.PLAIN and record_oid(raw) != stored.oid:
        raise CorruptObject(stored.kind, stored.oid, "its bytes have another hash")
    return raw


def oid_in(frame: Frame, kind: Kind, line: int) -> Oid:
    """The id of what a line of a frame stands for."""
    if kind is Kind.NODE:
        return frame.node_oid(line)
    if kind is Kind.MESSAGE:
        return frame.message(line)[0]
    return record_oid(frame.record(line)[1])


def node_of(oid: Oid, raw: bytes) -> Node:
    """A node from its canonical bytes, whose hash has been checked."""
    value = decode(Kind.NODE, raw)
    if not isinstance(value, Node):
        raise CorruptObject(Kind.NODE, oid, "not a node")
    return value


def record_oid(raw: bytes) -> Oid:
    return Oid(sha256(raw).hexdigest())
