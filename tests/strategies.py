"""Everything that can be said, for hypothesis: JSON of messages and of its pieces."""

from __future__ import annotations

import base64

from hypothesis import strategies as st

from objstore.message import Message
from tests.reference import ALWAYS, join_surrogates

# Surrogate halves alone and ready to meet, controls, what JSON escapes and what it need not, and U+FEFF.
ODD_TEXT = [
    "\ud83d",
    "\ude00",
    "\ud800",
    "\udfff",
    "\x00",
    "\x1f",
    "\x7f",
    "\u2028",
    "\ufeff",
    "\\ud83d",
    '"',
    "\\",
    "/",
]
ODD_INTEGERS = [sign * (1 << bits) + step for sign in (1, -1) for bits in (53, 63, 64) for step in (-1, 0, 1)]
LARGEST_INTEGER = 10**4300 - 1
ODD_FLOATS = [
    0.0,
    -0.0,
    1.0,
    1e-7,
    1e-5,
    1e-4,
    1e15,
    1e16,
    1e22,
    1e300,
    5e-324,
    float(1 << 63),
    float(1 << 64),
    0.1,
]

any_character = st.integers(0, 0x10FFFF).map(chr)
texts = st.lists(st.text(max_size=8) | any_character | st.sampled_from(ODD_TEXT), max_size=6).map("".join)
integers = (
    st.integers()
    | st.sampled_from(ODD_INTEGERS)
    | st.sampled_from([1, -1]).map(lambda sign: sign * LARGEST_INTEGER)
    | st.integers(300, 900).map(lambda digits: -(10**digits) + 7)
)
floats = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(ODD_FLOATS)
scalars = st.none() | st.booleans() | integers | texts


def objects(values, max_size=4):
    """Objects whose keys stay different when surrogate halves are joined."""
    items = st.lists(st.tuples(texts, values), max_size=max_size, unique_by=lambda item: join_surrogates(item[0]))
    return items.map(dict)


def nested(levels: int, inside):
    for level in range(levels):
        inside = [inside] if level % 2 else {"k": inside}
    return inside


def json_values(leaves):
    small = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4) | objects(inner), max_leaves=8)
    wide = st.integers(0, 400).map(lambda size: list(range(size)))
    return small | wide | st.builds(nested, st.integers(0, 110), leaves)


exact_json = json_values(scalars)  # no floats: provider_metadata
any_json = json_values(scalars | floats)
metadata = st.none() | st.just({}) | objects(exact_json, max_size=3)
contents = st.binary(max_size=40) | st.integers(4090, 4100).map(bytes)
attachment_dicts = st.fixed_dictionaries(
    {},
    optional={
        "type": st.none() | texts,
        "url": st.none() | texts,
        "path": st.none() | texts,
        "content": st.none() | contents.map(lambda raw: base64.b64encode(raw).decode()),
    },
)
ids = st.none() | texts
flags = st.sampled_from([None, False, True])

part_dicts = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": texts}, optional={"provider_metadata": metadata}),
    st.fixed_dictionaries(
        {"type": st.just("reasoning"), "text": texts},
        optional={"redacted": flags, "token_count": st.none() | integers, "provider_metadata": metadata},
    ),
    st.fixed_dictionaries(
        {"type": st.just("tool_call"), "name": texts, "arguments": objects(any_json)},
        optional={"tool_call_id": ids, "server_executed": flags, "provider_metadata": metadata},
    ),
    st.fixed_dictionaries(
        {"type": st.just("tool_result"), "name": texts, "output": texts},
        optional={
            "tool_call_id": ids,
            "server_executed": flags,
            "exception": ids,
            "attachments": st.none() | st.lists(attachment_dicts, max_size=3),
            "provider_metadata": metadata,
        },
    ),
    st.fixed_dictionaries({"type": st.just("attachment")}, optional={"attachment": st.none() | attachment_dicts}),
    st.builds(
        lambda members, kind: {**members, "type": kind},
        objects(any_json),
        any_json.filter(lambda kind: not isinstance(kind, str) or kind not in ALWAYS),
    ).filter(lambda part: "provider_metadata" not in part),
)
message_dicts = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant"]) | texts.filter(bool),
        "parts": st.lists(part_dicts, max_size=4),
    },
    optional={"provider_metadata": metadata},
)
messages = message_dicts.map(Message.from_dict)

# What a careless caller may hand over: JSON-like, but with things inside that no JSON has.
not_json = st.one_of(
    st.binary(max_size=4),
    st.sampled_from(
        [float("nan"), float("inf"), 1 + 2j, object(), {1, 2}, {1: "x"}, {None: 1}, b"", bytearray(b"x")]
    ),
    st.sampled_from([range(3), (), (1, "x")]),
)
careless_json = st.recursive(
    scalars | floats | not_json,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(
            texts | st.sampled_from(["type", "text", "parts", "role"]) | st.integers(), inner, max_size=4
        )
    ),
    max_leaves=8,
)
careless_parts = st.builds(
    lambda part, key, value: {**part, key: value},
    part_dicts,
    st.sampled_from(
        ["type", "text", "name", "output", "arguments", "attachment", "attachments", "provider_metadata"]
    ),
    careless_json,
)
careless_messages = careless_json | st.fixed_dictionaries(
    {},
    optional={
        "role": texts | careless_json,
        "parts": careless_json | st.lists(careless_parts | careless_json, max_size=3),
        "provider_metadata": careless_json,
    },
)
