"""What the views promise beside the recorded vectors: whole histories, honest cards, no endless walk."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from objstore.canonical import message_content_hash
from objstore.message import Message, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from objstore.node import Node
from objstore.views import (
    Expose,
    Row,
    Rows,
    aggregate_tool_messages,
    linear_history,
    render_context,
    siblings,
    spawned_from,
)
from refs.ids import ROOT


def row(oid, parent=ROOT, said="", role=None, **more):
    """A row whose role is told by its first letter."""
    role = role or {"u": "user", "a": "assistant", "t": "tool", "f": "tool", "s": "user"}[oid[0]]
    parts = [TextPart(said)] if isinstance(said, str) else said
    return Row(oid, role, parent, message=Message(role, parts), **more)


def call(name, oid=None, **arguments):
    return ToolCallPart(name, arguments, oid)


def result(name, output, oid=None, **more):
    return ToolResultPart(name, output, oid, **more)


def ids(rows):
    return [each.id for each in rows]


def run(oid, name="work", **more):
    """A function's run: arguments and result in one row."""
    return row(oid, said=[call(name, oid), result(name, "done", oid)], **more)


# -- the two edges


TWO_TURNS = [
    row("u1"),
    row("a1", "u1", [call("task", "c")]),
    row("u2", "a1"),
    row("a2", "u2"),
    row("s1", called_by="a1", tool_call_id="c"),
    row("as", "s1"),
]


def test_a_session_whose_turns_both_hung_at_the_root_reads_whole():
    """Each user turn was called by nobody; `parent` chains them all the same."""
    assert ids(linear_history(TWO_TURNS, "a2")) == ["u1", "a1", "u2", "a2"]
    assert siblings(TWO_TURNS, "u2").ids == ("u2",)


def test_the_hierarchy_is_still_told_apart():
    assert spawned_from(TWO_TURNS, "a2") is None
    spawn = spawned_from(TWO_TURNS, "as")
    assert (spawn.first, spawn.called_by, spawn.tool_call_id) == ("s1", "a1", "c")
    assert ids(linear_history(TWO_TURNS, "as")) == ["s1", "as"]


def test_a_later_prompt_to_an_agent_is_what_its_answers_were_spawned_from():
    rows = [*TWO_TURNS, row("s2", "as", called_by="a2"), row("as2", "s2")]
    assert spawned_from(rows, "as2").called_by == "a2"
    assert ids(linear_history(rows, "as2")) == ["s1", "as", "s2", "as2"]


def test_an_unknown_row_has_no_siblings_and_was_spawned_from_nothing():
    assert siblings(TWO_TURNS, "gone").ids == ()
    assert spawned_from(TWO_TURNS, "gone") is None


def test_a_row_is_made_of_a_stored_node_and_its_notes():
    message = Message.of("user", "sum it up")
    node = Node(ROOT, message_content_hash(message), "a" * 64, "c")
    made = Row.of(
        node.id, node, message, {"expose": "full", "covers": ["x", 1], "hidden": True, "source": {"id": "7"}}, 3
    )
    assert made == Row(
        node.id,
        "user",
        ROOT,
        "a" * 64,
        "c",
        3,
        message,
        Expose.FULL,
        display="hidden",
        covers=("x",),
    )


def test_an_unknown_exposure_in_a_note_counts_as_none():
    node = Node(ROOT, "b" * 64)
    assert Row.of(node.id, node, None, {"expose": "everything"}, 0) == Row(node.id, "")


# -- siblings


def test_siblings_count_every_answer_and_lead_to_the_deepest_leaf_of_each():
    rows = [
        row("u1", order=1),
        row("a1", "u1", order=2),
        row("a2", "u1", order=3),
        row("u2", "a1", order=4),
        row("a3", "u2", order=5),
        row("u3", "a1", order=9),
    ]
    found = siblings(rows, "a2")
    assert (found.ids, found.index) == (("a1", "a2"), 2)
    assert found.leaves == ("a3", "a2"), "u3 is newer, but a3 is deeper"


