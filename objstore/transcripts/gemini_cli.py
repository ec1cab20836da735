"""Gemini CLI sessions (`~/.gemini/tmp/*/chats/session-*`): one JSON document, or a log of changes to it.

A turn of the model holds its calls together with their results: it becomes the model's message and one with
the results. What the log takes back (`$rewindTo`) stays as a branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from objstore.jsonvalue import Json
from objstore.message import Part, ToolResultPart
from objstore.transcripts.build import count_of, message_or_none, note_of, time_of
from objstore.transcripts.draft import Draft, mapping, sequence, string
from objstore.transcripts.gemini_parts import member, read_part
from objstore.transcripts.graph import heads_of, warn_of_unpaired_tools
from objstore.transcripts.jsonfile import ArrayReader
from objstore.transcripts.lines import read_records
from objstore.transcripts.model import Certainty, Entry, Head, ReaderOutput, Skipped, SourceCall, Transcript
from objstore.transcripts.peek import start_of, values_in
from objstore.transcripts.sessions import each_file, one_file_each
from objstore.transcripts.source import Source, SourceFile

FORMAT: Final = "gemini-cli"

_SET: Final = "$set"
_REWIND: Final = "$rewindTo"
_INJECTED: Final = ("This is the Gemini CLI. We are setting up the context", "<session_context>")
_TOKENS: Final = ("cached", "thoughts", "tool")


def sniff(file_start: bytes, name: str) -> Certainty:
    """Certain of a session with a project's hash, and of the log's own members."""
    for value in values_in(file_start):
        given = mapping(value)
        if {_SET, _REWIND} & given.keys() or {"sessionId", "projectHash"} <= given.keys():
            return Certainty.YES
        turns = sequence(given.get("messages"))
        if "sessionId" in given and any(mapping(turn).get("type") == "gemini" for turn in turns):
            return Certainty.YES
    return Certainty.NO


def split(source: Source) -> Iterator[list[SourceFile]]:
    """Every file by itself."""
    return each_file(source)


def read(source: Source) -> Iterator[ReaderOutput]:
    """One transcript for each file; of two files of one session the larger one."""
    for file, session in one_file_each(source, _session_id):
        yield file if isinstance(file, Skipped) else _Session(file, session).transcript


def _session_id(file: SourceFile) -> str:
    for value in values_in(start_of(file)):
        given = mapping(value)
        if found := string(given.get("sessionId")) or string(mapping(given.get(_SET)).get("sessionId")):
            return found
    return file.name.rpartition("/")[2].partition(".")[0] or file.name


@dataclass(slots=True)
class _Turn:
    """One record of the session. `before` is the one that it follows."""

    key: str
    value: Mapping[str, Json]
    place: str
    before: _Turn | None
    last: str | None = None  # the key of its last entry, once it has one
    answered: dict[str, ToolResultPart] = field(default_factory=dict)  # by call id, or name


@dataclass(slots=True)
class _Current:
    """The turns that the log has at some moment."""

    turns: list[_Turn] = field(default_factory=list)
    _places: dict[str, int] = field(default_factory=dict)

    def position(self, wanted: Json) -> int | None:
        """Where the turn of an id stands, or None."""
        return self._places.get(wanted) if isinstance(wanted, str) else None

    def append(self, turn: _Turn) -> None:
        if isinstance(turn.value.get("id"), str):
            self._places[turn.value["id"]] = len(self.turns)
        self.turns.append(turn)

    def cut(self, length: int) -> None:
        """Keep the first `length` turns."""
        while len(self.turns) > length:
            gone = self.turns.pop().value.get("id")
            if isinstance(gone, str):
                self._places.pop(gone, None)


class _Session:
    """Reads one file."""

    def __init__(self, file: SourceFile, session: str) -> None:
        self._file = file
        self.transcript = Transcript(FORMAT, session, self._entries(), place=file.name)
        self._keys: dict[str, int] = {}
        self._active: _Turn | None = None

    def _entries(self) -> Iterator[Entry]:
        first = mapping(next(iter(values_in(start_of(self._file))), None))
        turns = self._document() if "messages" in first else self._log()
        said: list[Entry] = []
        for turn in turns:
            for entry in self._entries_of(turn):
                said.append(entry)
                yield entry
        warn_of_unpaired_tools(said, self.transcript.warn)
        self._set_heads(said)

    # -- turns ------------------------------------------------------------------------------------

    def _document(self) -> Iterator[_Turn]:
        reader = ArrayReader(self._file, self.transcript.warn, ("messages",))
        for element in reader:
            given = mapping(element.value)
            if given:
                self._active = _Turn(self._key(given, element.place), given, element.place, self._active)
                yield self._active
        self._about(reader.members)

    def _log(self) -> Iterator[_Turn]:
        turns: list[_Turn] = []  # all of them, those that were taken back too
        current = _Current()
        for record in read_records(self._file, self.transcript.warn):
            given = mapping(record.value)
            change = mapping(given.get(_SET))
            self._about(change)
            if _REWIND in given:
                current.cut(current.position(given[_REWIND]) or 0)
            elif isinstance(change.get("messages"), list):
                self._replace(current, change["messages"], record.place, turns)
            elif isinstance(given.get("type"), str):
                at = current.position(given.get("id"))
                if at is not None:
                    current.turns[at].value = given  # the same message, further on
                else:
                    self._append(current, given, record.place, turns)
            else:
                self._about(given)
        self._active = current.turns[-1] if current.turns else None
        yield from turns

    def _replace(self, current: _Current, messages: list[Json], place: str, turns: list[_Turn]) -> None:
        """The list that the log sets: it goes on with `current` as far as the ids are the same."""
        given = [message for message in map(mapping, messages) if message]
        same = 0
        for turn, message in zip(current.turns, given, strict=False):
            if turn.value.get("id") != message.get("id"):
                break
            turn.value = message
            same += 1
        current.cut(same)
        for message in given[same:]:
            self._append(current, message, place, turns)

    def _append(self, current: _Current, given: Mapping[str, Json], place: str, turns: list[_Turn]) -> None:
        before = current.turns[-1] if current.turns else None
        turn = _Turn(self._key(given, place), given, place, before)
        current.append(turn)
        turns.append(turn)

    def _key(self, given: Mapping[str, Json], place: str) -> str:
        key = string(given.get("id")) or place
        if key in self._keys:
            self.transcript.warn("duplicate-id", place, key[:80])
        made = key
        while made in self._keys:
            self._keys[key] += 1
            made = f"{key}~{self._keys[key]}"
        self._keys[made] = 1
        return made

    def _about(self, given: Mapping[str, Json]) -> None:
        transcript = self.transcript
        transcript.title = string(given.get("summary")) or transcript.title
        transcript.created_at = transcript.created_at or time_of(given.get("startTime"))

    # -- messages ---------------------------------------------------------------------------------

    def _entries_of(self, turn: _Turn) -> Iterator[Entry]:
        if turn.before is not None:
            turn.last = turn.before.last
            turn.answered = turn.before.answered
            turn.before = None  # chains of turns would keep all that was read
        if turn.value.get("type") == "gemini":
            yield from self._model_turn(turn)
        elif turn.value.get("type") == "user":
            yield from self._user_turn(turn)

    def _model_turn(self, turn: _Turn) -> Iterator[Entry]:
        given = turn.value
        draft = Draft("assistant", turn.place, self.transcript.warn)
        results = Draft("tool", turn.place, self.transcript.warn)
        for thought in sequence(given.get("thoughts")):
            self._thought(draft, mapping(thought))
        if given.get("content") != "":
            self._content(draft, given.get("content"))
        for call in sequence(given.get("toolCalls")):
            self._tool_call(draft, results, mapping(call))
        parent = turn.last
        yield from self._say(turn, draft, turn.key)
        model = string(given.get("model"))
        if model and turn.last != parent:
            self.transcript.model = model
            self._add_call(turn, model, parent)
        turn.answered = {_name_of(part): part for part in results.parts if isinstance(part, ToolResultPart)}
        if results.parts:
            yield from self._say(turn, results, f"{turn.key}/results")

    def _thought(self, draft: Draft, thought: Mapping[str, Json]) -> None:
        subject, description = string(thought.get("subject")), string(thought.get("description"))
        if subject is None and description is None:
            draft.unknown(thought)
            return
        draft.extra(subject=len(subject) if subject else None)
        draft.reasoning("\n".join(text for text in (subject, description) if text))

    def _content(self, draft: Draft, content: Json) -> None:
        for part in content if isinstance(content, list) else [content]:
            if part is not None:
                read_part(draft, part)

    def _tool_call(self, draft: Draft, results: Draft, call: Mapping[str, Json]) -> None:
        name, call_id = string(call.get("name")), string(call.get("id"))
        if name is None:
            draft.unknown(call)
            return
        draft.extra(status=call.get("status"), agent=call.get("agentId"))
        draft.call(name, call.get("args"), call_id)
        result = call.get("result")
        for part in result if isinstance(result, list) else [result]:
            answer = mapping(member(mapping(part), "functionResponse"))
            if isinstance(part, str):
                results.parts.append(ToolResultPart(name, part, call_id))
            elif answer:
                read_part(results, {"functionResponse": {"name": name, "id": call_id, **answer}})
            elif part is not None:
                read_part(results, part)

    def _user_turn(self, turn: _Turn) -> Iterator[Entry]:
        draft = Draft("user", turn.place, self.transcript.warn)
        self._content(draft, turn.value.get("content"))
        kept: list[Part] = []
        repeated = 0
        for part in draft.parts:
            if isinstance(part, ToolResultPart) and self._is_told(turn, part):
                repeated += 1
            else:
                kept.append(part)
        if repeated:
            self.transcript.warn("duplicate-tool-result", turn.place, f"{repeated} in the calls already")
            draft.note.pop("parts", None)
        draft.parts = kept
        if any(isinstance(part, ToolResultPart) for part in kept):
            draft.role = "tool"
        if kept or not repeated:
            first = getattr(kept[0], "text", "") if kept else ""
            draft.note["hidden"] = isinstance(first, str) and first.startswith(_INJECTED)
            yield from self._say(turn, draft, turn.key)
            turn.answered = {}

    def _is_told(self, turn: _Turn, part: ToolResultPart) -> bool:
        """Whether the model's turn before holds the same result with its call."""
        told = turn.answered.get(_name_of(part)) or turn.answered.get(f"name {part.name}")
        return told is not None and (told.output, told.exception) == (part.output, part.exception)

    def _say(self, turn: _Turn, draft: Draft, key: str) -> Iterator[Entry]:
        message = message_or_none(draft.role, draft.parts, self.transcript.warn, turn.place)
        if message is None:
            return
        shown = turn.value.get("displayContent")
        note = {"id": string(turn.value.get("id")), "model": string(turn.value.get("model")), **draft.note}
        if shown is not None and shown != turn.value.get("content"):
            note["display"] = shown
        yield Entry(key, turn.last, message, time_of(turn.value.get("timestamp")), note=note_of(**note))
        turn.last = key

    def _add_call(self, turn: _Turn, model: str, parent: str | None) -> None:
        tokens = mapping(turn.value.get("tokens"))
        if not tokens:
            return
        details = {key: tokens[key] for key in _TOKENS if count_of(tokens.get(key)) is not None}
        self.transcript.calls.append(
            SourceCall(
                f"{self.transcript.id}/{turn.key}",
                model,
                parent,
                turn.key,
                time_of(turn.value.get("timestamp")),
                input_tokens=count_of(tokens.get("input")),
                output_tokens=count_of(tokens.get("output")),
                token_details=note_of(**details) or None,
            )
        )

    def _set_heads(self, said: list[Entry]) -> None:
        transcript = self.transcript
        active = self._active.last if self._active is not None else None
        for head in heads_of(said, active):
            label = transcript.id if head.active else f"{transcript.id}/{head.key}"
            transcript.heads.append(Head(head.key, label, head.active, transcript.title if head.active else None))


def _name_of(part: ToolResultPart) -> str:
    return f"id {part.tool_call_id}" if part.tool_call_id else f"name {part.name}"
