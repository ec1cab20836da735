"""Claude Code's session files (`~/.claude/projects/*/*.jsonl`), with those of its sub-agents.

A transcript is a session: the chain of its messages, its forks, and the chains of its sub-agents, each called
by the tool call that started it. What was copied from another session stands in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Final

from objstore.columns import Column, scratch
from objstore.compact import Links, Marks
from objstore.jsonvalue import Json
from objstore.transcripts.anthropic_blocks import read_content
from objstore.transcripts.build import count_of, message_or_none, note_of, time_of
from objstore.transcripts.claude_code_pairs import unpaired_calls
from objstore.transcripts.claude_code_rows import (
    LOGLINES,
    PAGES_EACH,
    Kind,
    Rereader,
    Rows,
    prompt_hash,
    scan,
    session_of,
)
from objstore.transcripts.claude_code_tree import Tree, grow
from objstore.transcripts.draft import Draft, mapping, string
from objstore.transcripts.graph import Forest, cut_cycles, parents_first
from objstore.transcripts.jsonfile import read_json
from objstore.transcripts.model import Certainty, Entry, Head, ReaderOutput, Skipped, SourceCall, Transcript, Warn
from objstore.transcripts.peek import values_in
from objstore.transcripts.source import Source, SourceFile
from objstore.transcripts.warnings import collector

FORMAT: Final = "claude-code"

_SYNTHETIC: Final = "<synthetic>"  # the model of messages that the program itself wrote
_META_SUFFIX: Final = ".meta.json"
_RECORDS: Final = frozenset({"user", "assistant", "system", "progress", "attachment"})
_SIDECARS: Final = {
    "summary": "summary",
    "file-history-snapshot": "snapshot",
    "queue-operation": "operation",
    "custom-title": "customTitle",
    "ai-title": "aiTitle",
}
_SESSION_COST: Final = 8  # how often a record may be told, on average, in sessions that share their past
_MAX_CALLERS: Final = 1000  # calls looked at for the one that put a message there
_TOKENS: Final = ("input_tokens", "output_tokens")


def sniff(file_start: bytes, name: str) -> Certainty:
    """Certain of records with a parentUuid or a sessionId; of others by their shape."""
    best = Certainty.NO
    for value in values_in(file_start):
        given = mapping(value)
        if LOGLINES in given or {"agentType", "toolUseId"} <= given.keys():
            return Certainty.YES
        kind = string(given.get("type"))
        if kind in ("user", "assistant") and isinstance(given.get("message"), Mapping):
            return Certainty.YES if {"parentUuid", "sessionId", "uuid", "timestamp"} & given.keys() else best
        if (kind in _RECORDS and "uuid" in given) or (kind in _SIDECARS and _SIDECARS[kind] in given):
            best = Certainty.YES if "sessionId" in given or "leafUuid" in given else Certainty.MAYBE
    return best


def split(source: Source) -> Iterator[list[SourceFile]]:
    """The files of each session: its own and its sub-agents'."""
    sessions: dict[str, list[SourceFile]] = {}
    for file in source.files():
        log = source.find(f"{file.name.removesuffix(_META_SUFFIX)}.jsonl") if _is_meta(file) else file
        sessions.setdefault(session_of(log or file), []).append(file)
    yield from sessions.values()


def _is_meta(file: SourceFile) -> bool:
    return file.name.endswith(_META_SUFFIX)


def read(source: Source) -> Iterator[ReaderOutput]:
    """One transcript for each session."""
    for files in split(source):
        yield from _read_unit(source, files)


def _read_unit(source: Source, files: list[SourceFile]) -> Iterator[ReaderOutput]:
    warnings: list[Warn] = []
    warn = collector(warnings)
    rows = scan([file for file in files if not _is_meta(file)], warn)
    _read_metas(rows, [file for file in files if _is_meta(file)])
    tree = grow(rows, warn)
    place = ", ".join(file.name for file in rows.files)
    if not tree.parents:
        yield Skipped("empty-conversation", place or source.label, "no message in it")
        for each in warnings:
            yield Skipped(each.kind, each.place, each.text)
        return
    for kind, row, call_id in unpaired_calls(rows, tree):
        warn(kind, rows.place(row), call_id)
    callers = _callers(rows, tree)
    for sessions in _groups(rows, tree):
        transcript = Transcript(FORMAT, rows.sessions[next(iter(sessions))], (), place=place)
        transcript.title = rows.title(next(iter(sessions)))
        transcript.warnings, warnings = warnings, []
        telling = _Telling(rows, tree, sessions, callers, transcript)
        transcript.entries = telling.entries()
        yield transcript


def _read_metas(rows: Rows, files: list[SourceFile]) -> None:
    """Which call started an agent, as the file beside the agent's own tells it."""
    for file in files:
        about = mapping(read_json(file, lambda kind, place, text: None))
        agent = file.name.rpartition("/")[2].removesuffix(_META_SUFFIX).removeprefix("agent-")
        call_id = about.get("toolUseId")
        if isinstance(call_id, str):
            rows.agents[agent] = {call_id: None, **rows.agents.get(agent, {})}


