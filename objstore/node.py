"""Nodes: a place in a chain. "This message, after that node"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from objstore.jsonvalue import dumps, text
from refs.errors import InvalidValue
from refs.ids import OID_DIGITS, ROOT, MessageId, NodeId, Oid, is_oid, parse_oid, parse_parent

_sha256: Any = sha256  # Any: making a NodeId of its result would cost a fifth of the hash


@dataclass(frozen=True, slots=True)
class Node:
    """A place in a chain. `parent` is the conversation's order; `called_by` is who asked for it.

    `called_by` is the node of the call that put this message there, `tool_call_id` which tool call in
    it. Both edges point backward only, so a node never changes. Raises `InvalidValue`.
    """

    parent: NodeId
    message: MessageId
    called_by: NodeId | None = None
    tool_call_id: str | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        if self.parent is not ROOT:
            put(self, "parent", ROOT if self.parent == ROOT else _id(self.parent, "parent"))
        put(self, "message", _id(self.message, "message"))
        if self.called_by is not None:
            put(self, "called_by", _id(self.called_by, "called_by"))
        if self.tool_call_id is not None:
            if self.called_by is None:
                raise InvalidValue("tool_call_id", "stands only beside called_by")
            put(self, "tool_call_id", text(self.tool_call_id, "tool_call_id"))

    @classmethod
    def trusted(
        cls,
        parent: NodeId,
        message: MessageId,
        called_by: NodeId | None = None,
        tool_call_id: str | None = None,
    ) -> Node:
        """A node of fields that are known to be good: several times faster."""
        made = cls.__new__(cls)
        _put_parent(made, parent)
        _put_message(made, message)
        _put_called_by(made, called_by)
        _put_tool_call_id(made, tool_call_id)
        return made

    def canonical(self) -> bytes:
        return canonical_node_json(self.parent, self.message, self.called_by, self.tool_call_id)

    @property
    def id(self) -> NodeId:
        return _hash(self.canonical())

    @classmethod
    def from_dict(cls, value: object) -> Node:
        """From parsed JSON. Unlike in a message a key that isn't known is refused: an id vouches for all of it."""
        if not isinstance(value, Mapping):
            raise InvalidValue("", f"a node is an object, not {type(value).__name__}")
        unknown = value.keys() - {"parent", "message", "called_by", "tool_call_id"}
        if unknown:
            raise InvalidValue(min(map(str, unknown)), "no such key in a node")
        for key in ("parent", "message"):
            if key not in value:
                raise InvalidValue(key, "missing")
        for key in ("called_by", "tool_call_id"):
            if key in value and value[key] is None:
                raise InvalidValue(key, "is left out rather than null")
        return cls(value["parent"], value["message"], value.get("called_by"), value.get("tool_call_id"))


# What sets the slots of a frozen node, looked up once.
_put_parent, _put_message, _put_called_by, _put_tool_call_id = (
    vars(Node)[each].__set__ for each in ("parent", "message", "called_by", "tool_call_id")
)


def _id(value: object, path: str) -> str:
    if not is_oid(value):
        needed = "64 lower-case hex digits" + (" or 'root'" if path == "parent" else "")
        raise InvalidValue(path, f"{needed} are needed")
    return text(value, path)


def canonical_node_json(
    parent: str, message: str, called_by: str | None = None, tool_call_id: str | None = None
) -> bytes:
    """The canonical bytes of a node whose fields are known to be good."""
    if called_by is None:
        return _plain(parent, message)
    value = {"called_by": called_by, "message": message, "parent": parent}
    if tool_call_id is not None:
        value["tool_call_id"] = tool_call_id
    return dumps(value)


def node_id(parent: str, message: str, called_by: str | None = None, tool_call_id: str | None = None) -> NodeId:
    """The id of a node: a pure function of what it says. Raises `InvalidId` or `InvalidValue`."""
    if called_by is not None or tool_call_id is not None:
        caller = None if called_by is None else NodeId(Oid(called_by))
        return Node(NodeId(Oid(parent)), MessageId(Oid(message)), caller, tool_call_id).id
    if type(parent) is type(message) is str and len(parent) == len(message) == OID_DIGITS:
        raw = f'{{"message":"{message}","parent":"{parent}"}}'.encode("ascii", "replace")
        if raw.translate(None, _HEX) == _FRAME:  # all hex digits, told three times faster than by parsing both
            oid: NodeId = _sha256(raw).hexdigest()
            return oid
    return _hash(_plain(parse_parent(parent), parse_oid(message)))


def plain_node_id(parent: str, message: str) -> NodeId:
    """`node_id` without called_by, of ids known to be good: the hot path."""
    oid: NodeId = _sha256(f'{{"message":"{message}","parent":"{parent}"}}'.encode("ascii", "replace")).hexdigest()
    return oid


def _plain(parent: str, message: str) -> bytes:
    return f'{{"message":"{message}","parent":"{parent}"}}'.encode("ascii", "replace")


_HEX: Final = b"0123456789abcdef"
_FRAME: Final = _plain("", "").translate(None, _HEX)


def _hash(raw: bytes) -> NodeId:
    oid: NodeId = _sha256(raw).hexdigest()
    return oid
