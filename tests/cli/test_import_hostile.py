"""Files that mean harm, through the program: clear warnings, nothing written outside, bounded time and memory."""

import json
import os
import resource
import sqlite3
import stat
import struct
import subprocess
import sys
import zipfile
import zlib

import pytest

from tests.cli.test_import import jsonl, line, names, row, said, write

MEMORY_MIB = 600
"""Address space beyond what the program needs at rest: what a bomb would need a hundred times."""


def bounded(dag, *arguments, seconds=120):
    """The program in a process of its own, with little memory and time: (exit code, output, errors)."""
    code = "from cli.main import main; main()"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MALLOC_ARENA_MAX": "1"}

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MIB << 20, MEMORY_MIB << 20))

    ran = subprocess.run(
        [sys.executable, "-c", code, "--store", str(dag.folder / ".dag"), "import", *map(str, arguments)],
        cwd=dag.folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=seconds,
        preexec_fn=limit,
        check=False,
    )
    assert "Traceback" not in ran.stderr, ran.stderr[-2000:]
    return ran.returncode, ran.stdout, ran.stderr


def archive(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("good.jsonl", jsonl(*line("why?")))
        for name, data in members.items():
            made.writestr(name, data)
    return path


# -- archives -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["../../../outside.jsonl", "/outside.jsonl", "C:\\outside.jsonl", "a/../../outside.jsonl", "..\\out.jsonl"],
)
def test_members_that_climb_out_are_left_out_and_the_rest_is_read(dag, tmp_path, name):
    archive(tmp_path / "a.zip", **{name: jsonl(*line("outside", session="s2"))})
    before = sorted(tmp_path.parent.rglob("*outside*"))
    ran = dag("import", "a.zip", code=5)
    assert "unsafe-name" in ran.err
    assert names(dag) == ["claude-code/s1"]
    assert sorted(tmp_path.parent.rglob("*outside*")) == before


def test_a_link_in_an_archive_is_not_followed(dag, tmp_path):
    secret = write(tmp_path / "secret.jsonl", *line("secret", session="s2"))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr("good.jsonl", jsonl(*line("why?")))
        info = zipfile.ZipInfo("link.jsonl")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        made.writestr(info, str(secret))
    assert "link.jsonl: skipped: link-not-followed" in dag("import", "a.zip", code=5).err
    assert names(dag) == ["claude-code/s1"]


def test_a_bomb_is_left_out(dag, tmp_path):
    record = jsonl(*line("why?", session="s2"))
    archive(tmp_path / "a.zip", **{"bomb.jsonl": record + " " * (256 << 20)})
    code, _, err = bounded(dag, "a.zip")
    assert code == 5 and "bomb.jsonl: skipped: archive-bomb" in err
    assert names(dag) == ["claude-code/s1"]


def test_members_that_share_their_bytes_are_left_out(dag, tmp_path):
    # One kernel that a thousand entries of the directory point at: a quine's little sister.
    data = jsonl(*line("why?")).encode()
    packed = zlib.compress(data)[2:-4]
    body, directory = bytearray(), bytearray()
    for i in range(1000):
        name = f"{i:04}.jsonl".encode()
        fields = (20, 0, 8, 0, 0, zlib.crc32(data), len(packed), len(data), len(name), 0)
        if i == 0:
            body += struct.pack("<4s5H3L2H", b"PK\3\4", *fields) + name + packed
        directory += struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, *fields, 0, 0, 0, 0, 0) + name
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1000, 1000, len(directory), len(body), 0)
    (tmp_path / "a.zip").write_bytes(bytes(body) + bytes(directory) + end)
    code, _, err = bounded(dag, "a.zip")
    assert code in (1, 5) and err.count("archive-bomb") >= 999


