"""The examples of docs/library.md run, one after the other, as they stand there."""

import re
from pathlib import Path

import pytest

from objstore import Message, Node, Store, message_content_hash
from refs.ids import ROOT
from refs.names import conversation_ref

DOCUMENT = Path(__file__).parent.parent / "docs" / "library.md"
BLOCKS = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)


def test_the_first_example_and_the_messages_run_as_they_stand(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {"png_bytes": b"\x89PNG"}
    exec(BLOCKS[0], names)  # documentation of our own
    exec(BLOCKS[1], names)
    assert capsys.readouterr().out == "user Hello\nassistant Hi!\n"
    assert names["result"].parts[0].tool_call_id == "call_1"
    with Store.open("history/.dag") as store:
        assert [m.text for m in store.conversation(names["name"]).messages()][-1] == "Something else"


def test_the_loser_of_a_race_forks_what_was_stored(tmp_path):
    with Store.init(tmp_path / ".dag") as store:
        head = store.commit("trip", [Message.of("user", "a")])
        store.commit("trip", [Message.of("assistant", "the other was faster")])
        names = {"store": store, "head": head, "answer": [Message.of("assistant", "b")]}
        exec(_block("RefChanged"), names)
        assert [m.text for m in store.conversation("trip-2").messages()] == ["a", "b"]


def test_a_transaction_of_ones_own(tmp_path):
    with Store.init(tmp_path / ".dag") as store:
        message = Message.of("user", "a")
        node = Node(ROOT, message_content_hash(message))
        names = {
            "store": store,
            "message": message,
            "node": node,
            "ref": conversation_ref("trip"),
            "expected": None,
            "new": node.id,
        }
        exec(_block("store.transaction()"), names)
        assert store.head("trip") == node.id


def _block(word: str) -> str:
    found = [block for block in BLOCKS if word in block]
    if not found:
        pytest.fail(f"docs/library.md has no example with {word}")
    return found[0]
