"""Anthropic's Messages: requests, responses, both as pairs, lists of messages.

A user's message that holds tool results is one of role `tool`, with all that stands beside them. The `system`
prompt is the first message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from objstore.jsonvalue import Json
from objstore.transcripts.anthropic_blocks import read_content
from objstore.transcripts.api import Item, Usage, exchange_of
from objstore.transcripts.chains import Spoken
from objstore.transcripts.documents import Document
from objstore.transcripts.draft import Draft, mapping, sequence, string
from objstore.transcripts.exchange import each_file, read_exchanges
from objstore.transcripts.model import Certainty, ReaderOutput
from objstore.transcripts.peek import values_in
from objstore.transcripts.source import Source, SourceFile
from objstore.transcripts.warnings import Warner

FORMAT: Final = "anthropic"

_LOOKED_AT: Final = 16  # records, messages: how far a file is looked into to tell its format
_CALLS: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_OWN_BLOCKS: Final = _CALLS | {"tool_result", "thinking", "redacted_thinking"}
_ABOUT: Final = ("id", "model", "stop_reason", "stop_sequence", "container", "context_management")


class _Messages:
    format = FORMAT
    arrays = ("messages", "content")
    handled = frozenset({"messages", "system", "model", "title", "id", "content", "role", "type"})

    def is_item(self, value: Json) -> bool:
        about = mapping(value)
        return isinstance(about.get("role"), str) and "content" in about and about.get("type") != "message"

    def sent(self, request: Mapping[str, Json]) -> Sequence[Json] | None:
        messages = request.get("messages")
        return messages if isinstance(messages, list) else None

    def answers(self, response: Mapping[str, Json]) -> Sequence[Sequence[Json]] | None:
        is_answer = response.get("type") == "message" and isinstance(response.get("content"), list)
        return [[response]] if is_answer else None

    def preface(self, request: Mapping[str, Json], place: str, warn: Warner) -> Iterable[Spoken]:
        if system := request.get("system"):
            draft = Draft("system", place, warn)
            read_content(draft, system, {})
            yield Spoken(draft)

    def messages(self, items: Iterable[Item], warn: Warner, names: dict[str, str]) -> Iterator[Spoken]:
        for given, place in items:
            message = mapping(given)
            role, content = string(message.get("role")), message.get("content")
            if not role:
                warn("missing-role" if message else "not-a-message", place, type(given).__name__)
                continue
            blocks = [mapping(block) for block in sequence(content)]
            answers = role == "user" and any(block.get("type") == "tool_result" for block in blocks)
            draft = Draft("tool" if answers else role, place, warn)
            for block in blocks:
                if string(block.get("type")) in _CALLS and (call_id := string(block.get("id"))):
                    names[call_id] = string(block.get("name")) or ""
            read_content(draft, content, names)
            draft.note |= {key: message[key] for key in _ABOUT if message.get(key) is not None}
            yield Spoken(draft)

    def usage(self, response: Mapping[str, Json]) -> Usage | None:
        response_id = string(response.get("id"))
        if not response_id:
            return None
        usage = mapping(response.get("usage"))
        details = {key: value for key, value in usage.items() if key not in ("input_tokens", "output_tokens")}
        return Usage(
            response_id,
            string(response.get("model")),
            input_tokens=usage.get("input_tokens"),
            output_tokens=usage.get("output_tokens"),
            details=details,
        )


def sniff(file_start: bytes, name: str) -> Certainty:
    """Told by its blocks, its models' names, a `system` beside the messages, or where it was sent."""
    for value in values_in(file_start)[:_LOOKED_AT]:
        for each in value[:_LOOKED_AT] if isinstance(value, list) else (value,):
            if _is_ours(each):
                return Certainty.YES
    return Certainty.NO


def _is_ours(value: Json) -> bool:
    about = mapping(value)
    exchange = exchange_of(Document(value, ""), _Messages())
    if exchange is None:
        return isinstance(about.get("role"), str) and _has_own_blocks(about)
    if exchange.answers or "anthropic_version" in exchange.request:
        return True
    model = string(exchange.request.get("model")) or ""
    spoken_to = model.startswith(("claude", "anthropic")) and "max_tokens" in exchange.request
    prompted = "system" in exchange.request and isinstance(
        mapping(next(iter(exchange.sent), None)).get("role"), str
    )
    return spoken_to or prompted or any(_has_own_blocks(mapping(item)) for item in exchange.sent[:_LOOKED_AT])


def _has_own_blocks(message: Mapping[str, Json]) -> bool:
    blocks = [mapping(block) for block in sequence(message.get("content"))]
    return any(
        string(block.get("type")) in _OWN_BLOCKS
        or (block.get("type") in ("image", "document") and "source" in block)
        for block in blocks
    )


def split(source: Source) -> Iterator[list[SourceFile]]:
    """Every file by itself."""
    return each_file(source)


def read(source: Source) -> Iterator[ReaderOutput]:
    """The conversations of all files of `source`."""
    return read_exchanges(source, _Messages())