def test_an_archive_that_is_cut_is_told(dag, tmp_path):
    data = archive(tmp_path / "a.zip").read_bytes()
    (tmp_path / "a.zip").write_bytes(data[: len(data) // 2])
    assert "unreadable-archive" in dag("import", "a.zip", code=1).err


# -- folders --------------------------------------------------------------------------------------


def test_links_pipes_and_loops_in_a_folder_are_not_followed_or_waited_for(dag, tmp_path):
    secret = write(tmp_path / "secret.jsonl", *line("secret", session="s2"))
    folder = tmp_path / "folder"
    write(folder / "a.jsonl", *line("why?"))
    (folder / "link.jsonl").symlink_to(secret)
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe.jsonl")
    code, _, err = bounded(dag, "folder", seconds=60)
    assert code == 5
    assert err.count("link-not-followed") == 2 and "not-a-file" in err
    assert names(dag) == ["claude-code/s1"]


# -- JSON -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("opening", ['{"a":', "["])
def test_a_million_levels_are_told_and_the_rest_is_read(dag, tmp_path, opening):
    good = row(0, "why?")
    (tmp_path / "a.jsonl").write_text(
        jsonl(good) + opening * 1_000_000 + "\n" + jsonl(row(1, "so", 0, "assistant"))
    )
    code, _, err = bounded(dag, "a.jsonl")
    assert code == 0 and "record-too-deep" in err
    assert said(dag, "claude-code/s1") == ["why?", "so"]


@pytest.mark.parametrize("opening", ['{"a":', "["])
def test_a_document_of_a_million_levels_is_told(dag, tmp_path, opening):
    closing = "}" if opening.startswith("{") else "]"
    deep = opening * 1_000_000 + "1" + closing * 1_000_000
    (tmp_path / "conversations.json").write_text(f'[{{"title": "t", "mapping": {deep}}}]')
    code, _, err = bounded(dag, "conversations.json", "--format", "chatgpt")
    assert code == 1 and ("too-deep" in err or "torn" in err)


def test_parents_in_a_circle_are_cut_and_told(dag, tmp_path):
    records = [row(i, f"m{i}", (i + 1) % 500) for i in range(500)]
    write(tmp_path / "a.jsonl", *records)
    code, _, err = bounded(dag, "a.jsonl")
    assert code == 0 and "parent-cycle" in err
    assert len(said(dag, "claude-code/s1")) == 500


def test_one_id_for_thousands_of_records_is_told(dag, tmp_path):
    write(tmp_path / "a.jsonl", *({**row(0, f"m{i}"), "uuid": "same"} for i in range(5000)))
    code, _, err = bounded(dag, "a.jsonl")
    assert code == 0 and "duplicate-uuid-conflict" in err
    assert said(dag, "claude-code/s1") == ["m0"]
    assert len(err.splitlines()) < 2000


def test_thousands_of_branches_at_one_place_take_linear_time(dag, tmp_path):
    records = [row(0, "start"), *(row(i, f"m{i}", 0, minute=i // 60 % 60) for i in range(1, 2000))]
    write(tmp_path / "a.jsonl", *records)
    for _ in range(2):
        code, _, _ = bounded(dag, "a.jsonl", "--again")
        assert code == 0
    assert len(names(dag)) == 1999


def test_text_that_would_move_the_cursor_is_told_harmlessly(dag, tmp_path):
    write(tmp_path / "a\x1b[2J.jsonl", *line("why?"), row(9, "x", "\x1b]0;title\x07\u202e"))
    ran = dag("import", ".")
    assert "\x1b" not in ran.out + ran.err and "\u202e" not in ran.out + ran.err
    assert "\\x1b" in ran.err


@pytest.mark.parametrize(
    "id", ["../../../x", "refs/heads/main", "-rf", "HEAD", "a\0b", "\u202etxt", "x" * 100_000, "."]
)
def test_an_id_never_becomes_a_path_or_an_option(dag, tmp_path, id):
    write(tmp_path / "a.jsonl", *line("why?", session=id))
    dag("import", "a.jsonl")
    [name] = names(dag)
    assert name.startswith("claude-code/") and ".." not in name
    assert dag("fsck", "--level", "full").code == 0


# -- databases ------------------------------------------------------------------------------------


def hostile_database(path):
    """A log of llm whose tables have triggers, views in their place, generated columns and odd types."""
    with sqlite3.connect(path) as db:
        db.executescript(
            """
            CREATE TABLE conversations (id TEXT PRIMARY KEY, name TEXT, model TEXT);
            CREATE TABLE responses (id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, prompt_json TEXT,
                options_json TEXT, response TEXT, response_json TEXT, conversation_id TEXT, duration_ms INTEGER,
                datetime_utc TEXT);
            CREATE TABLE trap (x);
            CREATE TRIGGER spring AFTER INSERT ON responses BEGIN INSERT INTO trap VALUES (1); END;
            CREATE VIEW attachments AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT
                n AS id, 'x' AS type, NULL AS path, NULL AS url, randomblob(1000000) AS content FROM r;
            INSERT INTO conversations VALUES ('c1', 'fine', 'm'), (X'00FF', 5.5, NULL);
            """
        )
        rows = [
            ("r1", "m", "why?", None, None, None, "so", None, "c1", 5, "2026-01-02T03:04:05"),
            (X := b"\xff\xfe", 5, b"\xff", 1.5, "[" * 5000, "{", None, "nonsense", "c1", "long", 10**15),
            ("r3", None, None, None, None, None, b"\x00" * 10, None, X, -1, "yesterday"),
        ]
        db.executemany(f"INSERT INTO responses VALUES ({','.join('?' * 11)})", rows)
    return path


def test_a_database_with_triggers_views_and_odd_types_is_read_as_far_as_it_goes(dag, tmp_path):
    before = hostile_database(tmp_path / "logs.db").read_bytes()
    code, _, _ = bounded(dag, "logs.db")
    assert code in (0, 5)
    printed = dag("cat", "llm-logs/c1").out
    assert "why?" in printed and "so" in printed
    assert (tmp_path / "logs.db").read_bytes() == before
    assert not list(tmp_path.glob("logs.db-*"))


def test_a_database_that_is_cut_is_told(dag, tmp_path):
    data = hostile_database(tmp_path / "logs.db").read_bytes()
    (tmp_path / "logs.db").write_bytes(data[:9000])
    code, _, err = bounded(dag, "logs.db", "--format", "llm-logs")
    assert code in (1, 5) and "damaged-database" in err


def test_the_report_of_a_hostile_file_is_json_all_the_same(dag, tmp_path):
    write(tmp_path / "a.jsonl", *line("\x1b[31m\ud83d"), row(9, "x", "\x1b\u2028"))
    for each in dag("import", "a.jsonl", "--json").out.splitlines():
        json.loads(each)
