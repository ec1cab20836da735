"""OpenAI's Responses API: requests, responses, both as pairs, lists of items."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from objstore.jsonvalue import Json
from objstore.transcripts.api import Item, Usage, exchange_of
from objstore.transcripts.build import time_of
from objstore.transcripts.chains import Spoken
from objstore.transcripts.documents import Document
from objstore.transcripts.draft import Draft, mapping, sequence, string
from objstore.transcripts.exchange import each_file, read_exchanges
from objstore.transcripts.model import Certainty, ReaderOutput
from objstore.transcripts.peek import values_in
from objstore.transcripts.responses_items import ITEM_TYPES, messages_of
from objstore.transcripts.source import Source, SourceFile
from objstore.transcripts.warnings import Warner

FORMAT: Final = "openai-responses"

_LOOKED_AT: Final = 16  # records, items: how far a file is looked into to tell its format
_BLOCKS: Final = ("input_text", "output_text", "input_image", "input_file")


class _Responses:
    format = FORMAT
    arrays = ("input", "output")
    handled = frozenset({"input", "instructions", "model", "title", "id", "output"})

    def is_item(self, value: Json) -> bool:
        about = mapping(value)
        return string(about.get("type")) in ITEM_TYPES or isinstance(about.get("role"), str)

    def sent(self, request: Mapping[str, Json]) -> Sequence[Json] | None:
        given = request.get("input")
        return [given] if isinstance(given, str) else given if isinstance(given, list) else None

    def answers(self, response: Mapping[str, Json]) -> Sequence[Sequence[Json]] | None:
        output = response.get("output")
        return [output] if isinstance(output, list) else None

    def preface(self, request: Mapping[str, Json], place: str, warn: Warner) -> Iterable[Spoken]:
        given = request.get("instructions")
        if isinstance(given, str) and given:
            draft = Draft("system", place, warn)
            draft.text(given)
            said: Iterable[Spoken] = [Spoken(draft)]
        else:
            said = messages_of([(item, place) for item in sequence(given)], warn, {})
        for spoken in said:
            spoken.draft.note["instructions"] = True
            yield spoken

    def messages(self, items: Iterable[Item], warn: Warner, names: dict[str, str]) -> Iterator[Spoken]:
        return messages_of(items, warn, names)

    def usage(self, response: Mapping[str, Json]) -> Usage | None:
        response_id = string(response.get("id"))
        if not response_id or "output" not in response:
            return None
        usage = mapping(response.get("usage"))
        return Usage(
            response_id,
            string(response.get("model")),
            time_of(response.get("created_at")),
            usage.get("input_tokens"),
            usage.get("output_tokens"),
            {key: value for key, value in usage.items() if isinstance(value, dict)},
        )


def sniff(file_start: bytes, name: str) -> Certainty:
    """Items are told by their types; a request of plain messages by where they stand."""
    certainty = Certainty.NO
    for value in values_in(file_start)[:_LOOKED_AT]:
        for each in value[:_LOOKED_AT] if isinstance(value, list) else (value,):
            found = _certainty(each)
            if found is Certainty.YES:
                return found
            certainty = found if found is not Certainty.NO else certainty
    return certainty


def _certainty(value: Json) -> Certainty:
    about = mapping(value)
    if about.get("object") == "response" or _is_item(value):
        return Certainty.YES
    exchange = exchange_of(Document(value, ""), _Responses())
    if exchange is None:
        return Certainty.NO
    items = [*exchange.sent, *(item for answer in exchange.answers for item in answer)]
    if any(_is_item(item) for item in items[:_LOOKED_AT]):
        return Certainty.YES
    talk = bool(items) and all(isinstance(item, str) or mapping(item).get("role") for item in items[:_LOOKED_AT])
    return (
        Certainty.MAYBE
        if talk and ("model" in exchange.request or "instructions" in exchange.request)
        else Certainty.NO
    )


def _is_item(item: Json) -> bool:
    about = mapping(item)
    if string(about.get("type")) in ITEM_TYPES:
        return any(key in about for key in ("id", "call_id", "summary", "encrypted_content", "output"))
    blocks = sequence(about.get("content")) if about.get("type") in (None, "message") and "role" in about else ()
    return any(mapping(block).get("type") in _BLOCKS for block in blocks)


def split(source: Source) -> Iterator[list[SourceFile]]:
    """Every file by itself."""
    return each_file(source)


def read(source: Source) -> Iterator[ReaderOutput]:
    """The conversations of all files of `source`."""
    return read_exchanges(source, _Responses())
