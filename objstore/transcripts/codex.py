"""Codex rollouts (`~/.codex/sessions/**/rollout-*.jsonl`), all three generations.

Messages come from the response items; `event_msg` records repeat them for the screen. A file is one line of
conversation. A forked session repeats its parent's records, so the two share a chain by what they say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from objstore.jsonvalue import Json
from objstore.transcripts.build import count_of, note_of, time_of
from objstore.transcripts.chains import Chain, Spoken
from objstore.transcripts.draft import mapping, string
from objstore.transcripts.lines import read_records
from objstore.transcripts.model import Certainty, Entry, Head, ReaderOutput, Skipped, SourceCall, Transcript
from objstore.transcripts.peek import start_of, values_in
from objstore.transcripts.responses_items import ITEM_TYPES, OUTPUTS, messages_of
from objstore.transcripts.sessions import each_file, one_file_each
from objstore.transcripts.source import Source, SourceFile

FORMAT: Final = "codex"

_ENVELOPES: Final = frozenset(
    {"session_meta", "turn_context", "response_item", "event_msg", "compacted", "world_state"}
)
_INJECTED: Final = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "<collaboration_mode>",
    "<turn_aborted>",
    "<skill>",
    "<INSTRUCTIONS>",
    "# AGENTS.md instructions",
)
"""How the texts begin that the program puts in the user's mouth."""

_DROPPED: Final = frozenset({"ghost_snapshot", "token_count", "other"})
_MAX_NOTED_CHARS: Final = 256 * 1024  # of the instructions of a session


def sniff(file_start: bytes, name: str) -> Certainty:
    """Certain of a session's first record or of an envelope with a payload."""
    values = [mapping(value) for value in values_in(file_start)]
    for value in values:
        if string(value.get("type")) in _ENVELOPES and isinstance(value.get("payload"), Mapping):
            return Certainty.YES
        if value.get("record_type") == "state":
            return Certainty.YES
    first = values[0] if values else {}
    if _is_bare_header(first) and all(_item_of(value) or _is_bare_header(value) for value in values):
        return Certainty.YES if "git" in first or "instructions" in first else Certainty.MAYBE
    return Certainty.NO


def split(source: Source) -> Iterator[list[SourceFile]]:
    """Every file by itself."""
    return each_file(source)


def read(source: Source) -> Iterator[ReaderOutput]:
    """One transcript for each file; of two files of one session the larger one."""
    for file, session in one_file_each(source, _session_id):
        yield file if isinstance(file, Skipped) else _Rollout(file, session).transcript


def _session_id(file: SourceFile) -> str:
    for value in values_in(start_of(file)):
        given = mapping(value)
        meta = _meta_of(given)
        if meta is not None and (found := string(meta.get("id")) or string(meta.get("session_id"))):
            return found
    return file.name.rpartition("/")[2].removesuffix(".jsonl") or file.name


