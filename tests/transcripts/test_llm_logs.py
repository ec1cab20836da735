"""The log of `llm`: threads of messages, and what older versions wrote."""

import json
import sqlite3

import pytest

from objstore.attachment import Attachment
from objstore.message import (
    AttachmentPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
)
from objstore.transcripts import llm_logs
from objstore.transcripts.databases import schema_of
from objstore.transcripts.files import open_source
from objstore.transcripts.model import Certainty
from tests.transcripts.conformance import parents, read_path, real_file, shape, survives_damage, texts

NEW = """
CREATE TABLE messages(hash TEXT PRIMARY KEY, parent_hash TEXT, role TEXT, provider_metadata TEXT);
CREATE TABLE parts(id INTEGER PRIMARY KEY, message_hash TEXT, position INTEGER, type TEXT, tool_name TEXT,
  text TEXT, payload TEXT);
CREATE TABLE threads(id TEXT PRIMARY KEY, name TEXT, tip_message_hash TEXT, forked_from TEXT, datetime_utc TEXT);
CREATE TABLE turns(id TEXT PRIMARY KEY, thread_id TEXT, parent_message_hash TEXT, tip_message_hash TEXT,
  model TEXT, resolved_model TEXT, options_json TEXT, input_tokens INTEGER, output_tokens INTEGER,
  token_details TEXT, duration_ms INTEGER, datetime_utc TEXT);
CREATE TABLE attachments(id TEXT PRIMARY KEY, type TEXT, path TEXT, url TEXT, content BLOB);
CREATE TABLE fragments(id INTEGER PRIMARY KEY, content TEXT);
"""
OLD = """
CREATE TABLE conversations(id TEXT PRIMARY KEY, name TEXT, model TEXT);
CREATE TABLE responses(id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, prompt_json TEXT,
  options_json TEXT, response TEXT, conversation_id TEXT, duration_ms INTEGER, datetime_utc TEXT, reasoning TEXT);
CREATE TABLE tool_calls(id INTEGER PRIMARY KEY, response_id TEXT, name TEXT, arguments TEXT, tool_call_id TEXT);
CREATE TABLE tool_results(id INTEGER PRIMARY KEY, response_id TEXT, name TEXT, output TEXT, tool_call_id TEXT,
  exception TEXT);
"""


@pytest.fixture
def log(tmp_path):
    """A database to fill; `log.read()` reads it."""
    return Log(tmp_path / "logs.db")


class Log:
    def __init__(self, path):
        self.path = path
        self.connection = sqlite3.connect(path)

    def tables(self, *scripts):
        for script in scripts:
            self.connection.executescript(script)
        return self

    def add(self, table, **row):
        names = ", ".join(f'"{name}"' for name in row)
        marks = ", ".join("?" * len(row))
        self.connection.execute(f"INSERT INTO {table}({names}) VALUES ({marks})", tuple(row.values()))
        return self

    def message(self, key, parent, role="user", *parts, **more):
        self.add("messages", hash=key, parent_hash=parent, role=role, **more)
        for i, part in enumerate(parts or ({"type": "text", "text": f"{key} says"},)):
            payload = {name: value for name, value in part.items() if name not in ("type", "text")}
            self.add(
                "parts",
                message_hash=key,
                position=i,
                type=part["type"],
                text=part.get("text"),
                payload=json.dumps(payload) if payload else None,
            )
        return self

    def thread(self, key, tip, **more):
        return self.add("threads", id=key, tip_message_hash=tip, **more)

    def read(self):
        self.connection.commit()
        return read_path(llm_logs, self.path)


def test_a_thread_is_the_chain_that_it_points_at(log):
    log.tables(NEW).message("b2:a", None).message("b2:b", "b2:a", "assistant").message("b2:z", None)
    log.thread("t1", "b2:b", name="A talk", datetime_utc="2026-01-01 00:00:00.5+00:00")
    log.add(
        "turns",
        id="turn1",
        thread_id="t1",
        parent_message_hash="b2:a",
        tip_message_hash="b2:b",
        model="m",
        input_tokens=3,
        output_tokens="many",
        duration_ms=7,
        options_json='{"temperature": 0.5}',
        datetime_utc="2026-01-01T00:00:01+00:00",
    )
    made = log.read().only
    assert (made.id, made.title, made.created_at) == ("t1", "A talk", "2026-01-01T00:00:00.500Z")
    assert parents(made) == {"b2:a": None, "b2:b": "b2:a"}
    assert made.entries[1].note["id"] == "b2:b"
    assert made.entries[1].at == "2026-01-01T00:00:01.000Z"
    (call,) = made.calls
    assert (call.model, call.head_input, call.head_output) == ("m", "b2:a", "b2:b")
    assert (call.input_tokens, call.output_tokens, call.duration_ms) == (3, None, 7)
    assert call.options == {"temperature": 0.5}


