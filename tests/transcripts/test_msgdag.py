"""Our own forms: what was exported or printed is read back whole."""

import json

from hypothesis import assume, given, settings

from objstore.message import Message
from objstore.transcripts import msgdag
from objstore.transcripts.draft import is_deep
from objstore.transcripts.export.jsonl import write
from objstore.transcripts.export.model import ExportEntry
from objstore.transcripts.model import Certainty
from tests.strategies import messages as any_messages
from tests.transcripts.conformance import read_files, survives_damage, survives_odd_values
from tests.transcripts.roundtrip import as_bytes, lines, messages

SAID = [
    {"role": "user", "parts": [{"type": "text", "text": "Where to?"}]},
    {"role": "assistant", "parts": [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "Rome."}]},
]
EXPORTED = lines(
    {"title": "A trip"},
    {"message": SAID[0], "node": "ab" * 32, "at": "2026-01-02T03:04:05.678Z", "note": {"hidden": True}},
    {"message": SAID[1]},
)


def test_an_export_is_read_with_its_title_times_and_notes():
    transcript = read_files(msgdag, {"trip.jsonl": EXPORTED}).only
    assert transcript.title == "A trip"
    assert [message.to_dict() for message in messages(transcript)] == SAID
    assert transcript.entries[0].at == "2026-01-02T03:04:05.678Z"
    assert transcript.entries[0].note == {"hidden": True}


def test_all_forms_that_cat_prints_are_read():
    for data in (lines(*SAID), as_bytes(SAID), as_bytes({"schema": 1, "head": "x", "messages": SAID})):
        assert msgdag.sniff(data, "-") is Certainty.YES
        assert [message.to_dict() for message in messages(read_files(msgdag, {"-": data}).only)] == SAID


def test_messages_of_other_programs_are_left_to_their_readers():
    for value in (
        {"role": "user", "parts": [{"text": "Gemini's parts have no type"}]},
        {"role": "user", "parts": [{"type": "text", "content": "OpenTelemetry's have a content"}]},
        {"id": "1", "role": "user", "parts": [{"type": "text", "text": "others have an id"}]},
        {"role": "user", "content": "OpenAI"},
        {"title": "only this"},
    ):
        assert msgdag.sniff(as_bytes(value), "a.jsonl") is Certainty.NO


def test_a_line_that_is_no_message_is_told_and_the_rest_is_read():
    data = lines(SAID[0], {"message": {"role": "user"}}, {"other": 1}, SAID[1])
    outputs = read_files(msgdag, {"a.jsonl": data})
    assert len(outputs.only.entries) == 2
    assert outputs.warnings == ["invalid-message", "invalid-message"]


def test_a_file_without_a_message_is_skipped():
    outputs = read_files(msgdag, {"a.jsonl": lines({"title": "nothing"})})
    assert [skipped.kind for skipped in outputs.skipped] == ["empty-conversation"]


def test_damage_raises_nothing():
    survives_damage(msgdag, {"a.jsonl": EXPORTED, "b.json": as_bytes(SAID)})
    survives_odd_values(msgdag, {"a.jsonl": EXPORTED})


@settings(deadline=None, max_examples=60)
@given(any_messages)
def test_every_message_survives_that_is_not_nested_to_the_limit(message: Message):
    assume(not is_deep({"message": message.to_dict()}))
    text, _ = write([ExportEntry(message)], None)
    assert msgdag.sniff(text.encode()[:65536], "a.jsonl") is Certainty.YES
    assert messages(read_files(msgdag, {"a.jsonl": text.encode()}).only) == [message]
    assert json.loads(text.partition("\n")[0])["message"] == message.to_dict()