def _meta_of(record: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """What a record says about the session, or None where it is another one."""
    if record.get("type") == "session_meta":
        payload = mapping(record.get("payload"))
        return mapping(payload.get("meta")) or payload
    return record if _is_bare_header(record) else None


def _is_bare_header(record: Mapping[str, Json]) -> bool:
    return "id" in record and "timestamp" in record and not {"type", "role", "payload", "message"} & record.keys()


def _item_of(record: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """The response item that a record is or holds."""
    kind = string(record.get("type"))
    if kind == "response_item":
        item = mapping(record.get("payload"))
        return item if item and isinstance(item.get("type", ""), str) else None
    if kind == "message" or "type" not in record:
        return record if isinstance(record.get("role"), str) else None
    return record if kind in ITEM_TYPES and "payload" not in record else None


@dataclass(slots=True)
class _Fed:
    """What goes with one message: its items are handed on one by one and come back joined."""

    standalone: bool
    at: str | None
    note: dict[str, Json]
    items: int = 1
    key: str | None = None
    parent: str | None = None
    usages: list[tuple[str, Mapping[str, Json]]] = field(default_factory=list)  # (model, tokens)
    told: int = 0  # how many calls of it are in the transcript


class _Rollout:
    """Reads one file as it goes."""

    def __init__(self, file: SourceFile, session: str) -> None:
        self._file = file
        self.transcript = Transcript(FORMAT, session, self._entries(), place=file.name)
        self._chain = Chain(self.transcript)
        self._fed: deque[_Fed] = deque()
        self._answer: _Fed | None = None
        self._pending: dict[str, Json] = {}  # for the note of the next message
        self._known_session = False
        self._model: str | None = None
        self._total: Json = None

    def _entries(self) -> Iterator[Entry]:
        for spoken in messages_of(self._items(), self.transcript.warn, {}):
            fed = self._fed.popleft()
            spoken.at = fed.at
            draft = spoken.draft
            draft.note |= fed.note
            if draft.role == "developer" or (draft.role == "user" and _is_injected(spoken)):
                draft.note["hidden"] = True
            if fed.items > 1:
                draft.note["items"] = fed.items
            fed.parent = self._chain.last
            for entry in self._chain.follow([spoken]):
                fed.key = entry.key
                yield entry
            self._add_calls(fed)
        if self._answer is not None:
            self._add_calls(self._answer)
        if self._chain.last is not None:
            transcript = self.transcript
            transcript.heads.append(Head(self._chain.last, transcript.id, True, transcript.title))

    def _items(self) -> Iterator[tuple[Json, str]]:
        for record in read_records(self._file, self.transcript.warn):
            given = mapping(record.value)
            item = _item_of(given)
            if item is None or item.get("type") in _DROPPED:
                self._tell(given, record.place)
                continue
            self._feed(given, item)
            yield item, record.place

    def _feed(self, record: Mapping[str, Json], item: Mapping[str, Json]) -> None:
        kind = item.get("type")
        said = kind in ("message", None) and item.get("role") != "assistant"
        standalone = said or kind in OUTPUTS
        last = self._fed[-1] if self._fed else None
        if not standalone and last is not None and not last.standalone:
            last.items += 1
            return
        at = time_of(record.get("timestamp")) or time_of(item.get("timestamp"))
        fed = _Fed(standalone, at, self._pending)
        self._pending = {}
        self._fed.append(fed)
        if not standalone:
            if self._answer is not None:
                self._add_calls(self._answer)
            self._answer = fed

    def _tell(self, record: Mapping[str, Json], place: str) -> None:
        """Take up what a record that is no message says about those around it."""
        payload = mapping(record.get("payload"))
        kind = record.get("type")
        meta = _meta_of(record)
        if meta is not None:
            self._meet(meta)
        elif kind == "turn_context":
            self._model = string((mapping(payload.get("turn_context")) or payload).get("model")) or self._model
            self.transcript.model = self._model
        elif kind == "compacted":
            self._pending["compacted"] = string(payload.get("message")) or True
        elif payload.get("type") == "token_count":
            self._count(payload)
        elif payload.get("type") == "thread_name_updated":
            self.transcript.title = string(payload.get("thread_name")) or self.transcript.title
        elif kind == "response_item" and string(payload.get("type")) not in _DROPPED:
            self.transcript.warn("unknown-item", place, "a response item without a type")

    def _meet(self, meta: Mapping[str, Json]) -> None:
        if self._known_session:
            return  # a fork repeats its parent's records, this one too
        self._known_session = True
        self.transcript.created_at = time_of(meta.get("timestamp"))
        git = mapping(meta.get("git"))
        instructions = meta.get("instructions") or mapping(meta.get("base_instructions")).get("text")
        self._pending |= note_of(
            cwd=string(meta.get("cwd")),
            branch=string(git.get("branch")),
            commit=string(git.get("commit_hash")),
            version=string(meta.get("cli_version")),
            originator=string(meta.get("originator")),
            source=meta.get("source") if meta.get("source") != "cli" else None,
            forked_from=string(meta.get("forked_from_id")),
            instructions=instructions[:_MAX_NOTED_CHARS] if isinstance(instructions, str) else None,
        )

    def _count(self, payload: Mapping[str, Json]) -> None:
        """Tokens of the latest answer; the same totals again are the same count."""
        info = mapping(payload.get("info"))
        usage = mapping(info.get("last_token_usage")) or (payload if "input_tokens" in payload else {})
        total = info.get("total_token_usage")
        if self._answer is None or not usage or not self._model or (total is not None and total == self._total):
            return
        self._total = total
        self._answer.usages.append((self._model, usage))

    def _add_calls(self, fed: _Fed) -> None:
        """Calls of an answer, once it has its key and whenever more of its tokens are told."""
        if fed.key is None:
            return
        for i, (model, usage) in enumerate(fed.usages, fed.told):
            details = {key: usage[key] for key in _DETAILS if count_of(usage.get(key)) is not None}
            self.transcript.calls.append(
                SourceCall(
                    f"{self.transcript.id}/{fed.key}" + (f".{i}" if i else ""),
                    model,
                    fed.parent,
                    fed.key,
                    fed.at,
                    input_tokens=count_of(usage.get("input_tokens")),
                    output_tokens=count_of(usage.get("output_tokens")),
                    token_details=note_of(**details) or None,
                )
            )
        fed.told += len(fed.usages)
        fed.usages.clear()


_DETAILS: Final = ("cached_input_tokens", "reasoning_output_tokens")


def _is_injected(spoken: Spoken) -> bool:
    text = next((getattr(part, "text", "") for part in spoken.draft.parts), "")
    return isinstance(text, str) and text.lstrip().startswith(_INJECTED)
