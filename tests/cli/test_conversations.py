"""Conversations as names: fork, list, switch, status, rename, delete, tag, describe, diff."""

import pytest

from tests.cli.conftest import said


@pytest.fixture
def trip(dag):
    dag("commit", dag.write("a.json", said("one", "two", "three")))
    return dag


def ids(dag, *revisions):
    return dag("rev-parse", *revisions).out.split()


# -- fork -----------------------------------------------------------------------------------------


def test_a_fork_stands_at_its_revision_and_writes_one_ref(trip):
    before = trip.snapshot()
    ran = trip("fork", "HEAD~1", "side")
    assert ran.out == f"side: forked at {ids(trip, 'main~1')[0][:8]}\n"
    assert ids(trip, "side") == ids(trip, "main~1")
    new = [name for name in trip.snapshot() if name not in before and "/refs/" in name]
    assert new == [".dag/refs/conversations/side"] and trip.counts() == (3, 3)


def test_a_fork_without_a_name_is_called_by_a_ulid(trip):
    made = trip("fork", "--json").json()
    assert len(made["conversation"]) == 26
    assert made == {"schema": 1, "conversation": made["conversation"], "head": ids(trip, "HEAD")[0]}


def test_a_fork_can_become_the_current_conversation(trip):
    trip("fork", "HEAD", "side", "--switch")
    assert trip("status", "--json").json()["conversation"] == "side"


def test_both_sides_of_a_fork_go_on_for_themselves(trip):
    trip("fork", "HEAD~1", "side")
    trip("commit", "-m", "right", "-c", "side")
    trip("commit", "-m", "left")
    assert [each["first_line"] for each in trip("log", "side", "--json").json()] == ["right", "two", "one"]
    assert [each["first_line"] for each in trip("log", "--json").json()] == ["left", "three", "two", "one"]


def test_a_fork_of_a_name_that_is_taken_is_a_conflict(trip):
    before = trip.snapshot()
    assert trip("fork", "HEAD~1", "main", code=3).err == "dag: can't create 'main': it exists already\n"
    assert trip.snapshot() == before


def test_a_name_without_a_revision_is_taken_for_one_and_the_way_is_told(trip):
    assert trip("fork", "side", code=1).err.endswith(
        "hint: 'dag fork HEAD side' makes a conversation of that name\n"
    )


def test_names_that_differ_only_by_case_or_nest_are_a_conflict(trip):
    before = trip.snapshot()
    for name in ("MAIN", "main/side"):
        assert trip("fork", "HEAD", name, code=3).err.startswith("dag: can't create 'refs/conversations/")
    assert trip.snapshot() == before


# -- list, switch, status -------------------------------------------------------------------------


def test_list_marks_the_current_conversation(trip):
    trip("fork", "HEAD", "side")
    lines = trip("list").out.splitlines()
    assert [line[:6] for line in lines] == ["* main", "  side"]
    assert "3 messages" in lines[0]
    assert [line[:6] for line in trip("list", DAG_CONVERSATION="side").out.splitlines()] == ["  main", "* side"]


def test_list_as_json_is_a_line_a_conversation(trip):
    trip("describe", "--title", "Rome")
    made = trip("list", "--json").json()
    assert made["description"]["title"] == "Rome"
    assert (made["schema"], made["current"], made["messages"], made["head"]) == (1, True, 3, *ids(trip, "HEAD"))


def test_switch_goes_only_to_what_is_there(trip):
    trip("fork", "HEAD", "side")
    assert trip("switch", "side").out == f"on side, head {ids(trip, 'side')[0][:8]}\n"
    ran = trip("switch", "nowhere", code=1)
    assert ran.err == (
        "dag: no ref 'nowhere'\nhint: 'dag commit -c nowhere' starts it, 'dag fork REV nowhere' forks it off\n"
    )
    assert trip("status", "--json").json()["conversation"] == "side"


def test_status_says_where_one_is(dag):
    assert "it has no message yet" in dag("status").out
    dag("commit", "-m", "hello")
    made = dag("status", "--json").json()
    assert (made["schema"], made["conversation"], made["messages"], made["conversations"]) == (1, "main", 1, 1)
    assert made["store"] == str(dag.folder / ".dag")
    assert "main" in dag("status").out and "(1 message," in dag("status").out


# -- rename, delete, tag, describe ----------------------------------------------------------------


def test_rename_takes_description_and_head_along(trip):
    trip("describe", "--title", "Rome")
    trip("rename", "main", "rome")
    made = trip("status", "--json").json()
    assert (made["conversation"], made["messages"], made["description"]["title"]) == ("rome", 3, "Rome")
    assert [each["conversation"] for each in [trip("list", "--json").json()]] == ["rome"]


def test_rename_never_takes_a_name_that_is_there(trip):
    trip("fork", "HEAD~1", "side")
    before = trip.snapshot()
    assert trip("rename", "side", "main", code=3).err == "dag: can't create 'main': it exists already\n"
    assert trip("rename", "none", "other", code=1).err == "dag: no ref 'none'\n"
    assert trip.snapshot() == before


def test_delete_asks_nothing_and_prints_the_way_back(trip):
    trip("fork", "HEAD~1", "side")
    head = ids(trip, "side")[0]
    out = trip("delete", "side").out
    assert out == f"side deleted, its head was {head[:8]}\nundo: dag fork {head} side\n"
    assert trip("rev-parse", "side", code=1).err.startswith("dag: unknown revision 'side'")
    trip(*out.splitlines()[1].removeprefix("undo: dag ").split())
    assert ids(trip, "side") == [head]