def _callers(rows: Rows, tree: Tree) -> dict[str, int]:
    """The message that made each call that may have started an agent: of those that repeat an id, the first."""
    started: dict[int, str] = {}
    for ids in chain(rows.agents.values(), rows.prompts.values()):
        for call_id in ids:
            number = rows.calls.ids.find(call_id)
            if number is not None:
                started[number] = call_id
    callers: dict[str, int] = {}
    if started:
        for row, call in zip(rows.calls.asking, rows.calls.asked, strict=True):
            if call in started:
                callers.setdefault(started[call], tree.message_of(row))
    return callers


def _groups(rows: Rows, tree: Tree) -> Iterator[dict[int, list[int]]]:
    """The sessions that own a leaf, each with its leaves; together where their shared past is told too often."""
    inner = Marks(parent for parent in tree.parents.values() if parent is not None)
    leaves: dict[int, list[int]] = {}
    for row in tree.parents:
        if row not in inner:
            for session in {rows.session[row], *rows.copies.get(row)}:
                leaves.setdefault(session, []).append(row)
    budget = _SESSION_COST * len(tree.parents)
    sessions = sorted(leaves)
    for i, session in enumerate(sessions):
        budget -= len(_above(tree, leaves[session]))
        if budget < 0:
            yield {session: leaves[session] for session in sessions[i:]}
            return
        yield {session: leaves[session]}


def _above(tree: Tree, leaves: list[int]) -> Marks:
    """The messages from some leaves up."""
    found = Marks()
    for leaf in leaves:
        row: int | None = leaf
        while row is not None and row not in found:
            found.add(row)
            row = tree.parents[row]
    return found


