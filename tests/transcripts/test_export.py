"""What all writers must hold, whatever a chain holds; and those of formats that others read."""

import html.parser
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objstore.attachment import Attachment
from objstore.message import (
    AttachmentPart,
    Message,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
)
from objstore.transcripts import (
    anthropic,
    chatgpt,
    claude_code,
    gemini_contents,
    openai_chat,
    openai_responses,
    sharegpt,
)
from objstore.transcripts.export.model import ExportEntry
from objstore.transcripts.export.registry import SUFFIXES, writer
from objstore.transcripts.registry import reader
from tests.transcripts.conformance import read_files, read_path, real_file
from tests.transcripts.roundtrip import as_bytes, lines, survives_export

PNG = b"\x89PNG\r\n\x1a\n"
READERS = {
    "openai": openai_chat,
    "responses": openai_responses,
    "anthropic": anthropic,
    "gemini": gemini_contents,
    "claude-code": claude_code,
    "sharegpt": sharegpt,
    "chatgpt": chatgpt,
}
HOSTILE = "</pre></div><script>alert(1)</script><img src=x onerror=alert(1)>\"' &lt; ``` \u202e\ud83d\x00"


def hostile_chain():
    """Every kind of part, with markup in every text."""
    picture = Attachment(HOSTILE, url="javascript:alert(1)", path=HOSTILE, content=b"<svg onload=alert(1)>")
    parts = (
        TextPart(HOSTILE, {HOSTILE: {"a": 1}}),
        ReasoningPart(HOSTILE, token_count=3),
        ReasoningPart("", redacted=True, provider_metadata={"openai": {"id": "rs"}}),
        ToolCallPart(HOSTILE, {HOSTILE: [HOSTILE, 1.5]}, HOSTILE),
        ToolCallPart("f", {"_raw": HOSTILE}, None, True),
        ToolResultPart(HOSTILE, HOSTILE, HOSTILE, exception=HOSTILE, attachments=[picture]),
        AttachmentPart(picture),
        AttachmentPart(None),
        AttachmentPart(Attachment("image/svg+xml", content=b"<svg onload=alert(1)>")),
        AttachmentPart(Attachment("image/png", content=PNG)),
        AttachmentPart(Attachment("image/png", content=b"<script>")),
        UnknownPart({"type": HOSTILE, "x": HOSTILE}),
    )
    roles = ("user", "assistant", "tool", "system", HOSTILE)
    note = {"hidden": True, HOSTILE: HOSTILE, "id": HOSTILE, "parts": {"0": {"item": HOSTILE, "detail": 5}}}
    return [ExportEntry(Message(role, parts), "2026-01-02T03:04:05.678Z", note, "ab" * 32) for role in roles]


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.words = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.words.append(data)


@pytest.mark.parametrize("format", SUFFIXES)
def test_anything_can_be_written_and_what_is_lost_is_told(format):
    text, losses = writer(format)(hostile_chain(), HOSTILE)
    text.encode("utf-8")
    assert all(loss.kind and loss.place for loss in losses)
    assert losses or format == "jsonl"
    if SUFFIXES[format] == ".json":
        json.loads(text)
    if SUFFIXES[format] == ".jsonl":
        assert all(json.loads(line) for line in text.split("\n")[:-1])


@pytest.mark.parametrize("format", SUFFIXES)
def test_nothing_gives_an_empty_conversation(format):
    text, losses = writer(format)([], None)
    assert isinstance(text, str)
    assert losses == []


def test_nothing_of_a_message_becomes_markup_or_script():
    text, _ = writer("html")(hostile_chain(), HOSTILE)
    page = Page()
    page.feed(text)
    assert set(page.tags) == {
        *("html", "head", "meta", "title", "style", "body", "h1", "article", "header", "b", "time", "span"),
        *("div", "details", "summary", "pre", "p", "img"),
    }
    sources = [value for name, value in page.attributes if name == "src"]
    assert set(sources) == {"data:image/png;base64,iVBORw0KGgo="}
    assert not any(name.startswith("on") or name in ("href", "style") for name, _ in page.attributes)
    assert not any("alert" in (value or "") for name, value in page.attributes if name not in ("alt",))
    policy = dict(page.attributes)["content"] and next(v for _, v in page.attributes if v and "default-src" in v)
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "\u202e" not in text
    assert "<script>alert(1)</script>" in "".join(page.words)


