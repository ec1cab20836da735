import json

import pytest

from objstore.message import ToolCallPart, ToolResultPart
from objstore.transcripts import sharegpt
from objstore.transcripts.export import sharegpt as writer
from objstore.transcripts.model import Certainty
from tests.transcripts.conformance import read_files, read_path, real_file, survives_damage, texts
from tests.transcripts.roundtrip import as_bytes, chains, lines, survives_export

TALK = {
    "id": "c1",
    "system": "Be kind.",
    "conversations": [
        {"from": "human", "value": "a"},
        {"from": "function_call", "value": '{"name": "f", "arguments": {"b": 1, "a": 2}}'},
        {"from": "observation", "value": "seen"},
        {"from": "gpt", "value": "", "weight": 0},
        {"from": "chatgpt", "value": None},
    ],
}


def read_one(value):
    return read_files(sharegpt, {"a.json": as_bytes(value)}).only


def test_speakers_become_roles_and_tools_are_recognised():
    transcript = read_one([TALK])
    assert [entry.message.role for entry in transcript.entries] == [
        *("system", "user", "assistant", "tool", "assistant", "assistant")
    ]
    called = transcript.entries[2].message.parts[0]
    assert isinstance(called, ToolCallPart)
    assert called.arguments == {"a": 2, "b": 1}
    assert isinstance(transcript.entries[3].message.parts[0], ToolResultPart)
    assert transcript.entries[4].note["weight"] == 0
    assert transcript.entries[5].note["from"] == "chatgpt"
    assert transcript.id == "a.json#c1"


def test_export_gives_the_same_turns():
    transcript = read_one(TALK)
    assert {loss.kind for loss in survives_export(sharegpt, writer.write, transcript)} == {"notes"}
    (written,) = json.loads(writer.write(next(chains(transcript)), "T")[0])
    assert written["title"] == "T"
    given = [{key: turn[key] for key in ("from", "value")} for turn in TALK["conversations"]]
    assert written["conversations"][1:] == given


def test_a_speaker_that_is_not_known_is_a_role_of_that_name_and_told():
    transcript = read_one([{"conversations": [{"from": "Narrator", "value": "x"}, {"value": "y"}, 5]}])
    assert texts(transcript) == [("Narrator", "x")]
    assert [warn.kind for warn in transcript.warnings] == ["unknown-role", "missing-role", "not-a-message"]
    survives_export(sharegpt, writer.write, transcript)


def test_other_names_for_the_list_and_bare_turns_are_read():
    turns = [{"from": "human", "value": "a"}, {"from": "gpt", "text": "b"}]
    said = [("user", "a"), ("assistant", "b")]
    assert texts(read_one([{"items": turns}])) == said
    assert texts(read_one({"conversation": turns})) == said
    assert texts(read_one(turns)) == said


def test_a_cut_array_gives_what_comes_before_the_cut():
    data = as_bytes([{"id": f"c{i}", "conversations": [{"from": "human", "value": str(i)}]} for i in range(5)])
    outputs = read_files(sharegpt, {"a.json": data[:-40]})
    assert [texts(t) for t in outputs.transcripts] == [[("user", str(i))] for i in range(4)]
    assert [skipped.kind for skipped in outputs.skipped] == ["torn-document"]


def test_ids_used_twice_name_two_conversations():
    one = {"id": "x", "conversations": [{"from": "human", "value": "a"}]}
    outputs = read_files(sharegpt, {"a.jsonl": lines(one, one), "b.jsonl": lines(one)})
    assert len({t.id for t in outputs.transcripts}) == 3


def test_empty_conversations_are_skipped():
    outputs = read_files(sharegpt, {"a.json": as_bytes([{"id": "e", "conversations": []}, TALK])})
    assert [skipped.kind for skipped in outputs.skipped] == ["no-messages"]
    assert len(outputs.transcripts) == 1


def test_cut_and_damaged_files_are_survived():
    survives_damage(sharegpt, {"a.json": as_bytes([TALK]), "b.jsonl": lines(TALK, TALK)})


@pytest.mark.parametrize(
    ("value", "certainty"),
    [
        ([TALK], Certainty.YES),
        (TALK["conversations"], Certainty.YES),
        ({"messages": [{"role": "user", "content": "x"}]}, Certainty.NO),
        ({"conversations": [{"mapping": {}}]}, Certainty.NO),
    ],
)
def test_the_format_is_told_by_content(value, certainty):
    assert sharegpt.sniff(as_bytes(value), "x") is certainty


def test_real_conversations_are_read_and_written_back():
    outputs = read_path(sharegpt, real_file("sharegpt/fastchat-dummy_conversation.json"))
    assert (len(outputs.transcripts), sum(len(t.entries) for t in outputs.transcripts)) == (500, 2000)
    for transcript in outputs.transcripts[:20]:
        assert survives_export(sharegpt, writer.write, transcript) == []
