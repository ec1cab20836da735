"""The canonical form and its ids are a contract: byte for byte, for ever."""

from __future__ import annotations

import base64
import io
import json
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objstore.attachment import Attachment
from objstore.canonical import canonical_message_json, condense, message_content_hash
from objstore.codec import encode, payload_ids, read_message
from objstore.limits import CHUNK_BYTES, PAYLOAD_THRESHOLD_BYTES
from objstore.message import AttachmentPart, Message, TextPart, ToolCallPart, ToolResultPart
from refs.errors import CorruptObject, InvalidValue
from tests import reference
from tests.strategies import message_dicts, texts

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "values.json").read_text("utf-8"))
VECTORS = Path(__file__).parents[2].parent / "shared" / "vectors" / "canonical.json"


def vectors(kind: str) -> list:
    return json.loads(VECTORS.read_text("utf-8"))[kind] if VECTORS.exists() else []


def named(cases: list) -> list:
    return [pytest.param(case, id=case["name"]) for case in cases]


class TestGoldenValues:
    @pytest.mark.parametrize("case", named(GOLDEN["messages"]))
    def test_message_has_the_bytes_and_id_written_down(self, case):
        message = Message.from_dict(case["message"])
        assert canonical_message_json(message).decode() == case["canonical"]
        assert message_content_hash(message) == case["sha256"]

    @pytest.mark.parametrize("case", named(GOLDEN["messages"]))
    def test_reference_of_the_tests_agrees(self, case):
        raw = reference.canonical(case["message"])
        assert (raw.decode(), reference.digest(raw)) == (case["canonical"], case["sha256"])

    @pytest.mark.parametrize("case", named(GOLDEN["refused"]))
    def test_refused_message_names_the_place(self, case):
        with pytest.raises(InvalidValue) as caught:
            Message.from_dict(case["message"])
        assert caught.value.path == case["path"]


@pytest.mark.skipif(not VECTORS.exists(), reason="the vectors of another program are not beside this repository")
class TestVectorsOfAnotherProgram:
    @pytest.mark.parametrize("case", named(vectors("cases")))
    def test_same_bytes_and_ids(self, case):
        message = Message.from_dict(case["message"])
        assert canonical_message_json(message) == case["canonical"].encode()
        assert message_content_hash(message) == case["sha256"]
        without = case["canonical_without_provider_metadata"].encode()
        assert canonical_message_json(message, include_provider_metadata=False) == without
        assert message_content_hash(message, False) == case["sha256_without_provider_metadata"]

    @pytest.mark.parametrize(
        "name, path",
        [
            ("float_in_message_pm", "provider_metadata.temp"),
            ("float_in_part_pm", "parts[0].provider_metadata.n.f"),
        ],
    )
    def test_same_errors_with_the_path(self, name, path):
        [case] = [case for case in vectors("errors") if case["name"] == name]
        with pytest.raises(InvalidValue, match="floats are not permitted") as caught:
            Message.from_dict(case["message"])
        assert caught.value.path == path

    def test_errors_there_that_are_extensions_here(self):
        names = {case["name"] for case in vectors("errors")}
        assert names - {"float_in_message_pm", "float_in_part_pm"} == {
            "unknown_part_type",
            "lone_surrogate",
            "nan_in_tool_args",
        }


