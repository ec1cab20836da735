"""Transcripts into a store: incremental, idempotent, and never a step back.

A message's source id, time and flags go into notes. A session that grew moves its conversation forward; one
that was rewound, or that has other branches, gets a conversation of its own beside it, named after the place
where it leaves: the same name at every import. What is here already is not written again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from objstore import clock as clocks
from objstore.branches import Branches
from objstore.canonical import Condensed, condense
from objstore.collector import paused, tidy
from objstore.convnames import BRANCH_DIGITS, DEFAULT_PATTERN, beside, branch_name, conversation_name
from objstore.entrytree import NOWHERE, EntryTree
from objstore.heads import Heads
from objstore.jsonvalue import FrozenDict, Json
from objstore.kinds import Kind
from objstore.limits import MIB
from objstore.node import Node
from objstore.records import Description, Note, check_time
from objstore.saving import NODES_PER_NOTE
from objstore.sourcecalls import call_record
from objstore.store import Store
from objstore.transaction import Batch, NewObject, Transaction
from objstore.transcripts.model import IMPORTER, Entry, Head, Transcript, Warn
from refs.errors import Conflict, InvalidValue
from refs.ids import ROOT, NodeId, Oid
from refs.names import RefName, conversation_ref, description_ref
from refs.taken import NameSet, Taken

CHUNK_ENTRIES: Final = 1000
CHUNK_BYTES: Final = 4 * MIB
"""Entries of one conversation, and their bytes, that are looked up and taken in together."""
BATCH_OBJECTS: Final = 20_000
BATCH_BYTES: Final = 32 * MIB
"""New objects, and their canonical bytes, after which an import commits what it has."""
_REASON: Final = "import"
_sha256: Any = sha256  # Any: making a NodeId of its result would cost a fifth of the hash


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
    warnings: list[Warn] = field(default_factory=list)

    @property
    def known(self) -> int:
        """Messages that were here already."""
        return self.messages - self.new


class Ingest:
    """One import: takes transcripts one after the other, and commits now and then.

    `pattern` names conversations, see `convnames`. With `dry_run` everything is read and nothing is written.
    Use as a context manager, or call `flush` at the end. A conversation is visible whole or not at all; what
    was committed before an error stays.
    """

    def __init__(self, store: Store, *, pattern: str = DEFAULT_PATTERN, dry_run: bool = False) -> None:
        self._store, self._pattern, self._dry_run = store, pattern, dry_run
        self._transaction = store.transaction()
        self._bytes = 0
        self._moved: set[RefName] = set()
        self._heads: Heads | None = None
        self._made = NameSet()  # since the last commit
        self._names: Taken | None = None  # of all refs, as of the last commit
        self._held = contextlib.ExitStack()
        self._pending: set[NodeId] = set()
        self.commits = 0
        """How often what was taken in has been committed: all that was added before the last is durable."""
        self.refused: list[Conflict] = []
        """Refs that somebody else moved in the meantime; they were left alone. Importing again sets them."""

    def __enter__(self) -> Ingest:
        self._held.enter_context(paused())
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._held:
            if kind is None:
                self.flush()

    def add(self, transcript: Transcript) -> Ingested:
        """Store one conversation and set its refs. Reads `transcript.entries` to its end.

        Raises `InvalidValue` or `LimitExceeded` for what no store can hold, and leaves the rest as it was.
        """
        done = Ingested(transcript.format, transcript.id, "", transcript.place, transcript.title)
        tree = EntryTree()
        for chunk in _chunks(transcript):
            self._put_chunk(chunk, tree, done)
            if transcript.calls and "{title}" not in self._pattern:  # else the name isn't known before the end
                self._put_calls(transcript, tree, done, all_told=False)
        done.warnings, done.title = transcript.warnings, transcript.title
        self._put_calls(transcript, tree, done, all_told=True)
        self._set_refs(transcript, tree, done)
        self._flush_if_full()
        return done

    def flush(self) -> None:
        """Commit what has been taken in so far."""
        if self._dry_run:
            return
        batch, self._transaction = self._transaction.batch, self._store.transaction()
        self._bytes, self._moved, self._pending, self._made = 0, set(), set(), NameSet()
        try:
            self._store.storage.commit(batch)
        except Conflict:
            self._commit_apart(batch)
        self.commits += 1
        self._names = None
        del batch
        tidy()

    def _flush_if_full(self) -> None:
        if self._transaction.batch.count >= BATCH_OBJECTS or self._bytes >= BATCH_BYTES:
            self.flush()

    def _commit_apart(self, batch: Batch) -> None:
        """Somebody else moved or made one of the refs: all the others get where they belong."""
        commit = self._store.storage.commit
        commit(Batch(batch.objects, relies_on=batch.relies_on))
        for move, reason in zip(batch.moves, batch.reasons, strict=True):
            try:
                commit(Batch(moves=[move], reasons=[reason]))
            except Conflict as error:
                self.refused.append(error)
        self._heads = None

    # -- nodes ------------------------------------------------------------------------------------

    def _put_chunk(self, chunk: Sequence[tuple[Entry, Condensed]], tree: EntryTree, done: Ingested) -> None:
        """Put what is new of some entries, with notes; their places go into `tree`."""
        made = []
        parents: dict[NodeId, NodeId] = {}
        if not self._pending:  # before the first look at what is there
            self._transaction.batch.planned = self._store.storage.look()
        place, oid = NOWHERE, ROOT
        for entry, condensed in chunk:
            parent = NOWHERE if entry.parent is None else tree.get(entry.parent)
            if parent is None:
                raise InvalidValue("parent", f"{str(entry.parent)[:80]!r} does not come before {entry.key[:80]!r}")
            parent_id = oid if parent == place else tree.id(parent)
            node = _node(entry, condensed, tree, parent_id)
            raw = node.canonical()
            oid = _sha256(raw).hexdigest()
            place = tree.add(entry.key, oid, parent, entry.at)
            parents[oid] = parent_id
            made.append((entry, condensed, oid, node, raw))
        done.messages += len(made)
        absent, pending = self._absent(parents), self._pending
        notes = _Notes(self._transaction, self._store.storage.clock)
        for entry, condensed, oid, node, raw in made:
            if oid not in absent or oid in pending:
                continue
            done.new += 1
            pending.add(oid)
            if not self._dry_run:
                self._transaction.put_message(entry.message, condensed)
                self._transaction.batch.add(NewObject(Kind.NODE, oid, raw, node))
                self._bytes += len(condensed.raw)
                notes.add(oid, entry)
        notes.put()
        del notes, made  # they hold what is committed now
        # Also in the middle of a session: no ref points there yet, but it is young.
        self._flush_if_full()

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

    # -- calls ------------------------------------------------------------------------------------

    def _put_calls(self, transcript: Transcript, tree: EntryTree, done: Ingested, *, all_told: bool) -> None:
        """Record the calls that the transcript has told so far, and take them from it: there may be very many."""
        done.name = self._name(transcript)
        waiting = []
        for call in transcript.calls:
            asked = NOWHERE if call.head_input is None else tree.get(call.head_input)
            told = asked is not None and (call.head_output is None or tree.get(call.head_output) is not None)
            if not (told or all_told):
                waiting.append(call)
            elif asked is not None:
                done.calls += 1
                if not self._dry_run:
                    self._transaction.put_record(call_record(transcript, call, tree, asked, done.name))
                    self._flush_if_full()
        transcript.calls[:] = waiting

    # -- refs -------------------------------------------------------------------------------------

    def _name(self, transcript: Transcript) -> str:
        name = conversation_name(self._pattern, transcript)
        return name if name in self._known_heads() else beside(self._is_free, name)

    def _is_free(self, name: str) -> bool:
        """Whether a conversation of this name could stand beside those that there are."""
        ref = conversation_ref(name)
        return self._made.conflict(ref) is None and self._taken().conflict(ref) is None

    def _taken(self) -> Taken:
        """The names of all refs. What others make until the next commit is a conflict then."""
        if self._names is None:
            self._names = self._store.storage.refs.taken()
        return self._names

    def _known_heads(self) -> Heads:
        """The heads of all conversations."""
        if self._heads is None:
            self._heads = Heads()
            for each in self._store.conversations():
                self._heads.keep(each.name, each.head)
        return self._heads

    def _set_refs(self, transcript: Transcript, tree: EntryTree, done: Ingested) -> None:
        """Move or make the conversations of a transcript, its active head's first."""
        ends: dict[int, Head | None] = {}
        for head in sorted(transcript.heads, key=lambda head: not head.active):
            place = tree.get(head.key)
            if place is not None:
                ends.setdefault(place, head)
        if not ends and len(tree):
            ends[tree.last] = None
        known = self._known_heads().family_of(done.name)
        branches = Branches(self._store, tree, known, done.name)
        if branches.elsewhere and not self._dry_run:
            self.flush()  # what is compared must be stored
        for place, end in ends.items():
            self._set_ref(transcript, branches, place, end, done)

    def _set_ref(
        self, transcript: Transcript, branches: Branches, place: int, head: Head | None, done: Ingested
    ) -> None:
        if branches.covers(place):
            return  # here already: as it is, or a copy from an earlier time
        tree, known = branches.tree, branches.known
        first, at = branches.leaves(place)
        name = branches.behind(at) or (None if self._dry_run else branches.grown(first))
        node = tree.id(place)
        if name is not None:
            self._move(name, known[name], node)
            done.moved.append(name)
        else:
            names = [branch_name(done.name, tree.id(first), digits) for digits in BRANCH_DIGITS]
            name = next((each for each in (done.name, *names) if each not in known), None)
            if name is None:
                transcript.warn("name-taken", transcript.place, names[-1])
                return
            self._move(name, None, node)
            self._made.add(conversation_ref(name))
            done.created.append(name)
        branches.move(name, place)
        self._known_heads().keep(name, node)
        self._describe(transcript, tree, done, name, head)

    def _move(self, name: str, old: NodeId | None, new: NodeId) -> None:
        if self._dry_run:
            return
        ref = conversation_ref(name)
        if ref in self._moved:
            self.flush()
        self._moved.add(ref)
        self._transaction.rely_on(new)
        self._transaction.move(ref, old, new, _REASON)

    def _describe(
        self, transcript: Transcript, tree: EntryTree, done: Ingested, name: str, head: Head | None
    ) -> None:
        """What is known about a conversation that was made or moved. A title that the user gave it stays."""
        if self._dry_run:
            return
        title = transcript.title if name == done.name else head and head.title
        ref = description_ref(name)
        if ref in self._moved:
            self.flush()
        told = self._store.storage.refs.resolve(ref) if self._taken().holds(ref) else None
        if told is not None and name in done.moved:
            held = self._store.description(name)
            last = next(self._store.storage.refs.reflog.entries(ref), None)
            if held is None or held.title == title or not title or last is None or last.reason != _REASON:
                return
        made = Description(
            description=name,
            created_at=transcript.created_at or tree.first_time() or self._store.storage.clock(),
            title=title or None,
            model=transcript.model or None,
            tags=tuple(transcript.tags) or None,
            source={"format": transcript.format, "id": transcript.id, "importer": IMPORTER},
        )
        oid = self._transaction.put_record(made)
        if oid != told:
            self._moved.add(ref)
            self._transaction.move(ref, told, oid, _REASON)