def test_siblings_are_in_order_of_time_not_of_the_rows_given():
    rows = [row("a2", "u1", order=9), row("a1", "u1", order=2), row("u1", order=1)]
    assert siblings(rows, "a1").ids == ("a1", "a2")


def test_a_summary_at_the_root_is_no_alternative_first_message():
    rows = [row("u1"), row("a9", covers=("u1",))]
    assert siblings(rows, "u1").ids == ("u1",)
    assert siblings(rows, "a9").ids == ("a9",)


# -- the chat view


def cards(item):
    return [(card.tool, card.input, card.result, card.is_error) for card in item.cards]


def test_results_in_the_chain_become_cards_of_the_message_that_called():
    items = aggregate_tool_messages(
        [
            row("u1", said="list"),
            row("a1", "u1", [ReasoningPart("hm"), TextPart("so"), call("ls", "x", path="/"), call("df", "y")]),
            row("t1", "a1", [result("df", "full", "y", exception="disk")]),
            row("t2", "t1", [result("ls", "etc", "x")]),
            row("a2", "t2", said="there"),
        ]
    )
    assert ids(item.row for item in items) == ["u1", "a1", "a2"]
    assert cards(items[1]) == [("ls", '{"path": "/"}', "etc", False), ("df", "{}", "full", True)]
    assert [(block.type, block.text) for block in items[1].blocks] == [("thinking", "hm"), ("text", "so")]
    assert items[1].folded == ("t1", "t2")
    assert [card.result_in for card in items[1].cards] == ["t2", "t1"]


def test_a_repeated_tool_id_answers_the_nearest_open_call():
    items = aggregate_tool_messages(
        [
            row("a1", said=[call("add", "x", n=1)]),
            row("t1", "a1", [result("add", "1", "x")]),
            row("a2", "t1", [call("add", "x", n=2)]),
            row("t2", "a2", [result("add", "2", "x")]),
        ]
    )
    assert [cards(item) for item in items] == [
        [("add", '{"n": 1}', "1", False)],
        [("add", '{"n": 2}', "2", False)],
    ]


def test_an_orphan_is_shown_as_one_beside_what_is_paired():
    items = aggregate_tool_messages(
        [
            row("a1", said=[call("ls", "x")]),
            row("t1", "a1", [result("ls", "etc", "x"), result("ls", "again", "x")]),
        ]
    )
    assert ids(item.row for item in items) == ["a1", "t1"]
    assert cards(items[0]) == [("ls", "{}", "etc", False)]
    assert [card.result for card in items[1].orphans] == ["again"]


def test_words_beside_a_result_stay_a_message():
    items = aggregate_tool_messages(
        [row("a1", said=[call("ls", "x")]), row("u1", "a1", [result("ls", "etc", "x"), TextPart("go on")])]
    )
    assert ids(item.row for item in items) == ["a1", "u1"]
    assert [block.text for block in items[1].blocks] == ["go on"]
    assert items[0].folded == ()


def test_a_call_without_an_answer_is_a_card_without_a_result():
    (item,) = aggregate_tool_messages([row("a1", said=[call("ls", "x")])])
    assert cards(item) == [("ls", "{}", None, False)]


def test_an_agents_run_follows_the_message_that_asked_one_level_deeper():
    rows = [
        row("u1"),
        row("a1", "u1", [call("task", "c")]),
        row("t1", "a1", [result("task", "found", "c")]),
        row("a2", "t1"),
        row("s1", called_by="a1", tool_call_id="c"),
        row("a3", "s1", [call("ls", "c")]),
        row("t3", "a3", [result("ls", "etc", "c")]),
        row("s4", called_by="a3"),
    ]
    items = aggregate_tool_messages(rows)
    assert [(item.row.id, item.level, item.asked_by, item.run) for item in items] == [
        ("u1", 0, None, None),
        ("a1", 0, None, None),
        ("s1", 1, "a1", "s1"),
        ("a3", 1, "a1", "s1"),
        ("s4", 2, "a3", "s4"),
        ("a2", 0, None, None),
    ]
    assert cards(items[1]) == [("task", "{}", "found", False)], "pairing stays within a chain"
    assert cards(items[3]) == [("ls", "{}", "etc", False)]


