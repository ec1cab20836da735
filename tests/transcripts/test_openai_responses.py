import json

import pytest

from objstore.message import AttachmentPart, ReasoningPart, ToolCallPart, ToolResultPart
from objstore.transcripts import openai_responses
from objstore.transcripts.export import responses
from objstore.transcripts.model import Certainty
from tests.transcripts.conformance import read_files, read_path, real_file, shape, survives_damage, texts
from tests.transcripts.roundtrip import as_bytes, chains, lines, survives_export

MIXED = {
    "model": "m",
    "instructions": "Short.",
    "input": [
        {"role": "user", "content": "sun?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "sky", "arguments": '{"at":  "noon"}'},
        {"type": "custom_tool_call", "id": "ct_1", "call_id": "c2", "name": "sh", "input": "date"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "blue"}]},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "12:00"},
        {
            "type": "reasoning",
            "id": "rs_2",
            "summary": [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}],
            "content": [{"type": "reasoning_text", "text": "three"}],
        },
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "x"},
        },
        {
            "type": "message",
            "role": "assistant",
            "id": "msg_1",
            "status": "completed",
            "content": [
                {
                    "type": "output_text",
                    "text": "Yes.",
                    "annotations": [{"type": "url_citation", "url": "https://example.com", "start_index": 0}],
                },
                {"type": "refusal", "refusal": "no more"},
            ],
        },
        {"type": "message", "role": "assistant", "id": "msg_2", "content": [{"type": "output_text", "text": "!"}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": "https://example.com/a.png"}]},
    ],
}


def read_one(value):
    return read_files(openai_responses, {"a.json": as_bytes(value)}).only


def test_what_the_model_gave_between_two_inputs_is_one_message():
    transcript = read_one(MIXED)
    assert shape(transcript) == [
        ("system", ("text",)),
        ("user", ("text",)),
        ("assistant", ("reasoning", "tool_call", "tool_call")),
        ("tool", ("tool_result",)),
        ("tool", ("tool_result",)),
        ("assistant", ("reasoning", "tool_call", "text", "text", "text")),
        ("user", ("attachment",)),
    ]
    assert transcript.warnings == []


def test_what_must_go_back_is_in_the_message_and_ids_are_in_the_note():
    entries = read_one(MIXED).entries
    encrypted, call = entries[2].message.parts[:2]
    assert isinstance(encrypted, ReasoningPart)
    assert (encrypted.text, encrypted.redacted) == ("", True)
    assert encrypted.provider_metadata == {"openai": {"id": "rs_1", "encrypted_content": "gAAA"}}
    assert call.provider_metadata == {}
    assert entries[2].note["parts"]["1"]["id"] == "fc_1"
    searched = entries[5].message.parts[1]
    assert isinstance(searched, ToolCallPart)
    assert (searched.name, searched.tool_call_id, searched.server_executed) == ("web_search", "ws_1", True)
    assert searched.arguments == {"type": "search", "query": "x"}


def test_export_gives_the_same_items():
    transcript = read_one(MIXED)
    assert survives_export(openai_responses, responses.write, transcript) == []
    written = json.loads(responses.write(next(chains(transcript)))[0])
    assert written["instructions"] == "Short."
    for number in (1, 2, 3, 5, 6, 7, 8):
        assert {**written["input"][number]} == {**MIXED["input"][number]}
    assert [item.get("id") for item in written["input"][8:10]] == ["msg_1", "msg_2"]


def test_references_and_items_that_are_not_known_are_kept_with_a_warning():
    items = [
        {"role": "user", "content": "a"},
        {"type": "item_reference", "id": "msg_0"},
        {"type": "of_the_future", "x": [1.5]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
    ]
    transcript = read_one({"model": "m", "input": items})
    kept = [part.to_dict()["type"] for part in transcript.entries[1].message.parts]
    assert kept == ["item_reference", "of_the_future", "text"]
    assert [warn.kind for warn in transcript.warnings] == ["unknown-item", "unknown-item"]
    assert {loss.kind for loss in survives_export(openai_responses, responses.write, transcript)} == {
        "unknown-part"
    }


def test_the_providers_own_tools_hold_their_results_and_come_back():
    items = [
        {
            "type": "file_search_call",
            "id": "fs_1",
            "status": "completed",
            "queries": ["q"],
            "results": [{"file_id": "f", "score": 0.25, "text": "t"}],
        },
        {
            "type": "code_interpreter_call",
            "id": "ci_1",
            "status": "completed",
            "code": "1+1",
            "container_id": "cn",
            "outputs": [{"type": "logs", "logs": "2"}],
        },
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "iVBORw0KGgo="},
        {
            "type": "mcp_call",
            "id": "mcp_1",
            "server_label": "s",
            "name": "n",
            "arguments": '{"a": 1}',
            "output": "out",
            "error": {"code": 5},
        },
    ]
    transcript = read_one({"model": "m", "input": items})
    parts = transcript.entries[0].message.parts
    assert [part.type for part in parts] == ["tool_call", "tool_result"] * 4
    assert all(part.server_executed for part in parts)
    assert parts[5].attachments[0].content == b"\x89PNG\r\n\x1a\n"
    assert isinstance(parts[7], ToolResultPart)
    assert parts[7].exception == '{"code":5}'
    assert survives_export(openai_responses, responses.write, transcript) == []
    assert json.loads(responses.write(next(chains(transcript)))[0])["input"] == items