class TestBothWays:
    @given(message_dicts)
    def test_fast_way_writes_what_the_standard_library_writes(self, given_dict):
        message = Message.from_dict(given_dict)
        expected = reference.canonical(given_dict)
        assert canonical_message_json(message) == expected
        assert message_content_hash(message) == sha256(expected).hexdigest()

    @given(message_dicts)
    def test_without_provider_metadata_too(self, given_dict):
        message = Message.from_dict(given_dict)
        expected = reference.canonical(given_dict, metadata=False)
        assert canonical_message_json(message, include_provider_metadata=False) == expected
        assert message_content_hash(message, include_provider_metadata=False) == sha256(expected).hexdigest()

    @given(message_dicts)
    def test_stored_form_is_canonical_unless_payloads_are_taken_out(self, given_dict):
        message = Message.from_dict(given_dict)
        condensed = condense(message)
        assert condensed.oid == message_content_hash(Message.from_dict(given_dict))
        if not condensed.payloads:
            assert condensed.raw == reference.canonical(given_dict)

    @given(message_dicts, message_dicts)
    def test_values_are_equal_exactly_when_their_ids_are(self, one, other):
        first, second = Message.from_dict(one), Message.from_dict(other)
        assert (first == second) == (message_content_hash(first) == message_content_hash(second))
        again = Message.from_dict(one)
        assert again == first and hash(again) == hash(first)

    @pytest.mark.parametrize("other", [1.0, True, "1", [1], {"a": 1}, None, 2])
    def test_one_in_arguments_is_told_from_everything_like_it(self, other):
        one, twin = (Message("a", [ToolCallPart("f", {"x": value})]) for value in (1, other))
        assert one != twin
        assert message_content_hash(one) != message_content_hash(twin)

    @given(message_dicts)
    def test_id_is_remembered_and_stays_the_same(self, given_dict):
        message = Message.from_dict(given_dict)
        assert message_content_hash(message) == message_content_hash(message) == encode(message)[1]
        assert message_content_hash(message, False) == sha256(reference.canonical(given_dict, False)).hexdigest()


class TestSurrogates:
    def test_lone_one_is_kept_as_its_lower_case_escape(self):
        assert canonical_message_json(Message.of("u", "a\udabcb")) == (
            rb'{"parts":[{"text":"a\udabcb","type":"text"}],"role":"u"}'
        )

    def test_halves_that_meet_are_joined(self):
        assert Message.of("u", "\ud83d" + "\ude00") == Message.of("u", "😀")

    def test_halves_in_the_wrong_order_stay_alone(self):
        assert rb"\ude00\ud83d" in canonical_message_json(Message.of("u", "\ude00\ud83d"))

    def test_escape_that_was_typed_is_another_text(self):
        assert message_content_hash(Message.of("u", "\\ud800")) != message_content_hash(Message.of("u", "\ud800"))

    def test_keys_that_become_the_same_are_refused(self):
        with pytest.raises(InvalidValue, match="the same key twice"):
            ToolCallPart("f", {"\ud83d\ude00": 1, "😀": 2})

    def test_keys_are_sorted_by_code_point_a_surrogate_by_its_own(self):
        call = ToolCallPart("f", {"\U00010000": 1, "\ue000": 2, "\ud800": 3, "z": 4})
        assert rb'{"z":4,"\ud800":3,' + '"\ue000":2,"\U00010000":1}'.encode() in call.canonical()


def stream_in_pieces(raw: bytes, sizes: list[int]) -> io.BufferedIOBase:
    class Stream(io.BytesIO):
        def read(self, size=-1, /):
            step = sizes[self.tell() % len(sizes)]
            return super().read(step if size is None or size < 0 else min(step, size))

    return Stream(raw)


def plainly_hashed(content: bytes) -> str:
    attachment = {"type": "a/b", "content": base64.b64encode(content).decode()}
    return reference.digest(
        reference.canonical({"role": "u", "parts": [{"type": "attachment", "attachment": attachment}]})
    )


