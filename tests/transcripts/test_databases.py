"""Foreign SQLite files: only plain tables, nothing run, nothing changed, bounded work."""

import sqlite3

import pytest

from objstore.transcripts.databases import open_database, schema_of
from objstore.transcripts.files import BytesSource, FileSource
from refs.errors import CorruptFile


def make(path, *statements, wal=False):
    connection = sqlite3.connect(path, isolation_level=None)
    if wal:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA wal_autocheckpoint=0")
    for statement in statements:
        connection.execute(statement)
    return connection


def opened(path):
    source = FileSource(path)
    return open_database(source, source.files()[0])


def rows(path, table, columns, **how):
    with opened(path) as database:
        return list(database.rows(table, columns, **how))


def test_rows_come_in_order_and_missing_columns_are_none(tmp_path):
    path = tmp_path / "a.db"
    make(path, "CREATE TABLE t(id INTEGER PRIMARY KEY, x)", "INSERT INTO t VALUES (2, 'b'), (1, NULL)").close()
    assert rows(path, "t", ("id", "x", "new"), order=("id", "nowhere")) == [
        {"id": 1, "x": None, "new": None},
        {"id": 2, "x": "b", "new": None},
    ]
    assert rows(path, "t", ("id",), where={"x": "b"}) == [{"id": 2}]
    assert rows(path, "t", ("id",), where={"x": None}) == [{"id": 1}]
    assert rows(path, "gone", ("id",)) == []


def test_columns_of_any_type_are_taken_as_they_are(tmp_path):
    path = tmp_path / "a.db"
    make(
        path, "CREATE TABLE t(id, x TEXT)", "INSERT INTO t VALUES (1.5, x'ff41'), (1, CAST(x'ff42' AS TEXT))"
    ).close()
    assert rows(path, "t", ("id", "x")) == [{"id": 1.5, "x": b"\xffA"}, {"id": 1, "x": "�B"}]


def test_views_virtual_tables_and_generated_columns_are_not_read(tmp_path):
    path = tmp_path / "a.db"
    make(
        path,
        "CREATE TABLE t(id, made AS (id + 1), kept AS (id + 1) STORED)",
        "CREATE VIEW v AS SELECT * FROM t",
        "CREATE VIRTUAL TABLE f USING fts5(x)",
        "INSERT INTO t VALUES (1)",
    ).close()
    with opened(path) as database:
        assert database.has("t", "id")
        assert not database.has("t", "made")
        assert not database.has("v")
        assert not database.has("f")
        assert list(database.rows("v", ("id",))) == []


def test_a_view_that_calls_itself_a_table_is_not_read(tmp_path):
    path = tmp_path / "a.db"
    connection = make(path, "CREATE TABLE t(id)", "CREATE VIEW v AS SELECT 1 AS id")
    connection.execute("PRAGMA writable_schema=ON")
    connection.execute(
        "UPDATE sqlite_master SET type = 'table', sql = 'CREATE TABLE ' || 'v(id)' WHERE name = 'v'"
    )
    connection.close()
    with pytest.raises(CorruptFile), opened(path) as database:
        list(database.rows("v", ("id",)))


def test_a_trigger_is_never_run_and_the_file_stays_as_it_is(tmp_path):
    path = tmp_path / "a.db"
    make(
        path,
        "CREATE TABLE t(id)",
        "INSERT INTO t VALUES (1)",
        "CREATE TRIGGER x AFTER INSERT ON t BEGIN DELETE FROM t; END",
    ).close()
    before = path.read_bytes()
    assert rows(path, "t", ("id",)) == [{"id": 1}]
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["a.db"]


def test_what_lies_in_the_write_ahead_log_is_read_and_the_log_stays(tmp_path):
    path = tmp_path / "a.db"
    connection = make(path, "CREATE TABLE t(id)", "INSERT INTO t VALUES (1)", wal=True)
    log = tmp_path / "a.db-wal"
    before = (path.read_bytes(), log.read_bytes())
    assert rows(path, "t", ("id",)) == [{"id": 1}]
    assert b"CREATE TABLE t" in schema_of(FileSource(path).files()[0])
    assert (path.read_bytes(), log.read_bytes()) == before
    connection.close()


def test_a_database_in_an_archive_is_read_from_a_copy(tmp_path):
    path = tmp_path / "a.db"
    make(path, "CREATE TABLE t(id)", "INSERT INTO t VALUES (7)").close()
    source = BytesSource({"x/a.db": path.read_bytes()})
    with open_database(source, source.files()[0]) as database:
        assert list(database.rows("t", ("id",))) == [{"id": 7}]


def test_a_file_that_is_no_database_is_corrupt(tmp_path):
    path = tmp_path / "a.db"
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
    with pytest.raises(CorruptFile), opened(path):
        pass
    assert schema_of(FileSource(path).files()[0]) == b"SQLite format 3\0"


def test_pages_that_lead_round_in_circles_end_in_an_error(tmp_path):
    path = tmp_path / "a.db"
    connection = make(path, "PRAGMA page_size=512", "CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO t(x) VALUES (?)", [("y" * 50,) for _ in range(3000)])
    connection.execute("COMMIT")
    connection.close()
    data = bytearray(path.read_bytes())
    root = 512  # the table's root is the second page: an interior page, whose children are all made the same
    assert data[root] == 5
    cells = int.from_bytes(data[root + 3 : root + 5], "big")
    for i in range(cells):
        at = root + int.from_bytes(data[root + 12 + 2 * i : root + 14 + 2 * i], "big")
        data[at : at + 4] = (2).to_bytes(4, "big")  # each child is the root itself
    path.write_bytes(bytes(data))
    with pytest.raises(CorruptFile):
        rows(path, "t", ("id", "x"))


def test_rows_that_share_their_bytes_give_no_more_than_the_file_has(tmp_path):
    path = tmp_path / "a.db"
    connection = make(path, "PRAGMA page_size=512", "CREATE TABLE t(x)")
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO t VALUES (?)", [("y" * 2_000_000,), ("z" * 10,)])
    connection.execute("COMMIT")
    connection.close()
    with opened(path) as database:
        assert len(list(database.rows("t", ("x",)))) == 2
        database._bytes = 1000
        with pytest.raises(CorruptFile, match="more bytes than the file has"):
            list(database.rows("t", ("x",)))


def test_a_statement_that_takes_too_long_is_ended(tmp_path):
    path = tmp_path / "a.db"
    connection = make(path, "CREATE TABLE t(x)")
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO t VALUES (?)", [(str(i),) for i in range(50_000)])
    connection.execute("COMMIT")
    connection.close()
    with opened(path) as database:
        database._steps = 20_000
        with pytest.raises(CorruptFile, match="too long"):
            list(database.rows("t", ("x",), order=("x",)))
