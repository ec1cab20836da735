"""dag view: a conversation as a chat window shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import click

from cli.completion import revisions
from cli.context import App, pass_app
from cli.parts import lines_of, part_lines
from cli.render import SCHEMA, Screen, first_line, one_line, width_of
from cli.times import said_at, shown
from objstore.message import Message
from objstore.store import Store
from objstore.views import Block, Card, ChatItem, Siblings
from refs.ids import NodeId, Oid, abbreviate

MAX_INDENT_LEVELS: Final = 10
"""Deeper runs are not moved further to the right."""

_ROOM: Final = 20


@click.command()
@click.argument("rev", required=False, shell_complete=revisions)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object an item.")
@pass_app
def command(app: App, rev: str | None, as_json: bool) -> None:
    """Show the conversation up to REV as a chat: tool calls with their results as folded cards.

    Thinking is folded too; results that answer no call are shown as orphans. What an agent or a function did
    follows the message that asked for it, a level deeper. '2 of 3' marks a turn that has siblings: 'dag log
    --graph --all' draws them.

    \b
    Example:
      dag view trip
    """
    head = app.resolve(rev)
    items, beside = app.store.chat_view(head), app.store.alternatives(head)
    if as_json:
        app.screen.json(_as_json(app.store, item, beside) for item in items)
    else:
        app.screen.lines(_lines(app, items, beside))


def _lines(app: App, items: list[ChatItem], beside: Mapping[NodeId, Siblings]) -> Iterator[str]:
    for number, item in enumerate(items):
        if number:
            yield ""
        indent = "    " * min(item.level, MAX_INDENT_LEVELS)
        heading = _heading(app.store, item, beside.get(_node(item.row.id)), app.screen)
        yield f"{indent}{heading}"
        for line in _body(item, max(app.screen.width - len(indent) - 4, _ROOM)):
            yield f"{indent}    {line}".rstrip()
        for oid in item.folded:
            if _node(oid) in beside:
                yield f"{indent}    ({abbreviate(oid)} is {_number(beside[_node(oid)])})"


def _heading(store: Store, item: ChatItem, siblings: Siblings | None, screen: Screen) -> str:
    role = screen.paint(f"[{one_line(item.row.role) or 'erased'}]", "cyan", bold=True)
    at = shown(said_at(store, _node(item.row.id)))
    said = [role, screen.paint(abbreviate(item.row.id), "yellow"), screen.paint(at, "bright_black")]
    if siblings is not None:
        said.append(_number(siblings))
    if item.run == item.row.id and item.row.called_by is not None:
        said.append(f"asked for by {abbreviate(item.row.called_by)}")
    return " ".join(said)


def _body(item: ChatItem, width: int) -> Iterator[str]:
    if item.row.message is None:
        yield "(erased)"
    for block in item.blocks:
        yield from _block(block, width)
    for card in item.cards:
        yield _card(card, width)
    for card in item.orphans:
        yield first_line(f"? {card.tool}{_id(card)}, which answers no call: {card.result}", width)


def _block(block: Block, width: int) -> Iterator[str]:
    if block.type == "thinking":
        yield first_line(f"(thinking) {block.text.strip()}", width)
    elif block.type == "text":
        yield from lines_of(block.text)
    else:
        yield from part_lines(block.part)


def _card(card: Card, width: int) -> str:
    asked = first_line(f"→ {card.tool}{_id(card)} {card.input if card.input != '{}' else ''}", width // 2)
    if card.result is None:
        answer = "no result"
    else:
        answer = ("failed: " if card.is_error else "") + (card.result.strip() or "(empty)")
    room = max(width - width_of(asked) - 3, _ROOM)
    return f"{asked} ← {first_line(answer, room)}"


def _id(card: Card) -> str:
    return f" ({card.tool_call_id})" if card.tool_call_id else ""


def _as_json(store: Store, item: ChatItem, beside: Mapping[NodeId, Siblings]) -> dict[str, object]:
    here = (item.row.id, *item.folded)
    return {
        "schema": SCHEMA,
        "node": item.row.id,
        "role": item.row.role if isinstance(item.row.message, Message) else None,
        "at": said_at(store, _node(item.row.id)),
        "level": item.level,
        "run": item.run,
        "asked_by": item.asked_by,
        "blocks": [_json_block(block) for block in item.blocks],
        "cards": [_json_card(card) for card in item.cards],
        "orphans": [_json_card(card) for card in item.orphans],
        "folded": list(item.folded),
        "siblings": {oid: _json_siblings(beside[_node(oid)]) for oid in here if _node(oid) in beside},
    }


def _node(oid: str) -> NodeId:
    return NodeId(Oid(oid))


def _number(siblings: Siblings) -> str:
    return f"{siblings.index} of {len(siblings.ids)}"


def _json_siblings(siblings: Siblings) -> dict[str, object]:
    return {"index": siblings.index, "nodes": list(siblings.ids), "leaves": list(siblings.leaves)}


def _json_block(block: Block) -> dict[str, object]:
    if block.type in ("thinking", "text"):
        return {"type": block.type, "text": block.text}
    return {"type": block.type, "part": block.part.to_dict()}


def _json_card(card: Card) -> dict[str, object]:
    return {
        "tool": card.tool,
        "tool_call_id": card.tool_call_id,
        "input": card.input,
        "result": card.result,
        "is_error": card.is_error,
        "result_in": card.result_in,
    }
