"""The records of Claude Code's session files, as much of each as it takes to see how they hang together.

A session may be larger than memory, so it is read twice: here everything but the words, and later each record
once more for its message. What a record costs here is some hundred bytes in columns, which a file holds where
they are many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import BinaryIO, Final

from objstore.columns import Column, scratch
from objstore.compact import Keyed, Lists, Marks, Texts
from objstore.jsonvalue import Json, dumps
from objstore.transcripts.build import text_of
from objstore.transcripts.draft import mapping, string
from objstore.transcripts.jsonfile import ArrayReader
from objstore.transcripts.lines import Record, read_again, read_records
from objstore.transcripts.peek import start_of, values_in
from objstore.transcripts.source import SourceFile
from objstore.transcripts.streams import open_to_seek
from objstore.transcripts.warnings import Warner
from refs.errors import DagError

LOGLINES: Final = "loglines"
"""The member that holds the records in the variant that the web writes: one JSON document."""

PAGES_EACH: Final = 64
"""Records between two times that the columns' pages are given back."""

_TASK_TOOLS: Final = frozenset({"Task", "Agent"})
_SIDE: Final = "sidechain"  # the lane of older versions, which wrote sub-agents into the session's own file


class Kind(IntEnum):
    """What a record is. Events stand in the chain of parents and are no messages."""

    EVENT = 0
    PROMPT = 1
    RESULT = 2
    ASSISTANT = 3
    BOUNDARY = 4


class Above(IntEnum):
    """What a record says about its parent where it names none."""

    ROOT = -1
    NOTHING = -2  # it has no such member: it follows the record before it
    UNKNOWN = -3  # and below: it names one that has not come yet, see `Rows.unknown`


@dataclass(slots=True)
class Calls:
    """Tool calls by number: their ids, what their tools are called, who asked and who answered."""

    ids: Texts = field(default_factory=Texts)
    tools: Texts = field(default_factory=Texts)  # names
    tool: Column = field(default_factory=lambda: Column("i"))  # by call: the number of its name and one, 0: none
    asking: Column = field(default_factory=lambda: Column("i"))  # rows, in their order, and beside each
    asked: Column = field(default_factory=lambda: Column("i"))  # the call
    answering: Column = field(default_factory=lambda: Column("i"))
    answered: Column = field(default_factory=lambda: Column("i"))

    def get(self, call_id: str, default: str) -> str:
        """The name of the tool that a call is of."""
        number = self.ids.find(call_id)
        named = 0 if number is None else self.tool[number]
        return self.tools[named - 1] if named else default

    def add_asked(self, row: int, call_id: str, name: str) -> None:
        number = self._number(call_id)
        if not self.tool[number]:
            self.tool[number] = self.tools.number(name) + 1
        self.asking.append(row)
        self.asked.append(number)

    def add_answered(self, row: int, call_id: str) -> None:
        self.answering.append(row)
        self.answered.append(self._number(call_id))

    def _number(self, call_id: str) -> int:
        number = self.ids.number(call_id)
        self.tool.extend_to(number + 1)
        return number


@dataclass(slots=True)
class Rows:
    """Columns, one place for each record that is a message or stands between messages."""

    files: list[SourceFile] = field(default_factory=list)
    keys: Texts = field(default_factory=Texts)
    above: Column = field(default_factory=lambda: Column("i"))  # the parent's row, or one of `Above`
    unknown: Texts = field(default_factory=Texts)
    kind: Column = field(default_factory=lambda: Column("B"))
    named: Column = field(default_factory=lambda: Column("B"))  # whether the record has a uuid of its own
    summary: Marks = field(default_factory=Marks)  # prompts that hold what a compaction left
    file: Column = field(default_factory=lambda: Column("i"))
    line: Column = field(default_factory=lambda: Column("i"))
    offset: Column = field(default_factory=lambda: Column("q"))
    index: Column = field(default_factory=lambda: Column("i"))
    session: Column = field(default_factory=lambda: Column("i"))
    lane: Column = field(default_factory=lambda: Column("i"))
    response: Column = field(default_factory=lambda: Column("i"))  # -1: none
    time: Column = field(default_factory=lambda: Column("q"))  # a hash of it, 0: none
    digest: Column = field(default_factory=lambda: Column("q"))
    copies: Lists = field(default_factory=Lists)  # the other sessions that repeat a record, some of them twice
    sessions: list[str] = field(default_factory=list)
    lanes: list[str] = field(default_factory=lambda: [""])
    calls: Calls = field(default_factory=Calls)
    prompts: dict[int, list[str]] = field(default_factory=dict)  # ids of the calls that gave a prompt, by its hash
    agents: dict[str, dict[str, None]] = field(default_factory=dict)  # ids of the calls that started an agent
    titles: dict[str, dict[int, str]] = field(default_factory=dict)  # by session, then by rank
    summaries: list[tuple[str | None, str]] = field(default_factory=list)  # (the message it is about, its text)
    held: dict[int, list[Json]] = field(default_factory=dict)  # by file: records that can't be read again

    def each(self) -> Iterator[int]:
        """All rows."""
        return scratch().each(len(self.keys))

    def place(self, row: int) -> str:
        """Where a record is, for people."""
        where = f"line {self.line[row]}"
        return f"{self.files[self.file[row]].name}: {where}" if len(self.files) > 1 else where

    def title(self, session: int) -> str | None:
        """What a session is called: by the user, by the program, by its last summary."""
        name = self.sessions[session]
        titles = self.titles.get(name, {})
        for leaf, summary in self.summaries:
            row = self.keys.find(leaf) if leaf is not None else None
            if (row is not None and self.session[row] == session) or (leaf is None and len(self.sessions) == 1):
                titles.setdefault(0, summary)
        return titles[max(titles)] if titles else None

    def named_parent(self, row: int) -> tuple[str | None, int | None]:
        """(the key that a record names as its parent where that isn't there, the parent's row)."""
        above = self.above[row]
        if above <= Above.UNKNOWN:
            name = self.unknown[Above.UNKNOWN - above]
            found = self.keys.find(name)
            return (name if found is None else None), found
        return None, (above if above >= 0 else None)

    def names_parent(self, row: int) -> bool:
        """Whether a record names its parent."""
        return self.above[row] not in (Above.ROOT, Above.NOTHING)

    def is_message(self, row: int) -> bool:
        return self.kind[row] in (Kind.PROMPT, Kind.RESULT, Kind.ASSISTANT)


