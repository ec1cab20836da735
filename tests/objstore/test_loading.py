"""What is decoded is kept, within bounds, and is never given where the store says otherwise by now."""

from __future__ import annotations

import os
import tracemalloc

import pytest

from objstore import framecache, remembered
from objstore.arrival import place_loose
from objstore.attachment import Attachment
from objstore.canonical import canonical_message_json, message_content_hash
from objstore.codec import encode
from objstore.frames import compress
from objstore.gc import GcOptions
from objstore.kinds import Kind
from objstore.limits import COPY_MESSAGE_BYTES, KIB
from objstore.loose import Form, loose_name
from objstore.message import AttachmentPart, Message, TextPart, ToolCallPart
from objstore.node import Node
from objstore.pack import publish
from objstore.packwriter import PackWriter
from objstore.parsed import weight
from objstore.records import Tombstone
from refs.errors import CorruptObject, ObjectMissing, Redacted
from refs.ids import ROOT
from tests.storetools import init_quiet, quiet_store, say, talk, words_of

LONG = "long " * COPY_MESSAGE_BYTES
NOW = "2026-01-02T03:04:05.678Z"


@pytest.fixture
def store(tmp_path):
    with init_quiet(tmp_path / "store") as made:
        yield made


def chat(name: str, count: int = 70) -> list[Message]:
    """More messages than the journal takes at once: they go into a pack."""
    return talk(*(f"{name} {i}" for i in range(count)))


