"""opencode: exports, the storage folder and the database hold the same sessions."""

import json
import sqlite3

import pytest

from objstore.attachment import Attachment
from objstore.message import AttachmentPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart, UnknownPart
from objstore.transcripts import opencode
from objstore.transcripts.databases import schema_of
from objstore.transcripts.files import FileSource, FolderSource
from objstore.transcripts.model import Certainty
from tests.transcripts.conformance import (
    parents,
    read_files,
    read_path,
    real_file,
    shape,
    survives_damage,
    survives_odd_values,
    texts,
)

START = 1767000000000  # milliseconds


def session(key="ses_1", **more):
    return {"id": key, "title": "A talk", "directory": "/w", "time": {"created": START}} | more


def message(key, role="user", at=0, *parts, **more):
    info = {"id": key, "role": role, "sessionID": "ses_1", "time": {"created": START + at}} | more
    listed = parts or ({"type": "text", "text": f"{key} says"},)
    return {
        "info": info,
        "parts": [{"id": f"prt_{key}_{i}", "messageID": key, **part} for i, part in enumerate(listed)],
    }


def tool(call="k", status="completed", **state):
    result = {"output": "1"} if status == "completed" else {}
    return {
        "type": "tool",
        "tool": "f",
        "callID": call,
        "state": {"status": status, "input": {"x": 1}} | result | state,
    }


def export(*messages, info=None):
    return {"info": info or session(), "messages": list(messages)}


def read(*exports):
    return read_files(opencode, {f"{i}.json": json.dumps(each).encode() for i, each in enumerate(exports)})


def test_messages_come_in_the_order_of_their_times():
    made = read(export(message("msg_a", at=3), message("msg_z", at=1), message("msg_m", "assistant", at=2))).only
    assert (made.id, made.title, made.created_at) == ("ses_1", "A talk", "2025-12-29T09:20:00.000Z")
    assert [entry.key for entry in made.entries] == ["msg_z", "msg_m", "msg_a"]
    assert [(head.key, head.label, head.active) for head in made.heads] == [("msg_a", "ses_1", True)]


def test_results_end_an_answer_and_what_follows_begins_another():
    text = {"type": "text", "text": "So."}
    answer = message("m", "assistant", 1, {"type": "step-start"}, tool("k1"), tool("k2"), text)
    made = read(export(message("u"), answer)).only
    assert shape(made) == [
        ("user", ("text",)),
        ("assistant", ("tool_call", "tool_call")),
        ("tool", ("tool_result",)),
        ("tool", ("tool_result",)),
        ("assistant", ("text",)),
    ]
    assert made.entries[1].note["events"] == [{"type": "step-start"}]
    assert made.warnings == []


def test_how_a_tool_can_end():
    picture = {"mime": "image/png", "url": "data:image/png;base64,aGk="}
    parts = [tool("a", attachments=[picture]), tool("b", "error", error="denied"), tool("c", "running")]
    made = read(export(message("m", "assistant", 0, *parts))).only
    assert made.entries[1].message.parts == (
        ToolResultPart("f", "1", "a", attachments=[Attachment("image/png", content=b"hi")]),
    )
    assert made.entries[2].message.parts == (ToolResultPart("f", "denied", "b", exception="error"),)
    assert [(warn.kind, warn.text) for warn in made.warnings] == [("unanswered-tool-call", "c")]


def test_parts_of_every_kind():
    parts = [
        {"type": "text", "text": "hi", "synthetic": True},
        {"type": "reasoning", "text": "hm", "metadata": {"anthropic": {"signature": "s"}, "note": 0.5}},
        {"type": "file", "mime": "text/plain", "filename": "a.txt", "url": "file:///a.txt"},
        {"type": "compaction", "auto": True},
        {"type": "hologram", "x": 1},
    ]
    made = read(export(message("m", "user", 0, *parts))).only
    assert made.entries[0].message.parts == (
        TextPart("hi"),
        ReasoningPart("hm", provider_metadata={"anthropic": {"signature": "s"}}),
        AttachmentPart(Attachment("text/plain", "file:///a.txt", "a.txt")),
        UnknownPart({"type": "compaction", "auto": True}),
        UnknownPart({"type": "hologram", "x": 1}),
    )
    assert made.entries[0].note["parts"]["0"]["part"] == {"synthetic": True}
    assert [warn.kind for warn in made.warnings] == ["unknown-part"]


