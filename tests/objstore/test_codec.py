"""Values to bytes and back; what isn't exactly one value's canonical form is refused."""

from __future__ import annotations

import contextlib
import json
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objstore.attachment import Attachment
from objstore.codec import attachments, decode, encode, payload_ids, read_message
from objstore.kinds import Kind
from objstore.message import AttachmentPart, Message, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from objstore.records import Tombstone
from refs.errors import CorruptObject
from tests import reference
from tests.strategies import any_json, message_dicts, messages

CANONICAL = b'{"parts":[{"text":"hi/","type":"text"}],"role":"user"}'
SMALL_CHANGES = [b"", b"null", b"1", b"1.0", b"{}", b"[]", b'"', b"\\", b"\xff", b"\x00", b",", b"e"]
KINDS = sorted(set(Kind) - {Kind.PAYLOAD})


def call_with(raw_arguments: bytes) -> bytes:
    return b'{"parts":[{"arguments":%b,"name":"f","type":"tool_call"}],"role":"a"}' % raw_arguments


class TestRoundTrips:
    @given(messages)
    def test_decoded_message_is_the_one_encoded(self, message):
        kind, oid, raw = encode(message)
        assert (kind, oid) == (Kind.MESSAGE, sha256(raw).hexdigest())
        assert decode(kind, raw) == message

    @given(messages)
    def test_message_read_by_its_hash_is_the_one_encoded(self, message):
        _, oid, raw = encode(message)
        for back in (read_message(raw), read_message(raw, oid)):
            assert back == message
            assert encode(back) == encode(message)

    @pytest.mark.parametrize("part", [
        TextPart("x"), ReasoningPart("x"), ToolCallPart("x"), ToolResultPart("x", "x"), AttachmentPart(),
    ], ids=lambda part: part.type)  # fmt: skip
    def test_message_of_one_bare_part_keeps_its_kind_of_part(self, part):
        raw = encode(Message("user", [part]))[2]
        assert type(read_message(raw).parts[0]) is type(decode(Kind.MESSAGE, raw).parts[0]) is type(part)

    def test_unknown_part_that_looks_like_text_is_not_taken_for_text(self):
        raw = b'{"parts":[{"text":"x","type":"texture"}],"role":"user"}'
        assert read_message(raw) == decode(Kind.MESSAGE, raw) != Message.of("user", "x")

    @pytest.mark.parametrize("place", ["token_count", "metadata", "part metadata", "arguments", "unknown"])
    @pytest.mark.parametrize("number", [(1 << 64) - 1, 1 << 64, -(1 << 63), -(1 << 63) - 1, 10**40, -(10**4299)])
    def test_integer_that_a_fast_parser_makes_a_float_is_exact_everywhere(self, place, number):
        inner = {"n": [number]}
        given_dict = {
            "token_count": {"role": "a", "parts": [{"type": "reasoning", "text": "", "token_count": number}]},
            "metadata": {"role": "a", "parts": [], "provider_metadata": inner},
            "part metadata": {"role": "a", "parts": [{"type": "text", "text": "", "provider_metadata": inner}]},
            "arguments": {"role": "a", "parts": [{"type": "tool_call", "name": "f", "arguments": inner}]},
            "unknown": {"role": "a", "parts": [{"type": "new", **inner}]},
        }[place]
        raw = reference.canonical(given_dict)
        for back in (decode(Kind.MESSAGE, raw), read_message(raw)):
            assert reference.dumps(back.to_dict()) == raw

    @given(st.binary(max_size=40))
    def test_payload_is_its_bytes_whatever_they_are(self, raw):
        assert encode(raw) == (Kind.PAYLOAD, sha256(raw).hexdigest(), raw)
        assert decode(Kind.PAYLOAD, raw) == raw

    def test_tombstone_in_a_messages_place_is_read_as_one(self):
        tombstone = Tombstone("message", "a" * 64, "2026-01-02T03:04:05.678Z", "why")
        raw = encode(tombstone)[2]
        assert read_message(raw, "a" * 64) == read_message(raw) == tombstone
        assert payload_ids(raw) == []

    def test_attachments_are_told_in_order(self):
        one, two, three = (Attachment(path=name) for name in "123")
        parts = [
            AttachmentPart(one),
            TextPart("x"),
            AttachmentPart(),
            ToolResultPart("f", "", attachments=[two, three]),
        ]
        assert attachments(Message("u", parts)) == [one, two, three]


