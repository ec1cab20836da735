"""The recorded behaviour of another program, mapped onto our rows and back. docs/calls.md tells the mapping.

There `predecessor` is our `parent`, `caller` our `called_by`, the role `llm` is `assistant` and `code` is
`tool`. A code row holds a function's arguments and its result in one: a call and a result in one message.
"""

import json
from pathlib import Path

import pytest

from objstore.message import RAW_ARGUMENTS, Message, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from objstore.views import (
    Expose,
    Row,
    aggregate_tool_messages,
    linear_history,
    render_context,
    siblings,
)
from refs.ids import ROOT

_FILE = Path(__file__).parents[3] / "shared" / "vectors" / "call-hierarchy.json"
_VECTORS = json.loads(_FILE.read_text()) if _FILE.exists() else {}
_ROLES = {"llm": "assistant", "code": "tool"}

pytestmark = pytest.mark.skipif(not _VECTORS, reason="the shared vectors are not beside this repository")


def cases(group):
    found = _VECTORS.get(group, [])
    return pytest.mark.parametrize("case", found, ids=[case["name"] for case in found])


def to_row(theirs, order, known=frozenset()):
    """One of their rows as ours. Their ROOT is our root, unless it is a row itself."""
    about = theirs.get("metadata", {})
    parent, caller = theirs.get("predecessor"), theirs.get("caller")
    return Row(
        id=theirs["id"],
        role=_ROLES.get(theirs["role"], theirs["role"]),
        parent=ROOT if parent is None or (parent == "ROOT" and "ROOT" not in known) else parent,
        called_by=None if caller in (None, "", "ROOT") else caller,
        order=order,
        expose=Expose(about.get("expose", "io")),
        display=theirs.get("display") or about.get("display"),
        source=theirs.get("source") or about.get("source"),
        covers=tuple(about.get("covers_ids", ())),
    )


def timed_rows(case):
    return [to_row(theirs, theirs["created_at"]) for theirs in case["msgs"]]


def sequence_rows(case):
    known = {theirs["id"] for theirs in case["nodes"]}
    return [to_row(theirs, seq, known) for seq, theirs in enumerate(case["nodes"])]


@cases("linear_history")
def test_linear_history(case):
    assert [row.id for row in linear_history(timed_rows(case), case["head"])] == case["ids"]


@cases("siblings")
def test_siblings(case):
    found = siblings(timed_rows(case), case["id"])

    assert list(found.ids) == case["siblings"]
    assert [found.index, len(found.ids)] == case["index"]
    assert found.leaves[found.index - 1] == case["deepest_leaf"]


@cases("render_context")
def test_render_context(case):
    args = case["args"]
    shown = render_context(
        sequence_rows(case),
        args.get("head_id"),
        until=args.get("head_seq"),
        frame=args.get("frame_entry_seq"),
        max_caller_rows=args.get("render_range", {}).get("callers"),
    )

    assert [row.id for row in shown] == case["ids"]


def extra_of(theirs):
    """Their `extra` is an object, or the JSON of one; what can't be read counts as nothing."""
    extra = theirs.get("extra", {})
    if isinstance(extra, str):
        try:
            extra = json.loads(extra)
        except ValueError:
            return {}
    return extra


def to_chat_row(theirs, order):
    extra, function = extra_of(theirs), theirs.get("function")
    parts = [TextPart(theirs["content"])]
    if theirs["role"] == "tool":
        use = extra.get("tool_use", {})
        parts = [ToolResultPart(function, theirs["content"], theirs["id"])]
        if "arguments" in use:
            given = use["arguments"]
            arguments = given if isinstance(given, dict) else {RAW_ARGUMENTS: given}
            parts.insert(0, ToolCallPart(use.get("name", function), arguments, theirs["id"]))
        theirs = {"caller": use.get("caller"), **theirs}
    elif theirs["role"] == "assistant" and extra.get("blocks"):
        kinds = {"thinking": ReasoningPart, "text": TextPart}
        parts = [kinds[block["type"]](block["text"]) for block in extra["blocks"]]
    row = to_row(theirs, order)
    message = Message(row.role, parts)
    return Row(row.id, row.role, called_by=row.called_by, order=order, message=message)


def to_their_chat(items, given):
    """Our items as their rows: what they gave, with the cards, and the blocks where there is thinking."""
    made = []
    for item in items:
        row = dict(given[item.row.id])
        if item.cards and item.row.role == "assistant":
            row["tool_calls"] = [
                {
                    "tool_call_id": card.tool_call_id,
                    "tool": card.tool,
                    "input": card.input,
                    "result": card.result,
                    "is_error": card.is_error,
                }
                for card in item.cards
            ]
        if any(block.type != "text" for block in item.blocks):
            row["blocks"] = [{"type": block.type, "text": block.text} for block in item.blocks]
        made.append(row)
    return made


@cases("aggregate")
def test_aggregate(case):
    items = aggregate_tool_messages([to_chat_row(theirs, i) for i, theirs in enumerate(case["in"])])

    assert to_their_chat(items, {theirs["id"]: theirs for theirs in case["in"]}) == case["out"]
