"""ChatGPT exports: trees of nodes, kept whole."""

import json
import zipfile

import pytest

from objstore.attachment import Attachment
from objstore.message import AttachmentPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart, UnknownPart
from objstore.transcripts import chatgpt
from objstore.transcripts.files import FolderSource, View, open_source
from objstore.transcripts.model import Certainty
from tests.transcripts.conformance import (
    parents,
    read_files,
    read_path,
    read_source,
    real_file,
    survives_damage,
    survives_odd_values,
    texts,
)

PNG = b"\x89PNG\r\n\x1a\n and some pixels"


def node(key, parent, role="user", content="words", **message):
    if isinstance(content, str):
        content = {"content_type": "text", "parts": [content]}
    author = {"role": role, "name": message.pop("name", None)}
    said = {"id": key, "author": author, "content": content, "create_time": 1767000000.5, **message}
    return {key: {"id": key, "parent": parent, "children": [], "message": said}}


def conversation(*nodes, **more):
    mapping = {"root": {"id": "root", "parent": None, "children": [], "message": None}}
    for each in nodes:
        mapping |= each
    return {"id": "c1", "title": "A talk", "create_time": 1767000000.0, "mapping": mapping, **more}


def read(*conversations, **files):
    return read_files(chatgpt, {"conversations.json": json.dumps(list(conversations)).encode(), **files})


def heads(transcript):
    return {head.key: head.active for head in transcript.heads}


def test_a_conversation_is_read_with_its_title_times_and_order():
    talk = conversation(node("u", "root", content="Hi"), node("a", "u", "assistant", "Hello"), current_node="a")
    made = read(talk).only
    assert (made.id, made.title, made.created_at) == ("c1", "A talk", "2025-12-29T09:20:00.000Z")
    assert texts(made) == [("user", "Hi"), ("assistant", "Hello")]
    assert made.entries[0].at == "2025-12-29T09:20:00.500Z"
    assert heads(made) == {"a": True}
    assert made.warnings == []


def test_branches_are_kept_and_the_current_node_is_the_active_head():
    talk = conversation(
        node("u", "root"), node("a1", "u", "assistant"), node("a2", "u", "assistant"), current_node="a1"
    )
    assert heads(read(talk).only) == {"a1": True, "a2": False}


def test_a_current_node_in_the_middle_is_a_head_of_its_own():
    talk = conversation(node("u", "root"), node("a", "u", "assistant"), current_node="u")
    assert heads(read(talk).only) == {"u": True, "a": False}


def test_a_dangling_current_node_is_replaced_by_the_newest_leaf():
    newest = node("a1", "u", "assistant", create_time=1767000009.0)
    talk = conversation(node("u", "root"), newest, node("a2", "u", "assistant"), current_node="gone")
    made = read(talk).only
    assert heads(made) == {"a1": True, "a2": False}
    assert [warn.kind for warn in made.warnings] == ["no-current-leaf"]


def test_links_are_taken_from_parents_from_children_or_from_the_order():
    slim = conversation(node("u", "root"), node("a", "u", "assistant"))
    for each in slim["mapping"].values():
        del each["children"]
    assert parents(read(slim).only) == {"u": None, "a": "u"}

    downward = conversation(node("u", None), node("a", None, "assistant"))
    downward["mapping"]["u"]["children"] = ["a"]
    made = read(downward).only
    assert parents(made) == {"u": None, "a": "u"}
    assert made.warnings == []

    loose = conversation(node("u", None), node("a", None, "assistant"))
    made = read(loose).only
    assert parents(made) == {"u": None, "a": "u"}
    assert [warn.kind for warn in made.warnings] == ["missing-links"]
    assert made.entries[1].note["inferred_parent"] is True


def test_a_message_without_content_is_told_and_its_children_move_up():
    empty = node("x", "u", "assistant")
    empty["x"]["message"]["content"] = None
    made = read(conversation(node("u", "root"), empty, node("u2", "x"), current_node="x")).only
    assert parents(made) == {"u": None, "u2": "u"}
    assert [(warn.kind, warn.place) for warn in made.warnings] == [("empty-content", "x")]
    assert heads(made) == {"u": True, "u2": False}


