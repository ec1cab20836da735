"""OpenProgram's nodes, under the names of all its versions.

A node is a user's turn, a model's turn (`llm`) or a function's run (`code`). Two edges: `predecessor` (older:
`parent_id`) is the order of the chat, `caller` (older: `called_by`) who invoked it. The same nodes are met as
message rows, with `content`, roles `assistant` and `tool`, and the call in `extra`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from objstore.jsonvalue import EMPTY, Json, loads
from objstore.transcripts.build import time_of
from objstore.transcripts.draft import is_deep, mapping, string
from refs.errors import InvalidValue

ROOT: Final = "ROOT"
"""The id that stands for "nothing before this": as a predecessor, as a caller, and as a node of its own."""

_ROLES: Final = {"assistant": "llm", "tool": "code", "system": "llm"}
_PREDECESSORS: Final = ("predecessor", "parent_id")
_CALLERS: Final = ("caller", "called_by")
_HANDLED: Final = frozenset(
    {"id", "role", "input", "output", "content", "name", "function", "metadata", "extra", "created_at"}
    | {"timestamp", "token_model", "session_id", "tool_call_id", "blocks", "covers_ids"}
).union(_PREDECESSORS, _CALLERS)


@dataclass(frozen=True, slots=True)
class Node:
    """One node. `about` is what its note says; `predecessor` and `caller` are None where there is nothing."""

    id: str
    role: str
    speaker: str
    name: str
    input: Json
    output: Json
    predecessor: str | None
    caller: str | None
    at: str | None
    seq: float
    tool_call_id: str
    blocks: Json
    covers: Json
    about: Mapping[str, Json]


def is_node(value: Json) -> bool:
    """Whether a JSON object is a node or a message row."""
    given = mapping(value)
    if not string(given.get("id")) or not string(given.get("role")):
        return False
    metadata = mapping(given.get("metadata"))
    linked = any(key in given for key in ("predecessor", "caller", "called_by")) or "predecessor" in metadata
    return linked and any(key in given for key in ("output", "content", "created_at", "seq", "metadata"))


def node_of(given: Mapping[str, Json], position: int) -> Node:
    """A node from its JSON. `position` orders those that have no number."""
    metadata = {**_object(given.get("extra")), **mapping(given.get("metadata"))}
    metadata = {**_object(metadata.pop("extra", None)), **metadata}
    use = mapping(metadata.pop("tool_use", None))
    role = str(given["role"])
    kind = _ROLES.get(role, role)
    spoken = string(metadata.pop("role", None)) or ("system" if role == "system" else None)
    seq = given.get("seq", position)
    node_id = str(given["id"])
    merged = {**given, **{key: value for key, value in metadata.items() if key not in given}}
    return Node(
        node_id,
        kind,
        spoken or {"llm": "assistant"}.get(kind, kind),
        string(use.get("name")) or string(merged.get("name")) or _named(given),
        use.get("arguments", given.get("input")),
        given.get("output", given.get("content")),
        _link(merged, _PREDECESSORS),
        string(use.get("caller")) or _link(merged, _CALLERS),
        time_of(given.get("created_at", given.get("timestamp"))),
        seq if isinstance(seq, int | float) else position,
        string(use.get("tool_call_id")) or string(merged.get("tool_call_id")) or node_id,
        merged.get("blocks"),
        merged.get("covers_ids"),
        {key: value for key, value in merged.items() if key not in _HANDLED and value not in (None, "", [], {})},
    )


def _named(given: Mapping[str, Json]) -> str:
    return string(given.get("function")) or string(given.get("token_model")) or ""


def _link(given: Mapping[str, Json], names: tuple[str, str]) -> str | None:
    found = next((given[name] for name in names if isinstance(given.get(name), str) and given[name]), None)
    return None if found == ROOT else found


def _object(given: Json) -> Mapping[str, Json]:
    """`extra` as an object: it may be JSON text, and may be broken."""
    if isinstance(given, str):
        try:
            given = loads(given.encode("utf-8", "surrogatepass"))
        except InvalidValue:
            return EMPTY
    return EMPTY if is_deep(given) else mapping(given)
