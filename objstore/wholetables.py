"""Whole tables of the index as arrays by row: for gc, which looks at every row there is.

A row that comes as a tuple costs several times what the numbers in it do. So SQLite writes each column as a
list, the numbers of the rows too, and these are read as JSON.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Sequence
from typing import Final

import orjson

from refs.errors import CorruptFile

_ANY: Final = 1 << 26
_ROOM: Final = 64
"""gc leaves rows empty: up to so many for one that there is, and any number below `_ANY`, are no damage."""
ROWS_AT_ONCE: Final = 1 << 16
"""Few enough for their lists to take little memory beside the arrays."""


def read_whole(
    db: sqlite3.Connection, path: str, table: str, names: Sequence[str]
) -> tuple[bytearray, list[array[int]]]:
    """(1 for each row that there is, each column with 0 in all others), by the table's `row`.

    Raises `CorruptFile` naming `path` where a column holds anything but integers.
    """
    size, rows_there = db.execute(f"SELECT coalesce(max(row), 0) + 1, count(*) FROM {table}").fetchone()
    if size > max(_ANY, _ROOM * rows_there):
        raise CorruptFile(path, f"the table {table} has a row of an impossible number; run 'dag reindex'")
    there = bytearray(size)
    columns: list[array[int]] = [array("q", [0]) * size for _ in names]
    lists = ", ".join(f"group_concat({name})" for name in ("row", *names))
    for start in range(0, size, ROWS_AT_ONCE):
        found = db.execute(
            f"SELECT {lists} FROM {table} WHERE row BETWEEN ? AND ?", (start, start + ROWS_AT_ONCE - 1)
        ).fetchone()
        try:
            rows, *values = ([] if each is None else orjson.loads(f"[{each}]") for each in found)
            _put(rows, values, there, columns)
        except (ValueError, TypeError, OverflowError) as error:
            raise CorruptFile(path, f"the table {table} of the index holds what is no number ({error})") from error
    return there, columns


def _put(rows: list[int], values: list[list[int]], there: bytearray, columns: list[array[int]]) -> None:
    first, end = (rows[0], rows[0] + len(rows)) if rows else (0, 0)
    side_by_side = rows == list(range(first, end))
    for column, numbers in zip(columns, values, strict=True):
        if len(numbers) != len(rows):
            raise ValueError("a row without a value")
        if side_by_side:
            column[first:end] = array("q", numbers)
        else:
            for row, number in zip(rows, numbers, strict=True):
                column[row] = number
    if side_by_side:
        there[first:end] = b"\x01" * len(rows)
    else:
        for row in rows:
            there[row] = 1
