"""Transcripts into a store: incremental, idempotent, and never a step back.

A message's source id, time and flags go into notes. A session that grew moves its conversation forward; one
that was rewound, or that has other branches, gets a conversation of its own beside it, named after the place
where it leaves: the same name at every import. What is here already is not written again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from objstore import clock as clocks
from objstore.canonical import Condensed, condense
from objstore.jsonvalue import Json
from objstore.kinds import Kind
from objstore.message import Message
from objstore.node import Node
from objstore.records import Call, Description, Note
from objstore.saving import NODES_PER_NOTE
from objstore.store import Store
from objstore.transcripts.model import IMPORTER, Entry, Head, SourceCall, Transcript, Warn
from refs.errors import InvalidRefName, ObjectMissing
from refs.ids import ROOT, NodeId, Oid
from refs.names import CONVERSATIONS, RefName, check_ref_name, conversation_ref, description_ref

CHUNK_ENTRIES: Final = 2000
"""Entries of one conversation that are looked up, and put into the transaction, together."""
BATCH_OBJECTS: Final = 20_000
BATCH_BYTES: Final = 64 << 20
"""New objects, and their canonical bytes, after which an import commits what it has."""
BRANCH_DIGITS: Final = 10
MAX_NAME_BYTES: Final = 150
"""Of a conversation's name as it is made from a source's id; branches add to it."""
UNKNOWN_TIME: Final = "1970-01-01T00:00:00.000Z"
"""When a call was made whose source tells no time at all."""

_BRANCH: Final = re.compile(rf"\.at-[0-9a-f]{{{BRANCH_DIGITS}}}$", re.ASCII)
_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._@+=-]+")


@dataclass(slots=True)
class Ingested:
    """What became of one transcript. `messages` counts its entries; `new` those that were not here."""

    format: str
    id: str
    name: str
    place: str
    title: str | None
    messages: int = 0
    new: int = 0
    calls: int = 0
    created: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    branches: int = 0
    warnings: list[Warn] = field(default_factory=list)

    @property
    def known(self) -> int:
        """Messages that were here already."""
        return self.messages - self.new


class Ingest:
    """One import: takes transcripts one after the other, and commits now and then.

    `pattern` names conversations, with `{format}`, `{id}` and `{title}` in it. With `dry_run` everything is read
    and nothing is written. Use as a context manager, or call `flush` at the end. A conversation is visible
    whole or not at all; what was committed before an error stays.
    """

    def __init__(self, store: Store, *, pattern: str = "{format}/{id}", dry_run: bool = False) -> None:
        self._store, self._pattern, self._dry_run = store, pattern, dry_run
        self._transaction = store.transaction()
        self._bytes = 0
        self._moved: set[RefName] = set()
        self._heads: dict[str, dict[str, NodeId]] | None = None  # by the transcript's own name
        self._pending: set[tuple[Kind, Oid]] = set()

    def __enter__(self) -> Ingest:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.flush()

    def add(self, transcript: Transcript) -> Ingested:
        """Store one conversation and set its refs. Reads `transcript.entries` to its end."""
        done = Ingested(transcript.format, transcript.id, "", transcript.place, transcript.title)
        chains = _Chains()
        chunk: list[Entry] = []
        for entry in transcript.entries:
            chunk.append(entry)
            if len(chunk) >= CHUNK_ENTRIES:
                self._put_chunk(chunk, chains, done)
                chunk = []
        self._put_chunk(chunk, chains, done)
        done.warnings = transcript.warnings
        done.title = transcript.title
        done.name = conversation_name(self._pattern, transcript)
        self._put_calls(transcript, chains, done)
        self._set_refs(transcript, chains, done)
        if len(self._transaction.batch.objects) >= BATCH_OBJECTS or self._bytes >= BATCH_BYTES:
            self.flush()
        return done

    def flush(self) -> None:
        """Commit what has been taken in so far."""
        transaction, self._transaction = self._transaction, self._store.transaction()
        self._bytes, self._moved, self._pending = 0, set(), set()
        if not self._dry_run:
            transaction.commit()

    # -- nodes ------------------------------------------------------------------------------------

    def _put_chunk(self, chunk: Sequence[Entry], chains: _Chains, done: Ingested) -> None:
        """Put what is new of some entries, with notes; their places go into `chains`."""
        made: list[tuple[Entry, NodeId, Node, Condensed]] = []
        for entry in chunk:
            condensed = condense(entry.message)
            node = chains.node(entry, condensed)
            oid = node.id
            chains.add(entry, oid, node)
            made.append((entry, oid, node, condensed))
        absent = self._absent({oid: node.parent for _, oid, node, _ in made})
        notes: dict[str, Mapping[str, Json]] = {}
        for entry, oid, node, condensed in made:
            done.messages += 1
            if oid not in absent or (Kind.NODE, oid) in self._pending:
                continue
            done.new += 1
            self._pending.add((Kind.NODE, oid))
            if not self._dry_run:
                self._put_node(entry.message, condensed, oid, node)
                notes[oid] = _about(entry)
        for start in range(0, len(notes), NODES_PER_NOTE):
            part = dict(list(notes.items())[start : start + NODES_PER_NOTE])
            note = Note(note=clocks.new_ulid(), at=self._store.storage.clock(), nodes=part)
            self._transaction.put_record(note)
        if self._bytes >= BATCH_BYTES and not self._moved:
            self.flush()  # in the middle of a long session: no ref points there yet, but it is young

    def _absent(self, parents: Mapping[NodeId, NodeId]) -> set[Oid]:
        """Those of some nodes, given with their parents and parents first, that are not stored.

        A stored node implies all before it, and a missing one all behind it: mostly the first and the last
        nodes tell of the rest.
        """
        index = self._store.storage.index
        absent: set[Oid] = set()
        unsure: dict[NodeId, None] = {}
        for oid, parent in parents.items():
            if parent in absent or (parent not in unsure and index.row(Kind.NODE, oid) is None):
                absent.add(oid)
            else:
                unsure[oid] = None
        inner = {parents[oid] for oid in unsure}
        for leaf in [oid for oid in unsure if oid not in inner]:
            if index.row(Kind.NODE, leaf) is not None:
                before = leaf
                while before in unsure:
                    del unsure[before]
                    before = parents[before]
        return absent | index.missing(Kind.NODE, unsure)

    def _put_node(self, message: Message, condensed: Condensed, oid: NodeId, node: Node) -> None:
        self._transaction.put_message(message, condensed)
        self._transaction.put_known_node(oid, node)
        self._bytes += len(condensed.raw)

    # -- calls ------------------------------------------------------------------------------------

    def _put_calls(self, transcript: Transcript, chains: _Chains, done: Ingested) -> None:
        ids = []
        for call in transcript.calls:
            asked = chains.ids.get(call.head_input or "", ROOT)
            if call.head_input is not None and asked == ROOT:
                continue
            answered = chains.ids.get(call.head_output or "")
            at = (
                call.started_at
                or chains.times.get(call.head_output or "")
                or chains.times.get(call.head_input or "")
            )
            record = _call(transcript, call, asked, answered, at or transcript.created_at, done.name)
            ids.append(self._transaction.put_record(record))
        done.calls = len(ids)

    # -- refs -------------------------------------------------------------------------------------

    def _set_refs(self, transcript: Transcript, chains: _Chains, done: Ingested) -> None:
        """Move or make the conversations of a transcript, its active head's first."""
        if not chains.ids:
            return
        heads = sorted(transcript.heads, key=lambda head: not head.active)
        known = self._heads_of(done.name)
        for head in heads or [Head(chains.last, transcript.id, active=True)]:
            node = chains.ids.get(head.key)
            if node is not None:
                self._set_ref(done, known, node, chains, head)
        done.branches = len(known)
        if done.name in known:
            self._describe(transcript, chains, done)

    def _heads_of(self, name: str) -> dict[str, NodeId]:
        """The conversations of a transcript that exist: its own name, and branches beside it."""
        if self._heads is None:
            self._heads = {}
            for ref, oid in self._store.refs(CONVERSATIONS):
                short = ref.removeprefix(CONVERSATIONS)
                self._heads.setdefault(_BRANCH.sub("", short), {})[short] = NodeId(oid)
        return self._heads.setdefault(name, {})

    def _set_ref(
        self, done: Ingested, known: dict[str, NodeId], node: NodeId, chains: _Chains, head: Head
    ) -> None:
        if node in known.values():
            return
        line = chains.line(node)
        behind = [name for name, at in known.items() if at in line]
        if behind:
            # The nearest of several: a branch that grew, rather than the conversation it once left.
            name = max(behind, key=lambda each: line[known[each]])
            self._move(name, known[name], node, "import")
            done.moved.append(name)
        elif any(self._is_before(node, at, chains) for at in known.values()):
            return  # a copy from an earlier time: what came later is here already
        else:
            name = done.name if done.name not in known else _branch(done.name, known.values(), line, chains)
            if name in known:
                return
            self._move(name, None, node, "import")
            done.created.append(name)
            if head.title and name != done.name:
                made = Description(
                    description=name, created_at=self._store.storage.clock(), title=head.title, forked_from=node
                )
                self._transaction.move(description_ref(name), None, self._transaction.put_record(made), "import")
        known[name] = node

    def _is_before(self, node: NodeId, head: NodeId, chains: _Chains) -> bool:
        if head in chains.parents:
            return node in chains.line(head)
        try:
            back = self._store.depth(head) - self._store.depth(node)
            return back >= 0 and self._store.chains.ancestor(head, back) == node
        except ObjectMissing:  # new in this very import, so nothing that was here comes after it
            return False

    def _move(self, name: str, old: NodeId | None, new: NodeId, reason: str) -> None:
        ref = conversation_ref(name)
        if ref in self._moved:
            self.flush()
        self._moved.add(ref)
        self._transaction.rely_on(new)
        self._transaction.move(ref, old, new, reason)

    def _describe(self, transcript: Transcript, chains: _Chains, done: Ingested) -> None:
        ref = description_ref(done.name)
        if ref in self._moved or not (done.moved or done.created):
            return
        told = self._store.storage.refs.resolve(ref)
        created = transcript.created_at or min(chains.times.values(), default=None)
        made = Description(
            description=done.name,
            created_at=created or self._store.storage.clock(),
            title=transcript.title or None,
            model=transcript.model or None,
            tags=tuple(transcript.tags) or None,
            source={"format": transcript.format, "id": transcript.id, "importer": IMPORTER},
        )
        if told is not None and done.name not in done.created:
            held = self._store.description(done.name)
            if held is not None and held.title == made.title:
                return
        oid = self._transaction.put_record(made)
        if oid != told:
            self._moved.add(ref)
            self._transaction.move(ref, told, oid, "import")


