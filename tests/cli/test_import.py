"""dag import: files, folders, archives and streams in; again and again; and what it tells."""

import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile

import pytest

from objstore.transcripts import streams
from tests.cli.conftest import DATA, needs_data

SKIPPED_ONLY = {"type": "summary", "summary": "only that", "leafUuid": "x"}


def row(number, text, parent=None, role="user", session="s1", minute=0):
    """One record of Claude Code."""
    message = {"role": role, "content": text}
    if role == "assistant":
        message = {
            **message,
            "id": f"msg_{number}",
            "model": "m-1",
            "usage": {"input_tokens": 1, "output_tokens": 2},
        }
    return {
        "type": role,
        "uuid": f"{session}-{number}",
        "parentUuid": None if parent is None else f"{session}-{parent}",
        "sessionId": session,
        "timestamp": f"2026-03-04T05:{minute:02}:{number:02}.000Z",
        "message": message,
    }


def line(*words, session="s1", minute=0):
    """A session in turns."""
    return [
        row(i, text, i - 1 if i else None, ("user", "assistant")[i % 2], session, minute)
        for i, text in enumerate(words)
    ]


def jsonl(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def write(path, *records):
    """A file that was written a while ago: one that has just been written may change unnoticed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(jsonl(*records), "utf-8")
    os.utime(path, (path.stat().st_mtime - 60,) * 2)
    return path


def settle():
    """Wait until a file counts as written a while ago: its change time can't be set."""
    time.sleep(0.03)


def said(dag, name):
    return [
        json.loads(each)["parts"][0]["text"] for each in dag("cat", name, "--format", "jsonl").out.splitlines()
    ]


def names(dag):
    return [json.loads(each)["conversation"] for each in dag("list", "--json").out.splitlines()]


def objects(dag):
    """All files of the store, byte for byte, but for its caches."""
    return {name: data for name, data in dag.snapshot().items() if "imports.sqlite" not in name}


# -- what comes in --------------------------------------------------------------------------------


def test_a_file_becomes_conversations_and_a_report(dag, tmp_path):
    ran = dag("import", write(tmp_path / "a.jsonl", *line("why?", "so")))
    assert "claude-code/s1: new, 2 messages (2 new, 0 already here)" in ran.out
    assert ran.out.splitlines()[-1] == f"{tmp_path}/a.jsonl: 1 conversation, 2 messages (2 new, 0 already here)"
    assert said(dag, "claude-code/s1") == ["why?", "so"]
    assert "m-1" in dag("calls").out


def test_a_folder_an_archive_and_a_stream_give_the_same(dag, tmp_path):
    data = jsonl(*line("why?", "so"))
    write(tmp_path / "folder" / "deep" / "a.jsonl", *line("why?", "so"))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("deep/a.jsonl", data)
    heads = set()
    for number, (source, given) in enumerate([("folder", None), ("a.zip", None), ("-", data)]):
        dag("import", source, "--name", f"n{number}", input=given)
        heads.add(dag("rev-parse", f"n{number}").out)
    assert len(heads) == 1


def test_an_archive_in_a_folder_is_looked_into(dag, tmp_path):
    (tmp_path / "folder").mkdir()
    with zipfile.ZipFile(tmp_path / "folder" / "a.zip", "w") as archive:
        archive.writestr("a.jsonl", jsonl(*line("why?")))
    dag("import", "folder")
    assert names(dag) == ["claude-code/s1"]
    settle()
    dag("import", "folder", "--again")
    assert "1 unchanged file" in dag("import", "folder").out


def test_several_sources_get_a_sum(dag, tmp_path):
    write(tmp_path / "a.jsonl", *line("why?", "so"))
    write(tmp_path / "b.jsonl", *line("what?", session="s2"))
    ran = dag("import", "a.jsonl", "b.jsonl")
    assert ran.out.splitlines()[-1] == "in all: 2 conversations, 3 messages (3 new, 0 already here)"


def test_json_tells_everything_a_line_each(dag, tmp_path):
    write(tmp_path / "a.jsonl", *line("why?", "so"), row(9, "lost", "gone"))
    write(tmp_path / "b.jsonl", SKIPPED_ONLY)
    ran = dag("import", "a.jsonl", "b.jsonl", "--json", code=None)
    values = [json.loads(each) for each in ran.out.splitlines()]
    assert [value["type"] for value in values] == ["conversation", "source", "skipped", "source", "total"]
    assert values[0]["created"] == ["claude-code/s1"]
    assert [warn["kind"] for warn in values[0]["warnings"]] == ["dangling-parent"]
    assert values[0]["warnings"][0]["place"] == "line 3"
    assert (values[-1]["messages"], values[-1]["new"], values[-1]["repaired"], values[-1]["skipped"]) == (
        3,
        3,
        1,
        1,
    )
    assert "dag: a.jsonl, line 3: dangling-parent" in ran.err


def test_a_dry_run_writes_nothing(dag, tmp_path):
    write(tmp_path / "a.jsonl", *line("why?", "so"))
    before = dag.snapshot()
    ran = dag("import", "a.jsonl", "--dry-run")
    assert "would import 1 conversation, 2 messages (2 new, 0 already here)" in ran.out
    assert dag.snapshot() == before
    assert "2 new" in dag("import", "a.jsonl").out


def test_names_are_made_by_a_pattern(dag, tmp_path):
    records = [*line("why?"), {"type": "custom-title", "customTitle": "A question?", "sessionId": "s1"}]
    write(tmp_path / "a.jsonl", *records)
    dag("import", "a.jsonl", "--name", "mine/{title}")
    assert names(dag) == ["mine/A-question-1f0ab7"] or names(dag)[0].startswith("mine/A-question-")
    for pattern in ("a b", "{nothing}", "../x", ""):
        assert "bad name" in dag("import", "a.jsonl", "--name", pattern, code=2).err


def test_only_conversations_that_went_on_since_then(dag, tmp_path):
    write(tmp_path / "a.jsonl", *line("old"))
    write(tmp_path / "b.jsonl", *line("new", session="s2", minute=30))
    assert "1 older" in dag("import", ".", "--since", "2026-03-04T05:20:00Z").out
    assert names(dag) == ["claude-code/s2"]
    settle()
    dag("import", ".")
    assert names(dag) == ["claude-code/s1", "claude-code/s2"]


def test_a_format_can_be_told(dag, tmp_path):
    (tmp_path / "a.txt").write_text(jsonl({"role": "user", "content": "a"}, {"role": "user", "content": "b"}))
    dag("import", "a.txt", "--format", "openai-chat")
    assert names(dag)[0].startswith("openai-chat/")
    assert "'word' is not one of" in dag("import", "a.txt", "--format", "word", code=2).err


# -- what is told ---------------------------------------------------------------------------------


def chatgpt(*mappings):
    return [{"id": f"c{i}", "title": "t", "mapping": mapping} for i, mapping in enumerate(mappings)]


def turn(text):
    message = {"id": "m", "author": {"role": "user"}, "content": {"content_type": "text", "parts": [text]}}
    return {"m": {"id": "m", "message": message, "parent": None, "children": []}}


def test_a_bad_conversation_does_not_stop_the_rest_and_the_code_says_partly(dag):
    dag.write("conversations.json", chatgpt(turn("one"), None, turn("two"), {}))
    ran = dag("import", "conversations.json", code=5)
    assert "2 conversations, 2 messages (2 new, 0 already here), 2 skipped" in ran.out
    assert "conversations.json#1: skipped: missing-mapping" in ran.err
    assert "conversations.json#3: skipped: empty-mapping" in ran.err


@pytest.mark.parametrize("content", ["", "hello", '{"a": 1}', "\0\1\2"])
def test_what_cannot_be_imported_is_a_failure(dag, tmp_path, content):
    (tmp_path / "a").write_text(content)
    for _ in range(2):
        assert "nothing that can be imported" in dag("import", "a", code=1).err


def test_a_file_that_is_not_there_does_not_stop_the_rest(dag, tmp_path):
    write(tmp_path / "a.jsonl", *line("why?"))
    assert "nothing.jsonl: no such file" in dag("import", "nothing.jsonl", "a.jsonl", code=5).err
    dag("import", "nothing.jsonl", code=1)


def test_a_session_without_messages_is_told_and_is_no_failure(dag, tmp_path):
    write(tmp_path / "a.jsonl", *line("why?"))
    write(tmp_path / "b.jsonl", SKIPPED_ONLY)
    assert "empty-conversation" in dag("import", ".").err


def test_usage_is_checked(dag, tmp_path):
    write(tmp_path / "a.jsonl", *line("why?"))
    assert "--watch goes with" in dag("import", "a.jsonl", "--watch", "--dry-run", code=2).err
    assert "Missing argument" in dag("import", code=2).err


def test_a_store_that_cannot_be_written_is_told_before_anything_is_read(dag, tmp_path, monkeypatch):
    write(tmp_path / "a.jsonl", *line("why?"))
    monkeypatch.setattr("objstore.engine.os.access", lambda path, mode: False)
    assert "read-only" in dag("import", "a.jsonl", code=1).err


def test_many_small_files_in_the_store_are_packed_afterwards(dag, tmp_path, monkeypatch):
    monkeypatch.setattr("cli.maintenance.LOOSE_OBJECTS", 2)
    write(tmp_path / "a.jsonl", *line("why?", "so"))
    assert "packing them" in dag("import", "a.jsonl").err


# -- again ----------------------------------------------------------------------------------------


def test_an_unchanged_source_writes_nothing_and_is_not_opened(dag, tmp_path, monkeypatch):
    for i in range(1000):
        write(tmp_path / "folder" / f"{i}.jsonl", *line("why?", session=f"s{i}"))
    (tmp_path / "folder" / "picture.png").write_bytes(b"\x89PNG")
    settle()
    assert "1,000 conversations" in dag("import", "folder").out
    before = objects(dag)

    def no(self):
        raise AssertionError(f"{self.name} was opened")

    monkeypatch.setattr(streams.LocalFile, "open", no)
    assert dag("import", "folder").out == "folder: nothing new, 1,000 unchanged files\n"
    assert objects(dag) == before


def test_reading_again_writes_nothing_either(dag, tmp_path):
    write(tmp_path / "a.jsonl", *line("why?", "so"))
    dag("import", "a.jsonl")
    before = objects(dag)
    assert "2 messages (0 new, 2 already here)" in dag("import", "a.jsonl", "--again").out
    assert objects(dag) == before


@pytest.mark.parametrize("damage", ["missing", "garbage", "another version"])
def test_the_cache_may_go_at_any_time(dag, tmp_path, damage):
    write(tmp_path / "a.jsonl", *line("why?", "so"))
    settle()
    dag("import", "a.jsonl")
    before = objects(dag)
    cache = tmp_path / ".dag" / "imports.sqlite"
    if damage == "missing":
        cache.unlink()
    elif damage == "garbage":
        cache.write_bytes(b"garbage" * 1000)
    else:
        import sqlite3  # noqa: PLC0415

        with sqlite3.connect(cache) as db:
            db.execute("PRAGMA user_version=99")
    assert "0 new, 2 already here" in dag("import", "a.jsonl").out
    assert objects(dag) == before
    assert "1 unchanged file" in dag("import", "a.jsonl").out
    assert "clean" in dag("fsck").out


def test_another_pattern_or_format_is_another_import(dag, tmp_path):
    write(tmp_path / "a.jsonl", *line("why?"))
    settle()
    dag("import", "a.jsonl")
    dag("import", "a.jsonl", "--name", "mine/{id}")
    assert names(dag) == ["claude-code/s1", "mine/s1"]


def test_a_session_that_grew_moves_on_and_one_that_was_rewound_becomes_a_fork(dag, tmp_path):
    path = write(tmp_path / "a.jsonl", *line("why?", "so", "and?"))
    dag("import", "a.jsonl")
    write(path, *line("why?", "so", "and?", "well", "ah"))
    assert "claude-code/s1: moved on, 5 messages (2 new, 3 already here)" in dag("import", "a.jsonl").out
    write(path, *line("why?", "no"))
    dag("import", "a.jsonl")
    [fork] = [name for name in names(dag) if name != "claude-code/s1"]
    assert said(dag, "claude-code/s1") == ["why?", "so", "and?", "well", "ah"]
    assert said(dag, fork) == ["why?", "no"]
    write(path, *line("why?", "no", "yes"))
    dag("import", "a.jsonl")
    assert said(dag, fork) == ["why?", "no", "yes"]
    assert len(names(dag)) == 2


def test_a_new_file_of_a_session_brings_the_rest_of_it(dag, tmp_path):
    folder = tmp_path / "projects"
    call = {"type": "tool_use", "id": "toolu_1", "name": "Task", "input": {"prompt": "look"}}
    main = [row(0, "go"), row(1, [call], 0, "assistant")]
    write(folder / "s1.jsonl", *main)
    settle()
    dag("import", "projects")
    agent = {**row(7, "look"), "isSidechain": True, "agentId": "a1"}
    write(folder / "agent-a1.jsonl", agent)
    dag("import", "projects")
    [spawn] = [json.loads(each) for each in dag("tree", "claude-code/s1", "--json").out.splitlines()]
    assert spawn["tool_call_id"] == "toolu_1"


def test_one_changed_file_among_many_is_all_that_is_read(dag, tmp_path):
    for i in range(5):
        write(tmp_path / "folder" / f"{i}.jsonl", *line("why?", session=f"s{i}"))
    settle()
    dag("import", "folder")
    write(tmp_path / "folder" / "3.jsonl", *line("why?", "so", session="s3"))
    ran = dag("import", "folder")
    assert (
        ran.out.splitlines()[-1] == "folder: 1 conversation, 2 messages (1 new, 1 already here), 4 unchanged files"
    )


def test_what_could_not_be_read_is_tried_again(dag, tmp_path, monkeypatch):
    write(tmp_path / "a.jsonl", *line("why?"))
    settle()
    opened = streams.LocalFile.open

    def failing(self):
        from refs.errors import StorageFailure  # noqa: PLC0415

        raise StorageFailure(self.path, OSError(5, "Input/output error"))

    monkeypatch.setattr(streams.LocalFile, "open", failing)
    dag("import", "a.jsonl", "--format", "claude-code", code=1)
    monkeypatch.setattr(streams.LocalFile, "open", opened)
    assert "1 new" in dag("import", "a.jsonl", "--format", "claude-code").out


def test_nothing_at_the_source_is_changed(dag, tmp_path):
    path = write(tmp_path / "folder" / "a.jsonl", *line("why?", "so"))
    with zipfile.ZipFile(tmp_path / "folder" / "b.zip", "w") as archive:
        archive.writestr("b.jsonl", jsonl(*line("x", session="s2")))
    before = {each: (each.stat().st_mtime_ns, each.read_bytes()) for each in (path, tmp_path / "folder" / "b.zip")}
    dag("import", "folder")
    assert {each: (each.stat().st_mtime_ns, each.read_bytes()) for each in before} == before
    assert sorted(each.name for each in (tmp_path / "folder").iterdir()) == ["a.jsonl", "b.zip"]


# -- the usual places -----------------------------------------------------------------------------


def test_programs_are_found_where_they_keep_their_sessions(dag, tmp_path):
    home = tmp_path / "home"
    write(home / ".claude/projects/-w/s1.jsonl", *line("claude"))
    meta = {"timestamp": "2026-01-02T03:04:05.678Z", "type": "session_meta", "payload": {"id": "c1"}}
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "codex"}]}
    records = [meta, {"timestamp": "2026-01-02T03:04:06.678Z", "type": "response_item", "payload": said}]
    write(home / ".codex/sessions/2026/01/02/rollout-1.jsonl", *records)
    write(home / ".codex/archived_sessions/rollout-2.jsonl", {**meta, "payload": {"id": "c2"}}, records[1])
    messages = [{"id": "1", "timestamp": "2026-01-02T03:04:05.678Z", "type": "user", "content": "gemini"}]
    gemini = {"sessionId": "g1", "projectHash": "h", "startTime": "2026-01-02T03:04:05.678Z", "messages": messages}
    write(home / ".gemini/tmp/h/chats/session-1.json", gemini)
    dag("import", "claude-code", "codex", "gemini", HOME=str(home))
    assert names(dag) == ["claude-code/s1", "codex/c1", "codex/c2", "gemini-cli/g1"]


