import pytest

from objstore.transcripts import oasst
from objstore.transcripts.model import Certainty
from tests.transcripts.conformance import parents, read_files, read_path, real_file, survives_damage, texts
from tests.transcripts.roundtrip import as_bytes, lines


def row(key, parent, role, text, **more):
    return {"message_id": key, "parent_id": parent, "role": role, "text": text, **more}


TREE = {
    "message_tree_id": "t1",
    "tree_state": "ready",
    "prompt": row(
        *("p", None, "prompter", "why?"),
        lang="en",
        replies=[
            row("a", "p", "assistant", "no idea", rank=1, replies=[]),
            row(
                *("b", "p", "assistant", "because"),
                rank=0,
                deleted=False,
                emojis={"+1": 3},
                replies=[row("c", "b", "prompter", "thanks", created_date="2023-02-03T04:05:06.789012+00:00")],
            ),
        ],
    ),
}


def test_a_tree_is_one_conversation_and_the_best_ranked_path_is_active():
    transcript = read_files(oasst, {"a.jsonl": lines(TREE)}).only
    assert transcript.id == "t1"
    assert parents(transcript) == {"p": None, "a": "p", "b": "p", "c": "b"}
    assert texts(transcript)[0] == ("user", "why?")
    assert {head.key: head.active for head in transcript.heads} == {"a": False, "c": True}
    notes = {entry.key: entry.note for entry in transcript.entries}
    assert notes["b"] == {"rank": 0, "emojis": {"+1": 3}}
    assert notes["p"]["tree"] == {"tree_state": "ready"}
    assert transcript.entries[-1].at == "2023-02-03T04:05:06.789Z"


def test_flat_rows_in_any_order_are_the_same_trees():
    rows = [
        row("c", "b", "prompter", "thanks", message_tree_id="t1"),
        row("x", None, "prompter", "other", message_tree_id="t2"),
        row("p", None, "prompter", "why?", message_tree_id="t1"),
        row("b", "p", "assistant", "because", message_tree_id="t1"),
    ]
    for data in (lines(*rows), as_bytes(rows)):
        outputs = read_files(oasst, {"a": data})
        assert {t.id: parents(t) for t in outputs.transcripts} == {
            "t1": {"p": None, "b": "p", "c": "b"},
            "t2": {"x": None},
        }


def test_rows_without_a_tree_are_grouped_by_their_roots():
    rows = [
        {"user_message_id": "1", "parent_message_id": None, "role": "prompter", "text": "a"},
        {"user_message_id": "2", "parent_message_id": "1", "role": "assistant", "text": "b"},
        {"user_message_id": "3", "parent_message_id": None, "role": "prompter", "text": "c"},
    ]
    outputs = read_files(oasst, {"a.json": as_bytes(rows)})
    assert [t.id for t in outputs.transcripts] == ["1", "3"]


def test_cycles_missing_parents_and_duplicates_are_told():
    rows = [
        row("a", "b", "prompter", "1"),
        row("b", "a", "assistant", "2"),
        row("c", "gone", "prompter", "3"),
        row("c", "gone", "prompter", "other"),
        {"text": "no id"},
    ]
    outputs = read_files(oasst, {"a.jsonl": lines(*rows)})
    assert sorted(t.id for t in outputs.transcripts) == ["a", "c"]
    assert outputs.warnings == ["dangling-parent", "duplicate-id", "parent-cycle"]
    assert [skipped.kind for skipped in outputs.skipped] == ["not-a-message"]


def test_the_same_tree_in_two_files_is_one_conversation():
    outputs = read_files(
        oasst, {"a.jsonl": lines(TREE), "b.jsonl": lines(TREE["prompt"] | {"message_tree_id": "t1"})}
    )
    assert len(outputs.transcripts) == 1
    assert [skipped.kind for skipped in outputs.skipped] == ["duplicate-conversation"]


def test_cut_and_damaged_files_are_survived():
    survives_damage(oasst, {"a.jsonl": lines(TREE, TREE["prompt"])})


@pytest.mark.parametrize(
    ("value", "certainty"),
    [(TREE, Certainty.YES), (TREE["prompt"], Certainty.YES), ({"messages": []}, Certainty.NO), ([], Certainty.NO)],
)
def test_the_format_is_told_by_content(value, certainty):
    assert oasst.sniff(as_bytes(value), "x") is certainty


@pytest.mark.parametrize(
    ("name", "conversations", "messages"),
    [("en_100_tree.jsonl", 100, 1167), ("en_100_message.jsonl", 100, 1167), ("realistic_seed_data.json", 74, 444)],
)
def test_real_trees_are_read(name, conversations, messages):
    path = real_file(f"oasst/{name}")
    outputs = read_path(oasst, path)
    assert (len(outputs.transcripts), sum(len(t.entries) for t in outputs.transcripts)) == (
        conversations,
        messages,
    )
    assert outputs.warnings == []
    assert oasst.sniff(path.read_bytes()[:65536], name) is Certainty.YES
