"""Tables read whole: what a plain SELECT gives, by row."""

from __future__ import annotations

import sqlite3
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

import objstore.wholetables
from objstore.wholetables import ROWS_AT_ONCE, read_whole
from refs.errors import CorruptFile

NUMBERS = st.integers(-(2**63), 2**63 - 1)
ROWS = st.integers(1, 40) | st.integers(ROWS_AT_ONCE - 3, ROWS_AT_ONCE + 3)


def made(rows) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE t(row INTEGER PRIMARY KEY, a INTEGER NOT NULL, b INTEGER NOT NULL)")
    db.executemany("INSERT INTO t VALUES (?, ?, ?)", [(row, a, b) for row, (a, b) in rows.items()])
    return db


@given(st.dictionaries(ROWS, st.tuples(NUMBERS, NUMBERS), max_size=60))
def test_each_column_is_an_array_by_row_with_nothing_in_the_gaps(rows):
    there, columns = read_whole(made(rows), "index", "t", ("a", "b"))
    size = max(rows, default=0) + 1
    assert there == bytearray(row in rows for row in range(size))
    for at, column in enumerate(columns):
        assert column == array("q", [rows[row][at] if row in rows else 0 for row in range(size)])


@pytest.mark.parametrize("at_once", [1, 2, 3, 7, 100])
def test_blocks_meet(monkeypatch, at_once):
    monkeypatch.setattr(objstore.wholetables, "ROWS_AT_ONCE", at_once)
    rows = {row: (row * 10, -row) for row in range(1, 30) if row not in (4, 5, 6, 13)}
    there, (a, b) = read_whole(made(rows), "index", "t", ("a", "b"))
    assert [row for row, mark in enumerate(there) if mark] == list(rows)
    assert [a[row] for row in rows] == [row * 10 for row in rows] and [b[row] for row in rows] == [
        -r for r in rows
    ]
    assert sum(map(abs, a)) == sum(row * 10 for row in rows)


@pytest.mark.parametrize("wrong", ["x", "1, 2", "", 1.5, b"1, 2", 10**15 + 0.5, '"1"', "[1]"])
def test_what_is_no_number_is_damage(wrong):
    rows = {row: (row, row) for row in range(1, 9)}
    db = made(rows)
    db.execute("UPDATE t SET b = ? WHERE row = 4", (wrong,))
    with pytest.raises(CorruptFile) as caught:
        read_whole(db, "index", "t", ("a", "b"))
    assert caught.value.path == "index"
