"""Nodes: a place in a chain. "This message, after that node"."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from objstore.jsonvalue import dumps, text
from refs.errors import InvalidValue
from refs.ids import ROOT, MessageId, NodeId, Oid, is_oid, parse_oid, parse_parent


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
        if self.parent != ROOT and not is_oid(self.parent):
            raise InvalidValue("parent", "64 lower-case hex digits or 'root' are needed")
        if not is_oid(self.message):
            raise InvalidValue("message", "64 lower-case hex digits are needed")
        if self.called_by is not None and not is_oid(self.called_by):
            raise InvalidValue("called_by", "64 lower-case hex digits are needed")
        if self.tool_call_id is not None:
            if self.called_by is None:
                raise InvalidValue("tool_call_id", "stands only beside called_by")
            object.__setattr__(self, "tool_call_id", text(self.tool_call_id, "tool_call_id"))

    def canonical(self) -> bytes:
        return canonical_node_json(self.parent, self.message, self.called_by, self.tool_call_id)

    @property
    def id(self) -> NodeId:
        return NodeId(Oid(sha256(self.canonical()).hexdigest()))

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Node:
        """From parsed JSON. Unlike elsewhere a key that isn't known is refused: an id vouches for all of it."""
        unknown = value.keys() - {"parent", "message", "called_by", "tool_call_id"}
        if unknown:
            raise InvalidValue(min(unknown), "no such key in a node")
        for key in ("parent", "message"):
            if key not in value:
                raise InvalidValue(key, "missing")
        for key in ("called_by", "tool_call_id"):
            if key in value and value[key] is None:
                raise InvalidValue(key, "is left out rather than null")
        return cls(value["parent"], value["message"], value.get("called_by"), value.get("tool_call_id"))


def canonical_node_json(
    parent: str, message: str, called_by: str | None = None, tool_call_id: str | None = None
) -> bytes:
    """The canonical bytes of a node whose fields are known to be good."""
    if called_by is None:
        return f'{{"message":"{message}","parent":"{parent}"}}'.encode("ascii")
    value = {"called_by": called_by, "message": message, "parent": parent}
    if tool_call_id is not None:
        value["tool_call_id"] = tool_call_id
    return dumps(value)


def node_id(parent: str, message: str, called_by: str | None = None, tool_call_id: str | None = None) -> NodeId:
    """The id of a node: a pure function of what it says. Raises `InvalidId` or `InvalidValue`."""
    if called_by is None and tool_call_id is None:
        return plain_node_id(parse_parent(parent), parse_oid(message))
    return Node(
        NodeId(Oid(parent)),
        MessageId(Oid(message)),
        None if called_by is None else NodeId(Oid(called_by)),
        tool_call_id,
    ).id


def plain_node_id(parent: str, message: str) -> NodeId:
    """`node_id` without called_by, of ids known to be good: the hot path."""
    return NodeId(Oid(sha256(f'{{"message":"{message}","parent":"{parent}"}}'.encode("ascii")).hexdigest()))
