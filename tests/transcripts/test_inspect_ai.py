import io
import zipfile

import pytest

from objstore.message import ReasoningPart
from objstore.transcripts import inspect_ai
from objstore.transcripts.files import BytesFile, ZipSource
from objstore.transcripts.model import Certainty
from tests.transcripts.conformance import (
    read_files,
    read_path,
    read_source,
    real_file,
    shape,
    survives_damage,
    texts,
)
from tests.transcripts.roundtrip import as_bytes

LONG = "0123456789abcdef0123456789abcdef"
PIXEL = "data:image/png;base64,iVBORw0KGgo="
HEADER = {
    "version": 2,
    "status": "success",
    "eval": {"run_id": "run", "task": "quiz", "model": "m", "created": "2025-01-02T03:04:05+01:00"},
    "plan": {},
}
SAMPLE = {
    "id": "s1",
    "epoch": 1,
    "input": "q",
    "target": "42",
    "messages": [
        {"id": "a", "role": "system", "content": f"attachment://{LONG}"},
        {
            "id": "b",
            "role": "user",
            "content": [{"type": "text", "text": "see"}, {"type": "image", "image": PIXEL, "detail": "low"}],
        },
        {
            "id": "c",
            "role": "assistant",
            "content": [
                {"type": "reasoning", "reasoning": "hm", "signature": "c2ln"},
                {"type": "reasoning", "reasoning": "ZW5j", "redacted": True, "summary": "short"},
                {"type": "text", "text": "calling"},
            ],
            "tool_calls": [{"id": "t1", "function": "f", "arguments": {"x": 1.5}, "type": "function"}],
        },
        {
            "id": "d",
            "role": "tool",
            "tool_call_id": "t1",
            "function": "f",
            "content": "out",
            "error": {"type": "timeout", "message": "late"},
        },
        {"id": "e", "role": "assistant", "content": "", "tool_calls": []},
    ],
    "scores": {"match": {"value": "C"}},
    "attachments": {LONG: "a long text"},
    "events": [
        {
            "event": "model",
            "uuid": "ev1",
            "timestamp": "2025-01-02T03:04:06Z",
            "model": "m",
            "output": {
                "model": "m-1",
                "choices": [{"message": {"id": "c"}}],
                "usage": {"input_tokens": 5, "output_tokens": 6, "total_tokens": 11},
                "time": 1.5,
            },
        },
        {"event": "state"},
    ],
}
LOG = {**HEADER, "samples": [SAMPLE, {**SAMPLE, "epoch": 2, "uuid": "u2"}]}


def archive(members):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as made:
        for name, value in members.items():
            made.writestr(name, as_bytes(value))
    return held.getvalue()


def test_each_sample_and_epoch_is_a_conversation():
    outputs = read_files(inspect_ai, {"log.json": as_bytes(LOG)})
    assert [t.id for t in outputs.transcripts] == ["run/s1/1", "u2"]
    transcript = outputs.transcripts[0]
    assert (transcript.title, transcript.model, transcript.tags) == ("quiz s1/1", "m", ("quiz",))
    assert transcript.created_at == "2025-01-02T02:04:05.000Z"
    assert shape(transcript) == [
        ("system", ("text",)),
        ("user", ("text", "attachment")),
        ("assistant", ("reasoning", "reasoning", "text", "tool_call")),
        ("tool", ("tool_result",)),
        ("assistant", ("text",)),
    ]
    assert transcript.warnings == []


def test_references_are_filled_in_and_what_is_known_goes_into_the_note():
    transcript = read_files(inspect_ai, {"log.json": as_bytes(LOG)}).transcripts[0]
    entries = transcript.entries
    assert entries[0].message.text == "a long text"
    assert entries[0].note["sample"]["scores"] == {"match": {"value": "C"}}
    assert entries[1].message.parts[1].attachment.content == b"\x89PNG\r\n\x1a\n"
    shown, hidden = entries[2].message.parts[:2]
    assert isinstance(hidden, ReasoningPart)
    assert (shown.text, hidden.text, hidden.redacted) == ("hm", "short", True)
    assert hidden.provider_metadata == {"inspect": {"data": "ZW5j"}}
    assert entries[3].message.parts[0].exception == "timeout: late"


def test_calls_are_found_by_the_answers_they_gave():
    (call,) = read_files(inspect_ai, {"log.json": as_bytes(LOG)}).transcripts[0].calls
    assert (call.id, call.head_input, call.head_output) == ("ev1", "m2", "m3")
    assert (call.input_tokens, call.output_tokens, call.duration_ms) == (5, 6, 1500)
    assert call.token_details == {"total_tokens": 11}


def test_an_archive_gives_the_same_conversations():
    data = archive(
        {
            "header.json": HEADER,
            "samples/s1_epoch_1.json": SAMPLE,
            "summaries.json": [{"id": "s1", "epoch": 1, "input": "q", "target": "42"}],
        }
    )
    outputs = read_source(inspect_ai, lambda: ZipSource(BytesFile("log.eval", data)))
    assert outputs.only.id == "run/s1/1"
    assert outputs.only.model == "m"


def test_references_that_would_grow_without_bound_are_left_alone():
    many = {
        **SAMPLE,
        "messages": [{"role": "user", "content": f"attachment://{LONG}" * 40}],
        "attachments": {LONG: "x" * 10_000_000},
    }
    transcript = read_files(inspect_ai, {"a.json": as_bytes(many)}).only
    assert len(transcript.entries[0].message.text) < 70_000_000
    assert "attachment://" in transcript.entries[0].message.text


def test_samples_without_messages_and_repeated_ones_are_skipped():
    log = {**HEADER, "samples": [{"id": 1, "epoch": 1}, SAMPLE, SAMPLE]}
    outputs = read_files(inspect_ai, {"a.json": as_bytes(log)})
    assert [skipped.kind for skipped in outputs.skipped] == ["missing-messages", "duplicate-conversation"]
    assert len(outputs.transcripts) == 1


def test_cut_and_damaged_files_are_survived():
    survives_damage(inspect_ai, {"a.json": as_bytes(LOG)})


@pytest.mark.parametrize(
    ("value", "certainty"),
    [
        (LOG, Certainty.YES),
        (SAMPLE, Certainty.YES),
        (HEADER, Certainty.YES),
        ({"messages": []}, Certainty.NO),
        ({"eval": "x"}, Certainty.NO),
    ],
)
def test_the_format_is_told_by_content(value, certainty):
    assert inspect_ai.sniff(as_bytes(value), "x") is certainty


@pytest.mark.parametrize(
    ("name", "conversations", "messages"),
    [
        ("2025-05-12T20-27-36-04-00_browser.json", 1, 10),
        ("2025-05-12T20-28-26-04-00_security-guide.json", 3, 9),
        ("log_images_tc.json", 1, 3),
        ("log_message_deduplication.eval", 1, 12),
        ("log_tool_call_error.json", 1, 11),
        ("log_streaming.eval", 4, 12),
    ],
)
def test_real_logs_are_read(name, conversations, messages):
    outputs = read_path(inspect_ai, real_file(f"inspect-ai/{name}"))
    assert len(outputs.transcripts) == conversations
    assert sum(len(t.entries) for t in outputs.transcripts) == messages
    assert not outputs.skipped
    assert texts(outputs.transcripts[0])