class _Chains:
    """The nodes that a transcript's entries make: ids by key, and each node's parent."""

    def __init__(self) -> None:
        self.ids: dict[str, NodeId] = {}
        self.times: dict[str, str] = {}
        self.parents: dict[NodeId, NodeId] = {}
        self.last = ""

    def node(self, entry: Entry, condensed: Condensed) -> Node:
        parent = ROOT if entry.parent is None else self.ids[entry.parent]
        called_by = None if entry.called_by is None else self.ids.get(entry.called_by)
        if called_by is None:
            return Node.trusted(parent, condensed.oid)
        return Node(parent, condensed.oid, called_by, entry.tool_call_id)

    def add(self, entry: Entry, oid: NodeId, node: Node) -> None:
        self.ids[entry.key] = oid
        self.parents[oid] = node.parent
        if entry.at is not None:
            self.times[entry.key] = entry.at
        self.last = entry.key

    def line(self, node: NodeId) -> dict[NodeId, int]:
        """Every node from the first up to `node`, with its distance from the end counted negatively."""
        found: dict[NodeId, int] = {}
        while node != ROOT:
            found[node] = -len(found)
            node = self.parents[node]
        return found


def conversation_name(pattern: str, transcript: Transcript) -> str:
    """The name of a transcript's conversation: legal, and the same at every import.

    What a name can't hold becomes `-`; an id that would be too long or is empty is replaced by its hash.
    """
    parts = {"format": transcript.format, "id": transcript.id, "title": transcript.title or "untitled"}
    fit = {key: _fit(value) for key, value in parts.items()}
    name = pattern
    for key, value in fit.items():
        name = name.replace("{" + key + "}", value)
    try:
        return check_ref_name(f"{CONVERSATIONS}{name}").removeprefix(CONVERSATIONS)
    except InvalidRefName:
        name = f"{transcript.format}/x-{sha256(transcript.id.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
        return check_ref_name(f"{CONVERSATIONS}{name}").removeprefix(CONVERSATIONS)


