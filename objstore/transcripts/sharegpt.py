"""ShareGPT: conversations as turns of `from` and `value`, the shape of most training data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from objstore.jsonvalue import Json, loads_exactly
from objstore.message import ToolResultPart
from objstore.transcripts.api import Item, Usage
from objstore.transcripts.build import text_of
from objstore.transcripts.chains import Spoken
from objstore.transcripts.draft import Draft, mapping, string
from objstore.transcripts.exchange import each_file, read_exchanges
from objstore.transcripts.model import Certainty, ReaderOutput
from objstore.transcripts.peek import values_in
from objstore.transcripts.source import Source, SourceFile
from objstore.transcripts.warnings import Warner
from refs.errors import InvalidValue

FORMAT: Final = "sharegpt"
FUNCTION_CALL: Final = "function_call"
SPEAKERS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("human", "user", "prompter", "person"), "user"),
    **dict.fromkeys(("gpt", "chatgpt", "assistant", "bing", "bard", "model", "bot", "claude"), "assistant"),
    "system": "system",
    **dict.fromkeys(("tool", "observation", "function_response", "function", "ipython"), "tool"),
    FUNCTION_CALL: "assistant",
}
"""The role of each `from`. Any other is a role of that name, and told."""
USUAL: Final = {"user": "human", "assistant": "gpt", "system": "system", "tool": "tool"}
"""The `from` of each role, where the note names no other."""

_LISTS: Final = ("conversations", "items", "conversation", "messages")
_LOOKED_AT: Final = 16  # records, turns: how far a file is looked into to tell its format
_TURN: Final = frozenset({"from", "role", "value", "content", "text"})


class _Turns:
    format = FORMAT
    arrays = _LISTS
    handled = frozenset({*_LISTS, "id", "title", "model", "system"})

    def is_item(self, value: Json) -> bool:
        return isinstance(mapping(value).get("from"), str)

    def sent(self, request: Mapping[str, Json]) -> Sequence[Json] | None:
        return next((request[key] for key in _LISTS if isinstance(request.get(key), list)), None)

    def answers(self, response: Mapping[str, Json]) -> Sequence[Sequence[Json]] | None:
        return None

    def preface(self, request: Mapping[str, Json], place: str, warn: Warner) -> Iterable[Spoken]:
        if isinstance(system := request.get("system"), str) and system:
            yield from self.messages([({"from": "system", "value": system}, place)], warn, {})

    def messages(self, items: Iterable[Item], warn: Warner, names: dict[str, str]) -> Iterator[Spoken]:
        for given, place in items:
            turn = mapping(given)
            speaker = string(turn.get("from")) or string(turn.get("role"))
            if not speaker:
                warn("missing-role" if turn else "not-a-message", place, type(given).__name__)
                continue
            role = SPEAKERS.get(speaker.lower(), speaker)
            if speaker.lower() not in SPEAKERS:
                warn("unknown-role", place, speaker[:80])
            draft = Draft(role, place, warn)
            value = next((turn[key] for key in ("value", "content", "text") if turn.get(key) is not None), None)
            if speaker == FUNCTION_CALL and _call(draft, value):
                pass
            elif role == "tool":
                draft.parts.append(ToolResultPart("", text_of(value)))
            else:
                draft.text(value)
            if speaker != USUAL.get(role):
                draft.note["from"] = speaker
            draft.note |= {key: each for key, each in turn.items() if key not in _TURN}
            yield Spoken(draft)

    def usage(self, response: Mapping[str, Json]) -> Usage | None:
        return None


def _call(draft: Draft, value: Json) -> bool:
    """A call written as JSON: `{"name": …, "arguments": …}`. False for anything else, which stays text."""
    try:
        call = mapping(loads_exactly(text_of(value).encode("utf-8", "surrogatepass")))
    except InvalidValue:
        return False
    name, arguments = string(call.get("name")), call.get("arguments")
    if name is None or set(call) != {"name", "arguments"} or not isinstance(arguments, str | dict):
        return False
    draft.extra(text=value)
    draft.call(name, arguments, None)
    return True


def sniff(file_start: bytes, name: str) -> Certainty:
    """Turns have a `from`, which nothing else has."""
    for value in values_in(file_start)[:_LOOKED_AT]:
        for each in value[:_LOOKED_AT] if isinstance(value, list) else (value,):
            turns = _Turns().sent(mapping(each)) or [each]
            if any(_is_turn(turn) for turn in turns[:_LOOKED_AT]):
                return Certainty.YES
    return Certainty.NO


def _is_turn(value: Json) -> bool:
    turn = mapping(value)
    return isinstance(turn.get("from"), str) and any(key in turn for key in ("value", "content", "text"))


def split(source: Source) -> Iterator[list[SourceFile]]:
    """Every file by itself."""
    return each_file(source)


def read(source: Source) -> Iterator[ReaderOutput]:
    """The conversations of all files of `source`."""
    return read_exchanges(source, _Turns())