def test_hidden_messages_stay_where_they_are_and_are_marked():
    hidden = node("s", "u", "system", metadata={"is_visually_hidden_from_conversation": True}, weight=0.0)
    made = read(conversation(node("u", "root"), hidden, node("a", "s", "assistant"))).only
    assert parents(made) == {"u": None, "s": "u", "a": "s"}
    note = made.entries[1].note
    assert note["hidden"] is True
    assert note["weight"] == 0


def test_cycles_and_dangling_parents_are_cut_and_told():
    talk = conversation(node("a", "b"), node("b", "a"), node("c", "c"), node("d", "nowhere"))
    made = read(talk).only
    assert len(made.entries) == 4
    assert parents(made) == {"a": None, "b": "a", "c": None, "d": "c"}
    assert [(warn.kind, warn.place) for warn in made.warnings[:3]] == [
        ("dangling-parent", "d"),
        ("parent-cycle", "a"),
        ("parent-cycle", "c"),
    ]


def test_a_very_long_chain_is_read_without_recursion():
    nodes = [node(f"n{i}", f"n{i - 1}" if i else "root") for i in reversed(range(5000))]
    made = read(conversation(*nodes)).only
    assert [entry.key for entry in made.entries] == [f"n{i}" for i in range(5000)]


def test_a_message_to_a_tool_is_a_call_and_one_from_it_the_result():
    code = {"content_type": "code", "language": "python", "text": "print(1)"}
    search = node("s", "r", "assistant", '{"query": "cats"}', recipient="browser.search")
    result = {"content_type": "execution_output", "text": "1\n"}
    made = read(
        conversation(
            node("u", "root"),
            node("c", "u", "assistant", code, recipient="python"),
            node("r", "c", "tool", result, name="python"),
            search,
        )
    ).only
    _, call, answer, other = (entry.message for entry in made.entries)
    assert call.parts == (ToolCallPart("python", {"_raw": "print(1)"}),)
    assert answer.parts == (ToolResultPart("python", "1\n"),)
    assert other.parts == (ToolCallPart("browser.search", {"query": "cats"}),)
    assert made.warnings == []


def test_cut_arguments_are_kept_as_text_and_told():
    made = read(conversation(node("c", "root", "assistant", '{"query": "ca', recipient="browser"))).only
    assert made.entries[0].message.parts == (ToolCallPart("browser", {"_raw": '{"query": "ca'}),)
    assert [warn.kind for warn in made.warnings] == ["invalid-arguments"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"content_type": "tether_quote", "url": "http://x", "text": "said"}, ToolResultPart("t", "said")),
        ({"content_type": "tether_browsing_display", "result": "list"}, ToolResultPart("t", "list")),
        (
            {"content_type": "system_error", "name": "Timeout", "text": "late"},
            ToolResultPart("t", "late", exception="Timeout"),
        ),
        ({"content_type": "citable_code_output", "output_str": "42"}, ToolResultPart("t", "42")),
        (
            {"content_type": "computer_output", "screenshot": {"asset_pointer": "sediment://file_1"}},
            ToolResultPart("t", "", attachments=[Attachment(url="sediment://file_1")]),
        ),
    ],
)
def test_what_tools_give_back(content, expected):
    made = read(conversation(node("r", "root", "tool", content, name="t"))).only
    assert made.entries[0].message.parts == (expected,)
    assert made.warnings == []


def test_thoughts_are_reasoning_with_their_summaries_noted():
    thoughts = {
        "content_type": "thoughts",
        "thoughts": [{"summary": "Look", "content": "I look."}, {"summary": "Only"}],
    }
    recap = {"content_type": "reasoning_recap", "content": "Thought for a moment"}
    made = read(conversation(node("t", "root", "assistant", thoughts), node("r", "t", "assistant", recap))).only
    assert made.entries[0].message.parts == (ReasoningPart("I look."), ReasoningPart("Only"))
    assert made.entries[0].note["parts"]["0"]["summary"] == "Look"
    assert made.entries[1].message.parts == (ReasoningPart("Thought for a moment"),)


