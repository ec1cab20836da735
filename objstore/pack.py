"""Many objects a file: JSON Lines in seekable zstd (docs/format.md).

Frames hold about 160 KiB of lines in chain order, so that neighbours compress against each other, and end
with a seek table. Hashes don't compress, so a node names its parent and message by "so many lines back in
this frame" wherever they stand in it; a note and a call name their nodes the same way.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, Final, NamedTuple

import orjson

from objstore.frames import FAST_LEVEL, compress, decompress
from objstore.jsonvalue import dumps, loads_exactly
from objstore.kinds import Kind
from objstore.limits import (
    COPY_MESSAGE_BYTES,
    FRAME_BYTES,
    MAX_FRAME_BYTES,
    MAX_FRAME_LINES,
    MAX_FRAMES,
    MAX_PACK_BYTES,
)
from objstore.loose import Form
from objstore.node import Node, plain_node_id
from objstore.records import Note
from refs.errors import CorruptFile, DagError, InvalidValue
from refs.files import Files, Handle
from refs.ids import ROOT, MessageId, NodeId, Oid, is_oid

PACK_FOLDER: Final = "objects/pack"
_SKIPPABLE: Final = 0x184D2A5E
_SEEKABLE: Final = 0x8F92EAB1
_FOOTER: Final = struct.Struct("<IBI")
_ENTRY: Final = struct.Struct("<II")
_SKIP_HEAD: Final = struct.Struct("<II")
_NODE_ROOM: Final = 512  # bytes: the longest node line there usually is, four whole ids and their quotes


def pack_name(pack: str) -> str:
    """The file of the pack whose id (the sha256 of its bytes) is `pack`."""
    return f"{PACK_FOLDER}/pack-{pack}.pack"


def list_packs(files: Files) -> list[str]:
    """The ids of all packs in a store's folder."""
    found = []
    for name, is_dir in files.entries(PACK_FOLDER):
        oid = name.removeprefix("pack-").removesuffix(".pack")
        if not is_dir and is_oid(oid) and name == f"pack-{oid}.pack":
            found.append(oid)
    return found


class Placed(NamedTuple):
    """Where the writer put an object: the frame's number in its pack, and the line in the frame."""

    kind: Kind
    oid: Oid
    frame: int
    line: int


class Written:
    """A finished pack: its id, (offset, compressed size) of each frame, its size.

    `temp` is the file's name as long as it is not published.
    """

    __slots__ = ("frames", "pack", "placed", "size", "temp")

    def __init__(
        self, pack: str, frames: list[tuple[int, int]], placed: list[Placed], size: int, temp: str | None = None
    ) -> None:
        self.pack, self.frames, self.placed, self.size, self.temp = pack, frames, placed, size, temp


class _Frame:
    """The lines that are being collected, and where in them messages and nodes stand."""

    __slots__ = ("lines", "messages", "nodes", "size")

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.size = 0
        self.messages: dict[Oid, int] = {}
        self.nodes: dict[Oid, int] = {}