class TestTwins:
    """Texts that mean the same and would have another hash: only one of them is an object."""

    @pytest.mark.parametrize("raw", [
        CANONICAL + b"\n", b" " + CANONICAL, b"\xef\xbb\xbf" + CANONICAL, CANONICAL * 2, CANONICAL + b"\x00",
        CANONICAL.replace(b":", b": "), CANONICAL.replace(b",", b", "), CANONICAL.replace(b"/", b"\\/"),
        *(
            CANONICAL.replace(b"hi", escape)
            for escape in (rb"h\u0069", rb"\u00e9", rb"\u001F", rb"\u000a", rb"\u007f", rb"\ud83d\ude00")
        ),
        b'{"role":"user","parts":[{"text":"hi/","type":"text"}]}',
        b'{"parts":[{"type":"text","text":"hi/"}],"role":"user"}',
        b'{"parts":[],"parts":[{"text":"hi/","type":"text"}],"role":"user"}',
        b'{"parts":[{"text":"no","text":"hi/","type":"text"}],"role":"user"}',
        b'{"parts":[{"text":"hi/","type":"text"}],"provider_metadata":{},"role":"user"}',
        b'{"parts":[{"text":"hi/","type":"text"}],"provider_metadata":null,"role":"user"}',
        b'{"parts":[{"cache":1,"text":"hi/","type":"text"}],"role":"user"}',
        b'{"id":"m","parts":[{"text":"hi/","type":"text"}],"role":"user"}',
        b'{"parts":[{"provider_metadata":{},"text":"hi/","type":"text"}],"role":"user"}',
        b'{"parts":[{"redacted":false,"text":"","type":"reasoning"}],"role":"user"}',
        b'{"parts":[{"text":"","token_count":null,"type":"reasoning"}],"role":"user"}',
        b'{"parts":[{"text":"","token_count":1.0,"type":"reasoning"}],"role":"user"}',
        b'{"parts":[{"attachment":null,"type":"attachment"}],"role":"user"}',
        b'{"parts":[{"attachment":{"url":""},"type":"attachment"}],"role":"user"}',
        b'{"parts":[{"attachment":{"content":""},"type":"attachment"}],"role":"user"}',
        b'{"parts":[{"attachment":{"content":"bG93cx=="},"type":"attachment"}],"role":"user"}',
        b'{"parts":[{"attachment":{"content":{"payload":"' + b"a" * 64 + b'"}},"type":"attachment"}],"role":"u"}',
        b'{"parts":[{"attachments":[],"name":"f","output":"","type":"tool_result"}],"role":"user"}',
        b'{"parts":[{"exception":null,"name":"f","output":"","type":"tool_result"}],"role":"user"}',
    ])  # fmt: skip
    def test_of_a_message_are_corrupt(self, raw):
        with pytest.raises(CorruptObject):
            decode(Kind.MESSAGE, raw)

    @pytest.mark.parametrize("number", [
        b"1E5", b"1e5", b"1.0e5", b"100000.00", b"-0", b"01", b"1.", b"+1", b"0.1e1", b"1e-7", b"1E-07", b"1e16",
        b"1e+016", b"0.10", b"0.1000000000000000055511151231257827", b"-0.00", b"1e400", b"-1e400", b"NaN",
        b"Infinity", b"1_0", b"18446744073709551616.0", b"1.8446744073709551616e+19", b"0x10", b"9" * 4301,
        b"1" + b"0" * 100_000,
    ])  # fmt: skip
    def test_of_numbers_are_corrupt(self, number):
        for inside in (number, b"[" + number + b"]", b'{"a":' + number + b"}"):
            with pytest.raises(CorruptObject):
                decode(Kind.MESSAGE, call_with(b'{"x":' + inside + b"}"))

    @pytest.mark.parametrize("number", [
        b"0", b"-1", b"100000", b"100000.0", b"-0.0", b"1e-07", b"1e+16", b"0.1", b"18446744073709551616",
        b"1.8446744073709552e+19", b"5e-324", b"1.7976931348623157e+308", b"9" * 4300,
    ])  # fmt: skip
    def test_number_as_it_is_written_is_taken(self, number):
        raw = call_with(b'{"x":' + number + b"}")
        assert encode(decode(Kind.MESSAGE, raw))[2] == encode(read_message(raw))[2] == raw

    @given(message_dicts, st.sampled_from([{"indent": 1}, {"separators": (", ", ":")}, {"ensure_ascii": True}]))
    def test_of_any_message_are_corrupt(self, given_dict, style):
        canonical = reference.canonical(given_dict)
        plain = {"separators": (",", ":"), "ensure_ascii": False, "sort_keys": True}
        value = reference.join_surrogates(reference.message_of(given_dict))
        twin = json.dumps(value, **plain | style).encode("utf-8", "backslashreplace")
        if twin != canonical:
            with pytest.raises(CorruptObject):
                decode(Kind.MESSAGE, twin)


