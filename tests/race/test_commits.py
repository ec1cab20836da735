"""Eight processes at once: nothing is lost, nothing is doubled, and the loser of a race keeps what it said."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest

from objstore.kinds import Kind
from objstore.store import Store
from refs.errors import Diverged, RefChanged, RefExists
from refs.ids import ROOT
from tests.storetools import say, talk, words_of

PROCESSES = 8
TURNS = 12


@pytest.fixture
def path(tmp_path):
    Store.init(tmp_path / "store").close()
    return tmp_path / "store"


def together(path, act: Callable[[Store, int], object]) -> list:
    """What `act` gives in each of eight processes that begin at the same moment."""
    gate, go = os.pipe()
    children = []
    for number in range(PROCESSES):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(go)
                os.read(gate, 1)  # ends when the parent closes its side
                with Store.open(path) as store:
                    told = json.dumps(act(store, number)).encode()
                while told:
                    told = told[os.write(writing, told) :]
                code = 0
            finally:
                os._exit(code)
        os.close(writing)
        children.append((child, reading))
    os.close(gate)
    os.close(go)
    results = []
    for child, reading in children:
        with os.fdopen(reading, "rb") as pipe:
            told = pipe.read()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        results.append(json.loads(told))
    return results


def check(path) -> None:
    with Store.open(path) as store:
        assert not [finding for finding in store.fsck() if finding.severity.name == "ERROR"]
        counts = store.storage.index.counts()
        store.reindex()
        again = store.storage.index.counts()
        assert (counts[Kind.NODE], counts[Kind.CALL]) == (again[Kind.NODE], again[Kind.CALL])


def test_eight_processes_write_eight_conversations(path):
    def act(store: Store, number: int) -> str:
        for turn in range(TURNS):
            store.commit(f"mine/{number}", [say(f"{number} {turn}"), say("shared", "assistant")])
        return store.head(f"mine/{number}")

    heads = together(path, act)
    with Store.open(path) as store:
        for number, head in enumerate(heads):
            words = words_of(store.load_chain(head))
            assert words == [word for turn in range(TURNS) for word in (f"{number} {turn}", "shared")]
        assert [info.head for info in store.conversations()] == heads
        assert store.storage.index.counts()[Kind.MESSAGE] == PROCESSES * TURNS + 1
        assert len(list(store.reflog())) == PROCESSES * TURNS
    check(path)


def test_eight_processes_write_one_conversation_and_losers_of_a_race_keep_what_they_said(path):
    def act(store: Store, number: int) -> list[str]:
        stored = []
        for turn in range(TURNS):
            while True:
                try:
                    store.commit("main", [say(f"{number} {turn}")], expected=store.head("main"))
                    break
                except RefChanged as error:
                    assert words_of(store.load_chain(error.stored))[-1] == f"{number} {turn}"
                    stored.append(error.stored)
        return stored

    lost = [head for heads in together(path, act) for head in heads]
    with Store.open(path) as store:
        words = words_of(store.conversation("main").messages())
        assert sorted(words) == sorted(f"{n} {turn}" for n in range(PROCESSES) for turn in range(TURNS))
        for number in range(PROCESSES):
            mine = [word for word in words if word.startswith(f"{number} ")]
            assert mine == [f"{number} {turn}" for turn in range(TURNS)]
        moves = [(entry.old, entry.new) for entry in store.reflog("main")][::-1]
        assert [old for old, _ in moves] == [None, *(new for _, new in moves[:-1])]
        assert moves[-1][1] == store.head("main")
        for head in lost:
            assert store.load_chain(head)
    check(path)
    print(f"\n{len(lost)} races lost, and nothing with them")


def test_eight_processes_write_packs(path):
    def act(store: Store, number: int) -> str:
        for turn in range(3):
            store.commit(f"mine/{number}", [say(f"{number} {turn} {i}") for i in range(70)])
        return store.head(f"mine/{number}")

    heads = together(path, act)
    with Store.open(path) as store:
        for number, head in enumerate(heads):
            assert words_of(store.load_chain(head)) == [
                f"{number} {turn} {i}" for turn in range(3) for i in range(70)
            ]
    check(path)


def test_eight_processes_send_one_growing_history_and_each_message_is_stored_once(path):
    history = [say(f"turn {i}", "assistant" if i % 2 else "user") for i in range(20)]

    def act(store: Store, number: int) -> int:
        new = 0
        for size in range(1, len(history) + 1):
            while True:
                try:
                    new += store.commit_history("main", history[:size])[1]
                    break
                except RefChanged:
                    continue
        return new

    together(path, act)
    with Store.open(path) as store:
        assert store.conversation("main").messages() == history
        counts = store.storage.index.counts()
        assert (counts[Kind.MESSAGE], counts[Kind.NODE]) == (20, 20)
    check(path)


def test_of_eight_that_make_one_name_one_succeeds(path):
    with Store.open(path) as store:
        head = store.commit("main", talk("a"))

    def act(store: Store, number: int) -> list[bool]:
        won = []
        for name in ("fork", "Fork" if number % 2 else "fORK"):
            try:
                store.fork(head, name)
                won.append(True)
            except (RefExists, RefChanged):
                won.append(False)
        return won

    results = together(path, act)
    assert sum(map(sum, results)) == 1
    check(path)


def test_histories_that_diverge_are_refused_to_all_but_the_first(path):
    def act(store: Store, number: int) -> str:
        try:
            store.commit_history("main", [say("the same"), say(f"but {number}")])
        except (Diverged, RefChanged) as error:
            return type(error).__name__
        return "won"

    results = together(path, act)
    assert results.count("won") == 1
    with Store.open(path) as store:
        assert words_of(store.conversation("main").messages()) == ["the same", f"but {results.index('won')}"]
    check(path)


def test_eight_processes_rename_delete_describe_and_tag(path):
    def act(store: Store, number: int) -> bool:
        for turn in range(6):
            name = f"p{number}/{turn}"
            head = store.commit(name, [say(name)])
            store.describe(name, title=name)
            store.tag(f"p{number}-{turn}", head)
            if turn % 3 == 1:
                store.rename(name, f"{name}-renamed")
            if turn % 3 == 2:
                store.delete(name)
        return True

    together(path, act)
    with Store.open(path) as store:
        expected = [f"p{n}/{turn}{'-renamed' if turn % 3 == 1 else ''}" for n in range(8) for turn in (0, 1, 3, 4)]
        assert [info.name for info in store.conversations()] == sorted(expected)
        for name in expected:
            assert store.description(name).title == name.removesuffix("-renamed")
        assert len(list(store.tags())) == 48
        assert len(store.children(ROOT)) == 48
    check(path)


def test_readers_always_see_a_whole_conversation(path):
    """Four write, four read: what a reader sees is a beginning of what is written, and never goes back."""

    def act(store: Store, number: int) -> bool:
        if number < 4:
            for turn in range(15):
                store.commit(f"mine/{number}", talk(f"q{turn}", f"a{turn}"))
            return True
        seen = 0
        name = f"mine/{number - 4}"
        for _ in range(200):
            head = store.head(name)
            if head is None:
                continue
            words = words_of(store.load_chain(head))
            assert words == [word for turn in range(len(words) // 2) for word in (f"q{turn}", f"a{turn}")]
            assert len(words) >= seen
            seen = len(words)
            if seen == 30:
                break
        return True

    together(path, act)
    check(path)
