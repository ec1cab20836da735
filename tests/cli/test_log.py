"""dag log: order, filters, forms, and the drawing of forks."""

import json
import re
import time

import pytest

from cli.graph import Row, branches_together, draw
from objstore import ROOT, Message, Store
from tests.cli.conftest import said


def lines_of(picture):
    return [line.rstrip() for line in picture.strip("\n").splitlines()]


def drawn(*edges):
    """The graph of (node, parent) pairs, newest first."""
    return list(draw(Row(node, parent, [node]) for node, parent in edges))


@pytest.fixture
def forked(dag):
    dag("commit", dag.write("a.json", said("one", "two", "three")))
    dag("fork", "HEAD~1", "side")
    dag("commit", "-m", "other", "--role", "assistant", "-c", "side")
    return dag


# -- what is shown --------------------------------------------------------------------------------


def test_messages_come_newest_first_with_id_role_time_and_first_line(dag):
    dag("commit", dag.write("a.json", said("one\nmore", "two")))
    out = dag("log", TZ="UTC").out.splitlines()
    at = dag("log", "-n", "1", "--json").json()["at"]
    head = dag("rev-parse", "HEAD").out[:8]
    assert out[0] == f"{head} assistant {at[:10]} {at[11:19]} (HEAD -> main)"
    assert out[1:3] == ["    two", ""]
    assert out[4] == "    one"


def test_oneline_is_one_line_a_message(dag):
    dag("commit", dag.write("a.json", said("one\nmore", "two")))
    ids = dag("rev-parse", "HEAD", "HEAD~1").out.split()
    assert dag("log", "--oneline").out == (f"{ids[0][:8]} (HEAD -> main) assistant: two\n{ids[1][:8]} user: one\n")


def test_names_stand_beside_their_nodes(forked):
    forked("tag", "v1", "main~2")
    found = {each["first_line"]: each["refs"] for each in forked("log", "--all", "--json").json()}
    assert found == {"one": ["tags/v1"], "two": [], "three": ["main"], "other": ["side"]}
    assert "(HEAD -> side)" in forked("log", "--all", DAG_CONVERSATION="side").out


def test_names_stand_beside_their_nodes_however_many_are_shown(dag):
    dag("commit", dag.write("a.json", said(*map(str, range(30)))))
    for back in range(30):
        dag("tag", f"back{back}", f"HEAD~{back}")
    for count in (1, 2, 30):
        shown = [each["refs"][-1] for each in map(json.loads, dag("log", "-n", count, "--json").out.splitlines())]
        assert shown == [f"tags/back{back}" for back in range(count)]


def test_json_is_a_line_a_message_with_a_schema(dag):
    dag("commit", "-m", "hello")
    made = dag("log", "--json").json()
    assert made.keys() == {"schema", "node", "parent", "message", "role", "at", "first_line", "refs"}
    assert (made["schema"], made["parent"], made["role"], made["first_line"]) == (1, "root", "user", "hello")


def test_n_and_role_choose(dag):
    dag("commit", dag.write("a.json", said(*"abcde")))

    def shown(*args):
        return [json.loads(line)["first_line"] for line in dag("log", "--json", *args).out.splitlines()]

    assert shown("-n", "2") == ["e", "d"]
    assert shown("-n", "0") == []
    assert shown("--role", "assistant") == ["d", "b"]
    assert shown("--role", "assistant", "--role", "user", "-n", "2") == ["e", "d"]
    assert shown("--role", "nobody") == []
    assert shown("HEAD~2", "-n", "2") == ["c", "b"]


def test_since_and_until_take_days_times_and_ages(dag):
    at = ["2024-01-01T10:00:00Z", "2024-01-02T10:00:00Z", "2024-01-03T10:00:00Z"]
    dag("commit", "-", input=json.dumps([{"role": "user", "content": each, "created_at": each} for each in at]))
    dag("commit", "-m", "today")

    def shown(*args, **environ):
        out = dag("log", "--json", *args, **environ).out
        return [json.loads(line)["first_line"][8:10] for line in out.splitlines()]

    assert shown("--since", "2024-01-02", TZ="UTC") == ["", "03", "02"]
    assert shown("--until", "2024-01-02", TZ="UTC") == ["02", "01"]
    assert shown("--since", "2024-01-02T10:00:01Z", "--until", "2024-01-04") == ["03"]
    assert shown("--since", "3 days") == shown("--since", "1w") == shown("--since", "90 minutes ago") == [""]
    assert shown("--until", "3d") == ["03", "02", "01"]