def same_objects(one: list[Message], other: list[Message]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def kept(store) -> tuple[int, int]:
    """(bytes that the cache of frames counts, bytes that its frames say they take)."""
    held = store.storage.database._frames
    return held.weight, sum(frame.weight for frame in held.frames.values())


def test_a_chain_loaded_again_is_made_of_the_same_messages(store):
    picture = Message("user", (TextPart("look"), AttachmentPart(Attachment("image/png", content=bytes(9000)))))
    call = Message("assistant", (ToolCallPart("f", {"n": [1.5, 10**30]}),))
    head = store.commit("main", [*chat("a"), picture, call])
    first = store.load_chain(head)
    assert same_objects(store.load_chain(head), first)
    assert same_objects([entry.message for entry in store.walk(head)][::-1], first)
    assert store.message(store.node(head).message) is first[-1] and first[-1] == call
    assert first[-2].parts[1].attachment.content == bytes(9000)
    assert all(message_content_hash(each) == encode(each)[1] for each in first)


def test_a_chain_that_goes_on_shares_what_was_loaded_before(store):
    head = store.commit("main", chat("a"))
    first = store.load_chain(head)
    for i in range(3):
        longer = store.load_chain(store.commit("main", chat(f"more {i}")))
        assert same_objects(longer[:70], first)


def test_a_message_of_another_frame_is_the_same_again_until_the_index_changes(store):
    store.commit("one", [say(LONG), *chat("a")])
    head = store.commit("two", [say("before"), say(LONG), *chat("b")])
    first = store.load_chain(head)
    assert [step.message_line < 0 for step in store.storage.database.run(head).steps][:3] == [False, True, False]
    assert same_objects(store.load_chain(head), first)
    store.commit("one", [say("more")])
    assert store.load_chain(head) == first


def erase(store, by, oid: str) -> None:
    """Put a tombstone where the index `by` says that a message is."""
    store.storage.checkpoint()  # or the journal still has it
    files, gone = store.storage.files, Tombstone("message", oid, NOW, "why")
    files.make_dirs(os.path.dirname(loose_name(Kind.MESSAGE, oid)))
    files.replace(loose_name(Kind.MESSAGE, oid, Form.TOMBSTONE), compress(gone.canonical()))
    for form in (Form.PLAIN, Form.CONDENSED):
        files.remove(loose_name(Kind.MESSAGE, oid, form))
    with by.changing() as db:
        place = place_loose(Form.TOMBSTONE), by.row(Kind.MESSAGE, oid)
        db.execute("UPDATE message SET loc=? WHERE row=?", place)


@pytest.mark.parametrize("who", ["this", "another"])
@pytest.mark.parametrize("count", [1, 70], ids=["alone", "packed"])
def test_a_message_that_was_erased_is_not_given(store, tmp_path, who, count):
    """By whom it was read before, and kept: not if it stands alone, and not if it stands in another frame."""
    store.commit("one", [say(LONG), *chat("a", count)])
    head = store.commit("two", [say("before"), say(LONG), *chat("b", count)])
    for _ in range(2):
        assert len(store.load_chain(head)) == 2 + count
    with quiet_store(tmp_path / "store") as other:
        erase(store, (store if who == "this" else other).storage.index, message_content_hash(say(LONG)))
        for _ in range(2):
            with pytest.raises(Redacted):
                store.load_chain(head)


def test_what_stands_in_the_journal_is_read_once(store, monkeypatch):
    first = []
    for i in range(5):
        head = store.commit("main", chat(f"{i}", 2))
        assert same_objects(store.load_chain(head)[:-2], first)
        first = store.load_chain(head)
    assert [entry.node for entry in store.walk(head)] == [store.node(entry.id) for entry in store.walk(head)]
    monkeypatch.setattr(store.storage.journal, "find", None)
    assert same_objects(store.load_chain(head), first)
    store.storage.checkpoint()
    assert same_objects(store.load_chain(head), first)


def test_a_chain_of_the_journal_that_was_packed_is_read_from_the_pack(store):
    head = store.commit("main", chat("a", 40))
    first = store.load_chain(head)
    store.pack()
    longer = store.commit("main", chat("b", 2))
    for _ in range(2):
        assert store.load_chain(longer)[:40] == first
    assert list(store.storage.database._remembered.nodes) == [longer, store.node(longer).parent]
    assert len(store.storage.database.run(head).steps) == 40


def test_nothing_is_given_of_a_chain_whose_head_is_gone(store):
    head = store.save_chain(chat("garbage", 4))
    assert len(store.load_chain(head)) == 4
    store.commit("main", chat("a", 2))
    store.gc(GcOptions(prune_before=1e10, now=1e10))
    with pytest.raises(ObjectMissing):
        store.load_chain(head)


def test_what_is_read_one_by_one_is_kept_only_up_to_a_bound(store, monkeypatch):
    monkeypatch.setattr(remembered, "MOST_BYTES", 50_000)
    heads = [store.commit(f"{i}", [say(f"{i} {j} {LONG}") for j in range(6)]) for i in range(6)]
    for head in [*heads, *heads]:
        assert len(store.load_chain(head)) == 6
        held = store.storage.database._remembered
        assert sum(weight(value) for _, value in held.loose.values()) <= 50_000 and len(held.nodes) <= 60


def test_a_tombstone_in_a_frame_is_told_each_time(store):
    files, gone = store.storage.files, message_content_hash(say("secret"))
    with PackWriter(files) as writer:
        writer.message(gone, Tombstone("message", gone, NOW, "why").canonical(), Form.TOMBSTONE)
        first = Node(ROOT, gone)
        writer.node(first.id, first)
        _, oid, raw = encode(say("after"))
        writer.message(oid, raw)
        second = Node(first.id, oid)
        writer.node(second.id, second)
        publish(files, writer.finish())
    for _ in range(2):
        with pytest.raises(Redacted):
            store.load_chain(second.id)
        last, erased = store.walk(second.id)
        assert last.message.text == "after" and erased.message_or_tombstone.reason == "why"


def test_what_gc_and_packing_move_is_read_as_before(store, tmp_path):
    heads = [store.commit(name, [say(LONG), *chat(name)]) for name in "abc"]
    chains = [store.load_chain(head) for head in heads]
    with quiet_store(tmp_path / "store") as other:
        others = [other.load_chain(head) for head in heads]
        for i in range(3):
            store.save_chain(chat(f"garbage {i}"))
            store.gc(GcOptions(prune_before=1e10, now=1e10))
            for head, chain in zip(heads, chains, strict=True):
                assert store.load_chain(head) == other.load_chain(head) == chain
            store.commit("a", chat(f"more {i}"))
            store.pack()
            for head, chain in zip(heads, others, strict=True):
                assert store.load_chain(head) == other.load_chain(head) == chain


def test_after_packs_are_forgotten_the_disk_is_read_again(store):
    head = store.commit("main", chat("a"))
    first = store.load_chain(head)
    store.storage.database.forget_packs()
    again = store.load_chain(head)
    assert again == first and not any(a is b for a, b in zip(again, first, strict=True))
    assert kept(store)[0] == kept(store)[1]


def test_a_damaged_line_is_refused_each_time_and_the_others_are_read(store):
    head = store.commit("main", chat("a"))
    run = store.storage.database.run(head)
    line = run.steps[5].message_line
    run.frame.lines[line] = run.frame.lines[line].replace(b'"text"}', b'"next"}').replace(b'"text":', b'"text":1')
    for _ in range(2):
        with pytest.raises(CorruptObject):
            store.load_chain(head)
    good = [entry for entry in store.walk(head) if entry.id != run.steps[5].oid]
    assert words_of(entry.message for entry in good)[::-1] == [f"a {i}" for i in range(70) if i != 5]


def test_an_index_that_names_a_line_of_another_message_is_noticed(store):
    head = store.commit("main", chat("a"))
    first = store.load_chain(head)
    index = store.storage.index
    rows = [index.row(Kind.MESSAGE, message_content_hash(each)) for each in first[:2]]
    with index.changing() as db:
        loc = index.loc_of_row(Kind.MESSAGE, rows[1])
        db.execute("UPDATE message SET loc=? WHERE row=?", (loc, rows[0]))
    with pytest.raises(CorruptObject):
        store.message(message_content_hash(first[0]))
    assert store.message(message_content_hash(first[1])) is first[1]


@pytest.mark.parametrize("bound", [1, 64 * KIB, 512 * KIB])
def test_what_is_kept_stays_within_its_bound(store, monkeypatch, bound):
    heads = [store.commit(f"{i}", talk(*(f"{i} {j} " + "x" * 2000 for j in range(70)))) for i in range(12)]
    store.storage.database.forget_packs()
    monkeypatch.setattr(framecache, "FRAME_CACHE_BYTES", bound)
    for head in [*heads, *heads[::-1]]:
        assert len(store.load_chain(head)) == 70
        counted, said = kept(store)
        largest = max(frame.weight for frame in store.storage.database._frames.frames.values())
        assert counted == said and (
            counted <= bound or (counted == largest and len(store.storage.database._frames.frames) == 1)
        )


def test_memory_stays_within_what_is_counted(store, monkeypatch):
    bound = 2048 * KIB
    arguments = [{"list": [{"a": str(1000 + i)} for i in range(40)]}] * 70
    heads = [
        store.commit(f"{n}", [Message(f"{n}", (ToolCallPart(f"{i}", each),)) for i, each in enumerate(arguments)])
        for n in range(30)
    ]
    monkeypatch.setattr(framecache, "FRAME_CACHE_BYTES", bound)
    store.storage.database.forget_packs()
    store.load_chain(heads[0])
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for head in heads:
            store.load_chain(head)
        assert tracemalloc.get_traced_memory()[0] - before < bound
    finally:
        tracemalloc.stop()


def test_messages_of_other_frames_are_kept_only_up_to_a_bound(store, monkeypatch):
    long = [say(f"{i} {LONG}") for i in range(70)]
    store.commit("one", long)
    head = store.commit("two", [say("before"), *long])
    monkeypatch.setattr(remembered, "MOST_BYTES", 10 * len(LONG))
    for _ in range(3):
        assert store.load_chain(head)[1:] == long
        kept_now = store.storage.database._remembered.messages.values()
        assert sum(map(weight, kept_now)) <= remembered.MOST_BYTES


def test_runs_of_many_forks_in_one_frame_are_read_right(store):
    """Each fork is a run of its own; together they are longer than the frame has lines."""
    base = store.commit("main", chat("a"))
    heads = [store.save_chain(chat(f"fork {i}", 3), base) for i in range(40)]
    for i, head in enumerate(heads):
        store.fork(head, f"fork-{i}")
    store.pack()
    for _ in range(2):
        for i, head in enumerate(heads):
            assert words_of(store.load_chain(head)) == [
                *(f"a {j}" for j in range(70)),
                *(f"fork {i} {j}" for j in range(3)),
            ]
        assert len(store.load_chain(base)) == 70


def test_a_forked_child_has_nothing_kept_and_reads_the_same(store):
    head = store.commit("main", [*chat("a"), Message("user", (AttachmentPart(Attachment(content=bytes(9000))),))])
    first = store.load_chain(head)
    child = os.fork()
    if not child:
        try:
            again = store.load_chain(head)
            good = (
                again == first
                and again[0] is not first[0]
                and again[-1].parts[0].attachment.content == bytes(9000)
            )
            os._exit(0 if good else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert same_objects(store.load_chain(head), first)


def test_what_is_loaded_is_written_as_it_was(store):
    history = [
        *chat("a"),
        say("\ud83d lone"),
        Message("x", (ToolCallPart("f", {"a": 10**25, "b": 1e16, "c": 1e-7}),)),
    ]
    head = store.commit("main", history)
    for _ in range(2):
        assert [canonical_message_json(each) for each in store.load_chain(head)] == [
            canonical_message_json(each) for each in history
        ]