def test_a_run_answers_the_call_that_asked_for_it_where_nothing_else_does():
    rows = [row("a1", said=[call("work", "c", n=1)]), run("f1", called_by="a1", tool_call_id="c")]
    (item,) = aggregate_tool_messages(rows)
    assert cards(item) == [("work", '{"n": 1}', "done", False)]
    assert item.folded == ("f1",)


def test_a_run_whose_result_the_chain_has_too_is_not_told_twice_as_a_card():
    rows = [
        row("a1", said=[call("work", "c")]),
        row("t1", "a1", [result("work", "told", "c")]),
        run("f1", called_by="a1", tool_call_id="c"),
    ]
    items = aggregate_tool_messages(rows)
    assert [(item.row.id, item.level) for item in items] == [("a1", 0), ("f1", 1)]
    assert cards(items[0]) == [("work", "{}", "told", False)]


def test_what_a_folded_run_did_hangs_on_the_message_it_is_folded_into():
    rows = [
        row("a1"),
        run("f1", called_by="a1"),
        row("u2", "f1"),
        row("a2", "u2"),
        row("s3", called_by="f1"),
        row("a9", "a1"),
    ]
    items = aggregate_tool_messages(rows)
    assert [(item.row.id, item.level, item.asked_by) for item in items] == [
        ("a1", 0, None),
        ("u2", 1, "a1"),
        ("a2", 1, "a1"),
        ("s3", 1, "a1"),
        ("a9", 0, None),
    ]


def test_runs_that_no_message_asked_for_stand_by_themselves_with_what_hangs_on_them():
    rows = [
        row("u1"),
        run("f1", called_by="gone"),
        row("a5", called_by="f1"),
        replace(run("t2"), display="runtime"),
        row("a6", called_by="t2"),
        row("a1", "u1"),
    ]
    items = aggregate_tool_messages(rows)
    assert [(item.row.id, item.level, item.run) for item in items] == [
        ("u1", 0, None),
        ("f1", 0, "f1"),
        ("a5", 1, "a5"),
        ("t2", 0, "t2"),
        ("a6", 1, "a6"),
        ("a1", 0, None),
    ]
    assert cards(items[1]) == [("work", "{}", "done", False)]


def test_an_erased_message_leaves_its_place():
    items = aggregate_tool_messages([row("u1"), Row("x", "", "u1"), row("a1", "x")])
    assert ids(item.row for item in items) == ["u1", "x", "a1"]
    assert items[1].blocks == ()


# -- the context


def function_rows(expose, inner=Expose.IO):
    """A message that calls f1, which asks an LLM and calls f2, which asks an LLM."""
    return [
        row("u1", order=1),
        row("a1", "u1", order=2),
        run("f1", called_by="a1", order=3, expose=expose),
        row("a3", called_by="f1", order=4),
        run("f2", called_by="f1", order=5, expose=inner),
        row("a4", called_by="f2", order=6),
        row("u9", "a1", order=9),
    ]


@pytest.mark.parametrize(
    ("expose", "inner", "shown"),
    [
        ("io", "io", ["f1", "f2"]),
        ("io", "full", ["f1", "f2", "a4"]),
        ("io", "hidden", ["f1"]),
        ("llm", "full", ["a3"]),
        ("full", "io", ["f1", "a3", "f2"]),
        ("full", "llm", ["f1", "a3", "a4"]),
        ("full", "full", ["f1", "a3", "f2", "a4"]),
        ("hidden", "full", []),
    ],
)
def test_each_function_decides_what_its_caller_sees(expose, inner, shown):
    rows = function_rows(Expose(expose), Expose(inner))
    assert ids(render_context(rows, "u9")) == ["u1", "a1", *shown, "u9"]


def test_a_function_sees_itself_and_its_callers_whatever_it_exposes():
    rows = function_rows(Expose.HIDDEN)
    assert ids(render_context(rows, "a3")) == ["u1", "a1", "f1", "a3"]


