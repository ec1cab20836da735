import json

import pytest

from objstore.message import Message, ReasoningPart, ToolResultPart
from objstore.transcripts import gemini_contents
from objstore.transcripts.export import gemini
from objstore.transcripts.export.model import ExportEntry
from objstore.transcripts.model import Certainty
from tests.transcripts.conformance import read_files, shape, survives_damage, texts
from tests.transcripts.roundtrip import as_bytes, chains, lines, survives_export

TALK = {
    "systemInstruction": {"parts": [{"text": "Be kind."}]},
    "contents": [
        {
            "role": "user",
            "parts": [
                {"text": "look"},
                {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
                {
                    "fileData": {"mimeType": "video/mp4", "fileUri": "gs://v"},
                    "videoMetadata": {"fps": 2.5},
                },
            ],
        },
        {
            "role": "model",
            "parts": [
                {"text": "hm", "thought": True, "thoughtSignature": "c2ln"},
                {"text": "ok"},
                {"functionCall": {"name": "f", "args": {"b": 1, "a": 2.5}}, "thoughtSignature": "c2lnMg=="},
                {"functionCall": {"id": "c2", "name": "g", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "f", "response": {"output": "one"}}},
                {"functionResponse": {"id": "c2", "name": "g", "response": {"error": "no"}}},
                {"functionResponse": {"name": "h", "response": {"deep": [1.5, None]}}},
            ],
        },
        {
            "role": "model",
            "parts": [
                {"executableCode": {"language": "PYTHON", "code": "1/0"}},
                {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "ZeroDivisionError"}},
                {"text": ""},
            ],
        },
    ],
}


def read_one(value):
    return read_files(gemini_contents, {"a.json": as_bytes(value)}).only


def test_contents_become_messages_and_function_answers_a_message_of_role_tool():
    transcript = read_one(TALK)
    assert shape(transcript) == [
        ("system", ("text",)),
        ("user", ("text", "attachment", "attachment")),
        ("assistant", ("reasoning", "text", "tool_call", "tool_call")),
        ("tool", ("tool_result", "tool_result", "tool_result")),
        ("assistant", ("tool_call", "tool_result", "text")),
    ]
    assert transcript.warnings == []
    thought = transcript.entries[2].message.parts[0]
    assert isinstance(thought, ReasoningPart)
    assert thought.provider_metadata == {"google": {"thought_signature": "c2ln"}}
    one, failed, deep = transcript.entries[3].message.parts
    assert (one.output, failed.exception, failed.output, deep.output) == ("one", "no", "", '{"deep":[1.5,null]}')


def test_export_gives_the_same_request():
    transcript = read_one(TALK)
    assert survives_export(gemini_contents, gemini.write, transcript) == []
    assert json.loads(gemini.write(next(chains(transcript)))[0]) == TALK


def test_snake_case_and_loose_shapes_are_read():
    loose = [
        {"parts": "hi"},
        {"role": "model", "parts": {"function_call": {"name": "f", "args": {"a": 1}}}},
        {"role": "function", "parts": [{"function_response": {"name": "f", "response": "plain"}}]},
        {"role": "model", "parts": [{"inline_data": {"mime_type": "image/png", "data": "iVBORw0KGgo="}}]},
    ]
    transcript = read_one(loose)
    assert shape(transcript) == [
        ("user", ("text",)),
        ("assistant", ("tool_call",)),
        ("tool", ("tool_result",)),
        ("assistant", ("attachment",)),
    ]
    assert survives_export(gemini_contents, gemini.write, transcript) == []
    written = json.loads(gemini.write(next(chains(transcript)))[0])["contents"]
    assert written[2] == {"role": "function", "parts": [{"functionResponse": {"name": "f", "response": "plain"}}]}


def test_candidates_are_siblings_and_the_call_is_told():
    pair = {
        "request": {"model": "gemini-x", "contents": "q"},
        "response": {
            "responseId": "r1",
            "modelVersion": "gemini-x-1",
            "candidates": [
                {"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP", "index": 0},
                {"content": {"role": "model", "parts": [{"text": "b"}]}},
            ],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 2, "thoughtsTokenCount": 3},
        },
    }
    transcript = read_one(pair)
    assert texts(transcript) == [("user", "q"), ("assistant", "a"), ("assistant", "b")]
    assert len(transcript.heads) == 2
    (call,) = transcript.calls
    assert (call.model, call.input_tokens, call.output_tokens) == ("gemini-x", 1, 2)
    assert call.token_details == {"thoughtsTokenCount": 3}


def test_a_result_that_looks_like_json_comes_back_as_the_text_that_it_was():
    outputs = ['{"a": 1}', '{"a":1}', '{"output":"x"}', "", "plain", "[1]"]
    chain = [ExportEntry(Message("tool", [ToolResultPart("f", each) for each in outputs]))]
    text, losses = gemini.write(chain)
    again = read_files(gemini_contents, {"a.json": text.encode()}).only
    assert [part.output for part in again.entries[0].message.parts] == outputs
    assert losses == []


def test_a_part_that_is_not_known_is_kept():
    transcript = read_one({"contents": [{"role": "user", "parts": [{"toolThing": {"x": 1}}]}]})
    assert [warn.kind for warn in transcript.warnings] == ["unknown-part"]


def test_cut_and_damaged_files_are_survived():
    survives_damage(gemini_contents, {"a.json": as_bytes(TALK), "b.jsonl": lines(*TALK["contents"])})


@pytest.mark.parametrize(
    ("value", "certainty"),
    [
        (TALK, Certainty.YES),
        (TALK["contents"], Certainty.YES),
        ({"candidates": [{"content": {"parts": [{"text": "x"}]}}]}, Certainty.YES),
        ([{"role": "user", "parts": [{"type": "text", "content": "x"}]}], Certainty.NO),
        ({"messages": [{"role": "user", "content": "hi"}]}, Certainty.NO),
    ],
)
def test_the_format_is_told_by_content(value, certainty):
    assert gemini_contents.sniff(as_bytes(value), "x") is certainty
