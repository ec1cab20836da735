"""The short way from a line of a pack to the index gives what the long one gives, or leaves it to that."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from objstore.arrival import Arrival
from objstore.kinds import Kind
from objstore.packframe import PAIRS, Frame
from objstore.plainlines import plain_description, plain_note
from objstore.records import Description, Note
from objstore.scan import frame_arrivals, line_arrival, record_arrival
from refs.errors import CorruptFile, CorruptObject, DagError
from tests.strategies import any_json, texts

TIME = "2026-01-02T03:04:05.678Z"
ULID = "01J00000000000000000000000"
CHAIN = [
    b'{"parts":[],"role":"user"}',
    b'{"node":["root",1]}',
    b'{"parts":[],"role":"assistant"}',
    b'{"node":[2,1]}',
    b'{"node":[1,2]}',
]
"""Nodes stand 4, 2 and 1 lines before what comes next."""
ELSEWHERE = "ab" * 32


def frame(*lines: bytes) -> Frame:
    return Frame(b"".join(line + b"\n" for line in lines), "here")


def written(value: object, **how: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, **how).encode("utf-8", "backslashreplace")  # type: ignore[arg-type]


def outcome(read, *arguments) -> object:
    """What comes, or what is raised."""
    try:
        return read(*arguments)
    except (CorruptFile, CorruptObject) as error:
        return type(error), error.reason


def both_ways(line: bytes) -> tuple[object, object, bool]:
    """What the line after `CHAIN` gives by the way it takes, and by the long one; whether it took the short."""
    held, other = frame(*CHAIN, line), frame(*CHAIN, line)
    for earlier in range(len(CHAIN)):
        line_arrival(held, 1, earlier)
    at = len(CHAIN)
    short = plain_note(held, at) if held.kind(at) is Kind.NOTE else plain_description(line)
    return outcome(line_arrival, held, 1, at), outcome(record_arrival, other, 1, at), short is not None


def alike(made: object, expected: object) -> bool:
    if isinstance(made, Arrival) and isinstance(expected, Arrival):
        assert isinstance(made.value, Note | Description) and isinstance(expected.value, Note | Description)
        if (
            made.value.canonical() != expected.value.canonical()
            or sha256(made.value.canonical()).hexdigest() != made.oid
        ):
            return False
    return made == expected


references = st.sampled_from(
    [1, 2, 4, 1, 2, 4, 3, 0, -1, 5, 6, 1.0, True, None, "root", ELSEWHERE, "AB" * 32, "x", [1]]
)
abouts = st.dictionaries(texts, st.one_of(texts, st.integers(), st.none(), st.booleans(), any_json), max_size=3)
entries = st.one_of(
    st.tuples(references, abouts),
    st.tuples(st.sampled_from([1, 2, 4]), abouts),
    st.lists(any_json, max_size=3),
    st.sampled_from(["ab", None, 1, {}, {"a": 1, "b": 2}]),
)
times = st.sampled_from([TIME, TIME, TIME, "2026-02-30T03:04:05.678Z", "", None, 1])
notes = st.fixed_dictionaries(
    {"at": times, "nodes": st.lists(entries, max_size=4) | any_json},
    optional={"note": st.sampled_from([ULID, ULID, ULID, ULID.lower(), "", None]), "more": any_json},
)
descriptions = st.fixed_dictionaries(
    {"created_at": times, "description": texts | st.just("trip")},
    optional={
        "title": texts | any_json,
        "model": texts,
        "forked_from": st.sampled_from([ELSEWHERE, "x", None]),
        "source": st.dictionaries(st.sampled_from(["format", "id", "importer"]), texts) | any_json,
        "tags": st.lists(texts, max_size=3) | any_json,
        "more": any_json,
    },
)
TIGHT = (",", ":")


@given(notes, st.booleans(), st.booleans())
def test_a_note_is_the_same_by_both_ways(value, tight, escaped):
    line = json.dumps(value, ensure_ascii=escaped, separators=TIGHT if tight else None)
    if not line.startswith('{"at":'):
        return
    made, expected, _ = both_ways(line.encode("utf-8", "backslashreplace"))
    assert alike(made, expected)


@given(descriptions, st.booleans())
@example({"created_at": TIME, "description": "é", "tags": ["\ud83d", "\ud83d\ude00"]}, True)
def test_a_description_is_the_same_by_both_ways(value, tight):
    line = written(value, separators=TIGHT if tight else None, sort_keys=True)
    if not line.startswith(b'{"created_at":'):
        return
    made, expected, _ = both_ways(line)
    assert alike(made, expected)


NOTE = b'{"at":"%b","nodes":%%b,"note":"%b"}' % (TIME.encode(), ULID.encode())


@pytest.mark.parametrize(
    "nodes",
    [
        b"[]",
        b'[[1,{}],[2,{"key":"1"}],[4,{"at":"x","hidden":true,"n":-3,"none":null}]]',
        b'[[2,{"key":"1"}],[2,{"key":"2"}],["' + ELSEWHERE.encode() + b'",{}]]',
        b'[[1,{"a":1,"a":2}]]',
        b'[ [1, {"b": "\\ud83d\\ude00", "a": 18446744073709551615}] ]',
        b'[[1,{"zero":-0}]]',
    ],
)
def test_usual_notes_go_the_short_way(nodes):
    made, expected, short = both_ways(NOTE % nodes)
    assert isinstance(made, Arrival) and alike(made, expected) and short


@pytest.mark.parametrize(
    "nodes",
    [
        b'[[1,{"f":1.5}]]',
        b'[[1,{"f":1e5}]]',
        b'[[1,{"n":18446744073709551616}]]',
        b'[[1,{"n":-9223372036854775809}]]',
        b'[[1,{"s":"\\ud83d"}]]',
        b'[[1,{"s":[]}]]',
        b'[[1,{"s":{"a":1}}]]',
        b"{}",
    ],
)
def test_unusual_notes_go_the_long_way_and_are_read(nodes):
    made, expected, short = both_ways(NOTE % nodes)
    assert isinstance(made, Arrival) and alike(made, expected) and not short


@pytest.mark.parametrize(
    "nodes",
    [
        *(b"[[%b,{}]]" % each for each in (b"3", b"0", b"-1", b"6", b"true", b"1.0", b'"root"', b'"x"', b"null")),
        b'["ab"]',
        b"[[1]]",
        b"[[1,{},{}]]",
        b"[[1,[]]]",
        b"[[1,{}]",
        b'[[1,{"\xff":1}]]',
        b'[[1,{"deep":' + b"[" * 200 + b"]" * 200 + b"}]]",
    ],
)
def test_what_is_no_note_is_refused_by_the_long_way(nodes):
    made, expected, short = both_ways(NOTE % nodes)
    assert made == expected and not isinstance(made, Arrival) and not short


def test_usual_descriptions_go_the_short_way():
    line = (
        b'{"created_at":"%b","description":"trip","source":{"format":"x","id":"\xc3\xa9"},"tags":["a"],"title":""}'
    )
    made, expected, short = both_ways(line % TIME.encode())
    assert isinstance(made, Arrival) and alike(made, expected) and short


# -- nodes and messages ---------------------------------------------------------------------------

pairs = st.tuples(
    st.sampled_from(["root", 1, 2, 3, 4, 2, 2, 0, -1, -2, 9, True, 1.0, None, "Root", ELSEWHERE]),
    st.sampled_from([1, 2, 3, 1, 1, 0, -1, 9, True, 1.0, ELSEWHERE, "x"]),
)
lines = st.one_of(
    pairs.map(lambda pair: b'{"node":%b}' % written(list(pair), separators=TIGHT)),
    pairs.map(lambda pair: b'{"node":%b}' % written([*pair, 2, "call"], separators=TIGHT)),
    st.sampled_from([*CHAIN, b'{"node":[2,1]}', b'{"node":[2, 1]}', NOTE % b"[[1,{}]]", b"{}", b""]),
    st.integers(0, 2).map(lambda n: b'{"parts":[],"role":"%d"}' % n),
)


@given(st.lists(lines, max_size=12))
def test_the_objects_of_a_frame_are_those_of_its_lines(made):
    held, other = [*CHAIN, *made], [*CHAIN, *made]
    remembered = dict(PAIRS)
    try:
        PAIRS.clear()
        expected: list[object] | DagError = []
        try:
            one_by_one = frame(*other)
            expected = []
            for at in range(len(other)):
                PAIRS.clear()  # nothing is taken from what an equal line held
                expected.append(line_arrival(one_by_one, 3, at))
        except DagError as error:
            expected = error
        for _ in range(2):  # with what is remembered now, and with more
            try:
                found: list[object] | DagError = list(frame_arrivals(frame(*held), 3))
            except DagError as error:
                found = error
            assert str(found) == str(expected) if isinstance(expected, DagError) else found == expected
    finally:
        PAIRS.update(remembered)


def test_a_line_points_only_to_earlier_ones_also_where_later_ones_are_known():
    PAIRS.clear()
    bad = frame(*CHAIN, b'{"node":[-1,1]}', CHAIN[3])
    bad.nodes[6] = bad.node_oid(3)
    for _ in range(2):
        with pytest.raises(CorruptFile, match="a reference that leaves the frame"):
            frame_arrivals(bad, 1)
