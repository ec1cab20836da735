"""Times, arguments, attachments, notes, unknown parts."""

import pytest

from objstore.message import Message, TextPart, UnknownPart
from objstore.records import check_time
from objstore.transcripts.build import (
    arguments_of,
    attachment_of_base64,
    attachment_of_url,
    bytes_of,
    count_of,
    message_or_none,
    note_of,
    text_of,
    time_of,
    unknown_part,
)


class Warned(list):
    def __call__(self, kind, place, text):
        self.append((kind, place))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("2026-05-01T10:00:00.000Z", "2026-05-01T10:00:00.000Z"),
        ("2026-05-01T10:00:00.123456Z", "2026-05-01T10:00:00.123Z"),
        ("2026-05-01T10:00:00", "2026-05-01T10:00:00.000Z"),
        ("2026-05-01 10:00:00+02:00", "2026-05-01T08:00:00.000Z"),
        ("2026-05-01T10:00:00-0530", "2026-05-01T15:30:00.000Z"),
        ("2026-05-01T10:00", "2026-05-01T10:00:00.000Z"),
        ("2026-05-01", "2026-05-01T00:00:00.000Z"),
        ("2026-12-31T23:59:60Z", "2026-12-31T23:59:59.000Z"),
        (1714557600, "2024-05-01T10:00:00.000Z"),
        (1714557600.25, "2024-05-01T10:00:00.250Z"),
        (1714557600123, "2024-05-01T10:00:00.123Z"),
        (1714557600123456, "2024-05-01T10:00:00.123Z"),
        (1714557600123456789, "2024-05-01T10:00:00.123Z"),
        ("1714557600", "2024-05-01T10:00:00.000Z"),
    ],
)
def test_times_are_told_by_their_form_and_size(given, expected):
    assert time_of(given) == expected
    assert check_time(expected, "at") == expected


@pytest.mark.parametrize(
    "given",
    [
        *(None, "", 0, -1, True, [], {}, float("nan"), float("inf"), 1e300, 10**400, "9" * 400),
        *("soon", "2026-13-01", "2026-02-30T00:00:00.000Z", "0001-01-01T00:00:00+05:00"),
    ],
)
def test_what_is_no_time_is_unknown(given):
    assert time_of(given) is None


@pytest.mark.parametrize(
    ("given", "expected", "warned"),
    [
        ("", {}, False),
        (None, {}, False),
        ('{"a": 1}', {"a": 1}, False),
        ({"a": [1]}, {"a": [1]}, False),
        ('{"a": ', {"_raw": '{"a": '}, True),
        ("12", {"_raw": "12"}, True),
        ([1, "x"], {"_raw": '[1,"x"]'}, True),
        ('{"n": 18446744073709551617}', {"n": 2**64 + 1}, False),
        ('{"a":' * 1000, {"_raw": '{"a":' * 1000}, True),
    ],
)
def test_arguments_are_an_object_or_kept_as_their_text(given, expected, warned):
    warnings = Warned()
    assert arguments_of(given, warnings, "m1") == expected
    assert warnings == ([("invalid-arguments", "m1")] if warned else [])


@pytest.mark.parametrize("encoded", ["aGk/aGk+", "aGk_aGk-", "aGk/\naGk+", " aGk/aGk+ "])
def test_base64_is_read_however_it_is_written(encoded):
    assert bytes_of(encoded) == b"hi?hi>"


@pytest.mark.parametrize("encoded", ["not base64!", "a", None, 12, "ä"])
def test_what_is_no_base64_is_told_from_it(encoded):
    assert bytes_of(encoded) is None
    assert attachment_of_base64(encoded, "image/png") is None


def test_data_urls_become_bytes_and_other_urls_stay_references():
    held = attachment_of_url("data:image/png;charset=x;base64,aGk=")
    assert (held.type, held.content, held.url) == ("image/png", b"hi", None)
    for url in ("https://example.org/a.png", "data:image/png;base64,!!!", "data:text/plain,hello"):
        assert (attachment_of_url(url, "t").url, attachment_of_url(url).content) == (url, None)


def test_a_note_holds_what_is_there():
    note = note_of(a=1, b=None, c=False, d="", e=[], f={}, g=0, h=True, i=1.5)
    assert note == {"a": 1, "g": 0, "h": True, "i": 1.5}


def test_a_note_goes_without_what_it_cannot_hold():
    deep = []
    for _ in range(300):
        deep = [deep]
    assert note_of(a=deep, b=float("nan"), c="kept") == {"c": "kept"}


@pytest.mark.parametrize("value", [None, True, -1, 1.5, 2**63, "5", [5]])
def test_what_is_no_count_is_none(value):
    assert count_of(value) is None
    assert count_of(0) == 0


def test_unknown_blocks_are_kept_as_they_are_and_told():
    warnings = Warned()
    assert unknown_part({"type": "blob", "x": 1}, warnings, "m1") == UnknownPart({"type": "blob", "x": 1})
    assert unknown_part({"type": "text"}, warnings, "m1").to_dict() == {
        "type": "unknown",
        "value": {"type": "text"},
    }
    assert unknown_part([1], warnings, "m1").to_dict() == {"type": "unknown", "value": [1]}
    assert warnings == [("unknown-part", "m1")] * 3


def test_a_message_that_cannot_be_is_told():
    warnings = Warned()
    assert message_or_none("user", [TextPart("a")], warnings, "m1") == Message.of("user", "a")
    assert message_or_none("", [], warnings, "m2") is None
    assert message_or_none(None, [], warnings, "m3") is None
    assert warnings == [("invalid-message", "m2"), ("invalid-message", "m3")]


def test_text_of_anything_is_text():
    assert [text_of(each) for each in ("x", None, 1, {"a": "ä"})] == ["x", "", "1", '{"a":"ä"}']
