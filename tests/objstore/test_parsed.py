"""The short way from bytes to a message gives what the long one gives, or leaves it to that."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objstore.attachment import Attachment
from objstore.canonical import canonical_message_json
from objstore.jsonvalue import FrozenDict, FrozenList, loads_exactly
from objstore.limits import MAX_NESTING
from objstore.message import AttachmentPart, Message, TextPart, ToolCallPart, ToolResultPart, UnknownPart
from objstore.parsed import parsed_message, weight
from objstore.records import Tombstone
from refs.errors import InvalidValue
from tests import reference
from tests.strategies import careless_messages, message_dicts

USUAL = [
    b'{"parts":[],"role":"user"}',
    b'{"parts":[{"text":"","type":"text"}],"role":"user"}',
    b'{"parts":[{"text":"a","type":"text"},{"provider_metadata":{"a":[1,{"b":null}]},"text":"b","type":"text"}],'
    b'"role":"x"}',
    b'{"parts":[{"redacted":true,"text":"a","token_count":18446744073709551615,"type":"reasoning"}],"role":"a"}',
    b'{"parts":[{"arguments":{"a":{},"b":[],"c":[1.5,{"d":true}],"e":-1},"name":"f","server_executed":true,'
    b'"tool_call_id":"1","type":"tool_call"}],"provider_metadata":{"a":1},"role":"a"}',
    b'{"parts":[{"exception":"no","name":"f","output":"o","tool_call_id":"1","type":"tool_result"}],"role":"tool"}',
]
DEEP = b'{"parts":[{"arguments":%b1%b,"name":"f","type":"tool_call"}],"role":"a"}'


def long_way(raw: bytes) -> Message:
    return Message.from_dict(loads_exactly(raw))


def types_in(value: object) -> object:
    """Which types a value is made of: lists and dicts that can be changed are equal to those that can't."""
    if isinstance(value, dict):
        return type(value), {key: types_in(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [types_in(item) for item in value]
    names = getattr(value, "__slots__", None)
    return type(value), {name: types_in(getattr(value, name)) for name in names or () if name != "_open"}


def same(made: Message, expected: Message) -> bool:
    """Whether two messages are alike in all that can be seen of them, however they came about."""
    return (
        made == expected
        and hash(made) == hash(expected)
        and repr(made) == repr(expected)
        and types_in(made) == types_in(expected)
        and made.to_dict() == expected.to_dict()
        and canonical_message_json(made) == canonical_message_json(expected)
        and pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == expected
    )


@pytest.mark.parametrize("raw", USUAL)
def test_usual_messages_go_the_short_way(raw):
    made = parsed_message(raw)
    assert made is not None and same(made, long_way(raw)) and canonical_message_json(made) == raw


def test_the_id_is_kept_where_it_is_known():
    assert parsed_message(USUAL[0])._id is None
    assert parsed_message(USUAL[0], "a" * 64)._id == "a" * 64


@settings(max_examples=300)
@given(message_dicts | careless_messages)
def test_any_message_is_the_same_or_left(given_dict):
    try:
        raw = reference.dumps(given_dict)
    except (TypeError, ValueError):
        return
    made = parsed_message(raw)
    if made is not None:
        assert same(made, long_way(raw))


@settings(max_examples=500)
@given(message_dicts, st.data())
def test_what_was_damaged_is_left_or_read_as_the_long_way_reads_it(given_dict, data):
    raw = reference.canonical(given_dict)
    start = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(start, min(start + 6, len(raw))))
    put = data.draw(
        st.sampled_from([b"", b"null", b"1", b"1.0", b"{}", b"[]", b'"', b"\xff", b",", b"e", b"true"])
    )
    changed = raw[:start] + put + raw[end:]
    made = parsed_message(changed)
    if made is not None:
        assert same(made, long_way(changed))


@pytest.mark.parametrize("raw", [
    b"", b"null", b"[]", b'"x"', b"{}", b'{"parts":[]}', b'{"role":"u"}', b'{"parts":[],"role":""}',
    b'{"parts":[],"role":null}', b'{"parts":[],"role":1}', b'{"parts":{},"role":"u"}', b'{"parts":[1],"role":"u"}',
    b'{"parts":[[]],"role":"u"}', b'{"parts":[{}],"role":"u"}', b'{"parts":[{"type":[]}],"role":"u"}',
    b'{"parts":[{"type":{}}],"role":"u"}', b'{"parts":[{"text":1,"type":"text"}],"role":"u"}',
    b'{"parts":[{"text":null,"type":"text"}],"role":"u"}', b'{"parts":[{"type":"text","x":""}],"role":"u"}',
    b'{"parts":[{"text":"\\ud800","type":"text"}],"role":"u"}',
    b'{"parts":[{"text":"\xff","type":"text"}],"role":"u"}',
    b'{"parts":[{"text":"\xed\xa0\x80","type":"text"}],"role":"u"}', b'{"parts":[],"role":"\\udc00"}',
    b'{"parts":[],"provider_metadata":1,"role":"u"}', b'{"parts":[],"provider_metadata":false,"role":"u"}',
    b'{"parts":[],"provider_metadata":[],"role":"u"}', b'{"parts":[],"provider_metadata":{"a":1.0},"role":"u"}',
    b'{"parts":[],"provider_metadata":{"a":[1e30]},"role":"u"}', b'{"parts":[],"role":"u","tombstone":{}}',
    b'{"parts":[{"text":"","token_count":true,"type":"reasoning"}],"role":"u"}',
    b'{"parts":[{"text":"","token_count":1.0,"type":"reasoning"}],"role":"u"}',
    b'{"parts":[{"text":"","token_count":18446744073709551616,"type":"reasoning"}],"role":"u"}',
    b'{"parts":[{"redacted":0,"text":"","type":"reasoning"}],"role":"u"}',
    b'{"parts":[{"name":"f","type":"tool_call"}],"role":"u"}',
    b'{"parts":[{"arguments":[],"name":"f","type":"tool_call"}],"role":"u"}',
    b'{"parts":[{"arguments":{},"type":"tool_call"}],"role":"u"}',
    b'{"parts":[{"arguments":{"n":9223372036854775808.0},"name":"f","type":"tool_call"}],"role":"u"}',
    b'{"parts":[{"arguments":{"n":18446744073709551616},"name":"f","type":"tool_call"}],"role":"u"}',
    b'{"parts":[{"arguments":{"n":-9223372036854775809},"name":"f","type":"tool_call"}],"role":"u"}',
    b'{"parts":[{"arguments":{"n":1e999},"name":"f","type":"tool_call"}],"role":"u"}',
    b'{"parts":[{"arguments":{"n":NaN},"name":"f","type":"tool_call"}],"role":"u"}',
    b'{"parts":[{"arguments":{},"name":"f","server_executed":1,"type":"tool_call"}],"role":"u"}',
    b'{"parts":[{"arguments":{},"name":"f","tool_call_id":1,"type":"tool_call"}],"role":"u"}',
    b'{"parts":[{"name":"f","type":"tool_result"}],"role":"u"}',
    b'{"parts":[{"attachments":[],"name":"f","output":"","type":"tool_result"}],"role":"u"}',
    b'{"parts":[{"exception":1,"name":"f","output":"","type":"tool_result"}],"role":"u"}',
    b'{"parts":[{"type":"attachment"}],"role":"u"}', b'{"parts":[{"type":"new"}],"role":"u"}',
    b'{"condensed":{"parts":[],"role":"u"},"id":"' + b"a" * 64 + b'"}',
])  # fmt: skip
def test_all_that_is_unusual_is_left(raw):
    assert parsed_message(raw) is None


@pytest.mark.parametrize("levels", [MAX_NESTING - 4, MAX_NESTING - 3])
@pytest.mark.parametrize("one", [(b'{"a":', b"}"), (b"[", b"]")])
def test_json_is_nested_only_so_deep(levels, one):
    inside = (one[0] * levels, one[1] * levels)
    raw = DEEP % (b'{"x":' + inside[0], inside[1] + b"}")
    hidden = b'{"parts":[{"text":%b0%b,"text":"x","type":"text"}],"role":"u"}' % (
        one[0] * (levels + 1),
        one[1] * (levels + 1),
    )
    for each in (raw, hidden):
        if levels == MAX_NESTING - 4:
            assert same(parsed_message(each), long_way(each))
        else:
            assert parsed_message(each) is None
            with pytest.raises(InvalidValue):
                long_way(each)


def test_what_is_inside_cannot_be_changed():
    made = parsed_message(USUAL[4]).parts[0].arguments
    assert [type(each) for each in (made, made["a"], made["b"], made["c"], made["c"][1])] == [
        FrozenDict, FrozenDict, FrozenList, FrozenList, FrozenDict,
    ]  # fmt: skip


@pytest.mark.parametrize("value", [
    Message.of("user", "x" * 10_000),
    Message.of("user", "\U0001f600" * 2500),
    Message("user", [TextPart("", {"a": "x" * 10_000})]),
    Message("user", [TextPart("")], {"a": ["x" * 10_000]}),
    Message("user", [TextPart("")] * 100),
    Message("tool", [ToolResultPart("f", "x" * 10_000)]),
    Message("tool", [ToolResultPart("f", "", attachments=[Attachment(content=bytes(10_000))])]),
    Message("user", [AttachmentPart(Attachment(url="data:" + "x" * 10_000))]),
    Message("user", [UnknownPart({"type": "new", "a": {"b": "x" * 10_000}})]),
    Message("user", [ToolCallPart("f", {"a": [{} for _ in range(150)]})]),
    Message("user", [ToolCallPart("f", {"a": [10**9 + i for i in range(300)]})]),
    Message("user", [ToolCallPart("f", {str(i): str(1000 + i) for i in range(150)})]),
    Tombstone("message", "a" * 64, "2026-01-02T03:04:05.678Z", "x" * 10_000),
], ids=str)  # fmt: skip
def test_the_weight_of_a_value_is_at_least_what_it_takes(value):
    assert 10_000 <= weight(value) < 60_000