class PackWriter:
    """Writes one pack. Give it objects in chain order; `finish` publishes the file whole and durably.

    Not safe for several threads. Use as a context manager: left without `finish`, nothing stays behind.
    """

    def __init__(self, files: Files, level: int = FAST_LEVEL) -> None:
        self._files, self._level = files, level
        self._handle: Handle | None = files.create_temp(PACK_FOLDER)
        self._digest = sha256()
        self._offset = 0
        self._frames: list[tuple[int, int]] = []
        self._sizes: list[int] = []
        self._raw_bytes = 0
        self._placed: list[Placed] = []
        self._frame = _Frame()

    @property
    def raw_bytes(self) -> int:
        """Uncompressed bytes so far."""
        return self._raw_bytes + self._frame.size

    def start_chain(self) -> None:
        """Say that a conversation begins here: a frame three quarters full is closed."""
        if self._frame.size >= FRAME_BYTES * 3 // 4:
            self._flush()

    def message(self, oid: Oid, raw: bytes, form: Form = Form.PLAIN) -> None:
        """A message by its stored bytes; once in a frame, however often it is given."""
        if oid not in self._frame.messages:
            line = condensed_line(oid, raw) if form is Form.CONDENSED else raw
            self._make_room(len(line) + 1 + _NODE_ROOM, lines=2)  # its node comes next
            self._frame.messages[oid] = self._add(line, Kind.MESSAGE, oid)

    def node(self, oid: Oid, node: Node, copy_message: Callable[[], tuple[Form, bytes]] | None = None) -> None:
        """A node. A small message that stands in another frame is written again with `copy_message`."""
        if self._frame.messages.get(node.message) != len(self._frame.lines) - 1:
            self._make_room(_NODE_ROOM)
        if node.message not in self._frame.messages:
            self._make_room(COPY_MESSAGE_BYTES + _NODE_ROOM)
            if copy_message is not None:
                form, raw = copy_message()
                if form is Form.PLAIN and len(raw) <= COPY_MESSAGE_BYTES:
                    self.message(node.message, raw)
        here = len(self._frame.lines)
        parent = _back(self._frame.nodes, node.parent, here)
        message = _back(self._frame.messages, node.message, here)
        if node.called_by is None and isinstance(parent, int) and isinstance(message, int):
            line = b'{"node":[%d,%d]}' % (parent, message)
        else:
            members: list[Any] = [parent, message]
            if node.called_by is not None:
                members.append(_back(self._frame.nodes, node.called_by, here))
                if node.tool_call_id is not None:
                    members.append(node.tool_call_id)
            line = dumps({"node": members})
        self._frame.nodes[oid] = self._add(line, Kind.NODE, oid)

    def record(self, kind: Kind, oid: Oid, raw: bytes, value: object = None) -> None:
        """A call, note or description by its canonical bytes; faster with its value."""
        self._make_room(len(raw) + 1)
        line = raw if kind is Kind.DESCRIPTION else _shorten(kind, raw, value, self._frame)
        self._add(line, kind, oid)

    def drain(self) -> list[Placed]:
        """What has been placed since the last call: for whoever keeps it in another way than `finish` does."""
        placed, self._placed = self._placed, []
        return placed

    def finish(self) -> Written | None:
        """Publish the pack; None (and no file) if nothing was written."""
        written = self.seal()
        if written is not None:
            publish(self._files, written)
        return written

    def seal(self) -> Written | None:
        """Write all that is left, and sync it, but leave the file under `temp`, where nobody sees it.

        From then on it is the caller's, to `publish` or to remove.
        """
        self._flush()
        if not self._frames or self._handle is None:
            self.discard()
            return None
        table = b"".join(_ENTRY.pack(size, raw) for (_, size), raw in zip(self._frames, self._sizes, strict=True))
        footer = _FOOTER.pack(len(self._frames), 0, _SEEKABLE)
        self._write(_SKIP_HEAD.pack(_SKIPPABLE, len(table) + len(footer)) + table + footer)
        handle = self._handle
        handle.sync()
        handle.close()
        self._handle = None
        return Written(self._digest.hexdigest(), self._frames, self._placed, self._offset, handle.name)

    def __enter__(self) -> PackWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def discard(self) -> None:
        """Throw away what was not finished."""
        if self._handle is not None:
            self._handle.close()
            self._files.remove(self._handle.name)
            self._handle = None

    def _make_room(self, coming: int, lines: int = 1) -> None:
        """Close the frame if what comes, in bytes and lines, would overfill it: references stay within a frame."""
        frame = self._frame
        if frame.lines and (frame.size + coming > FRAME_BYTES or len(frame.lines) + lines > MAX_FRAME_LINES):
            self._flush()

    def _add(self, line: bytes, kind: Kind, oid: Oid) -> int:
        frame = self._frame
        if len(frame.lines) >= MAX_FRAME_LINES:
            raise AssertionError("a frame was not closed in time")
        frame.lines.append(line)
        frame.size += len(line) + 1
        self._placed.append(Placed(kind, oid, len(self._frames), len(frame.lines) - 1))
        return len(frame.lines) - 1

    def _flush(self) -> None:
        if not self._frame.lines:
            return
        raw = b"\n".join(self._frame.lines) + b"\n"
        packed = compress(raw, self._level)
        self._frames.append((self._offset, len(packed)))
        self._sizes.append(len(raw))
        self._raw_bytes += len(raw)
        self._write(packed)
        self._frame = _Frame()

    def _write(self, data: bytes) -> None:
        assert self._handle is not None
        self._handle.write_at(self._offset, data)
        self._digest.update(data)
        self._offset += len(data)


