"""A request to Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from objstore.message import ToolResultPart
from objstore.transcripts.export.anthropic_message import BlockWriter, short
from objstore.transcripts.export.ids import call_ids
from objstore.transcripts.export.model import ExportEntry, Losses, Written, to_json


def write(chain: Sequence[ExportEntry], title: str | None = None) -> Written:
    """A request without a model: `{"system": …, "messages": […]}`."""
    losses = Losses()
    writer = BlockWriter(losses, call_ids(chain, losses))
    request: dict[str, Any] = {}
    messages: list[dict[str, Any]] = []
    for number, entry in enumerate(chain):
        role, blocks = entry.message.role, writer.blocks(entry, number)
        if role == "system" and number == 0:
            request["system"] = short(blocks)
            continue
        if role not in ("user", "assistant", "tool"):
            losses.add("role", number, f"{role!r} written as 'user'")
        elif role == "tool" and not any(isinstance(part, ToolResultPart) for part in entry.message.parts):
            losses.add("role", number, "'tool' without a result is read as 'user'")
        messages.append({"role": "assistant" if role == "assistant" else "user", "content": short(blocks)})
    request["messages"] = messages
    losses.about(chain, title)
    return to_json(request), losses
