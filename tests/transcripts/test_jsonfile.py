"""JSON documents: whole, and element by element."""

import json
import tracemalloc

import pytest

from objstore.transcripts import jsonfile
from objstore.transcripts.files import BytesFile
from objstore.transcripts.jsonfile import ArrayReader, read_json

VALUES = [{"id": 1, "text": "} ] ,"}, [], "x", 12.5, None, {"a": {"b": ["\u00e4\U0001f600"]}}, -3]


def elements(data, names=()):
    warnings = []
    reader = ArrayReader(BytesFile("x", data), lambda kind, place, text: warnings.append((kind, place)), names)
    return [element.value for element in reader], warnings, reader


def whole(data):
    warnings = []
    value = read_json(BytesFile("x", data), lambda kind, place, text: warnings.append(kind))
    return value, warnings


@pytest.mark.parametrize("indent", [None, 2])
def test_a_top_level_array_comes_element_by_element(indent):
    values, warnings, reader = elements(json.dumps(VALUES, indent=indent).encode())
    assert (values, warnings, reader.found) == (VALUES, [], True)


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64])
def test_it_does_not_matter_where_the_file_is_cut_into_chunks(monkeypatch, chunk):
    monkeypatch.setattr(jsonfile, "_CHUNK_BYTES", chunk)
    data = b"\xef\xbb\xbf" + json.dumps({"a": 1, "list": VALUES, "z": "end"}, ensure_ascii=False).encode()
    values, warnings, reader = elements(data, ("list",))
    assert (values, warnings) == (VALUES, [])
    assert reader.members == {"a": 1, "z": "end"}


def test_the_members_beside_a_named_array_are_kept():
    values, _, reader = elements(b'{"a": [1], "items": [2, 3], "z": {"b": 1}, "items2": []}', ("items", "z"))
    assert values == [2, 3]
    assert reader.found and reader.is_object
    assert reader.members == {"a": [1], "z": {"b": 1}, "items2": []}


def test_a_document_without_the_array_gives_its_members():
    values, warnings, reader = elements(b'{"id": 5, "items": null}', ("items",))
    assert (values, warnings, reader.found) == ([], [], False)
    assert reader.members == {"id": 5, "items": None}


@pytest.mark.parametrize("data", [b"[]", b" [ ] ", b"{}", b'{"items": []}'])
def test_empty_documents_are_no_damage(data):
    assert elements(data, ("items",))[:2] == ([], [])


@pytest.mark.parametrize("cut", range(2, len(json.dumps(VALUES))))
def test_a_cut_array_gives_the_elements_before_the_cut(cut):
    values, warnings, _ = elements(json.dumps(VALUES).encode()[:cut])
    assert values == VALUES[: len(values)] or values[:-1] == VALUES[: len(values) - 1]
    assert warnings == [("torn-document", "x")]


def test_damage_in_the_middle_ends_the_reading_and_is_told():
    values, warnings, _ = elements(b'[{"a": 1}, {"b": oops}, {"c": 3}' + b" " * 100 + b"]")
    assert (values, warnings) == ([{"a": 1}], [("torn-document", "x")])


@pytest.mark.parametrize("data", [b"", b"not json", b'"text"', b"\0\0\0\0"])
def test_what_is_no_document_is_told(data):
    assert elements(data)[:2] == ([], [("torn-document", "x")])
    assert whole(data) in ((None, ["torn-document"]), ("text", []))


def test_documents_in_utf16_are_read_as_windows_shells_write_them():
    text = json.dumps(VALUES, ensure_ascii=False)
    for encoding in ("utf-16", "utf-16-be"):
        data = text.encode(encoding) if encoding == "utf-16" else b"\xfe\xff" + text.encode(encoding)
        assert elements(data)[:2] == (VALUES, [])
        assert whole(data) == (VALUES, [])


def test_half_a_surrogate_pair_and_bad_numbers_are_kept_and_told():
    data = b'[{"a": "\\ud83d"}, {"b": NaN}, {"c": "\\ud83d\\ude00"}]'
    values, warnings, _ = elements(data)
    assert values == [{"a": "\ud83d"}, {"b": "NaN"}, {"c": "\U0001f600"}]
    assert warnings == [("lone-surrogate", "element 0"), ("non-finite-number", "element 1")]
    value, warnings = whole(data)
    assert value == values
    assert sorted(warnings) == ["lone-surrogate", "non-finite-number"]


def test_damaged_utf8_becomes_the_replacement_character():
    assert elements(b'["a\xffb", "c"]')[:2] == (["a\ufffdb", "c"], [("invalid-utf8", "x")])
    assert whole(b'["a\xffb"]') == (["a\ufffdb"], ["invalid-utf8"])


def test_large_integers_stay_exact():
    number = 2**64 + 1
    assert elements(b"[%d]" % number)[0] == [number]
    assert whole(b"[%d]" % number)[0] == [number]


@pytest.mark.parametrize("deep", [b"[" * 1_000_000, b'{"a":' * 1_000_000, b"[" + b"[" * 500 + b"]" * 500 + b"]"])
def test_deep_nesting_is_refused(deep):
    values, warnings, _ = elements(deep)
    assert values in ([], [None])
    assert warnings[0][0] in ("torn-document", "record-too-deep")
    assert whole(deep) == (None, ["torn-document"])


def test_an_element_beyond_the_bound_ends_the_reading(monkeypatch):
    monkeypatch.setattr(jsonfile, "MAX_RECORD_BYTES", 1000)
    monkeypatch.setattr(jsonfile, "_CHUNK_BYTES", 100)
    values, warnings, _ = elements(json.dumps(["a", "b" * 5000, "c"]).encode())
    assert (values, warnings) == (["a"], [("torn-document", "x")])


def test_a_document_beyond_the_bound_is_not_read_as_a_whole(monkeypatch):
    monkeypatch.setattr(jsonfile, "MAX_DOCUMENT_BYTES", 100)
    assert whole(b"[" + b" " * 100 + b"]") == (None, ["document-too-long"])


def test_memory_does_not_grow_with_the_array():
    element = json.dumps({"text": "x" * 10_000}).encode()

    def peak(count):
        data = b"[" + b",".join([element] * count) + b"]"
        tracemalloc.start()
        for _ in ArrayReader(BytesFile("x", data), lambda *_: None):
            pass
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(1000) < 1.5 * peak(200)
