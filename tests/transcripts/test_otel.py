import json

import pytest

from objstore.transcripts import otel
from objstore.transcripts.model import Certainty
from tests.transcripts.conformance import parents, read_files, read_path, real_file, shape, survives_damage, texts
from tests.transcripts.roundtrip import as_bytes, lines


def text(role, words):
    return {"role": role, "parts": [{"type": "text", "content": words}]}


def span(number, sent, answers, **more):
    return {
        "traceId": "t" * 32,
        "spanId": f"s{number}",
        "startTimeUnixNano": str(1_700_000_000_000_000_000 + number * 10**9),
        "endTimeUnixNano": str(1_700_000_000_500_000_000 + number * 10**9),
        "attributes": {
            "gen_ai.conversation.id": "c1",
            "gen_ai.request.model": "m",
            "gen_ai.response.id": f"r{number}",
            "gen_ai.usage.input_tokens": number,
            "gen_ai.input.messages": sent,
            "gen_ai.output.messages": answers,
            **more,
        },
    }


def export(*spans):
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


TALK = export(
    span(1, json.dumps([text("user", "a")]), [{**text("assistant", "b"), "finish_reason": "stop"}]),
    span(
        2,
        [text("user", "a"), text("assistant", "b"), text("user", "c")],
        [text("assistant", "d"), text("assistant", "e")],
        **{"gen_ai.system_instructions": [{"type": "text", "content": "s"}], "gen_ai.request.temperature": 0.5},
    ),
)


def test_spans_that_repeat_their_history_are_one_tree_and_choices_are_siblings():
    transcript = read_files(otel, {"a.json": as_bytes(TALK)}).only
    assert transcript.id == "c1"
    assert texts(transcript) == [
        *(("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"), ("assistant", "e"))
    ]
    assert parents(transcript) == {"m1": None, "m2": "m1", "m3": "m2", "m4": "m3", "m5": "m3"}
    assert [(head.key, head.active) for head in transcript.heads] == [("m4", True), ("m5", False)]


def test_each_call_is_told_with_its_time_and_options():
    transcript = read_files(otel, {"a.json": as_bytes(TALK)}).only
    first, second = transcript.calls
    assert (first.id, first.head_input, first.head_output, first.input_tokens) == ("r1", "m1", "m2", 1)
    assert (first.started_at, first.duration_ms) == ("2023-11-14T22:13:21.000Z", 500)
    assert second.options == {"temperature": 0.5, "system_instructions": [{"type": "text", "content": "s"}]}


def test_all_parts_are_read_and_those_not_known_are_kept():
    parts = [
        {"type": "reasoning", "content": "hm"},
        {"type": "tool_call", "id": "c", "name": "f", "arguments": {"x": 1.5}},
        {"type": "server_tool_call", "id": "s", "name": "code", "server_tool_call": {"code": "1"}},
        {"type": "server_tool_call_response", "id": "s", "server_tool_call_response": {"out": []}},
        {"type": "blob", "modality": "image", "content": "iVBORw0KGgo="},
        {"type": "uri", "modality": "image", "mime_type": "image/png", "uri": "https://example.com/a.png"},
        {"type": "file", "file_id": "f1"},
        {"type": "novel", "x": 1},
    ]
    answered = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": {"ok": 1}}]}
    data = as_bytes(export(span(1, [text("user", "q"), {"role": "assistant", "parts": parts}, answered], [])))
    transcript = read_files(otel, {"a.json": data}).only
    kinds = shape(transcript)[1][1]
    assert kinds == (
        *("reasoning", "tool_call", "tool_call", "tool_result", "attachment", "attachment", "attachment", ""),
    )
    result = transcript.entries[2].message.parts[0]
    assert (result.name, result.output) == ("f", '{"ok":1}')
    assert [warn.kind for warn in transcript.warnings] == ["unknown-part"]


