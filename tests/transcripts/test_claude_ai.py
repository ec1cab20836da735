"""Claude.ai exports."""

import json

import pytest

from objstore.attachment import Attachment
from objstore.message import AttachmentPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart, UnknownPart
from objstore.transcripts import claude_ai
from objstore.transcripts.model import Certainty
from tests.transcripts.conformance import (
    parents,
    read_files,
    read_path,
    real_file,
    survives_damage,
    survives_odd_values,
    texts,
)

ROOT = "00000000-0000-4000-8000-000000000000"


def said(uuid, sender="human", text="words", **more):
    content = more.pop("content", [{"type": "text", "text": text}])
    return {
        "uuid": uuid,
        "sender": sender,
        "text": text,
        "content": content,
        "created_at": f"2026-01-01T00:00:0{len(uuid)}.000000Z",
        **more,
    }


def conversation(*messages, **more):
    made = {"uuid": "c1", "name": "A talk", "created_at": "2026-01-01T00:00:00Z", "chat_messages": list(messages)}
    return made | more


def read(*conversations):
    return read_files(claude_ai, {"conversations.json": json.dumps(list(conversations)).encode()})


def parts_of(*content, **more):
    made = read(conversation(said("m", "assistant", content=list(content), **more))).only
    return made.entries[0].message.parts, made


def heads(transcript):
    return {head.key: head.active for head in transcript.heads}


def test_an_old_export_is_a_chain_in_its_order():
    made = read(conversation(said("a"), said("b", "assistant"), said("c"))).only
    assert parents(made) == {"a": None, "b": "a", "c": "b"}
    assert [role for role, _ in texts(made)] == ["user", "assistant", "user"]
    assert (made.title, made.created_at) == ("A talk", "2026-01-01T00:00:00.000Z")
    assert made.warnings == []


def test_a_new_export_has_branches_and_its_newest_leaf_is_active():
    made = read(
        conversation(
            said("a", parent_message_uuid=ROOT),
            said("bbb", "assistant", parent_message_uuid="a"),
            said("cc", "assistant", parent_message_uuid="a"),
        )
    ).only
    assert parents(made) == {"a": None, "bbb": "a", "cc": "a"}
    assert heads(made) == {"bbb": True, "cc": False}
    assert [warn.kind for warn in made.warnings] == ["no-current-leaf"]


def test_the_current_leaf_is_active_where_it_is_named():
    messages = [said("a", parent_message_uuid=ROOT), said("b", parent_message_uuid=ROOT)]
    made = read(conversation(*messages, current_leaf_message_uuid="a", model="claude-x")).only
    assert heads(made) == {"a": True, "b": False}
    assert made.model == "claude-x"
    assert made.warnings == []


def test_text_comes_from_the_blocks_and_only_without_them_from_the_flat_text():
    made = read(conversation(said("a", text=""), said("b", text="flat", content=[]))).only
    made_with_blocks = read(conversation(said("a", text="flat", content=[{"type": "text", "text": "block"}]))).only
    assert texts(made)[1] == ("user", "flat")
    assert texts(made_with_blocks) == [("user", "block")]


def test_a_message_that_says_nothing_is_told_and_left_out():
    made = read(conversation(said("a"), said("b", "assistant", text="", content=[]), said("c"))).only
    assert parents(made) == {"a": None, "c": "a"}
    assert [(warn.kind, warn.place) for warn in made.warnings] == [("empty-content", "b")]


def test_thinking_keeps_its_signature():
    parts, _ = parts_of({"type": "thinking", "thinking": "Hm", "signature": "c2ln", "cut_off": False})
    assert parts == (ReasoningPart("Hm", provider_metadata={"anthropic": {"signature": "c2ln"}}),)


def test_tools_run_at_the_service_call_and_result_in_one_message():
    parts, made = parts_of(
        {"type": "tool_use", "id": None, "name": "search", "input": {"q": 1.5}},
        {"type": "tool_result", "tool_use_id": None, "content": [{"type": "text", "text": "found"}]},
        {"type": "text", "text": "So."},
    )
    assert parts == (
        ToolCallPart("search", {"q": 1.5}, server_executed=True),
        ToolResultPart("search", "found", server_executed=True),
        TextPart("So."),
    )
    assert made.warnings == []


def test_a_failed_tool_and_content_that_is_not_text():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    link = {"type": "knowledge", "url": "http://x"}
    result = {"type": "tool_result", "tool_use_id": "t1", "name": "f", "is_error": True}
    parts, made = parts_of({**result, "content": [{"type": "text", "text": "no"}, image, link]})
    assert parts[0].exception
    assert parts[0].output == "no"
    assert parts[0].attachments == (Attachment("image/png", content=b"hi"),)
    assert made.entries[0].note["parts"]["0"]["content"] == [link]


