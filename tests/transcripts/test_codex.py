"""Codex rollouts: three generations, mirrors, forks."""

import json

import pytest

from objstore.message import ReasoningPart, TextPart, ToolCallPart
from objstore.transcripts import codex
from objstore.transcripts.files import BytesSource
from objstore.transcripts.model import Certainty
from objstore.transcripts.peek import start_of
from tests.transcripts.conformance import (
    read_files,
    read_path,
    real_file,
    shape,
    survives_damage,
    survives_odd_values,
    texts,
)


def record(kind, at=0, **payload):
    return {"timestamp": f"2026-06-01T08:00:{at:02}.000Z", "type": kind, "payload": payload}


def item(kind, at=0, **rest):
    return record("response_item", at, **{"type": kind, **rest})


def event(kind, at=0, **rest):
    return record("event_msg", at, **{"type": kind, **rest})


def message(role, text, at=0, **rest):
    block = "output_text" if role == "assistant" else "input_text"
    return item("message", at, role=role, content=[{"type": block, "text": text}], **rest)


META = record("session_meta", id="c-1", timestamp="2026-06-01T07:59:59Z", cwd="/d", cli_version="0.46.0", git={})
TURN = record("turn_context", model="gpt-x", cwd="/d")


def lines(*rows):
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def read(*rows, **files):
    return read_files(codex, {"rollout-x.jsonl": lines(*rows), **files})


def tokens(total, last):
    usage = {"input_tokens": last, "output_tokens": 1, "reasoning_output_tokens": 3}
    return event("token_count", info={"total_token_usage": {"total_tokens": total}, "last_token_usage": usage})


SESSION = (
    META,
    message("user", "<environment_context>\n  <cwd>/d</cwd>\n</environment_context>"),
    event("user_message", 1, message="2+2?"),
    message("user", "2+2?", 1),
    TURN,
    event("agent_reasoning", 2, text="**Adding**"),
    item(
        "reasoning",
        2,
        id="rs",
        summary=[{"type": "summary_text", "text": "**Adding**"}],
        encrypted_content="opaque",
    ),
    item("function_call", 3, id="fc", name="shell", arguments='{"command": ["ls"]}', call_id="call_1"),
    tokens(10, 7),
    item("function_call_output", 4, call_id="call_1", output='{"output": "4"}'),
    event("agent_message", 5, message="4"),
    message("assistant", "4", 5),
    tokens(10, 7),
    tokens(30, 20),
)


def test_events_mirror_items_and_are_no_messages():
    made = read(*SESSION).only
    assert shape(made) == [
        ("user", ("text",)),
        ("user", ("text",)),
        ("assistant", ("reasoning", "tool_call")),
        ("tool", ("tool_result",)),
        ("assistant", ("text",)),
    ]
    assert [entry.note.get("hidden", False) for entry in made.entries] == [True, False, False, False, False]
    assert (made.id, made.created_at, made.model) == ("c-1", "2026-06-01T07:59:59.000Z", "gpt-x")
    assert [(head.label, head.key, head.active) for head in made.heads] == [("c-1", "m5", True)]
    assert not made.warnings


def test_what_must_go_back_is_in_the_message_and_the_rest_in_the_note():
    first, _, answer, output, _ = read(*SESSION).only.entries
    assert answer.message.parts == (
        ReasoningPart("**Adding**", provider_metadata={"openai": {"id": "rs", "encrypted_content": "opaque"}}),
        ToolCallPart("shell", {"command": ["ls"]}, "call_1"),
    )
    assert (answer.at, answer.note["items"]) == ("2026-06-01T08:00:02.000Z", 2)
    assert output.message.parts[0].name == "shell"
    assert first.note["cwd"] == "/d" and first.note["version"] == "0.46.0"


def test_tokens_are_counted_once_for_the_answer_they_follow():
    calls = read(*SESSION).only.calls
    assert [(call.head_input, call.head_output, call.input_tokens) for call in calls] == [
        ("m2", "m3", 7),
        ("m4", "m5", 20),
    ]
    assert calls[0].token_details == {"reasoning_output_tokens": 3}
    assert {call.model for call in calls} == {"gpt-x"}


