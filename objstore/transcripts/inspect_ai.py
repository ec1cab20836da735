"""inspect_ai logs: a conversation for each sample and epoch, from `.json` logs and the members of `.eval` ones.

Scores, targets and the sample's metadata are in the note of its first message. Events are not kept, but for
the calls to models that they tell of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from objstore.jsonvalue import Json
from objstore.transcripts.api import count_of
from objstore.transcripts.build import time_of
from objstore.transcripts.chains import Chain, Spoken
from objstore.transcripts.draft import is_deep, mapping, sequence, string
from objstore.transcripts.exports import kept_fields
from objstore.transcripts.inspect_messages import Attachments, read_message
from objstore.transcripts.jsonfile import ArrayReader
from objstore.transcripts.model import Certainty, Entry, ReaderOutput, Skipped, SourceCall, Transcript, Warn
from objstore.transcripts.peek import values_in
from objstore.transcripts.source import Source, SourceFile
from objstore.transcripts.warnings import collector

FORMAT: Final = "inspect-ai"

_HEADERS: Final = ("header.json", "_journal/start.json")
_SAMPLE: Final = ("id", "epoch", "target", "choices", "scores", "metadata", "error", "limit", "uuid")
_TOKENS: Final = frozenset({"input_tokens", "output_tokens"})


def sniff(file_start: bytes, name: str) -> Certainty:
    """A log's header, or a sample: what else counts epochs?"""
    values = values_in(file_start)
    first = values[0] if values else None
    if isinstance(first, list):  # an archive's list of summaries
        return Certainty.YES if first and _is_sample(mapping(first[0])) else Certainty.NO
    about = mapping(first)
    logged = isinstance(about.get("eval"), dict) and ("plan" in about or "samples" in about or "status" in about)
    return Certainty.YES if logged or _is_sample(about) else Certainty.NO


def _is_sample(about: Mapping[str, Json]) -> bool:
    return "epoch" in about and "target" in about and "input" in about


def read(source: Source) -> Iterator[ReaderOutput]:
    """The samples of all logs."""
    ids: set[str] = set()
    for file in source.files():
        told: list[Warn] = []
        reader = ArrayReader(file, collector(told), ("samples",))
        for element in reader:
            if reader.is_object:
                yield from _sample(element.value, reader.members, f"{file.name}, sample {element.index + 1}", ids)
        if reader.is_object and _is_sample(reader.members):
            yield from _sample(reader.members, _header(source, file), file.name, ids)
        elif reader.is_object and not reader.found and "eval" not in reader.members and not told:
            yield Skipped("not-a-conversation", file.name)
        yield from (Skipped(warn.kind, f"{file.name}, {warn.place}", warn.text) for warn in told)


def _header(source: Source, file: SourceFile) -> Mapping[str, Json]:
    """The log that a sample in an archive belongs to."""
    above = file.name.rpartition("samples/")[0]
    for name in _HEADERS:
        header = source.find(above + name)
        if header is not None:
            reader = ArrayReader(header, lambda kind, place, text: None, ("samples",))
            for _ in reader:
                pass
            return reader.members
    return {}


def _sample(given: Json, log: Mapping[str, Json], place: str, ids: set[str]) -> Iterator[ReaderOutput]:
    sample, about = mapping(given), mapping(log.get("eval"))
    if not isinstance(sample.get("messages"), list):
        yield Skipped("missing-messages", place)
        return
    run = next((key for key in (string(about.get(k)) for k in ("run_id", "eval_id", "task_id")) if key), place)
    within = f"{sample.get('id')}/{sample.get('epoch')}"
    sample_id = string(sample.get("uuid")) or f"{run}/{within}"
    if sample_id in ids:
        yield Skipped("duplicate-conversation", place, sample_id[:80])
        return
    ids.add(sample_id)
    task = string(about.get("task"))
    made = Transcript(FORMAT, sample_id, (), title=f"{task} {within}" if task else within, place=place)
    made.model, made.created_at = string(about.get("model")), time_of(about.get("created"))
    made.tags = (task,) if task else ()
    chain = Chain(made)
    entries = list(chain.follow(_messages(sample, made)))
    if not entries:
        yield Skipped("no-messages", place, sample_id[:80])
        return
    chain.end()
    chain.finish(chain.last)
    made.entries = entries
    made.calls = list(_calls(sample, entries))
    yield made


def _messages(sample: Mapping[str, Json], made: Transcript) -> Iterator[Spoken]:
    attachments = Attachments(
        mapping(sample.get("attachments")) or mapping(mapping(sample.get("transcript")).get("content"))
    )
    about = {key: value for key, value in kept_fields(sample, ()).items() if key in _SAMPLE and not is_deep(value)}
    for number, given in enumerate(sequence(sample.get("messages"))):
        place = f"message {number + 1}"
        if is_deep(given) or not isinstance(given, dict):
            made.warn("record-too-deep" if isinstance(given, dict) else "not-a-message", place)
            continue
        draft = read_message(attachments.filled(given), place, made.warn)
        if draft is not None:
            if about:
                draft.note["sample"] = about
                about = {}
            yield Spoken(draft)


def _calls(sample: Mapping[str, Json], entries: list[Entry]) -> Iterator[SourceCall]:
    """The calls to models whose answers are among the messages."""
    answers = {entry.note["id"]: entry for entry in entries if isinstance(entry.note.get("id"), str)}
    events = sample.get("events") or mapping(sample.get("transcript")).get("events")
    told: set[str] = set()
    for event in map(mapping, sequence(events)):
        output = mapping(event.get("output"))
        choices = sequence(output.get("choices"))
        answer = mapping(mapping(choices[0]).get("message")) if choices else {}
        entry = answers.get(string(answer.get("id")) or "")
        model = string(event.get("model")) or string(output.get("model"))
        if event.get("event") != "model" or entry is None or not model or entry.key in told:
            continue
        told.add(entry.key)
        usage = mapping(output.get("usage"))
        options = kept_fields(mapping(event.get("config")), ())
        yield SourceCall(
            string(event.get("uuid")) or entry.key,
            model,
            entry.parent,
            entry.key,
            time_of(event.get("timestamp")),
            _milliseconds(output.get("time")),
            string(event.get("error")),
            count_of(usage.get("input_tokens")),
            count_of(usage.get("output_tokens")),
            {key: value for key, value in usage.items() if key not in _TOKENS} or None,
            string(output.get("model")),
            options if options and not is_deep(options) else None,
        )


def _milliseconds(seconds: Json) -> int | None:
    return int(seconds * 1000) if isinstance(seconds, int | float) and 0 <= seconds < 1e9 else None
