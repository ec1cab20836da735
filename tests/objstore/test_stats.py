import pytest

from objstore.canonical import canonical_message_json
from objstore.kinds import Kind
from objstore.store import Store
from tests.objstore.stores import call, picture, said


@pytest.fixture
def store(tmp_path):
    with Store.init(tmp_path / ".dag") as store:
        yield store


def test_an_empty_store_holds_nothing(store):
    stats = store.stats()
    assert stats.objects == dict.fromkeys(Kind, 0) == stats.raw
    assert (stats.conversations, stats.largest, stats.dedup_bytes) == (0, [], 0)
    assert stats.disk > 0


@pytest.mark.parametrize("packed", [False, True])
def test_objects_are_counted_with_their_canonical_bytes(store, packed):
    words = [said("one"), said("two" * 300, "assistant")]
    head = store.commit("main", words)
    store.record(call(head))
    store.describe("main", title="t")
    if packed:
        store.pack()
    stats = store.stats()
    assert stats.objects == {
        Kind.MESSAGE: 2,
        Kind.NODE: 2,
        Kind.CALL: 1,
        Kind.NOTE: 1,
        Kind.DESCRIPTION: 1,
        Kind.PAYLOAD: 0,
    }
    assert stats.raw[Kind.MESSAGE] == sum(len(canonical_message_json(message)) for message in words)
    assert stats.raw[Kind.NODE] == sum(len(entry.node.canonical()) for entry in store.walk(head))
    assert (stats.packed_objects, stats.loose_objects) == ((7, 0) if packed else (0, 7))
    assert stats.packs == packed


def test_what_conversations_share_is_saved(store):
    words = [said(f"shared {i} " + "s" * 100) for i in range(10)]
    head = store.commit("a", words)
    for name in "bcd":
        store.fork(head, name)
    store.commit("d", [said("more")])
    stats = store.stats()
    assert (stats.conversations, stats.chain_messages) == (4, 41)
    assert stats.dedup_messages == 30
    raw = sum(len(canonical_message_json(message)) for message in words)
    assert stats.dedup_bytes == 3 * raw


def test_the_largest_conversations_come_first_and_are_ten_at_most(store):
    for i in range(14):
        store.commit(f"c{i}", [said("x" * 100 * (i + 1))])
    names = [each.name for each in store.stats().largest]
    assert names == [f"c{i}" for i in range(13, 3, -1)]


def test_attachments_count_with_the_messages_that_carry_them(store):
    store.commit("a", [picture(b"p" * 50_000)])
    store.commit("b", [said("see"), picture(b"p" * 50_000)])
    stats = store.stats()
    assert stats.raw[Kind.PAYLOAD] == 50_000 and stats.payload_stored < 1000
    assert all(each.raw_bytes > 50_000 for each in stats.largest)
    assert stats.dedup_bytes > 49_000


def test_packing_saves_disk(store):
    for i in range(30):
        store.commit("main", [said(f"{i}")])
    store.pack()
    stats = store.stats()
    assert stats.packing_bytes == 90 * 4096 - stats.pack_disk > 300_000


def test_a_damaged_object_does_not_stop_the_count(store):
    store.commit("main", [said("one"), said("two")])
    store.pack()
    (path,) = (store.path / "objects" / "pack").iterdir()
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    assert store.stats().objects[Kind.NODE] == 2


def test_progress_is_told(store):
    store.commit("main", [said("one")])
    told = []
    store.stats(progress=lambda *each: told.append(each))
    assert told[0] == ("sizes", 0, 3)
