"""One decoded frame of a pack: its lines, and the ids they stand for."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final, NamedTuple

import orjson

from objstore.jsonvalue import dumps, loads_exactly
from objstore.kinds import Kind
from objstore.limits import MAX_FRAME_LINES
from objstore.loose import Form
from objstore.node import Node, plain_node_id
from refs.errors import CorruptFile, InvalidValue
from refs.ids import ROOT, MessageId, NodeId, Oid, is_oid


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