def test_shell_and_computer_calls_and_what_they_gave_come_back():
    items = [
        {
            "type": "local_shell_call",
            "id": "ls_1",
            "call_id": "c1",
            "status": "completed",
            "action": {"command": ["ls"]},
        },
        {"type": "local_shell_call_output", "id": "c1", "call_id": "c1", "output": '{"ok": true}'},
        {
            "type": "computer_call",
            "id": "cu_1",
            "call_id": "c2",
            "action": {"type": "click", "x": 1},
            "status": "completed",
        },
        {
            "type": "computer_call_output",
            "call_id": "c2",
            "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,iVBORw0KGgo="},
        },
        {"type": "function_call", "call_id": "c3", "name": "f", "arguments": ""},
        {"type": "function_call_output", "call_id": "c3", "output": {"content": "x", "success": True}},
    ]
    transcript = read_one({"model": "m", "input": items})
    assert [part.name for entry in transcript.entries for part in entry.message.parts] == [
        *("local_shell", "local_shell", "computer", "computer", "f", "f")
    ]
    assert survives_export(openai_responses, responses.write, transcript) == []
    assert json.loads(responses.write(next(chains(transcript)))[0])["input"] == items


def test_a_response_with_its_request_tells_its_call():
    pair = {
        "request": {"body": json.dumps({"model": "m", "input": "hi", "temperature": 1})},
        "response": {
            "body": {
                "id": "resp_1",
                "object": "response",
                "created_at": 1700000000,
                "model": "m-1",
                "output": [
                    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ho"}]}
                ],
                "usage": {"input_tokens": 5, "output_tokens": 2, "output_tokens_details": {"reasoning_tokens": 1}},
            }
        },
    }
    transcript = read_one(pair)
    assert texts(transcript) == [("user", "hi"), ("assistant", "ho")]
    (call,) = transcript.calls
    assert (call.id, call.head_input, call.head_output, call.input_tokens) == ("resp_1", "m1", "m2", 5)
    assert call.options == {"temperature": 1}


def test_bare_items_are_one_conversation():
    items = MIXED["input"]
    for data in (as_bytes(items), lines(*items)):
        assert len(read_files(openai_responses, {"a.jsonl": data}).only.entries) == 6


def test_files_are_attachments_by_reference_or_with_their_bytes():
    blocks = [
        {"type": "input_file", "file_id": "file-1"},
        {"type": "input_file", "file_url": "https://example.com/a.pdf"},
        {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGk="},
        {"type": "input_image", "file_id": "file-2", "detail": "high"},
    ]
    transcript = read_one({"model": "m", "input": [{"type": "message", "role": "user", "content": blocks}]})
    assert all(isinstance(part, AttachmentPart) for part in transcript.entries[0].message.parts)
    assert survives_export(openai_responses, responses.write, transcript) == []
    written = json.loads(responses.write(next(chains(transcript)))[0])["input"][0]["content"]
    assert [dict(sorted(block.items())) for block in written] == [dict(sorted(block.items())) for block in blocks]


def test_cut_and_damaged_files_are_survived():
    survives_damage(openai_responses, {"a.json": as_bytes(MIXED), "b.jsonl": lines(*MIXED["input"])})


@pytest.mark.parametrize(
    ("value", "certainty"),
    [
        (MIXED, Certainty.YES),
        ({"object": "response", "output": []}, Certainty.YES),
        ({"model": "m", "input": "hi"}, Certainty.MAYBE),
        ({"messages": [{"role": "user", "content": "hi"}]}, Certainty.NO),
        (MIXED["input"], Certainty.YES),
    ],
)
def test_the_format_is_told_by_content(value, certainty):
    assert openai_responses.sniff(as_bytes(value), "x") is certainty


def test_the_real_mixed_request_gives_six_messages():
    outputs = read_path(openai_responses, real_file("damaged/35-openai-responses-items.json"))
    transcript = outputs.only
    assert len(transcript.entries) == 6
    assert [warn.kind for warn in transcript.warnings] == ["unknown-item", "unknown-item"]
    survives_export(openai_responses, responses.write, transcript)