def test_the_first_generation_has_no_envelope():
    made = read(
        {"id": "c-0", "timestamp": "2025-05-01T10:00:00Z", "instructions": None, "git": {"branch": "main"}},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"record_type": "state"},
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "1"},
        {"type": "function_call_output", "call_id": "1", "output": "ok"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "yo"}]},
    ).only
    assert made.id == "c-0"
    assert [role for role, _ in shape(made)] == ["user", "assistant", "tool", "assistant"]
    assert made.entries[0].note["branch"] == "main"


def test_a_fork_keeps_its_own_identity_and_shares_its_parents_chain():
    parent = (META, message("user", "a"), message("assistant", "b"))
    fork = record("session_meta", id="c-2", forked_from_id="c-1")
    outputs = read(*parent, **{"fork.jsonl": lines(fork, *parent, message("user", "c"))})
    forked, original = outputs.transcripts
    assert (original.id, forked.id) == ("c-1", "c-2")
    assert [entry.message for entry in forked.entries[:2]] == [entry.message for entry in original.entries]
    assert forked.entries[0].note["forked_from"] == "c-1"
    assert [head.label for head in forked.heads] == ["c-2"]


def test_the_larger_of_two_files_of_one_session_is_read():
    outputs = read(META, message("user", "a"), **{"archived.jsonl": lines(META, message("user", "a"), TURN, TURN)})
    assert [transcript.place for transcript in outputs.transcripts] == ["archived.jsonl"]
    assert [(skipped.kind, skipped.place) for skipped in outputs.skipped] == [
        ("duplicate-conversation", "rollout-x.jsonl")
    ]


def test_a_compaction_is_noted_on_the_message_after_it():
    made = read(META, message("user", "a"), record("compacted", message="Summed up"), message("user", "b")).only
    assert texts(made) == [("user", "a"), ("user", "b")]
    assert [entry.note.get("compacted") for entry in made.entries] == [None, "Summed up"]


def test_developer_messages_are_hidden_and_instructions_are_noted():
    meta = record("session_meta", id="c", base_instructions={"text": "Be good."})
    made = read(meta, message("developer", "rules"), message("user", "hi")).only
    assert made.entries[0].message.role == "developer"
    assert made.entries[0].note["hidden"] is True
    assert made.entries[0].note["instructions"] == "Be good."


def test_phases_go_back_to_the_provider():
    made = read(META, message("assistant", "thinking aloud", phase="commentary")).only
    assert made.entries[0].message.parts == (
        TextPart("thinking aloud", provider_metadata={"openai": {"phase": "commentary"}}),
    )


def test_unpaired_calls_and_bad_arguments_are_told():
    outputs = read(
        META,
        item("function_call", name="f", arguments="{cut", call_id="open"),
        item("function_call_output", call_id="gone", output="x"),
        message("user", "next"),
    )
    assert outputs.warnings == ["invalid-arguments", "orphan-tool-result", "unanswered-tool-call"]


def test_a_file_without_a_header_is_called_after_itself():
    assert read_files(codex, {"a/rollout-7.jsonl": lines(message("user", "hi"))}).only.id == "rollout-7"


def test_an_item_whose_type_is_no_text_is_told():
    assert read(META, item([]), message("user", "a")).warnings == ["unknown-item"]


def test_the_format_is_told_by_content():
    def sniff(*rows):
        [file] = BytesSource({"x": lines(*rows)}).files()
        return codex.sniff(start_of(file), "x")

    bare = {"id": "c-0", "timestamp": "2025-05-01T10:00:00Z", "git": None}
    assert sniff(META) is Certainty.YES
    assert sniff(message("user", "hi")) is Certainty.YES
    assert sniff(bare, {"type": "message", "role": "user", "content": []}) is Certainty.YES
    assert sniff({"type": "message", "role": "user", "content": []}) is Certainty.NO
    assert sniff({"type": "user", "uuid": "u", "message": {}}) is Certainty.NO


def test_damage_never_raises():
    survives_damage(codex, {"a.jsonl": lines(*SESSION)})
    survives_odd_values(codex, {"a.jsonl": lines(*SESSION)})


@pytest.mark.parametrize("name", ["23-codex-event-mirrors"])
def test_the_damaged_samples_give_the_right_result(name):
    outputs = read_path(codex, real_file(f"damaged/{name}.jsonl"))
    assert [role for role, _ in shape(outputs.only)] == ["user", "user", "assistant", "tool", "assistant"]
    assert outputs.only.entries[0].note["hidden"] is True
    assert len(outputs.only.heads) == 1
    assert outputs.warnings == []
