"""ShareGPT: a list of one conversation in turns of `from` and `value`. It holds text alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from objstore.message import (
    AttachmentPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
)
from objstore.transcripts.draft import extras_of, string
from objstore.transcripts.export.model import ExportEntry, Losses, Written, arguments_text, one_line, to_json
from objstore.transcripts.sharegpt import FUNCTION_CALL, SPEAKERS, USUAL

_HELD: Final = "from"


def write(chain: Sequence[ExportEntry], title: str | None = None) -> Written:
    """`[{"conversations": […]}]`."""
    losses = Losses()
    turns = [turn for number, entry in enumerate(chain) for turn in _turns(entry, number, losses)]
    made: dict[str, Any] = {"title": title} if title else {}
    losses.about(chain, held=_HELD)
    return to_json([{**made, "conversations": turns}]), losses


def _turns(entry: ExportEntry, number: int, losses: Losses) -> list[dict[str, Any]]:
    message = entry.message
    turns: list[dict[str, Any]] = []
    for provider in message.provider_metadata:
        losses.add("provider-metadata", number, provider)
    for index, part in enumerate(message.parts):
        if isinstance(part, ToolCallPart):
            given = string(extras_of(entry.note, index).get("text"))
            call = {"name": part.name, "arguments": arguments_text(part, entry.note, index)}
            turns.append({"from": FUNCTION_CALL, "value": given or one_line(call)})
        elif isinstance(part, ToolResultPart):
            turns.append({"from": _speaker(entry, "tool"), "value": part.output or part.exception or ""})
        _tell(part, number, losses)
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    if texts or not turns:
        said = {"from": _speaker(entry, message.role), "value": "".join(texts) if texts else None}
        turns.insert(0, said)
    if len(texts) > 1:
        losses.add("parts", number, f"{len(texts)} texts joined")
    if len(turns) > 1:
        losses.add("parts", number, f"one message written as {len(turns)} turns")
    return turns


def _speaker(entry: ExportEntry, role: str) -> str:
    """Who the note says spoke, where that is read as `role`; else as it is usual."""
    noted = string(entry.note.get("from"))
    if noted is not None and noted != FUNCTION_CALL and SPEAKERS.get(noted.lower(), noted) == role:
        return noted
    return USUAL.get(role, role)


def _tell(part: Part, number: int, losses: Losses) -> None:
    """What of a part is not written."""
    lost: dict[str, str | None] = {}
    if isinstance(part, ToolCallPart):
        lost = {"tool-call-id": part.tool_call_id}
    elif isinstance(part, ToolResultPart):
        lost = {"tool-name": part.name, "tool-call-id": part.tool_call_id, "exception": part.exception}
        lost["attachment"] = f"{len(part.attachments)} left out" if part.attachments else None
    elif isinstance(part, ReasoningPart):
        lost = {"reasoning": "left out"}
    elif isinstance(part, AttachmentPart):
        lost = {"attachment": "left out"}
    elif isinstance(part, UnknownPart):
        lost = {"unknown-part": "left out"}
    if isinstance(part, TextPart | ToolCallPart | ToolResultPart | ReasoningPart):
        lost["provider-metadata"] = ", ".join(part.provider_metadata)
    for kind, text in lost.items():
        if text:
            losses.add(kind, number, text)
