"""All that is known, one message a line: the messages as they are stored, with their times and notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from objstore.jsonvalue import thaw
from objstore.transcripts.export.model import ExportEntry, Written, one_line


def write(chain: Sequence[ExportEntry], title: str | None = None) -> Written:
    """JSON Lines of `{"message": …, "node": …, "at": …, "note": …}`; a title has the first line for itself."""
    lines: list[dict[str, Any]] = [{"title": title}] if title else []
    for entry in chain:
        made: dict[str, Any] = {"message": entry.message.to_dict()}
        if entry.node_id:
            made["node"] = entry.node_id
        if entry.at is not None:
            made["at"] = entry.at
        if entry.note:
            made["note"] = thaw(entry.note)
        lines.append(made)
    return "".join(one_line(line) + "\n" for line in lines), []