def publish(files: Files, written: Written) -> None:
    """Give a sealed pack its name, durably, unless it has it already."""
    if written.temp is None:
        return
    try:
        if files.stat(pack_name(written.pack)) is None:
            files.rename(written.temp, pack_name(written.pack))
            files.sync_dir(PACK_FOLDER)
        else:
            files.remove(written.temp)
    except BaseException:
        with contextlib.suppress(DagError):  # the first error is the one to tell
            files.remove(written.temp)
        raise
    written.temp = None


def _back(lines: dict[Oid, int], oid: Oid, here: int) -> int | str:
    """How many lines before line `here` an object stands, or its id where the frame doesn't hold it."""
    at = lines.get(oid)
    return oid if at is None else here - at


def _shorten(kind: Kind, raw: bytes, held: object, frame: _Frame) -> bytes:
    """A call or note with the nodes it names as references."""
    here = len(frame.lines)
    if isinstance(held, Note):
        nodes = [[_back(frame.nodes, Oid(oid), here), about] for oid, about in sorted(held.nodes.items())]
        return b'{"at":"%b","nodes":%b,"note":"%b"}' % (held.at.encode(), dumps(nodes), held.note.encode())
    value = loads_exactly(raw)
    if kind is Kind.CALL:
        for key in ("head_input", "head_output"):
            if key in value:
                value[key] = _back(frame.nodes, value[key], here)
    else:
        value["nodes"] = [[_back(frame.nodes, oid, here), about] for oid, about in value["nodes"].items()]
    return dumps(value)


def condensed_line(oid: str, raw: bytes) -> bytes:
    """A condensed message as a line: its id can't be told from its bytes, so it is written beside them."""
    return b'{"condensed":%b,"id":"%b"}' % (raw, oid.encode("ascii"))


class PackReader:
    """Reads frames of one pack. Raises `CorruptFile` for what no `PackWriter` writes."""

    def __init__(self, files: Files, pack: str, name: str | None = None) -> None:
        """`name` is the file of a pack that isn't published yet."""
        self.pack = pack
        self._handle = files.open_read(name or pack_name(pack))

    def frame(self, offset: int, size: int) -> Frame:
        """The frame that stands in `size` bytes at `offset`."""
        if not 0 < size <= MAX_FRAME_BYTES or offset < 0:
            raise CorruptFile(self._handle.name, "a frame of impossible size")
        packed = self._handle.read_at(offset, size)
        return Frame(decompress(packed, MAX_FRAME_BYTES, f"{self._handle.name} at {offset}"), self._handle.name)

    def frames(self) -> Iterator[tuple[int, int]]:
        """(offset, size) of each frame, from the seek table, which is checked against the file's size."""
        size = self._handle.size()
        name = self._handle.name
        if size > MAX_PACK_BYTES:
            raise CorruptFile(name, "larger than any pack")
        count, flags, magic = _FOOTER.unpack(self._tail(size, _FOOTER.size))
        head = _SKIP_HEAD.size + count * _ENTRY.size + _FOOTER.size
        if magic != _SEEKABLE or flags or count > MAX_FRAMES or head > size:
            raise CorruptFile(name, "no seek table at its end")
        table = self._tail(size, head)
        if _SKIP_HEAD.unpack_from(table) != (_SKIPPABLE, head - _SKIP_HEAD.size):
            raise CorruptFile(name, "a damaged seek table")
        offset = 0
        for packed, raw in _ENTRY.iter_unpack(table[_SKIP_HEAD.size : -_FOOTER.size]):
            if raw > MAX_FRAME_BYTES or offset + packed > size - head:
                raise CorruptFile(name, "a seek table that doesn't fit the file")
            yield offset, packed
            offset += packed
        if offset != size - head:
            raise CorruptFile(name, "a seek table that doesn't fit the file")

    def read_at(self, offset: int, size: int) -> bytes:
        """Bytes of the file as they stand there."""
        return self._handle.read_at(offset, size)

    def size(self) -> int:
        """Bytes of the file."""
        return self._handle.size()

    def verify_name(self) -> bool:
        """Whether the file's bytes still have the hash that is its name."""
        digest, at = sha256(), 0
        while chunk := self._handle.read_at(at, 1 << 20):
            digest.update(chunk)
            at += len(chunk)
        return digest.hexdigest() == self.pack

    def close(self) -> None:
        self._handle.close()

    def _tail(self, size: int, wanted: int) -> bytes:
        if size < wanted:
            raise CorruptFile(self._handle.name, "cut short")
        return self._handle.read_at(size - wanted, wanted)


