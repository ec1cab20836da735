"""Processes that commit and acknowledge are killed at random: what was acknowledged is there."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from objstore.store import Store
from tests.storetools import init_quiet, say, words_of

KILLS = 60
"""In each of the ways below."""


def worker(path: str, number: int, report: int, large: bool) -> None:
    """Commit for ever, and say so after each commit."""
    store = Store.open(path)
    name = f"worker-{number}"
    for turn in range(100_000):
        words = [f"{number} {turn} {i}" for i in range(66 if large else 2)]
        store.commit(name, [say(each) for each in words])
        os.write(report, f"{number} {turn}\n".encode())


def killed_after(path: str, number: int, seconds: float, large: bool) -> list[str]:
    """Lines that a worker wrote before it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            worker(path, number, writing, large)
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as acknowledged:
        first = acknowledged.readline()
        assert first, "the worker ended by itself"
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        rest = acknowledged.read()
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    return (first + rest).decode().splitlines()


def check(path: str, acknowledged: dict[int, int], large: bool) -> None:
    with Store.open(path) as store:
        for number, last in acknowledged.items():
            words = words_of(store.conversation(f"worker-{number}").messages())
            each = 66 if large else 2
            assert len(words) % each == 0
            assert len(words) // each in (last + 1, last + 2)
            assert words == [f"{number} {turn} {i}" for turn in range(len(words) // each) for i in range(each)]
            moves = [entry.new for entry in store.reflog(f"worker-{number}")]
            assert len(moves) == len(set(moves)) == len(words) // each


@pytest.mark.parametrize("large", [False, True], ids=["small commits", "commits that write packs"])
def test_everything_acknowledged_survives_the_kill_of_its_process(tmp_path, large):
    path = str(tmp_path / "store")
    init_quiet(path).close()
    rng = random.Random(5)
    acknowledged: dict[int, int] = {}
    for number in range(KILLS):
        lines = killed_after(path, number, rng.uniform(0, 0.012), large)
        assert lines == [f"{number} {turn}" for turn in range(len(lines))]
        acknowledged[number] = len(lines) - 1
        if number % 10 == 9:
            check(path, acknowledged, large)
    with Store.open(path) as store:
        held = {info.name for info in store.conversations()}
        store.reindex()
        assert {info.name for info in store.conversations()} == held
        assert not [finding for finding in store.fsck() if finding.severity.name == "ERROR"]
    check(path, acknowledged, large)
    print(f"\n{KILLS} kills, {sum(acknowledged.values()) + KILLS} acknowledged commits")


def test_several_processes_at_once_are_killed_and_others_go_on(tmp_path):
    path = str(tmp_path / "store")
    init_quiet(path).close()
    rng = random.Random(6)
    acknowledged: dict[int, int] = {}
    for wave in range(20):
        pipes = {}
        for number in range(wave * 4, wave * 4 + 4):
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    os.close(reading)
                    worker(path, number, writing, large=number % 4 == 0)
                finally:
                    os._exit(1)
            os.close(writing)
            pipes[number] = child, os.fdopen(reading, "rb")
        firsts = {number: pipe.readline() for number, (_, pipe) in pipes.items()}
        time.sleep(rng.uniform(0, 0.02))
        for number, (child, pipe) in pipes.items():
            os.kill(child, signal.SIGKILL)
            with pipe:
                lines = (firsts[number] + pipe.read()).decode().splitlines()
            os.waitpid(child, 0)
            if lines:
                acknowledged[number] = len(lines) - 1
    for large in (False, True):
        mine = {number: last for number, last in acknowledged.items() if (number % 4 == 0) is large}
        check(path, mine, large)
    print(f"\n80 kills, {sum(acknowledged.values()) + len(acknowledged)} acknowledged commits")
