"""Loose files, packs and the journal as one mapping from (kind, id) to bytes. Readers take no lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import BinaryIO, Final, NamedTuple, TypeVar

from objstore.arrival import LINES_PER_FRAME, Location, place_packed
from objstore.codec import decode, read_message
from objstore.framecache import FrameCache
from objstore.frames import decompress
from objstore.index import Index, key
from objstore.journal import JOURNAL, Journal
from objstore.journalrecord import StoredObject
from objstore.kinds import Kind
from objstore.limits import MAX_OBJECT_BYTES
from objstore.loose import Form, open_loose_payload, read_loose
from objstore.message import Message
from objstore.node import Node
from objstore.packframe import Frame, Step
from objstore.parsed import weight
from objstore.records import Tombstone
from objstore.remembered import Remembered
from refs.errors import CorruptFile, CorruptObject, ObjectMissing, StorageFailure
from refs.files import Files
from refs.forks import renew_after_fork
from refs.ids import NodeId, Oid

_T = TypeVar("_T")


class Run(NamedTuple):
    """Part of a chain, oldest first: in `frame`, or (that is None) `loose` nodes that stand by themselves."""

    before: NodeId
    steps: list[Step]
    frame: Frame | None
    loose: Mapping[NodeId, Node]

    def node(self, step: Step) -> Node:
        """The node of a step, called_by and all."""
        return self.loose[step.oid] if self.frame is None else self.frame.node(step.line)


class Database:
    """What is stored, read through the index. Every plain object's bytes are checked against its id.

    Raises `ObjectMissing`, `CorruptObject`. `refresh` is called once where a file that the index names is
    gone (a gc or checkpoint of another process moved what was in it), or where an object isn't known (a pack
    may have been copied in); it says whether to look again.
    """

    def __init__(self, files: Files, index: Index, journal: Journal, refresh: Callable[[], bool]) -> None:
        self._files, self._index, self._journal, self._refresh = files, index, journal, refresh
        self._frames = FrameCache(files)
        self._remembered = Remembered()
        renew_after_fork(self)

    def renew(self) -> None:
        """In a forked child: begin with nothing, as the frames do."""
        self._remembered = Remembered()

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
                return self._loose_run(oid)
            frame = self.frame(place)
            before, steps = frame.chain(place.line)
            if steps[-1].oid != oid:
                raise CorruptObject(Kind.NODE, oid, "the index names a line of another node")
            return Run(before, steps, frame, {})

        return self._at_place(Kind.NODE, oid, read)

    def known(self, run: Run) -> list[Message | Tombstone | None]:
        """The messages of a run, None for those that are to be asked for one by one.

        What is decoded is kept as long as its frame is, so the same objects come again.
        """
        frame = run.frame
        if frame is None:
            return [self._known_loose(step.message) for step in run.steps]
        values = frame.values
        known = [values.get(step.message_line) for step in run.steps]
        if all(known):  # as fast as can be: most loads find all here
            return known
        here = self._frames.decoded(frame, [(step.message, step.message_line) for step in run.steps])
        named = [step.message for step in run.steps if step.message_line < 0]
        elsewhere = self._elsewhere(named) if named else {}
        return [here.get(at) if at >= 0 else elsewhere.get(oid) for _, oid, _, at in run.steps]

    def message_in(self, frame: Frame, step: Step) -> Message | Tombstone:
        """The message of a step that stands in `frame`."""
        try:
            return self._message_in(frame, step.message_line, step.message)
        except CorruptFile as error:
            raise CorruptObject(Kind.MESSAGE, step.message, str(error)) from error

    def message(self, oid: Oid) -> Message | Tombstone:
        """A message by its id."""

        def read(place: Location) -> Message | Tombstone:
            if place.pack is not None:
                return self._message_in(self.frame(place), place.line, oid)
            form, raw = self._read_loose(Kind.MESSAGE, oid)
            value = read_message(raw, oid, self.open_payload)
            self._remembered.add_loose(oid, form, value)
            return value

        return self._at_place(Kind.MESSAGE, oid, read)

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
        return self._frames.frame(place)

    def forget_packs(self) -> None:
        """Close all packs and drop what was decoded of them."""
        self._frames.forget()
        self._remembered = Remembered()

    close = forget_packs

    def _loose_node(self, oid: NodeId) -> Node:
        node = self._remembered.nodes.get(oid)
        if node is None:
            node = node_of(oid, self._read_loose(Kind.NODE, oid)[1])
            self._remembered.add_node(oid, node)
        return node

    def _known_loose(self, oid: Oid) -> Message | Tombstone | None:
        form, value = self._remembered.loose.get(oid, (None, None))
        place = None if value is None else self._index.locate(Kind.MESSAGE, oid)
        return value if place is not None and place.pack is None and place.form is form else None

    def _loose_run(self, oid: NodeId) -> Run:
        first = self._loose_node(oid)
        held = self._remembered
        nodes = {oid: first}
        last = oid
        while (node := held.nodes.get(nodes[last].parent)) is not None:  # before a stored node all is stored
            last = nodes[last].parent
            nodes[last] = node
        if last != oid and self.locate(Kind.NODE, last).pack is not None:
            # Packed since: from there it is read faster, and much of the rest may be there too.
            held.nodes = {}
            nodes = {oid: first}
            last = oid
        steps = [Step(each, nodes[each].message, -1, -1) for each in reversed(nodes)]
        return Run(nodes[last].parent, steps, None, nodes)

    def _elsewhere(self, wanted: Sequence[Oid]) -> Mapping[Oid, Message | Tombstone]:
        """Messages by their ids: those that stand in packs and can be read without more ado."""
        held = self._remembered
        found: dict[Oid, Message | Tombstone] = {}
        known: dict[Oid, Message | Tombstone] = {}
        try:
            with self._index.unsettled() as db:  # what was just committed stands in no pack
                # As long as nobody changes the index, what it named before is what it would name again.
                state = db, db.total_changes, db.execute("PRAGMA data_version").fetchone()
                known = held.at_state(state)
                places = _places(db, [oid for oid in wanted if oid not in known])
            for frame, lines in places.items():
                place = self._index.location(place_packed(frame, 0))
                found.update(self._found_in(self.frame(place), lines))
        except (CorruptFile, StorageFailure, FileNotFoundError):
            pass  # whoever asks for what is missing is told
        return held.add_packed(known, found)

    def _found_in(self, frame: Frame, lines: Iterable[tuple[Oid, int]]) -> dict[Oid, Message | Tombstone]:
        lines = [(oid, at) for oid, at in lines if frame.message(at)[0] == oid]
        values = self._frames.decoded(frame, lines)
        return {oid: values[at] for oid, at in lines if at in values}

    def _message_in(self, frame: Frame, line: int, oid: Oid) -> Message | Tombstone:
        known = frame.values.get(line)
        if known is None:
            found, _, raw = frame.message(line)
            if found == oid:
                known = read_message(raw, oid, self.open_payload)
                self._frames.keep(frame, {line: known}, weight(known))
                return known
        elif (known._id if isinstance(known, Message) else known.id) == oid:
            return known
        raise CorruptObject(Kind.MESSAGE, oid, "its bytes have another hash")

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


def _places(db: sqlite3.Connection, messages: Sequence[Oid]) -> dict[int, list[tuple[Oid, int]]]:
    """The lines where messages stand, by the rows of their frames; those in no pack are left out."""
    found: dict[int, list[tuple[Oid, int]]] = {}
    for start in range(0, len(messages), _IDS_AT_ONCE):
        names = {key(oid): oid for oid in messages[start : start + _IDS_AT_ONCE]}
        filled = [*names, *[b""] * (_IDS_AT_ONCE - len(names))]  # one statement for all, which is kept ready
        for name, loc in db.execute(_PLACES, filled):
            if loc >= 0:
                frame, line = divmod(loc, LINES_PER_FRAME)
                found.setdefault(frame, []).append((names[name], line))
    return found


_IDS_AT_ONCE: Final = 50
_PLACES: Final = (
    "SELECT i.id, o.loc FROM message_id i JOIN message o ON o.row = i.row"
    f" WHERE i.id IN ({','.join('?' * _IDS_AT_ONCE)})"
)


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