class Step(NamedTuple):
    """A node in a frame: its id, its message's, its line, and its message's line (-1: not in this frame)."""

    oid: NodeId
    message: MessageId
    line: int
    message_line: int


class Frame:
    """The lines of one frame, and the ids they stand for, worked out when they are asked for.

    References point only to earlier lines, so there are no cycles; one that leaves the frame's beginning or
    points at a line of another kind is refused with `CorruptFile`.
    """

    __slots__ = ("_messages", "_nodes", "_where", "lines", "size")

    def __init__(self, raw: bytes, where: str) -> None:
        self.size = len(raw)
        self._where = where
        count = raw.count(b"\n")  # before they are split: a frame of nothing else would take much memory
        self.lines = raw.split(b"\n") if 0 < count <= MAX_FRAME_LINES else [raw]
        if self.lines.pop() or not self.lines:
            raise CorruptFile(where, "a frame without a line, with too many, or with half a line at its end")
        self._messages: dict[int, Oid] = {}
        self._nodes: dict[int, Oid] = {}

    def bad(self, at: int, reason: str) -> CorruptFile:
        """The error to raise for line `at`."""
        return CorruptFile(self._where, f"line {at + 1} of a frame: {reason}")

    def line(self, at: int) -> bytes:
        if not 0 <= at < len(self.lines):
            raise self.bad(at, "there is no such line")
        return self.lines[at]

    def kind(self, at: int) -> Kind:
        """The kind of object a line stands for, told by how it begins."""
        line = self.line(at)
        for start, kind in _STARTS:
            if line.startswith(start):
                return kind
        raise self.bad(at, "not a line of a pack")

    def message(self, at: int) -> tuple[Oid, Form, bytes]:
        """(id, form, stored bytes) of a message line. The id of a plain one is worked out, not read."""
        line = self.line(at)
        if line.startswith(b'{"parts":'):
            known = self._messages.get(at)
            if known is None:
                known = self._messages[at] = Oid(sha256(line).hexdigest())
            return known, Form.PLAIN, line
        if line.startswith(b'{"condensed":{') and line[-73:-66] == b',"id":"' and line.endswith(b'"}'):
            oid = line[-66:-2].decode("ascii", "replace")
            if is_oid(oid):
                return Oid(oid), Form.CONDENSED, line[13:-73]
        if line.startswith(b'{"tombstone":'):
            held = self._json(at).get("tombstone")
            erased = held.get("id") if isinstance(held, dict) else None
            if is_oid(erased):
                return Oid(str(erased)), Form.TOMBSTONE, line
        raise self.bad(at, "not a message")

    def members(self, at: int) -> list[Any]:
        """What a node line holds, unresolved: parent, message and perhaps called_by and tool_call_id."""
        line = self.line(at)
        value: Any = None
        if line.startswith(b'{"node":['):
            try:
                value = orjson.loads(line)["node"]
            except orjson.JSONDecodeError:
                value = self._json(at)["node"]  # a lone surrogate in the tool_call_id
        if not isinstance(value, list) or not 2 <= len(value) <= 4:
            raise self.bad(at, "not a node")
        return value

    def target(self, at: int, reference: object) -> int:
        """The line that a reference of line `at` points to."""
        if type(reference) is not int or not 0 < reference <= at:
            raise self.bad(at, "a reference that leaves the frame")
        return at - reference

    def node(self, at: int) -> Node:
        """The node of a line, its references resolved."""
        parent, message, *more = self.members(at)
        found = self._node_ref(at, parent)
        said = Oid(message) if isinstance(message, str) else self.message(self.target(at, message))[0]
        if not more and (found == ROOT or is_oid(found)) and is_oid(said):
            return Node.trusted(NodeId(found), MessageId(said))
        try:
            return Node(
                NodeId(found),
                MessageId(said),
                NodeId(self._node_ref(at, more[0])) if more else None,
                more[1] if len(more) > 1 else None,
            )
        except InvalidValue as error:
            raise self.bad(at, str(error)) from error

    def node_and_oid(self, at: int) -> tuple[Node, NodeId]:
        """The node of a line, and its id."""
        node = self.node(at)  # works out what stands before it
        known = self._nodes.get(at)
        if known is None:
            known = self._nodes[at] = node.id
        return node, NodeId(known)

    def node_oid(self, at: int) -> NodeId:
        """The id of a node line. Works back to the nearest known id, then forward: no recursion."""
        todo = [at]
        while todo:
            line = todo[-1]
            if line not in self._nodes:
                parent, _, *more = self.members(line)
                needs = [self.target(line, ref) for ref in (parent, *more[:1]) if not isinstance(ref, str)]
                waiting = [need for need in needs if need not in self._nodes]
                if waiting:
                    todo.extend(waiting)
                    continue
                self._nodes[line] = self.node(line).id
            todo.pop()
        return NodeId(self._nodes[at])

    def chain(self, at: int) -> tuple[NodeId, list[Step]]:
        """(what the run's first node names as its parent, the run up to the node of line `at`), oldest first.

        A run is as much of a chain as stands in this frame. Every id is worked out from the lines: a
        message's from its bytes, a node's from its parent's and its message's.
        """
        run: list[tuple[int, list[Any]]] = []
        while True:
            members = self.members(at)
            run.append((at, members))
            if isinstance(members[0], str):
                break
            at = self.target(at, members[0])
        before = parent = NodeId(Oid(run[-1][1][0]))
        if before != ROOT and not is_oid(before):
            raise self.bad(at, "not a node")
        steps = []
        for line, members in reversed(run):
            reference = members[1]
            if isinstance(reference, str):
                place, message = -1, Oid(reference)
            else:
                place = self.target(line, reference)
                message = self._messages.get(place) or self.message(place)[0]
            known = self._nodes.get(line)
            if known is None:
                known = plain_node_id(parent, message) if len(members) == 2 else self.node_oid(line)
                self._nodes[line] = known
            parent = NodeId(known)
            steps.append(Step(parent, MessageId(message), line, place))
        return before, steps

    def record(self, at: int) -> tuple[Kind, bytes]:
        """(kind, canonical bytes) of a call, note or description line."""
        kind = self.kind(at)
        if kind is Kind.DESCRIPTION:
            return kind, self.line(at)
        return kind, dumps(self.record_value(at, kind))

    def record_value(self, at: int, kind: Kind) -> dict[str, Any]:
        """A call, note or description as plain JSON, its references resolved."""
        if kind not in (Kind.CALL, Kind.NOTE, Kind.DESCRIPTION):
            raise self.bad(at, "not a record")
        value = self._json(at)
        if kind is Kind.CALL:
            for key in ("head_input", "head_output"):
                if key in value:
                    value[key] = self._node_ref(at, value[key])
        elif kind is Kind.NOTE and isinstance(value.get("nodes"), list):
            try:
                value["nodes"] = {self._node_ref(at, ref): about for ref, about in value["nodes"]}
            except (TypeError, ValueError) as error:
                raise self.bad(at, "not a note") from error
        return value

    def _json(self, at: int) -> dict[str, Any]:
        try:
            value = loads_exactly(self.line(at))
        except InvalidValue as error:
            raise self.bad(at, str(error)) from error
        if not isinstance(value, dict):
            raise self.bad(at, "not an object")
        return value

    def _node_ref(self, at: int, reference: object) -> Oid:
        if isinstance(reference, str):
            return Oid(reference)
        target = self.target(at, reference)
        known = self._nodes.get(target)
        return known if known is not None else self.node_oid(target)


_STARTS: Final = (
    (b'{"node":', Kind.NODE),
    (b'{"parts":', Kind.MESSAGE),
    (b'{"condensed":', Kind.MESSAGE),
    (b'{"tombstone":', Kind.MESSAGE),
    (b'{"call":', Kind.CALL),
    (b'{"at":', Kind.NOTE),
    (b'{"created_at":', Kind.DESCRIPTION),
)