def test_days_are_those_of_the_local_zone(dag, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        late = "2024-01-01T20:00:00Z"  # the second of January in Tokyo
        dag("commit", "-", input=json.dumps([{"role": "user", "content": "x", "created_at": late}]))
        assert "2024-01-02 05:00:00" in dag("log").out
        assert dag("log", "--since", "2024-01-02", "--json").out
        assert not dag("log", "--until", "2024-01-01", "--json").out
    finally:
        monkeypatch.undo()
        time.tzset()


def test_what_is_no_time_is_a_usage_error(dag):
    ran = dag("log", "--since", "yesteryear", code=2)
    assert "'yesteryear' is neither a time like" in ran.err


def test_all_shows_every_node_once_newest_first(forked):
    shown = [each["first_line"] for each in forked("log", "--all", "--json").json()]
    assert shown == ["other", "three", "two", "one"]


def test_graph_and_json_exclude_each_other(dag):
    assert "--graph draws for people" in dag("log", "--graph", "--json", code=2).err


def test_an_empty_conversation_is_no_such_thing(dag):
    assert "'main' has no message yet" in dag("log", code=1).err
    assert dag("log", "--all").out == ""


def test_messages_without_text_are_told_by_what_they_hold(dag):
    call = {"type": "tool_call", "name": "find", "arguments": {"q": 1}}
    parts = [
        [call],
        [{"type": "tool_result", "name": "find", "output": "found\nit"}],
        [{"type": "reasoning", "text": "hm"}],
        [{"type": "attachment", "attachment": {"type": "image/png", "url": "https://a.example/b"}}],
        [{"type": "video"}],
        [],
        [{"type": "text", "text": "  \n "}],
    ]
    dag("commit", "-", input=json.dumps([{"role": "x", "parts": each} for each in parts]))
    assert [each["first_line"] for each in reversed(dag("log", "--json").json())] == [
        '→ find({"q": 1})',
        "← find: found",
        "(reasoning) hm",
        "[image/png https://a.example/b]",
        "[video]",
        "(empty)",
        "(empty)",
    ]


# -- the drawing ----------------------------------------------------------------------------------


def test_a_chain_is_a_line():
    assert drawn(("c", "b"), ("b", "a"), ("a", ROOT)) == ["* c", "* b", "* a"]


def test_a_fork_joins_its_parent():
    assert drawn(("d", "b"), ("c", "b"), ("b", "a"), ("a", ROOT)) == lines_of(
        """
* d
| * c
|/
* b
* a
"""
    )


def test_many_forks_at_one_node_need_two_columns():
    edges = [(f"f{i}", "a") for i in range(2000)]
    made = drawn(*edges, ("a", ROOT))
    assert made[:5] == ["* f0", "| * f1", "|/", "| * f2", "|/"]
    assert made[-1] == "* a" and len(made) == 2 * 2000


def test_a_branch_inside_a_branch():
    assert drawn(("e", "a"), ("d", "b"), ("c", "b"), ("b", "a"), ("a", ROOT)) == lines_of(
        """
* e
| * d
| | * c
| |/
| * b
|/
* a
"""
    )


def test_a_line_passes_below_those_between():
    assert drawn(("d", "a"), ("c", "b"), ("e", "a"), ("b", "a"), ("a", ROOT)) == lines_of(
        """
* d
| * c
| | * e
|_|/
| * b
|/
* a
"""
    )


def test_where_a_tree_ends_the_others_move_up():
    assert drawn(("x", "w"), ("b", "a"), ("w", ROOT), ("a", ROOT)) == lines_of(
        """
* x
| * b
* | w
 /
* a
"""
    )


def test_the_lines_of_one_message_stand_beside_its_branches():
    rows = [Row("c", "a", ["c", "see"]), Row("b", "a", ["b", "bee"]), Row("a", ROOT, ["a", "ay"])]
    assert list(draw(rows)) == lines_of(
        """
* c
| see
| * b
| | bee
|/
* a
  ay
"""
    )


def test_branches_stay_together_and_the_newest_comes_first():
    parents = {"a": ROOT, "b": "a", "c": "b", "d": "a", "e": "d", "x": ROOT, "y": "x"}
    assert branches_together(parents, {"c": "3", "e": "2", "y": "9"}) == ["y", "x", "c", "b", "e", "d", "a"]


def test_graph_draws_the_forks_of_a_store(forked):
    out = forked("log", "--graph", "--all", "--oneline").out
    assert [re.sub(r" ?[0-9a-f]{8}.*", "", line) for line in out.splitlines()] == ["*", "| *", "|/", "*", "*"]
    assert out.splitlines()[0].endswith("(side) assistant: other")
    assert out.splitlines()[1].endswith("(HEAD -> main) user: three")


def test_graph_leads_past_what_a_filter_leaves_out(forked):
    out = forked("log", "--graph", "--all", "--oneline", "--role", "user").out.splitlines()
    assert [line[0] for line in out] == ["*", "*"]
    assert out[0].endswith("three") and out[1].endswith("one")


def test_a_chain_of_ten_thousand_and_two_thousand_forks_at_one_node(dag):
    with Store.open(dag.folder / ".dag") as store:
        messages = [Message.of("user", f"m{i}") for i in range(10_000)]
        head = store.save_chain(messages)
        store.fork(head, "main")
        middle = store.resolve("main~5000")
        with store.transaction() as transaction:
            for i in range(2000):
                transaction.move(f"refs/conversations/fork-{i}", None, middle, "fork")
        for i in range(0, 2000, 100):
            store.commit(f"fork-{i}", [Message.of("user", f"f{i}")])
    assert dag("log", "-n", "1", "--json").json()["first_line"] == "m9999"
    drawing = dag("log", "--graph", "--all", "--oneline").out.splitlines()
    assert sum("*" in line[:8] for line in drawing) == 10_020
    assert len(dag("log", "--oneline").out.splitlines()) == 10_000
    assert len(dag("list").out.splitlines()) == 2001
    assert len(dag("cat", "--format", "jsonl").out.splitlines()) == 10_000
    assert dag("diff", "main", "fork-100", code=1).out.splitlines()[0] == "5,000 messages in common, the last:"
