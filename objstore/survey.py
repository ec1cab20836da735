"""Every object of a store, read from the files: what can't be read, and what lacks something it needs.

Fills an index of its own, outside of the store, with all that is good: so the store's index may be as wrong as
it likes, and a million objects need no more memory than one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from objstore.arrival import Arrival, place_loose
from objstore.audit import name_rows
from objstore.canonical import condense, message_content_hash
from objstore.codec import decode, decode_tombstone, read_message
from objstore.database import record_oid
from objstore.findings import Finding, error, info, warning
from objstore.frames import decompress
from objstore.index import Index, key
from objstore.journal import JOURNAL, Journal
from objstore.kinds import Kind
from objstore.limits import CHUNK_BYTES, MAX_OBJECT_BYTES
from objstore.loose import Form, list_loose, loose_name, open_loose_payload
from objstore.message import Message
from objstore.node import Node
from objstore.pack import PackReader, list_packs, pack_name
from objstore.packframe import Frame
from objstore.salvage import pack_frames, read_form, recorded
from objstore.scan import admit, line_arrival, value_of
from refs.errors import CorruptFile, CorruptObject, DagError, NotFound, Redacted
from refs.files import Files
from refs.ids import ROOT, Oid
from refs.names import DESCRIPTIONS
from refs.store import RefStore

Progress = Callable[[str, int, int], None]
_BATCH: Final = 5000
_SLOTS: Final = {"instructions": "message", "tools": "payload"}


def unfinished(name: str) -> Finding:
    return info("unfinished-file", name, "a checkpoint was cut short: the object stands in the journal")


class Survey:
    """Reads all objects into `index`, which is empty before. `full` also writes each anew and compares."""

    def __init__(self, files: Files, index: Index, *, full: bool, progress: Progress) -> None:
        self._files, self.index, self._full, self._progress = files, index, full, progress
        self._left: list[Arrival] = []
        self._recorded = recorded(files)

    def run(self) -> Iterator[Finding]:
        """All findings about objects and what they need, and about refs that name nothing."""
        packs = sorted(list_packs(self._files), key=self._age)
        for done, pack in enumerate(packs):
            self._progress("packs", done, len(packs))
            yield from self._pack(pack)
        self._progress("loose objects", 0, 1)
        for kind in (Kind.PAYLOAD, Kind.MESSAGE, Kind.NODE, Kind.DESCRIPTION, Kind.CALL, Kind.NOTE):
            yield from self._loose(kind)
        yield from self._journal()
        with self.index.changing() as db:
            self._left = admit(self.index, db, self._left)
            self.index.link(db)
        self._progress("connections", 0, 1)
        yield from self._nodes()
        yield from self._refs()
        yield from self._records()
        self._progress("connections", 1, 1)

    def _age(self, pack: str) -> tuple[float, str]:
        found = self._files.stat(pack_name(pack))
        return (0.0 if found is None else found.st_mtime), pack

    # -- reading ----------------------------------------------------------------------------------

    def _pack(self, pack: str) -> Iterator[Finding]:
        name = pack_name(pack)
        try:
            reader = PackReader(self._files, pack)
        except (DagError, FileNotFoundError) as failure:
            yield error("bad-pack", name, str(failure))
            return
        with self.index.changing() as db:
            try:
                if not reader.verify_name():
                    yield error("bad-pack-name", name, "its bytes have another hash than its name says")
                frames, wrong = pack_frames(reader)
                if wrong is not None:
                    yield error("bad-seek-table", name, wrong)
                first = self.index.add_pack(db, pack, frames)
                for number, (offset, size) in enumerate(frames):
                    try:
                        frame = reader.frame(offset, size)
                    except CorruptFile as failure:
                        yield error("bad-frame", f"{name} at {offset}", failure.reason)
                        continue
                    yield from self._frame(db, frame, first + number, f"{name} at {offset}")
            except CorruptFile as failure:
                yield error("bad-pack", name, failure.reason)
            finally:
                reader.close()

    def _frame(self, db: sqlite3.Connection, frame: Frame, row: int, place: str) -> Iterator[Finding]:
        arrivals = []
        for at in range(len(frame.lines)):
            try:
                arrival = line_arrival(frame, row, at)
            except (CorruptFile, CorruptObject) as failure:
                yield error("bad-line", f"{place}, line {at + 1}", failure.reason)
                continue
            arrivals.append(arrival)
            if self._full and arrival.kind is Kind.MESSAGE:
                _, form, raw = frame.message(at)
                yield from self._message(arrival.oid, form, raw, f"{place}, line {at + 1}")
        self._left += self.index.add(db, arrivals)

    def _loose(self, kind: Kind) -> Iterator[Finding]:
        batch: list[Arrival] = []
        for oid, form in list_loose(self._files, kind):
            name = loose_name(kind, oid, form)
            try:
                if kind is Kind.PAYLOAD:
                    self._read_payload(oid, form)
                    batch.append(Arrival(kind, oid, place_loose(form)))
                else:
                    raw = read_form(self._files, kind, oid, form)
                    batch.append(Arrival(kind, oid, place_loose(form), value_of(kind, form, raw)))
                    if self._full and kind is Kind.MESSAGE:
                        yield from self._message(oid, form, raw, name)
            except (DagError, FileNotFoundError) as failure:
                if (kind, oid) in self._recorded:
                    yield unfinished(name)
                    continue
                what = "bad-object" if isinstance(failure, CorruptObject) else "bad-frame"
                yield error(what, name, getattr(failure, "reason", str(failure)))
            if len(batch) >= _BATCH:
                self._admit(batch)
                batch = []
        self._admit(batch)

    def _admit(self, arrivals: list[Arrival]) -> None:
        with self.index.changing() as db:
            self._left += admit(self.index, db, arrivals)

    def _read_payload(self, oid: Oid, form: Form) -> None:
        if form is Form.TOMBSTONE:
            if decode_tombstone(Kind.PAYLOAD, read_form(self._files, Kind.PAYLOAD, oid, form)).id != oid:
                raise CorruptObject(Kind.PAYLOAD, oid, "a tombstone of another payload")
        elif self._full:
            with open_loose_payload(self._files, oid) as stream:
                while stream.read(CHUNK_BYTES):
                    pass

    def _message(self, oid: Oid, form: Form, raw: bytes, place: str) -> Iterator[Finding]:
        """Whether a message is what its id says, and written as messages are."""
        try:
            if form is Form.TOMBSTONE:
                if decode_tombstone(Kind.MESSAGE, raw).id != oid:
                    yield error("bad-object", place, "a tombstone of another message")
            elif form is Form.PLAIN:
                decode(Kind.MESSAGE, raw)
            else:
                message = read_message(raw, None, lambda payload: open_loose_payload(self._files, payload))
                if not isinstance(message, Message) or condense(message).raw != raw:
                    yield error("non-canonical", place, "a condensed message that isn't written as one")
                elif message_content_hash(message) != oid:
                    yield error("bad-object", place, "with its payloads it has another hash")
        except (NotFound, Redacted, CorruptFile):
            pass  # of a payload, which is looked at by itself
        except CorruptObject as failure:
            yield error("non-canonical", place, failure.reason)

    def _journal(self) -> Iterator[Finding]:
        """What stands in the journal until a checkpoint makes files of it."""
        journal = Journal(self._files, bytes(16))
        try:
            for record, _ in journal.records():
                arrivals = []
                for each in record.objects:
                    if each.kind is Kind.PAYLOAD or self.index.row(each.kind, each.oid) is not None:
                        continue
                    raw = decompress(each.packed, MAX_OBJECT_BYTES, JOURNAL)
                    if each.form is Form.PLAIN and record_oid(raw) != each.oid:
                        yield error("bad-object", f"{JOURNAL}, {each.kind} {each.oid}", "it has another hash")
                        continue
                    arrivals.append(
                        Arrival(each.kind, each.oid, place_loose(each.form), value_of(each.kind, each.form, raw))
                    )
                self._admit(arrivals)
        except (DagError, FileNotFoundError) as failure:
            yield error("bad-journal", JOURNAL, str(failure))
        finally:
            journal.close()

    # -- connections ------------------------------------------------------------------------------

    def _nodes(self) -> Iterator[Finding]:
        """What is missing before nodes; an error only where something that has a name needs them."""
        left = {arrival.oid: arrival for arrival in self._left}
        needed = self._needed(left)
        for oid, arrival in left.items():
            node = arrival.value
            assert isinstance(node, Node)
            for name, kind, other in (
                ("missing-parent", Kind.NODE, node.parent),
                ("missing-message", Kind.MESSAGE, node.message),
                ("missing-caller", Kind.NODE, node.called_by),
            ):
                if other in (None, ROOT) or other in left or self.index.row(kind, str(other)) is not None:
                    continue
                made = error if oid in needed else warning
                rest = "" if oid in needed else "; nothing needs this node"
                yield made(name, f"node {oid}", f"{kind} {other} isn't there{rest}")

    def _needed(self, left: dict[Oid, Arrival]) -> set[Oid]:
        """Which of the nodes that lack something are reached from refs or calls."""
        if not left:
            return set()
        todo = [oid for _, oid in self._named()]
        with self.index.reading() as db:
            waiting = {found[0] for found in db.execute("SELECT id FROM call_waiting")}
        todo += [oid for oid in left if key(oid) in waiting]
        needed: set[Oid] = set()
        while todo:
            oid = todo.pop()
            if oid in left and oid not in needed:
                needed.add(oid)
                node = left[oid].value
                assert isinstance(node, Node)
                todo += [each for each in (node.parent, node.called_by) if each is not None]
        return needed

    def _named(self) -> Iterator[tuple[str, Oid]]:
        refs = RefStore(self._files)
        try:
            yield from refs.list()
        except DagError:
            return  # the refs' own check tells
        finally:
            refs.close()

    def _refs(self) -> Iterator[Finding]:
        left = {arrival.oid for arrival in self._left}
        for ref, oid in self._named():
            kind, other = Kind.NODE, Kind.DESCRIPTION
            if DESCRIPTIONS.removeprefix("refs/") in ref.removeprefix("refs/"):
                kind, other = other, kind
            if self.index.row(kind, oid) is not None:
                continue
            if self.index.row(other, oid) is not None:
                yield error("bad-ref", ref, f"it names a {other} where a {kind} belongs")
            elif oid in left:
                yield error("dangling-ref", ref, f"the history of node {oid} isn't whole")
            else:
                yield error("dangling-ref", ref, f"{kind} {oid} isn't there")

    def _records(self) -> Iterator[Finding]:
        """What calls, notes and condensed messages name and isn't there."""
        missing = "substr(m.payload, 1, 16) NOT IN (SELECT id FROM payload_id)"
        with self.index.reading() as db:
            name_rows(db, (Kind.MESSAGE, Kind.CALL))
            payloads = db.execute(
                "SELECT lower(hex(i.id)), lower(hex(m.payload)) FROM message_payload m"
                f" JOIN message_of i ON i.row = m.message WHERE {missing}"
            ).fetchall()
            calls = db.execute(
                "SELECT lower(hex(i.id)), w.slot, lower(hex(w.id)) FROM call_waiting w"
                " JOIN call_of i ON i.row = w.call"
            ).fetchall()
            notes = db.execute("SELECT count(*) FROM note_waiting").fetchone()[0]
        for message, payload in payloads:
            yield error("missing-payload", f"message {message}…", f"payload {payload} isn't there")
        yield from self._calls(calls)
        if notes:
            text = f"{notes} nodes that notes speak of aren't stored: usual where gc has pruned"
            yield info("missing-noted-node", "objects/notes", text)

    def _calls(self, calls: Iterable[tuple[str, str, str]]) -> Iterator[Finding]:
        for call, slot, oid in calls:
            kind = _SLOTS.get(slot, "node")
            yield error(f"missing-call-{kind}", f"call {call}…", f"{kind} {oid}… ({slot}) isn't there")
