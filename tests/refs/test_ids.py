"""Ids: parsing stands between text from outside and the file system."""

import pytest

from refs.errors import InvalidId
from refs.ids import MIN_PREFIX_DIGITS, ROOT, abbreviate, is_oid, is_prefix, parse_oid, parse_parent

OID = "0123456789abcdef" * 4


def test_an_id_is_64_lower_case_hex_digits():
    assert parse_oid(OID) == OID
    assert is_oid(OID)


@pytest.mark.parametrize(
    "text",
    [
        "",
        OID[:-1],
        OID + "0",
        OID.upper(),
        OID[:-1] + "g",
        OID + "\n",
        " " + OID[1:],
        "٠" * 64,  # digits, but not ASCII ones
        "../" + OID[3:],
        "root",
        None,
        7,
        OID.encode(),
    ],
)
def test_anything_else_is_no_id(text):
    assert not is_oid(text)
    with pytest.raises(InvalidId):
        parse_oid(text)


def test_the_error_shows_no_more_than_a_line_of_a_long_text():
    with pytest.raises(InvalidId) as caught:
        parse_oid("x" * 10_000)
    assert len(str(caught.value)) < 200


def test_a_parent_is_an_id_or_root():
    assert parse_parent("root") == ROOT
    assert parse_parent(OID) == OID
    with pytest.raises(InvalidId):
        parse_parent("Root")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OID, True),
        (OID[:MIN_PREFIX_DIGITS], True),
        (OID[: MIN_PREFIX_DIGITS - 1], False),
        (OID + "0", False),
        ("ABCD", False),
        ("abcd\n", False),
        ("", False),
    ],
)
def test_a_prefix_is_4_to_64_digits(text, expected):
    assert is_prefix(text) is expected


def test_abbreviation_keeps_root_whole():
    assert abbreviate(OID) == OID[:8]
    assert abbreviate(OID, 12) == OID[:12]
    assert abbreviate(ROOT, 2) == "root"