def test_an_agent_that_a_message_spawned_sees_its_own_chain_only():
    assert ids(render_context(TWO_TURNS, "as")) == ["s1", "as"]


def test_a_prompt_that_a_function_spawned_may_say_that_it_sees_no_caller():
    rows = [*function_rows(Expose.FULL), row("s7", called_by="f1", order=7, source="agent_spawn")]
    assert ids(render_context(rows, "s7")) == ["s7"]
    assert ids(render_context([replace(each, source=None) for each in rows], "s7"))[:3] == ["u1", "a1", "f1"]


def test_a_functions_own_chain_is_part_of_its_run():
    rows = [
        row("a1", order=1),
        run("f1", called_by="a1", order=2, expose=Expose.FULL),
        row("u2", called_by="f1", order=3),
        row("a2", "u2", order=4),
    ]
    assert ids(render_context(rows, "a1")) == ["a1", "f1", "u2", "a2"]
    assert ids(render_context(rows, "a2")) == ["a1", "f1", "u2", "a2"]
    rows[1] = replace(rows[1], expose=Expose.IO)
    assert ids(render_context(rows, "a1")) == ["a1", "f1"]


def test_a_hidden_run_takes_what_it_called_with_it():
    rows = [*TWO_TURNS[:4], replace(TWO_TURNS[4], expose=Expose.HIDDEN), run("f9", called_by="s1")]
    assert ids(render_context(rows, "a2")) == ["u1", "a1", "u2", "a2"]


def test_caps_keep_the_newest_caller_rows_and_the_first_levels_of_calls():
    rows = function_rows(Expose.FULL, Expose.FULL)
    assert ids(render_context(rows, "a4", frame=5, max_caller_rows=2)) == ["a3", "f2", "a4"]
    assert ids(render_context(rows, "a4", frame=5, max_caller_rows=0)) == ["a4"]
    assert ids(render_context(rows, "u9", max_call_levels=1)) == ["u1", "a1", "f1", "u9"]
    assert ids(render_context(rows, "u9", max_call_levels=0)) == ["u1", "a1", "u9"]


def chain(*names):
    return [row(name, names[i - 1] if i else ROOT, order=i) for i, name in enumerate(names)]


def test_a_summary_of_summaries_stands_for_all_that_they_cover():
    rows = [
        *chain("u1", "a1", "u2", "a2", "u3"),
        row("a8", order=8, covers=("u1", "a1")),
        row("a9", order=9, covers=("a8", "u2")),
    ]
    assert ids(render_context(rows, "u3")) == ["a9", "a2", "u3"]
    assert ids(render_context(rows, "a1")) == ["a8"]
    assert ids(render_context(rows, "u3", until=8)) == ["a8", "u2", "a2", "u3"]


def test_of_summaries_that_share_a_row_the_newest_stands():
    rows = [
        *chain("u1", "a1", "u2"),
        row("a7", order=7, covers=("u1", "a1")),
        row("a8", order=8, covers=("a7",)),
        row("a9", order=9, covers=("a1",)),
    ]
    assert ids(render_context(rows, "u2")) == ["u1", "a9", "u2"]


def test_what_a_covered_row_called_goes_with_it():
    rows = [*chain("u1", "a1", "u2"), run("f1", called_by="a1", order=3), row("a9", order=9, covers=("u1", "a1"))]
    assert ids(render_context(rows, "u2")) == ["a9", "u2"]


def test_without_a_head_the_newest_row_of_the_conversation_is_taken():
    rows = [*chain("u1", "a1"), row("s1", called_by="a1", order=5), row("a9", order=9, covers=("gone",))]
    assert ids(render_context(rows, max_call_levels=0)) == ["u1", "a1"]
    assert render_context([]) == []


# -- any graph at all


NAMES = [ROOT, *(f"{letter}{i}" for letter in "uatf" for i in range(3))]


