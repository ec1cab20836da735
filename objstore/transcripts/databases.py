"""Foreign SQLite files, read as plain tables.

A database from elsewhere is a program: views, triggers, generated columns and virtual tables run when they
are read. So only ordinary tables are read, only with `SELECT column, … FROM table`, and what else the file
asks for is denied (`set_authorizer`). What a statement may cost is bounded by the size of the file: a
damaged or hostile B-tree can lead round in circles.

The file itself is never touched. A database with a write-ahead log or a rollback journal beside it needs
them to be read right, and reading it so would write beside it: then a copy is read.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from objstore.limits import MAX_DATABASE_COPY_BYTES, MAX_RECORD_BYTES
from objstore.transcripts.files import LocalFile, local_path
from objstore.transcripts.magic import SQLITE_MAGIC
from objstore.transcripts.source import Source, SourceFile
from refs.errors import CorruptFile, DagError, LimitExceeded, StorageFailure

_STEPS_AT_ONCE: Final = 10_000  # virtual machine steps between two looks at the budget
_BASE_STEPS: Final = 20_000_000  # about half a second
_STEPS_A_BYTE: Final = 64  # a row of ten bytes that is sorted takes some hundred steps
_BASE_BYTES: Final = 1 << 20
_COMPANIONS: Final = ("-wal", "-journal")
# A write-ahead log in either byte order, its index, a rollback journal.
_COMPANION_MAGIC: Final = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83", b"\x18\xe2\x2d\x00", b"\xd9\xd5\x05\xf9")
_ALLOWED: Final = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ})
_SQLITE_ERRORS: Final = (sqlite3.Error, sqlite3.Warning, OverflowError, MemoryError, UnicodeError)

Value = str | bytes | int | float | None
Row = Mapping[str, Value]


class Database:
    """The ordinary tables of a SQLite file. Reading raises `CorruptFile` for all that SQLite refuses."""

    def __init__(self, connection: sqlite3.Connection, name: str, size: int) -> None:
        self._connection, self._name = connection, name
        self._steps = _BASE_STEPS + _STEPS_A_BYTE * size
        # No table gives more bytes than the file has (twice, where its text is UTF-16).
        self._bytes = _BASE_BYTES + 2 * size
        self._prepare()
        connection.set_progress_handler(self._spend, _STEPS_AT_ONCE)
        self.schema: list[str] = []
        self.tables: Mapping[str, frozenset[str]] = self._list_tables()
        connection.set_authorizer(_authorize)

    def _prepare(self) -> None:
        connection = self._connection
        connection.text_factory = _decode
        for limit, bound in (
            (sqlite3.SQLITE_LIMIT_LENGTH, MAX_RECORD_BYTES),
            (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
            (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1),
            (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
        ):
            connection.setlimit(limit, bound)
        for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0"):
            connection.execute(f"PRAGMA {pragma}")

    def _spend(self) -> int:
        self._steps -= _STEPS_AT_ONCE
        return int(self._steps < 0)

    def _list_tables(self) -> Mapping[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        try:
            schema = self._connection.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
            ).fetchall()
            for name, sql in schema:
                # A virtual table is made by a module, a view may call itself a table: neither is one.
                ordinary = isinstance(sql, str) and sql[:13].upper().startswith("CREATE TABLE ")
                if isinstance(name, str) and ordinary:
                    columns = self._connection.execute(f"PRAGMA table_xinfo({_quoted(name)})").fetchall()
                    # The seventh column is not 0 for columns that are worked out while reading.
                    self.schema.append(sql)
                    found[name] = frozenset(str(row[1]) for row in columns if row[6] == 0)
        except _SQLITE_ERRORS as error:
            raise CorruptFile(self._name, str(error) or type(error).__name__) from error
        return found

    def has(self, table: str, *columns: str) -> bool:
        """Whether there is a table with at least these columns."""
        return table in self.tables and self.tables[table].issuperset(columns)

    def rows(
        self,
        table: str,
        columns: Sequence[str],
        where: Mapping[str, Value] | None = None,
        order: Sequence[str] = (),
    ) -> Iterator[Row]:
        """Rows of a table as dicts; a column that the table doesn't have is None in each.

        `where` compares columns for equality (None: is null), `order` sorts; names that the table doesn't
        have are left out of the order. Without such a table there are no rows.
        """
        if table not in self.tables:
            return
        there = self.tables[table]
        wanted = [column for column in columns if column in there]
        asked = {column: value for column, value in (where or {}).items() if column in there}
        query = f"SELECT {', '.join(map(_quoted, wanted)) or 'NULL'} FROM {_quoted(table)}"
        if asked:
            query += " WHERE " + " AND ".join(
                f"{_quoted(column)} {'IS' if value is None else '='} ?" for column, value in asked.items()
            )
        by = [_quoted(column) for column in order if column in there]
        if by:
            query += " ORDER BY " + ", ".join(by)
        nothing: dict[str, Value] = dict.fromkeys(columns)
        left = self._bytes
        try:
            for found in self._connection.execute(query, tuple(asked.values())):
                left -= 1 + sum(len(value) for value in found if isinstance(value, str | bytes))
                if left < 0:
                    raise CorruptFile(self._name, f"table {table!r} gives more bytes than the file has")
                yield nothing | dict(zip(wanted, found, strict=False))
        except _SQLITE_ERRORS as error:
            reason = "this takes too long" if self._steps < 0 else str(error) or type(error).__name__
            raise CorruptFile(self._name, f"table {table!r}: {reason}") from error


def open_database(source: Source, file: SourceFile) -> contextlib.AbstractContextManager[Database]:
    """The database in `file`. Raises `CorruptFile`, `LimitExceeded`, `StorageFailure`."""
    return _opened(file, _companions(source, file))


def schema_of(file: SourceFile) -> bytes:
    """The start of a database as formats are told by: its magic, then the SQL of its ordinary tables.

    Only what can't be read gives less. The schema's own pages may lie anywhere in the file.
    """
    try:
        with _opened(file, []) as database:
            schema = database.schema
        if not schema and (beside := _companions(None, file)):  # all that there is may lie in the log still
            with _opened(file, beside) as database:
                schema = database.schema
    except DagError:
        return SQLITE_MAGIC
    return SQLITE_MAGIC + "\n".join(schema).encode("utf-8", "surrogatepass")


def split_databases(source: Source) -> tuple[list[list[SourceFile]], list[SourceFile]]:
    """Each database of a source with the log that lies beside it, and the files that are neither.

    What is written to a database may lie in its log alone for a long time: it has changed when either has.
    """
    units, others = [], []
    for file in source.files():
        start = _start_of(file)
        if start.startswith(SQLITE_MAGIC):
            units.append([file, *(beside for _, beside in _companions(source, file))])
        elif not start.startswith(_COMPANION_MAGIC):
            others.append(file)
    return units, others


def _start_of(file: SourceFile) -> bytes:
    try:
        with file.open() as stream:
            return stream.read(len(SQLITE_MAGIC))
    except DagError:
        return b""


@contextlib.contextmanager
def _opened(file: SourceFile, companions: list[tuple[str, SourceFile]]) -> Iterator[Database]:
    with contextlib.ExitStack() as stack:
        path = local_path(file)
        if path is not None and not companions:
            file.open().close()  # checks that it is a regular file still
            uri = f"file:{quote(path)}?mode=ro&immutable=1"
        else:
            uri = f"file:{quote(_copy(stack, file, companions))}?mode=rw"
        try:
            connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise CorruptFile(file.name, str(error)) from error
        stack.callback(connection.close)
        try:
            database = Database(connection, file.name, file.size)
        except _SQLITE_ERRORS as error:
            raise CorruptFile(file.name, str(error) or type(error).__name__) from error
        yield database


def _companions(source: Source | None, file: SourceFile) -> list[tuple[str, SourceFile]]:
    """(suffix, file) of what lies beside the database and isn't empty."""
    found: list[tuple[str, SourceFile]] = []
    path = local_path(file)
    for suffix in _COMPANIONS:
        if path is not None:
            with contextlib.suppress(OSError):
                about = os.lstat(path + suffix)
                if stat.S_ISREG(about.st_mode) and about.st_size:
                    found.append((suffix, LocalFile(file.name + suffix, about.st_size, path + suffix)))
        elif source is not None and (beside := source.find(file.name + suffix)) is not None and beside.size:
            found.append((suffix, beside))
    return found


def _copy(stack: contextlib.ExitStack, file: SourceFile, companions: list[tuple[str, SourceFile]]) -> str:
    """Copy the database and what belongs to it into a folder that lasts as long as `stack`."""
    whole = file.size + sum(each.size for _, each in companions)
    if whole > MAX_DATABASE_COPY_BYTES:
        raise LimitExceeded(file.name, whole, MAX_DATABASE_COPY_BYTES)
    try:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="msgdag-"))
        target = os.path.join(folder, "copy.db")
        for suffix, each in (("", file), *companions):
            with each.open() as reading, open(target + suffix, "wb") as writing:
                shutil.copyfileobj(reading, writing)
    except OSError as error:
        raise StorageFailure(file.name, error) from error
    return target


def _authorize(action: int, first: str | None, second: str | None, schema: str | None, through: str | None) -> int:
    # `through` names the view or trigger that asks; we ask for ourselves only.
    if action in _ALLOWED and through is None:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def text_of(value: Any) -> str | None:
    """A column as text, whatever type the row has put there; None for NULL."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return _decode(value)
    return str(value)


def int_of(value: Any) -> int | None:
    """A column as a count from 0 to 2^63 - 1, or None where it isn't one."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63:
        return value
    return None