def test_voice_is_text_and_references_and_what_is_unknown_is_kept():
    parts = [
        {"content_type": "audio_transcription", "text": "lights off", "direction": "in"},
        {"content_type": "audio_asset_pointer", "asset_pointer": "sediment://file_7", "format": "wav"},
        {"content_type": "new_thing", "payload": [1]},
    ]
    made = read(conversation(node("u", "root", content={"content_type": "multimodal_text", "parts": parts}))).only
    text, audio, unknown = made.entries[0].message.parts
    assert text.text == "lights off"
    assert audio.attachment == Attachment("audio/wav", "sediment://file_7")
    assert isinstance(unknown, UnknownPart)
    assert unknown.to_dict()["value"] == parts[2]
    assert [warn.kind for warn in made.warnings] == ["unknown-part"]


def test_context_of_the_service_is_kept_hidden():
    content = {"content_type": "user_editable_context", "user_profile": "me", "user_instructions": "be kind"}
    made = read(conversation(node("s", "root", "user", content))).only
    assert [part.text for part in made.entries[0].message.parts] == ["me", "be kind"]
    assert made.entries[0].note["hidden"] is True


def test_bytes_beside_the_export_become_the_attachments_content(tmp_path):
    pointer = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-abc"}
    content = {"content_type": "multimodal_text", "parts": ["see", pointer]}
    uploads = [{"id": "file-abc"}, {"id": "file-def", "name": "a.txt", "mime_type": "text/plain"}]
    talk = conversation(node("u", "root", content=content, metadata={"attachments": uploads}))
    archive = tmp_path / "export.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("conversations.json", json.dumps([talk]))
        made.writestr("images/file-abc-photo.png", PNG)
        made.writestr("file-def-a.txt", "some text")
        made.writestr("file-abcd.png", "another file")
    source = _only_conversations(archive)
    entry = read_source(chatgpt, source).only.entries[0]
    assert [part.attachment for part in entry.message.parts[1:]] == [
        Attachment("image/png", "file-service://file-abc", content=PNG),
        Attachment("text/plain", "file-service://file-def", "a.txt", b"some text"),
    ]


def _only_conversations(path):
    def make():
        base = open_source(path)
        return View(base, [file for file in base.files() if file.name.endswith("conversations.json")])

    return make


def test_one_bad_conversation_does_not_stop_the_others():
    outputs = read(conversation(node("u", "root")), {"id": "x", "title": "no mapping"}, 7, conversation(id="c3"))
    assert [made.id for made in outputs.transcripts] == ["c1"]
    assert [each.kind for each in outputs.skipped] == ["missing-mapping", "missing-mapping", "empty-mapping"]


def test_shards_are_one_export_and_copies_one_conversation():
    early = conversation(node("u", "root"), node("lost", "u", "assistant"), update_time=1767000100)
    late = conversation(node("u", "root"), node("a", "u", "assistant"), update_time=1767000200, title=None)
    outputs = read_files(
        chatgpt,
        {
            "conversations-000.json": json.dumps([early, conversation(node("z", "root"), id="c0")]).encode(),
            "conversations-001.json": json.dumps([late]).encode(),
        },
    )
    assert {made.id for made in outputs.transcripts} == {"c0", "c1"}
    joined = next(made for made in outputs.transcripts if made.id == "c1")
    assert parents(joined) == {"u": None, "a": "u", "lost": "u"}
    assert joined.title == "words"
    assert "duplicate-conversation" in outputs.warnings


@pytest.mark.parametrize("wrap", [lambda talk: talk, lambda talk: {"conversations": [talk]}, lambda talk: [talk]])
def test_one_conversation_a_wrapped_list_and_a_list_are_the_same(wrap):
    talk = conversation(node("u", "root"))
    made = read_files(chatgpt, {"x.json": json.dumps(wrap(talk)).encode()}).only
    assert made.id == "c1"


def test_told_by_content():
    talk = json.dumps([conversation(node("u", "root"), current_node="u")]).encode()
    assert chatgpt.sniff(talk, "x") is Certainty.YES
    quoted = json.dumps({"role": "user", "content": talk.decode()}).encode()
    assert chatgpt.sniff(quoted, "conversations.json") is Certainty.NO
    assert chatgpt.sniff(b'{"mapping": {"a": 1}}', "conversations.json") is Certainty.NO