@dataclass(slots=True)
class _Telling:
    """Makes the entries of one transcript, reading each record once more."""

    rows: Rows
    tree: Tree
    sessions: dict[int, list[int]]  # with the leaves of each
    callers: dict[str, int]
    transcript: Transcript
    told: Marks = field(default_factory=Marks)  # rows
    counted: Marks = field(default_factory=Marks)  # responses whose call has been told
    claimed: set[str] = field(default_factory=set)  # ids of the calls that are known to have started something
    where: dict[str, Json] = field(default_factory=dict)

    def entries(self) -> Iterator[Entry]:
        reader = Rereader(self.rows)
        skipped = Links()
        try:
            for count, row in enumerate(self._order()):
                if not count % PAGES_EACH:
                    scratch().give_back()
                parent = self.tree.parents[row]
                while parent is not None and parent in skipped:
                    parent = skipped[parent]
                entry = self._entry(row, parent, reader)
                if entry is None:
                    skipped[row] = parent
                else:
                    self.told.add(row)
                    yield entry
        finally:
            reader.close()
        self._set_heads(skipped)

    def _order(self) -> Column:
        """Parents first, and each side chain after the chain that called it."""
        parents = self.tree.parents
        wanted = _above(self.tree, [leaf for leaves in self.sessions.values() for leaf in leaves])
        root_of = Links()
        lengths: dict[int, int] = {}
        for row in self.tree.order(wanted):
            parent = parents[row]
            root = root_of[row] = row if parent is None else root_of[parent]
            assert root is not None
            lengths[root] = lengths.get(root, 0) + 1
        # The session's own chains first: an agent may be known by its prompt alone, once that has been told.
        roots = sorted(lengths, key=lambda root: (self.rows.lane[root] != 0, root))
        callers = Forest({root: root_of.get(self._starter(root)) for root in roots})
        # Agents that call each other: one of them is told without its caller.
        cut_cycles(callers, lambda root: None)
        starts, start = {}, 0
        for root in parents_first(callers.parents):
            starts[root], start = start, start + lengths[root]
        order = Column("i", start)
        for row in self.tree.order(wanted):
            root = root_of[row]
            assert root is not None
            order[starts[root]] = row
            starts[root] += 1
        return order

    def _starter(self, root: int) -> int:
        """The message whose call started the chain of `root`, as far as the agent's id tells; -1 for none."""
        calls = self.rows.agents.get(self.rows.lanes[self.rows.lane[root]], ())
        return next((self.callers[call_id] for call_id in calls if call_id in self.callers), -1)

    def _entry(self, row: int, parent: int | None, reader: Rereader) -> Entry | None:
        rows = self.rows
        members = self.tree.members(row)
        records = [reader.record(member) for member in members]
        kind = rows.kind[row]
        role = {Kind.PROMPT: "user", Kind.RESULT: "tool"}.get(Kind(kind), "assistant")
        draft = Draft(role, rows.place(row), self.transcript.warn)
        for record in records:
            read_content(draft, mapping(record.get("message")).get("content"), rows.calls)
        message = message_or_none(role, draft.parts, self.transcript.warn, draft.place)
        if message is None:
            return None
        first = records[0]
        at = time_of(first.get("timestamp"))
        self.transcript.created_at = self.transcript.created_at or at
        call_id = self._called_by(row, parent, first)
        if kind == Kind.ASSISTANT:
            self._add_call(row, parent, records, at)
        note = {**draft.note, **self._note(row, members, first, records[-1])}
        return Entry(
            rows.keys[row],
            None if parent is None else rows.keys[parent],
            message,
            at,
            rows.keys[self.callers[call_id]] if call_id is not None else None,
            call_id,
            note_of(**note),
        )

    def _called_by(self, row: int, parent: int | None, record: Mapping[str, Json]) -> str | None:
        """The id of the call that put a message there: the first of a side chain, or a later prompt to it."""
        rows = self.rows
        if rows.kind[row] != Kind.PROMPT or not rows.lane[row]:
            return None
        started: Iterable[str] = rows.agents.get(rows.lanes[rows.lane[row]], ()) if parent is None else ()
        given = prompt_hash(record)
        asked: Iterable[str] = rows.prompts.get(given, ()) if given is not None else ()
        for call_id in islice(chain(started, asked), _MAX_CALLERS):
            if call_id not in self.claimed and self.callers.get(call_id) in self.told:
                self.claimed.add(call_id)
                return call_id
        return None

    def _note(
        self, row: int, members: list[int], first: Mapping[str, Json], last: Mapping[str, Json]
    ) -> dict[str, Json]:
        rows, message = self.rows, mapping(first.get("message"))
        session = rows.sessions[rows.session[row]]
        where = {key: string(first.get(key)) for key in ("cwd", "gitBranch", "version")}
        moved = {key: value for key, value in where.items() if value and self.where.get(key) != value}
        self.where |= moved
        return {
            "id": rows.keys[row] if rows.named[row] else None,
            "records": [rows.keys[member] for member in members] if len(members) > 1 else None,
            "session": session if session != self.transcript.id else None,
            "hidden": first.get("isMeta") is True,
            "compact_summary": row in rows.summary,
            "sidechain": first.get("isSidechain") is True,
            "agent": string(first.get("agentId")),
            "synthetic": message.get("model") == _SYNTHETIC or first.get("isApiErrorMessage") is True,
            "inferred_parent": row in self.tree.inferred,
            "message_id": string(message.get("id")),
            "request_id": string(first.get("requestId")),
            "model": string(message.get("model")),
            "stop_reason": string(mapping(last.get("message")).get("stop_reason")),
            "cwd": moved.get("cwd"),
            "branch": moved.get("gitBranch"),
            "version": moved.get("version"),
        }

    def _add_call(self, row: int, parent: int | None, records: list[Mapping[str, Json]], at: str | None) -> None:
        message = mapping(records[0].get("message"))
        model = string(message.get("model"))
        usage: Mapping[str, Any] = {}
        for record in records:
            usage = mapping(mapping(record.get("message")).get("usage")) or usage
        if not model or model == _SYNTHETIC or not usage:
            return
        self.transcript.model = model
        call_id = string(message.get("id")) or string(records[0].get("requestId")) or self.rows.keys[row]
        response = self.rows.response[row]
        if response in self.counted:
            return
        if response >= 0:
            self.counted.add(response)
        duration = records[-1].get("durationMs")
        details = {key: value for key, value in usage.items() if key not in _TOKENS and value is not None}
        keys = self.rows.keys
        self.transcript.calls.append(
            SourceCall(
                call_id,
                model,
                None if parent is None else keys[parent],
                keys[row],
                at,
                count_of(round(duration) if isinstance(duration, float) else duration),
                input_tokens=count_of(usage.get("input_tokens")),
                output_tokens=count_of(usage.get("output_tokens")),
                token_details=note_of(**details) or None,
            ),
        )

    def _set_heads(self, skipped: Links) -> None:
        """The active head has the session's id; an agent's its id below that; the others that of their message."""
        rows = self.rows
        taken: set[int] = set()
        for session, leaves in self.sessions.items():
            name = rows.sessions[session]
            own = [leaf for leaf in leaves if not rows.lane[leaf]]
            active = max(own or leaves)
            for leaf in leaves:
                end: int | None = leaf
                while end is not None and end in skipped:
                    end = skipped[end]
                if end is None or end in taken:
                    continue
                taken.add(end)
                label = name if leaf == active else f"{name}/{rows.keys[end]}"
                self.transcript.heads.append(Head(rows.keys[end], label))
        self._mark_active()

    def _mark_active(self) -> None:
        heads = self.transcript.heads
        chosen = next((i for i, head in enumerate(heads) if head.label == self.transcript.id), len(heads) - 1)
        if heads:
            heads[chosen] = Head(heads[chosen].key, heads[chosen].label, True, self.transcript.title)
