import json

import pytest

from objstore.message import AttachmentPart, ReasoningPart, ToolCallPart
from objstore.transcripts import openai_chat
from objstore.transcripts.export import openai
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

TOOLS = {
    "model": "m",
    "temperature": 0.5,
    "messages": [
        {"role": "system", "content": "s"},
        {
            "role": "user",
            "name": "ann",
            "content": [{"type": "text", "text": "look"}, {"type": "text", "text": "!"}],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"b": 1, "a": [2.5]}'}},
                {"id": "c2", "type": "custom", "custom": {"name": "sh", "input": "ls -l"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "two"}]},
        {"role": "assistant", "content": "done", "refusal": None, "annotations": []},
    ],
}
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def read_one(value):
    return read_files(openai_chat, {"a.json": as_bytes(value)}).only


def test_a_request_is_one_conversation_and_tool_results_are_named_after_their_calls():
    transcript = read_one(TOOLS)
    assert transcript.model == "m"
    assert shape(transcript) == [
        ("system", ("text",)),
        ("user", ("text", "text")),
        ("assistant", ("tool_call", "tool_call")),
        ("tool", ("tool_result",)),
        ("tool", ("tool_result",)),
        ("assistant", ("text",)),
    ]
    entries = transcript.entries
    assert [entry.message.parts[0].name for entry in entries[3:5]] == ["f", "sh"]
    assert entries[1].message.provider_metadata == {"openai": {"name": "ann"}}
    assert entries[0].note["record"] == {"temperature": 0.5}
    assert transcript.warnings == []


def test_export_gives_the_same_messages_and_the_same_argument_text():
    transcript = read_one(TOOLS)
    assert [loss.text for loss in survives_export(openai_chat, openai.write, transcript)] == ["record"]
    text, _ = openai.write(next(chains(transcript)))
    assert json.loads(text)["messages"][2] == TOOLS["messages"][2]


def test_arguments_that_are_no_json_object_are_kept_and_come_back_as_they_were():
    given = ["", '{"cut": ', '"scalar"', {"object": 1}, "[1]"]
    calls = [
        {"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": a}} for i, a in enumerate(given)
    ]
    transcript = read_one({"messages": [{"role": "assistant", "content": None, "tool_calls": calls}]})
    assert [part.arguments for part in transcript.entries[0].message.parts] == [
        {},
        {"_raw": '{"cut": '},
        {"_raw": '"scalar"'},
        {"object": 1},
        {"_raw": "[1]"},
    ]
    assert [warn.kind for warn in transcript.warnings] == ["invalid-arguments"] * 3
    text, _ = openai.write(next(chains(transcript)))
    written = json.loads(text)["messages"][0]["tool_calls"]
    assert [call["function"]["arguments"] for call in written] == given


