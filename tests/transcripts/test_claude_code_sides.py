"""Side chains in a session file of Claude Code: what is written and not told to be lost is read again."""

import json
import random

import pytest

from objstore.message import Message, TextPart, ToolCallPart, ToolResultPart
from objstore.transcripts import claude_code
from objstore.transcripts.export.claude_code import write_sides
from objstore.transcripts.export.model import ExportEntry, SideEntry
from tests.transcripts.conformance import read_files


def asks(*call_ids, prompt="p", name="Task"):
    return Message("assistant", tuple(ToolCallPart(name, {"prompt": prompt}, each) for each in call_ids))


def answers(*call_ids, name="Task"):
    return Message("tool", tuple(ToolResultPart(name, "ok", each) for each in call_ids))


def main(*messages):
    return [ExportEntry(message, None, {}, f"m{i}") for i, message in enumerate(messages)]


def side(name, *messages, by="m1", call_id="t"):
    """A chain in which each message follows the one before."""
    return [
        SideEntry(
            message, None, {}, f"{name}{i}", f"{name}{i - 1}" if i else "", *(("", None) if i else (by, call_id))
        )
        for i, message in enumerate(messages)
    ]


def read_again(text):
    return read_files(claude_code, {"s.jsonl": text.encode()}).only.entries


def edges(entries, key=lambda entry: entry.key):
    return [(key(e), e.parent or None, e.called_by or None, e.tool_call_id, e.message.to_dict()) for e in entries]


def kinds(losses):
    return [(loss.kind, loss.place) for loss in losses]


GO = Message.of("user", "go")
P = Message.of("user", "p")
DONE = Message.of("assistant", "done")


def test_a_side_chain_is_linked_to_its_call_by_a_record_of_its_own():
    text, losses, held = write_sides(main(GO, asks("t"), answers("t")), side("a", P, DONE))
    records = [json.loads(line) for line in text.splitlines()]
    assert [each["type"] for each in records] == ["user", "assistant", "user", "progress", "user", "assistant"]
    assert (records[3]["parentToolUseID"], records[3]["data"]["agentId"]) == ("t", records[4]["agentId"])
    assert [each.get("isSidechain") for each in records] == [False, False, False, None, True, True]
    assert (losses, held) == ([], {"a0", "a1"})


@pytest.mark.parametrize(
    "sides",
    [
        side("a", P, DONE, call_id=None),
        side("a", P, DONE, call_id="other"),
        side("a", P, DONE, by="m0"),
        side("a", DONE),
        side("a", answers("t")),
        side("a", Message.of("system", "Be brief."), P),
        [SideEntry(P, None, {}, "a1", "elsewhere", "m1", "t")],
    ],
    ids=["no call", "unknown call", "not who asked", "an answer", "a result", "a system message", "a fork"],
)
def test_a_side_chain_whose_caller_would_not_be_found_is_told_and_left_out(sides):
    text, losses, held = write_sides(main(GO, asks("t")), sides)
    assert (kinds(losses), held) == ([("side-chains", "conversation")], set())
    assert len(text.splitlines()) == 2


def test_of_two_side_chains_of_one_call_the_first_is_written():
    sides = [*side("a", P), *side("b", P, DONE)]
    _, losses, held = write_sides(main(GO, asks("t")), sides)
    assert (kinds(losses), held) == ([("side-chains", "conversation")], {"a0"})


def test_what_is_lost_in_a_side_chain_is_told_with_its_place():
    _, losses, _ = write_sides(main(GO, asks("t")), side("a", P, Message.of("critic", "hm")))
    assert kinds(losses) == [("role", "side chain 1, message 2")]


def test_side_chains_that_begin_alike_at_the_same_time_stay_two():
    at = "2026-05-01T10:00:00.000Z"
    first, second = SideEntry(P, at, {}, "a", "", "m1", "t"), SideEntry(P, at, {}, "b", "", "m1", "u")
    text, losses, _ = write_sides(main(GO, asks("t", "u")), [first, second])
    assert kinds(losses) == [("times", "side chain 2, message 1")]
    assert [entry.tool_call_id for entry in read_again(text)] == [None, None, "t", "u"]


def test_a_fork_that_begins_with_another_result_is_told_and_left_out():
    asked = [P, asks("x"), answers("x"), DONE]
    fork = SideEntry(answers("x", name="Bash"), None, {}, "f", "a1")
    _, losses, held = write_sides(main(GO, asks("t")), [*side("a", *asked), fork])
    assert (kinds(losses), held) == ([("forks", "side chain 1")], {"a0", "a1", "a2", "a3"})


def some_chains(rng):
    """A chain with side chains that share few prompts, ids and times, and fork, call each other and come again."""
    words, ids = ("p", "q"), ("t", "u", "v", "w")

    def message():
        if rng.random() < 0.4:
            calls = rng.sample(ids, rng.randint(1, 2))
            return asks(*calls, prompt=rng.choice(words), name=rng.choice(("Task", "Bash")))
        if rng.random() < 0.2:
            return answers(rng.choice(ids), name=rng.choice(("Task", "Bash", "")))
        return Message(rng.choice(("user", "assistant")), (TextPart(rng.choice(words)),))

    def at():
        return rng.choice((None, "2026-05-01T10:00:00.000Z", "2026-05-01T10:00:01.000Z"))

    chain = [ExportEntry(message(), at(), {"id": f"m{i}"}, f"m{i}") for i in range(rng.randint(2, 6))]
    asked = [
        (entry.node_id, part.tool_call_id)
        for entry in chain
        for part in entry.message.parts
        if isinstance(part, ToolCallPart)
    ]
    sides, seen = [], set()
    for i in range(rng.randint(0, 8)):
        parent = rng.choice([each.node_id for each in sides]) if sides and rng.random() < 0.6 else ""
        by = rng.choice(asked) if asked and (not parent or rng.random() < 0.2) else ("", None)
        said = Message.of("user", rng.choice(words)) if by[0] else message()
        # Nodes that are equal in all of this are one.
        if (not parent and not by[0]) or (known := (parent, by, json.dumps(said.to_dict()))) in seen:
            continue
        seen.add(known)
        sides.append(SideEntry(said, at(), {"id": f"s{i}"}, f"s{i}", parent, *by))
        asked += [(f"s{i}", part.tool_call_id) for part in said.parts if isinstance(part, ToolCallPart)]
    return chain, sides


def test_whatever_is_not_told_to_be_lost_is_read_again():
    rng, whole = random.Random(7), 0
    for _ in range(3000):
        chain, sides = some_chains(rng)
        text, losses, held = write_sides(chain, sides)
        if {loss.kind for loss in losses} - {"side-chains", "times", "forks"}:
            continue
        kept = [each for each in sides if each.node_id in held]
        whole += bool(kept)
        expected = [
            (e.node_id, before, None, None, e.message.to_dict())
            for e, before in zip(chain, [None, *(each.node_id for each in chain)], strict=False)
        ]
        expected += edges(kept, lambda entry: entry.node_id)
        assert sorted(map(repr, edges(read_again(text)))) == sorted(map(repr, expected)), text
    assert whole > 300