def test_deleting_the_current_conversation_says_so(trip):
    assert "it was the current conversation" in trip("delete", "main").err


def test_tags_are_set_listed_and_deleted(trip):
    node = ids(trip, "HEAD~1")[0]
    assert trip("tag", "v1", "HEAD~1").out == f"v1  {node[:8]}\n"
    trip("commit", "-m", "four")
    assert ids(trip, "v1", "tags/v1") == [node, node]
    assert trip("tag", "--json").json() == {"schema": 1, "tag": "v1", "node": node}
    assert trip("tag", "v1", code=3).err == "dag: can't create 'tags/v1': it exists already\n"
    assert trip("tag", "-d", "v1").out == f"v1 deleted; undo: dag tag v1 {node}\n"
    assert trip("tag").out == ""
    assert trip("tag", "-d", "v1", code=1).err == "dag: no ref 'tags/v1'\n"
    assert "nothing else" in trip("tag", "-d", code=2).err


def test_descriptions_are_set_member_by_member(trip):
    trip("describe", "--title", "Rome", "--model", "m-1", "--tag", "travel", "--tag", "food")
    trip("describe", "main", "--untag", "food", "--tag", "summer", "--model", "")
    made = trip("describe", "--json").json()["description"]
    assert (made["title"], made["tags"], "model" in made) == ("Rome", ["travel", "summer"], False)
    assert "title         Rome" in trip("describe").out.splitlines()
    assert trip("describe", "none", code=1).err == "dag: no ref 'none'\n"


def test_a_conversation_without_description_has_none(trip):
    assert trip("describe", "--json").json() == {"schema": 1, "conversation": "main", "description": None}


# -- diff -----------------------------------------------------------------------------------------


def test_diff_shows_the_common_past_and_both_sides(trip):
    trip("fork", "HEAD~1", "side")
    trip("commit", "-m", "right", "-c", "side")
    main, common, side = (each[:8] for each in ids(trip, "main", "main~1", "side"))
    assert trip("diff", "main", "side", code=1).out.splitlines() == [
        "2 messages in common, the last:",
        f"  {common} assistant: two",
        "-- main: 1 message",
        f"- {main} user: three",
        "++ side: 1 message",
        f"+ {side} user: right",
    ]


def test_diff_of_the_same_node_is_zero(trip):
    trip("fork", "HEAD", "side")
    made = trip("diff", "main", "side", "--json").json()
    assert [side["messages"] for side in made["sides"]] == [[], []]


def test_diff_of_strangers_has_nothing_in_common(trip):
    trip("commit", "-m", "x", "-c", "other")
    assert trip("diff", "main", "other", code=1).out.startswith("nothing in common\n")
    made = trip("diff", "main", "other", "--json", code=1).json()
    assert (made["schema"], made["common"], made["depth"]) == (1, "root", 0)
    assert [len(side["messages"]) for side in made["sides"]] == [3, 1]


# -- illegal names --------------------------------------------------------------------------------

ILLEGAL = {
    "": "it is empty",
    "a b": "spaces aren't allowed",
    "a\tb": "control characters aren't allowed",
    "a\x1b[2Jb": "control characters aren't allowed",
    "/a": "it starts with a slash",
    "a/": "it ends with a slash",
    "a//b": "it has an empty component",
    "a\\b": "backslashes aren't allowed",
    "C:a": "it starts with a drive letter",
    "a~1": "none of ~ ^ : ? * [ is allowed",
    "a@{0}": "'@{' asks for the reflog",
    "@": "'@' alone is reserved",
    "a..b": "'..' isn't allowed",
    "../../etc": "'..' isn't allowed",
    ".hidden": "a component starts with a dot",
    "a.lock": "a component ends in '.lock'",
    "a.": "a component ends with a dot",
    "a\u202eb": "invisible and direction-changing characters aren't allowed",
    "a\u200bb": "invisible and direction-changing characters aren't allowed",
    "cafe\u0301": "it isn't in Unicode's composed form (NFC)",
    "x" * 201: "it is longer than 200 bytes",
    "HEAD": "it is reserved",
    "root": "it is reserved",
    "ab12cd": "it reads as an object id",
    "nul": "a component is a device's name on Windows",
}


@pytest.mark.parametrize(("name", "reason"), ILLEGAL.items(), ids=map(ascii, ILLEGAL))
def test_illegal_names_are_refused_everywhere_with_their_rule(trip, name, reason):
    before = trip.snapshot()
    for args in (
        ("fork", "HEAD", name),
        ("commit", "-m", "x", "-c", name),
        ("commit", "-m", "x", "--fork", name),
        ("rename", "main", name),
        ("tag", name),
        ("switch", name),
    ):
        if args[0] == "commit" and name == "":
            continue  # an empty option is as good as none
        ran = trip(*args, code=2)
        assert reason in ran.err and ran.err.count("\n") == 1 and "\x1b" not in ran.err, args
    assert trip.snapshot() == before


def test_a_name_that_starts_with_a_dash_is_no_option(trip):
    assert "it starts with a dash" in trip("fork", "HEAD", "--", "-x", code=2).err
