"""What was just committed stands in the journal, and everybody finds it, before it is in the tables."""

from __future__ import annotations

import shutil
import threading

import pytest

from objstore.gc import GcOptions
from objstore.kinds import Kind
from objstore.newcall import NewCall
from objstore.recent import MAX_RECENT_OBJECTS
from refs.ids import ROOT
from tests.storetools import init_quiet, quiet_store, talk, words_of


@pytest.fixture
def store(tmp_path):
    with init_quiet(tmp_path / "store") as made:
        yield made


@pytest.fixture
def other(store, tmp_path):
    """The same store as another process has it."""
    with quiet_store(tmp_path / "store") as opened:
        yield opened


def tables(store) -> int:
    """How many nodes the tables hold, asked without a way in that would bring them up to date."""
    connection = store.storage.index._connection()
    return connection.execute("SELECT count(*) FROM node").fetchone()[0]


def test_small_commits_leave_the_tables_alone_until_they_are_asked(store):
    head = None
    for turn in range(10):
        head = store.commit("main", talk(f"q{turn}", f"a{turn}"))
    assert tables(store) == 0
    assert store.find_longest_existing_prefix(store.load_chain(head))[1] == 20
    assert tables(store) == 0
    assert store.depth(head) == 20
    assert tables(store) == 20


def test_very_many_do_not_wait(store):
    for turn in range(MAX_RECENT_OBJECTS):
        store.commit("main", talk(f"{turn}"))
    assert tables(store) > 0
    assert len(store.conversation("main").messages()) == MAX_RECENT_OBJECTS


def test_others_see_each_commit_at_once(store, other):
    for turn in range(5):
        before = store.head("main")
        head = store.commit("main", talk(f"q{turn}", f"a{turn}"), note={"turn": turn}, call=NewCall(model="m"))
        assert other.head("main") == head
        assert other.depth(head) == 2 * turn + 2
        assert other.children(before or ROOT) == [other.resolve("main~1")]
        assert [entry.members["turn"] for entry in other.notes(head)] == [turn]
        assert len(list(other.calls())) == turn + 1
        assert other.find_longest_existing_prefix(talk("q0", "a0"))[1] == 2
        assert words_of(other.load_chain(head))[-2:] == [f"q{turn}", f"a{turn}"]


def test_whoever_was_read_by_another_meanwhile_goes_on(store, other, tmp_path):
    """The other takes in a part from the journal, and leaves no mark there."""
    store.commit("main", talk("one"))
    store.commit("main", talk("two"))
    assert other.depth(other.head("main")) == 2
    for word in ("three", "four"):
        store.commit("main", talk(word))
    store.close()
    with quiet_store(tmp_path / "store") as again:
        assert again.depth(again.head("main")) == 4
        assert words_of(again.conversation("main").messages()) == ["one", "two", "three", "four"]
        assert not [each for each in again.fsck() if each.severity.name == "ERROR"]


def test_two_that_take_turns_know_all_of_each_other(store, other):
    for turn in range(20):
        writer = (store, other)[turn % 2]
        writer.commit(f"own-{turn % 2}", talk(f"{turn}"))
        writer.commit("both", talk(f"{turn}"), expected=writer.head("both"))
    for each in (store, other):
        assert words_of(each.conversation("both").messages()) == [str(turn) for turn in range(20)]
        assert len(each.children(ROOT)) == 2  # "0" is the first of two
        assert each.storage.index.counts()[Kind.NODE] == 39


def test_a_store_that_was_left_without_a_word_is_read_whole(store, tmp_path):
    head = store.commit("main", talk("one", "two"), note={"flag": True})
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    notices = []
    with quiet_store(tmp_path / "copy", notice=notices.append) as copy:
        assert copy.depth(head) == 2
        assert copy.notes(head)[0].members == {"flag": True}
        assert not [each for each in copy.fsck() if each.severity.name == "ERROR"]
    assert notices == []


def test_whoever_opens_it_waits_for_nobody_who_holds_the_lock(store, tmp_path):
    head = store.commit("main", talk("one", "two"))
    opened = []

    def look() -> None:
        with quiet_store(tmp_path / "store") as other:
            opened.append((other.depth(head), words_of(other.load_chain(head))))

    with store.storage.lock():
        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        thread.join(20)
    assert opened == [(2, ["one", "two"])]


def test_a_journal_without_a_header_is_read_by_the_id_that_the_index_knows(store, tmp_path):
    head = store.commit("main", talk("one", "two"))
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    journal = tmp_path / "copy" / "journal"
    journal.write_bytes(bytes(256) + journal.read_bytes()[256:])
    notices = []
    with quiet_store(tmp_path / "copy", notice=notices.append) as copy:
        assert words_of(copy.load_chain(head)) == ["one", "two"]
        assert copy.depth(copy.commit("main", talk("three"))) == 3
        assert not [each for each in copy.fsck() if each.severity.name == "ERROR"]
    assert [notice for notice in notices if "written anew" in notice]
    assert not list((tmp_path / "copy").glob("journal.damaged-*"))


def test_a_journal_that_nothing_knows_is_kept_beside_a_new_one(store, tmp_path):
    store.commit("main", talk("one", "two"))
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    journal = tmp_path / "copy" / "journal"
    damaged = bytes(256) + b"nothing that was ever a record"
    journal.write_bytes(damaged)
    with quiet_store(tmp_path / "copy"):
        (kept,) = (tmp_path / "copy").glob("journal.damaged-*")
        assert kept.read_bytes() == damaged


def test_what_is_sent_again_before_it_is_in_the_tables_is_known(store):
    head = store.save_chain(talk("one", "two"))
    assert store.save_with_dedup(talk("one", "two")) == head
    other = store.save_with_dedup(talk("one", "three"))
    assert store.storage.index.counts()[Kind.MESSAGE] == 3
    assert store.common_ancestor(head, other) == store.node(head).parent


def test_gc_finds_what_was_just_committed(store, other):
    head = store.commit("main", talk("one", "two"))
    store.save_chain(talk("thrown", "away"))
    other.gc(GcOptions(prune_before=1e12, now=1e12))
    assert words_of(store.load_chain(head)) == ["one", "two"]
    assert store.depth(head) == 2
    head = store.commit("main", talk("three"))
    assert words_of(other.load_chain(head)) == ["one", "two", "three"]


def test_an_index_that_is_made_anew_beside_it_knows_it(store, other):
    store.commit("main", talk("one"))
    other.reindex()
    head = store.commit("main", talk("two"))
    assert store.depth(head) == other.depth(head) == 2
    store.reindex()
    assert store.depth(store.commit("main", talk("three"))) == 3


def test_a_forked_branch_of_a_chain_is_among_the_children(store):
    """Children that stand right behind their parent, and others."""
    head = store.commit("main", talk("one", "two", "three"))
    first = store.resolve("main~2")
    second = store.resolve("main~1")
    branch = store.save_chain(talk("other"), first)
    assert store.children(first) == [second, branch]
    assert store.children(second) == [head]
    assert store.children(ROOT) == [first]
    again = store.save_chain(talk("beginning"))
    assert store.children(ROOT) == [first, again]
    assert store.children(head) == []
