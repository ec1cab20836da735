"""One frame of a pack while it is being collected, and its lines.

Messages come first, then nodes, then records: like compresses best beside like. A node's message then stands
the same number of lines back all along a chain, and what notes say of neighbours is one run.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final

from objstore.jsonvalue import dumps, loads_exactly
from objstore.kinds import Kind
from objstore.node import Node
from objstore.pack import Placed
from objstore.records import Note
from refs.ids import Oid

_ID_BYTES: Final = 66  # an id and its quotes
_DIGITS: Final = 5  # of a reference: a frame has 16384 lines
_NODE_BYTES: Final = len('{"node":[,]}\n')
_PAIR_SPARED: Final = 59  # bytes by which `[12345,…],` is shorter than `"<id>":…,`
_FIRST: Final = itemgetter(0)

_Ref = int | Oid
"""What a node or record names: where that stands among the frame's objects of its kind, or its id."""


_Named = tuple[list[tuple[int, Any]], list[list[Any]]]
"""The nodes of a note, each with what is said of it: those in the frame, in their order, and the others by id."""


class NewFrame:
    """Objects in the order in which they were given; what they name is what was given before them."""

    __slots__ = (
        "_called",
        "_node_messages",
        "_node_oids",
        "_node_parents",
        "_records",
        "messages",
        "newest",
        "nodes",
        "said",
        "size",
    )

    def __init__(self) -> None:
        self.size = 0
        """Bytes that the lines will take at most."""
        self.messages: dict[Oid, int] = {}
        self.said: list[bytes] = []
        """The lines of the messages."""
        self.nodes: dict[Oid, int] = {}
        self.newest: Oid | None = None
        """The message that was given last, if nothing was since: its node comes next."""
        self._node_oids: list[Oid] = []
        # Two lists rather than one of pairs: the collector of cycles counts pairs, and looks at everything.
        self._node_parents: list[_Ref] = []
        self._node_messages: list[_Ref] = []
        self._called: dict[int, list[Any]] = {}  # called_by of some nodes, and perhaps the tool_call_id
        self._records: list[tuple[Kind, Oid, Any, Any]] = []

    def __len__(self) -> int:
        """Lines so far."""
        return len(self.said) + len(self._node_oids) + len(self._records)

    def add_message(self, oid: Oid, line: bytes) -> None:
        """A message that isn't in the frame yet."""
        self.messages[oid] = len(self.said)
        self.said.append(line)
        self.size += len(line) + 1
        self.newest = oid

    def take_newest(self) -> tuple[Oid, bytes]:
        """Take out the message that was given last, by its id and line."""
        oid, line = self.newest, self.said.pop()
        assert oid is not None
        del self.messages[oid]
        self.size -= len(line) + 1
        self.newest = None
        return oid, line

    def add_node(self, oid: Oid, node: Node) -> None:
        here = len(self._node_oids)
        parent: _Ref = self.nodes.get(node.parent, node.parent)
        message: _Ref = self.messages.get(node.message, node.message)
        size = _NODE_BYTES + (_DIGITS if isinstance(message, int) else _ID_BYTES)
        if isinstance(parent, int):
            size += 1 if here - parent < 10 else _DIGITS  # nearly all follow what was just given
        else:
            size += _ID_BYTES
        if node.called_by is not None:
            called: list[Any] = [self.nodes.get(node.called_by, node.called_by)]
            size += 1 + _ID_BYTES
            if node.tool_call_id is not None:
                called.append(node.tool_call_id)
                size += 1 + len(dumps(node.tool_call_id))
            self._called[here] = called
        self.nodes[oid] = here
        self._node_oids.append(oid)
        self._node_parents.append(parent)
        self._node_messages.append(message)
        self.size += size
        self.newest = None

    def add_record(self, kind: Kind, oid: Oid, raw: bytes, held: object) -> None:
        """A call, note or description by its canonical bytes, and perhaps its value."""
        self.newest = None
        self.size += len(raw) + 1
        nodes = self.nodes
        if kind is Kind.DESCRIPTION:
            self._records.append((kind, oid, raw, None))
        elif kind is Kind.CALL:
            ends = loads_exactly(raw)
            for key in ("head_input", "head_output"):
                if key in ends:
                    ends[key] = nodes.get(ends[key], ends[key])
            self._records.append((kind, oid, ends, None))
        else:
            note = held if isinstance(held, Note) else loads_exactly(raw)
            said: Mapping[Any, Any] = note.nodes if isinstance(note, Note) else note["nodes"]
            # In the order of the chain, so that what is said of neighbours stands together.
            there = sorted([(nodes[node], about) for node, about in said.items() if node in nodes], key=_FIRST)
            self.size -= _PAIR_SPARED * len(there)
            rest = [[node, about] for node, about in sorted(said.items(), key=_FIRST) if node not in nodes]
            self._records.append((kind, oid, note, (there, rest)))

    def lines(self) -> list[bytes]:
        """All lines, references counted: each as so many lines back."""
        lines = self.said.copy()
        before = len(lines)
        for at, (parent, message) in enumerate(zip(self._node_parents, self._node_messages, strict=True)):
            if type(parent) is type(message) is int and at not in self._called:
                lines.append(b'{"node":[%d,%d]}' % (at - parent, before + at - message))
                continue
            members = [_back(parent, at), _back(message, before + at)]
            if at in self._called:
                caller, *call_id = self._called[at]
                members += [_back(caller, at), *call_id]
            lines.append(dumps({"node": members}))
        for at, (kind, _, value, named) in enumerate(self._records, start=len(self._node_oids)):
            if kind is Kind.DESCRIPTION:
                lines.append(value)
            elif kind is Kind.CALL:
                ends = {key: _back(value[key], at) for key in ("head_input", "head_output") if key in value}
                lines.append(dumps(value | ends))
            else:
                lines.append(_note_line(value, named, at))
        return lines

    def placed(self, frame: int) -> list[Placed]:
        """Where everything stands, in the order of the lines; `frame` is this one's number in its pack."""
        placed = [Placed(Kind.MESSAGE, oid, frame, at) for oid, at in self.messages.items()]
        placed += [Placed(Kind.NODE, oid, frame, at) for at, oid in enumerate(self._node_oids, start=len(placed))]
        records = enumerate(self._records, start=len(placed))
        placed += [Placed(kind, oid, frame, at) for at, (kind, oid, _, _) in records]
        return placed


def _back(named: _Ref, here: int) -> int | Oid:
    return here - named if isinstance(named, int) else named


def _note_line(note: Note | dict[str, Any], named: _Named, here: int) -> bytes:
    """A note with its nodes as runs: how far back the first stands, what is said of it, and of those behind it."""
    there, rest = named
    runs: list[list[Any]] = []
    due = -1
    for at, about in there:
        if at == due:
            runs[-1].append(about)
        else:
            runs.append([here - at, about])
        due = at + 1
    runs += rest
    if isinstance(note, Note):
        return b'{"at":"%b","nodes":%b,"note":"%b"}' % (note.at.encode(), note.write(runs), note.note.encode())
    return dumps(note | {"nodes": runs})
