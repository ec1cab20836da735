import json
from pathlib import Path

import pytest

from objstore.transcripts import openprogram
from objstore.transcripts.model import Certainty
from tests.transcripts.conformance import parents, read_files, shape, survives_damage, texts
from tests.transcripts.roundtrip import as_bytes, lines

VECTORS = Path(__file__).parents[3] / "shared" / "vectors" / "call-hierarchy.json"


def node(number, key, role, output=None, **more):
    return {"id": key, "seq": number, "created_at": 1700000000.5 + number, "role": role, "output": output, **more}


TALK = [
    node(0, "ROOT", "user", predecessor=None, caller="", metadata={"display": "root"}),
    node(1, "u1", "user", "ask", predecessor="ROOT", caller="ROOT"),
    node(
        *(2, "l1", "llm", "answer"),
        name="m-1",
        predecessor="u1",
        caller="",
        metadata={"blocks": [{"type": "thinking", "text": "hm"}, {"type": "text", "text": "answer"}]},
    ),
    node(
        *(3, "c1", "code", {"found": 1}),
        name="search",
        input={"q": "x"},
        caller="l1",
        metadata={"tool_call_id": "t1", "expose": "io"},
    ),
    node(4, "i1", "llm", "inner", name="m-2", input="look into x", caller="c1", predecessor=None),
    node(5, "u2", "user", "more", predecessor="l1", caller="ROOT"),
    node(6, "l2", "llm", "done", predecessor="u2", caller=""),
    node(7, "l2b", "llm", "done differently", predecessor="u2", caller=""),
    node(8, "s1", "user", "spawned", predecessor=None, caller="l2"),
    node(9, "s2", "llm", "sure", predecessor="s1", caller=""),
    node(
        10, "sum", "llm", "so far", name="context/summary", predecessor=None, metadata={"covers_ids": ["u1", "l1"]}
    ),
]
META = {"id": "sess", "title": "A talk", "head_id": "l2b", "created_at": 1700000000.0, "model": "m-1"}


def session(nodes=TALK, meta=META, folder="sessions/sess"):
    letters = {"user": "u", "llm": "l", "code": "c"}
    files = {
        f"{folder}/history/{each['seq']:04d}-{letters[each['role']]}-{each['id']}.json": as_bytes(each)
        for each in nodes
    }
    return {**files, f"{folder}/meta.json": as_bytes(meta)}


def test_a_turn_that_ran_functions_is_the_call_its_results_and_what_was_said_in_the_end():
    transcript = read_files(openprogram, session()).only
    assert (transcript.id, transcript.title, transcript.model) == ("sess", "A talk", "m-1")
    assert parents(transcript) == {
        "u1": None,
        "l1:calls": "u1",
        "c1": "l1:calls",
        "l1": "c1",
        "i1:input": None,
        "i1": "i1:input",
        "u2": "l1",
        "l2": "u2",
        "l2b": "u2",
        "s1": None,
        "s2": "s1",
        "sum": None,
    }
    assert shape(transcript)[1:4] == [
        ("assistant", ("reasoning", "tool_call")),
        ("tool", ("tool_result",)),
        ("assistant", ("text",)),
    ]
    by_key = {entry.key: entry for entry in transcript.entries}
    assert by_key["c1"].message.parts[0].output == '{"found":1}'
    assert by_key["c1"].note["expose"] == "io"
    assert by_key["sum"].note["covers"] == ["u1", "l1"]
    assert by_key["u1"].at == "2023-11-14T22:13:21.500Z"
    assert transcript.warnings == []


def test_what_a_function_asked_and_what_was_spawned_are_chains_of_their_own():
    by_key = {entry.key: entry for entry in read_files(openprogram, session()).only.entries}
    assert (by_key["i1:input"].called_by, by_key["i1:input"].tool_call_id) == ("l1:calls", "t1")
    assert by_key["i1"].called_by is None
    assert (by_key["s1"].called_by, by_key["s1"].tool_call_id) == ("l2", None)


def test_the_head_and_the_calls_are_told():
    transcript = read_files(openprogram, session()).only
    assert [head.key for head in transcript.heads if head.active] == ["l2b"]
    assert [(call.model, call.head_input, call.head_output) for call in transcript.calls] == [
        ("m-1", "u1", "l1"),
        ("m-2", "i1:input", "i1"),
    ]


