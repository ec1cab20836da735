"""Real conversations through the program: whole in, whole out, nothing stored twice."""

import json

import pytest

from objstore import Kind, Store
from tests.cli.conftest import DATA, needs_data

TAU = DATA / "openai-chat" / "taubench-gpt-4o-airline-first.json"
OASST = DATA / "oasst" / "en_100_tree.jsonl"
PART = 25  # of each corpus, so that the test stays quick; the rest is of the same kind


def objects(dag):
    with Store.open(dag.folder / ".dag") as store:
        return {kind: set(store.storage.database.ids(kind)) for kind in Kind}


def sent(message):
    """A chat message without the members that say nothing, or nothing that its call doesn't say."""
    quiet = {"name"} if message["role"] == "tool" else set()
    return {
        key: value for key, value in message.items() if key == "content" or not (value is None or key in quiet)
    }


@needs_data
def test_tool_conversations_come_back_equal_and_share_their_prompt(dag):
    talks = [each["traj"] for each in json.loads(TAU.read_text("utf-8"))][:PART]
    for number, talk in enumerate(talks):
        dag("commit", "-", "-c", f"task-{number}", input=json.dumps({"messages": talk}))
    for number, talk in enumerate(talks):
        back = json.loads(dag("cat", f"task-{number}", "--format", "openai").out)["messages"]
        assert [sent(message) for message in back] == [sent(message) for message in talk]
    held = objects(dag)
    assert len({json.dumps(talk[0]) for talk in talks}) == 1  # all begin with the same system prompt
    with Store.open(dag.folder / ".dag") as store:
        assert len(store.children("root")) == 1
    for number, talk in enumerate(talks):
        assert "0 new messages" in dag("commit", "-", "-c", f"task-{number}", input=json.dumps(talk)).out
    assert objects(dag) == held


def branches(tree):
    """Every leaf's history, oldest message first, as chat messages."""
    waiting = [([], tree)]
    while waiting:
        before, message = waiting.pop()
        role = "user" if message["role"] == "prompter" else "assistant"
        history = [*before, {"role": role, "content": message["text"]}]
        if not message["replies"]:
            yield history
        waiting.extend((history, reply) for reply in message["replies"])


@needs_data
def test_every_leaf_of_a_tree_is_a_fork_that_costs_a_ref(dag):
    trees = [json.loads(line)["prompt"] for line in OASST.read_text("utf-8").splitlines()][:PART]
    leaves = {f"tree-{i}/leaf-{j}": leaf for i, tree in enumerate(trees) for j, leaf in enumerate(branches(tree))}
    for name, leaf in leaves.items():
        dag("commit", "-", "-c", name, input=json.dumps(leaf))
    prefixes = {json.dumps(leaf[:length]) for leaf in leaves.values() for length in range(1, len(leaf) + 1)}
    held = objects(dag)
    assert len(held[Kind.NODE]) == len(prefixes)
    assert len(held[Kind.MESSAGE]) == len({json.dumps(message) for leaf in leaves.values() for message in leaf})
    for name, leaf in leaves.items():
        back = json.loads(dag("cat", name, "--format", "openai").out)["messages"]
        assert back == leaf
    for name in leaves:
        dag("fork", name, f"{name}-again")
    assert objects(dag) == held
    assert len(dag("list").out.splitlines()) == 2 * len(leaves)
    drawing = dag("log", "--graph", "--all", "--oneline").out.splitlines()
    assert sum("*" in line.split(" ")[: line.count("|") + 1] for line in drawing) == len(prefixes)


@pytest.mark.parametrize("file", ["taubench-gpt-4o-airline-first.json"])
@needs_data
def test_a_file_of_many_conversations_is_not_taken_for_one(dag, file):
    before = dag.snapshot()
    assert "messages[0].role: missing" in dag("commit", DATA / "openai-chat" / file, code=2).err
    assert dag.snapshot() == before
