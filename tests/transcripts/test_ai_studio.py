"""Google AI Studio's files: chunks joined into the messages that were sent and received."""

import json

import pytest

from objstore.attachment import Attachment
from objstore.message import AttachmentPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from objstore.transcripts import ai_studio
from objstore.transcripts.model import Certainty
from tests.transcripts.conformance import (
    read_files,
    read_path,
    real_file,
    survives_damage,
    survives_odd_values,
    texts,
)


def prompt(*chunks, **more):
    return {"chunkedPrompt": {"chunks": list(chunks)}, **more}


def user(text=None, **more):
    return {"role": "user", **({"text": text} if text is not None else {}), **more}


def model(text=None, **more):
    return {**user(text, **more), "role": "model"}


def read(document, name="My prompt"):
    return read_files(ai_studio, {name: json.dumps(document).encode()}).only


def parts_of(*chunks):
    return read(prompt(*chunks)).entries[0].message.parts


def test_one_answer_in_several_chunks_is_one_message():
    made = read(
        prompt(
            user("2+2?", createTime="2026-01-01T00:00:00Z"),
            model("Hm", isThought=True, thoughtSignatures=["s"]),
            model(executableCode={"language": "PYTHON", "code": "2+2"}),
            model(codeExecutionResult={"outcome": "OUTCOME_OK", "output": "4"}),
            model("Four.", finishReason="STOP", tokenCount=2),
        )
    )
    assert made.entries[0].at == "2026-01-01T00:00:00.000Z"
    assert made.entries[1].message.parts == (
        ReasoningPart("Hm", provider_metadata={"google": {"thought_signatures": ["s"]}}),
        ToolCallPart("code_execution", {"language": "PYTHON", "code": "2+2"}, server_executed=True),
        ToolResultPart("code_execution", "4", server_executed=True),
        TextPart("Four."),
    )
    assert made.entries[1].note["chunks"] == [{"finishReason": "STOP", "tokenCount": 2}]


def test_a_finished_answer_is_not_joined_with_the_next():
    made = read(prompt(user("q"), model("a", finishReason="MAX_TOKENS"), model("b", finishReason="STOP")))
    assert [text for _, text in texts(made)] == ["q", "a", "b"]


def test_files_are_references_or_bytes():
    assert parts_of(
        user("See", driveDocument={"id": "d1", "name": "a.pdf", "mimeType": "application/pdf"}),
        user(inlineFile={"mimeType": "image/png", "data": "aGk="}),
        user(youtubeVideo={"id": "v1"}),
    ) == (
        TextPart("See"),
        AttachmentPart(Attachment("application/pdf", "https://drive.google.com/file/d/d1", "a.pdf")),
        AttachmentPart(Attachment("image/png", content=b"hi")),
        AttachmentPart(Attachment("video/*", "https://www.youtube.com/watch?v=v1")),
    )


def test_parts_stand_in_for_the_text_and_never_beside_it():
    pieces = [{"text": "Hm", "thought": True}, {"text": "So"}]
    assert parts_of(model(parts=pieces)) == (ReasoningPart("Hm"), TextPart("So"))
    assert parts_of(model("Whole", parts=pieces)) == (TextPart("Whole"),)


def test_tools_of_ones_own():
    assert parts_of(
        model(functionCall={"name": "f", "args": {"x": 1}}),
        model(functionResponse={"name": "f", "response": {"y": 2}}),
    ) == (ToolCallPart("f", {"x": 1}), ToolResultPart("f", '{"y":2}'))


def test_the_system_instruction_and_the_settings_are_kept():
    settings = {"model": "models/gemini-x", "temperature": 0.5}
    made = read(prompt(user("q"), model("a"), systemInstruction={"text": "Be kind"}, runSettings=settings))
    assert texts(made) == [("system", "Be kind"), ("user", "q"), ("assistant", "a")]
    assert made.model == "gemini-x"
    (call,) = made.calls
    assert (call.head_input, call.head_output, call.options) == ("m1", "m2", {"temperature": 0.5})


def test_a_file_without_an_id_is_known_by_its_name():
    made = read(prompt(user("q")), "folder/My prompt")
    assert (made.id, made.title) == ("My prompt", "My prompt")


def test_what_is_unknown_is_kept_and_what_says_nothing_is_told():
    made = read(prompt(user("q"), model(hologram={"x": 1}), user("")))
    assert [warn.kind for warn in made.warnings] == ["unknown-part", "empty-content"]
    assert made.entries[1].message.parts[0].to_dict()["hologram"] == {"x": 1}


def test_files_that_hold_nothing_are_skipped():
    outputs = read_files(ai_studio, {"a": b"{}", "b": b'{"chunkedPrompt": {"chunks": 7}}', "c": b"{"})
    assert [each.kind for each in outputs.skipped] == ["missing-messages", "empty-conversation", "torn-document"]


def test_told_by_content():
    assert ai_studio.sniff(json.dumps(prompt(user("q"))).encode(), "x") is Certainty.YES
    assert ai_studio.sniff(b'{"text": "\\"chunkedPrompt\\": {"}', "x") is Certainty.NO


def test_damage_of_any_kind_raises_nothing():
    chunks = [user("q", driveImage={"id": "x"}), model("a", isThought=True), model(executableCode={"code": "1"})]
    files = {"p.json": json.dumps(prompt(*chunks, runSettings={"model": "m"})).encode()}
    survives_damage(ai_studio, files)
    survives_odd_values(ai_studio, files)


@pytest.mark.parametrize(
    ("name", "messages"),
    [  # fewer than the chunks, which are what one message was sent or received in
        ("multimodal_session", 2),
        ("code_execution_session", 2),
        ("multi_turn_prompt", 4),
        ("code_execution_prompt", 2),
        ("text_only_session", 2),
        ("text_only_prompt", 4),
    ],
)
def test_real_files(name, messages):
    made = read_path(ai_studio, real_file(f"gemini-aistudio/poly-{name}.json")).only
    assert len(made.entries) == messages
    assert made.warnings == []