def _fit(text: str) -> str:
    made = _UNFIT.sub("-", text).strip("-.")
    if made != text or len(made) > MAX_NAME_BYTES:
        # Two ids that look alike once they fit must not become one conversation.
        mark = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:6]
        made = f"{made[: MAX_NAME_BYTES - 8]}-{mark}"
    return made.lstrip("-.") or "x"


def _branch(name: str, heads: Iterable[NodeId], line: Mapping[NodeId, int], chains: _Chains) -> str:
    """A branch's name, from the first of its nodes that no other conversation of the transcript has."""
    others: set[NodeId] = set()
    for head in heads:
        node = head
        while node != ROOT and node in chains.parents and node not in others:
            others.add(node)
            node = chains.parents[node]
    first = next(iter(line))
    for node in line:  # from the end to the beginning
        if node in others:
            break
        first = node
    return f"{name}.at-{first[:BRANCH_DIGITS]}"


def _about(entry: Entry) -> dict[str, Json]:
    members = dict(entry.note)
    members["key"] = entry.key
    if entry.at is not None:
        members["at"] = entry.at
    return members


def _call(
    transcript: Transcript,
    call: SourceCall,
    asked: NodeId,
    answered: NodeId | None,
    at: str | None,
    name: str,
) -> Call:
    started = at or UNKNOWN_TIME
    return Call(
        call=_ulid(started, f"{transcript.format}\n{transcript.id}\n{call.id}"),
        model=call.model or "unknown",
        resolved_model=call.resolved_model,
        head_input=asked,
        head_output=answered,
        conversation=name,
        started_at=started,
        duration_ms=call.duration_ms,
        error=call.error,
        input_tokens=call.input_tokens,
        output_tokens=call.output_tokens,
        token_details=call.token_details or None,
        options=call.options or None,
    )


def _ulid(at: str, seed: str) -> str:
    """A ULID that is the same for the same source: importing again records nothing twice, anywhere."""
    milliseconds = max(0, clocks.milliseconds(at))
    random = int.from_bytes(sha256(seed.encode("utf-8", "surrogatepass")).digest()[:10], "big")
    value = (milliseconds << 80) | random
    return "".join(_CROCKFORD[(value >> shift) & 31] for shift in range(125, -1, -5))
