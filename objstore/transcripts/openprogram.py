"""OpenProgram sessions: `history/` folders of one file a node, or files that list nodes or message rows.

A model's turn that ran functions becomes the message that calls them, their results, and what it said in the
end. What a function's run itself asked of models, and branches spawned from a turn, are chains of their own
with `called_by`. A compaction's summary says in its note which nodes it `covers`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from objstore.jsonvalue import Json
from objstore.message import Part, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from objstore.transcripts.build import arguments_of, message_or_none, note_of, text_of, time_of
from objstore.transcripts.documents import read_documents
from objstore.transcripts.draft import is_deep, mapping, sequence, string
from objstore.transcripts.graph import heads_of, plant
from objstore.transcripts.jsonfile import read_json
from objstore.transcripts.lines import decode_leniently
from objstore.transcripts.model import Certainty, Entry, ReaderOutput, Skipped, SourceCall, Transcript, Warn
from objstore.transcripts.openprogram_nodes import ROOT, Node, is_node, node_of
from objstore.transcripts.peek import values_in
from objstore.transcripts.source import Source, SourceFile
from objstore.transcripts.warnings import collector
from refs.errors import DagError

FORMAT: Final = "openprogram"

_HISTORY: Final = re.compile(r"(?:(.*)/)?history/[^/]+\.json", re.DOTALL)
_META: Final = "meta.json"
_LISTS: Final = ("nodes", "messages", "msgs")
_SPILLED: Final = "large_nodes/"
_MAX_SPILLED_BYTES: Final = 64 << 20
_LOOKED_AT: Final = 16  # records: how far a file is looked into to tell its format


def sniff(file_start: bytes, name: str) -> Certainty:
    """Nodes have a predecessor and a caller, and a session's `meta.json` a `head_id`."""
    for value in values_in(file_start)[:_LOOKED_AT]:
        about = mapping(value)
        if "head_id" in about and ("agent_id" in about or "title" in about or "created_at" in about):
            return Certainty.YES
        listed = next((about[key] for key in _LISTS if isinstance(about.get(key), list)), None)
        for each in (listed or (value if isinstance(value, list) else [value]))[:_LOOKED_AT]:
            if is_node(each):
                return Certainty.YES
    return Certainty.NO


def split(source: Source) -> Iterator[list[SourceFile]]:
    """A session's files together; any other file by itself."""
    sessions: dict[str, list[SourceFile]] = {}
    for file in source.files():
        found = _HISTORY.fullmatch(file.name)
        if found:
            sessions.setdefault(f"{found[1] or ''}/", []).append(file)
        elif file.name.rpartition("/")[2] == _META:
            sessions.setdefault(f"{file.name.rpartition('/')[0]}/", []).append(file)
        else:
            yield [file]
    yield from sessions.values()


def read(source: Source) -> Iterator[ReaderOutput]:
    """A conversation for each session."""
    ids: set[str] = set()
    for files in split(source):
        told: list[Warn] = []
        session = _load(source, files, told)
        if not session.nodes:
            yield from (Skipped(warn.kind, warn.place, warn.text) for warn in told[:1])
            if not told:
                yield Skipped("no-messages", files[0].name)
            continue
        made = _transcript(session, files[0].name)
        made.warnings[:0] = told
        if made.id in ids:
            yield Skipped("duplicate-conversation", made.place, made.id[:80])
        elif made.entries:
            ids.add(made.id)
            yield made
        else:
            yield Skipped("no-messages", made.place)


@dataclass(slots=True)
class _Session:
    nodes: dict[str, Node] = field(default_factory=dict)
    about: Mapping[str, Json] = field(default_factory=dict)
    name: str = ""