def test_answers_beside_the_tip_are_branches(log):
    log.tables(NEW).message("a", None).message("b", "a", "assistant").message("c", "a", "assistant")
    log.thread("t1", "b").add("turns", id="x", thread_id="t1", tip_message_hash="c", model="m")
    made = log.read().only
    assert parents(made) == {"a": None, "b": "a", "c": "a"}
    assert {head.key: head.active for head in made.heads} == {"b": True, "c": False}


def test_parts_of_every_type(log):
    log.tables(NEW).add("attachments", id="sha", type="image/png", content=b"png")
    log.add("fragments", id=1, content="Once ")
    seal = {"type": "reasoning", "text": "", "redacted": True, "provider_metadata": {"openai": {"id": "r"}}}
    call = {"type": "tool_call", "name": "f", "arguments": {"x": 1.5}, "tool_call_id": "c1"}
    result = {
        "type": "tool_result",
        "name": "f",
        "output": "1",
        "tool_call_id": "c1",
        "attachments": [{"id": "sha"}],
    }
    log.message(
        "a",
        None,
        "user",
        {"type": "text", "text_ref": [{"fragment": 1}, {"literal": "more"}, {"fragment": 9}]},
        {"type": "attachment", "attachment": {"id": "sha"}},
        seal,
        call,
        result,
        {"type": "hologram", "x": 1},
        {"type": "tool_call", "name": 7},
    )
    made = log.thread("t", "a").read().only
    picture = Attachment("image/png", content=b"png")
    *known, hologram, broken = made.entries[0].message.parts
    assert known == [
        TextPart("Once more"),
        AttachmentPart(picture),
        ReasoningPart("", redacted=True, provider_metadata={"openai": {"id": "r"}}),
        ToolCallPart("f", {"x": 1.5}, "c1"),
        ToolResultPart("f", "1", "c1", attachments=[picture]),
    ]
    assert hologram == UnknownPart({"type": "hologram", "x": 1})
    assert isinstance(broken, UnknownPart)
    assert [warn.kind for warn in made.warnings] == ["missing-fragment", "unknown-part", "invalid-part"]


def test_metadata_with_floats_goes_into_the_note(log):
    log.tables(NEW).message("a", None, "user", provider_metadata='{"p": {"x": 1}, "q": {"y": 0.5}}')
    entry = log.thread("t", "a").read().only.entries[0]
    assert entry.message.provider_metadata == {"p": {"x": 1}}
    assert entry.note["provider_metadata"] == [{"q": {"y": 0.5}}]


def test_cycles_and_missing_messages_are_cut_and_told(log):
    log.tables(NEW).message("a", "b").message("b", "a", "assistant").message("c", "gone")
    outputs = log.thread("t1", "a").thread("t2", "c").thread("t3", "nowhere").read()
    assert [parents(made) for made in outputs.transcripts] == [{"b": None, "a": "b"}, {"c": None}]
    assert outputs.warnings == ["dangling-parent", "parent-cycle"]
    assert [each.kind for each in outputs.skipped] == ["empty-conversation"]


def test_older_responses_are_conversations(log):
    log.tables(OLD).add("conversations", id="c1", name="Old talk", model="m")
    common = {"conversation_id": "c1", "model": "m"}
    log.add(
        "responses",
        id="r1",
        prompt="Hi",
        system="Be kind",
        response="",
        datetime_utc="2024-01-01T00:00:01",
        **common,
    )
    log.add("tool_calls", response_id="r1", name="f", arguments='{"x": 1}', tool_call_id="k")
    log.add(
        "responses",
        id="r2",
        prompt="",
        response="Done",
        reasoning="Hm",
        datetime_utc="2024-01-01T00:00:02",
        **common,
    )
    log.add("tool_results", response_id="r2", name="f", output="1", tool_call_id="k", exception="no")
    log.add("responses", id="alone", prompt="One", response="Two", model="m")
    old, alone = sorted(log.read().transcripts, key=lambda made: made.id, reverse=True)
    assert (old.id, old.title, old.model) == ("c1", "Old talk", "m")
    assert shape(old) == [
        ("system", ("text",)),
        ("user", ("text",)),
        ("assistant", ("tool_call",)),
        ("tool", ("tool_result",)),
        ("assistant", ("reasoning", "text")),
    ]
    assert old.entries[3].message.parts[0].exception == "no"
    assert [call.head_output for call in old.calls] == ["r1", "r2"]
    assert texts(alone) == [("user", "One"), ("assistant", "Two")]


