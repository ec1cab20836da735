"""The journal of a process that commits often: its records, and the zeros that it writes ahead of them."""

from __future__ import annotations

import errno
import shutil

import pytest

from objstore.fsck import Level, check
from objstore.journal import ROOM_AFTER, ROOM_BYTES
from objstore.storage import Storage
from objstore.store import Store
from refs.errors import RefChanged, StorageFailure
from refs.files import Files
from tests.storetools import QuietFiles, init_quiet, picture, quiet_store, talk, ticking, words_of

TURNS = 3 * ROOM_AFTER


@pytest.fixture
def store(tmp_path):
    """A store in use, whose journal has room behind its records."""
    with init_quiet(tmp_path / "store") as made:
        for turn in range(TURNS):
            made.commit("main", talk(f"q{turn}", f"a{turn}"))
        yield made


@pytest.fixture
def killed(store, tmp_path):
    """What is left when its process is killed."""
    shutil.copytree(tmp_path / "store", tmp_path / "killed")
    return tmp_path / "killed"


def records(path) -> bytes:
    return (path / "journal").read_bytes().rstrip(b"\0")


def test_zeros_come_after_a_few_records_and_go_with_the_process(tmp_path):
    with init_quiet(tmp_path / "store") as store:
        for _ in range(ROOM_AFTER):
            store.commit("main", talk("hello"))
        assert (tmp_path / "store" / "journal").stat().st_size < ROOM_BYTES
        store.commit("main", talk("hello"))
        size = (tmp_path / "store" / "journal").stat().st_size
        assert size > ROOM_BYTES
        store.commit("main", talk("hello"))
        assert (tmp_path / "store" / "journal").stat().st_size == size
    assert (tmp_path / "store" / "journal").stat().st_size == 256


def test_a_disk_without_room_for_the_room_takes_the_record_all_the_same(tmp_path):
    init_quiet(tmp_path / "store").close()
    store = Store(Storage.open(Tight(tmp_path / "store"), ticking(), lambda _: None))
    for turn in range(TURNS):
        store.commit("main", talk(f"{turn}"))
    assert ROOM_BYTES > (tmp_path / "store" / "journal").stat().st_size > 256
    store.storage.index.close()
    assert list(check(Files(tmp_path / "store"), Level.FULL)) == []
    with quiet_store(tmp_path / "store") as again:
        assert len(again.conversation("main").messages()) == TURNS


class Tight(QuietFiles):
    """A disk that takes half of the room, and then is full."""

    def _write(self, name, fd, offset, data):
        if name == "journal" and len(data) > ROOM_BYTES:
            super()._write(name, fd, offset, data[: ROOM_BYTES // 2])
            raise StorageFailure(self.path(name), OSError(errno.ENOSPC, "no space left"))
        super()._write(name, fd, offset, data)


def test_what_is_left_by_a_kill_is_whole_and_goes_on(store, killed):
    assert list(check(Files(killed), Level.FULL)) == []
    with quiet_store(killed) as again:
        assert picture(again) == picture(store)
        before = records(killed)
        head = again.commit("main", talk("and", "on"))
        assert records(killed).startswith(before[256:], 256)
        assert again.depth(head) == 2 * TURNS + 2


def test_another_process_writes_into_the_room_and_both_see_it(store, tmp_path):
    with quiet_store(tmp_path / "store") as other:
        for turn in range(3):
            head = other.commit("main", talk(f"theirs {turn}"))
            assert store.head("main") == head
            head = store.commit("main", talk(f"ours {turn}"))
            assert words_of(other.conversation("main").messages())[-2:] == [f"theirs {turn}", f"ours {turn}"]
        with pytest.raises(RefChanged):
            other.commit("main", talk("late"), expected=other.resolve("main~1"))


def test_a_record_torn_within_the_room_is_cut_off(store, killed):
    whole = picture(store)
    journal = killed / "journal"
    data, end = journal.read_bytes(), len(records(killed))
    for torn in (b"D", b"DAGR", b"DAGR\x40\0\0\0", b"DAGR\x40\0\0\0" + b"x" * 80):
        journal.write_bytes(data[:end] + torn + data[end + len(torn) :])
        assert [each.name for each in check(Files(killed), Level.QUICK)] == ["torn-journal"]
        with quiet_store(killed) as again:
            assert picture(again) == whole
            again.describe("main", title="goes on")
        assert list(check(Files(killed), Level.FULL)) == []
        shutil.rmtree(killed)
        shutil.copytree(store.path, killed)


def test_a_byte_that_turned_over_in_the_room_is_found_and_harmless(store, killed):
    whole = picture(store)
    journal = killed / "journal"
    data, end = journal.read_bytes(), len(records(killed))
    for at in (end, end + 1, end + 23, end + 24, (end + len(data)) // 2, len(data) - 1):
        journal.write_bytes(data[:at] + b"\x40" + data[at + 1 :])
        assert [each.name for each in check(Files(killed), Level.QUICK)] == ["torn-journal"], at
        with quiet_store(killed) as again:
            assert picture(again) == whole
            head = again.commit("main", talk("behind"))
        with quiet_store(killed) as again:
            assert again.head("main") == head
        shutil.rmtree(killed)
        shutil.copytree(store.path, killed)


def test_a_journal_that_was_cut_below_its_mark_is_noticed(store, killed):
    journal = killed / "journal"
    journal.write_bytes(records(killed)[:-100])
    assert {each.name for each in check(Files(killed), Level.QUICK)} >= {"bad-journal"}
    with quiet_store(killed) as again:  # the last record is gone, the rest is as it was
        assert again.storage.index.has_node(store.resolve("main~2"))
