"""The chat view: what a chat window shows, tool calls and their results folded into cards."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from objstore.jsonvalue import Json
from objstore.message import (
    RAW_ARGUMENTS,
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from objstore.pairing import Place, pair_tool_results
from objstore.views.rows import RUNTIME, Row, Rows

_ERASED = Message("erased")


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a message as it is shown: `type` is thinking, text, or another part's own type."""

    type: str
    text: str
    part: Part


@dataclass(frozen=True, slots=True)
class Card:
    """One tool call and what came of it. `result` is None where nothing came.

    `input` is the arguments as JSON text, or as the raw text they were; empty where no call is known.
    `result_in` is the id of the row that the result stands in.
    """

    tool: str
    tool_call_id: str | None = None
    input: str = ""
    result: str | None = None
    is_error: bool = False
    result_in: str | None = None


@dataclass(frozen=True, slots=True)
class ChatItem:
    """One row as the chat view shows it.

    `cards` are its tool calls, `orphans` the results in it that answer no call, `folded` the rows that are
    shown in its cards and nowhere else. `run` is the id of the row that begins the run this row is in, if
    it is in one; `asked_by` the id of the item that asked for the run: none did where it is None. `level`
    counts the items above it that way.
    """

    row: Row
    level: int
    run: str | None
    asked_by: str | None
    blocks: tuple[Block, ...]
    cards: tuple[Card, ...]
    orphans: tuple[Card, ...]
    folded: tuple[str, ...]


def aggregate_tool_messages(rows: Iterable[Row]) -> list[ChatItem]:
    """The chat view of a chain (see `linear_history`) and of the runs given with it.

    Every row once: as an item, or folded into one. A run follows the item that asked for it, one level
    deeper; one that no message here asked for stands by itself, at its own time, with what hangs on it.
    """
    rows = Rows.of(rows)
    chat = _Chat(rows)
    for strand in chat.strands.values():
        chat.pair(strand)
    for row in rows:
        if row.is_function and chat.starts[row.id] == row.id:
            chat.fold_function(row)
    return chat.in_reading_order()


@dataclass(slots=True)
class _Shown:
    """What a row shows, while it is gathered."""

    blocks: list[Block] = field(default_factory=list)
    cards: list[Card] = field(default_factory=list)
    orphans: list[Card] = field(default_factory=list)
    folded: list[str] = field(default_factory=list)


