"""A streamed message: whatever was journalled comes back, and nothing half-read gets in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from objstore import draft as draft_module
from objstore.draft import Delta, DeltaKind, DraftBuffer
from objstore.message import Message, ReasoningPart, TextPart, ToolCallPart, ToolResultPart, UnknownPart
from refs.errors import InvalidValue, LimitExceeded

END = Delta(DeltaKind.END)


def text(said, **more):
    return Delta(DeltaKind.TEXT, said, **more)


def thought(said="", **more):
    return Delta(DeltaKind.REASONING, said, **more)


def tool(said="", **more):
    return Delta(DeltaKind.TOOL_CALL, said, **more)


def fed(*deltas):
    draft = DraftBuffer()
    return draft, [draft.feed(delta) for delta in deltas]


def parts(*deltas):
    return list(fed(*deltas)[0].message(partial=True).parts)


def test_fragments_become_one_part_of_each_kind_in_order():
    made = parts(thought("h"), thought("m"), text("Hel"), text("lo"), thought("again"), text("!"))
    assert made == [ReasoningPart("hm"), TextPart("Hello"), ReasoningPart("again"), TextPart("!")]


def test_blocks_with_a_number_may_come_mixed():
    made = parts(text("a", index=0), text("x", index=2), text("b", index=0))
    assert made == [TextPart("ab"), TextPart("x")]


def test_a_tool_call_grows_from_its_fragments():
    made = parts(tool(index=0, id="c1", name="ls"), tool('{"pa', index=0), tool('th": "/"}', index=0))
    assert made == [ToolCallPart("ls", {"path": "/"}, "c1")]


def test_tool_calls_are_told_apart_by_number_or_by_id():
    numbered = parts(tool("{}", index=0, name="a"), tool('{"n":', index=1, name="b"), tool("1}", index=1))
    assert numbered == [ToolCallPart("a"), ToolCallPart("b", {"n": 1})]
    named = parts(tool(id="x", name="a"), tool(id="y", name="b"), tool("{}"))
    assert named == [ToolCallPart("a", {}, "x"), ToolCallPart("b", {}, "y")]


@pytest.mark.parametrize(
    "said", ['{"path": "/', "[1]", "plain", '{"n": NaN}', "[" * 300, '{"n":' * 127 + "1" + "}" * 127]
)
def test_arguments_that_are_no_object_are_kept_as_text(said):
    assert parts(tool(said, name="f")) == [ToolCallPart("f", {"_raw": said})]


def test_large_integers_in_arguments_stay_exact():
    (made,) = parts(tool('{"n": 18446744073709551617}', name="f"))
    assert made.arguments["n"] == 2**64 + 1
    assert isinstance(made.arguments["n"], int)


def test_a_signature_joins_the_part_that_it_signs():
    made = parts(thought("hm", index=0), thought(index=0, metadata={"signature": "s"}), text("so"))
    assert made == [ReasoningPart("hm", provider_metadata={"signature": "s"}), TextPart("so")]


def test_parts_that_come_whole_stand_where_they_came():
    whole = [
        ToolResultPart("search", "found", "c", server_executed=True),
        UnknownPart({"type": "chart", "x": 1.5}),
    ]
    made = parts(text("a"), *map(Delta.whole, whole), text("b"))
    assert made == [TextPart("a"), *whole, TextPart("b")]


def test_a_character_cut_in_two_by_the_stream_is_joined():
    half, other = "\ud83d", "\ude00"
    draft, lines = fed(text(half), text(other), tool('{"a": "' + half, name="f"), tool(other + '"}'), END)
    made = [TextPart("😀"), ToolCallPart("f", {"a": "😀"})]
    assert list(draft.message().parts) == made
    assert list(DraftBuffer.recover(lines).message().parts) == made


def test_a_message_is_given_only_when_it_is_complete():
    draft, _ = fed(Delta(DeltaKind.ROLE, "model"), text("half"))
    with pytest.raises(InvalidValue, match="not ended"):
        draft.message()
    assert draft.message(partial=True) == Message.of("model", "half")
    draft.feed(END)
    assert draft.message() == Message.of("model", "half")


def test_nothing_is_added_after_the_end():
    draft, _ = fed(text("all"), END)
    with pytest.raises(InvalidValue, match="ended"):
        draft.feed(text("more"))
    assert draft.message() == Message.of("assistant", "all")


def test_a_cut_stream_is_recovered_up_to_its_last_whole_line():
    draft, lines = fed(text("one "), text("two "), text("three"))
    for cut in range(1, len(lines[-1])):
        found = DraftBuffer.recover([*lines[:-1], lines[-1][:-cut]])
        assert found.message(partial=True) == Message.of("assistant", "one two ")
        assert found.size == len(lines[0]) + len(lines[1])
    assert DraftBuffer.recover(lines).message(partial=True) == draft.message(partial=True)
    assert not DraftBuffer.recover(lines).ended


def test_a_recovered_draft_goes_on_where_it_stopped():
    _, lines = fed(tool('{"a"', index=0, id="c", name="f"))
    draft = DraftBuffer.recover(lines)
    draft.feed(tool(": 1}", index=0))
    draft.feed(END)
    assert list(draft.message().parts) == [ToolCallPart("f", {"a": 1}, "c")]


def test_an_empty_journal_is_an_empty_draft():
    assert DraftBuffer.recover([]).message(partial=True) == Message("assistant")


@pytest.mark.parametrize(
    "bad", [b"\x00\x00\n", b"\n", b"[]\n", b'{"text":"x"}\n', b'{"kind":"text","more":1}\n', b'{"kind":"tex']
)
def test_damage_in_the_middle_is_told_by_its_line(bad):
    _, (first, last) = fed(text("a"), text("b"))
    with pytest.raises(InvalidValue) as caught:
        DraftBuffer.recover([first, bad, last])
    assert caught.value.path.startswith("line 2")


@pytest.mark.parametrize(
    ("members", "path"),
    [
        ({"kind": "word"}, "kind"),
        ({"kind": "role"}, "text"),
        ({"kind": "text", "text": 1}, "text"),
        ({"kind": "text", "index": "0"}, "index"),
        ({"kind": "text", "metadata": {"a": 1.5}}, "metadata.a"),
        ({"kind": "part", "part": {"type": "text"}}, "text"),
    ],
)
def test_a_bad_delta_is_refused(members, path):
    with pytest.raises(InvalidValue) as caught:
        Delta(**members)
    assert caught.value.path == path


def test_a_draft_has_a_bound_and_a_refused_delta_leaves_it_as_it_was(monkeypatch):
    monkeypatch.setattr(draft_module, "MAX_DRAFT_BYTES", 60)
    draft, _ = fed(text("short"))
    with pytest.raises(LimitExceeded):
        draft.feed(text("x" * 60))
    assert draft.message(partial=True) == Message.of("assistant", "short")


_TEXT = st.text(st.characters(codec=None), max_size=5) | st.sampled_from(["\ud83d", "\ude00", '{"', '"a":1}', ""])
_DELTAS = st.lists(
    st.builds(
        Delta,
        st.sampled_from([DeltaKind.TEXT, DeltaKind.REASONING, DeltaKind.TOOL_CALL]),
        _TEXT,
        index=st.none() | st.integers(-1, 2),
        id=st.none() | st.sampled_from(["", "c", "d"]),
        name=st.none() | _TEXT,
        metadata=st.dictionaries(st.sampled_from("ab"), _TEXT | st.integers(), max_size=2),
    ),
    max_size=8,
)


@given(_DELTAS)
def test_the_lines_alone_make_the_same_message(deltas):
    draft, lines = fed(*deltas)
    found = DraftBuffer.recover(lines)
    assert found.message(partial=True) == draft.message(partial=True)
    assert found.size == draft.size == sum(map(len, lines))
    assert all(line.count(b"\n") == 1 for line in lines)
