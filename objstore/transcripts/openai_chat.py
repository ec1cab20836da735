"""OpenAI's chat shape: requests, responses, both as pairs, fine-tuning lines, bare lists of messages.

Also what writes the same messages under other names: tau-bench (`traj`), batch files (`body`), preference
data (`input` with `preferred_output` and `non_preferred_output`), a `session` beside its `messages`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from objstore.jsonvalue import Json
from objstore.transcripts.api import Item, Usage, exchange_of
from objstore.transcripts.build import time_of
from objstore.transcripts.chains import Spoken
from objstore.transcripts.chat_messages import read_chat_message, time_in
from objstore.transcripts.documents import Document
from objstore.transcripts.draft import mapping, sequence, string
from objstore.transcripts.exchange import each_file, read_exchanges
from objstore.transcripts.model import Certainty, ReaderOutput
from objstore.transcripts.peek import values_in
from objstore.transcripts.source import Source, SourceFile
from objstore.transcripts.warnings import Warner

FORMAT: Final = "openai-chat"

_LOOKED_AT: Final = 16  # records, messages: how far a file is looked into to tell its format
_DISPLAYED: Final = re.compile(r"^(user|assistant|tool|system): ?", re.MULTILINE)
_CHUNKS: Final = ("user_chunk", "agent_chunk")  # tau2-bench's voice simulations: what was said in one tick


class _Chat:
    format = FORMAT
    arrays = ("messages", "traj")
    handled = frozenset(
        {
            *("messages", "traj", "messages_display", "ticks", "input", "preferred_output"),
            *("non_preferred_output", "choices", "model", "session", "title", "id"),
        }
    )

    def is_item(self, value: Json) -> bool:
        return isinstance(value, dict) and isinstance(value.get("role"), str) and "messages" not in value

    def sent(self, request: Mapping[str, Json]) -> Sequence[Json] | None:
        for key in self.arrays:
            if isinstance(messages := request.get(key), list):
                return messages
        if isinstance(shown := request.get("messages_display"), str):
            return _displayed(shown)
        if isinstance(ticks := request.get("ticks"), list):
            return [
                tick[key] for tick in ticks for key in _CHUNKS if mapping(mapping(tick).get(key)).get("content")
            ]
        if "preferred_output" in request:
            return self.sent(mapping(request.get("input")))
        return None

    def answers(self, response: Mapping[str, Json]) -> Sequence[Sequence[Json]] | None:
        if isinstance(choices := response.get("choices"), list):
            return [[_chosen(choice)] for choice in choices if mapping(choice).get("message")]
        given = [response.get(key) for key in ("preferred_output", "non_preferred_output")]
        answers = [answer for answer in given if isinstance(answer, list)]
        return answers or None

    def preface(self, request: Mapping[str, Json], place: str, warn: Warner) -> Iterable[Spoken]:
        if prompt := string(mapping(request.get("session")).get("system_prompt")):
            yield from self.messages([({"role": "system", "content": prompt}, place)], warn, {})

    def messages(self, items: Iterable[Item], warn: Warner, names: dict[str, str]) -> Iterator[Spoken]:
        for given, place in items:
            if not isinstance(given, dict):
                warn("not-a-message", place, type(given).__name__)
            elif (draft := read_chat_message(given, place, warn, names)) is not None:
                yield Spoken(draft, time_in(given))

    def usage(self, response: Mapping[str, Json]) -> Usage | None:
        response_id = string(response.get("id"))
        if not response_id or "choices" not in response:
            return None
        usage = mapping(response.get("usage"))
        details = {key: value for key, value in usage.items() if isinstance(value, dict)}
        return Usage(
            response_id,
            string(response.get("model")),
            time_of(response.get("created")),
            usage.get("prompt_tokens"),
            usage.get("completion_tokens"),
            details,
        )


def _chosen(choice: Json) -> Mapping[str, Json]:
    """A choice's message, with why it ended."""
    about = mapping(choice)
    message = mapping(about.get("message"))
    reason = about.get("finish_reason")
    return {"role": "assistant", **message, **({"finish_reason": reason} if reason else {})}


def _displayed(shown: str) -> list[Json]:
    """tau-bench's few-shot lines: a conversation as text. Calls are shown as `None`, and that is all there is."""
    found = list(_DISPLAYED.finditer(shown))
    messages: list[Json] = []
    for i, start in enumerate(found):
        end = found[i + 1].start() if i + 1 < len(found) else len(shown)
        text = shown[start.end() : end].removesuffix("\n")
        messages.append({"role": start[1], "content": None if text == "None" else text, "lossy": True})
    return messages


_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_FOREIGN_BLOCKS: Final = ("tool_use", "tool_result", "thinking", "input_text", "input_image", "output_text")
_SURE: Final = ("tool_calls", "function_call", "tool_call_id", "weight", "refusal")


def sniff(file_start: bytes, name: str) -> Certainty:
    """Chat messages are told from other APIs' by what only they have; plain ones may be anybody's."""
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
    if about.get("object") == "chat.completion" or "messages_display" in about or "preferred_output" in about:
        return Certainty.YES
    if isinstance(about.get("ticks"), list) and mapping((about["ticks"] or [None])[0]).get("agent_chunk"):
        return Certainty.YES
    exchange = exchange_of(Document(value, ""), _Chat())
    if exchange is not None:
        if exchange.answers:
            return Certainty.YES
        messages = exchange.sent
    else:
        messages = [value]
    talk = [mapping(message) for message in messages[:_LOOKED_AT]]
    if not talk or any(string(message.get("role")) not in _ROLES or "parts" in message for message in talk):
        return Certainty.NO
    if any(isinstance(block, dict) and _is_foreign(block) for message in talk for block in _blocks(message)):
        return Certainty.NO
    return Certainty.YES if any(key in message for message in talk for key in _SURE) else Certainty.MAYBE


def _blocks(message: Mapping[str, Json]) -> Sequence[Json]:
    return sequence(message.get("content"))


def _is_foreign(block: Mapping[str, Json]) -> bool:
    """Whether a block is one of Anthropic's or of the Responses API."""
    kind = block.get("type")
    return kind in ("tool_use", "tool_result", "thinking") or str(kind).startswith(
        ("input_t", "input_im", "output_")
    )


def split(source: Source) -> Iterator[list[SourceFile]]:
    """Every file by itself."""
    return each_file(source)


def read(source: Source) -> Iterator[ReaderOutput]:
    """The conversations of all files of `source`."""
    return read_exchanges(source, _Chat())
