"""Power cuts and killed processes while stores meet: nothing half visible, and the same command completes it."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from objstore import engine
from objstore.storage import Storage
from objstore.store import Store
from objstore.transfer import fetch as fetching
from objstore.transfer.folder import FolderRemote
from tests.crash.model import Disk, RecordingFiles, lay_out, photograph
from tests.storetools import QuietFiles, indexed, init_quiet, picture, quiet_store, say, talk, ticking

SAMPLES = 60
"""So many states of the disk are looked at, of the thousands that a crash may leave."""


@pytest.fixture
def boots(monkeypatch):
    """Says which start of the machine this is."""

    def start(number: int) -> None:
        monkeypatch.setattr(engine, "_boot", lambda: bytes([number]) * 16)

    start(1)
    return start


def remote_of(there, here: Store) -> FolderRemote:
    clock, notice = here.storage.clock, here.storage.notice
    return FolderRemote("there", Storage.open(QuietFiles(there), clock, notice), here.storage)


def fetch(here: Store, there) -> None:
    remote = remote_of(there, here)
    try:
        fetching.fetch(here.storage, remote, "origin")
    finally:
        remote.close()


def visible(store: Store) -> dict[str, object]:
    seen = picture(store)
    del seen["reflog"]
    return seen


def test_a_power_cut_at_any_step_of_a_fetch_leaves_all_or_nothing_and_a_second_run_completes_it(tmp_path, boots):
    with init_quiet(tmp_path / "there") as there:
        there.commit("trip", [say(f"word {i}") for i in range(80)])
        there.commit("trip", talk("and", "more"))
        there.tag("v1", there.head("trip"))
    base = tmp_path / "base"
    with init_quiet(base) as here:
        here.commit("mine", talk("one", "two"))
    disk = Disk.of(base)
    files = RecordingFiles(base, disk)
    files.indexes.append(photograph(base))
    store = Store(Storage.open(files, ticking(60_000), lambda _: None))
    before = visible(store)
    fetch(store, tmp_path / "there")
    after, everything = visible(store), indexed(store)
    store.storage.index.close()
    assert before != after
    rng = random.Random(5)
    states = []
    for step, op in enumerate(files.ops, start=1):
        if not op.name.startswith("sync/"):  # a cache
            disk.apply(op)
        states += [(step, lost, state) for lost, state in disk.states(rng)]
    seen = set()
    for number, (step, lost, state) in enumerate(rng.sample(states, min(SAMPLES, len(states)))):
        folder = tmp_path / "crashed"
        lay_out(folder, state, files.indexes[step] if lost == "nothing" or number % 2 else {})
        boots(1 if lost == "nothing" else 9)
        with quiet_store(folder) as left:
            now = visible(left)
            assert now in (before, after), (step, lost)
            seen.add(now == after)
            fetch(left, tmp_path / "there")
            assert visible(left) == after, (step, lost)
            assert indexed(left) == everything
        shutil.rmtree(folder)
    assert seen == {True, False}


ACT = """
import sys
from objstore.store import Store
act, mine, there = sys.argv[1:]
print("ready", flush=True)
if act == "clone":
    store, _ = Store.clone(there, mine)
else:
    store = Store.open(mine)
    if act == "push":
        store.push("origin", everything=True)
    else:
        store.pull("origin")
store.close()
"""


def run(act: str, mine, there, kill_after: float | None = None) -> bool:
    """Let a process do it; whether it came to its end."""
    process = subprocess.Popen([sys.executable, "-c", ACT, act, str(mine), str(there)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert process.returncode in (0, -signal.SIGKILL)
    return process.returncode == 0


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """A store of many messages."""
    path = tmp_path_factory.mktemp("grown") / "store"
    with Store.init(path) as store:
        for i in range(20):
            store.commit(f"c{i}", [say(f"{i} {j} {'words ' * 20}") for j in range(40)])
    return path


@pytest.mark.parametrize("act", ["clone", "pull", "push"])
def test_killed_at_any_moment_and_run_again_it_completes(act, grown, tmp_path):
    rng = random.Random(act)
    killed, most = 0, 0.5
    for round_ in range(2):
        mine, there = tmp_path / f"mine-{round_}", tmp_path / f"there-{round_}"
        if act == "push":
            Store.init(there).close()
            shutil.copytree(grown, mine)
        else:
            shutil.copytree(grown, there)
        if act == "pull":
            Store.init(mine).close()
        if act != "clone":
            with Store.open(mine) as store:
                store.add_remote("origin", there)
        for _ in range(2):
            killed += not run(act, mine, there, rng.uniform(0.0, most))
            if not killed:
                most /= 4  # it is done before it is killed
            for path in (mine, there):
                if (path / "config").exists():
                    with Store.open(path) as store:
                        assert not [each for each in store.fsck() if each.severity == "error"]
                        for _, head in store.refs("refs/conversations/"):
                            store.load_chain(head)
        assert run(act, mine, there)
        with Store.open(mine) as a, Store.open(there) as b:
            assert indexed(a) == indexed(b)
            assert list(a.refs("refs/conversations/")) == list(b.refs("refs/conversations/"))
    assert killed
