"""Which call a tool result answers: a view, worked out while reading, never stored.

Ids repeat in real transcripts (a public benchmark reuses 49 of 722) and are often absent, so a result
belongs to the nearest earlier call with that id that is not yet answered; without ids the same name, and
without a name the order; what is left over is an orphan. "Nearest" is the last message that has such a call;
within one message calls are answered in their order.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from objstore.message import Message, ToolCallPart, ToolResultPart


@dataclass(frozen=True, slots=True)
class Place:
    """A part in a chain: the message's and the part's positions, from 0."""

    message: int
    part: int


@dataclass(frozen=True, slots=True)
class Pairing:
    """`answers` maps each paired result to its call; the rest are `orphans` and `unanswered` calls."""

    answers: dict[Place, Place]
    orphans: tuple[Place, ...]
    unanswered: tuple[Place, ...]


class _Open:
    """The calls not yet answered that share a key: the nearest message's first, in its order."""

    def __init__(self) -> None:
        self._groups: list[tuple[int, deque[Place]]] = []

    def add(self, place: Place) -> None:
        if not self._groups or self._groups[-1][0] != place.message:
            self._groups.append((place.message, deque()))
        self._groups[-1][1].append(place)

    def first(self, unanswered: Mapping[Place, ToolCallPart]) -> Place | None:
        while self._groups:
            group = self._groups[-1][1]
            while group and group[0] not in unanswered:
                group.popleft()
            if group:
                return group[0]
            self._groups.pop()
        return None


def pair_tool_results(chain: Iterable[Message]) -> Pairing:
    """Pair the tool results of a chain, given in reading order, with its tool calls. Linear in parts."""
    unanswered: dict[Place, ToolCallPart] = {}
    keyed: defaultdict[tuple[str, str | None], _Open] = defaultdict(_Open)
    answers: dict[Place, Place] = {}
    orphans: list[Place] = []
    for m, message in enumerate(chain):
        for p, part in enumerate(message.parts):
            place = Place(m, p)
            if isinstance(part, ToolCallPart):
                unanswered[place] = part
                for key in _keys_of_call(part):
                    keyed[key].add(place)
            elif isinstance(part, ToolResultPart):
                found = (keyed[key].first(unanswered) for key in _keys_of_result(part) if key in keyed)
                call = next((place for place in found if place is not None), None)
                if call is None:
                    orphans.append(place)
                else:
                    answers[place] = call
                    del unanswered[call]
    return Pairing(answers, tuple(orphans), tuple(unanswered))


def _keys_of_call(part: ToolCallPart) -> list[tuple[str, str | None]]:
    """What a call can be found by, beside its id: its name, and for results without one its order."""
    keys: list[tuple[str, str | None]] = [("name", part.name), ("order", None)]
    if part.tool_call_id:
        return [("id", part.tool_call_id), *keys]
    return [*keys, ("name without id", part.name)]


def _keys_of_result(part: ToolResultPart) -> list[tuple[str, str | None]]:
    """Where a result looks for its call, in this order."""
    if part.tool_call_id:
        # A result with an id never takes a call of another id; a call that has none may be its own.
        return [("id", part.tool_call_id), ("name without id", part.name)]
    return [("name", part.name)] if part.name else [("order", None)]
