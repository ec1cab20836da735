"""Messages and parts: frozen, equal by content, and particular about what they take."""

from __future__ import annotations

import base64
import copy
import dataclasses
import enum
import itertools
import pickle
import sys
from collections import OrderedDict

import pytest
from hypothesis import given

from objstore.attachment import Attachment
from objstore.canonical import canonical_message_json, message_content_hash
from objstore.codec import decode, encode
from objstore.kinds import Kind
from objstore.limits import MAX_INT_DIGITS, MAX_NESTING
from objstore.message import (
    AttachmentPart,
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
)
from refs.errors import CorruptObject, InvalidValue
from tests import reference
from tests.strategies import careless_messages, message_dicts, messages, nested

WHOLE = Message(
    "assistant",
    [
        TextPart("a", {"k": [1, {"x": None}]}),
        ReasoningPart("b", True, 0, {"s": "t"}),
        ToolCallPart("f", {"x": [1, {"y": 2.5}]}, "id", True, {"m": 1}),
        ToolResultPart("f", "out", "id", True, "boom", [Attachment("a/b", "u", "p", b"raw")], {"m": 1}),
        AttachmentPart(Attachment(content=b"xyz")),
        UnknownPart({"type": "new", "list": [1, 2.5]}),
    ],
    {"id": [1, {"deep": True}]},
)


class TestDicts:
    @given(message_dicts)
    def test_to_dict_has_exactly_the_members_of_the_canonical_form(self, given_dict):
        plain = Message.from_dict(given_dict).to_dict()
        assert reference.dumps(plain) == reference.canonical(given_dict)

    @given(messages)
    def test_back_from_its_dict_it_is_equal(self, message):
        assert Message.from_dict(message.to_dict()) == message

    def test_dict_can_be_changed_without_touching_the_message(self):
        plain = WHOLE.to_dict()
        plain["provider_metadata"]["id"].append(2)
        plain["parts"][2]["arguments"]["x"][1]["y"] = 0
        plain["parts"][5]["list"].clear()
        assert plain != WHOLE.to_dict()
        assert Message.from_dict(WHOLE.to_dict()) == WHOLE

    @given(careless_messages)
    def test_anything_else_is_a_value_or_invalid_value_that_says_where(self, given_value):
        try:
            message = Message.from_dict(given_value)
        except InvalidValue as error:
            assert error.reason and error.path.split(".")[0].split("[")[0] in {
                "",
                "role",
                "parts",
                "provider_metadata",
            }
        else:
            assert decode(Kind.MESSAGE, encode(message)[2]) == message

    def test_place_of_an_error_deep_inside_is_told(self):
        parts = [{"type": "text", "text": ""}] * 3
        call = {"type": "tool_call", "name": "f", "arguments": {"a": {"b": float("nan")}}}
        with pytest.raises(InvalidValue) as caught:
            Message.from_dict({"role": "u", "parts": [*parts, call]})
        assert str(caught.value) == "parts[3].arguments.a.b: not a finite number"

    def test_place_in_an_unknown_part_is_told(self):
        with pytest.raises(InvalidValue) as caught:
            Message.from_dict({"role": "u", "parts": [{"type": "new", "a": [b""]}]})
        assert caught.value.path == "parts[0].a[0]"

    def test_parts_may_be_given_as_parts_or_from_a_generator(self):
        made = Message.from_dict(
            {"role": "u", "parts": (part for part in [TextPart("a"), {"type": "text", "text": "b"}])}
        )
        assert made == Message("u", (TextPart("a"), TextPart("b")))

    @pytest.mark.parametrize("value", [None, 5, "text", b"{}", [], [("role", "u")], {"role", "parts"}])
    def test_message_that_is_no_object_is_refused(self, value):
        with pytest.raises(InvalidValue):
            Message.from_dict(value)

    def test_list_that_holds_itself_is_refused(self):
        loop: list = []
        loop.append(loop)
        for value in ({"role": "u", "parts": loop}, {"role": "u", "parts": [], "provider_metadata": {"a": loop}}):
            with pytest.raises(InvalidValue):
                Message.from_dict(value)

    def test_text_and_number_subclasses_become_plain(self):
        class Role(str, enum.Enum):  # noqa: UP042 - its str() is its name, not its text
            USER = "user"
            TEXT = "text"

        class Count(enum.IntEnum):
            THREE = 3

        parts = (ReasoningPart("x", token_count=Count.THREE), {"type": Role.TEXT, "text": Role.USER})
        message = Message.from_dict(OrderedDict(role=Role.USER, parts=parts))
        assert canonical_message_json(message) == (
            b'{"parts":[{"text":"x","token_count":3,"type":"reasoning"},{"text":"user","type":"text"}],"role":"user"}'
        )
        assert [type(message.role), type(message.parts[0].token_count)] == [str, int]


