import json

import pytest

from objstore.message import Message, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from objstore.transcripts import anthropic
from objstore.transcripts.export import anthropic as writer
from objstore.transcripts.export.model import ExportEntry
from objstore.transcripts.model import Certainty
from tests.transcripts.conformance import (
    parents,
    read_files,
    read_path,
    real_file,
    shape,
    survives_damage,
    texts,
)
from tests.transcripts.roundtrip import as_bytes, chains, lines, survives_export

TALK = {
    "model": "claude-x",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "look"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "ZGF0YQ=="},
                {"type": "text", "text": "ok", "citations": [{"type": "char_location", "start_char_index": 0}]},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"b": 1, "a": 2.5}},
                {"type": "tool_use", "id": "t2", "name": "g", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True},
                {
                    "type": "tool_result",
                    "tool_use_id": "t2",
                    "content": [
                        {"type": "text", "text": "seen"},
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
                        },
                    ],
                },
                {"type": "text", "text": "and?"},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
                {
                    "type": "web_search_tool_result",
                    "tool_use_id": "s1",
                    "content": [
                        {"type": "web_search_result", "url": "https://example.com", "encrypted_content": "x"}
                    ],
                },
                {"type": "text", "text": "found"},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
                {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}, "title": "A"},
                {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "plain"}},
            ],
        },
    ],
}


def read_one(value):
    return read_files(anthropic, {"a.json": as_bytes(value)}).only


def test_blocks_become_parts_and_results_a_message_of_role_tool():
    transcript = read_one(TALK)
    assert shape(transcript) == [
        ("system", ("text",)),
        ("user", ("text",)),
        ("assistant", ("reasoning", "reasoning", "text", "tool_call", "tool_call")),
        ("tool", ("tool_result", "tool_result", "text")),
        ("assistant", ("tool_call", "tool_result", "text")),
        ("user", ("attachment", "attachment", "attachment")),
    ]
    assert transcript.warnings == []
    signed, hidden = transcript.entries[2].message.parts[:2]
    assert signed.provider_metadata == {"anthropic": {"signature": "c2ln"}}
    assert isinstance(hidden, ReasoningPart)
    assert hidden.redacted
    failed, seen = transcript.entries[3].message.parts[:2]
    assert (failed.name, failed.exception, seen.name) == ("f", "error", "g")
    assert seen.attachments[0].type == "image/png"
    assert [part.attachment.type for part in transcript.entries[5].message.parts] == [
        *("image/*", "application/pdf", "text/plain")
    ]


def test_export_gives_the_same_request():
    transcript = read_one(TALK)
    assert {loss.kind for loss in survives_export(anthropic, writer.write, transcript)} == {"notes"}
    written = json.loads(writer.write(next(chains(transcript)))[0])
    assert written == {"system": TALK["system"], "messages": TALK["messages"]}


def test_a_recorded_session_is_one_tree_and_each_call_is_told_once():
    def pair(number, messages, text):
        answer = {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": "claude-x-1",
            "content": [{"type": "text", "text": text}],
            "usage": {"input_tokens": number, "output_tokens": 1, "cache_read_input_tokens": 7},
        }
        request = {"model": "claude-x", "max_tokens": 5, "messages": messages}
        return {"request": {"url": "https://example.com", "body": request}, "response": {"body": answer}}

    ask = {"role": "user", "content": "a"}
    data = as_bytes([pair(1, [ask], "b"), pair(2, [ask, {"role": "user", "content": "c"}], "d")])
    transcript = read_files(anthropic, {"s.json": data}).only
    assert parents(transcript) == {"m1": None, "m2": "m1", "m3": "m1", "m4": "m3"}
    assert [(head.key, head.active) for head in transcript.heads] == [("m2", False), ("m4", True)]
    assert [(call.id, call.input_tokens) for call in transcript.calls] == [("msg_1", 1), ("msg_2", 2)]
    assert transcript.calls[0].token_details == {"cache_read_input_tokens": 7}


def test_a_response_alone_is_a_conversation_named_by_its_id():
    answer = {"id": "msg_9", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "x"}]}
    outputs = read_files(anthropic, {"r.jsonl": lines(answer, {**answer, "id": "msg_10"})})
    assert [t.id for t in outputs.transcripts] == ["msg_9", "msg_10"]


def test_blocks_that_are_not_known_and_sources_by_id_are_kept():
    blocks = [
        {"type": "container_upload", "file_id": "f"},
        {"type": "image", "source": {"type": "file", "file_id": "f"}},
    ]
    transcript = read_one(
        {"model": "claude-x", "max_tokens": 1, "messages": [{"role": "user", "content": blocks}]}
    )
    assert [warn.kind for warn in transcript.warnings] == ["unknown-part", "unknown-part"]
    assert {loss.kind for loss in survives_export(anthropic, writer.write, transcript)} == {
        "unknown-part",
        "notes",
    }


def test_foreign_reasoning_and_roles_are_told_as_losses():
    chain = [
        ExportEntry(Message.of("developer", "d")),
        ExportEntry(
            Message(
                "assistant",
                (
                    ReasoningPart("", redacted=True, provider_metadata={"openai": {"encrypted_content": "x"}}),
                    ToolCallPart("f", {"a": 1}),
                    TextPart("t"),
                ),
            )
        ),
        ExportEntry(Message("tool", (ToolResultPart("f", "1", exception="ValueError: bad"),))),
    ]
    text, losses = writer.write(chain)
    messages = json.loads(text)["messages"]
    assert messages[1]["content"][0]["id"] == messages[2]["content"][0]["tool_use_id"]
    assert [loss.kind for loss in losses] == [
        *("tool-call-id", "role", "provider-metadata", "reasoning", "exception")
    ]


def test_cut_and_damaged_files_are_survived():
    survives_damage(anthropic, {"a.json": as_bytes(TALK), "b.jsonl": lines(*TALK["messages"])})


@pytest.mark.parametrize(
    ("value", "certainty"),
    [
        (TALK, Certainty.YES),
        (TALK["messages"], Certainty.YES),
        ({"type": "message", "role": "assistant", "content": []}, Certainty.YES),
        ({"model": "claude-x", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}, Certainty.YES),
        ({"messages": [{"role": "user", "content": "hi"}]}, Certainty.NO),
        ({"type": "user", "message": {"role": "user", "content": "hi"}, "uuid": "u"}, Certainty.NO),
    ],
)
def test_the_format_is_told_by_content(value, certainty):
    assert anthropic.sniff(as_bytes(value), "x") is certainty


@pytest.mark.parametrize(
    ("name", "messages", "heads"),
    [("sdk-10e53c1d", 4, 1), ("sdk-32da0815", 2, 1), ("sdk-956fa2fe", 4, 2), ("sdk-e075a6c2", 4, 1)],
)
def test_recorded_traffic_is_read_and_written_back(name, messages, heads):
    path = real_file(f"anthropic-messages/{name}.json")
    assert anthropic.sniff(path.read_bytes()[:65536], "x") is Certainty.YES
    transcript = read_path(anthropic, path).only
    assert (len(transcript.entries), len(transcript.heads)) == (messages, heads)
    assert texts(transcript)[0][0] == "user"
    survives_export(anthropic, writer.write, transcript)
