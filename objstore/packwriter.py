"""Writing a pack: objects in chain order, collected into frames."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Final

from objstore.frames import FAST_LEVEL, compress
from objstore.kinds import Kind
from objstore.limits import COPY_MESSAGE_BYTES, FRAME_BYTES, MAX_FRAME_LINES
from objstore.loose import Form
from objstore.newframe import NewFrame
from objstore.node import Node
from objstore.pack import ENTRY, FOOTER, PACK_FOLDER, SEEKABLE, SKIP_HEAD, SKIPPABLE, Placed, Written, publish
from refs.files import Files, Handle
from refs.ids import Oid

_NODE_ROOM: Final = 512  # bytes: the longest node line there usually is, four whole ids and their quotes


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
        self._frame = NewFrame()

    @property
    def raw_bytes(self) -> int:
        """Uncompressed bytes so far."""
        return self._raw_bytes + self._frame.size

    def start_chain(self) -> None:
        """Say that a conversation begins here: a frame three quarters full is closed.

        A message that was just given is the conversation's first, and goes along.
        """
        frame = self._frame
        if frame.size < FRAME_BYTES * 3 // 4:
            return
        if frame.newest is None:
            self._flush()
        elif len(frame) > 1:
            first = frame.take_newest()
            self._flush()
            self._frame.add_message(*first)

    def message(self, oid: Oid, raw: bytes, form: Form = Form.PLAIN) -> None:
        """A message by its stored bytes; once in a frame, however often it is given."""
        if oid not in self._frame.messages:
            line = condensed_line(oid, raw) if form is Form.CONDENSED else raw
            self._make_room(len(line) + 1 + _NODE_ROOM, lines=2)  # its node comes next
            self._frame.add_message(oid, line)

    def node(self, oid: Oid, node: Node, copy_message: Callable[[], tuple[Form, bytes]] | None = None) -> None:
        """A node. A small message that stands in another frame is written again with `copy_message`."""
        if node.message != self._frame.newest:  # else it was given just now, and left room for its node
            self._make_room_for_node(node, copy_message)
        self._frame.add_node(oid, node)

    def pair(self, message: Oid, raw: bytes, oid: Oid, node: Node) -> None:
        """A plain message and a node of it, one behind the other: what most of a pack is, in one step."""
        frame = self._frame
        full = frame.size + len(raw) + 1 + _NODE_ROOM > FRAME_BYTES or len(frame) + 2 > MAX_FRAME_LINES
        if full or message in frame.messages:
            self.message(message, raw)
            self.node(oid, node)
        else:
            frame.add_message(message, raw)
            frame.add_node(oid, node)

    def _make_room_for_node(self, node: Node, copy_message: Callable[[], tuple[Form, bytes]] | None) -> None:
        self._make_room(_NODE_ROOM)
        if node.message not in self._frame.messages:
            self._make_room(COPY_MESSAGE_BYTES + _NODE_ROOM, lines=2)
            if copy_message is not None:
                form, raw = copy_message()
                if form is Form.PLAIN and len(raw) <= COPY_MESSAGE_BYTES:
                    self.message(node.message, raw)

    def record(self, kind: Kind, oid: Oid, raw: bytes, value: object = None) -> None:
        """A call, note or description by its canonical bytes; faster with its value."""
        self._make_room(len(raw) + 1)
        self._frame.add_record(kind, oid, raw, value)

    def drain(self) -> list[Placed]:
        """What has got its place since the last call: for whoever keeps it in another way than `finish` does.

        An object has its place once its frame is closed.
        """
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
        if len(frame) and (frame.size + coming > FRAME_BYTES or len(frame) + lines > MAX_FRAME_LINES):
            self._flush()

    def _flush(self) -> None:
        frame = self._frame
        if not len(frame):
            return
        raw = b"\n".join([*frame.lines(), b""])
        packed = compress(raw, self._level)
        self._placed += frame.placed(len(self._frames))
        self._frames.append((self._offset, len(packed)))
        self._sizes.append(len(raw))
        self._raw_bytes += len(raw)
        self._write(packed)
        self._frame = NewFrame()

    def _write(self, data: bytes) -> None:
        assert self._handle is not None
        self._handle.write_at(self._offset, data)
        self._digest.update(data)
        self._offset += len(data)


def condensed_line(oid: str, raw: bytes) -> bytes:
    """A condensed message as a line: its id can't be told from its bytes, so it is written beside them."""
    return b'{"condensed":%b,"id":"%b"}' % (raw, oid.encode("ascii"))