def _load(source: Source, files: Sequence[SourceFile], told: list[Warn]) -> _Session:
    session = _Session()
    warn = collector(told)
    for file in files:
        found = _HISTORY.fullmatch(file.name)
        if file.name.rpartition("/")[2] == _META and not found:
            session.about = mapping(read_json(file, warn))
            session.name = file.name.rpartition("/")[0].rpartition("/")[2]
            continue
        folder = (found[1] or "") if found else file.name.rpartition("/")[0]
        if found:
            session.name = session.name or folder.rpartition("/")[2]
        for document in read_documents(file, warn, _LISTS):
            value = document.value
            listed = next((value[key] for key in _LISTS if isinstance(mapping(value).get(key), list)), None)
            if listed is not None:
                session.about = {key: each for key, each in value.items() if key not in _LISTS}
            for each in listed if listed is not None else [value]:
                if is_node(each) and not is_deep(each):
                    # A node that is there twice was changed in place: the later one holds.
                    node = node_of(_unspilled(each, source, folder), len(session.nodes))
                    session.nodes[node.id] = node
                else:
                    warn("not-a-node", f"{file.name} {document.place}".strip(), "")
    session.name = session.name or files[0].name
    session.nodes.pop(ROOT, None)
    return session


def _unspilled(given: Mapping[str, Json], source: Source, folder: str) -> Mapping[str, Json]:
    """A node whose output lies in a file of `large_nodes/`, with that text."""
    output = given.get("output")
    named = [output] if isinstance(output, str) else list(mapping(output).values())
    named.append(mapping(given.get("metadata")).get("large_node"))
    for name in named:
        if isinstance(name, str) and name.startswith(_SPILLED) and len(name) < 1000:
            file = source.find(f"{folder}/{name}" if folder else name)
            if file is not None and file.size <= _MAX_SPILLED_BYTES:
                try:
                    with file.open() as stream:
                        raw = stream.read(_MAX_SPILLED_BYTES)
                except DagError:
                    continue
                return {**given, "output": decode_leniently(raw, name, lambda kind, place, text: None)}
    return given


def _transcript(session: _Session, place: str) -> Transcript:
    about = session.about
    made = Transcript(FORMAT, string(about.get("id")) or session.name, (), place=place)
    made.title, made.created_at = string(about.get("title")) or None, time_of(about.get("created_at"))
    made.model = string(about.get("model"))
    grown = _Grown(session, made)
    grown.grow()
    made.entries = grown.entries
    head = string(about.get("head_id")) or string(about.get("head")) or string(about.get("last_node_id"))
    active = grown.tails.get(head or "") or grown.newest
    made.heads = heads_of(grown.entries, active)
    return made


