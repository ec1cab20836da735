"""dag calls, usage, view, context, tree, drafts, and dag log --calls."""

import json

import pytest

from cli.commands.tree import _branches as branches
from cli.times import shown
from objstore import (
    ROOT,
    Delta,
    DeltaKind,
    Message,
    NewCall,
    ReasoningPart,
    Store,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from tests.cli.conftest import said

NASTY = "\x1b]0;owned\x07\x9b31m\u202e"
AT = "2026-01-02T03:04:05.678Z"


def say(words, role="user"):
    return Message.of(role, words)


@pytest.fixture
def store(dag):
    with Store.open(dag.folder / ".dag") as made:
        yield made


@pytest.fixture
def agent(dag, store):
    """A conversation with a tool, an agent below it, a failed call, and a fork."""
    store.commit("main", [say("be brief", "system"), say("what is here?")])
    calls = [ToolCallPart("ls", {"path": "/"}, "c1"), ToolCallPart("task", {"what": "count"}, "c2")]
    call = NewCall(
        model="gpt-x",
        resolved_model="gpt-x-1",
        input_tokens=1200,
        output_tokens=34,
        started_at=AT,
        duration_ms=1530,
    )
    asker = store.commit("main", [Message("assistant", [ReasoningPart("let me look"), *calls])], call=call)
    made = store.record_exchange(
        [say("count the files")],
        [say("7", "assistant")],
        call=NewCall(model="mini", input_tokens=5, output_tokens=1, started_at="2026-01-03T00:00:00.000Z"),
        called_by=asker,
        tool_call_id="c2",
    )
    store.save_chain([say("deeper")], called_by=made.head_output)
    store.commit("main", [Message("tool", [ToolResultPart("ls", "a b", "c1"), ToolResultPart("task", "7", "c2")])])
    store.commit("main", [], call=NewCall(model="gpt-x", error="503\nbusy", started_at="2026-01-04T00:00:00.000Z"))
    asked = store.head("main")
    last = [Message("assistant", [TextPart("Seven.")]), Message("tool", [ToolResultPart("who", "?", "zz")])]
    store.commit("main", last)
    store.fork(store.save_chain([say("No idea.", "assistant")], asked), "other")
    return dag


# -- calls ----------------------------------------------------------------------------------------


def test_calls_are_listed_newest_first_with_what_they_took(agent):
    lines = agent("calls").out.splitlines()
    assert "gpt-x  failed: 503 busy" in lines[0] and lines[0].endswith("-> nothing  main")
    assert "mini  5 in, 1 out" in lines[1]
    assert f"{shown(AT)}  gpt-x (gpt-x-1)  1,200 in, 34 out  1.5 s" in lines[2]


@pytest.mark.parametrize(
    ("args", "models"),
    [
        ((), ["gpt-x", "mini", "gpt-x"]),
        (("main",), ["gpt-x", "mini", "gpt-x"]),
        (("main~4",), ["gpt-x"]),
        (("main~5",), []),
        (("other", "--errors"), ["gpt-x"]),
        (("--model", "gpt-*"), ["gpt-x", "gpt-x"]),
        (("--model", "gpt-x-1"), ["gpt-x"]),
        (("--model", "GPT-X"), []),
        (("--since", "2026-01-03T00:00:00Z"), ["gpt-x", "mini"]),
        (("main", "--since", "2026-01-03T00:00:00.001Z", "--errors"), ["gpt-x"]),
    ],
)
def test_calls_can_be_told_apart(agent, args, models):
    found = [json.loads(line) for line in agent("calls", *args, "--json").out.splitlines()]
    assert [call["model"] for call in found] == models


def test_calls_as_json_are_their_members(agent):
    call = agent("calls", "--errors", "--json").json()
    assert (call["schema"], call["error"], call["conversation"]) == (1, "503 busy", "main")
    assert "head_output" not in call and call["head_input"] == agent("rev-parse", "main~2").out.strip()


# -- usage ----------------------------------------------------------------------------------------


def test_usage_is_a_table_with_a_line_for_all(agent):
    assert agent("usage").out.splitlines() == [
        "model    calls  failed     in  out",
        "gpt-x        1       1      0    0",
        "gpt-x-1      1       0  1,200   34",
        "mini         1       0      5    1",
        "all          3       1  1,205   35",
    ]


def test_usage_tells_costs_and_what_has_no_price(agent):
    agent.write("p.json", {"gpt-x*": {"input": 2_500_000, "output": 10_000_000}})
    out = agent("usage", "--by", "day", "--prices", "p.json").out
    assert "2026-01-02      1       0  1,200   34  0.003340\n" in out
    assert out.endswith("\n\n1 call without a price, not in the cost: mini\n")


def test_usage_as_json_counts_in_millionths(agent):
    agent.write("p.json", {"*": {"input": 2_500_000, "output": 10_000_000}})
    *groups, total = agent("usage", "--by", "conversation", "--prices", "p.json", "--json").json()
    assert [group["group"] for group in groups] == ["", "main"]
    assert (total["group"], total["calls"], total["cost_millionths"]) == (None, 3, 3363)
    assert total["unpriced_models"] == []
    assert "cost_millionths" not in agent("usage", "--json").json()[-1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "p.json"),
        ("[]", "p.json: a price table is an object"),
        ('{"m": {"input": 1.5, "output": 1}}', "p.json: m.input: an integer"),
        ('{"m": {"input": 1}}', "p.json: m.output: missing"),
    ],
)
def test_a_bad_price_table_says_where(agent, text, told):
    agent.write("p.json", text)
    assert told in agent("usage", "--prices", "p.json", code=2).err


