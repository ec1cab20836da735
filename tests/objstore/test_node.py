"""Nodes and their ids: a pure function of what they say."""

from __future__ import annotations

import copy
import dataclasses
import enum
import itertools
import json
import pickle
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from objstore.codec import decode, encode
from objstore.kinds import Kind
from objstore.node import Node, node_id, plain_node_id
from refs.errors import CorruptObject, InvalidId, InvalidValue
from refs.ids import ROOT
from tests import reference
from tests.strategies import texts

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "values.json").read_text("utf-8"))["nodes"]
A, B, C = ("a" * 64, "b" * 64, "0123456789abcdef" * 4)
oids = st.binary(min_size=32, max_size=32).map(bytes.hex)
nodes = st.builds(Node, st.just(ROOT) | oids, oids) | st.builds(
    Node, st.just(ROOT) | oids, oids, oids, st.none() | texts
)

NOT_IDS = ["", "a" * 63, "a" * 65, "A" * 64, "g" * 64, "a" * 63 + "\n", "a" * 64 + "\n", " " + "a" * 63, "é" * 64]
NOT_IDS += [
    "٣" * 64,
    "\ud800" * 64,
    "Root",
    "root ",
    '","parent":"',
    None,
    5,
    int("1" * 64),
    b"a" * 64,
    [],
    ["a" * 64],
]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in GOLDEN])
def test_node_has_the_bytes_and_id_written_down(case):
    node = Node.from_dict(case["node"])
    assert node.canonical().decode() == case["canonical"]
    assert node.id == node_id(**case["node"]) == encode(node)[1] == case["sha256"]
    assert decode(Kind.NODE, case["canonical"].encode()) == node


@given(nodes)
def test_id_is_the_hash_of_what_the_standard_library_writes(node):
    members = {key: value for key, value in dataclasses.asdict(node).items() if value is not None}
    raw = reference.dumps(members)
    assert node.canonical() == raw
    assert node.id == node_id(**dataclasses.asdict(node)) == sha256(raw).hexdigest()
    if node.called_by is None:
        assert plain_node_id(node.parent, node.message) == node.id


@given(nodes)
def test_decoded_it_is_the_same_node(node):
    assert decode(Kind.NODE, encode(node)[2]) == node


@given(nodes, nodes)
def test_nodes_are_equal_exactly_when_their_ids_are(one, other):
    assert (one == other) == (one.id == other.id)


@pytest.mark.parametrize("bad", NOT_IDS, ids=repr)
class TestBadIds:
    def test_are_refused_by_the_function(self, bad):
        for fields in ((bad, B), (A, bad), (bad, bad), (bad, B, C), (A, bad, C)):
            with pytest.raises((InvalidId, InvalidValue)):
                node_id(*fields)

    def test_are_refused_by_the_value_with_their_place(self, bad):
        for place in ("parent", "message", "called_by"):
            if place == "called_by" and bad is None:
                continue
            with pytest.raises(InvalidValue) as caught:
                Node(**({"parent": A, "message": B} | {place: bad}))
            assert caught.value.path == place


def test_lengths_that_only_sum_up_are_refused():
    for cut in (62, 63, 65, 66):
        both = A + B
        with pytest.raises(InvalidId):
            node_id(both[:cut], both[cut:])


def test_two_ids_that_read_as_one_frame_are_refused():
    for parent, message in itertools.product(["a", '","parent":"', "b" * 52 + '","parent":"', "root"], repeat=2):
        with pytest.raises(InvalidId):
            node_id(parent, message)


def test_message_is_never_root():
    with pytest.raises(InvalidId):
        node_id("root", "root")
    with pytest.raises(InvalidValue):
        Node("root", "root")
    with pytest.raises(InvalidValue):
        Node(A, B, "root")


def test_text_enum_is_taken_by_its_text():
    class Known(str, enum.Enum):  # noqa: UP042 - its str() is its name, not its text
        ID = A
        START = "root"

    assert node_id(Known.ID, B) == node_id(A, B)
    assert node_id(Known.START, Known.ID) == node_id("root", A)
    assert Node(Known.START, Known.ID, Known.ID).canonical() == Node("root", A, A).canonical()


def test_tool_call_id_stands_only_beside_called_by():
    for make in (
        lambda: node_id(A, B, None, "t"),
        lambda: Node(A, B, None, "t"),
        lambda: Node(A, B, tool_call_id=""),
    ):
        with pytest.raises(InvalidValue) as caught:
            make()
        assert caught.value.path == "tool_call_id"


def test_every_field_is_part_of_the_id():
    ids = [
        node_id(*fields)
        for fields in [("root", A), (A, A), (B, A), (A, B), (A, A, B), (A, A, B, ""), (A, A, B, "t")]
    ]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("members, path", [
    ({}, "parent"),
    ({"parent": A}, "message"),
    ({"parent": A, "message": B, "more": 1}, "more"),
    ({"parent": A, "message": B, 5: 1, "x": 2}, "5"),
    ({"parent": A, "message": B, "called_by": None}, "called_by"),
    ({"parent": A, "message": B, "called_by": C, "tool_call_id": None}, "tool_call_id"),
    ({"parent": None, "message": B}, "parent"),
    ({"parent": A, "message": B, "called_by": C, "tool_call_id": 5}, "tool_call_id"),
    ([], ""),
    ("node", ""),
])  # fmt: skip
def test_bad_dict_is_refused_with_its_place(members, path):
    with pytest.raises(InvalidValue) as caught:
        Node.from_dict(members)
    assert caught.value.path == path


@pytest.mark.parametrize("raw", [
    b'{"parent":"root","message":"%b"}' % A.encode(),
    b'{"message":"%b", "parent":"root"}' % A.encode(),
    b'{"message":"%b","parent":"root"}\n' % A.encode(),
    b'{"called_by":null,"message":"%b","parent":"root"}' % A.encode(),
    b'{"message":"%b","message":"%b","parent":"root"}' % (A.encode(), A.encode()),
    b'{"message":"%b","parent":"ro\\u006ft"}' % A.encode(),
    b'["%b","root"]' % A.encode(),
])  # fmt: skip
def test_twin_of_a_node_is_corrupt(raw):
    with pytest.raises(CorruptObject):
        decode(Kind.NODE, raw)


def test_node_is_frozen_and_copies_are_equal():
    node = Node(A, B, C, "t")
    with pytest.raises(dataclasses.FrozenInstanceError):
        node.parent = B
    for other in (copy.copy(node), copy.deepcopy(node), pickle.loads(pickle.dumps(node))):
        assert other == node and hash(other) == hash(node)
