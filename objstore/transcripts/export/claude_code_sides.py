"""Which side chains a session file of Claude Code can hold: those whose callers its reader finds again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from objstore.jsonvalue import Json
from objstore.message import ToolCallPart, ToolResultPart
from objstore.transcripts.anthropic_blocks import PROVIDER
from objstore.transcripts.draft import mapping, string
from objstore.transcripts.export.model import ExportEntry, SideEntry

_TASK_TOOLS: Final = frozenset({"Task", "Agent"})  # the reader knows a prompt by these


def grouped(sides: Sequence[SideEntry]) -> Iterator[list[SideEntry]]:
    """Each side chain, with its forks. What has its beginning elsewhere is left out."""
    chains: dict[str, list[SideEntry]] = {}  # by the id of each of its nodes
    starts = []
    for each in sides:
        if each.parent and each.parent not in chains:
            continue
        chains[each.node_id] = chains[each.parent] if each.parent else []
        chains[each.node_id].append(each)
        if not each.parent:
            starts.append(chains[each.node_id])
    yield from starts


def without_second_results(side: Sequence[SideEntry]) -> list[SideEntry]:
    """A side chain without forks that begin with a result: those would be read as results of parallel calls."""
    kept: dict[str, SideEntry] = {}
    answered: set[str] = set()
    for each in side:
        if each.parent and each.parent not in kept:
            continue
        if is_result(each):
            if each.parent in answered:
                continue
            answered.add(each.parent)
        kept[each.node_id] = each
    return list(kept.values())


def first_names(
    chain: Sequence[ExportEntry], ids: Mapping[tuple[int, int], str], first: int = 0
) -> dict[str, str]:
    """What a result's tool is called when it is read: as the first of the file's calls with its id says."""
    names: dict[str, str] = {}
    for number, entry in enumerate(chain, first):
        for index, part in enumerate(entry.message.parts):
            server = isinstance(part, ToolCallPart) and (
                part.server_executed or mapping(part.provider_metadata.get(PROVIDER)).get("type")
            )
            if isinstance(part, ToolCallPart) and not server and ids[number, index]:
                names.setdefault(ids[number, index], part.name)
    return names


def is_result(entry: ExportEntry) -> bool:
    return any(isinstance(part, ToolResultPart) for part in entry.message.parts)


@dataclass(slots=True)
class Calls:
    """Who called whom, as it will be read: see `claude_code._Telling._called_by`."""

    asked: dict[str, str] = field(default_factory=dict)  # by call: the first node that asked with its id
    prompts: dict[str, list[str]] = field(default_factory=dict)  # the calls of agents that gave a prompt
    claimed: set[str] = field(default_factory=set)  # calls that put a message somewhere
    told: set[str] = field(default_factory=set)  # nodes
    unasked: set[str] = field(default_factory=set)  # ids of results without a call so far

    def starts(self, side: Sequence[SideEntry]) -> bool:
        """Whether the first message of a side chain will be known as called by what called it."""
        first, call_id = side[0], side[0].tool_call_id
        if not call_id or call_id in self.claimed or self.asked.get(call_id) != first.called_by:
            return False
        if first.message.role != "user" or is_result(first):
            return False
        # Of calls that share an id the first counts: for who asked, and for what a result before is of.
        parts = (part for each in side for part in each.message.parts)
        calls = {part.tool_call_id for part in parts if isinstance(part, ToolCallPart)}
        return calls.isdisjoint(self.unasked) and calls.isdisjoint(self.asked)

    def add(self, node_id: str, record: Mapping[str, Any]) -> None:
        """Remember the calls of a message, as it is written."""
        content = record["message"]["content"]
        for block in content if isinstance(content, list) else ():
            kind, call_id = block.get("type"), string(block.get("id"))
            if kind == "tool_use" and call_id:
                self.asked.setdefault(call_id, node_id)
                prompt = mapping(block.get("input")).get("prompt")
                if block.get("name") in _TASK_TOOLS and isinstance(prompt, str):
                    self.prompts.setdefault(prompt, []).append(call_id)
            elif kind == "tool_result" and block.get("tool_use_id") not in self.asked:
                self.unasked.add(block.get("tool_use_id"))

    def putting(self, record: Mapping[str, Any], started_by: str | None) -> str | None:
        """The call that a message of a side chain will be said to be put there by."""
        content: Json = record["message"]["content"]
        if isinstance(content, list) and len(content) == 1:
            content = mapping(content[0]).get("text")
        again = self.prompts.get(content, []) if isinstance(content, str) else []
        for call_id in [*([started_by] if started_by else []), *again]:
            if call_id not in self.claimed and self.asked[call_id] in self.told:
                self.claimed.add(call_id)
                return call_id
        return None
