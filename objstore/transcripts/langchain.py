"""LangChain's messages in a file: `messages_to_dict`, `dumpd`, or each message's own fields.

One file is one conversation: a list of messages, or an object with one under `messages`. What a single
message means is in `langchain_messages`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from objstore.transcripts.jsonfile import ArrayReader
from objstore.transcripts.langchain_messages import Conversation, fields_of
from objstore.transcripts.model import Certainty, ReaderOutput, Skipped, Transcript, Warn
from objstore.transcripts.peek import values_in
from objstore.transcripts.source import Source, SourceFile
from objstore.transcripts.warnings import bounded

FORMAT: Final = "langchain"

_HINT: Final = re.compile(rb'"(?:additional_kwargs|response_metadata|invalid_tool_calls|lc)"\s*:')
_NAMES: Final = ("messages",)


def sniff(start: bytes, name: str) -> Certainty:
    """A list of objects that are LangChain's messages in one of their three forms."""
    values = values_in(start)
    first = values[0] if len(values) == 1 else None
    if isinstance(first, dict):
        first = first.get("messages")
    if not isinstance(first, list) or not first or fields_of(first[0]) is None:
        return Certainty.NO
    return Certainty.YES if _HINT.search(start) else Certainty.MAYBE


def split(source: Source) -> list[list[SourceFile]]:
    """Each file by itself."""
    return [[file] for file in source.files()]


def read(source: Source) -> Iterator[ReaderOutput]:
    """A conversation for each file."""
    for file in source.files():
        yield _transcript(file)


def _transcript(file: SourceFile) -> ReaderOutput:
    told: list[Warn] = []
    name = file.name.removesuffix(".json")
    made = Transcript(FORMAT, name, (), warnings=told, place=file.name)
    conversation = Conversation(bounded(made.warn))
    for element in ArrayReader(file, made.warn, _NAMES):
        if element.value is not None:  # what can't be held has been told
            conversation.add(element.value, element.place)
    conversation.finish(made)
    if not made.entries:
        first = told[0] if told else Warn("empty-conversation", file.name)
        return Skipped(first.kind, first.place, first.text)
    made.model = made.calls[-1].model if made.calls else None
    return made
