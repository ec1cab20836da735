"""gc beside writers, and gc that is killed: nothing that anything names is lost.

`DAG_RACE_SECONDS` says how long the writers run (8 if it isn't set).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time

import pytest

from objstore.findings import Severity
from objstore.gc import GcOptions
from objstore.message import Message
from objstore.newcall import NewCall
from objstore.store import Store
from tests.objstore.stores import said

SECONDS = float(os.environ.get("DAG_RACE_SECONDS", "8"))
WRITERS = 8
KILLS = 25


def texts(messages) -> list[str]:
    return [message.text for message in messages]


class Writer:
    """One process that writes, reads, deletes and writes again, and keeps account of what was acknowledged."""

    def __init__(self, store: Store, number: int) -> None:
        self.store, self.number, self.random = store, number, random.Random(number)
        self.expected: dict[str, list[str]] = {}
        self.calls: dict[str, list[str]] = {}
        self.count = 0

    def words(self, many: int) -> list[Message]:
        self.count += 1
        shared = self.random.random() < 0.3
        who = "everybody" if shared else f"writer {self.number}"
        return [said(f"{who} {self.count % 20 if shared else self.count} {i}") for i in range(many)]

    def step(self) -> None:
        act = self.random.choice(
            [self.append, self.append, self.resend, self.fork, self.delete, self.call, self.read]
        )
        act()

    def append(self) -> None:
        name = f"w{self.number}-{self.random.randrange(3)}"
        new = self.words(70 if self.random.random() < 0.05 else self.random.randrange(1, 4))
        self.store.commit(name, new)
        self.expected.setdefault(name, []).extend(texts(new))

    def resend(self) -> None:
        """A whole history again, some of it perhaps garbage by now."""
        name = f"w{self.number}-again-{self.random.randrange(2)}"
        new = self.words(2)
        history = [*map(said, self.expected.get(name, [])), *new]
        self.store.commit_history(name, history)
        self.expected[name] = texts(history)

    def fork(self) -> None:
        if self.expected:
            name = self.random.choice(sorted(self.expected))
            fork = f"w{self.number}-fork-{self.count}-{self.random.randrange(1 << 30)}"
            self.store.fork(self.store.head(name), fork)
            self.expected[fork] = list(self.expected[name])

    def delete(self) -> None:
        if self.expected:
            name = self.random.choice(sorted(self.expected))
            self.store.delete(name)
            del self.expected[name]

    def call(self) -> None:
        history, output = self.words(2), self.words(1)
        done = self.store.record_exchange(history, output, call=NewCall(model="m"))
        self.calls[done.head_output] = texts([*history, *output])

    def read(self) -> None:
        for name, words in list(self.expected.items())[:3]:
            assert texts(self.store.conversation(name).messages()) == words


def write(path, number, stop, account) -> None:
    with Store.open(path) as store:
        writer = Writer(store, number)
        while not stop.is_set():
            writer.step()
    account.write_text(json.dumps([writer.expected, writer.calls]))


def collect(store: Store, quick: bool = False):
    now = time.time()
    return store.gc(GcOptions(now, now, reflog_before=now, quick=quick))


def errors(store: Store) -> list:
    return [finding for finding in store.fsck() if finding.severity is Severity.ERROR]


@pytest.mark.timeout(600)
def test_writers_lose_nothing_while_gc_prunes_all_that_is_unreachable_now(tmp_path):
    Store.init(tmp_path / ".dag").close()
    processes = multiprocessing.get_context("spawn")
    stop = processes.Event()
    accounts = [tmp_path / f"{number}.json" for number in range(WRITERS)]
    workers = [
        processes.Process(target=write, args=(tmp_path / ".dag", number, stop, account), daemon=True)
        for number, account in enumerate(accounts)
    ]
    for worker in workers:
        worker.start()
    runs = 0
    end = time.monotonic() + SECONDS
    with Store.open(tmp_path / ".dag") as store:
        try:
            while time.monotonic() < end or runs < 3:
                collect(store, quick=runs % 3 == 2)
                runs += 1
        finally:
            stop.set()  # else they would write for ever
        for worker in workers:
            worker.join()
        assert [worker.exitcode for worker in workers] == [0] * WRITERS
        collect(store)
        conversations = calls = 0
        for account in accounts:
            expected, called = json.loads(account.read_text())
            for name, words in expected.items():
                assert texts(store.conversation(name).messages()) == words
            for node, words in called.items():
                assert texts(store.load_chain(node)) == words
            conversations, calls = conversations + len(expected), calls + len(called)
        assert {each.name for each in store.conversations()} == {
            name for account in accounts for name in json.loads(account.read_text())[0]
        }
        assert conversations and calls and errors(store) == []
    print(f"\n{runs} runs of gc beside {WRITERS} writers: {conversations} conversations, {calls} calls")


def test_a_gc_that_is_killed_at_any_moment_loses_nothing_and_leaves_no_error(tmp_path):
    chance = random.Random(7)
    expected: dict[str, list[str]] = {}
    path = tmp_path / ".dag"
    with Store.init(path) as store:
        for i in range(4):
            words = [said(f"kept {i} {j} " + "k" * chance.randrange(400)) for j in range(40)]
            store.commit(f"kept{i}", words)
            expected[f"kept{i}"] = texts(words)
    killed = 0
    for turn in range(KILLS):
        with Store.open(path) as store:
            for i in range(3):
                store.save_chain([said(f"garbage {turn} {i} {j}") for j in range(30 * i + 1)])
            new = [said(f"more {turn} {j}") for j in range(3)]
            store.commit("kept0", new)
            expected["kept0"] += texts(new)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with Store.open(path) as store:
                    collect(store, quick=turn % 2 == 1)
                code = 0
            finally:
                os._exit(code)
        time.sleep(chance.random() * 0.15)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        killed += os.WIFSIGNALED(status)
        with Store.open(path) as store:
            assert {each.name: texts(store.load_chain(each.head)) for each in store.conversations()} == expected
            assert errors(store) == []
    with Store.open(path) as store:
        collect(store)
        assert {each.name: texts(store.load_chain(each.head)) for each in store.conversations()} == expected
        assert {finding.name for finding in store.fsck()} <= {"stray-file"}  # temporary files, too young to go
    print(f"\n{killed} of {KILLS} runs of gc were killed before their end")