def test_a_cut_file_gives_what_comes_before_the_cut():
    data = json.dumps([conversation(node("u", "root")), conversation(node("u", "root"), id="c2")]).encode()
    outputs = read_files(chatgpt, {"conversations.json": data[:-20]})
    assert [made.id for made in outputs.transcripts] == ["c1"]
    assert [each.kind for each in outputs.skipped] == ["torn-document"]


def test_damage_of_any_kind_raises_nothing():
    code = {"content_type": "code", "language": "python", "text": "print(1)"}
    parts = [{"content_type": "image_asset_pointer", "asset_pointer": "file-service://f"}, "x"]
    talk = conversation(
        node("u", "root", content={"content_type": "multimodal_text", "parts": parts}),
        node("c", "u", "assistant", code, recipient="python"),
        node("r", "c", "tool", {"content_type": "execution_output", "text": "1"}, name="python"),
        current_node="r",
    )
    files = {"conversations.json": json.dumps([talk, talk]).encode()}
    survives_damage(chatgpt, files)
    survives_odd_values(chatgpt, files)


# -- real and damaged files -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "conversations", "messages"),
    [
        ("realazthat-conversations.json", 1, 44),
        ("looselips-conversations.json", 5, 10),
        ("bot-knows-chatgpt_export.json", 2, 6),
        ("hstry-conversations.json", 1, 2),
        ("export-studio-conversations.json", 2, 6),
        ("poly-native-conversation-v1.json", 1, 8),
        ("poly-representative-01.json", 1, 4),
    ],
)
def test_real_exports(name, conversations, messages):
    outputs = read_path(chatgpt, real_file(f"chatgpt-export/{name}"))
    assert len(outputs.transcripts) == conversations
    assert sum(len(made.entries) for made in outputs.transcripts) == messages
    assert outputs.skipped == []


def test_every_branch_of_a_hundred_trees_is_there():
    outputs = read_path(chatgpt, real_file("derived/oasst-as-chatgpt-conversations.json"))
    assert len(outputs.transcripts) == 100
    assert sum(len(made.entries) for made in outputs.transcripts) == 1267
    assert outputs.warnings == []


def test_damaged_no_children():
    made = read_path(chatgpt, real_file("damaged/01-chatgpt-no-children.json")).only
    assert len(made.entries) == 5
    assert heads(made) == {"a2a": False, "a2b": True}
    assert made.warnings == []


def test_damaged_missing_metadata_and_content():
    made = read_path(chatgpt, real_file("damaged/02-chatgpt-missing-metadata-content.json")).only
    assert len(made.entries) == 3
    assert [(warn.kind, warn.place) for warn in made.warnings] == [("empty-content", "x1")]
    assert made.model == "gpt-5-thinking"
    assert made.entries[-1].at is None


def test_damaged_system_message_midway():
    made = read_path(chatgpt, real_file("damaged/04-chatgpt-system-midway.json")).only
    assert [entry.note.get("hidden", False) for entry in made.entries] == [False, False, True, False, False]
    assert [entry.parent for entry in made.entries] == [None, "u1", "a1", "s1", "u2"]


def test_damaged_voice():
    made = read_path(chatgpt, real_file("damaged/06-chatgpt-voice-dict-parts.json")).only
    user, assistant = (entry.message.parts for entry in made.entries)
    assert [type(part) for part in user] == [TextPart, AttachmentPart, AttachmentPart]
    assert [type(part) for part in assistant] == [TextPart, AttachmentPart, UnknownPart]
    assert made.entries[0].message.text == "turn the lamp on"
    assert [warn.kind for warn in made.warnings] == ["unknown-part"]


def test_damaged_shards(tmp_path):
    for part in ("000", "001"):
        name = f"37-chatgpt-sharded-conversations-{part}.json"
        (tmp_path / name).write_bytes(real_file(f"damaged/{name}").read_bytes())
    outputs = read_source(chatgpt, lambda: FolderSource(tmp_path))
    assert len(outputs.transcripts) == 2
    assert sum(len(made.entries) for made in outputs.transcripts) == 5
    assert [len(made.heads) for made in outputs.transcripts] == [1, 1]
    assert {made.title for made in outputs.transcripts} == {"untitled one", "later copy"}
    assert outputs.warnings == ["duplicate-conversation"]
