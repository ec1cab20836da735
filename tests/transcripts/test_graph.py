"""Forests out of parents that dangle, cycle and stand in any order."""

import random

from objstore.message import Message, ToolCallPart, ToolResultPart
from objstore.transcripts.graph import (
    children_of,
    contract,
    heads_of,
    parents_first,
    plant,
    warn_of_unpaired_tools,
)
from objstore.transcripts.model import Entry


class Warned(list):
    def __call__(self, kind, place, text):
        self.append((kind, place))


def test_parents_come_first_and_the_rest_keeps_its_order():
    forest = plant({"c": "b", "a": None, "b": "a", "d": "a"}, Warned())
    assert forest.order == ["a", "b", "c", "d"]
    assert forest.leaves() == ["c", "d"]
    assert children_of(forest.parents) == {"b": ["c"], None: ["a"], "a": ["b", "d"]}


def test_a_dangling_parent_is_replaced_by_the_record_before():
    warnings = Warned()
    forest = plant({"a": None, "b": "gone", "c": "b"}, warnings)
    assert forest.parents == {"a": None, "b": "a", "c": "b"}
    assert forest.inferred == {"b"}
    assert warnings == [("dangling-parent", "b")]


def test_a_dangling_parent_may_also_begin_anew():
    forest = plant({"a": None, "b": "gone"}, Warned(), attach_dangling=False)
    assert forest.parents == {"a": None, "b": None}
    assert not forest.inferred


def test_a_dangling_parent_is_never_replaced_by_a_descendant():
    warnings = Warned()
    forest = plant({"a": None, "child": "late", "late": "gone"}, warnings)
    assert forest.parents == {"a": None, "child": "late", "late": "a"}
    assert warnings == [("dangling-parent", "late")]


def test_each_cycle_is_cut_at_its_earliest_record():
    warnings = Warned()
    forest = plant({"z": "x", "x": "y", "y": "z", "self": "self", "t": "y"}, warnings)
    assert forest.parents == {"z": None, "x": "y", "y": "z", "self": None, "t": "y"}
    assert warnings == [("parent-cycle", "z"), ("parent-cycle", "self")]


def test_a_chain_of_a_hundred_thousand_is_no_recursion():
    size = 100_000
    parents = {str(i): str(i + 1) for i in range(size)} | {str(size): None}
    forest = plant(parents, Warned())
    assert forest.order[0] == str(size) and forest.order[-1] == "0"
    assert contract(parents, ["0", str(size)]) == {"0": str(size), str(size): None}


def test_any_parents_give_a_forest():
    chance = random.Random(3)
    for _ in range(300):
        keys = [str(i) for i in range(chance.randrange(1, 12))]
        given = {key: chance.choice([None, "gone", *keys]) for key in keys}
        forest = plant(given, Warned(), attach_dangling=chance.random() < 0.5)
        assert sorted(forest.order) == sorted(keys)
        seen = set()
        for key in forest.order:
            assert forest.parents[key] is None or forest.parents[key] in seen
            seen.add(key)
        assert parents_first(forest.parents) == forest.order


def test_what_is_not_kept_is_spliced_out():
    parents = {"root": None, "a": "root", "x": "a", "y": "x", "b": "y", "c": "x"}
    assert contract(parents, ["a", "b", "c"]) == {"a": None, "b": "a", "c": "a"}


def entry(key, parent, *parts, role="assistant"):
    return Entry(key, parent, Message(role, parts))


def test_every_leaf_is_a_head_and_one_is_active():
    tree = [entry("a", None), entry("b", "a"), entry("c", "a")]
    assert [(head.key, head.active) for head in heads_of(tree)] == [("b", False), ("c", True)]
    assert [(head.key, head.active) for head in heads_of(tree, "b")] == [("b", True), ("c", False)]
    assert [(head.key, head.active) for head in heads_of(tree, "a")] == [("a", True), ("b", False), ("c", False)]
    assert heads_of([]) == []


def unpaired(*entries):
    warnings = Warned()
    warn_of_unpaired_tools(entries, warnings)
    return warnings


CALL, RESULT = ToolCallPart("f", {}, "1"), ToolResultPart("f", "out", "1")


def test_a_result_whose_call_is_in_another_branch_is_an_orphan():
    assert unpaired(
        entry("a", None), entry("b", "a", CALL), entry("r", "b", RESULT, role="tool"), entry("c", "a", RESULT)
    ) == [("orphan-tool-result", "c")]


def test_a_call_that_was_passed_over_is_told_and_a_last_one_is_not():
    assert unpaired(entry("a", None, CALL), entry("b", "a", role="user")) == [("unanswered-tool-call", "a")]
    assert unpaired(entry("a", None, CALL)) == []
    two = ToolCallPart("g", {}, "2")
    assert unpaired(entry("a", None, CALL, two), entry("r", "a", RESULT, role="tool")) == []


def test_calls_of_one_id_are_answered_one_after_the_other():
    assert (
        unpaired(
            entry("a", None, CALL),
            entry("r", "a", RESULT, role="tool"),
            entry("b", "r", CALL),
            entry("s", "b", RESULT, role="tool"),
        )
        == []
    )


def test_many_records_that_stand_before_their_dangling_parents_all_get_a_place():
    pairs = {}
    for i in range(3000):
        pairs |= {f"child{i}": f"late{i}", f"late{i}": "gone"}
    forest = plant(pairs, Warned())
    assert len(forest.order) == len(pairs)
    assert forest.parents["late0"] is None
    assert forest.parents["late1"] == "late0"