def session_of(file: SourceFile) -> str:
    """The id of the session that a file begins with; its name, without suffix, where no record tells."""
    for value in values_in(start_of(file)):
        records = mapping(value).get(LOGLINES)
        for record in records if isinstance(records, list) else [value]:
            found = string(mapping(record).get("sessionId"))
            if found:
                return found
    return file.name.rpartition("/")[2].partition(".")[0] or file.name


def scan(files: list[SourceFile], warn: Warner) -> Rows:
    """All records of a session's files."""
    rows = Rows(list(files))
    interned = _Interned(rows)
    for number, file in enumerate(files):
        interned.current = session_of(file)
        for count, record in enumerate(_records(rows, number, file, warn)):
            if not count % PAGES_EACH:
                scratch().give_back()
            if isinstance(record.value, dict):
                _scan_record(rows, interned, number, record, warn)
    return rows


def _records(rows: Rows, number: int, file: SourceFile, warn: Warner) -> Iterator[Record]:
    if LOGLINES in mapping(next(iter(values_in(start_of(file))), None)):
        held = rows.held[number] = []
        for element in ArrayReader(file, warn, (LOGLINES,)):
            held.append(element.value)
            yield Record(element.index + 1, element.index, element.value)
    else:
        yield from read_records(file, warn)


