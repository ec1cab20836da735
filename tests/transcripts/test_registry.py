"""Formats are told by content, whatever the files are called and whatever lies beside them."""

import io
import json
import zipfile

import pytest

from objstore.transcripts import registry
from objstore.transcripts.files import BytesFile, BytesSource, FolderSource
from objstore.transcripts.model import Certainty, Skipped
from objstore.transcripts.peek import START_BYTES, start_of, values_in

CODE = json.dumps({"type": "user", "uuid": "u", "sessionId": "s", "message": {"content": "hi"}}).encode() + b"\n"
ROLLOUT = json.dumps({"type": "session_meta", "payload": {"id": "c"}}).encode() + b"\n"


def found(source):
    made = registry.detect(source)
    return {each.format: [file.name for file in each.source.files()] for each in made.found}


@pytest.mark.parametrize("format", registry.formats())
def test_every_registered_format_has_a_reader_of_its_name(format):
    reader = registry.reader(format)
    assert format == reader.FORMAT
    assert reader.sniff(b"", "x.json") is Certainty.NO
    assert list(reader.read(BytesSource({}))) == []


def test_an_unknown_format_is_a_key_error():
    with pytest.raises(KeyError):
        registry.reader("../evil")


def test_files_are_sorted_by_what_they_hold_and_not_by_their_names():
    source = BytesSource({"a.txt": CODE, "b.json": ROLLOUT, "c": CODE, "image.png": b"\x89PNG", "empty": b""})
    assert found(source) == {"claude-code": ["a.txt", "c"], "codex": ["b.json"]}
    assert [file.name for file in registry.detect(source).unknown] == ["empty", "image.png"]


def test_archives_in_a_folder_are_looked_into(tmp_path):
    with zipfile.ZipFile(tmp_path / "logs.zip", "w") as made:
        made.writestr("one.jsonl", CODE)
        made.writestr("../out.jsonl", CODE)
    (tmp_path / "two.jsonl").write_bytes(ROLLOUT)
    detection = registry.detect(FolderSource(tmp_path))
    assert {each.format for each in detection.found} == {"claude-code", "codex"}
    assert [skipped.kind for skipped in detection.skipped] == ["unsafe-name"]


def test_archives_in_archives_are_not_looked_into():
    inner, outer = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(inner, "w") as made:
        made.writestr("one.jsonl", CODE)
    with zipfile.ZipFile(outer, "w") as made:
        made.writestr("inner.zip", inner.getvalue())
    detection = registry.detect(BytesSource({"outer.zip": outer.getvalue()}))
    assert not detection.found
    assert [file.name for file in detection.unknown] == ["inner.zip"]


def test_a_unit_is_what_has_to_be_read_together():
    source = BytesSource({"a.jsonl": CODE, "b.jsonl": CODE.replace(b'"s"', b'"t"')})
    [each] = registry.detect(source).found
    assert [[file.name for file in unit.files()] for unit in registry.units(each)] == [["a.jsonl"], ["b.jsonl"]]


def test_reading_by_name_gives_what_the_reader_gives():
    [made] = registry.read("claude-code", BytesSource({"a.jsonl": CODE}))
    assert made.id == "s"


def test_what_ends_a_reader_is_told():
    class Gone(BytesFile):
        def open(self):
            raise registry.DagError("gone")

    class Source(BytesSource):
        def files(self):
            return [Gone("a.jsonl", CODE)]

    assert all(isinstance(each, Skipped) for each in registry.read("claude-code", Source({})))


def test_a_start_is_no_longer_than_it_says():
    assert len(start_of(BytesFile("x", b"plain " * 100_000))) == START_BYTES
    assert len(start_of(BytesFile("x", json.dumps(list(range(100_000))).encode()))) == START_BYTES


@pytest.mark.parametrize("size", [1000, 100_000, 3_000_000])
def test_long_strings_do_not_hide_what_follows_them(size):
    records = [{"image": "ä\\\n" * size, "type": "first"}, {"type": "second"}]
    data = b"".join(json.dumps(each, ensure_ascii=False).encode() + b"\n" for each in records)
    assert [value["type"] for value in values_in(start_of(BytesFile("x", data)))] == ["first", "second"]


def test_the_values_of_a_cut_start_are_closed():
    assert values_in(b'{"a": [1, {"b": "x, {y') == [{"a": [1, {}]}]
    assert values_in(b'[{"a": 1}, {"b": 2, "c": [') == [[{"a": 1}, {"b": 2, "c": []}]]
    assert values_in(b'{"a": 1}\n{"b": 2, "c"') == [{"a": 1}, {"b": 2}]


def test_a_damaged_line_does_not_hide_the_ones_after_it():
    assert values_in(b'garbage\n{"a": 1}\n{"b": \n{"c": 3}\n') == [{"a": 1}, {}, {"c": 3}]


@pytest.mark.parametrize(
    "data", [b"", b"\0\0", b"[" * 100_000, b'{"a":' * 20_000, b"SQLite format 3\0", b'"', b"{"]
)
def test_any_start_has_values(data):
    assert isinstance(values_in(start_of(BytesFile("x", data))), list)
