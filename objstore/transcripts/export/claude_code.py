"""A session file of Claude Code: one record a line, each naming the one before it.

Side chains stand in the session's own file, as older versions of it wrote them: with an `agentId` for each, which
a record of kind `progress` links to the call that started it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from objstore.message import ToolResultPart
from objstore.transcripts.draft import string
from objstore.transcripts.export.anthropic_message import BlockWriter, short
from objstore.transcripts.export.claude_code_sides import (
    Calls,
    first_names,
    grouped,
    is_result,
    without_second_results,
)
from objstore.transcripts.export.ids import call_ids
from objstore.transcripts.export.model import (
    ExportEntry,
    Loss,
    Losses,
    SideEntry,
    SidesWritten,
    Written,
    one_line,
)

_HELD: Final = "id hidden compact_summary message_id request_id model stop_reason cwd branch version"
_HELD_OF_SIDES: Final = f"{_HELD} sidechain agent"
_AGENT_CHARS: Final = 16  # of a node's id
_WHERE: Final = {"cwd": "cwd", "branch": "gitBranch", "version": "version"}


def write(chain: Sequence[ExportEntry], title: str | None = None) -> Written:
    """JSON Lines. The session's id is that of its first message."""
    text, losses, _ = write_sides(chain, (), title)
    return text, losses


def write_sides(
    chain: Sequence[ExportEntry], sides: Sequence[SideEntry], title: str | None = None
) -> SidesWritten:
    """The same with side chains, each after the chain that asked for it, as far as they would be read again."""
    losses = Losses()
    ids = call_ids(chain, losses)
    names = first_names(chain, ids)
    writer = _Writer(losses, BlockWriter(losses, ids, names=names))
    records = []
    for number, entry in enumerate(chain):
        record = writer.record(entry, number)
        writer.calls.add(entry.node_id, record)
        writer.calls.told.add(entry.node_id)
        writer.is_new(record)
        records.append(record)
    held: list[SideEntry] = []
    count = 0
    for side in grouped(sides):
        if not writer.calls.starts(side):
            continue
        first = len(chain) + len(held)
        kept = without_second_results(side)
        count += 1
        losses.places |= {first + i: f"side chain {count}, message {i + 1}" for i in range(len(kept))}
        if len(kept) < len(side):
            left_out = f"of {len(side)} messages {len(side) - len(kept)} left out, after another result"
            losses.append(Loss("forks", f"side chain {count}", left_out))
        ids |= call_ids(kept, losses, first)
        names |= first_names(kept, ids, first)
        records += writer.side(kept, first)
        held += kept
    if title:
        records.append({"type": "custom-title", "customTitle": title, "sessionId": writer.session})
    losses.about(chain, times=True, held=_HELD)
    losses.about(held, times=True, held=_HELD_OF_SIDES, place="side chains")
    written = {each.node_id for each in held}
    left = sum(1 for each in sides if each.called_by and each.node_id not in written)
    if left:
        losses.append(Loss("side-chains", "conversation", f"{left} that it asked for"))
    return "".join(one_line(record) + "\n" for record in records), losses, written


