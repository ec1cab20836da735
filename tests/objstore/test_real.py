"""Whole public corpora through the library: all of it comes back, and nothing is stored twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from objstore.chain import node_ids
from objstore.kinds import Kind
from objstore.message import Message
from objstore.transcripts.files import open_source
from objstore.transcripts.openai_chat import read
from refs.ids import ROOT
from tests.storetools import init_quiet, quiet_store, say

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
TAU = DATA / "openai-chat" / "taubench-gpt-4o-airline-first.json"
OASST = DATA / "oasst" / "en_100_tree.jsonl"


def files_of(root: Path) -> dict[str, int]:
    """Every file but the index, with its size."""
    return {
        str(path.relative_to(root)): path.stat().st_size
        for path in root.rglob("*")
        if path.is_file() and not path.name.startswith("index.sqlite")
    }


@pytest.fixture(scope="module")
def talks() -> list[list[Message]]:
    """The tool conversations of tau-bench, as messages."""
    if not TAU.exists():
        pytest.skip("the tau-bench conversations aren't here")
    found = []
    for transcript in read(open_source(TAU)):
        entries = {entry.key: entry for entry in transcript.entries}
        for head in transcript.heads:
            chain, key = [], head.key
            while key is not None:
                chain.append(entries[key].message)
                key = entries[key].parent
            found.append(chain[::-1])
    return found


def test_tool_conversations_come_back_equal_share_their_prompt_and_are_stored_once(talks, tmp_path):
    assert len(talks) == 125
    with init_quiet(tmp_path / "store") as store:
        for number, talk in enumerate(talks):
            store.commit_history(f"task-{number}", talk)
        for number, talk in enumerate(talks):
            assert store.conversation(f"task-{number}").messages() == talk
        assert len(store.children(ROOT)) == 1
        assert store.children(ROOT) == [node_ids(talk[:1])[0] for talk in talks[:1]]
        held = store.storage.index.counts()
        prefixes = {id_ for talk in talks for id_ in node_ids(talk)}
        assert held[Kind.NODE] == len(prefixes)
        assert held[Kind.MESSAGE] == len({message.to_dict().__repr__() for talk in talks for message in talk})
        assert held[Kind.MESSAGE] < sum(map(len, talks))
        store.storage.checkpoint()
        before = files_of(tmp_path / "store")
        for number, talk in enumerate(talks):
            assert store.commit_history(f"task-{number}", talk)[1] == 0
            store.save_with_dedup(talk)
        assert store.storage.index.counts() == held
        assert files_of(tmp_path / "store") == before
        store.pack()
        store.reindex()
        assert store.storage.index.counts() == held
        for number, talk in enumerate(talks):
            assert store.conversation(f"task-{number}").messages() == talk
    with quiet_store(tmp_path / "store") as again:
        assert not [finding for finding in again.fsck() if finding.severity.name == "ERROR"]


def branches(tree: dict) -> Iterator[list[Message]]:
    """The history of every leaf."""
    waiting = [([], tree)]
    while waiting:
        before, message = waiting.pop()
        role = "user" if message["role"] == "prompter" else "assistant"
        history = [*before, say(message["text"], role)]
        if not message["replies"]:
            yield history
        waiting.extend((history, reply) for reply in message["replies"])


@pytest.mark.skipif(not OASST.exists(), reason="the Open Assistant trees aren't here")
def test_every_leaf_of_a_tree_is_a_fork_that_costs_a_ref(tmp_path):
    trees = [json.loads(line)["prompt"] for line in OASST.read_text("utf-8").splitlines()]
    leaves = {f"{i}/{j}": leaf for i, tree in enumerate(trees) for j, leaf in enumerate(branches(tree))}
    with init_quiet(tmp_path / "store") as store:
        heads = {name: store.save_with_dedup(leaf) for name, leaf in leaves.items()}
        held = store.storage.index.counts()
        for name, head in heads.items():
            store.fork(head, name)
        assert store.storage.index.counts() == held
        assert held[Kind.NODE] == len({node for leaf in leaves.values() for node in node_ids(leaf)})
        for name, leaf in leaves.items():
            assert store.conversation(name).messages() == leaf
        for first in store.children(ROOT):
            below = [first]
            count = 0
            while below:
                children = store.children(below.pop())
                count += not children
                below += children
            assert count == len({heads[name] for name in leaves if node_ids(leaves[name][:1])[0] == first})