def test_answers_tell_their_calls():
    about = {"modelID": "m", "providerID": "p", "tokens": {"input": 5, "output": 2, "reasoning": 1}}
    time = {"created": START, "completed": START + 40}
    answer = message("a", "assistant", 1, **about)
    answer["info"]["time"] = time
    failed = message(
        "b",
        "assistant",
        2,
        {"type": "step-start"},
        modelID="m",
        error={"name": "Abort", "data": {"message": "no"}},
    )
    made = read(export(message("u", at=-5), answer, failed)).only
    first, second = made.calls
    assert (first.model, first.head_input, first.head_output, first.duration_ms) == ("m", "u", "a", 40)
    assert (first.input_tokens, first.output_tokens, first.token_details) == (5, 2, {"reasoning": 1})
    assert (second.head_input, second.head_output, second.error) == ("a", None, "Abort: no")
    assert [warn.kind for warn in made.warnings] == ["empty-content"]


def test_a_session_that_a_tool_started_hangs_from_its_call():
    task = tool("k", metadata={"sessionId": "ses_2"})
    parent = export(message("u"), message("m", "assistant", 1, task))
    child = export(
        message("c"), message("d", "assistant", 1), info=session("ses_2", parentID="ses_1", title="Task")
    )
    made = read(child, parent).only
    assert parents(made) == {"u": None, "m": "u", "prt_m_0/result": "m", "c": None, "d": "c"}
    first = next(entry for entry in made.entries if entry.key == "c")
    assert (first.called_by, first.tool_call_id) == ("m", "k")
    assert [(head.label, head.active, head.title) for head in made.heads] == [
        ("ses_1", True, "A talk"),
        ("ses_2", False, "Task"),
    ]


def test_sessions_whose_parents_are_missing_silent_or_themselves_are_read_all_the_same():
    lost = export(message("a"), info=session("ses_a", parentID="ses_gone"))
    silent = export(message("b"), info=session("ses_b", parentID="ses_a"))
    one = export(message("c"), info=session("ses_c", parentID="ses_d"))
    other = export(message("d"), info=session("ses_d", parentID="ses_c"))
    outputs = read(lost, silent, one, other)
    assert sorted(made.id for made in outputs.transcripts) == ["ses_a", "ses_b", "ses_c", "ses_d"]
    assert {"missing-parent-session", "unlinked-child-session", "parent-cycle"} <= set(outputs.warnings)


def test_a_message_that_is_there_twice_is_read_once():
    made = read(export(message("a"), message("a"), message("b", at=1))).only
    assert [entry.key for entry in made.entries] == ["a", "b"]
    assert [warn.kind for warn in made.warnings] == ["duplicate-message"]


def part(key, message_id, text):
    return {"id": key, "messageID": message_id, "sessionID": "ses_1", "type": "text", "text": text}


STORAGE = [
    ("session/p/ses_1.json", session()),
    ("message/ses_1/msg_1.json", message("msg_1")["info"]),
    ("message/ses_1/msg_2.json", message("msg_2", "assistant", 5)["info"]),
    ("part/msg_1/prt_1.json", part("prt_1", "msg_1", "Hi")),
    ("part/msg_2/prt_3.json", part("prt_3", "msg_2", "o!")),
    ("part/msg_2/prt_2.json", part("prt_2", "msg_2", "H")),
]


def test_the_storage_folder(tmp_path):
    for name, record in STORAGE:
        path = tmp_path / "storage" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record))
    (tmp_path / "storage" / "other.json").write_text("{}")
    outputs = read_path(opencode, tmp_path)
    assert texts(outputs.transcripts[0]) == [("user", "Hi"), ("assistant", "Ho!")]
    assert [each.kind for each in outputs.skipped] == ["unknown-record"]


def test_a_database_is_a_unit_with_its_log_and_all_json_files_are_one(tmp_path):
    make_database(tmp_path / "opencode.db")
    writer = sqlite3.connect(tmp_path / "opencode.db", isolation_level=None)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("UPDATE session SET title = 'New'")
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps(export(message(name), info=session(f"ses_{name}"))))
    units = [[file.name for file in files] for files in opencode.split(FolderSource(tmp_path))]
    assert units == [["opencode.db", "opencode.db-wal"], ["a.json", "b.json"]]
    outputs = read_path(opencode, tmp_path)
    assert {made.title for made in outputs.transcripts} == {"New", "A talk"}
    assert [each.place for each in outputs.skipped] == []
    writer.close()


