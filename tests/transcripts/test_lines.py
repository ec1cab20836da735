"""JSON Lines that were cut, glued, padded."""

import json

import pytest

from objstore.transcripts import lines
from objstore.transcripts.files import BytesFile
from objstore.transcripts.lines import read_again, read_records


def read(data):
    """(values, warnings as (kind, place))"""
    warnings = []
    records = list(read_records(BytesFile("x", data), lambda kind, place, text: warnings.append((kind, place))))
    return [record.value for record in records], warnings


A, B, C = ({"uuid": name, "text": "} { [ " + name} for name in "abc")


def dump(*values):
    return b"".join(json.dumps(value).encode() for value in values)


def test_lines_are_read_in_order_with_their_places():
    data = dump(A) + b"\n\n" + dump(B) + b"\n"
    records = list(read_records(BytesFile("x", data), lambda *_: None))
    assert [(record.line, record.offset, record.value) for record in records] == [
        (1, 0, A),
        (3, len(dump(A)) + 2, B),
    ]


def test_byte_order_mark_line_ends_and_blank_lines_are_no_damage():
    assert read(b"\xef\xbb\xbf" + dump(A) + b"\r\n\r\n  \r\n" + dump(B)) == ([A, B], [])


def test_a_byte_order_mark_inside_a_string_is_kept():
    assert read('{"a": "\ufeffx"}\n'.encode()) == ([{"a": "\ufeffx"}], [])


@pytest.mark.parametrize("nuls", [1, 256, 100_000])
def test_nul_padding_is_skipped_and_counted(nuls):
    assert read(dump(A) + b"\n" + b"\0" * nuls + b"\n" + dump(B)) == ([A, B], [("nul-padding", "line 2")])


def test_records_on_both_sides_of_nul_padding_are_read():
    assert read(dump(A) + b"\0" * 9 + dump(B) + b"\n") == ([A, B], [("nul-padding", "line 1")])


def test_glued_records_are_taken_apart():
    assert read(dump(A, B, C) + b"\n" + dump(A)) == ([A, B, C, A], [("glued-records", "line 1")])


def test_glued_records_may_have_spaces_between_them():
    assert read(dump(A) + b"  " + dump(B)) == ([A, B], [("glued-records", "line 1")])


@pytest.mark.parametrize("cut", range(1, len(dump(A, B)) - len(dump(B))))
def test_a_whole_record_after_a_torn_one_is_read_wherever_that_was_cut(cut):
    values, warnings = read(dump(A)[:cut] + dump(B) + b"\n" + dump(C))
    assert values == [B, C]
    assert warnings == [("torn-record", "line 1")]


@pytest.mark.parametrize("cut", range(1, len(dump(A))))
def test_a_cut_last_line_is_told(cut):
    assert read(dump(B) + b"\n" + dump(A)[:cut]) == ([B], [("torn-record", "line 2")])


def test_a_member_of_a_torn_record_is_no_record():
    assert read(b'{"a": 1, "message": {"role": "user", "content": "x"}\n') == ([], [("torn-record", "line 1")])
    assert read(b'{"messages": [{"role": "user"}, {"role": "x"}') == ([], [("torn-record", "line 1")])


def test_text_that_is_no_record_is_told_and_the_rest_is_read():
    assert read(b"not json\n12\n" + dump(A)) == ([A], [("torn-record", "line 1"), ("torn-record", "line 2")])


def test_half_a_surrogate_pair_is_kept_and_told_once_a_record():
    values, warnings = read(b'{"a": "\\ud83d x", "b": "\\udc00"}\n{"a": "\\ud83d\\ude00"}\n{"a": "\\\\ud83d"}\n')
    assert values == [{"a": "\ud83d x", "b": "\udc00"}, {"a": "\U0001f600"}, {"a": "\\ud83d"}]
    assert warnings == [("lone-surrogate", "line 1")]


def test_damaged_utf8_becomes_the_replacement_character():
    assert read(b'{"a": "\xff"}') == ([{"a": "\ufffd"}], [("invalid-utf8", "line 1")])


def test_numbers_that_json_does_not_have_are_kept_as_text():
    assert read(b'{"a": NaN, "b": -Infinity}') == (
        [{"a": "NaN", "b": "-Infinity"}],
        [("non-finite-number", "line 1")],
    )


@pytest.mark.parametrize("number", [2**64, 2**64 + 1, -(2**63) - 1, 10**40])
def test_large_integers_stay_exact(number):
    values, _ = read(b'{"a": %d}' % number)
    assert values == [{"a": number}]
    assert type(values[0]["a"]) is int


@pytest.mark.parametrize("deep", [b'{"a":' * 1_000_000, b"[" * 1_000_000, b'{"a":' * 200 + b"1" + b"}" * 200])
def test_deep_nesting_is_refused_and_the_rest_is_read(deep):
    values, warnings = read(deep + b"\n" + dump(A))
    assert values == [A]
    assert warnings == [("record-too-deep", "line 1")]


def test_a_line_beyond_the_bound_is_skipped(monkeypatch):
    monkeypatch.setattr(lines, "MAX_RECORD_BYTES", 100)
    assert read(dump({"a": "x" * 500}) + b"\n" + dump(A)) == ([A], [("record-too-long", "line 1")])
    assert read(dump(A) + b"\n" + dump({"a": "x" * 500})) == ([A], [("record-too-long", "line 2")])


def test_a_file_of_another_kind_gives_no_endless_list_of_warnings():
    _, warnings = read(b"no json\n" * 5000)
    assert len(warnings) == 1000


def test_a_line_of_many_torn_records_takes_bounded_work():
    values, warnings = read(b'{"a": ' * 100 + b"\n" + b'{"a"' * 100_000 + b"\n" + dump(B))
    assert values == [B]
    assert {kind for kind, _ in warnings} <= {"torn-record", "record-too-deep"}


def test_records_are_read_again_from_where_they_are():
    file = BytesFile("x", dump(A) + b"\n" + dump(B, C) + b"\n")
    with file.open() as stream:
        for record in read_records(file, lambda *_: None):
            assert read_again(stream, record.offset, record.index) == record.value