def test_older_names_and_message_rows_say_the_same():
    rows = [
        {"id": "u1", "role": "user", "content": "ask", "timestamp": 1, "parent_id": "ROOT", "called_by": ""},
        {
            "id": "a1",
            "role": "assistant",
            "content": "answer",
            "parent_id": "u1",
            "called_by": "",
            "token_model": "m",
        },
        {
            "id": "t1",
            "role": "tool",
            "content": "ok",
            "function": "bash",
            "extra": json.dumps({"tool_use": {"caller": "a1", "arguments": {"cmd": "ls"}}}),
            "predecessor": "",
        },
        {"id": "u2", "role": "user", "content": "and?", "parent_id": "a1", "called_by": None},
    ]
    for data in (as_bytes(rows), lines(*rows), as_bytes({"id": "x", "head_id": "u2", "messages": rows})):
        transcript = read_files(openprogram, {"a": data}).only
        assert texts(transcript) == [
            *(("user", "ask"), ("assistant", ""), ("tool", ""), ("assistant", "answer"), ("user", "and?"))
        ]
        assert transcript.entries[1].message.parts[0].arguments == {"cmd": "ls"}


def test_a_function_that_nobody_called_is_a_message_of_its_own():
    nodes = [node(1, "c1", "code", "out", name="f", input={"a": 1}, caller="ROOT")]
    transcript = read_files(openprogram, session(nodes)).only
    assert shape(transcript) == [("code", ("tool_call", "tool_result"))]


def test_functions_that_call_functions_hang_on_their_callers():
    nodes = [
        node(1, "c1", "code", "out", name="f", caller="ROOT"),
        node(2, "c2", "code", "in", name="g", caller="c1"),
        node(3, "l1", "llm", "said", caller="c2"),
    ]
    entries = {entry.key: entry for entry in read_files(openprogram, session(nodes)).only.entries}
    assert [(key, entry.called_by, entry.tool_call_id) for key, entry in entries.items()] == [
        ("c1", None, None),
        ("c2", "c1", "c1"),
        ("l1", "c2", "c2"),
    ]


def test_a_node_written_again_holds_as_it_was_last_and_spilled_text_is_found():
    nodes = [
        node(1, "u1", "user", "first", predecessor="ROOT"),
        node(2, "l1", "llm", "large_nodes/l1.txt", predecessor="u1"),
    ]
    files = session(nodes)
    files["sessions/sess/history/0003-u-u1.json"] = as_bytes(node(1, "u1", "user", "changed", predecessor="ROOT"))
    files["sessions/sess/large_nodes/l1.txt"] = b"a very long text"
    outputs = read_files(openprogram, files)
    assert texts(outputs.transcripts[0]) == [("user", "changed"), ("assistant", "a very long text")]


def test_cycles_and_callers_that_are_not_there_are_told():
    nodes = [
        node(1, "x", "user", "1", predecessor="y"),
        node(2, "y", "llm", "2", predecessor="x"),
        node(3, "z", "llm", "3", predecessor=None, caller="gone"),
        node(4, "p", "llm", "4", caller="q"),
        node(5, "q", "llm", "5", caller="p"),
    ]
    outputs = read_files(openprogram, session(nodes))
    assert outputs.warnings == ["missing-caller", "parent-cycle", "parent-cycle"]
    assert len(outputs.only.entries) == 5


def test_sessions_are_read_apart():
    files = {**session(), **session(meta={**META, "id": "other"}, folder="sessions/other")}
    assert sorted(t.id for t in read_files(openprogram, files).transcripts) == ["other", "sess"]


def test_cut_and_damaged_files_are_survived():
    survives_damage(openprogram, {"a.jsonl": lines(*TALK), **session(TALK[:3])}, cuts=15, flips=15)


@pytest.mark.parametrize(
    ("value", "certainty"),
    [
        (TALK[2], Certainty.YES),
        (TALK, Certainty.YES),
        (META, Certainty.YES),
        ([{"role": "user", "content": "x"}], Certainty.NO),
        ({"messages": [{"role": "user", "content": "x"}]}, Certainty.NO),
    ],
)
def test_the_format_is_told_by_content(value, certainty):
    assert openprogram.sniff(as_bytes(value), "x") is certainty


def test_histories_are_those_that_the_program_itself_gives():
    if not VECTORS.exists():
        pytest.skip("the shared vectors are not beside this checkout")
    cases = json.loads(VECTORS.read_text("utf-8"))["linear_history"]
    for case in cases:
        if case["name"] == "cycle terminates":
            continue  # a cycle is cut at its earliest record, not where the walk happens to end
        rows = [{"content": "x", "caller": "", **row} for row in case["msgs"]]
        transcript = read_files(openprogram, {"a.json": as_bytes(rows)}).only
        above, key, chain = parents(transcript), case["head"], []
        while key in above:
            chain.append(key)
            key = above[key]
        assert chain[::-1] == case["ids"], case["name"]
