"""The examples of README.md and docs/library.md that record calls and show them run as they stand there."""

import re
from pathlib import Path

import pytest

from objstore import Delta, DeltaKind, Store

ROOT = Path(__file__).parent.parent
LIBRARY = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "library.md").read_text("utf-8"), re.DOTALL)


@pytest.fixture
def store(tmp_path):
    with Store.init(tmp_path / ".dag") as made:
        yield made


def run(word, store):
    (block,) = [block for block in LIBRARY if word in block]
    exec(block, {"store": store})


def test_calls_are_recorded_with_a_commit_and_as_an_exchange(store, capsys):
    run("record_exchange(", store)
    assert capsys.readouterr().out == "2 new messages; 2 calls\n"
    assert [call.duration_ms for call in store.calls()] == [850, None]
    assert store.calls()[0].options == {"temperature": 0.7}


def test_a_stream_is_finished_and_what_was_cut_recovered_or_dropped(store):
    with store.draft("cut") as draft:
        draft.feed(Delta(DeltaKind.TEXT, "half"))
    store.draft("empty").close()

    run("store.draft(", store)

    texts = {info.name: store.load_chain(info.head)[-1].text for info in store.conversations()}
    assert texts == {"trip": "Three days.", "cut": "half"}
    assert store.drafts() == []


def test_what_an_agent_was_asked_is_shown_below_who_asked(store, capsys):
    run("store.chat_view(", store)
    assert capsys.readouterr().out == "assistant ['agent']\n    user []\n"


def test_the_readme_records_a_call_in_the_store_that_it_made(tmp_path, monkeypatch, capsys):
    readme = (ROOT / "README.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("library", "calls"):
        (block,) = re.findall(rf"<!-- {name} -->\n```python\n(.*?)```", readme, re.DOTALL)
        exec(block, {})
    assert capsys.readouterr().out.endswith("\n31\n")
    with Store.open("my-store") as store:
        assert [message.text for message in store.load_chain(store.head("trip"))][-2:] == [
            "How long?",
            "Three days.",
        ]