def test_typed_values_of_the_protocol_are_read():
    message = {
        "kvlistValue": {
            "values": [
                {"key": "role", "value": {"stringValue": "user"}},
                {
                    "key": "parts",
                    "value": {
                        "arrayValue": {
                            "values": [
                                {
                                    "kvlistValue": {
                                        "values": [
                                            {"key": "type", "value": {"stringValue": "text"}},
                                            {"key": "content", "value": {"stringValue": "hi"}},
                                        ]
                                    }
                                }
                            ]
                        }
                    },
                },
            ]
        }
    }
    attributes = [
        {"key": "gen_ai.request.model", "value": {"stringValue": "m"}},
        {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "7"}},
        {"key": "gen_ai.input.messages", "value": {"arrayValue": {"values": [message]}}},
    ]
    data = as_bytes(export({"traceId": "t1", "spanId": "s1", "attributes": attributes}))
    transcript = read_files(otel, {"a.json": data}).only
    assert (transcript.id, texts(transcript)) == ("t1", [("user", "hi")])
    assert (transcript.calls[0].id, transcript.calls[0].output_tokens) == ("s1", 7)


def test_older_spans_with_an_event_for_each_message_are_read():
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    events = [
        {"name": "gen_ai.system.message", "attributes": {"gen_ai.event.content": '{"content": "s"}'}},
        {"name": "gen_ai.user.message", "attributes": {"content": "q"}},
        {"name": "gen_ai.assistant.message", "attributes": {"tool_calls": json.dumps([call])}},
        {"name": "gen_ai.tool.message", "attributes": {"id": "c1", "content": "42"}},
        {
            "name": "gen_ai.choice",
            "attributes": {"index": 0, "message": '{"content": "a"}', "finish_reason": "stop"},
        },
    ]
    data = as_bytes([{"traceId": "t", "spanId": "s", "attributes": {"gen_ai.system": "x"}, "events": events}])
    transcript = read_files(otel, {"a.json": data}).only
    assert [role for role, _ in texts(transcript)] == ["system", "user", "assistant", "tool", "assistant"]
    assert transcript.entries[3].message.parts[0].name == "f"
    assert transcript.warnings == []


def test_log_records_of_one_span_are_one_call():
    records = [
        {"spanId": "s", "traceId": "t", "eventName": "gen_ai.user.message", "body": {"content": "q"}},
        {
            "spanId": "s",
            "traceId": "t",
            "attributes": [{"key": "event.name", "value": {"stringValue": "gen_ai.choice"}}],
            "body": {
                "kvlistValue": {
                    "values": [
                        {"key": "message", "value": {"stringValue": '{"role": "assistant", "content": "a"}'}}
                    ]
                }
            },
        },
    ]
    data = as_bytes({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]})
    assert texts(read_files(otel, {"a.json": data}).only) == [("user", "q"), ("assistant", "a")]


def test_numbered_attributes_are_read():
    attributes = {
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "q",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.tool_calls.0.name": "f",
        "gen_ai.completion.0.tool_calls.0.arguments": '{"a": 1}',
    }
    transcript = read_files(otel, {"a.jsonl": lines({"spanId": "s", "attributes": attributes})}).only
    assert shape(transcript) == [("user", ("text",)), ("assistant", ("tool_call",))]


def test_a_conversation_may_lie_in_several_files():
    spans = TALK["resourceSpans"][0]["scopeSpans"][0]["spans"]
    files = {"a.json": as_bytes(export(spans[0])), "b.json": as_bytes(export(spans[1]))}
    assert len(read_files(otel, files).only.entries) == 5


def test_spans_that_say_nothing_are_skipped():
    outputs = read_files(otel, {"a.json": as_bytes(export({"attributes": {"gen_ai.system": "x"}}))})
    assert [skipped.kind for skipped in outputs.skipped] == ["no-messages"]


def test_cut_and_damaged_files_are_survived():
    survives_damage(otel, {"a.json": as_bytes(TALK), "b.jsonl": lines(TALK, TALK)})


@pytest.mark.parametrize(
    ("value", "certainty"),
    [
        (TALK, Certainty.YES),
        ({"resourceSpans": []}, Certainty.MAYBE),
        ([{"attributes": {"gen_ai.prompt": "x"}}], Certainty.YES),
        ([{"attributes": {"http.method": "GET"}}], Certainty.NO),
        ({"messages": []}, Certainty.NO),
    ],
)
def test_the_format_is_told_by_content(value, certainty):
    assert otel.sniff(as_bytes(value), "x") is certainty


def test_the_real_trace_gives_five_messages():
    transcript = read_path(otel, real_file("otel/otel-genai-spans.json")).only
    assert len(transcript.entries) == 5
    assert len(transcript.heads) == 2
    assert [call.id for call in transcript.calls] == ["r1", "r2"]
    assert transcript.warnings == []
