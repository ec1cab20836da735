"""One decoded frame of a pack: its lines, and the ids they stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from objstore.jsonvalue import dumps, loads_exactly
from objstore.kinds import Kind
from objstore.limits import MAX_FRAME_LINES
from objstore.loose import Form
from objstore.node import Node, plain_node_id
from refs.errors import CorruptFile, InvalidValue
from refs.ids import ROOT, MessageId, NodeId, Oid, is_oid

if TYPE_CHECKING:
    from objstore.message import Message
    from objstore.records import Tombstone

_sha256: Any = sha256  # Any: making an Oid of its result would cost a fifth of the hash
_PLAIN: Final = Form.PLAIN  # looking up a member of an enum costs a quarter of a hash
_LINE_BYTES: Final = 256
"""Memory a line takes beside its own bytes, once its id is known and it stands in a run."""
_PAIR_BYTES: Final = 24
_MOST_PAIRS: Final = MAX_FRAME_LINES
PAIRS: dict[bytes, tuple[int | NodeId, int]] = {}
"""What short node lines hold. Nearly all are among a few: `{"node":[2,1]}`, `{"node":["root",1]}`, …

Both point back, or the first is `ROOT`; where to is for the frame to look.
"""


class Step(NamedTuple):
    """A node in a frame: its id, its message's, its line, and its message's line (-1: not in this frame)."""

    oid: NodeId
    message: MessageId
    line: int
    message_line: int


_step: Callable[[tuple[Any, ...]], Step] = partial(tuple.__new__, Step)  # Step._make, three times faster


class Frame:
    """The lines of one frame, and the ids they stand for, worked out when they are asked for.

    References point only to earlier lines, so there are no cycles; one that leaves the frame's beginning or
    points at a line of another kind is refused with `CorruptFile`.

    Whoever decodes a message line may put the value into `values`, if it adds to `weight` what that takes.
    """

    __slots__ = (
        "_run_steps",
        "_runs",
        "_where",
        "lines",
        "messages",
        "name",
        "nodes",
        "size",
        "values",
        "weight",
    )

    def __init__(self, raw: bytes, where: str) -> None:
        self.size = len(raw)
        self._where = where
        self.name = ("", 0)
        """Under which a cache keeps this, if one does."""
        # Split only so often: a frame of nothing but newlines would take much memory.
        self.lines = raw.split(b"\n", MAX_FRAME_LINES)
        if self.lines.pop() or not self.lines:
            raise CorruptFile(where, "a frame without a line, with too many, or with half a line at its end")
        self.weight = len(raw) + _LINE_BYTES * len(self.lines)
        """Bytes of memory this takes, or soon will."""
        self.values: dict[int, Message | Tombstone] = {}
        self.messages: dict[int, Oid] = {}
        """The ids of plain messages by their lines, as far as they have been worked out."""
        self.nodes: dict[int, NodeId] = {}
        """The ids of nodes by their lines, as far as they have been worked out."""
        self._runs: dict[int, tuple[NodeId, list[Step]]] = {}
        self._run_steps = 0

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
            known = self.messages.get(at)
            if known is None:
                known = self.messages[at] = _sha256(line).hexdigest()
            return known, _PLAIN, line
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

    def members(self, at: int) -> Sequence[Any]:
        """What a node line holds, unresolved: parent, message and perhaps called_by and tool_call_id."""
        line = self.line(at)
        pair = PAIRS.get(line)
        if pair is not None:
            return pair
        value: Any = None
        if line.startswith(b'{"node":['):
            try:
                value = orjson.loads(line)["node"]
            except orjson.JSONDecodeError:
                value = self._json(at)["node"]  # a lone surrogate in the tool_call_id
        if not isinstance(value, list) or not 2 <= len(value) <= 4:
            raise self.bad(at, "not a node")
        short = len(line) <= _PAIR_BYTES and len(value) == 2 and len(PAIRS) < _MOST_PAIRS
        if short and type(value[1]) is int and value[1] > 0:
            if value[0] == ROOT:
                PAIRS[line] = ROOT, value[1]
            elif type(value[0]) is int and value[0] > 0:
                PAIRS[line] = value[0], value[1]
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
        known = self.nodes.get(at)
        if known is None:
            known = self.nodes[at] = node.id
        return node, NodeId(known)

    def node_oid(self, at: int) -> NodeId:
        """The id of a node line. Works back to the nearest known id, then forward: no recursion."""
        todo = [at]
        while todo:
            line = todo[-1]
            if line not in self.nodes:
                parent, _, *more = self.members(line)
                needs = [self.target(line, ref) for ref in (parent, *more[:1]) if not isinstance(ref, str)]
                waiting = [need for need in needs if need not in self.nodes]
                if waiting:
                    todo.extend(waiting)
                    continue
                self.nodes[line] = self.node(line).id
            todo.pop()
        return NodeId(self.nodes[at])

    def chain(self, at: int) -> tuple[NodeId, list[Step]]:
        """(what the run's first node names as its parent, the run up to the node of line `at`), oldest first.

        A run is as much of a chain as stands in this frame. Every id is worked out from the lines: a
        message's from its bytes, a node's from its parent's and its message's. The list is kept: it is not
        to be changed.
        """
        run = self._runs.get(at)
        if run is None:
            self.line(at)  # there is one
            run = self._work_out(at)
            if self._run_steps + len(run[1]) > len(self.lines):  # runs that share their beginning
                self._runs, self._run_steps = {}, 0
            self._runs[at] = run
            self._run_steps += len(run[1])
        return run

    def _work_out(self, at: int) -> tuple[NodeId, list[Step]]:
        lines, nodes, messages = self.lines, self.nodes, self.messages
        way: list[int] = []
        held: list[Sequence[Any]] = []
        while True:
            members: Sequence[Any] = PAIRS.get(lines[at]) or self.members(at)
            way.append(at)
            held.append(members)
            parent = members[0]
            if isinstance(parent, str):
                break
            at = self.target(at, parent)
        before = parent
        if before != ROOT and not is_oid(before):
            raise self.bad(at, "not a node")
        way.reverse()
        held.reverse()
        oids: list[str] = []
        said: list[str] = []
        places: list[int] = []
        for at, members in zip(way, held, strict=True):
            reference = members[1]
            if isinstance(reference, str):
                place, message = -1, Oid(reference)
            else:
                place = self.target(at, reference)
                message = messages.get(place) or self.message(place)[0]
            oid = nodes.get(at)
            if oid is None:
                oid = nodes[at] = plain_node_id(parent, message) if len(members) == 2 else self.node_oid(at)
            parent = oid
            oids.append(oid)
            said.append(message)
            places.append(place)
        return NodeId(Oid(before)), list(map(_step, zip(oids, said, way, places, strict=True)))

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
            nodes: dict[Oid, Any] = {}
            for run in value["nodes"]:
                if not isinstance(run, list) or len(run) < 2:
                    raise self.bad(at, "not a note")
                if isinstance(run[0], str) and len(run) == 2:
                    nodes[Oid(run[0])] = run[1]
                else:
                    first = self.target(at, run[0])
                    if first + len(run) - 1 > at:
                        raise self.bad(at, "a reference that leaves the frame")
                    nodes.update(zip(map(self.node_oid, range(first, first + len(run) - 1)), run[1:], strict=True))
            value["nodes"] = nodes
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
        known = self.nodes.get(target)
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
