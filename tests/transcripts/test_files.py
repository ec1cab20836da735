"""Sources: what is opened, what is left out, and what a damaged archive does."""

import io
import os
import stat
import zipfile

import pytest

from objstore.transcripts import archive
from objstore.transcripts.files import BytesSource, FileSource, FolderSource, View, local_path, open_source
from objstore.transcripts.streams import open_to_seek
from refs.errors import CorruptFile, DagError, StorageFailure


def names(source):
    return [file.name for file in source.files()]


def kinds(source):
    return sorted((skipped.kind, skipped.place) for skipped in source.skipped)


def read(file):
    with file.open() as stream:
        return stream.read()


def make_zip(path, *members, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as made:
        for name, data in members:
            made.writestr(name, data)
    return path


def test_a_folder_lists_all_regular_files_below_it_sorted(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "two").write_bytes(b"22")
    (tmp_path / "a.txt").write_bytes(b"1")
    source = FolderSource(tmp_path)
    assert names(source) == ["a.txt", "b/two"]
    assert [file.size for file in source.files()] == [1, 2]
    assert read(source.find("b/two")) == b"22"
    assert source.find("b") is None and source.find("../a.txt") is None


def test_links_and_pipes_in_a_folder_are_told_and_not_opened(tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"secret")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    source = FolderSource(folder)
    assert names(source) == []
    assert kinds(source) == [("link-not-followed", "link"), ("link-not-followed", "loop"), ("not-a-file", "pipe")]


def test_a_pipe_that_takes_a_files_place_is_refused_without_waiting(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"x")
    [file] = FileSource(path).files()
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(CorruptFile):
        file.open()


def test_a_file_that_went_away_is_a_storage_failure(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"x")
    [file] = FileSource(path).files()
    path.unlink()
    with pytest.raises(StorageFailure):
        file.open()


def test_a_named_link_is_followed_because_the_user_named_it(tmp_path):
    (tmp_path / "real").write_bytes(b"data")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    [file] = FileSource(tmp_path / "link").files()
    assert (file.name, read(file)) == ("link", b"data")
    assert local_path(file) == str(tmp_path / "real")


def test_a_missing_file_is_told(tmp_path):
    source = FileSource(tmp_path / "nothing")
    assert names(source) == []
    assert [skipped.kind for skipped in source.skipped] == ["unreadable-file"]


def test_a_path_is_opened_as_what_it_holds(tmp_path):
    make_zip(tmp_path / "export.json", ("conversations.json", "[]"))
    (tmp_path / "plain.zip").write_bytes(b"[]")
    assert names(open_source(tmp_path / "export.json")) == ["conversations.json"]
    assert names(open_source(tmp_path / "plain.zip")) == ["plain.zip"]
    assert names(open_source(tmp_path)) == ["export.json", "plain.zip"]


def test_members_of_an_archive_are_read_in_place(tmp_path):
    source = open_source(make_zip(tmp_path / "a.zip", ("b/c.json", b"[1]"), ("a.json", b"x" * 100_000)))
    assert names(source) == ["a.json", "b/c.json"]
    assert read(source.find("a.json")) == b"x" * 100_000
    assert read(source.find("b/c.json")) == b"[1]"
    assert local_path(source.find("a.json")) is None
    with open_to_seek(source.find("a.json")) as stream:
        stream.seek(99_999)
        assert stream.read() == b"x"


@pytest.mark.parametrize(
    "name", ["../up.json", "a/../../up.json", "/etc/passwd", "C:/x.json", "a//b", "./a", "..\\up.json", "a\nb"]
)
def test_names_that_climb_out_are_left_out(tmp_path, name):
    source = open_source(make_zip(tmp_path / "a.zip", (name, b"bad"), ("good.json", b"[]")))
    assert names(source) == ["good.json"]
    assert [skipped.kind for skipped in source.skipped] == ["unsafe-name"]


def test_links_in_an_archive_are_left_out(tmp_path):
    link = zipfile.ZipInfo("link.json")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    source = open_source(make_zip(tmp_path / "a.zip", (link, b"/etc/passwd"), ("good.json", b"[]")))
    assert names(source) == ["good.json"]
    assert kinds(source) == [("link-not-followed", "link.json")]


def test_the_first_of_two_members_of_one_name_is_read(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate"):
        path = make_zip(tmp_path / "a.zip", ("a.json", b"first"), ("a.json", b"second"))
    source = open_source(path)
    assert read(source.find("a.json")) == b"first"
    assert kinds(source) == [("duplicate-member", "a.json")]


def test_encrypted_members_are_left_out(tmp_path):
    path = make_zip(tmp_path / "a.zip", ("a.json", b"[]"))
    raw = bytearray(path.read_bytes())
    for mark, flag in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        raw[raw.find(mark) + flag] |= 1
    path.write_bytes(raw)
    assert kinds(open_source(path)) == [("encrypted-member", "a.json")]


def test_other_compressions_than_deflate_are_left_out(tmp_path):
    path = make_zip(tmp_path / "a.zip", ("a.json", b"[]"), compression=zipfile.ZIP_BZIP2)
    assert kinds(open_source(path)) == [("unknown-compression", "a.json")]


def test_a_member_that_grows_beyond_measure_is_a_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MEMBER_RATIO_FROM_BYTES", 100_000)
    members = ("bomb", b"\0" * 10_000_000), ("small", b"\0" * 90_000)
    source = open_source(make_zip(tmp_path / "a.zip", *members))
    assert names(source) == ["small"]
    assert kinds(source) == [("archive-bomb", "bomb")]


def test_members_that_share_their_bytes_are_a_bomb(tmp_path):
    path = make_zip(tmp_path / "a.zip", ("a", b"x" * 1000), ("b", b"y" * 1000))
    raw = bytearray(path.read_bytes())
    second = raw.find(b"PK\x01\x02", raw.find(b"PK\x01\x02") + 4)
    raw[second + 42 : second + 46] = (0).to_bytes(4, "little")
    path.write_bytes(raw)
    assert kinds(open_source(path)) == [("archive-bomb", "b")]


def test_a_member_that_says_it_is_shorter_than_it_is_gives_no_more_than_it_says(tmp_path):
    path = make_zip(tmp_path / "a.zip", ("a", b"x" * 1_000_000))
    raw = bytearray(path.read_bytes())
    central = raw.find(b"PK\x01\x02")
    raw[central + 24 : central + 28] = (10).to_bytes(4, "little")
    path.write_bytes(raw)
    [file] = open_source(path).files()
    assert file.size == 10
    with pytest.raises(CorruptFile), file.open() as stream:
        assert len(stream.read(10)) <= 10
        stream.read()


def test_a_list_of_members_that_is_too_long_is_refused_before_it_is_read(tmp_path):
    path = make_zip(tmp_path / "a.zip", ("a", b"x"))
    raw = bytearray(path.read_bytes())
    raw[raw.find(b"PK\x05\x06") + 12 : raw.find(b"PK\x05\x06") + 16] = (0xFFFFFFF0).to_bytes(4, "little")
    path.write_bytes(raw)
    source = open_source(path)
    assert names(source) == []
    assert [skipped.kind for skipped in source.skipped] == ["unreadable-archive"]


def test_a_damaged_archive_raises_nothing_but_documented_errors(tmp_path):
    path = make_zip(tmp_path / "a.zip", ("a.json", b"[1, 2, 3]" * 500), ("b.json", os.urandom(2000)))
    raw = path.read_bytes()
    for cut in range(0, len(raw), 97):
        path.write_bytes(raw[:cut])
        assert isinstance(names(open_source(path)), list)
    for at in range(0, len(raw), 13):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 0xFF]) + raw[at + 1 :])
        for file in open_source(path).files():
            try:
                read(file)
            except DagError:
                continue


def test_a_view_lists_what_was_chosen_and_finds_what_lies_beside_it():
    base = BytesSource({"a.json": b"1", "image.png": b"2"})
    view = View(base, [base.find("a.json")])
    assert names(view) == ["a.json"]
    assert [file.name for file in view.beside()] == ["a.json", "image.png"]
    assert read(view.find("image.png")) == b"2"


def test_bytes_are_opened_again_and_again():
    [file] = BytesSource({"-": b"data"}).files()
    assert read(file) == read(file) == b"data"
    assert isinstance(open_to_seek(file), io.BytesIO)