class TestArbitraryBytes:
    @given(st.sampled_from(KINDS), st.binary(max_size=80) | any_json.map(reference.dumps))
    def test_are_a_value_or_corrupt(self, kind, raw):
        try:
            value = decode(kind, raw)
        except CorruptObject as error:
            assert (error.kind, error.oid) == (kind, sha256(raw).hexdigest()) and error.reason
        else:
            assert encode(value)[2] == raw

    @settings(max_examples=300)
    @given(message_dicts, st.data())
    def test_made_from_a_message_by_a_small_change_are_another_value_or_corrupt(self, given_dict, data):
        raw = reference.canonical(given_dict)
        start = data.draw(st.integers(0, len(raw)))
        end = data.draw(st.integers(start, min(start + 6, len(raw))))
        put = data.draw(st.sampled_from(SMALL_CHANGES))
        changed = raw[:start] + put + raw[end:]
        try:
            value = decode(Kind.MESSAGE, changed)
        except CorruptObject:
            pass
        else:
            assert encode(value)[2] == changed
        with contextlib.suppress(CorruptObject):
            read_message(changed)

    @pytest.mark.parametrize("raw", [
        b"", b"{}", b"[]", b"null", b"1", b'"x"', b'{"parts":[],"role":""}', b'{"parts":[1],"role":"u"}',
        b'{"parts":[null],"role":"u"}', b'{"parts":["x"],"role":"u"}', b'{"parts":{},"role":"u"}',
        b'{"parts":null,"role":"u"}',
        b'{"parts":[{"text":"x","type":"text"}],"rule":"u"}', b'{"parts":[{"text":1,"type":"text"}],"role":"u"}',
        b'{"parts":[{"text":"x","type":"text"}],"role":null}',
        b'{"parts":[{"text":"x","type":"text"}],"role":1e300}',
        b'{"tombstone":1}', b'{"parts":[],"role":"u","tombstone":{}}', b"[" * 100_000, b'{"a":' * 100_000,
        b"\xff\xfe",
        b'{"parts":[{"arguments":{"a":NaN},"name":"f","type":"tool_call"}],"role":"u"}',
        b'{"parts":[{"arguments":{"a":1e999},"name":"f","type":"tool_call"}],"role":"u"}',
    ])  # fmt: skip
    def test_that_are_no_message_are_corrupt_for_both_readers(self, raw):
        for read in (lambda: decode(Kind.MESSAGE, raw), lambda: read_message(raw), lambda: payload_ids(raw)):
            with pytest.raises(CorruptObject):
                read()

    def test_error_says_what_is_wrong_where(self):
        with pytest.raises(CorruptObject, match=r"corrupt message [0-9a-f]{64}: parts\[0\]\.text: missing"):
            decode(Kind.MESSAGE, b'{"parts":[{"type":"text"}],"role":"u"}')
        with pytest.raises(CorruptObject, match="not in canonical form"):
            decode(Kind.MESSAGE, CANONICAL + b" ")