def test_a_price_table_that_is_missing_or_too_large_is_told(agent):
    assert "No such file" in agent("usage", "--prices", "none.json", code=1).err
    agent.write("p.json", " " * (1 << 20) + "{}")
    assert "p.json" in agent("usage", "--prices", "p.json", code=2).err


def test_usage_of_a_store_without_calls(dag):
    assert dag("usage").out.splitlines()[-1].split() == ["all", "0", "0", "0", "0"]
    assert dag("calls").out == ""


# -- view -----------------------------------------------------------------------------------------


def test_a_view_folds_results_into_cards_and_marks_siblings(agent):
    lines = agent("view").out.splitlines()
    assert "    (thinking) let me look" in lines
    assert '    → ls (c1) {"path": "/"} ← a b' in lines
    assert '    → task (c2) {"what": "count"} ← 7' in lines
    assert "        count the files" in lines  # the agent's, a level deeper
    assert [line for line in lines if line.startswith("[assistant]") and line.endswith(" 1 of 2")]
    assert "    ? who (zz), which answers no call: ?" in lines
    assert not [line for line in lines if line.startswith("[tool]") and "a b" in line]


def test_a_view_says_what_asked_for_a_run(agent):
    asker = agent("rev-parse", "main~3").out[:8]
    assert f"asked for by {asker}" in agent("view").out


def test_a_view_as_json_has_every_node_once(agent, store):
    items = agent("view", "main", "--json").json()
    nodes = [oid for item in items for oid in (item["node"], *item["folded"])]
    assert len(nodes) == len(set(nodes)) == store.depth(store.head("main")) + 3
    caller = next(item for item in items if item["cards"])
    assert [card["result"] for card in caller["cards"]] == ["a b", "7"]
    assert [item["level"] for item in items] == [0, 0, 0, 1, 1, 2, 0, 0]
    assert items[-1]["orphans"][0]["tool"] == "who"
    (marked,) = [item for item in items if item["siblings"]]
    assert marked["siblings"][marked["node"]]["index"] == 1
    assert marked["siblings"][marked["node"]]["leaves"][0] == store.head("main")


def test_a_sibling_of_what_is_folded_is_marked_where_it_is_shown(dag, store):
    store.commit("main", [say("hi"), Message("assistant", [ToolCallPart("ls", {}, "c")])])
    asked = store.head("main")
    result = store.commit("main", [Message("tool", [ToolResultPart("ls", "a", "c")])])
    store.save_chain([say("never mind")], asked)
    assert f"    ({result[:8]} is 1 of 2)\n" in dag("view").out


# -- context --------------------------------------------------------------------------------------


