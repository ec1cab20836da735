"""A session file of Claude Code: one record a line, each naming the one before it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from objstore.message import ToolResultPart
from objstore.transcripts.draft import string
from objstore.transcripts.export.anthropic_message import BlockWriter, short
from objstore.transcripts.export.ids import call_ids
from objstore.transcripts.export.model import ExportEntry, Losses, Written, one_line

_HELD: Final = "id hidden compact_summary message_id request_id model stop_reason cwd branch version"
_WHERE: Final = {"cwd": "cwd", "branch": "gitBranch", "version": "version"}


def write(chain: Sequence[ExportEntry], title: str | None = None) -> Written:
    """JSON Lines. The session's id is that of its first message."""
    losses = Losses()
    writer = _Writer(losses, BlockWriter(losses, call_ids(chain, losses)))
    records = [writer.record(entry, number) for number, entry in enumerate(chain)]
    if title:
        records.append({"type": "custom-title", "customTitle": title, "sessionId": writer.session})
    losses.about(chain, times=True, held=_HELD)
    return "".join(one_line(record) + "\n" for record in records), losses


@dataclass(slots=True)
class _Writer:
    losses: Losses
    blocks: BlockWriter
    session: str = ""
    _ids: set[str] = field(default_factory=set)
    _last: str | None = None
    _where: dict[str, Any] = field(default_factory=dict)

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
