"""The parts of the index beside the chains: who called whom, calls, notes, and payloads of messages.

A note or call may come before the nodes it names (two packs, read in either order): what isn't there yet is
put down in a table of its own, and `link` joins it when all has been read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING

from objstore.kinds import Kind
from objstore.node import Node
from objstore.records import Call, Note
from refs.ids import ROOT, Oid, PayloadId

if TYPE_CHECKING:
    from objstore.index import Index


class CalledBy:
    """Side chains: which node asked for which."""

    name = "called_by"
    version = 1
    kinds = frozenset({Kind.NODE})

    def create(self, db: sqlite3.Connection) -> None:
        db.execute("CREATE TABLE called(node INTEGER PRIMARY KEY, by INTEGER NOT NULL)")
        db.execute("CREATE INDEX called_by ON called(by)")

    def add(self, db: sqlite3.Connection, index: Index, row: int, oid: Oid, value: Node) -> None:
        if value.called_by is not None:
            db.execute("INSERT INTO called VALUES (?, ?)", (row, index.row(Kind.NODE, value.called_by)))

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

    def add(self, db: sqlite3.Connection, index: Index, row: int, oid: Oid, value: Call) -> None:
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


class Notes:
    """Which notes speak of which nodes."""

    name = "notes"
    version = 1
    kinds = frozenset({Kind.NOTE})

    def create(self, db: sqlite3.Connection) -> None:
        db.execute(
            "CREATE TABLE note_node(node INTEGER NOT NULL, note INTEGER NOT NULL, PRIMARY KEY(node, note))"
            " WITHOUT ROWID"
        )
        db.execute("CREATE TABLE note_waiting(id BLOB NOT NULL, note INTEGER NOT NULL)")

    def add(self, db: sqlite3.Connection, index: Index, row: int, oid: Oid, value: Note) -> None:
        there, waiting = [], []
        for node in value.nodes:
            found = index.row(Kind.NODE, node)
            if found is None:
                waiting.append((bytes.fromhex(node[:32]), row))
            else:
                there.append((found, row))
        db.executemany("INSERT OR IGNORE INTO note_node VALUES (?, ?)", there)
        if waiting:
            db.executemany("INSERT INTO note_waiting VALUES (?, ?)", waiting)

    def forget(self, db: sqlite3.Connection, kind: Kind, rows: Sequence[int]) -> None:
        if kind is Kind.NODE:
            db.executemany("DELETE FROM note_node WHERE node=?", [(row,) for row in rows])
        elif kind is Kind.NOTE:
            db.execute("CREATE TEMP TABLE IF NOT EXISTS gone_note(note INTEGER PRIMARY KEY)")
            db.execute("DELETE FROM gone_note")
            db.executemany("INSERT INTO gone_note VALUES (?)", [(row,) for row in rows])
            for table in ("note_node", "note_waiting"):
                db.execute(f"DELETE FROM {table} WHERE note IN (SELECT note FROM gone_note)")

    def link(self, db: sqlite3.Connection) -> None:
        if db.execute("SELECT 1 FROM note_waiting LIMIT 1").fetchone():
            db.execute(
                "INSERT OR IGNORE INTO note_node"
                " SELECT i.row, w.note FROM note_waiting w JOIN node_id i ON i.id = w.id"
            )
            db.execute("DELETE FROM note_waiting WHERE id IN (SELECT id FROM node_id)")


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

    def add(
        self, db: sqlite3.Connection, index: Index, row: int, oid: Oid, value: Sequence[PayloadId] | None
    ) -> None:
        for payload in value or ():
            db.execute("INSERT OR IGNORE INTO message_payload VALUES (?, ?)", (row, bytes.fromhex(payload)))

    def forget(self, db: sqlite3.Connection, kind: Kind, rows: Sequence[int]) -> None:
        if kind is Kind.MESSAGE:
            db.executemany("DELETE FROM message_payload WHERE message=?", [(row,) for row in rows])

    def link(self, db: sqlite3.Connection) -> None:
        """Nothing waits: payloads are named by their whole id."""


ALL_PARTS = (CalledBy(), Calls(), Notes(), Payloads())