def test_a_context_reads_in_order_and_follows_as_many_levels_as_asked(agent):
    assert "count the files" in agent("context", "main").out
    assert "count the files" not in agent("context", "main", "--levels", "0").out
    made = agent("context", "main", "--levels", "0", "--json").json()
    assert len(made["messages"]) == 6
    assert made["messages"][1]["message"] == {"role": "user", "parts": [{"type": "text", "text": "what is here?"}]}


def test_a_context_is_written_as_a_providers_request(agent):
    ran = agent("context", "main", "--levels", "0", "--format", "openai")
    roles = [message["role"] for message in json.loads(ran.out)["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "assistant", "tool"]
    assert "dag: not in this form: message 3: reasoning" in ran.err
    made = json.loads(agent("context", "main", "--format", "anthropic").out)
    assert made["system"] == "be brief" and made["messages"][0]["content"] == "what is here?"


def test_a_summary_takes_the_place_of_what_it_covers(dag, store):
    head = store.commit("main", [say(each) for each in ("one", "two", "three")])
    store.summarize([row.id for row in store.history_rows(head)[:2]], say("in short", "assistant"))
    messages = dag("context", "HEAD", "--json").json()["messages"]
    assert [each["message"]["parts"][0]["text"] for each in messages] == ["in short", "three"]


def test_json_and_a_format_exclude_each_other(agent):
    assert "--json" in agent("context", "main", "--format", "openai", "--json", code=2).err


# -- the hierarchy --------------------------------------------------------------------------------


def test_a_tree_draws_side_chains_with_what_asked_for_them(agent):
    head, asker = agent("rev-parse", "main", "main~3").out.split()
    first, second, third = agent("tree").out.splitlines()
    assert first == f"{head[:8]} 6 messages, 2 calls"
    assert second.startswith("└─ ") and second.endswith(
        f" task (c2) asked for by {asker[:8]}: 2 messages, 1 call  count the files"
    )
    assert third.startswith("   └─ ") and third.endswith(": 1 message, 0 calls  deeper")


def test_a_tree_as_json_is_a_line_a_side_chain(agent):
    one, two = agent("tree", "main", "--json").json()
    assert (one["level"], one["tool_call_id"], one["messages"], one["calls"]) == (1, "c2", 2, 1)
    assert (two["level"], two["tool_call_id"], two["first_line"]) == (2, None, "deeper")
    assert agent("tree", "main~4", "--json").out == ""


def test_the_lines_of_a_tree_join_what_belongs_together():
    assert branches([1, 2, 2, 1, 2, 3, 2]) == ["├─ ", "│  ├─ ", "│  └─ ", "└─ ", "   ├─ ", "   │  └─ ", "   └─ "]


def test_a_tree_of_any_depth_is_drawn_within_bounds(dag, store):
    asker = store.commit("main", [say("hi")])
    for level in range(60):
        asker = store.save_chain([say(f"level {level}")], called_by=asker)
    lines = dag("tree").out.splitlines()
    assert len(lines) == 61 and "(level 60)" in lines[-1]
    assert max(len(line) for line in lines) < 200
    assert len(dag("view").out.splitlines()) == 61 * 3 - 1


def test_a_log_tells_calls_and_what_was_asked_for(agent):
    lines = agent("log", "--calls", "--oneline").out.splitlines()
    (asked,) = [line for line in lines if "asked for" in line]
    assert asked.endswith("(c2): count the files")
    assert len([line for line in lines if line.startswith("    call ")]) == 2
    assert "call " in agent("log", "--calls", "--graph", "--all").out
    found = agent("log", "--calls", "--json").json()
    assert [call.get("error") for each in found for call in each["calls"]] == ["503 busy", None]
    assert [each["tool_call_id"] for entry in found for each in entry["asked_for"]] == ["c2"]
    assert "calls" not in agent("log", "-n", "1", "--json").json()


# -- drafts ---------------------------------------------------------------------------------------


def cut(store, *words, conversation="main"):
    with store.draft(conversation) as draft:
        for each in words:
            draft.feed(Delta(DeltaKind.TEXT, each))
    return draft.id


def test_drafts_are_listed_recovered_and_dropped(dag, store):
    store.commit("main", [say("hi")])
    first, second = cut(store, "half ", "of it"), cut(store, "other")
    lines = dag("drafts").out.splitlines()
    assert lines[0].startswith(first) and ", cut, " in lines[0] and lines[1] == "    half of it"

    assert f"main: recovered {first}, node " in dag("drafts", "--recover", first.lower()).out
    assert store.message(store.node(store.head("main")).message).text == "half of it"
    assert dag("drafts", "--drop", second, "--json").json() == {"schema": 1, "dropped": second}
    assert dag("drafts").out == ""


def test_a_draft_whose_conversation_has_gone_on_is_not_lost(dag, store):
    store.commit("main", [say("hi")])
    first, second = cut(store, "late"), cut(store, "later")
    head = store.commit("main", [say("gone on")])

    ran = dag("drafts", "--recover", first, code=3)
    stored = ran.err.split("dag fork ")[1].split()[0]
    dag("fork", stored, "rescued")
    made = dag("drafts", "--recover", second, "--fork", "apart", "--json").json()

    assert store.head("main") == head
    assert [message.text for message in store.load_chain(store.head("rescued"))] == ["hi", "late"]
    assert made["node"] == store.head("apart")


def test_drafts_as_json_tell_what_is_damaged(dag, store):
    whole = cut(store, "x")
    damaged = cut(store, "y")
    (dag.folder / ".dag/drafts" / f"{damaged}.jsonl").write_bytes(b"not json\n")
    found = {each["draft"]: each for each in dag("drafts", "--json").json()}
    assert found[whole]["damage"] is None and found[whole]["at"] == ROOT
    assert found[damaged]["message"] is None and found[damaged]["damage"]
    assert "unreadable" in dag("drafts").out
    assert dag("drafts", "--recover", damaged, code=4).err


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (("--recover", "01J00000000000000000000009"), 1, "no draft"),
        (("--drop", ""), 1, "no draft"),
        (("--drop", "../config"), 1, "no draft"),
        (("--recover", "0"), 1, "ambiguous"),
        (("--recover", "0", "--drop", "0"), 2, "exclude"),
        (("--fork", "x"), 2, "--recover"),
    ],
)
def test_what_cannot_be_recovered_is_told(dag, store, args, code, told):
    cut(store, "x"), cut(store, "y")
    before = dag.snapshot()
    assert told in dag("drafts", *args, code=code).err
    assert dag.snapshot() == before