@st.composite
def graphs(draw):
    """Rows whose edges lead anywhere: forward, backward, in circles, to nothing."""
    name = st.sampled_from([*NAMES, "gone"])
    made = []
    for oid in draw(st.lists(st.sampled_from(NAMES[1:]), max_size=14)):
        parts = st.sampled_from([[], [TextPart("x")], [call("f", "1")], [result("f", "y", "1")]])
        made.append(
            row(
                oid,
                draw(name),
                draw(parts) + draw(parts),
                called_by=draw(st.none() | name),
                tool_call_id=draw(st.sampled_from([None, "1"])),
                order=draw(st.integers(0, 5)),
                expose=draw(st.sampled_from(Expose)),
                display=draw(st.sampled_from([None, "runtime"])),
                covers=tuple(draw(st.lists(name, max_size=3))) if draw(st.booleans()) else (),
            )
        )
    return made


@given(graphs())
def test_the_chat_view_shows_every_row_once_whatever_the_graph(rows):
    items = aggregate_tool_messages(rows)
    shown = [item.row.id for item in items] + [oid for item in items for oid in item.folded]
    assert sorted(shown) == sorted({each.id for each in rows})


@given(graphs(), st.sampled_from(NAMES))
def test_a_history_ends_and_holds_no_row_twice_whatever_the_graph(rows, head):
    history = ids(linear_history(rows, head))
    assert len(set(history)) == len(history)
    assert history[-1:] == ([head] if head in Rows.of(rows) else [])


@given(graphs(), st.sampled_from(NAMES))
def test_siblings_hold_the_row_itself_whatever_the_graph(rows, oid):
    found = siblings(rows, oid)
    if oid not in Rows.of(rows):
        assert found.ids == ()
    else:
        assert found.ids[found.index - 1] == oid
        assert len(found.leaves) == len(found.ids)
        assert set(found.leaves) <= set(NAMES)


@given(graphs(), st.sampled_from(NAMES), st.none() | st.integers(0, 5), st.none() | st.integers(0, 3))
def test_a_context_ends_and_holds_no_row_twice_whatever_the_graph(rows, head, frame, cap):
    shown = ids(render_context(rows, head, frame=frame, max_caller_rows=cap, max_call_levels=cap))
    assert len(set(shown)) == len(shown)
    if head in Rows.of(rows) and frame is None and not any(each.covers for each in rows):
        assert head in shown


def test_depth_is_no_matter_of_recursion():
    long = [
        Row(str(i), "user", str(i - 1) if i else ROOT, called_by=f"{i - 1}" if i % 2 else None)
        for i in range(20_000)
    ]
    nested = [Row(str(i), "tool", called_by=str(i - 1), order=i) for i in range(20_000)]
    assert len(linear_history(long, "19999")) == 20_000
    assert siblings(long, "0").leaves == ("19999",)
    assert aggregate_tool_messages(nested)[-1].level == 19_999
    assert len(render_context(nested, "0")) == 20_000


# -- real agent sessions

_TAU = Path(__file__).parents[3] / "shared" / "data" / "openai-chat" / "taubench-gpt-4o-airline-first.json"


@pytest.mark.skipif(not _TAU.exists(), reason="the tool benchmark's sessions are not beside this repository")
def test_every_tool_result_of_the_tool_benchmark_is_a_card_or_an_orphan():
    told = shown = orphans = 0
    for session in json.loads(_TAU.read_text()):
        rows = []
        for i, said in enumerate(session["traj"]):
            parts = [TextPart(said["content"])] if said.get("content") and said["role"] != "tool" else []
            for each in said.get("tool_calls") or ():
                parts.append(ToolCallPart(each["function"]["name"], {}, each["id"]))
            if said["role"] == "tool":
                told += 1
                parts.append(result(said["name"], said["content"], said["tool_call_id"]))
            rows.append(row(str(i), str(i - 1) if i else ROOT, parts, said["role"]))
        for item in aggregate_tool_messages(rows):
            shown += sum(card.result is not None for card in item.cards)
            orphans += len(item.orphans)
    assert told == shown + orphans
    assert told > 700
    assert orphans == 0
