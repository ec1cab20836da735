"""One store from several threads, several objects, and on both sides of a fork."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from objstore.gc import GcOptions
from objstore.kinds import Kind
from objstore.newcall import NewCall
from objstore.store import Store
from refs.errors import ObjectMissing, RefChanged, StorageFailure
from refs.ids import ROOT
from tests.storetools import init_quiet, quiet_store, say, talk, words_of

NEW_CALL = NewCall(model="m")


def meddle(monkeypatch, store: Store, act: Callable[[], object]) -> None:
    """Do something once, between the planning of the store's next transaction and its commit."""
    begin = store.storage.transaction

    def transaction():
        made = begin()
        commit = made.commit

        def late():
            monkeypatch.undo()
            act()
            commit()

        made.commit = late
        return made

    monkeypatch.setattr(store.storage, "transaction", transaction)


@pytest.fixture
def store(tmp_path):
    with init_quiet(tmp_path / "store") as made:
        yield made


def in_child(act: Callable[[], None], seconds: float = 60) -> int:
    """Run `act` in a forked child; its exit code. One that hangs is ended, and -1."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -1


def test_eight_threads_write_their_own_conversations(store):
    def write(number: int) -> None:
        for turn in range(10):
            store.commit(f"thread-{number}", [say(f"{number} {turn}"), say("shared", "assistant")])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    for number in range(8):
        words = words_of(store.conversation(f"thread-{number}").messages())
        assert words == [word for turn in range(10) for word in (f"{number} {turn}", "shared")]
    assert store.storage.index.counts()[Kind.MESSAGE] == 81


def test_eight_threads_write_one_conversation_and_nothing_is_lost_or_doubled(store):
    stored: list[str] = []

    def write(number: int) -> None:
        for turn in range(8):
            while True:
                head = store.head("main")
                try:
                    store.commit("main", [say(f"{number} {turn}")], expected=head)
                    break
                except RefChanged as error:
                    stored.append(error.stored)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    words = words_of(store.conversation("main").messages())
    assert sorted(words) == sorted(f"{number} {turn}" for number in range(8) for turn in range(8))
    for each in stored:
        assert store.load_chain(each)


def test_threads_read_while_others_write_pack_and_rebuild_the_index(store):
    head = store.commit("main", [say(f"{i}") for i in range(70)])
    expected = [f"{i}" for i in range(70)]
    middle = store.resolve("main~30")
    branch = store.save_chain(talk("branch"), middle)
    done = threading.Event()
    problems: list[BaseException] = []

    def read() -> None:
        try:
            while not done.is_set():
                assert words_of(store.load_chain(head)) == expected
                assert set(store.children(middle)) == {store.resolve(f"{head}~29"), branch}
                assert store.common_ancestor(branch, head) == middle
                assert store.depth(head) == 70
                assert store.find_longest_existing_prefix([say(word) for word in expected])[1] == 70
                assert len(list(store.walk(middle))) == 40
        except BaseException as error:
            problems.append(error)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for each in readers:
        each.start()
    try:
        for turn in range(6):
            store.commit("other", [say(f"turn {turn}")])
            store.pack()
            store.reindex()
            store.storage.checkpoint()
    finally:
        done.set()
        for each in readers:
            each.join()
    assert problems == []


def test_two_objects_on_one_store_see_each_others_changes(store, tmp_path):
    with quiet_store(tmp_path / "store") as other:
        head = store.commit("main", talk("a"))
        assert other.head("main") == head
        assert words_of(other.load_chain(head)) == ["a"]
        second = other.commit("main", talk("b"))
        assert words_of(store.conversation("main").messages()) == ["a", "b"]
        store.pack()
        assert words_of(other.load_chain(second)) == ["a", "b"]
        other.reindex()
        store.commit("main", talk("c"))
        assert words_of(other.conversation("main").messages()) == ["a", "b", "c"]
        store.rename("main", "trip")
        assert [info.name for info in other.conversations()] == ["trip"]


@pytest.mark.parametrize(
    "act",
    [
        lambda store: store.commit("main", [say("mine")]),
        lambda store: store.commit_history("main", [*talk("one"), say("mine")]),
        lambda store: store.record_exchange(
            talk("one"), [say("mine")], call=NewCall(model="m"), conversation="main"
        ),
    ],
    ids=["commit", "commit_history", "record_exchange"],
)
@pytest.mark.parametrize("there", ["loose", "packed"])
def test_a_ref_that_moves_between_the_look_at_it_and_the_commit_is_left_where_it_is(
    store, tmp_path, monkeypatch, act, there
):
    store.commit("main", talk("one"))
    if there == "packed":
        with store.storage.lock():
            store.storage.refs.pack()

    with quiet_store(tmp_path / "store") as other:
        meddle(monkeypatch, store, lambda: other.commit("main", [say("theirs", "assistant")]))
        with pytest.raises(RefChanged) as caught:
            act(store)
    assert words_of(store.conversation("main").messages()) == ["one", "theirs"]
    assert words_of(store.load_chain(caught.value.stored)) == ["one", "mine"]


@pytest.mark.parametrize("behind", ["nothing", "a node"])
def test_what_another_stores_between_the_look_and_the_commit_is_stored_once(store, tmp_path, monkeypatch, behind):
    parent = ROOT if behind == "nothing" else store.commit("main", talk("one"))
    with quiet_store(tmp_path / "store") as other:
        meddle(monkeypatch, store, lambda: other.save_chain(talk("two", "three"), parent))
        head = store.save_chain(talk("two", "three"), parent)
    counts = store.storage.index.counts()
    assert counts[Kind.NODE] == counts[Kind.MESSAGE] == store.depth(head)
    assert list(store.fsck()) == []


def test_what_a_gc_takes_between_the_look_and_the_commit_is_not_built_on(store, tmp_path, monkeypatch):
    head = store.save_chain(talk("nobody", "needs this"))
    later = time.time() + 3600
    options = GcOptions(prune_before=later, now=later, reflog_before=later)
    with quiet_store(tmp_path / "store") as other:
        meddle(monkeypatch, store, lambda: other.gc(options))
        with pytest.raises(ObjectMissing):
            store.save_chain(talk("and on"), head)
    assert list(store.fsck()) == []


def test_an_index_that_another_object_made_anew_is_noticed_by_readers_and_writers(store, tmp_path):
    with quiet_store(tmp_path / "store") as other:
        store.commit("main", talk("a"))
        other.reindex()
        head = other.commit("main", talk("b"))
        other.save_chain(talk("x"))
        # The reader's connection still is to the old index, which knows nothing of this.
        assert words_of(store.load_chain(head)) == ["a", "b"]
        assert store.children(store.resolve("main~1")) == [head]
        other.reindex()
        assert words_of(store.load_chain(store.commit("main", talk("c")))) == ["a", "b", "c"]
        assert len(store.children(ROOT)) == len(other.children(ROOT)) == 2


def test_a_record_that_was_taken_back_is_not_remembered_by_who_saw_it(store, tmp_path, monkeypatch):
    store.commit("main", talk("a"))
    with quiet_store(tmp_path / "store") as other:

        def refuse(name, fd) -> None:
            assert other.storage.journal.find(Kind.NODE, "f" * 64) is None  # having looked at all there is
            raise StorageFailure(name, OSError(28, "full"))

        with monkeypatch.context() as patch:
            patch.setattr(store.storage.files, "_sync", refuse)
            with pytest.raises(StorageFailure):
                store.commit("main", talk("b"))
        head = store.commit("main", talk("quite", "another", "one"))
        assert words_of(other.load_chain(head)) == ["a", "quite", "another", "one"]
        assert {other.message(other.node(entry.id).message) for entry in other.walk(head)}


def test_a_forked_child_reads_and_writes_and_so_does_its_parent(store, tmp_path):
    head = store.commit("main", talk("a"))

    def child() -> None:
        assert words_of(store.load_chain(head)) == ["a"]
        store.commit("child", talk("from the child"))
        store.commit("main", talk("b"))

    assert in_child(child) == 0
    assert words_of(store.conversation("child").messages()) == ["from the child"]
    store.commit("main", talk("c"))
    assert words_of(store.conversation("main").messages()) == ["a", "b", "c"]
    assert in_child(store.close) == 0
    assert words_of(store.conversation("main").messages()) == ["a", "b", "c"]
    with quiet_store(tmp_path / "store") as again:
        assert not [finding for finding in again.fsck() if finding.severity.name == "ERROR"]


def test_a_child_forked_while_threads_use_the_store_neither_hangs_nor_fails(store):
    head = store.commit("main", [say(f"{i}") for i in range(70)])
    store.commit("refs", talk("x"))
    with store.storage.lock():
        store.storage.refs.pack()
    done = threading.Event()

    def use(number: int) -> None:
        turn = 0
        while not done.is_set():
            store.load_chain(head)
            store.storage.database.forget_packs()
            store.resolve("refs")
            store.find_longest_existing_prefix([say(f"{i}") for i in range(3)])
            if number == 0:
                store.commit("busy", [say(f"{turn}")])
                turn += 1

    def child() -> None:
        assert len(store.load_chain(head)) == 70
        assert words_of(store.conversation("refs").messages()) == ["x"]
        store.commit(f"child-{os.getpid()}", talk("hello"))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    try:
        codes = [in_child(child, seconds=30) for _ in range(25)]
    finally:
        done.set()
        for each in threads:
            each.join()
    assert codes == [0] * 25
    assert len([info for info in store.conversations() if info.name.startswith("child-")]) == 25


def test_the_lock_is_free_again_when_its_holder_was_killed(tmp_path):
    Store.init(tmp_path / "store").close()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with Store.open(tmp_path / "store").storage.lock():
                os.write(writing, b"x")
                time.sleep(60)
        finally:
            os._exit(1)
    assert os.read(reading, 1) == b"x"
    os.kill(child, 9)
    os.waitpid(child, 0)
    with quiet_store(tmp_path / "store") as store:
        store.commit("main", talk("a"))
    os.close(reading)
    os.close(writing)