class TestConstructors:
    @pytest.mark.parametrize("make, path", [
        (lambda: Message(""), "role"),
        (lambda: Message(None), "role"),
        (lambda: Message(b"user"), "role"),
        (lambda: Message("u", None), "parts"),
        (lambda: Message("u", "text"), "parts"),
        (lambda: Message("u", {"a": 1}), "parts"),
        (lambda: Message("u", 7), "parts"),
        (lambda: Message("u", {TextPart("a"), TextPart("b")}), "parts"),
        (lambda: Message("u", ["x"]), "parts[0]"),
        (lambda: Message("u", [TextPart("a"), {"type": "text", "text": "b"}]), "parts[1]"),
        (lambda: Message("u", [Part()]), "parts[0]"),
        (lambda: Message("u", [], []), "provider_metadata"),
        (lambda: Message("u", [], {"a": 1.0}), "provider_metadata.a"),
        (lambda: TextPart(None), "text"),
        (lambda: TextPart("x", {"a": [0.5]}), "provider_metadata.a[0]"),
        (lambda: ReasoningPart("x", redacted="yes"), "redacted"),
        (lambda: ReasoningPart("x", token_count=1.5), "token_count"),
        (lambda: ReasoningPart("x", token_count=False), "token_count"),
        (lambda: ReasoningPart("x", token_count=10**MAX_INT_DIGITS), "token_count"),
        (lambda: ToolCallPart(None), "name"),
        (lambda: ToolCallPart("f", None), "arguments"),
        (lambda: ToolCallPart("f", []), "arguments"),
        (lambda: ToolCallPart("f", "{}"), "arguments"),
        (lambda: ToolCallPart("f", {"a": float("inf")}), "arguments.a"),
        (lambda: ToolCallPart("f", {}, 5), "tool_call_id"),
        (lambda: ToolCallPart("f", {}, None, 1), "server_executed"),
        (lambda: ToolResultPart("f", None), "output"),
        (lambda: ToolResultPart("f", {}), "output"),
        (lambda: ToolResultPart("f", "", exception=ValueError("x")), "exception"),
        (lambda: ToolResultPart("f", "", attachments=None), "attachments"),
        (lambda: ToolResultPart("f", "", attachments=[b"x"]), "attachments[0]"),
        (lambda: AttachmentPart(b"x"), "attachment"),
        (lambda: AttachmentPart({"url": "x"}), "attachment"),
        (lambda: Attachment(content="text"), "content"),
        (lambda: Attachment(type=5), "type"),
        (lambda: Attachment(url=b"x"), "url"),
        (lambda: UnknownPart([]), ""),
        (lambda: UnknownPart({"type": "text", "text": "x"}), "type"),
        (lambda: UnknownPart({"a": {1: 2}}), "a"),
        (lambda: UnknownPart({"provider_metadata": {"a": 0.5}}), "provider_metadata.a"),
    ])  # fmt: skip
    def test_bad_value_is_refused_with_its_place(self, make, path):
        with pytest.raises(InvalidValue) as caught:
            make()
        assert caught.value.path == path

    def test_missing_and_empty_metadata_are_the_same(self):
        values = [Message("u", [TextPart("x", meta)], meta) for meta in ({}, None, OrderedDict())]
        assert len({message_content_hash(value) for value in values}) == 1
        assert values[0] == values[1] == values[2]

    def test_empty_and_missing_attachment_fields_are_the_same(self):
        assert Attachment("", "", "", b"") == Attachment()
        assert not Attachment(content=b"").has_content

    def test_bytes_like_content_is_copied(self):
        buffer = bytearray(b"abc")
        attachment = Attachment(content=buffer)
        buffer[0] = 0
        assert attachment.content == Attachment(content=memoryview(b"abc")).content == b"abc"

    def test_text_is_that_of_the_text_parts(self):
        assert Message("u", [TextPart("a"), ReasoningPart("no"), TextPart("b")]).text == "ab"
        assert Message.of("u", "ab") == Message("u", [TextPart("ab")])

    def test_text_and_reasoning_of_the_same_words_differ(self):
        assert TextPart("x") != ReasoningPart("x")
        assert TextPart("x") != "x"
        assert Message.of("u", "x") != "x"