def test_the_page_shows_who_said_what_and_when():
    chain = [
        ExportEntry(Message.of("user", "why?"), "2026-01-02T03:04:05.678Z"),
        ExportEntry(Message("assistant", [ToolCallPart("f", {"a": 1}, "c1"), TextPart("so")])),
    ]
    text, losses = writer("html")(chain, "A <title>")
    assert losses == []
    assert "<title>A &lt;title&gt;</title>" in text
    assert "2026-01-02T03:04:05.678Z" in text
    assert "call f · c1" in text


def test_fences_in_markdown_are_longer_than_any_in_them():
    chain = [ExportEntry(Message("tool", [ToolResultPart("f", "```\n````\nx")]))]
    text, _ = writer("markdown")(chain)
    assert "\n`````\n```\n````\nx\n`````\n" in text


def test_json_lines_hold_all_that_is_known():
    chain = hostile_chain()[:1]
    (line,) = writer("jsonl")(chain)[0].splitlines()
    held = json.loads(line)
    assert Message.from_dict(held["message"]) == chain[0].message
    assert held["note"] == chain[0].note


PLAIN = {
    "user": [TextPart("a")],
    "assistant": [TextPart("b")],
}
WITH_TOOLS = [
    ("system", [TextPart("s")]),
    ("user", [TextPart("q"), AttachmentPart(Attachment("image/png", content=PNG))]),
    ("assistant", [TextPart("calling"), ToolCallPart("f", {"b": 1, "a": [None, 2.5]}, "c1")]),
    ("tool", [ToolResultPart("f", "out", "c1")]),
    ("assistant", [TextPart("done")]),
]


@pytest.mark.parametrize("format", ["openai", "responses", "anthropic", "gemini"])
def test_a_conversation_with_tools_goes_through_each_providers_format_unchanged(format):
    chain = [ExportEntry(Message(role, parts)) for role, parts in WITH_TOOLS]
    text, losses = writer(format)(chain)
    again = read_files(READERS[format], {"a.json": text.encode()}).only
    assert [entry.message for entry in again.entries] == [entry.message for entry in chain]
    assert losses == []


@pytest.mark.parametrize("format", READERS)
def test_a_plain_conversation_goes_through_every_format_unchanged_and_is_recognised(format):
    chain = [ExportEntry(Message(role, parts), "2026-01-02T03:04:05.678Z") for role, parts in PLAIN.items()] * 2
    text, _ = writer(format)(chain)
    module = READERS[format]
    again = read_files(module, {f"a{SUFFIXES[format]}": text.encode()}).only
    assert [entry.message for entry in again.entries] == [entry.message for entry in chain]
    assert module.sniff(text.encode(), "x") is not None


def test_a_session_of_claude_code_is_written_as_it_was_read():
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "out"}
    said = [
        {"role": "user", "content": "hi"},
        {"id": "msg_1", "model": "m", "role": "assistant", "content": [thinking, call]},
        {"role": "user", "content": [result]},
        {"id": "msg_2", "role": "assistant", "content": [{"type": "text", "text": "done"}]},
    ]
    data = lines(
        *(
            {
                "type": message["role"],
                "uuid": f"u{number}",
                "parentUuid": f"u{number - 1}" if number else None,
                "sessionId": "s",
                "timestamp": "2026-01-02T03:04:05.678Z",
                "cwd": "/x",
                "message": message,
            }
            for number, message in enumerate(said)
        )
    )
    transcript = read_files(claude_code, {"s.jsonl": data}).only
    told = survives_export(claude_code, writer("claude-code"), transcript, "again.jsonl")
    assert told == []
    chain = [ExportEntry(entry.message, entry.at, entry.note, entry.key) for entry in transcript.entries]
    records = [json.loads(line) for line in writer("claude-code")(chain, "T")[0].splitlines()]
    assert [record.get("uuid") for record in records] == ["u0", "u1", "u2", "u3", None]
    assert records[0]["cwd"] == "/x"
    assert records[-1]["customTitle"] == "T"


SAID = [
    {
        "author": {"role": "system"},
        "content": {"content_type": "user_editable_context", "user_profile": "p", "user_instructions": "i"},
    },
    {
        "author": {"role": "user"},
        "content": {
            "content_type": "multimodal_text",
            "parts": [{"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_1"}, "x"],
        },
    },
    {
        "author": {"role": "assistant"},
        "content": {"content_type": "thoughts", "thoughts": [{"summary": "s", "content": "c"}]},
    },
    {
        "author": {"role": "assistant"},
        "recipient": "python",
        "content": {"content_type": "code", "language": "python", "text": "print(1)"},
    },
    {"author": {"role": "tool", "name": "python"}, "content": {"content_type": "execution_output", "text": "1"}},
    {"author": {"role": "assistant"}, "content": {"content_type": "text", "parts": ["one"]}, "weight": 0},
]
CONVERSATION = {
    "id": "c1",
    "title": "T",
    "current_node": "n5",
    "mapping": {
        "r": {"id": "r", "message": None},
        **{
            f"n{i}": {"parent": f"n{i - 1}" if i else "r", "message": {"id": f"n{i}", **message}}
            for i, message in enumerate(SAID)
        },
    },
}