class _Interned:
    """Numbers for the texts that repeat."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._sessions: dict[str, int] = {}
        self._lanes = {"": 0}
        self._responses, self._count = Keyed(), 0
        self.current = ""

    def session(self, name: str | None) -> int:
        self.current = name or self.current
        return _number(self._sessions, self.current, self._rows.sessions)

    def lane(self, name: str) -> int:
        return _number(self._lanes, name, self._rows.lanes)

    def response(self, name: str | None) -> int:
        if not name:
            return -1
        known = self._responses.find(name)
        if known is None:
            known, self._count = self._count, self._count + 1
            self._responses.add(name, known)
        return known


def _number(numbers: dict[str, int], name: str, names: list[str]) -> int:
    if name not in numbers:
        numbers[name] = len(names)
        names.append(name)
    return numbers[name]


def _scan_record(rows: Rows, interned: _Interned, file: int, record: Record, warn: Warner) -> None:
    value = record.value
    uuid, kind = string(value.get("uuid")) or "", _kind_of(value)
    _scan_about(rows, interned, value)
    message = value.get("message")
    if kind in (Kind.PROMPT, Kind.ASSISTANT) and not isinstance(message, dict):
        warn("missing-message", record.place, "")
        kind = Kind.EVENT
    if kind is Kind.EVENT and isinstance(message, dict) and string(value.get("type")) not in _EVENTS:
        warn("unknown-record", record.place, text_of(value.get("type"))[:80])
    if kind in (Kind.EVENT, Kind.BOUNDARY) and not uuid:
        return
    session = interned.session(string(value.get("sessionId")))
    content = mapping(message).get("content")
    digest = _hash(content)
    known = rows.keys.find(uuid) if uuid else None
    if known is not None:
        if rows.digest[known] != digest or rows.kind[known] != kind:
            warn("duplicate-uuid-conflict", record.place, f"{uuid[:80]}: the first one is kept")
        elif rows.session[known] != session:
            rows.copies.add(known, session)
        return
    row = len(rows.keys)
    key = uuid or f"{rows.files[file].name}#{record.line}.{record.index}"
    while key in rows.keys:
        key += "~"
    rows.keys.add(key)
    rows.above.append(_above(rows, value, kind))
    rows.kind.append(kind)
    rows.named.append(bool(uuid))
    rows.file.append(file)
    rows.line.append(record.line)
    rows.offset.append(record.offset)
    rows.index.append(record.index)
    rows.session.append(session)
    agent = string(value.get("agentId"))
    rows.lane.append(interned.lane(agent or _SIDE) if value.get("isSidechain") is True else 0)
    response = string(mapping(message).get("id")) or string(value.get("requestId"))
    rows.response.append(interned.response(response) if kind is Kind.ASSISTANT else -1)
    rows.time.append(hash(value["timestamp"]) if isinstance(value.get("timestamp"), str) else 0)
    rows.digest.append(digest)
    if value.get("isCompactSummary") is True:
        rows.summary.add(row)
    if isinstance(content, list) and rows.is_message(row):
        _scan_blocks(rows, row, value, content)


def _kind_of(value: Mapping[str, Json]) -> Kind:
    if value.get("type") == "assistant":
        return Kind.ASSISTANT
    if value.get("type") == "user":
        content = mapping(value.get("message")).get("content")
        blocks = content if isinstance(content, list) else ()
        return Kind.RESULT if any(mapping(each).get("type") == "tool_result" for each in blocks) else Kind.PROMPT
    if value.get("type") == "system" and value.get("subtype") == "compact_boundary":
        return Kind.BOUNDARY
    return Kind.EVENT


def _above(rows: Rows, value: Mapping[str, Json], kind: Kind) -> int:
    name = value.get("parentUuid")
    if name is None and kind is Kind.BOUNDARY:
        name = value.get("logicalParentUuid")
    if isinstance(name, str) and name:
        known = rows.keys.find(name)
        if known is None:
            return Above.UNKNOWN - rows.unknown.number(name)
        return known
    return Above.ROOT if "parentUuid" in value else Above.NOTHING


def _scan_blocks(rows: Rows, row: int, value: Mapping[str, Json], content: list[Json]) -> None:
    for each in content:
        block = mapping(each)
        call_id = string(block.get("id"))
        if block.get("type") == "tool_use" and call_id:
            name = string(block.get("name")) or ""
            rows.calls.add_asked(row, call_id, name)
            prompt = mapping(block.get("input")).get("prompt")
            if name in _TASK_TOOLS and isinstance(prompt, str):
                rows.prompts.setdefault(_hash(prompt), []).append(call_id)
        elif block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str):
            rows.calls.add_answered(row, block["tool_use_id"])
            agent = mapping(value.get("toolUseResult")).get("agentId")
            if isinstance(agent, str):
                rows.agents.setdefault(agent, {})[block["tool_use_id"]] = None


_EVENTS: Final = frozenset({"user", "assistant", "system", "summary", "progress", "attachment"})
_TITLES: Final = {"ai-title": (1, "aiTitle"), "custom-title": (2, "customTitle")}
_MAX_SUMMARIES: Final = 10_000


def _scan_about(rows: Rows, interned: _Interned, value: Mapping[str, Json]) -> None:
    """What records that are no messages tell about the session: its title, who started an agent."""
    kind = string(value.get("type")) or ""
    if kind in _TITLES:
        rank, member = _TITLES[kind]
        if title := string(value.get(member)):
            session = string(value.get("sessionId")) or interned.current
            rows.titles.setdefault(session, {})[rank] = title
    elif kind == "summary":
        # It names the message at which the session stood, which may be one of another file's sessions.
        leaf = string(value.get("leafUuid")) or string(value.get("parentUuid"))
        text = value.get("summary") or mapping(value.get("message")).get("content")
        if isinstance(text, str) and len(rows.summaries) < _MAX_SUMMARIES:
            rows.summaries.append((leaf, text))
    elif kind == "progress":
        data = mapping(value.get("data"))
        agent, call_id = data.get("agentId"), value.get("parentToolUseID")
        if isinstance(agent, str) and isinstance(call_id, str):
            rows.agents.setdefault(agent, {})[call_id] = None


def _hash(value: Json) -> int:
    return hash(value) if isinstance(value, str) else hash(dumps(value))


def prompt_hash(value: Mapping[str, Json]) -> int | None:
    """The hash of a prompt's text as `Rows.prompts` has it."""
    content = mapping(value.get("message")).get("content")
    if isinstance(content, list) and len(content) == 1:
        content = mapping(content[0]).get("text")
    return _hash(content) if isinstance(content, str) else None


class Rereader:
    """Reads records again, by their row."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._file = -1
        self._stream: BinaryIO | None = None

    def record(self, row: int) -> Mapping[str, Json]:
        """The record; an empty one where the file has changed or can't be read any more."""
        rows = self._rows
        number = rows.file[row]
        if number in rows.held:
            return mapping(rows.held[number][rows.offset[row]])
        try:
            if self._stream is None or self._file != number:
                self.close()
                self._stream, self._file = open_to_seek(rows.files[number]), number
            return mapping(read_again(self._stream, rows.offset[row], rows.index[row]))
        except DagError:
            return {}

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