def test_the_programs_own_settings_say_where_that_is(dag, tmp_path):
    write(tmp_path / "elsewhere/projects/-w/s1.jsonl", *line("claude"))
    dag("import", "claude-code", CLAUDE_CONFIG_DIR=str(tmp_path / "elsewhere"))
    assert names(dag) == ["claude-code/s1"]


@needs_data
def test_the_log_of_llm_is_found(dag, tmp_path):
    (tmp_path / "llm").mkdir()
    data = (DATA / "llm-logs-db" / "llm026-legacy.db").read_bytes()
    (tmp_path / "llm" / "logs.db").write_bytes(data)
    dag("import", "llm", LLM_USER_PATH=str(tmp_path / "llm"))
    assert len(names(dag)) == 4
    assert [each.name for each in (tmp_path / "llm").iterdir()] == ["logs.db"]


def test_a_program_without_sessions_is_told(dag, tmp_path):
    ran = dag("import", "codex", HOME=str(tmp_path / "home"), code=1)
    assert f"{tmp_path}/home/.codex/sessions: no such file or folder" in ran.err


def test_a_folder_here_of_a_programs_name_is_told_apart(dag, tmp_path):
    write(tmp_path / "claude-code" / "a.jsonl", *line("here"))
    dag("import", "claude-code")
    assert said(dag, "claude-code/s1") == ["here"]
    write(tmp_path / "home/.claude/projects/b.jsonl", *line("there", session="s2"))
    ran = dag("import", "claude-code", HOME=str(tmp_path / "home"))
    assert "./claude-code names what is here" in ran.err
    assert names(dag) == ["claude-code/s1", "claude-code/s2"]