def test_a_conversation_of_chatgpt_is_written_as_it_was_read():
    transcript = read_files(chatgpt, {"conversations.json": as_bytes([CONVERSATION])}).only
    survives_export(chatgpt, writer("chatgpt"), transcript)


@pytest.mark.parametrize(
    ("format", "name"),
    [
        ("claude-code", "claude-code/agentcmd-full-session.jsonl"),
        ("claude-code", "claude-code/agentcmd-full-session-four.jsonl"),
        ("claude-code", "claude-code/simonw-sample_session.jsonl"),
        ("claude-code", "damaged/14-cc-one-response-many-records.jsonl"),
        ("claude-code", "damaged/20-lone-surrogate.jsonl"),
        ("claude-code", "damaged/34-cc-rewind-then-compact.jsonl"),
        ("chatgpt", "chatgpt-export/poly-native-conversation-v1.json"),
        ("chatgpt", "chatgpt-export/realazthat-conversations.json"),
        ("chatgpt", "chatgpt-export/looselips-conversations.json"),
        ("chatgpt", "damaged/06-chatgpt-voice-dict-parts.json"),
        ("chatgpt", "damaged/01-chatgpt-no-children.json"),
    ],
)
def test_real_files_survive_export_to_their_own_format(format, name):
    module = READERS[format]
    for transcript in read_path(module, real_file(name)).transcripts:
        survives_export(module, writer(format), transcript, f"again{SUFFIXES[format]}")


scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
json_values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
providers = st.sampled_from(["openai", "anthropic", "google", "x"])
metadata = st.dictionaries(providers, st.dictionaries(st.text(max_size=6), json_values, max_size=2), max_size=2)
words = st.text(alphabet=st.characters(), max_size=12)
maybe = st.none() | words
attachments = st.builds(
    Attachment,
    st.sampled_from([None, "image/png", "text/plain", "audio/wav", "x"]),
    maybe,
    maybe,
    st.none() | st.binary(max_size=6),
)
attached = st.lists(attachments, max_size=2)
parts = st.one_of(
    st.builds(TextPart, words, metadata),
    st.builds(ReasoningPart, words, st.booleans(), st.none() | st.integers(), metadata),
    st.builds(
        *(ToolCallPart, words, st.dictionaries(words, json_values, max_size=2), maybe, st.booleans(), metadata)
    ),
    st.builds(ToolResultPart, words, words, maybe, st.booleans(), maybe, attached, metadata),
    st.builds(AttachmentPart, st.none() | attachments),
    st.builds(UnknownPart, st.fixed_dictionaries({"type": st.sampled_from(["", "y", "function_call"])})),
)
part_extras = st.dictionaries(
    st.sampled_from(
        ["arguments", "item", "lengths", "pointer", "json", "bare", "item_type", "field", "content", "text"]
    ),
    json_values,
    max_size=3,
)
notes = st.dictionaries(
    st.sampled_from(["parts", "content_type", "id", "from", "instructions", "metadata", "author", "role"]),
    json_values | st.dictionaries(st.sampled_from(["0", "1"]), part_extras),
    max_size=3,
)
roles = st.sampled_from(["user", "assistant", "tool", "system", "x"])
entries = st.builds(
    ExportEntry,
    st.builds(Message, roles, st.lists(parts, max_size=3), metadata),
    st.none() | st.just("2026-01-02T03:04:05.678Z"),
    notes,
    st.sampled_from(["", "ab" * 32]),
)


@pytest.mark.parametrize("format", SUFFIXES)
@settings(max_examples=60, deadline=None)
@given(chain=st.lists(entries, max_size=4))
def test_whatever_messages_and_notes_hold_a_writer_writes_and_the_reader_reads(format, chain):
    text, losses = writer(format)(chain, None)
    assert all(loss.kind and loss.place for loss in losses)
    if format in READERS:
        read_files(READERS[format], {f"a{SUFFIXES[format]}": text.encode("utf-8")})


def test_every_writer_that_has_a_reader_writes_what_that_reader_knows():
    assert {reader(module.FORMAT).FORMAT for module in READERS.values()} == {m.FORMAT for m in READERS.values()}
