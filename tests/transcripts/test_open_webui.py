"""Open WebUI: trees of messages, linked by what the children say."""

import json
import sqlite3

from objstore.attachment import Attachment
from objstore.message import AttachmentPart, TextPart, ToolCallPart
from objstore.transcripts import open_webui
from objstore.transcripts.databases import schema_of
from objstore.transcripts.files import FileSource
from objstore.transcripts.model import Certainty
from tests.transcripts.conformance import (
    parents,
    read_files,
    read_path,
    real_file,
    survives_damage,
    survives_odd_values,
    texts,
)


def message(key, parent, role="user", content="words", children=(), **more):
    said = {"id": key, "parentId": parent, "childrenIds": list(children), "role": role, "content": content}
    return {key: said | {"timestamp": 1767000000} | more}


def chat(*messages, current=None, **more):
    tree = {}
    for each in messages:
        tree |= each
    return {"id": "w1", "title": "A talk", "chat": {"history": {"currentId": current, "messages": tree}}, **more}


def read(*chats):
    return read_files(open_webui, {"chats.json": json.dumps(list(chats)).encode()})


def heads(made):
    return {head.key: head.active for head in made.heads}


def test_a_chat_is_a_tree_and_its_current_message_the_active_head():
    made = read(
        chat(
            message("a", None, children=["b", "c"]),
            message("b", "a", "assistant"),
            message("c", "a", "assistant"),
            current="b",
            created_at=1767000000,
        )
    ).only
    assert (made.id, made.title, made.created_at) == ("w1", "A talk", "2025-12-29T09:20:00.000Z")
    assert parents(made) == {"a": None, "b": "a", "c": "a"}
    assert heads(made) == {"b": True, "c": False}
    assert made.warnings == []


def test_children_that_are_not_what_they_say_are_told_once_for_each_message():
    made = read(chat(message("a", None, children=["x"]), message("b", "a"), message("c", "b"), current="c")).only
    assert parents(made) == {"a": None, "b": "a", "c": "b"}
    assert [(warn.kind, warn.place) for warn in made.warnings] == [
        ("children-mismatch", "a"),
        ("children-mismatch", "b"),
    ]


def test_a_missing_current_message_is_the_newest_leaf():
    made = read(
        chat(message("a", None, children=["b", "c"]), message("b", "a", timestamp=1767000009), message("c", "a"))
    ).only
    assert heads(made) == {"b": True, "c": False}
    assert [warn.kind for warn in made.warnings] == ["no-current-leaf"]


def test_a_list_of_messages_is_a_chain():
    made = read(
        {
            "id": "w",
            "chat": {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]},
        }
    )
    assert parents(made.only) == {"#0": None, "#1": "#0"}
    assert made.only.title == "q"


def test_files_are_attachments():
    files = [
        {"type": "image", "url": "data:image/png;base64,aGk="},
        {"type": "file", "id": "f1", "name": "a.pdf", "file": {"data": {"content": "the text"}}},
        {"type": "file", "url": "f2", "name": "b.bin", "content_type": "application/x"},
        {"type": "collection"},
    ]
    made = read(chat(message("a", None, files=files))).only
    *known, unknown = made.entries[0].message.parts
    assert known == [
        TextPart("words"),
        AttachmentPart(Attachment("image/png", content=b"hi")),
        AttachmentPart(Attachment("text/plain", "f1", "a.pdf", b"the text")),
        AttachmentPart(Attachment("application/x", "f2", "b.bin")),
    ]
    assert unknown.to_dict() == {"type": "collection"}


def test_answers_tell_their_calls():
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_duration": 3_000_000}
    tool = {"id": "k", "function": {"name": "f", "arguments": '{"x": 1}'}}
    made = read(
        chat(
            message("a", None, children=["b"]),
            message("b", "a", "assistant", "", model="m", usage=usage, tool_calls=[tool], error={"content": "no"}),
        )
    ).only
    (call,) = made.calls
    assert (call.model, call.head_input, call.head_output) == ("m", "a", "b")
    assert (call.input_tokens, call.output_tokens, call.duration_ms, call.error) == (5, 2, 3, "no")
    assert made.entries[1].message.parts[-1] == ToolCallPart("f", {"x": 1}, "k")
    assert made.entries[1].note["model"] == "m"


def test_copies_are_one_and_empty_chats_are_skipped():
    early = chat(message("a", None), message("old", None), updated_at=1767000000)
    late = chat(message("a", None), message("b", None), updated_at=1767000009)
    outputs = read(early, late, {"id": "e", "chat": {}}, 7)
    assert {entry.key for entry in outputs.transcripts[0].entries} == {"a", "b", "old"}
    assert "duplicate-conversation" in outputs.warnings
    assert [each.kind for each in outputs.skipped] == ["empty-conversation", "empty-conversation"]


def test_the_database_holds_the_same_chats(tmp_path):
    connection = sqlite3.connect(tmp_path / "webui.db")
    connection.execute(
        "CREATE TABLE chat(id TEXT, user_id TEXT, title TEXT, chat TEXT, share_id TEXT, created_at INT)"
    )
    held = chat(message("a", None, content="Hi"))["chat"]
    rows = [("w1", "Talk", json.dumps(held)), ("w2", "Broken", "{"), ("w3", None, None)]
    connection.executemany("INSERT INTO chat(id, title, chat) VALUES (?, ?, ?)", rows)
    connection.commit()
    outputs = read_path(open_webui, tmp_path / "webui.db")
    assert [(made.id, made.title, texts(made)) for made in outputs.transcripts] == [
        ("w1", "Talk", [("user", "Hi")])
    ]
    assert [each.kind for each in outputs.skipped] == ["empty-conversation", "empty-conversation"]
    assert open_webui.sniff(schema_of(FileSource(tmp_path / "webui.db").files()[0]), "x") is Certainty.YES


def test_told_by_content():
    data = json.dumps([chat(message("a", None))]).encode()
    assert open_webui.sniff(data, "x") is Certainty.YES
    assert open_webui.sniff(json.dumps([data.decode()]).encode(), "chats.json") is Certainty.NO


def test_damage_of_any_kind_raises_nothing():
    files = [{"type": "image", "url": "data:image/png;base64,aGk="}]
    talk = chat(
        message("a", None, files=files, children=["b"]), message("b", "a", "assistant", model="m"), current="b"
    )
    files = {"chats.json": json.dumps([talk, talk]).encode()}
    survives_damage(open_webui, files)
    survives_odd_values(open_webui, files)


def test_damaged_lists_of_children():
    made = read_path(open_webui, real_file("damaged/32-openwebui-children-empty.json")).only
    assert len(made.entries) == 5
    assert heads(made) == {"b2": False, "d": True}
    assert [warn.kind for warn in made.warnings] == ["children-mismatch", "children-mismatch"]


def test_the_real_database():
    made = read_path(open_webui, real_file("other/hstry-openwebui.db")).only
    assert texts(made) == [("user", "Hello WebUI!"), ("assistant", "Hello from WebUI.")]