def test_uploads_are_attachments_with_the_text_that_was_taken_from_them():
    upload = {"file_name": "a.pdf", "file_type": "pdf", "file_size": 9, "extracted_content": "the text"}
    made = read(
        conversation(said("a", attachments=[upload], files=[{"file_uuid": "f", "file_name": "b.png"}]))
    ).only
    assert made.entries[0].message.parts[1:] == (
        AttachmentPart(Attachment("text/plain", path="a.pdf", content=b"the text")),
        AttachmentPart(Attachment(path="b.png")),
    )
    assert made.entries[0].note["parts"]["1"]["upload"]["file_type"] == "pdf"


def test_what_is_unknown_is_kept_and_told():
    parts, made = parts_of({"type": "hologram", "data": [1]}, {"type": "token_budget"}, "stray")
    assert [type(part) for part in parts] == [UnknownPart, UnknownPart]
    assert parts[0].to_dict() == {"type": "hologram", "data": [1]}
    assert [warn.kind for warn in made.warnings] == ["unknown-part", "unknown-part"]


def test_copies_of_a_message_are_one_and_the_first_is_kept():
    made = read(conversation(said("a"), said("a"), said("b", "assistant"), said("a", text="other"))).only
    assert parents(made) == {"a": None, "b": "a"}
    assert [warn.kind for warn in made.warnings] == ["duplicate-uuid-conflict"]


def test_copies_of_a_conversation_are_one():
    early = conversation(said("a"), updated_at="2026-01-01T00:00:00Z")
    late = conversation(said("a"), said("b", "assistant"), updated_at="2026-02-01T00:00:00Z")
    made = read(late, conversation(said("x"), uuid="c0"), early)
    assert {t.id: len(t.entries) for t in made.transcripts} == {"c0": 1, "c1": 2}
    assert made.warnings == ["duplicate-conversation"]


def test_cycles_and_dangling_parents_are_cut_and_told():
    made = read(
        conversation(
            said("a", parent_message_uuid="b"),
            said("b", parent_message_uuid="a"),
            said("c", parent_message_uuid="x"),
        )
    ).only
    assert parents(made) == {"a": None, "b": "a", "c": "b"}
    assert [warn.kind for warn in made.warnings] == ["dangling-parent", "parent-cycle"]
    assert made.entries[2].note["inferred_parent"] is True


def test_one_bad_conversation_does_not_stop_the_others():
    outputs = read({"uuid": "x", "chat_messages": None}, conversation(), conversation(said("a"), uuid="c2"), [])
    assert [made.id for made in outputs.transcripts] == ["c2"]
    assert [each.kind for each in outputs.skipped] == [
        "missing-messages",
        "empty-conversation",
        "missing-messages",
    ]


def test_told_by_content():
    data = json.dumps([conversation(said("a"))]).encode()
    assert claude_ai.sniff(data, "x") is Certainty.YES
    assert claude_ai.sniff(json.dumps({"text": data.decode()}).encode(), "conversations.json") is Certainty.NO


def test_damage_of_any_kind_raises_nothing():
    blocks = [
        {"type": "thinking", "thinking": "x", "signature": "s"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {}},
        {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "1"}]},
    ]
    upload = {"file_name": "a", "extracted_content": "b"}
    talk = conversation(
        said("a", parent_message_uuid=ROOT, attachments=[upload]),
        said("b", "assistant", content=blocks, parent_message_uuid="a"),
    )
    files = {"conversations.json": json.dumps([talk, talk]).encode()}
    survives_damage(claude_ai, files)
    survives_odd_values(claude_ai, files)


# -- real and damaged files -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "conversations", "messages"),
    [
        ("claude-ai-export/yanndebray-conversations.json", 3, 8),
        ("claude-ai-export/bot-knows-claude_export.json", 1, 4),
        ("claude-ai-export/chatlectify-claude_export.json", 1, 10),
        ("claude-ai-export/poly-representative-00.json", 1, 3),
        ("claude-ai-export/poly-representative-01.json", 1, 6),
        ("derived/oasst-as-claude-ai-conversations.json", 100, 1167),
    ],
)
def test_real_exports(name, conversations, messages):
    outputs = read_path(claude_ai, real_file(name))
    assert len(outputs.transcripts) == conversations
    assert sum(len(made.entries) for made in outputs.transcripts) == messages
    assert outputs.skipped == []


def test_damaged_flat_text_always_empty():
    made = read_path(claude_ai, real_file("damaged/07-claude-single-object-content-only.json")).only
    assert [text for _, text in texts(made)] == ["ping", "pong", "pong!", "thanks"]
    assert heads(made) == {"m2": False, "m4": True}
    assert made.model == "claude-opus-x"
    assert made.warnings == []


def test_damaged_branches_in_a_flat_array():
    made = read_path(claude_ai, real_file("damaged/08-claude-branches-flat-array.json")).only
    assert len(made.entries) == 6
    assert heads(made) == {"m3": False, "m4": False, "m6": True}
    assert [warn.kind for warn in made.warnings] == ["no-current-leaf"]