class _Chat:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._shown = {row.id: _Shown() for row in rows}
        self._home: dict[str, str] = {}  # a folded row -> the row that shows it
        self.starts = _starts(rows)
        self.strands: defaultdict[str | None, list[Row]] = defaultdict(list)
        for row in rows:
            self.strands[self.starts[row.id]].append(row)

    def pair(self, strand: list[Row]) -> None:
        """The blocks, cards and orphans of one chain's rows; a row of nothing but paired results is folded."""
        messages = [row.message or _ERASED for row in strand]
        pairing = pair_tool_results(messages)
        results = {call: result for result, call in pairing.answers.items()}
        for m, (row, message) in enumerate(zip(strand, messages, strict=True)):
            shown = self._shown[row.id]
            home: Row | None = None
            for p, part in enumerate(message.parts):
                place = Place(m, p)
                if isinstance(part, ToolCallPart):
                    shown.cards.append(_called(part, messages, strand, results.get(place)))
                elif not isinstance(part, ToolResultPart):
                    shown.blocks.append(_block(part))
                elif place in pairing.answers:
                    home = strand[pairing.answers[place].message]
                else:
                    shown.orphans.append(_answered(Card(part.name, part.tool_call_id), part, row))
            if home is not None and not (shown.blocks or shown.cards or shown.orphans):
                self._fold(row.id, home.id)

    def fold_function(self, row: Row) -> None:
        """Show a function's run as a card of the assistant's message that called it; no other takes it in.

        Where that message holds the tool call itself, the run is its result if it has no other; a run whose
        result the conversation tells too stays an item of its own.
        """
        caller, shown = self._rows.get(row.called_by), self._shown[row.id]
        own = [*shown.cards, *shown.orphans]
        if caller is None or caller.role != "assistant" or caller.id in self._home:
            return
        if len(own) != 1 or shown.blocks:
            return
        cards = self._shown[caller.id].cards
        asked = [i for i, card in enumerate(cards) if row.tool_call_id and card.tool_call_id == row.tool_call_id]
        unanswered = [i for i in asked if cards[i].result is None]
        if not asked:
            cards.append(own[0])
        elif unanswered and own[0].result is not None:
            i = unanswered[0]
            cards[i] = replace(own[0], tool=cards[i].tool, tool_call_id=row.tool_call_id, input=cards[i].input)
        else:
            return
        for inner in shown.folded:
            self._fold(inner, caller.id)
        self._fold(row.id, caller.id)

    def _fold(self, oid: str, into: str) -> None:
        self._home[oid] = into
        self._shown[into].folded.append(oid)

    def in_reading_order(self) -> list[ChatItem]:
        below: defaultdict[str, list[str]] = defaultdict(list)
        top = []
        for row in self._rows:
            start = self.starts[row.id]
            if start is None:
                top.append(row)
            elif start == row.id:
                if row.called_by in self._rows:
                    asker = str(row.called_by)
                    below[self._home.get(asker, asker)].append(row.id)
                else:
                    top += self.strands[start]
        items: list[ChatItem] = []
        done: set[str] = set()
        for strand in (top, *self.strands.values()):  # runs that asked for each other hang on nothing above
            stack = [(iter(strand), 0, None if strand is top else self._asker(strand[0]))]
            while stack:
                rows, level, asked_by = stack[-1]
                following = next(rows, None)
                if following is None:
                    stack.pop()
                elif following.id not in done:
                    done.add(following.id)
                    if following.id not in self._home:
                        items.append(self._item(following, level, asked_by))
                    runs = reversed(below.get(following.id, ()))
                    stack += [(iter(self.strands[run]), level + 1, following.id) for run in runs]
        return items

    def _asker(self, start: Row) -> str | None:
        asker = start.called_by
        return None if asker is None else self._home.get(asker, asker)

    def _item(self, row: Row, level: int, asked_by: str | None) -> ChatItem:
        shown = self._shown[row.id]
        return ChatItem(
            row,
            level,
            self.starts[row.id],
            asked_by,
            tuple(shown.blocks),
            tuple(shown.cards),
            tuple(shown.orphans),
            tuple(shown.folded),
        )


def _starts(rows: Rows) -> dict[str, str | None]:
    """The row that begins the run each row is in; None for the conversation itself."""
    starts: dict[str, str | None] = {}
    for row in rows.downward:
        begins = row.parent not in rows and (row.called_by is not None or row.display == RUNTIME)
        starts[row.id] = row.id if begins else starts.get(row.parent)
    return starts


def _called(part: ToolCallPart, messages: list[Message], strand: list[Row], result: Place | None) -> Card:
    card = Card(part.name, part.tool_call_id, _arguments(part.arguments))
    answer = None if result is None else messages[result.message].parts[result.part]
    if result is not None and isinstance(answer, ToolResultPart):
        return _answered(card, answer, strand[result.message])
    return card


def _answered(card: Card, part: ToolResultPart, row: Row) -> Card:
    return replace(card, result=part.output, is_error=part.exception is not None, result_in=row.id)


def _block(part: Part) -> Block:
    if isinstance(part, ReasoningPart):
        return Block("thinking", part.text, part)
    if isinstance(part, TextPart):
        return Block("text", part.text, part)
    return Block(str(part.to_dict().get("type", "unknown")), "", part)


def _arguments(arguments: Mapping[str, Json]) -> str:
    raw = arguments.get(RAW_ARGUMENTS)
    if len(arguments) == 1 and isinstance(raw, str):
        return raw
    return json.dumps(arguments, ensure_ascii=False)
