"""dag clone, remote, fetch, pull, push, merge and merge-base between stores in folders."""

import pytest

from tests.cli.conftest import Dag


@pytest.fixture
def team(dag, tmp_path):
    """A store with a conversation, and another one that was cloned from it."""
    dag("commit", "-m", "hello")
    dag("commit", "-m", "hi", "--role", "assistant")
    dag("describe", "main", "--title", "Greetings")
    dag("tag", "v1")
    theirs = tmp_path / "there"
    theirs.mkdir()
    dag("clone", dag.folder, theirs)
    return dag, theirs


def at(dag: Dag, folder, *args, **how):
    return dag("--store", folder / ".dag", *args, **how)


def test_a_clone_has_all_and_its_origin(team):
    dag, theirs = team
    assert at(dag, theirs, "list", "--json").json() == dag("list", "--json").json()
    assert at(dag, theirs, "remote", "list").out.startswith("origin  ")
    assert at(dag, theirs, "tag").out == dag("tag").out
    assert at(dag, theirs, "status", "--json").json()["remotes"] == [
        {"remote": "origin", "head": dag("rev-parse", "main").out.strip(), "ahead": 0, "behind": 0}
    ]
    assert at(dag, theirs, "fetch").out == "everything is up to date\n"


def test_a_clone_again_completes_and_another_store_is_left_alone(team, tmp_path):
    dag, theirs = team
    assert "everything is up to date" in dag("clone", dag.folder, theirs).out
    other = tmp_path / "other"
    other.mkdir()
    dag("init", other)
    at(dag, other, "commit", "-m", "mine")
    dag("clone", dag.folder, other, code=3)


def test_push_and_pull_move_heads_forward(team):
    dag, theirs = team
    at(dag, theirs, "commit", "-m", "from there")
    pushed = at(dag, theirs, "push", "--json").json()
    assert [(each["ref"], each["how"]) for each in pushed["moved"]] == [
        ("refs/conversations/main", "fast-forward")
    ]
    assert pushed["objects"] == {"message": 1, "node": 1, "note": 1}
    assert dag("rev-parse", "main").out == at(dag, theirs, "rev-parse", "main").out
    dag("commit", "-m", "from here")
    assert "fast-forward" in at(dag, theirs, "pull").out
    assert dag("rev-parse", "main").out == at(dag, theirs, "rev-parse", "main").out


def test_where_both_went_on_the_exit_code_says_so_and_both_are_shown(team):
    dag, theirs = team
    dag("commit", "-m", "from here")
    at(dag, theirs, "commit", "-m", "from there")
    assert "fetch first" in at(dag, theirs, "push", code=3).out
    out = at(dag, theirs, "pull", code=3).out
    assert "both are kept" in out and "dag diff main remotes/origin/conversations/main" in out
    status = at(dag, theirs, "status").out
    assert "1 message ahead, 1 message behind" in status
    assert "diverged      main and remotes/origin/conversations/main" in status
    drawn = at(dag, theirs, "log", "--all", "--graph", "--oneline").out
    assert "from here" in drawn and "from there" in drawn
    base = at(dag, theirs, "merge-base", "main", "remotes/origin/conversations/main").out
    assert base == dag("rev-parse", "v1").out
    assert "main.origin" in at(dag, theirs, "pull", "--fork").out
    assert "diverged" not in at(dag, theirs, "status").out
    at(dag, theirs, "push", "main.origin")
    at(dag, theirs, "push", code=3)
    old = dag("rev-parse", "main").out.strip()
    assert "forced" in at(dag, theirs, "push", "--force", old).out
    assert dag("rev-parse", "main").out == at(dag, theirs, "rev-parse", "main").out


def test_nothing_is_done_in_a_dry_run(team):
    dag, theirs = team
    at(dag, theirs, "commit", "-m", "from there")
    before = dag.snapshot()
    assert "would be sent" in at(dag, theirs, "push", "--dry-run").out
    assert dag.snapshot() == before
    at(dag, theirs, "push")
    dag("commit", "-m", "from here")
    assert "would be fetched" in at(dag, theirs, "pull", "--dry-run").out
    assert at(dag, theirs, "rev-parse", "main").out != dag("rev-parse", "main").out


def test_merge_takes_all_and_then_nothing(team, tmp_path):
    dag, _ = team
    third = tmp_path / "third"
    third.mkdir()
    dag("init", third)
    assert "2 messages" in at(dag, third, "merge", dag.folder).out
    assert at(dag, third, "merge", dag.folder).out == "everything is up to date\n"
    assert at(dag, third, "remote", "list").out == ""
    assert at(dag, third, "merge-base", "main", "root", code=1).out == ""


def test_remotes_have_names_and_what_is_known_of_them_goes_along(team):
    dag, theirs = team
    at(dag, theirs, "remote", "rename", "origin", "team")
    assert at(dag, theirs, "remote", "list", "--json").json()["remote"] == "team"
    assert at(dag, theirs, "rev-parse", "remotes/team/conversations/main").out == dag("rev-parse", "main").out
    at(dag, theirs, "fetch", code=1)
    at(dag, theirs, "fetch", "team")
    at(dag, theirs, "remote", "add", "team", dag.folder, code=3)
    at(dag, theirs, "remote", "add", "a/b", dag.folder, code=2)
    at(dag, theirs, "remote", "add", "none", theirs / "nothing", code=1)
    at(dag, theirs, "remote", "add", "web", "https://example.invalid/x", code=1)
    at(dag, theirs, "remote", "add", "itself", theirs, code=1)
    at(dag, theirs, "remote", "remove", "team")
    assert at(dag, theirs, "remote", "list").out == ""
    at(dag, theirs, "rev-parse", "remotes/team/conversations/main", code=1)


def test_the_config_keeps_what_else_it_says(team):
    dag, theirs = team
    config = theirs / ".dag" / "config"
    config.write_text(config.read_text() + "\n[other]\n# why\nkey = 'value'\n")
    at(dag, theirs, "remote", "add", "second", dag.folder)
    at(dag, theirs, "remote", "remove", "origin")
    text = config.read_text()
    assert "[other]\n# why\nkey = 'value'\n" in text
    assert at(dag, theirs, "remote", "list").out.startswith("second  ")
    config.write_text("remote = 1\n" + text[: text.index("[")])
    at(dag, theirs, "remote", "list", code=4)


def test_tags_and_names_are_pushed_and_deleted_by_name(team):
    dag, theirs = team
    at(dag, theirs, "tag", "v2")
    at(dag, theirs, "commit", "-c", "extra", "-m", "more")
    at(dag, theirs, "push", "tags/v2", "extra")
    assert "v2" in dag("tag").out
    assert "extra" in dag("list").out
    at(dag, theirs, "push", "--delete", "extra", "tags/v2")
    assert "extra" not in dag("list").out
    assert "v2" not in dag("tag").out
    at(dag, theirs, "push", "none", code=1)
    at(dag, theirs, "push", "--all", "main", code=2)
    at(dag, theirs, "push", "--force", "12", code=2)
    at(dag, theirs, "push", "--delete", code=2)


def test_what_a_remote_says_never_acts_on_the_terminal(team):
    dag, theirs = team
    evil = dag.folder / ".dag" / "refs" / "conversations" / "\x1b[2Jgone"
    evil.write_text(dag("rev-parse", "main").out)
    out = at(dag, theirs, "fetch", code=3).out
    assert "\x1b" not in out and "\\x1b[2Jgone" in out
