"""Eight processes at once: nothing lost, nothing doubled, and the loser is told where its messages are."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from objstore import Message, Store
from objstore.storage import Storage
from tests.cli.conftest import said

ROOT = Path(__file__).resolve().parents[2]
WRITERS = 8
TURNS = 6

# One process is one writer that runs the program again and again: starting Python is not what is tested.
WRITER = """
import sys
from cli.main import dag
writer, turns, conversation = sys.argv[1], int(sys.argv[2]), sys.argv[3]
for turn in range(turns):
    try:
        dag.main(["commit", "-m", f"writer {writer} turn {turn}", "-c", conversation])
    except SystemExit as end:
        print("code", end.code, flush=True)
"""


def write_at_once(dag, conversation_of):
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/nonexistent"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(i), str(TURNS), conversation_of(i)],
            cwd=dag.folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(WRITERS)
    ]
    return [process.communicate() for process in processes]


def all_texts(dag):
    """The texts of all nodes that a ref leads to, each node once."""
    return sorted(each["first_line"] for each in dag("log", "--all", "--json").json())


EVERY = sorted(f"writer {i} turn {j}" for i in range(WRITERS) for j in range(TURNS))


def test_eight_writers_of_one_conversation_lose_nothing(dag):
    ran = write_at_once(dag, lambda _: "main")
    codes = [code for out, _ in ran for code in re.findall(r"code (\d+)", out)]
    assert len(codes) == WRITERS * TURNS and set(codes) <= {"0", "3"}
    assert all_texts(dag) == EVERY
    forks = [name for _, err in ran for name in re.findall(r"in the new conversation '([^']+)'", err)]
    assert len(forks) == codes.count("3")
    names = {json.loads(line)["conversation"] for line in dag("list", "--json").out.splitlines()}
    assert names == {"main", *forks}


def test_eight_writers_of_eight_conversations_never_meet(dag):
    ran = write_at_once(dag, lambda i: f"own-{i}")
    assert {code for out, _ in ran for code in re.findall(r"code (\d+)", out)} == {"0"}
    assert all_texts(dag) == EVERY
    for i in range(WRITERS):
        texts = [each["first_line"] for each in dag("log", f"own-{i}", "--json").json()]
        assert texts == [f"writer {i} turn {turn}" for turn in reversed(range(TURNS))]


def moved_meanwhile(monkeypatch, dag, messages):
    """Between this process's look at the head and its commit, another one adds messages."""
    commit = Storage.commit

    def late(self, batch):
        monkeypatch.setattr(Storage, "commit", commit)
        with Store.open(dag.folder / ".dag") as other:
            other.commit("main", messages)
        commit(self, batch)

    monkeypatch.setattr(Storage, "commit", late)


def test_the_loser_of_a_race_is_told_the_fork_its_messages_are_on(dag, monkeypatch):
    dag("commit", "-m", "a")
    moved_meanwhile(monkeypatch, dag, [Message.of("user", "theirs")])
    ran = dag("commit", "-m", "mine", "--json", code=3)
    made = ran.json()
    fork = made["conversation"]
    assert fork == f"main-{made['head'][:8]}" and made["new"] == 1
    assert ran.err.startswith("dag: main is at ") and f"in the new conversation '{fork}'\n" in ran.err
    assert f"hint: 'dag diff main {fork}' shows both sides" in ran.err
    assert [each["first_line"] for each in dag("log", fork, "--json").json()] == ["mine", "a"]
    assert [each["first_line"] for each in dag("log", "--json").json()] == ["theirs", "a"]


def test_a_history_that_another_process_stored_meanwhile_is_no_conflict(dag, monkeypatch):
    history = said("a", "b", "c")
    dag("commit", dag.write("chat.json", history[:1]))
    moved_meanwhile(monkeypatch, dag, [Message.from_dict(each) for each in history[1:]])
    assert dag("commit", dag.write("chat.json", history)).out.startswith("main: 0 new messages, head ")
    assert [each["conversation"] for each in [dag("list", "--json").json()]] == ["main"]