def _chunks(transcript: Transcript) -> Iterator[list[tuple[Entry, Condensed]]]:
    """Entries in portions, with their stored form."""
    chunk: list[tuple[Entry, Condensed]] = []
    size = 0
    for entry in transcript.entries:
        condensed = condense(entry.message)
        chunk.append((entry, condensed))
        size += len(condensed.raw)
        if condensed.payloads:
            size += sum(len(each.content or b"") for _, each in condensed.payloads)
        if len(chunk) >= CHUNK_ENTRIES or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    yield chunk


def _node(entry: Entry, condensed: Condensed, tree: EntryTree, parent: NodeId) -> Node:
    """The node of an entry behind another node."""
    if entry.called_by is not None:
        caller = tree.get(entry.called_by)
        if caller is not None:
            return Node(parent, condensed.oid, tree.id(caller), entry.tool_call_id)
    return Node.trusted(parent, condensed.oid)


class _Notes:
    """What is known about nodes as they come, in notes of `NODES_PER_NOTE` each."""

    def __init__(self, transaction: Transaction, clock: Callable[[], str]) -> None:
        self._transaction, self._clock = transaction, clock
        self._nodes: dict[str, dict[str, Json]] = {}
        self._plain = True

    def add(self, oid: NodeId, entry: Entry) -> None:
        if len(self._nodes) == NODES_PER_NOTE:
            self.put()
        note, key, at = entry.note, entry.key, entry.at
        about = dict(note)
        about["key"] = key
        if at is not None:
            about["at"] = at
        # What a reader made is frozen; who makes entries by hand may say anything.
        frozen = isinstance(note, FrozenDict) and not note.odd
        if not (frozen and key.isascii() and (at is None or at.isascii())):
            self._plain = False
        self._nodes[oid] = about

    def put(self) -> None:
        """Put a note of those that came since the last one."""
        if not self._nodes:
            return
        ulid, now, nodes = clocks.new_ulid(), check_time(self._clock(), "at"), self._nodes
        note = Note.trusted(ulid, now, nodes) if self._plain else Note(note=ulid, at=now, nodes=nodes)
        self._transaction.put_record(note, unique=True)
        self._nodes, self._plain = {}, True
