"""Ids for tool calls that have none, where a format wants one."""

from __future__ import annotations

from collections.abc import Sequence

from objstore.message import ToolCallPart, ToolResultPart
from objstore.pairing import Place, pair_tool_results
from objstore.transcripts.export.model import ExportEntry, Losses


def call_ids(chain: Sequence[ExportEntry], losses: Losses, first: int = 0) -> dict[tuple[int, int], str]:
    """The id of every call and result of the chain, by message and part; made-up ones are told as a loss.

    `first` is the number of the chain's first message.
    """
    answers = pair_tool_results([entry.message for entry in chain]).answers
    ids: dict[tuple[int, int], str] = {}
    for number, entry in enumerate(chain, first):
        for index, part in enumerate(entry.message.parts):
            if isinstance(part, ToolCallPart | ToolResultPart) and part.tool_call_id is not None:
                ids[number, index] = part.tool_call_id
                continue
            asked = answers.get(Place(number - first, index)) if isinstance(part, ToolResultPart) else None
            if asked is not None:
                ids[number, index] = ids[asked.message + first, asked.part]
            elif isinstance(part, ToolCallPart | ToolResultPart):
                ids[number, index] = f"call_{number}_{index}"
                losses.add("tool-call-id", number, f"made up: call_{number}_{index}")
    return ids
