"""The parts of the index beside the chains: who called whom, calls, notes, and payloads of messages.

A note or call may come before the nodes it names (two packs, read in either order): what isn't there yet is
put down in a table of its own, and `link` joins it when all has been read. A part is given whole batches,
since most objects say nothing to it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from objstore.kinds import Kind
from objstore.records import Call
from refs.ids import ROOT

if TYPE_CHECKING:
    from objstore.index import Index

Added = Sequence[tuple[int, Any]]
"""Rows, and what the index must know of the objects that were admitted in them."""


class CalledBy:
    """Side chains: which node asked for which."""

    name = "called_by"
    version = 1
    kinds = frozenset({Kind.NODE})

    def create(self, db: sqlite3.Connection) -> None:
        db.execute("CREATE TABLE called(node INTEGER PRIMARY KEY, by INTEGER NOT NULL)")
        db.execute("CREATE INDEX called_by ON called(by)")

    def add(self, db: sqlite3.Connection, index: Index, added: Added) -> None:
        callers = [(row, node.called_by) for row, node in added if node.called_by is not None]
        db.executemany(
            "INSERT INTO called VALUES (?, ?)", [(row, index.row(Kind.NODE, by)) for row, by in callers]
        )

    def forget(self, db: sqlite3.Connection, kind: Kind, rows: Sequence[int]) -> None:
        if kind is Kind.NODE:
            db.executemany("DELETE FROM called WHERE node=?", [(row,) for row in rows])

    def link(self, db: sqlite3.Connection) -> None:
        """Nothing waits: a node is admitted after the node that asked for it."""


class Calls:
    """Calls by the nodes they were asked at and answered with, and by time and model."""

    name = "calls"
    version = 1
    kinds = frozenset({Kind.CALL})

    def create(self, db: sqlite3.Connection) -> None:
        db.execute(
            "CREATE TABLE call_edge(call INTEGER PRIMARY KEY, asked INTEGER, answered INTEGER,"
            " named INTEGER NOT NULL, at TEXT NOT NULL, instructions INTEGER, tools INTEGER)"
        )
        db.execute("CREATE INDEX call_asked ON call_edge(asked)")
        db.execute("CREATE INDEX call_at ON call_edge(at)")
        db.execute("CREATE TABLE call_waiting(call INTEGER NOT NULL, slot TEXT NOT NULL, id BLOB NOT NULL)")

    def add(self, db: sqlite3.Connection, index: Index, added: Added) -> None:
        for row, call in added:
            self._add(db, index, row, call)

    def _add(self, db: sqlite3.Connection, index: Index, row: int, value: Call) -> None:
        named = {
            "asked": value.head_input,
            "answered": value.head_output,
            "instructions": value.instructions,
            "tools": value.tools,
        }
        kinds = {"instructions": Kind.MESSAGE, "tools": Kind.PAYLOAD}
        rows = {
            slot: 0 if oid_named == ROOT else index.row(kinds.get(slot, Kind.NODE), oid_named)
            for slot, oid_named in named.items()
            if oid_named is not None
        }
        for slot, oid_named in named.items():
            if oid_named is not None and rows.get(slot) is None:
                db.execute("INSERT INTO call_waiting VALUES (?, ?, ?)", (row, slot, bytes.fromhex(oid_named[:32])))
        db.execute(
            "INSERT INTO call_edge VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                row,
                rows.get("asked"),
                rows.get("answered"),
                value.conversation is not None,
                value.started_at,
                rows.get("instructions"),
                rows.get("tools"),
            ),
        )

    def forget(self, db: sqlite3.Connection, kind: Kind, rows: Sequence[int]) -> None:
        if kind is Kind.CALL:
            db.executemany("DELETE FROM call_edge WHERE call=?", [(row,) for row in rows])
            db.executemany("DELETE FROM call_waiting WHERE call=?", [(row,) for row in rows])

    def link(self, db: sqlite3.Connection) -> None:
        for slot, table in _CALL_SLOTS.items():
            found = db.execute(
                f"SELECT w.call, i.row FROM call_waiting w JOIN {table} i ON i.id = w.id WHERE w.slot=?", (slot,)
            ).fetchall()
            for call, row in found:
                db.execute(f"UPDATE call_edge SET {slot}=? WHERE call=?", (row, call))
                db.execute("DELETE FROM call_waiting WHERE call=? AND slot=?", (call, slot))


_CALL_SLOTS = {"asked": "node_id", "answered": "node_id", "instructions": "message_id", "tools": "payload_id"}


MAX_RUN: Final = 64
"""Nodes of one run at the most: whoever looks for a node need look no further back."""


class Notes:
    """Which notes speak of which nodes: of runs of them, since those of a note mostly came behind each other."""

    name = "notes"
    version = 2
    kinds = frozenset({Kind.NOTE})

    def create(self, db: sqlite3.Connection) -> None:
        db.execute(
            "CREATE TABLE note_run(first INTEGER NOT NULL, note INTEGER NOT NULL, last INTEGER NOT NULL,"
            " PRIMARY KEY(first, note)) WITHOUT ROWID"
        )
        db.execute("CREATE TABLE note_waiting(id BLOB NOT NULL, note INTEGER NOT NULL)")

    def add(self, db: sqlite3.Connection, index: Index, added: Added) -> None:
        runs, waiting = [], []
        arriving = index.arriving(Kind.NODE)
        for row, note in added:
            there = []
            for node in note.nodes:
                name = bytes.fromhex(node[:32])
                found = arriving.get(name) or index.row(Kind.NODE, node)
                if found is None:
                    waiting.append((name, row))
                else:
                    there.append(found)
            runs += [(first, row, last) for first, last in _runs(there)]
        db.executemany(_ADD_RUN, runs)
        if waiting:
            db.executemany("INSERT INTO note_waiting VALUES (?, ?)", waiting)

    def forget(self, db: sqlite3.Connection, kind: Kind, rows: Sequence[int]) -> None:
        if kind is Kind.NODE:
            _cut_out(db, set(rows))
        elif kind is Kind.NOTE:
            db.execute("CREATE TEMP TABLE IF NOT EXISTS gone_note(note INTEGER PRIMARY KEY)")
            db.execute("DELETE FROM gone_note")
            db.executemany("INSERT INTO gone_note VALUES (?)", [(row,) for row in rows])
            for table in ("note_run", "note_waiting"):
                db.execute(f"DELETE FROM {table} WHERE note IN (SELECT note FROM gone_note)")

    def link(self, db: sqlite3.Connection) -> None:
        if db.execute("SELECT 1 FROM note_waiting LIMIT 1").fetchone():
            found: dict[int, list[int]] = {}
            for node, note in db.execute("SELECT i.row, w.note FROM note_waiting w JOIN node_id i ON i.id = w.id"):
                found.setdefault(note, []).append(node)
            runs = [(first, note, last) for note, nodes in found.items() for first, last in _runs(nodes)]
            db.executemany(_ADD_RUN, runs)
            db.execute("DELETE FROM note_waiting WHERE id IN (SELECT id FROM node_id)")


_ADD_RUN: Final = "INSERT OR IGNORE INTO note_run VALUES (?, ?, ?)"
NOTES_OF: Final = f"SELECT note FROM note_run WHERE first BETWEEN ?1 - {MAX_RUN - 1} AND ?1 AND last >= ?1"
"""The rows of the notes that speak of the node in row ?1."""


def _runs(rows: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(first, last) of the runs that some rows make."""
    first = last = 0
    ordered = sorted(rows)
    if 0 < len(ordered) <= MAX_RUN and ordered[-1] - ordered[0] == len(ordered) - 1:  # as most are
        yield ordered[0], ordered[-1]
        return
    for row in ordered:
        if first and row == last + 1 and row < first + MAX_RUN:
            last = row
            continue
        if first:
            yield first, last
        first = last = row
    if first:
        yield first, last