@dataclass(slots=True)
class _Writer:
    losses: Losses
    blocks: BlockWriter
    session: str = ""
    calls: Calls = field(default_factory=Calls)
    _ids: set[str] = field(default_factory=set)
    _last: str | None = None
    _where: dict[str, Any] = field(default_factory=dict)
    _agents: set[str] = field(default_factory=set)
    _said: set[str] = field(default_factory=set)  # where several records may follow one

    def side(self, side: Sequence[SideEntry], first: int) -> Iterator[dict[str, Any]]:
        """A side chain. Its messages are numbered from `first`."""
        agent = string(side[0].note.get("agent")) or side[0].node_id[:_AGENT_CHARS]
        while agent in self._agents:
            agent += "_"
        self._agents.add(agent)
        data = {"type": "agent_progress", "agentId": agent}
        started_by = side[0].tool_call_id
        yield {"type": "progress", "data": data, "parentToolUseID": started_by, "sessionId": self.session}
        records: dict[str, dict[str, Any]] = {}
        for number, entry in enumerate(side, first):
            self._last = records[entry.parent]["uuid"] if entry.parent else None
            made = self.record(entry, number) | {"isSidechain": True, "agentId": agent}
            records[entry.node_id] = made
            self.calls.add(entry.node_id, made)
        for number, entry in enumerate(side, first):
            made = records[entry.node_id]
            self._tell_caller(made, entry, number)
            if not self.is_new(made):
                self.losses.add("times", number, "another says the same at the same time")
                del made["timestamp"]
            yield made

    def is_new(self, record: Mapping[str, Any]) -> bool:
        """Whether no other record says the same at the same time and place: those would be read as one."""
        if record["parentUuid"] is not None and record["isSidechain"] is False:
            return True  # the session's own chain has no forks
        what = [record["parentUuid"], record.get("timestamp"), record["type"], record["message"]["content"]]
        said = one_line(what)
        new = "timestamp" not in record or said not in self._said
        self._said.add(said)
        return new

    def _tell_caller(self, record: Mapping[str, Any], entry: SideEntry, number: int) -> None:
        caller: tuple[str, str | None] = "", None
        if record["type"] == "user" and not is_result(entry):
            call_id = self.calls.putting(record, None if entry.parent else entry.tool_call_id)
            if call_id is not None:
                caller = self.calls.asked[call_id], call_id
        if caller != (entry.called_by, entry.tool_call_id):
            self.losses.add("called-by", number, entry.called_by or "read as called by another")
        self.calls.told.add(entry.node_id)

    def record(self, entry: ExportEntry, number: int) -> dict[str, Any]:
        """One message as one record."""
        role, note = entry.message.role, entry.note
        content = self.blocks.blocks(entry, number)
        answer = role == "assistant"
        made = self._about(entry, number)
        if role not in ("user", "assistant", "tool"):
            self.losses.add("role", number, f"{role!r} written as a user's message that the program gave")
            made["isMeta"] = True
        elif role == "tool" and not any(isinstance(part, ToolResultPart) for part in entry.message.parts):
            self.losses.add("role", number, "'tool' without a result is read as 'user'")
        elif role == "user" and any(isinstance(part, ToolResultPart) for part in entry.message.parts):
            self.losses.add("role", number, "'user' with a result is read as 'tool'")
        message: dict[str, Any] = {"role": "assistant" if answer else "user"}
        if answer:
            # Records that share an id are one message.
            message["id"] = self._unused(string(note.get("message_id")) or f"msg_{number}")
            message["type"] = "message"
            message |= {key: note[key] for key in ("model", "stop_reason") if isinstance(note.get(key), str)}
        message["content"] = content if answer else short(content)
        return {**made, "type": "assistant" if answer else "user", "message": message}

    def _about(self, entry: ExportEntry, number: int) -> dict[str, Any]:
        note = entry.note
        record_id = self._unused(string(note.get("id")) or _uuid(entry, number))
        self.session = self.session or _uuid(entry, number)
        made: dict[str, Any] = {
            "parentUuid": self._last,
            "isSidechain": False,
            "userType": "external",
            "sessionId": self.session,
            "uuid": record_id,
        }
        self._last = record_id
        self._where |= {_WHERE[key]: note[key] for key in _WHERE if isinstance(note.get(key), str)}
        made |= self._where
        if entry.at is not None:
            made["timestamp"] = entry.at
        if isinstance(note.get("request_id"), str):
            made["requestId"] = note["request_id"]
        if note.get("hidden") is True:
            made["isMeta"] = True
        if note.get("compact_summary") is True:
            made["isCompactSummary"] = True
        return made

    def _unused(self, wanted: str) -> str:
        while wanted in self._ids:
            wanted += "_"
        self._ids.add(wanted)
        return wanted


def _uuid(entry: ExportEntry, number: int) -> str:
    """An id that is the same in every export of the message."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, entry.node_id or f"message {number}"))
