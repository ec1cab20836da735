"""Gemini's API: requests (`contents`), responses (`candidates`), both as pairs, lists of contents.

A content that holds function responses is a message of role `tool`; `model` is `assistant`. The system
instruction is the first message.
"""

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
from objstore.transcripts.gemini_parts import member, parts_in, read_part
from objstore.transcripts.model import Certainty, ReaderOutput
from objstore.transcripts.peek import values_in
from objstore.transcripts.source import Source, SourceFile
from objstore.transcripts.warnings import Warner

FORMAT: Final = "gemini-contents"

_LOOKED_AT: Final = 16  # records, contents: how far a file is looked into to tell its format
_ROLES: Final = {"model": "assistant", "function": "tool"}
_INSTRUCTION: Final = ("systemInstruction", "system_instruction")
_TOKENS: Final = ("promptTokenCount", "candidatesTokenCount")


class _Contents:
    format = FORMAT
    arrays = ("contents", "candidates")
    handled = frozenset({"contents", *_INSTRUCTION, "model", "title", "id", "candidates"})

    def is_item(self, value: Json) -> bool:
        about = mapping(value)
        return "parts" in about and isinstance(about.get("role", ""), str) and "contents" not in about

    def sent(self, request: Mapping[str, Json]) -> Sequence[Json] | None:
        contents = request.get("contents")
        if isinstance(contents, str | dict):
            return [contents]
        return contents if isinstance(contents, list) else None

    def answers(self, response: Mapping[str, Json]) -> Sequence[Sequence[Json]] | None:
        candidates = response.get("candidates")
        if not isinstance(candidates, list):
            return None
        return [[_chosen(each)] for each in candidates if mapping(each).get("content")]

    def preface(self, request: Mapping[str, Json], place: str, warn: Warner) -> Iterable[Spoken]:
        instruction = member(request, _INSTRUCTION[0]) or member(mapping(request.get("config")), _INSTRUCTION[0])
        if instruction:
            draft = Draft("system", place, warn)
            for part in parts_in(instruction):
                read_part(draft, part)
            yield Spoken(draft)

    def messages(self, items: Iterable[Item], warn: Warner, names: dict[str, str]) -> Iterator[Spoken]:
        for given, place in items:
            content = mapping(given)
            if not content and not isinstance(given, str):
                warn("not-a-message", place, type(given).__name__)
                continue
            parts = parts_in(given)
            role = string(content.get("role")) or "user"
            answers = any(member(mapping(part), "functionResponse") is not None for part in parts)
            draft = Draft("tool" if answers else _ROLES.get(role, role), place, warn)
            for part in parts:
                read_part(draft, part)
            if answers and role != "user":
                draft.note["role"] = role
            draft.note |= {key: value for key, value in content.items() if key not in ("role", "parts", "text")}
            yield Spoken(draft)

    def usage(self, response: Mapping[str, Json]) -> Usage | None:
        response_id = string(member(response, "responseId"))
        if not response_id:
            return None
        usage = mapping(member(response, "usageMetadata"))
        return Usage(
            response_id,
            string(member(response, "modelVersion")),
            time_of(member(response, "createTime")),
            member(usage, _TOKENS[0]),
            member(usage, _TOKENS[1]),
            {key: value for key, value in usage.items() if key not in _TOKENS},
        )


def _chosen(candidate: Json) -> Mapping[str, Json]:
    """A candidate's content, with why it ended and what it cites."""
    about = mapping(candidate)
    kept = {key: value for key, value in about.items() if key not in ("content", "index")}
    return {"role": "model", **mapping(about.get("content")), **kept}


def sniff(file_start: bytes, name: str) -> Certainty:
    """Contents have parts, and parts have no type."""
    for value in values_in(file_start)[:_LOOKED_AT]:
        for each in value[:_LOOKED_AT] if isinstance(value, list) else (value,):
            if _is_ours(each):
                return Certainty.YES
    return Certainty.NO


def _is_ours(value: Json) -> bool:
    exchange = exchange_of(Document(value, ""), _Contents())
    if exchange is None:
        return _is_content(value)
    sent = exchange.sent
    return bool(exchange.answers) or any(isinstance(each, str) or _is_content(each) for each in sent[:_LOOKED_AT])


def _is_content(value: Json) -> bool:
    about = mapping(value)
    parts = sequence(about.get("parts"))
    known = about.get("role", "user") in ("user", "model", "function", "system")
    return known and bool(parts) and all(isinstance(each, dict) and "type" not in each for each in parts)


def split(source: Source) -> Iterator[list[SourceFile]]:
    """Every file by itself."""
    return each_file(source)


def read(source: Source) -> Iterator[ReaderOutput]:
    """The conversations of all files of `source`."""
    return read_exchanges(source, _Contents())
