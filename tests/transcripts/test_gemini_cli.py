"""Gemini CLI: documents, logs of changes, results that stand there twice."""

import json

from objstore.message import ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from objstore.transcripts import gemini_cli
from objstore.transcripts.files import BytesSource
from objstore.transcripts.model import Certainty
from objstore.transcripts.peek import start_of
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

ABOUT = {"sessionId": "g-1", "projectHash": "ab" * 32, "startTime": "2026-07-01T00:00:00.000Z"}


def turn(kind, id, content="", **more):
    return {"id": id, "timestamp": "2026-07-01T00:00:01.000Z", "type": kind, "content": content, **more}


def answered(id, output="hi", **more):
    response = {"functionResponse": {"id": id, "name": "sh", "response": {"output": output}}}
    return {"id": id, "name": "sh", "args": {"c": "echo"}, "result": [response], "status": "success", **more}


def document(*turns, **more):
    return json.dumps({**ABOUT, "messages": list(turns), **more}).encode()


def read(*turns, **more):
    return read_files(gemini_cli, {"session-1.json": document(*turns, **more)})


def read_log(*records):
    return read_files(gemini_cli, {"session-1.jsonl": b"".join(json.dumps(r).encode() + b"\n" for r in records)})


TURNS = (
    turn("user", "1", [{"text": "say hi"}]),
    turn(
        "gemini",
        "2",
        "Running.",
        thoughts=[{"subject": "Plan", "description": "call it"}],
        toolCalls=[answered("sh-1")],
        tokens={"input": 5, "output": 2, "cached": 1, "total": 7},
        model="gemini-x",
    ),
    turn("user", "3", [answered("sh-1")["result"][0]]),
    turn("info", "4", "Checkpoint saved"),
    turn("gemini", "5", "hi", model="gemini-x"),
)


def test_a_turn_with_its_results_is_an_answer_and_a_tool_message():
    made = read(*TURNS, summary="Greeting").only
    _, answer, output, last = made.entries
    assert answer.message.parts == (
        ReasoningPart("Plan\ncall it"),
        TextPart("Running."),
        ToolCallPart("sh", {"c": "echo"}, "sh-1"),
    )
    assert output.message.role == "tool"
    assert output.message.parts == (ToolResultPart("sh", "hi", "sh-1"),)
    assert parents(made) == {"1": None, "2": "1", "2/results": "2", "5": "2/results"}
    assert (made.id, made.title, made.model, made.created_at) == (
        "g-1",
        "Greeting",
        "gemini-x",
        ABOUT["startTime"],
    )
    assert last.note == {"id": "5", "model": "gemini-x"}


def test_a_result_that_is_told_again_is_taken_once():
    outputs = read(*TURNS)
    assert [role for role, _ in shape(outputs.only)] == ["user", "assistant", "tool", "assistant"]
    assert outputs.warnings == ["duplicate-tool-result"]


def test_a_result_that_differs_is_kept():
    other = turn("user", "3", [answered("sh-1", "something else")["result"][0]])
    outputs = read(*TURNS[:2], other)
    assert [role for role, _ in shape(outputs.only)] == ["user", "assistant", "tool", "tool"]


def test_a_result_told_only_as_a_turn_is_a_tool_message():
    call = answered("sh-1") | {"result": None}
    made = read(TURNS[0], turn("gemini", "2", toolCalls=[call]), TURNS[2]).only
    assert shape(made) == [("user", ("text",)), ("assistant", ("tool_call",)), ("tool", ("tool_result",))]


def test_a_call_is_told_with_its_tokens():
    [call] = read(*TURNS).only.calls
    assert (call.model, call.head_input, call.head_output) == ("gemini-x", "1", "2")
    assert (call.input_tokens, call.output_tokens, call.token_details) == (5, 2, {"cached": 1})


def test_a_failed_call_is_an_exception():
    failed = answered("x")
    failed["result"][0]["functionResponse"]["response"] = {"error": "no such file"}
    part = read(turn("user", "1", "a"), turn("gemini", "2", toolCalls=[failed])).only.entries[2].message.parts[0]
    assert part.exception == "no such file"


def test_injected_context_is_hidden_and_what_was_shown_is_noted():
    made = read(
        turn("user", "1", "This is the Gemini CLI. We are setting up the context for our chat."),
        turn("user", "2", "@file expanded", displayContent="@file"),
    ).only
    assert made.entries[0].note["hidden"] is True
    assert made.entries[1].note["display"] == "@file"


