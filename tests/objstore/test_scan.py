"""What is found on the disk: packs and loose files that were copied in, taken away, or never were any."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from objstore.kinds import Kind
from objstore.pack import PackReader, list_packs, pack_name
from objstore.store import Store
from refs.errors import DagError, ObjectMissing
from refs.files import Files
from refs.ids import ROOT
from tests.storetools import indexed, init_quiet, picture, quiet_store, say, talk, words_of


@pytest.fixture
def store(tmp_path):
    with init_quiet(tmp_path / "store") as made:
        made.commit("main", talk("mine"))
        yield made


@pytest.fixture
def other(tmp_path):
    """Another store with a pack, a chain that goes on loose behind it, and an attachment of none."""
    with init_quiet(tmp_path / "other") as made:
        made.commit("theirs", [say(f"{i}") for i in range(70)])
        made.commit("theirs", talk("loose"))
        made.storage.checkpoint()
        yield made


def copy_packs(source: Store, target: Store) -> None:
    for pack in list_packs(source.storage.files):
        shutil.copy(source.path / pack_name(pack), target.path / pack_name(pack))


def copy_loose(source: Store, target: Store) -> None:
    for kind in Kind:
        shutil.copytree(
            source.path / "objects" / kind.folder, target.path / "objects" / kind.folder, dirs_exist_ok=True
        )


def test_a_pack_that_was_copied_in_is_there_when_the_store_is_opened_next(store, other):
    packed = other.resolve("theirs~1")
    seen = picture(store)
    path = store.path
    store.close()
    copy_packs(other, store)
    with quiet_store(path) as again:
        assert again.depth(packed) == 70
        assert again.load_chain(packed) == other.load_chain(packed)
        assert packed in [again.resolve(packed[:12])]
        assert again.find_longest_existing_prefix([say(f"{i}") for i in range(80)])[1] == 70
        assert picture(again) == seen
        again.fork(packed, "theirs")
        assert len(again.conversation("theirs").messages()) == 70


def test_a_pack_that_was_copied_in_is_found_by_a_store_that_is_open_when_it_misses_something(store, other):
    packed = other.resolve("theirs~1")
    with pytest.raises(ObjectMissing):
        store.load_chain(packed)
    copy_packs(other, store)
    assert store.load_chain(packed) == other.load_chain(packed)


def test_loose_files_that_were_copied_in_are_there_after_a_reindex(store, other):
    head = other.head("theirs")
    copy_packs(other, store)
    copy_loose(other, store)
    store.reindex()
    assert words_of(store.load_chain(head))[-1] == "loose"
    assert store.depth(head) == 71
    assert words_of(store.conversation("main").messages()) == ["mine"]
    assert indexed(other) <= indexed(store)


def test_a_node_whose_past_is_not_there_is_passed_over_with_a_notice_until_it_is(store, other):
    """Only the loose end was copied: what is stored implies that all before it is."""
    head = other.head("theirs")
    path = store.path
    copy_loose(other, store)
    store.close()
    (path / "index.sqlite").unlink()
    notices: list[str] = []
    with quiet_store(path, notices.append) as again:
        assert any(f"node {head} is passed over" in notice for notice in notices)
        assert again.find_longest_existing_prefix(other.load_chain(head)) == (None, 0)
        with pytest.raises(ObjectMissing):
            again.load_chain(head)
        with pytest.raises(ObjectMissing):
            again.fork(head, "theirs")
        copy_packs(other, again)
        again.reindex()
        assert again.depth(head) == 71


def test_packs_in_any_order_of_age_give_the_same_index(tmp_path):
    """A later pack builds on an earlier one, and stands before it on the disk."""
    with init_quiet(tmp_path / "store") as store:
        for part in range(3):
            store.commit("main", [say(f"{part} {i}") for i in range(70)])
        head, held = store.head("main"), indexed(store)
        for age, pack in enumerate(reversed(list_packs(store.storage.files))):
            os.utime(store.path / pack_name(pack), (1000 + age, 1000 + age))
        store.reindex()
        assert indexed(store) == held
        assert store.depth(head) == 210
        for age, pack in enumerate(list_packs(store.storage.files)):
            os.utime(store.path / pack_name(pack), (1000 + age, 1000 + age))
        store.reindex()
        assert indexed(store) == held


def test_a_pack_that_is_gone_is_noticed_and_what_was_only_there_is_missing(store, other):
    packed = other.resolve("theirs~1")
    copy_packs(other, store)
    assert store.depth(packed) == 70
    path = store.path
    store.close()
    for pack in list_packs(Files(path)):
        (path / pack_name(pack)).unlink()
    notices: list[str] = []
    with quiet_store(path, notices.append) as again:
        assert any("rebuilt" in notice for notice in notices)
        with pytest.raises(ObjectMissing):
            again.load_chain(packed)
        assert words_of(again.conversation("main").messages()) == ["mine"]
        again.save_chain([say(f"{i}") for i in range(70)])
        assert again.depth(packed) == 70


def test_an_object_that_stands_loose_and_in_a_pack_is_read_from_either(store, other):
    head = other.head("theirs")
    copy_packs(other, store)
    copy_loose(other, store)
    store.reindex()
    for messages in ([say(f"{i}") for i in range(70)], talk("loose")):
        store.save_chain(messages)
    chain = store.load_chain(head)
    store.pack()
    assert store.load_chain(head) == chain
    store.reindex()
    assert store.load_chain(head) == chain


@pytest.mark.parametrize(
    "name",
    [
        "pack-" + "a" * 64 + ".pack",
        "pack-" + "A" * 64 + ".pack",
        "pack-short.pack",
        "something.else",
        ".tmp-left-by-a-crash",
        "pack-" + "b" * 64 + ".pack/",
    ],
)
def test_what_is_no_pack_harms_nothing(store, name):
    path = store.path
    seen, held = picture(store), indexed(store)
    store.close()
    place = path / "objects" / "pack" / name
    if name.endswith("/"):
        place.mkdir()
    else:
        place.write_bytes(b"no pack at all")
    with quiet_store(path) as again:
        assert (picture(again), indexed(again)) == (seen, held)
        again.reindex()
        again.commit("main", talk("more"))
    notices: list[str] = []
    with quiet_store(path, notices.append) as again:
        assert words_of(again.conversation("main").messages()) == ["mine", "more"]
    # What has the name of a pack is told each time: it may be one that is damaged.
    assert len(notices) == (name == f"pack-{'a' * 64}.pack")


@pytest.mark.parametrize(
    "name", ["ab/not-an-object", "ab/" + "c" * 64 + ".zst", "zz", "ab/" + "a" * 63 + ".zst", "file"]
)
def test_what_is_no_loose_object_harms_nothing(store, name):
    held = indexed(store)
    place = store.path / "objects" / "nodes" / name
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(b"nothing")
    store.reindex()
    assert indexed(store) == held


def test_a_loose_file_of_other_bytes_than_its_name_is_passed_over(store, other):
    store.storage.checkpoint()
    held = indexed(store)
    (node,) = store.children(ROOT)
    wrong = "ab" * 32
    source = store.path / "objects" / "nodes" / node[:2] / f"{node}.zst"
    target = store.path / "objects" / "nodes" / "ab" / f"{wrong}.zst"
    target.parent.mkdir(exist_ok=True)
    shutil.copy(source, target)
    notices: list[str] = []
    store.storage.notice = notices.append
    store.reindex()
    assert indexed(store) == held
    assert any(wrong in notice for notice in notices)


def test_a_pack_with_a_damaged_frame_gives_all_but_what_that_held(tmp_path):
    with init_quiet(tmp_path / "store") as store:
        head = store.commit("main", [say(f"{i} " + "x" * 3000) for i in range(200)])
        (pack,) = list_packs(store.storage.files)
        path = store.path / pack_name(pack)
        reader = PackReader(store.storage.files, pack)
        places = list(reader.frames())
        reader.close()
        data = bytearray(path.read_bytes())
        offset, size = places[len(places) // 2]
        data[offset + size // 2] ^= 0xFF
        path.write_bytes(data)
        notices: list[str] = []
        store.storage.notice = notices.append
        store.reindex()
        assert any("a frame is passed over" in notice for notice in notices)
        with pytest.raises(DagError):
            store.load_chain(head)
        depths = store.find_longest_existing_prefix([say(f"{i} " + "x" * 3000) for i in range(200)])
        assert 0 < depths[1] < 200
        assert len(store.load_chain(depths[0])) == depths[1]
        # Sent again, it is whole again.
        assert store.save_chain([say(f"{i} " + "x" * 3000) for i in range(200)]) == head
        assert len(store.load_chain(head)) == 200


def test_progress_is_told_while_the_index_is_made(tmp_path):
    with init_quiet(tmp_path / "store") as store:
        store.commit("main", [say(f"{i}") for i in range(70)])
    Path(tmp_path / "store" / "index.sqlite").unlink()
    told: list[tuple[str, int, int]] = []
    with Store.open(tmp_path / "store", progress=lambda *each: told.append(each)) as store:
        assert store.depth(store.head("main")) == 70
    assert told