VALUES = [WHOLE, *WHOLE.parts, WHOLE.parts[3].attachments[0]]


class TestImmutability:
    @pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
    def test_no_attribute_can_be_set_deleted_or_added(self, value):
        names = getattr(value, "__dataclass_fields__", {"type": None, "content": None, "payload": None})
        for name in [*names, "another"]:
            with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
                setattr(value, name, "x")
            with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
                delattr(value, name)

    def test_lists_and_dicts_inside_are_frozen(self):
        assert isinstance(WHOLE.parts, tuple)
        assert isinstance(WHOLE.parts[3].attachments, tuple)
        for change in (
            lambda: WHOLE.provider_metadata["id"].append(1),
            lambda: WHOLE.parts[2].arguments.update(z=1),
            lambda: WHOLE.parts[2].arguments["x"][1].clear(),
            lambda: WHOLE.parts[5].value["list"].pop(),
        ):
            with pytest.raises(TypeError):
                change()

    def test_given_lists_and_dicts_are_copied(self):
        arguments, parts = {"a": [1]}, [TextPart("x")]
        call, message = ToolCallPart("f", arguments), Message("u", parts)
        arguments["a"].append(2)
        parts.append(TextPart("y"))
        assert (call.arguments, message.parts) == ({"a": [1]}, (TextPart("x"),))

    @pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
    def test_copies_and_pickles_are_equal(self, value):
        for other in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
            assert other == value and hash(other) == hash(value)

    @given(messages)
    def test_copies_keep_the_id(self, message):
        for other in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
            assert other == message
            assert message_content_hash(other) == message_content_hash(message)

    def test_replaced_field_gives_another_id(self):
        first = message_content_hash(WHOLE)
        assert message_content_hash(dataclasses.replace(WHOLE, role="user")) != first

    def test_attachment_shows_no_content_in_its_repr(self):
        assert "secret" not in repr(Attachment("a/b", content=b"secret" * 10))


def at_depth(place: str, levels: int) -> dict:
    """A message whose JSON is `levels` deep, with the depth in `place`."""
    outside = {"metadata": 1, "part metadata": 3, "arguments": 3, "unknown": 2}[place]
    inner = {"k": nested(levels - outside - 1, "x")}
    part = {
        "metadata": None,
        "part metadata": {"type": "text", "text": "", "provider_metadata": inner},
        "arguments": {"type": "tool_call", "name": "f", "arguments": inner},
        "unknown": inner,
    }[place]
    return {"role": "u", "parts": [part] if part else [], "provider_metadata": None if part else inner}


