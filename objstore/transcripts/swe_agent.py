"""Trajectories of SWE-agent (`.traj`) and mini-swe-agent: what was sent to the model, in OpenAI's chat shape.

Of a `.traj` the `history` is read; its `trajectory` says the same as steps, and is read where there is no
history. How the run ended is in the note of the last message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from objstore.jsonvalue import Json
from objstore.transcripts.build import time_of
from objstore.transcripts.chains import Chain, Spoken
from objstore.transcripts.chat_messages import read_chat_message
from objstore.transcripts.draft import mapping, sequence, string
from objstore.transcripts.jsonfile import ArrayReader
from objstore.transcripts.model import Certainty, Entry, Head, ReaderOutput, Transcript
from objstore.transcripts.peek import values_in
from objstore.transcripts.sessions import each_file
from objstore.transcripts.source import Source, SourceFile
from objstore.transcripts.warnings import Warner

FORMAT: Final = "swe-agent"

_LISTS: Final = ("history", "messages")
_MARKS: Final = ("<returncode>", "mswea_bash_command")  # what mini-swe-agent's own prompts say
_LOOKED_AT: Final = 16  # messages: how far a file is looked into to tell its format
_REPEATED: Final = ("thought", "action")


def sniff(file_start: bytes, name: str) -> Certainty:
    """Certain of a history of agents' messages, and of mini-swe-agent's marks."""
    value = next(iter(values_in(file_start)), None)
    given = mapping(value)
    if string(given.get("trajectory_format")) or _is_step(sequence(given.get("trajectory"))):
        return Certainty.YES
    listed = value if isinstance(value, list) else sequence(given.get("history") or given.get("messages"))
    messages = [mapping(each) for each in listed[:_LOOKED_AT]]
    if any("role" in each and {"agent", "message_type"} & each.keys() for each in messages):
        return Certainty.YES
    texts = [text for each in messages if isinstance(text := each.get("content"), str)]
    return Certainty.YES if any(mark in text for text in texts for mark in _MARKS) else Certainty.NO


def _is_step(steps: Iterable[Json]) -> bool:
    return any({"action", "observation"} <= mapping(step).keys() for step in steps)


def split(source: Source) -> Iterator[list[SourceFile]]:
    """Every file by itself."""
    return each_file(source)


def read(source: Source) -> Iterator[ReaderOutput]:
    """One transcript for each file, called after it."""
    ids: set[str] = set()
    for file in source.files():
        stem = file.name.rpartition("/")[2].removesuffix(".json").removesuffix(".traj")
        name = file.name if stem in ids or not stem else stem
        ids.add(name)
        yield _transcript(file, name)


def _transcript(file: SourceFile, name: str) -> Transcript:
    made = Transcript(FORMAT, name, (), place=file.name)
    made.entries = _entries(file, made)
    return made


def _entries(file: SourceFile, made: Transcript) -> Iterator[Entry]:
    reader = ArrayReader(file, made.warn, _LISTS)
    names: dict[str, str] = {}
    spoken = [_spoken(mapping(each.value), each.place, made.warn, names) for each in reader]
    if not reader.found:
        steps = sequence(reader.members.get("trajectory"))
        spoken = [_spoken(given, place, made.warn, names) for given, place in _steps(steps)]
    said = [each for each in spoken if each is not None]
    info = mapping(reader.members.get("info"))
    made.model = _model(info)
    if said and info:
        said[-1].draft.note["info"] = dict(info)
    chain = Chain(made)
    yield from chain.follow(said)
    if chain.last is not None:
        made.heads.append(Head(chain.last, made.id, True, made.title))


def _spoken(given: Mapping[str, Json], place: str, warn: Warner, names: dict[str, str]) -> Spoken | None:
    """One message of a history, with the id of its call under the name that OpenAI uses."""
    message = dict(given)
    call_ids = sequence(message.pop("tool_call_ids", None))
    if call_ids and "tool_call_id" not in message:
        message["tool_call_id"] = call_ids[0]
    for key in _REPEATED:
        if isinstance(message.get(key), str) and message[key].strip() in str(message.get("content")):
            del message[key]
    draft = read_chat_message(message, place, warn, names)
    if draft is None:
        return None
    if len(call_ids) > 1:
        draft.note["call_ids"] = list(call_ids)
    return Spoken(draft, time_of(given.get("timestamp")))


def _steps(steps: Iterable[Json]) -> Iterator[tuple[Mapping[str, Json], str]]:
    """A trajectory's steps as messages: what the model answered, and what came of it."""
    for i, each in enumerate(steps):
        step = mapping(each)
        yield {"role": "assistant", "content": step.get("response") or step.get("thought")}, f"step {i}"
        yield {"role": "user", "content": step.get("observation")}, f"step {i}"


def _model(info: Mapping[str, Json]) -> str | None:
    config = mapping(mapping(info.get("config")).get("model"))
    return string(config.get("model_name")) or string(info.get("model"))
