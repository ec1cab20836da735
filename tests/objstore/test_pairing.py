"""Which call a tool result answers."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from objstore.message import Message, TextPart, ToolCallPart, ToolResultPart
from objstore.pairing import Pairing, Place, pair_tool_results

CHATS = Path(__file__).parents[2].parent / "shared" / "data" / "openai-chat" / "taubench-gpt-4o-airline-first.json"


def chain(*messages: str) -> list[Message]:
    """A chain in short: `"call a:f call b:f"` and `"result a:f"`, each `id:name`, either of them empty."""
    made = []
    for message in messages:
        words = message.split()
        parts = []
        for what, who in zip(words[::2], words[1::2], strict=True):
            tool_call_id, name = who.split(":")
            known = tool_call_id or None
            parts.append(ToolCallPart(name, {}, known) if what == "call" else ToolResultPart(name, "", known))
        made.append(Message("assistant" if words and words[0] == "call" else "tool", parts))
    return made


def paired(*messages: str) -> dict[tuple[int, int], tuple[int, int]]:
    answers = pair_tool_results(chain(*messages)).answers
    return {(result.message, result.part): (call.message, call.part) for result, call in answers.items()}


class TestById:
    def test_result_answers_the_call_of_its_id(self):
        assert paired("call a:f call b:f", "result b:f", "result a:f") == {(1, 0): (0, 1), (2, 0): (0, 0)}

    def test_repeated_id_goes_to_the_nearest_call_not_yet_answered(self):
        assert paired("call a:f", "result a:f", "call a:f", "result a:f") == {(1, 0): (0, 0), (3, 0): (2, 0)}
        assert paired("call a:f", "call a:f", "result a:f", "result a:f") == {(2, 0): (1, 0), (3, 0): (0, 0)}

    def test_repeated_id_within_one_message_goes_in_order(self):
        assert paired("call a:f call a:f", "result a:f result a:f") == {(1, 0): (0, 0), (1, 1): (0, 1)}

    def test_name_does_not_matter_when_the_id_fits(self):
        assert paired("call a:f", "result a:g") == {(1, 0): (0, 0)}
        assert paired("call a:f", "result a:") == {(1, 0): (0, 0)}

    def test_result_of_another_id_is_an_orphan_though_the_name_fits(self):
        assert paired("call a:f", "result b:f") == {}

    def test_result_with_an_id_may_answer_a_call_of_its_name_that_has_none(self):
        assert paired("call :f", "result b:f") == {(1, 0): (0, 0)}
        assert paired("call :g", "result b:f") == {}

    def test_empty_id_is_no_id(self):
        calls = Message("a", [ToolCallPart("f", {}, ""), ToolCallPart("g", {}, "")])
        results = Message("t", [ToolResultPart("g", "", ""), ToolResultPart("f", "", "")])
        answers = pair_tool_results([calls, results]).answers
        assert answers == {Place(1, 0): Place(0, 1), Place(1, 1): Place(0, 0)}


class TestWithoutIds:
    def test_result_answers_the_call_of_its_name(self):
        assert paired("call :f call :g", "result :g result :f") == {(1, 0): (0, 1), (1, 1): (0, 0)}

    def test_parallel_calls_of_one_name_are_answered_in_order(self):
        assert paired("call :f call :f", "result :f", "result :f") == {(1, 0): (0, 0), (2, 0): (0, 1)}

    def test_result_without_a_name_goes_by_order(self):
        assert paired("call :f call :g", "result :", "result :") == {(1, 0): (0, 0), (2, 0): (0, 1)}

    def test_result_of_a_name_that_nobody_called_is_an_orphan(self):
        assert paired("call :f", "result :g") == {}

    def test_name_finds_a_call_that_has_an_id(self):
        assert paired("call a:f call b:g", "result :g") == {(1, 0): (0, 1)}

    def test_nearest_message_comes_first(self):
        assert paired("call :f", "call :f", "result :f", "result :f") == {(2, 0): (1, 0), (3, 0): (0, 0)}


class TestLeftOver:
    def test_orphans_and_unanswered_calls_are_told(self):
        pairing = pair_tool_results(
            chain("result a:f", "call a:f call b:f", "result b:f", "result b:f", "call c:f")
        )
        assert pairing.answers == {Place(2, 0): Place(1, 1)}
        assert pairing.orphans == (Place(0, 0), Place(3, 0))
        assert pairing.unanswered == (Place(1, 0), Place(4, 0))

    def test_empty_chain_and_other_parts_have_nothing_to_pair(self):
        for nothing in ([], [Message("u", [TextPart("x")]), Message("u")]):
            assert pair_tool_results(nothing) == Pairing({}, (), ())

    def test_call_and_result_in_one_message_pair_when_the_call_comes_first(self):
        one = Message(
            "a", [ToolResultPart("f", "", "x"), ToolCallPart("f", {}, "x"), ToolResultPart("f", "", "x")]
        )
        pairing = pair_tool_results([one])
        assert pairing.answers == {Place(0, 2): Place(0, 1)}
        assert pairing.orphans == (Place(0, 0),)


few = st.sampled_from([None, "", "a", "b", "c"])
names = st.sampled_from(["", "f", "g"])
parts = st.builds(lambda name, known: ToolCallPart(name, {}, known), names, few) | st.builds(
    lambda name, known: ToolResultPart(name, "", known), names, few
)
chains = st.lists(st.builds(Message, st.just("x"), st.lists(parts, max_size=4)), max_size=10)


@given(chains)
def test_every_part_has_exactly_one_fate_and_no_result_comes_before_its_call(messages):
    pairing = pair_tool_results(messages)
    places = [(Place(m, p), part) for m, message in enumerate(messages) for p, part in enumerate(message.parts)]
    results = {place for place, part in places if isinstance(part, ToolResultPart)}
    calls = {place for place, part in places if isinstance(part, ToolCallPart)}
    fates = Counter([*pairing.answers, *pairing.orphans, *pairing.answers.values(), *pairing.unanswered])
    assert fates.keys() == results | calls and set(fates.values()) <= {1}
    assert {*pairing.answers, *pairing.orphans} == results
    for result, call in pairing.answers.items():
        assert (call.message, call.part) < (result.message, result.part)


@given(chains)
def test_ids_that_are_there_are_never_crossed(messages):
    for result, call in pair_tool_results(messages).answers.items():
        asked = messages[call.message].parts[call.part].tool_call_id
        answered = messages[result.message].parts[result.part].tool_call_id
        assert not (asked and answered) or asked == answered


def steps_of(messages: list[Message]) -> int:
    """How many functions are called while pairing: a measure of work that no busy machine changes."""
    steps = 0

    def count(*_):
        nonlocal steps
        steps += 1

    sys.setprofile(count)
    try:
        pair_tool_results(messages)
    finally:
        sys.setprofile(None)
    return steps


@pytest.mark.parametrize("calls, results", [
    ("call same:f", "result same:f"),
    ("call :f", "result :f"),
    ("call :f", "result :"),
    ("call a:f call :f", "result :f result a:f"),
    ("call a:f", "result b:f"),
    ("call :f call :g", "result :f"),
])  # fmt: skip
def test_work_grows_with_the_chain_and_not_with_its_square(calls, results):
    def work(times: int) -> int:
        return steps_of(chain(*[calls] * times, *[results] * times)) + steps_of(chain(*[calls, results] * times))

    assert work(400) < 4.2 * work(100)


@pytest.mark.skipif(not CHATS.exists(), reason="the public benchmark's chats are not beside this repository")
class TestPublicBenchmark:
    def chats(self):
        for row in json.loads(CHATS.read_text("utf-8")):
            yield [self.message(turn) for turn in row["traj"]]

    def message(self, turn):
        if turn["role"] == "tool":
            return Message("tool", [ToolResultPart(turn["name"], turn["content"], turn["tool_call_id"])])
        calls = [
            ToolCallPart(call["function"]["name"], json.loads(call["function"]["arguments"]), call["id"])
            for call in turn.get("tool_calls") or ()
        ]
        return Message(turn["role"], [TextPart(turn["content"] or ""), *calls])

    def test_every_result_answers_the_call_just_before_it_though_ids_repeat(self):
        repeated = 0
        for messages in self.chats():
            pairing = pair_tool_results(messages)
            assert not pairing.orphans
            ids = Counter()
            for result, call in pairing.answers.items():
                part = messages[result.message].parts[result.part]
                ids[part.tool_call_id] += 1
                assert call.message == result.message - 1
                assert messages[call.message].parts[call.part].tool_call_id == part.tool_call_id
            repeated += sum(count - 1 for count in ids.values())
        assert repeated > 0