# -- what was stored never acts on a terminal -----------------------------------------------------


def test_stored_text_reaches_the_output_escaped(dag, store):
    nasty = f"{NASTY}text"
    call = NewCall(model=nasty, resolved_model=f"{nasty}2", error=nasty, started_at=AT)
    head = store.commit(
        "main",
        [
            Message("user", [TextPart(nasty)]),
            Message(nasty, [ReasoningPart(nasty), ToolCallPart(nasty, {nasty: nasty}, nasty)]),
            Message("tool", [ToolResultPart(nasty, nasty, nasty), ToolResultPart(nasty, nasty, "orphan")]),
        ],
        call=call,
    )
    asker = store.node(head).parent
    store.save_chain([Message("user", [TextPart(nasty)])], called_by=asker, tool_call_id=nasty)
    cut(store, nasty)
    commands = [
        *(("calls",), ("usage",), ("view",), ("tree",), ("log", "--calls"), ("drafts",), ("context", "main")),
        *((name, "--json") for name in ("calls", "usage", "view", "tree", "drafts")),
        *(("context", "main", "--format", form) for form in ("openai", "anthropic")),
        ("context", "main", "--json"),
        ("log", "--calls", "--json"),
    ]
    for command in commands:
        ran = dag(*command)
        for char in "\x1b\x07\x9b\u202e":
            assert char not in ran.out + ran.err, command


def test_an_empty_conversation_has_nothing_to_view(dag):
    for name in ("view", "tree"):
        assert "no message yet" in dag(name, code=1).err
    dag("commit", dag.write("a.json", said("one")))
    assert dag("view").out.endswith("    one\n")