@dataclass(slots=True)
class _Grown:
    """Entries from nodes. `tails` maps each node to its last entry: what its successors follow."""

    session: _Session
    made: Transcript
    entries: list[Entry] = field(default_factory=list)
    tails: dict[str, str] = field(default_factory=dict)
    callers: dict[str, str] = field(default_factory=dict)
    newest: str | None = None
    _runs: dict[str, list[Node]] = field(default_factory=dict)
    _keys: set[str] = field(default_factory=set)

    def grow(self) -> None:
        nodes = dict(sorted(self.session.nodes.items(), key=lambda item: item[1].seq))
        for node in nodes.values():
            if self._is_folded(node):
                self._runs.setdefault(str(node.caller), []).append(node)
        parents = {node.id: self._predecessor(node) for node in nodes.values() if not self._is_folded(node)}
        forest = plant(parents, self.made.warn, attach_dangling=False)
        # Parents first, and who called before what was called.
        above = {key: forest.parents[key] or self._caller(nodes[key]) for key in parents}
        order = plant(above, self.made.warn, attach_dangling=False)
        for key in order.order:
            called = order.parents[key] if forest.parents[key] is None else None
            self._node(nodes[key], forest.parents[key], called)

    def _is_folded(self, node: Node) -> bool:
        caller = self.session.nodes.get(node.caller or "")
        return node.role == "code" and caller is not None and caller.role == "llm"

    def _predecessor(self, node: Node) -> str | None:
        before = self.session.nodes.get(node.predecessor or "")
        if before is not None and self._is_folded(before):
            return before.caller
        return None if node.role == "code" and before is None else node.predecessor

    def _caller(self, node: Node) -> str | None:
        """The node whose entries hold the call that made this one."""
        caller = self.session.nodes.get(node.caller or "")
        if caller is None:
            if node.caller:
                self.made.warn("missing-caller", node.id, node.caller[:80])
            return None
        return caller.caller if self._is_folded(caller) else caller.id

    def _node(self, node: Node, predecessor: str | None, called: str | None) -> None:
        parent = self.tails.get(predecessor or "")
        called_by = self.callers.get(called or "")
        tool_call_id = None
        if called_by is not None and node.caller != called:
            tool_call_id = self.session.nodes[node.caller or ""].tool_call_id
        elif called_by is not None and called is not None and self.session.nodes[called].role == "code":
            tool_call_id = self.session.nodes[called].tool_call_id
        first = len(self.entries)
        for name, role, parts, note in self._messages(node):
            key = name
            message = message_or_none(role, parts, self.made.warn, key)
            if message is None:
                continue
            while key in self._keys:  # a node may be called what another's calls are called
                key += "'"
            self._keys.add(key)
            begins = parent is None and len(self.entries) == first
            caller = called_by if begins else None
            call_id = tool_call_id if caller else None
            self.entries.append(Entry(key, parent, message, node.at, caller, call_id, note))
            parent = key
        if len(self.entries) == first:
            if parent is not None:
                self.tails[node.id] = parent
            return
        self.tails[node.id] = self.entries[-1].key
        calls = next((entry.key for entry in self.entries[first:] if _calls(entry)), None)
        self.callers[node.id] = calls or self.entries[-1].key
        if called is None and node.covers is None:
            self.newest = self.tails[node.id]
        if node.role == "llm" and node.name and node.covers is None:
            asked = next((entry for entry in self.entries[first:] if entry.message.role != "user"), None)
            if asked is not None:
                output = self.entries[-1].key
                self.made.calls.append(SourceCall(node.id, node.name, asked.parent, output, node.at))

    def _messages(self, node: Node) -> Iterator[tuple[str, str, list[Part], Mapping[str, Json]]]:
        note = _note(node)
        if node.role == "code":
            yield node.id, "code", [self._call(node), _result(node)], note
            return
        if node.role != "llm":
            yield node.id, node.speaker, [TextPart(text_of(node.output))], note
            return
        if node.input not in (None, "", [], {}):
            yield f"{node.id}:input", "user", [TextPart(text_of(node.input))], {}
        parts: list[Part] = [ReasoningPart(text) for text in _thoughts(node.blocks)]
        runs = self._runs.get(node.id, [])
        if runs:
            yield f"{node.id}:calls", "assistant", [*parts, *map(self._call, runs)], {} if node.output else note
            parts = []
            for run in runs:
                yield run.id, "tool", [_result(run)], _note(run)
                self.tails[run.id] = run.id
        if node.output not in (None, "") or not runs:
            yield node.id, node.speaker, [*parts, TextPart(text_of(node.output))], note

    def _call(self, node: Node) -> Part:
        arguments = arguments_of(node.input or None, self.made.warn, node.id)
        return ToolCallPart(node.name, arguments, node.tool_call_id)


def _calls(entry: Entry) -> bool:
    return any(isinstance(part, ToolCallPart) for part in entry.message.parts)


def _result(node: Node) -> Part:
    failed = text_of(node.about.get("error")) or None
    if failed is None and (node.about.get("is_error") is True or node.about.get("status") == "error"):
        failed = "error"
    return ToolResultPart(node.name, text_of(node.output), node.tool_call_id, exception=failed)


def _thoughts(blocks: Json) -> Iterator[str]:
    for block in map(mapping, sequence(blocks)):
        if block.get("type") in ("thinking", "reasoning"):
            text = string(block.get("text")) or string(block.get("thinking"))
            if text:
                yield text


def _note(node: Node) -> Mapping[str, Json]:
    covers = [each for each in sequence(node.covers) if isinstance(each, str)]
    model = node.name if node.role == "llm" else None
    return note_of(**{**node.about, "covers": covers, "model": model, "node": node.role})