def test_fine_tuning_lines_with_a_byte_order_mark_and_crlf_are_read_without_a_warning():
    given = [
        {
            "messages": [
                {"role": "user", "content": "\ufeffkeep"},
                {"role": "assistant", "content": "a", "weight": 0},
            ]
        },
        {"messages": [{"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]},
    ]
    data = b"\xef\xbb\xbf" + lines(*given).replace(b"\n", b"\r\n\r\n")
    outputs = read_files(openai_chat, {"t.jsonl": data})
    assert [texts(t) for t in outputs.transcripts] == [
        [("user", "\ufeffkeep"), ("assistant", "a")],
        [("user", "b"), ("assistant", "c")],
    ]
    assert outputs.warnings == []
    assert not outputs.skipped
    assert outputs.transcripts[0].entries[1].note["weight"] == 0


def test_images_audio_and_files_become_attachments_and_come_back():
    blocks = [
        {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "input_audio", "input_audio": {"data": "AAEC", "format": "mp3"}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAEC", "filename": "a.pdf"}},
    ]
    transcript = read_one({"messages": [{"role": "user", "content": blocks}]})
    found = [part.attachment for part in transcript.entries[0].message.parts if isinstance(part, AttachmentPart)]
    assert [(a.type, a.url, a.path, a.has_content) for a in found] == [
        ("image/png", None, None, True),
        ("image/*", "https://example.com/a.png", None, False),
        ("audio/mpeg", None, None, True),
        (None, "file-1", None, False),
        ("application/pdf", None, "a.pdf", True),
    ]
    assert survives_export(openai_chat, openai.write, transcript) == []
    assert json.loads(openai.write(next(chains(transcript)))[0])["messages"][0]["content"] == blocks


def test_a_block_that_is_not_known_is_kept_with_a_warning():
    block = {"type": "hologram", "data": [1, 2.5]}
    transcript = read_one({"messages": [{"role": "user", "content": [block, {"type": "text", "text": 5}]}]})
    kept = [part.to_dict() for part in transcript.entries[0].message.parts]
    assert kept[0] == block
    assert kept[1] == {"type": "unknown", "value": {"type": "text", "text": 5}}
    assert [warn.kind for warn in transcript.warnings] == ["unknown-part", "unknown-part"]
    assert {loss.kind for loss in survives_export(openai_chat, openai.write, transcript)} == {"unknown-part"}


def test_several_choices_are_siblings_and_the_call_is_counted_once():
    pair = {
        "request": {"model": "m", "messages": [{"role": "user", "content": "q"}]},
        "response": {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1700000000,
            "model": "m-2024",
            "choices": [
                {"message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"},
                {"message": {"role": "assistant", "content": "y"}, "finish_reason": "length"},
            ],
            "usage": {"prompt_tokens": 3, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 1}},
        },
    }
    transcript = read_one(pair)
    assert parents(transcript) == {"m1": None, "m2": "m1", "m3": "m1"}
    assert [(head.key, head.active) for head in transcript.heads] == [("m2", True), ("m3", False)]
    (call,) = transcript.calls
    assert (call.id, call.model, call.resolved_model) == ("chatcmpl-1", "m", "m-2024")
    assert (call.head_input, call.head_output, call.input_tokens, call.output_tokens) == ("m1", "m2", 3, 4)
    assert transcript.entries[1].at == "2023-11-14T22:13:20.000Z"


def test_a_recorded_session_of_growing_requests_is_one_chain():
    def pair(number, messages, answer):
        return {
            "request": {
                "url": "https://example.com/v1/chat/completions",
                "body": {"model": "m", "messages": messages},
            },
            "response": {"body": {"id": f"r{number}", "choices": [{"message": answer}], "model": "m"}},
        }

    asked = [{"role": "user", "content": "a"}]
    answer = {"role": "assistant", "content": "b"}
    more = [*asked, answer, {"role": "user", "content": "c"}]
    data = as_bytes([pair(1, asked, answer), pair(2, more, {"role": "assistant", "content": "d"})])
    transcript = read_files(openai_chat, {"s.json": data}).only
    assert texts(transcript) == [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")]
    assert [(head.key, head.label) for head in transcript.heads] == [("m4", "s.json")]
    assert [call.head_output for call in transcript.calls] == ["m2", "m4"]


def test_a_bare_list_of_messages_and_lines_of_messages_are_one_conversation():
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]
    for data in (as_bytes(said), lines(*said), json.dumps(said, indent=1).encode()):
        assert texts(read_files(openai_chat, {"a": data}).only) == [("user", "a"), ("assistant", "")]


def test_reasoning_legacy_functions_refusals_and_spoken_answers_come_back():
    said = [
        {"role": "assistant", "content": "a", "reasoning_content": "because"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
        {"role": "assistant", "content": None, "refusal": "no"},
        {"role": "assistant", "content": None, "audio": {"id": "audio_1", "transcript": "hi", "data": "AAEC"}},
        {
            "role": "assistant",
            "content": None,
            "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}],
        },
    ]
    transcript = read_one(said)
    assert isinstance(transcript.entries[0].message.parts[0], ReasoningPart)
    assert isinstance(transcript.entries[1].message.parts[0], ToolCallPart)
    assert survives_export(openai_chat, openai.write, transcript) == []
    assert json.loads(openai.write(next(chains(transcript)))[0])["messages"] == said


def test_a_result_without_its_call_and_a_call_passed_over_are_told():
    call = {"id": "open", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    transcript = read_one(
        [
            {"role": "tool", "tool_call_id": "gone", "content": "x"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "user", "content": "never mind"},
        ]
    )
    assert sorted((warn.kind, warn.text) for warn in transcript.warnings) == [
        ("orphan-tool-result", "gone"),
        ("unanswered-tool-call", "open"),
    ]


def test_what_is_no_conversation_is_skipped_and_the_rest_is_read():
    data = lines({"a": 1}, {"messages": []}, {"messages": [{"role": "user", "content": "x"}, 5, {"content": "y"}]})
    outputs = read_files(openai_chat, {"a.jsonl": data})
    assert [skipped.kind for skipped in outputs.skipped] == ["not-a-conversation", "no-messages"]
    assert outputs.warnings == ["missing-role", "not-a-message"]
    assert texts(outputs.transcripts[0]) == [("user", "x")]


def test_preferred_and_other_answers_are_two_branches():
    record = {
        "input": {"messages": [{"role": "user", "content": "q"}]},
        "preferred_output": [{"role": "assistant", "content": "good"}],
        "non_preferred_output": [{"role": "assistant", "content": "bad"}],
    }
    transcript = read_one(record)
    assert [head.key for head in transcript.heads if head.active] == ["m2"]
    assert texts(transcript) == [("user", "q"), ("assistant", "good"), ("assistant", "bad")]


def test_what_the_format_cannot_hold_is_told():
    transcript = read_one(
        {"messages": [{"role": "user", "content": "x", "id": "m-1", "timestamp": "2024-01-02T03:04:05Z"}]}
    )
    _, losses = openai.write(next(chains(transcript)), "A title")
    assert [(loss.kind, loss.text) for loss in losses][1:] == [("times", "of 1 message"), ("notes", "id")]
    assert losses[0].kind == "title"


def test_cut_and_damaged_files_are_survived():
    survives_damage(openai_chat, {"a.json": as_bytes(TOOLS), "b.jsonl": lines(TOOLS, TOOLS)})


def test_a_cut_request_keeps_the_messages_before_the_cut():
    data = as_bytes(TOOLS)
    outputs = read_files(openai_chat, {"a.json": data[: data.index(b'"tool_calls"')]})
    assert [role for role, _ in texts(outputs.only)] == ["system", "user"]
    assert outputs.warnings == ["torn-document"]


@pytest.mark.parametrize(
    ("value", "certainty"),
    [
        (TOOLS, Certainty.YES),
        ({"messages": [{"role": "user", "content": "hi"}]}, Certainty.MAYBE),
        ({"object": "chat.completion", "choices": []}, Certainty.YES),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, Certainty.NO),
        ({"mapping": {}}, Certainty.NO),
        ([], Certainty.NO),
    ],
)
def test_the_format_is_told_by_content(value, certainty):
    assert openai_chat.sniff(as_bytes(value), "x") is certainty


@pytest.mark.parametrize(
    ("name", "conversations", "messages"),
    [
        ("openai-chat/taubench-gpt-4o-airline-first.json", 125, 3334),
        ("openai-chat/taubench-MockRetailDomainEnv-few_shot.jsonl", 69, 1955),
        ("damaged/26-openai-bad-arguments.json", 1, 6),
        ("damaged/28-bom-crlf.jsonl", 2, 5),
    ],
)
def test_real_files_give_their_conversations(name, conversations, messages):
    outputs = read_path(openai_chat, real_file(name))
    assert len(outputs.transcripts) == conversations
    assert sum(len(t.entries) for t in outputs.transcripts) == messages
    for transcript in outputs.transcripts[:20]:
        survives_export(openai_chat, openai.write, transcript)