class TestLargeAttachments:
    SIZES = [PAYLOAD_THRESHOLD_BYTES + step for step in (-1, 0, 1, 2)] + [
        CHUNK_BYTES * times + step for times in (1, 2) for step in (-2, -1, 0, 1, 2)
    ]

    @pytest.mark.parametrize("size", SIZES)
    def test_hash_made_piece_by_piece_is_the_plain_hash(self, size):
        content = bytes(range(256)) * (size // 256) + bytes(size % 256)
        message = Message("u", [AttachmentPart(Attachment("a/b", content=content))])
        assert message_content_hash(message) == plainly_hashed(content) == encode(message)[1]

    @pytest.mark.parametrize("size", SIZES)
    def test_hash_of_a_stream_is_the_plain_hash(self, size):
        content = b"\xff\x00\x7f\x80" * (size // 4) + b"\x01" * (size % 4)
        payload = sha256(content).hexdigest()
        stored = Attachment.stored("a/b", None, None, payload, lambda _: io.BytesIO(content))
        assert message_content_hash(Message("u", [AttachmentPart(stored)])) == plainly_hashed(content)

    @pytest.mark.parametrize("sizes", [[1], [2], [4], [1, 3, 3], [5, 1, 2, 7], [3]])
    def test_hash_of_a_stream_with_short_reads_is_the_plain_hash(self, sizes):
        content = bytes(range(251)) * 20
        opened = []

        def open_payload(_):
            opened.append(stream_in_pieces(content, sizes))
            return opened[-1]

        stored = Attachment.stored("a/b", None, None, sha256(content).hexdigest(), open_payload)
        assert message_content_hash(Message("u", [AttachmentPart(stored)])) == plainly_hashed(content)
        assert [stream.closed for stream in opened] == [True]

    @settings(max_examples=40)
    @given(
        st.lists(st.integers(0, PAYLOAD_THRESHOLD_BYTES + 2) | st.just(PAYLOAD_THRESHOLD_BYTES), max_size=3),
        texts,
        st.integers(0, 5000),
    )
    def test_condensed_and_rehydrated_it_is_the_same_message_with_the_same_id(self, sizes, words, threshold):
        attachments = [Attachment("a/b", path=words, content=bytes([n]) * size) for n, size in enumerate(sizes)]
        message = Message(
            "tool", [ToolResultPart("f", words, attachments=attachments), *map(AttachmentPart, attachments)]
        )
        condensed = condense(message, threshold)
        held = {payload: attachment.content for payload, attachment in condensed.payloads}
        assert all(sha256(content).hexdigest() == payload for payload, content in held.items())
        assert payload_ids(condensed.raw) == [payload for payload, _ in condensed.payloads]
        assert len(condensed.payloads) == 2 * sum(size >= max(threshold, 1) for size in sizes)

        back = read_message(condensed.raw, None, lambda payload: io.BytesIO(held[payload]))
        assert back == message
        assert message_content_hash(back) == condensed.oid == sha256(canonical_message_json(message)).hexdigest()
        assert canonical_message_json(back) == canonical_message_json(message)
        assert condense(back, threshold).raw == condensed.raw

    def test_hash_known_from_the_store_opens_no_payload(self):
        content = b"x" * 5000
        condensed = condense(Message("u", [AttachmentPart(Attachment("a/b", content=content))]))

        def refuse(_):
            raise AssertionError("opened")

        back = read_message(condensed.raw, condensed.oid, refuse)
        assert message_content_hash(back) == condensed.oid
        assert condense(back).raw == condensed.raw

    def test_equal_content_is_one_payload_id_and_is_named_each_time(self):
        attachment = Attachment(content=b"y" * 5000)
        condensed = condense(Message("u", [AttachmentPart(attachment), AttachmentPart(attachment)]))
        assert len({payload for payload, _ in condensed.payloads}) == 1
        assert len(payload_ids(condensed.raw)) == 2

    def test_text_that_looks_like_a_marker_is_left_alone(self):
        words = '"content":"\x00" {"payload":"x"}'
        message = Message(
            "u", [TextPart(words), AttachmentPart(Attachment("a/b", url=words, content=b"z" * 5000))]
        )
        assert message_content_hash(message) == sha256(canonical_message_json(message)).hexdigest()

    @pytest.mark.parametrize(
        "content",
        [
            {"payload": "x"},
            {"payload": "A" * 64},
            {"payload": None},
            {},
            {"payload": "0" * 64, "more": 1},
            5,
            ["x"],
            {"payload": sha256(b"").hexdigest()},
        ],
    )
    def test_condensed_content_that_names_no_payload_is_corrupt(self, content):
        raw = reference.dumps({"role": "u", "parts": [{"type": "attachment", "attachment": {"content": content}}]})
        with pytest.raises(CorruptObject):
            read_message(raw, None, lambda _: io.BytesIO(b""))

    def test_payload_slot_is_corrupt_where_no_payloads_can_be(self):
        raw = condense(Message("u", [AttachmentPart(Attachment(content=b"x" * 5000))])).raw
        with pytest.raises(CorruptObject):
            read_message(raw)
