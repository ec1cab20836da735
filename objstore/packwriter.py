"""Writing a pack: lines in chain order, collected into frames."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from operator import itemgetter
from typing import Any, Final

from objstore.frames import FAST_LEVEL, compress
from objstore.jsonvalue import dumps, loads_exactly
from objstore.kinds import Kind
from objstore.limits import COPY_MESSAGE_BYTES, FRAME_BYTES, MAX_FRAME_LINES
from objstore.loose import Form
from objstore.node import Node
from objstore.pack import ENTRY, FOOTER, PACK_FOLDER, SEEKABLE, SKIP_HEAD, SKIPPABLE, Placed, Written, publish
from objstore.records import Note
from refs.files import Files, Handle
from refs.ids import Oid

_MESSAGE, _NODE = Kind.MESSAGE, Kind.NODE
_NODE_ROOM: Final = 512  # bytes: the longest node line there usually is, four whole ids and their quotes


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
            at = self._add(line, Kind.MESSAGE, oid)
            self._frame.messages[oid] = at

    def node(self, oid: Oid, node: Node, copy_message: Callable[[], tuple[Form, bytes]] | None = None) -> None:
        """A node. A small message that stands in another frame is written again with `copy_message`."""
        frame = self._frame
        here = len(frame.lines)
        message = frame.messages.get(node.message)
        if message is None or message != here - 1:  # else it was given just now, and left room for its node
            self._make_room_for_node(node, copy_message)
            frame = self._frame
            here = len(frame.lines)
            message = frame.messages.get(node.message)
        parent = frame.nodes.get(node.parent)
        if parent is not None and message is not None and node.called_by is None:
            line = b'{"node":[%d,%d]}' % (here - parent, here - message)
        else:
            members: list[Any] = [_back(frame.nodes, node.parent, here), _back(frame.messages, node.message, here)]
            if node.called_by is not None:
                members.append(_back(frame.nodes, node.called_by, here))
                if node.tool_call_id is not None:
                    members.append(node.tool_call_id)
            line = dumps({"node": members})
        frame.nodes[oid] = self._add(line, Kind.NODE, oid)

    def pair(self, message: Oid, raw: bytes, oid: Oid, node: Node) -> None:
        """A plain message and a node of it, one behind the other: what most of a pack is, in one step."""
        frame = self._frame
        here = len(frame.lines)
        size = frame.size + len(raw) + 1
        parent = frame.nodes.get(node.parent)
        if (
            parent is None
            or node.called_by is not None
            or message in frame.messages
            or size + _NODE_ROOM > FRAME_BYTES
            or here + 2 > MAX_FRAME_LINES
        ):
            self.message(message, raw)
            self.node(oid, node)
            return
        line = b'{"node":[%d,1]}' % (here + 1 - parent)
        frame.lines += (raw, line)
        frame.size = size + len(line) + 1
        frame.messages[message], frame.nodes[oid] = here, here + 1
        number = len(self._frames)
        self._placed += (Placed(_MESSAGE, message, number, here), Placed(_NODE, oid, number, here + 1))

    def _make_room_for_node(self, node: Node, copy_message: Callable[[], tuple[Form, bytes]] | None) -> None:
        self._make_room(_NODE_ROOM)
        if node.message not in self._frame.messages:
            self._make_room(COPY_MESSAGE_BYTES + _NODE_ROOM)
            if copy_message is not None:
                form, raw = copy_message()
                if form is Form.PLAIN and len(raw) <= COPY_MESSAGE_BYTES:
                    self.message(node.message, raw)

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
        table = b"".join(ENTRY.pack(size, raw) for (_, size), raw in zip(self._frames, self._sizes, strict=True))
        footer = FOOTER.pack(len(self._frames), 0, SEEKABLE)
        self._write(SKIP_HEAD.pack(SKIPPABLE, len(table) + len(footer)) + table + footer)
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
        at = len(frame.lines)
        if at >= MAX_FRAME_LINES:
            raise AssertionError("a frame was not closed in time")
        frame.lines.append(line)
        frame.size += len(line) + 1
        self._placed.append(Placed(kind, oid, len(self._frames), at))
        return at

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


def _back(lines: dict[Oid, int], oid: Oid, here: int) -> int | str:
    """How many lines before line `here` an object stands, or its id where the frame doesn't hold it."""
    at = lines.get(oid)
    return oid if at is None else here - at


_FIRST: Final = itemgetter(0)


def _shorten(kind: Kind, raw: bytes, held: object, frame: _Frame) -> bytes:
    """A call or note with the nodes it names as references."""
    here = len(frame.lines)
    if isinstance(held, Note):
        lines = frame.nodes
        # In the order of the chain, so that what is said of neighbours is alike.
        there = sorted([(lines[Oid(oid)], about) for oid, about in held.nodes.items() if oid in lines], key=_FIRST)
        nodes: list[list[Any]] = [[here - at, about] for at, about in there]
        nodes += [[oid, about] for oid, about in sorted(held.nodes.items()) if oid not in lines]
        return b'{"at":"%b","nodes":%b,"note":"%b"}' % (held.at.encode(), held.write(nodes), held.note.encode())
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