def _cut_out(db: sqlite3.Connection, gone: set[int]) -> None:
    """No run holds nodes that are gone: another one may get such a row."""
    cut, kept = [], []
    for first, note, last in db.execute("SELECT first, note, last FROM note_run"):
        rows = range(first, last + 1)
        if not gone.isdisjoint(rows):
            cut.append((first, note))
            kept += [(start, note, end) for start, end in _runs(row for row in rows if row not in gone)]
    db.executemany("DELETE FROM note_run WHERE first=? AND note=?", cut)
    db.executemany(_ADD_RUN, kept)


class Payloads:
    """Which payloads a condensed message needs: what gc must keep with it."""

    name = "payloads"
    version = 1
    kinds = frozenset({Kind.MESSAGE})

    def create(self, db: sqlite3.Connection) -> None:
        db.execute(
            "CREATE TABLE message_payload(message INTEGER NOT NULL, payload BLOB NOT NULL,"
            " PRIMARY KEY(message, payload)) WITHOUT ROWID"
        )

    def add(self, db: sqlite3.Connection, index: Index, added: Added) -> None:
        named = [(row, bytes.fromhex(payload)) for row, payloads in added if payloads for payload in payloads]
        db.executemany("INSERT OR IGNORE INTO message_payload VALUES (?, ?)", named)

    def forget(self, db: sqlite3.Connection, kind: Kind, rows: Sequence[int]) -> None:
        if kind is Kind.MESSAGE:
            db.executemany("DELETE FROM message_payload WHERE message=?", [(row,) for row in rows])

    def link(self, db: sqlite3.Connection) -> None:
        """Nothing waits: payloads are named by their whole id."""


ALL_PARTS = (CalledBy(), Calls(), Notes(), Payloads())