def test_the_oldest_logs_are_chats(log):
    log.tables(
        "CREATE TABLE log(id INTEGER, system TEXT, prompt TEXT, chat_id INTEGER, response TEXT, model TEXT,"
        " timestamp TEXT)"
    )
    log.add("log", id=1, prompt="a", response="b", model="m", timestamp="2023-05-01 10:00:00")
    log.add("log", id=2, prompt="x", response="y", model="m")
    log.add("log", id=3, prompt="c", response="d", model="m", chat_id=1)
    outputs = log.read()
    assert [[text for _, text in texts(made)] for made in outputs.transcripts] == [
        ["a", "b", "c", "d"],
        ["x", "y"],
    ]
    assert outputs.transcripts[0].entries[0].at == "2023-05-01T10:00:00.000Z"


def test_a_conversation_that_went_on_in_a_newer_version_is_read_from_both_tables(log):
    log.tables(NEW, OLD).message("a", None).thread("c1", "a")
    log.add("responses", id="r1", prompt="Hi", response="Ho", conversation_id="c1")
    assert [made.id for made in log.read().transcripts] == ["c1", "c1/responses"]


def test_tables_of_odd_shapes_and_types_do_no_harm(log):
    log.tables("CREATE TABLE messages(hash, parent_hash, role)", "CREATE TABLE threads(id, tip_message_hash)")
    log.tables("CREATE TABLE parts(message_hash, position, type, text, payload)")
    log.add("messages", hash=5, role=b"user").add("threads", id=None, tip_message_hash=5)
    log.add("messages", hash="x", role=None).add("threads", id=1.5, tip_message_hash="x")
    log.add("parts", message_hash="x", position="z", type=None, text=7, payload="[not json")
    outputs = log.read()
    assert [made.id for made in outputs.transcripts] == ["1.5"]
    assert outputs.warnings == ["invalid-json", "unknown-part"]


def test_a_damaged_database_is_skipped(tmp_path):
    path = tmp_path / "logs.db"
    path.write_bytes(b"SQLite format 3\0" + bytes(4096))
    outputs = read_path(llm_logs, path)
    assert [each.kind for each in outputs.skipped] == ["damaged-database"]


def test_told_by_the_tables_wherever_the_schema_lies():
    for name in ("llm026-legacy.db", "llm036-replayed-cassettes.db"):
        file = open_source(real_file(f"llm-logs-db/{name}")).files()[0]
        assert llm_logs.sniff(schema_of(file), "x.db") is Certainty.YES
    assert llm_logs.sniff(b"SQLite format 3\0CREATE TABLE t(x)", "logs.db") is Certainty.NO
    assert llm_logs.sniff(b"prompt_json", "logs.db") is Certainty.NO


def test_damage_of_any_kind_raises_nothing(log):
    log.tables(NEW, OLD).message("a", None).message("b", "a", "assistant").thread("t", "b")
    log.add("responses", id="r1", prompt="Hi", response="Ho", conversation_id="c1")
    log.connection.commit()
    survives_damage(llm_logs, {"logs.db": log.path.read_bytes()}, cuts=20, flips=60)


def test_the_real_log_of_0_36():
    outputs = read_path(llm_logs, real_file("llm-logs-db/llm036-replayed-cassettes.db"))
    assert len(outputs.transcripts) == 10
    assert len({entry.key for made in outputs.transcripts for entry in made.entries}) == 45
    assert sum(len(made.calls) for made in outputs.transcripts) == 21
    # The thread that was forked tells the five messages before the fork again, and two threads one prompt.
    assert sum(len(made.entries) for made in outputs.transcripts) == 52
    assert outputs.warnings == []
    novel = next(made for made in outputs.transcripts if made.title.startswith("Once"))
    assert novel.entries[0].message.text == "You are an editor."
    assert novel.entries[1].message.text.endswith("\nSummarise it")


def test_the_real_log_of_0_26():
    outputs = read_path(llm_logs, real_file("llm-logs-db/llm026-legacy.db"))
    assert [len(made.entries) for made in outputs.transcripts] == [7, 4, 4, 2]
    assert sum(len(made.calls) for made in outputs.transcripts) == 8
    assert outputs.warnings == []


def test_parts_with_values_of_any_type_raise_nothing(log):
    log.tables(NEW, OLD)
    odd = [None, True, 7, 0.5, "", "x", [], {}, [1], {"a": [1]}, {"id": []}, [{"id": {}}], "\ud83d"]
    names = ("text", "name", "arguments", "output", "tool_call_id", "attachment", "attachments", "text_ref")
    known = {"text": "x", "name": "f", "arguments": {}, "output": "", "provider_metadata": {"p": [0.5]}}
    parts = [
        {**known, "type": kind, name: value}
        for kind in ("text", "reasoning", "tool_call", "tool_result", "attachment", "hologram")
        for name in (*names, "provider_metadata", "redacted")
        for value in odd
    ]
    log.add("messages", hash="a", role="assistant")
    for i, part in enumerate(parts):
        row = {"message_hash": "a", "position": i, "type": part["type"], "payload": json.dumps(part)}
        log.add("parts", **row)
    made = log.thread("t", "a").read().only
    assert len(made.entries[0].message.parts) == len(parts)
