"""MessagePack, as far as it has to be read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from objstore.transcripts.msgpack import Ext, unpack
from refs.errors import InvalidValue


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("c0", None),
        ("c2", False),
        ("c3", True),
        ("07", 7),
        ("ff", -1),
        ("cc80", 128),
        ("cd0100", 256),
        ("ce00010000", 65536),
        ("cf0000000100000000", 1 << 32),
        ("d080", -128),
        ("d3ffffffffffffffff", -1),
        ("cb3ff8000000000000", 1.5),
        ("ca3fc00000", 1.5),
        ("a3616263", "abc"),
        ("d903c3a962", "éb"),
        ("c4020102", b"\x01\x02"),
        ("93010203", [1, 2, 3]),
        ("dc000201c0", [1, None]),
        ("82a16101a16290", {"a": 1, "b": []}),
        ("de0001a16102", {"a": 2}),
        ("810507", {"5": 7}),
        ("d4052a", Ext(5, b"*")),
        ("c7020501ff", Ext(5, b"\x01\xff")),
        ("a3eda0bd", "\ud83d"),
        ("a1ff", "�"),
    ],
)
def test_values(data, value):
    assert unpack(bytes.fromhex(data)) == value


@pytest.mark.parametrize(
    "data",
    ["", "c1", "a3", "a36162", "dd7fffffff", "df7fffffff00", "93", "9301", "81", "c7ff05", "0101", "8190c0"],
)
def test_what_is_cut_or_claims_too_much_is_refused(data):
    with pytest.raises(InvalidValue):
        unpack(bytes.fromhex(data))


def test_a_million_levels_are_refused_without_recursion():
    with pytest.raises(InvalidValue, match="nested"):
        unpack(b"\x91" * 1_000_000)


@given(st.binary(max_size=64))
def test_any_bytes_give_a_value_or_the_one_error(data):
    try:
        unpack(data)
    except InvalidValue as error:
        assert error.reason