# -- watching -------------------------------------------------------------------------------------


def test_watching_imports_what_changes_until_ctrl_c(dag, tmp_path):
    path = write(tmp_path / "folder" / "a.jsonl", *line("why?"))
    command = [sys.executable, "-c", "from cli.main import main; main()", "--store", str(tmp_path / ".dag")]
    arguments = ["import", "--watch", "folder", "--interval", "0.1"]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen([*command, *arguments], cwd=tmp_path, env=environ, stdout=subprocess.PIPE) as watcher:
        try:
            assert b"new, 1 message" in watcher.stdout.readline()
            watcher.stdout.readline()
            write(path, *line("why?", "so"))
            assert b"claude-code/s1: moved on, 2 messages" in watcher.stdout.readline()
        finally:
            watcher.send_signal(signal.SIGINT)
        assert watcher.wait(30) == 0
    assert said(dag, "claude-code/s1") == ["why?", "so"]


def test_ctrl_c_keeps_what_was_read_whole(dag, tmp_path, monkeypatch):
    for i in range(5):
        write(tmp_path / "folder" / f"{i}.jsonl", *line("why?", session=f"s{i}"))
    opened = []
    started = streams.LocalFile.open

    def interrupting(self):
        opened.append(self.name)
        if opened.count("3.jsonl") == 3:  # looked at, scanned, and now read
            signal.raise_signal(signal.SIGINT)
        return started(self)

    monkeypatch.setattr(streams.LocalFile, "open", interrupting)
    dag("import", "folder", code=130)
    assert names(dag) == ["claude-code/s0", "claude-code/s1", "claude-code/s2"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    monkeypatch.setattr(streams.LocalFile, "open", started)
    dag("import", "folder")
    assert len(names(dag)) == 5


def test_a_stream_that_is_cut_is_read_as_far_as_it_goes(dag):
    data = jsonl(*line("why?", "so", "and?"))[:-40]
    ran = dag("import", "-", input=io.BytesIO(data.encode()).getvalue(), code=None)
    assert "torn-record" in ran.err
    assert said(dag, "claude-code/s1") == ["why?", "so"]