@pytest.mark.parametrize("place", ["metadata", "part metadata", "arguments", "unknown"])
class TestNesting:
    def test_of_128_levels_is_taken_by_constructor_and_decoder(self, place):
        given_dict = at_depth(place, MAX_NESTING)
        message = Message.from_dict(given_dict)
        assert decode(Kind.MESSAGE, encode(message)[2]) == message

    def test_of_129_levels_is_refused_by_constructor_and_decoder(self, place):
        given_dict = at_depth(place, MAX_NESTING + 1)
        with pytest.raises(InvalidValue, match="nested more than 128"):
            Message.from_dict(given_dict)
        with pytest.raises(CorruptObject, match="nested more than 128"):
            decode(Kind.MESSAGE, reference.canonical(given_dict))

    def test_is_counted_from_the_message_when_a_part_is_made_alone(self, place):
        inner = at_depth(place, MAX_NESTING + 1)
        makers = {
            "metadata": lambda: Message("u", [], inner["provider_metadata"]),
            "part metadata": lambda: TextPart("", inner["parts"][0]["provider_metadata"]),
            "arguments": lambda: ToolCallPart("f", inner["parts"][0]["arguments"]),
            "unknown": lambda: UnknownPart(inner["parts"][0]),
        }
        with pytest.raises(InvalidValue, match="nested more than 128"):
            makers[place]()


class TestHugeIntegers:
    @pytest.mark.parametrize("place", ["arguments", "metadata", "token_count"])
    def test_of_4300_digits_round_trip(self, place):
        number = 10**MAX_INT_DIGITS - 1
        message = {
            "arguments": Message("u", [ToolCallPart("f", {"n": number})]),
            "metadata": Message("u", [], {"n": -number}),
            "token_count": Message("u", [ReasoningPart("", token_count=number)]),
        }[place]
        assert decode(Kind.MESSAGE, encode(message)[2]) == message

    def test_under_a_lowered_digit_limit_they_are_invalid_not_a_crash(self):
        message = Message("u", [ReasoningPart("", token_count=10**700)], {"n": 10**700})
        raw = canonical_message_json(message)
        before = sys.get_int_max_str_digits()
        sys.set_int_max_str_digits(640)
        try:
            with pytest.raises(InvalidValue):
                ReasoningPart("", token_count=10**700)
            with pytest.raises(InvalidValue):
                canonical_message_json(message)
            with pytest.raises(CorruptObject):
                decode(Kind.MESSAGE, raw)
        finally:
            sys.set_int_max_str_digits(before)


class TestBase64:
    def test_every_short_text_is_taken_only_when_it_is_the_one_text_of_its_bytes(self):
        letters = "AQgw/-=\n "
        for length in range(6):
            for letters_ in itertools.product(letters, repeat=length):
                encoded = "".join(letters_)
                try:
                    content = Attachment.from_dict({"content": encoded}).content or b""
                except InvalidValue:
                    continue
                assert base64.b64encode(content).decode() == encoded

    @pytest.mark.parametrize("size", range(8))
    def test_bytes_of_every_size_come_back(self, size):
        content = bytes(range(250, 250 + min(size, 6))) + bytes(max(size - 6, 0))
        encoded = base64.b64encode(content).decode()
        assert Attachment.from_dict({"content": encoded}) == Attachment(content=content)

    @pytest.mark.parametrize("encoded", ["é===", "AAA\ud800", "AA==AA==", "=AAA", "A===", "AA=A"])
    def test_anything_else_is_refused(self, encoded):
        with pytest.raises(InvalidValue):
            Attachment.from_dict({"content": encoded})


class TestUnknownParts:
    def test_are_kept_as_their_json(self):
        value = {"type": "video", "b": [1.5, None], "a": {"z": 1, "y": 2}}
        assert UnknownPart(value).canonical() == b'{"a":{"y":2,"z":1},"b":[1.5,null],"type":"video"}'

    @pytest.mark.parametrize("kind", ["Text", "tool", "", "text ", None, 5, ["text"], {"text": 1}])
    def test_are_all_types_but_the_five(self, kind):
        part = Part.from_dict({"type": kind, "text": "x"})
        assert isinstance(part, UnknownPart)
        assert decode(Kind.MESSAGE, encode(Message("u", [part]))[2]) == Message("u", [part])

    def test_lose_their_provider_metadata_only_where_that_is_asked(self):
        part = UnknownPart({"type": "new", "provider_metadata": {"a": 1}})
        assert part.canonical() == b'{"provider_metadata":{"a":1},"type":"new"}'
        assert part.canonical(metadata=False) == b'{"type":"new"}'