def test_two_messages_of_one_id_are_both_kept_and_told():
    outputs = read(turn("user", "1", "a"), turn("user", "1", "b"))
    assert texts(outputs.only) == [("user", "a"), ("user", "b")]
    assert outputs.warnings == ["duplicate-id"]


def test_in_the_log_a_message_of_the_same_id_replaces():
    made = read_log(ABOUT, turn("user", "1", "a"), turn("gemini", "2", "par"), turn("gemini", "2", "partial")).only
    assert texts(made) == [("user", "a"), ("assistant", "partial")]


def test_what_the_log_takes_back_stays_as_a_branch():
    made = read_log(
        ABOUT,
        turn("user", "1", "a"),
        turn("gemini", "2", "b"),
        turn("user", "3", "c"),
        {"$rewindTo": "3"},
        turn("user", "4", "d"),
    ).only
    assert parents(made) == {"1": None, "2": "1", "3": "2", "4": "2"}
    assert [(head.label, head.key, head.active) for head in made.heads] == [
        ("g-1/3", "3", False),
        ("g-1", "4", True),
    ]


def test_rewinding_to_an_unknown_message_takes_everything_back():
    made = read_log(ABOUT, turn("user", "1", "a"), {"$rewindTo": "?"}, turn("user", "2", "b")).only
    assert parents(made) == {"1": None, "2": None}


def test_a_set_list_goes_on_as_far_as_it_is_the_same():
    made = read_log(
        ABOUT,
        turn("user", "1", "a"),
        turn("gemini", "2", "b"),
        {"$set": {"summary": "T", "messages": [turn("user", "1", "a"), turn("gemini", "9", "compressed")]}},
        turn("user", "4", "d"),
    ).only
    assert parents(made) == {"1": None, "2": "1", "9": "1", "4": "9"}
    assert made.title == "T"
    assert [head.key for head in made.heads if head.active] == ["4"]


def test_the_larger_of_two_files_of_one_session_is_read():
    files = {"a.json": document(TURNS[0]), "b.json": document(*TURNS)}
    outputs = read_files(gemini_cli, files)
    assert [transcript.place for transcript in outputs.transcripts] == ["b.json"]
    assert [skipped.kind for skipped in outputs.skipped] == ["duplicate-conversation"]


def test_a_cut_document_gives_the_turns_before_the_cut():
    data = document(*TURNS)
    outputs = read_files(gemini_cli, {"a.json": data[: data.index(b"Checkpoint")]})
    assert [role for role, _ in shape(outputs.only)] == ["user", "assistant", "tool"]
    assert "torn-document" in outputs.warnings


def test_the_format_is_told_by_content():
    def sniff(data):
        [file] = BytesSource({"x": data}).files()
        return gemini_cli.sniff(start_of(file), "x")

    assert sniff(document(*TURNS)) is Certainty.YES
    assert sniff(json.dumps(ABOUT).encode() + b"\n" + json.dumps(TURNS[0]).encode()) is Certainty.YES
    assert sniff(json.dumps({"sessionId": "x", "messages": [TURNS[4]]}).encode()) is Certainty.YES
    assert sniff(b'{"messages": [{"role": "user", "content": "x"}]}') is Certainty.NO


def test_damage_never_raises():
    log = b"".join(
        json.dumps(each).encode() + b"\n"
        for each in (ABOUT, *TURNS, {"$rewindTo": "2"}, {"$set": {"messages": list(TURNS[:2])}}, TURNS[4])
    )
    for files in ({"a.json": document(*TURNS)}, {"a.jsonl": log}):
        survives_damage(gemini_cli, files)
        survives_odd_values(gemini_cli, files)


def test_the_damaged_sample_gives_the_right_result():
    outputs = read_path(gemini_cli, real_file("damaged/25-gemini-tool-result-twice.json"))
    assert shape(outputs.only) == [
        ("user", ("text",)),
        ("assistant", ("reasoning", "text", "tool_call")),
        ("tool", ("tool_result",)),
        ("assistant", ("text",)),
    ]
    assert len(outputs.only.heads) == 1
    assert outputs.warnings == ["duplicate-tool-result"]


def test_one_id_many_times_in_a_set_list_gives_as_many_messages():
    same = [turn("user", "1", str(i)) for i in range(5)]
    made = read_log(ABOUT, turn("user", "1~2", "x"), {"$set": {"messages": same}}).only
    assert [text for _, text in texts(made)] == ["x", "0", "1", "2", "3", "4"]