def make_database(path):
    connection = sqlite3.connect(path)
    connection.executescript(
        """
        CREATE TABLE session(id TEXT, parent_id TEXT, title TEXT, directory TEXT, time_created INTEGER);
        CREATE TABLE message(id TEXT, session_id TEXT, time_created INTEGER, data TEXT);
        CREATE TABLE part(id TEXT, message_id TEXT, session_id TEXT, time_created INTEGER, data TEXT);
        """
    )
    connection.execute("INSERT INTO session VALUES ('ses_1', NULL, 'A talk', '/w', ?)", (START,))
    rows = [("msg_2", START + 5, {"role": "assistant"}), ("msg_1", START, {"role": "user"})]
    for key, at, data in rows:
        connection.execute("INSERT INTO message VALUES (?, 'ses_1', ?, ?)", (key, at, json.dumps(data)))
    parts = [("prt_1", "msg_1", '{"type": "text", "text": "Hi"}'), ("prt_2", "msg_2", json.dumps(tool()))]
    parts += [("prt_3", "msg_2", "{broken"), ("prt_4", "msg_2", '{"type": "text", "text": "Ho"}')]
    for key, message_id, data in parts:
        connection.execute("INSERT INTO part VALUES (?, ?, 'ses_1', 0, ?)", (key, message_id, data))
    connection.commit()
    connection.close()


def test_the_database(tmp_path):
    make_database(tmp_path / "opencode.db")
    made = read_path(opencode, tmp_path / "opencode.db").only
    assert (made.id, made.title, made.created_at) == ("ses_1", "A talk", "2025-12-29T09:20:00.000Z")
    assert [entry.message.role for entry in made.entries] == ["user", "assistant", "tool", "assistant"]
    assert made.entries[1].message.parts == (ToolCallPart("f", {"x": 1}, "k"),)
    assert {warn.kind for warn in made.warnings} == {"torn-document", "unknown-part"}


def test_told_by_content(tmp_path):
    for _, record in STORAGE:
        assert opencode.sniff(json.dumps(record).encode(), "x") is Certainty.YES
    assert opencode.sniff(json.dumps(export(message("a"))).encode(), "x") is Certainty.YES
    assert opencode.sniff(json.dumps({"info": {}, "messages": [{"role": "user"}]}).encode(), "x") is Certainty.NO
    make_database(tmp_path / "a.db")
    assert opencode.sniff(schema_of(FileSource(tmp_path / "a.db").files()[0]), "x") is Certainty.YES


def test_damage_of_any_kind_raises_nothing(tmp_path):
    talk = export(message("u"), message("m", "assistant", 1, tool(), {"type": "text", "text": "x"}, modelID="m"))
    files = {"a.json": json.dumps(talk).encode()}
    survives_damage(opencode, files)
    survives_odd_values(opencode, files)
    survives_damage(opencode, {name: json.dumps(record).encode() for name, record in STORAGE}, cuts=8, flips=8)
    make_database(tmp_path / "a.db")
    survives_damage(opencode, {"a.db": (tmp_path / "a.db").read_bytes()}, cuts=10, flips=40)


def test_damaged_order_of_ids():
    made = read_path(opencode, real_file("damaged/30-opencode-id-order.json")).only
    assert [entry.key for entry in made.entries] == ["msg_z", "msg_b", "prt_msg_b_1/result", "msg_m", "msg_a"]
    assert [warn.kind for warn in made.warnings] == ["missing-parent-session"]
    assert made.entries[0].message.parts[1].attachment == Attachment("text/plain", path="a.txt", content=b"hi")


@pytest.mark.parametrize(("name", "warnings"), [("cleanup", ["unknown-part"]), ("tool-calls", [])])
def test_real_exports(name, warnings):
    made = read_path(opencode, real_file(f"opencode/letta-opencode__{name}__input.json")).only
    # Two records: the second holds a call, its result and the answer, which are a message each.
    assert [entry.message.role for entry in made.entries] == ["user", "assistant", "tool", "assistant"]
    assert [warn.kind for warn in made.warnings] == warnings
