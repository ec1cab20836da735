"""LangChain's messages, in all three forms that programs write them in."""

import json

import pytest

from objstore.attachment import Attachment
from objstore.message import AttachmentPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart, UnknownPart
from objstore.transcripts import langchain
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


def flat(kind, content="words", **more):
    return {"type": kind, "content": content, **more}


def nested(message):
    return {"type": message["type"], "data": message}


def dumped(message):
    names = {"human": "HumanMessage", "ai": "AIMessage", "tool": "ToolMessage", "system": "SystemMessage"}
    path = ["langchain", "schema", "messages", names[message["type"]]]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": message}


def read(*messages):
    return read_files(langchain, {"talk.json": json.dumps(list(messages)).encode()}).only


def parts_of(message):
    return read(message).entries[0].message.parts


@pytest.mark.parametrize("form", [lambda message: message, nested, dumped])
def test_the_three_forms_say_the_same(form):
    call = {"name": "f", "args": {"x": 1}, "id": "c1", "type": "tool_call"}
    messages = [
        flat("system", "Be kind", id="s"),
        flat("human", "Hi", id="h"),
        flat("ai", "", id="a", tool_calls=[call], usage_metadata={"input_tokens": 5, "output_tokens": 2}),
        flat("tool", "1", tool_call_id="c1", status="error", artifact={"raw": 1}),
    ]
    made = read(*map(form, messages))
    assert made.id == "talk"
    assert [role for role, _ in texts(made)] == ["system", "user", "assistant", "tool"]
    assert made.entries[2].message.parts == (ToolCallPart("f", {"x": 1}, "c1"),)
    assert made.entries[3].message.parts == (ToolResultPart("f", "1", "c1", exception="error"),)
    assert made.entries[3].note["artifact"] == {"raw": 1}
    assert made.warnings == []


def test_a_call_is_told_where_the_model_is_known():
    about = {"model_name": "m", "created": 1767000000}
    usage = {"input_tokens": 5, "output_tokens": 2, "input_token_details": {"cache_read": 1}}
    made = read(flat("human", id="h"), flat("ai", id="a", response_metadata=about, usage_metadata=usage))
    (call,) = made.calls
    assert (call.model, call.head_input, call.head_output, call.input_tokens) == ("m", "h", "a", 5)
    assert call.token_details == {"input_token_details": {"cache_read": 1}}
    assert made.entries[1].at == "2025-12-29T09:20:00.000Z"


def test_blocks_of_content():
    blocks = [
        "plain",
        {"type": "text", "text": "said"},
        {"type": "image_url", "image_url": {"url": "http://x/a.png", "detail": "low"}},
        {"type": "image", "source_type": "base64", "data": "aGk=", "mime_type": "image/png"},
        {"type": "image", "source": {"type": "base64", "data": "aGk=", "media_type": "image/gif"}},
        {"type": "file", "url": "http://x/b"},
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}], "encrypted_content": "e"},
        {"type": "tool_use", "id": "c", "name": "f", "input": {}},
        {"type": "hologram"},
    ]
    assert parts_of(flat("ai", blocks)) == (
        TextPart("plain"),
        TextPart("said"),
        AttachmentPart(Attachment("image/*", "http://x/a.png")),
        AttachmentPart(Attachment("image/png", content=b"hi")),
        AttachmentPart(Attachment("image/gif", content=b"hi")),
        AttachmentPart(Attachment(url="http://x/b")),
        ReasoningPart("hm", provider_metadata={"anthropic": {"signature": "s"}}),
        ReasoningPart("short", provider_metadata={"openai": {"encrypted_content": "e"}}),
        UnknownPart({"type": "hologram"}),
    )


def test_calls_in_the_form_of_older_versions():
    extra = {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}]}
    assert parts_of(flat("ai", "", additional_kwargs=extra)) == (ToolCallPart("f", {"x": 1}, "c"),)
    assert parts_of(flat("ai", "", additional_kwargs={"reasoning_content": "hm"})) == (ReasoningPart("hm"),)


def test_invalid_calls_keep_their_text():
    made = read(flat("ai", "", invalid_tool_calls=[{"name": "f", "args": '{"x', "id": "c", "error": "cut"}]))
    assert made.entries[0].message.parts == (ToolCallPart("f", {"_raw": '{"x'}, "c"),)
    assert made.entries[0].note["parts"]["0"]["error"] == "cut"
    assert [warn.kind for warn in made.warnings] == ["invalid-arguments"]


def test_a_removed_message_becomes_a_branch_of_its_own():
    made = read(
        flat("human", id="a"),
        flat("ai", id="b"),
        flat("ai", id="c"),
        flat("remove", "", id="b"),
        flat("human", id="d"),
    )
    assert parents(made) == {"a": None, "b": "a", "c": "a", "d": "c"}
    assert {head.key: head.active for head in made.heads} == {"b": False, "d": True}
    assert [warn.kind for warn in made.warnings] == ["removed-message"]


def test_all_messages_can_be_removed_and_unknown_ones_are_told():
    made = read(
        flat("human", id="a"),
        flat("remove", "", id="__remove_all__"),
        flat("remove", "", id="x"),
        flat("human", id="b"),
    )
    assert parents(made) == {"a": None, "b": None}
    assert [warn.kind for warn in made.warnings] == ["removed-message", "unknown-removed-message"]


def test_ids_that_repeat_are_told_apart_and_strangers_are_left_out():
    made = read(flat("human", id="a"), flat("ai", id="a"), {"role": "user"}, 7, flat("chat", role="critic"))
    assert len({entry.key for entry in made.entries}) == 3
    assert [role for role, _ in texts(made)] == ["user", "assistant", "critic"]
    assert [warn.kind for warn in made.warnings] == ["unknown-message", "unknown-message"]


def test_a_list_under_messages_and_a_file_without_messages():
    assert (
        len(read_files(langchain, {"a.json": json.dumps({"messages": [flat("human")]}).encode()}).only.entries)
        == 1
    )
    outputs = read_files(langchain, {"a.json": b"[]"})
    assert [each.kind for each in outputs.skipped] == ["empty-conversation"]


@pytest.mark.parametrize(
    ("value", "certainty"),
    [
        ([dumped(flat("human"))], Certainty.YES),
        ([nested(flat("human", additional_kwargs={}))], Certainty.YES),
        ([flat("human")], Certainty.MAYBE),
        ([{"role": "user", "content": "lc additional_kwargs"}], Certainty.NO),
        ([{"lc": 1, "type": "constructor", "id": ["langchain", "llms", "OpenAI"], "kwargs": {}}], Certainty.NO),
    ],
)
def test_told_by_content(value, certainty):
    assert langchain.sniff(json.dumps(value).encode(), "x.json") is certainty


def test_damage_of_any_kind_raises_nothing():
    call = {"name": "f", "args": {"x": 1}, "id": "c1"}
    messages = [flat("human", id="a"), flat("ai", [{"type": "text", "text": "x"}], tool_calls=[call], id="b")]
    messages += [flat("tool", "1", tool_call_id="c1"), flat("remove", "", id="b")]
    files = {"a.json": json.dumps(messages).encode()}
    survives_damage(langchain, files)
    survives_odd_values(langchain, files)


@pytest.mark.parametrize("name", ["messages_to_dict", "dumpd_lc1", "model_dump_flat"])
def test_real_files(name):
    made = read_path(langchain, real_file(f"langchain/{name}.json")).only
    assert len(made.entries) == 9  # ten records, one of which removes another
    assert [role for role, _ in texts(made)].count("developer") == 1
    assert len(made.heads) == 2
