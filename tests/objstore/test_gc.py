import calendar
import gzip
import os
import time
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import objstore.gc
from objstore.arrival import Arrival, place_packed
from objstore.findings import Level, Severity
from objstore.gc import GcOptions
from objstore.jsonvalue import dumps
from objstore.kinds import Kind
from objstore.loose import loose_name
from objstore.newcall import NewCall
from objstore.packwriter import PackWriter
from objstore.store import Store
from refs.errors import CorruptFile, CorruptObject, DagError
from refs.ids import ROOT
from tests.objstore.stores import (
    DAY,
    call,
    everything,
    make_older,
    objects_on_disk,
    packs,
    picture,
    reachable,
    said,
)


@pytest.fixture
def store(tmp_path):
    with Store.init(tmp_path / ".dag") as store:
        yield store


def all_goes(**more) -> GcOptions:
    now = time.time()
    return GcOptions(now + DAY, now, **{"reflog_before": now + DAY, **more})


def at_day(days: float, grace: float = 14, **more) -> GcOptions:
    now = time.time() + days * DAY
    return GcOptions(now - grace * DAY, now, **{"reflog_before": now, **more})


def saved_alone(store: Store, *messages, parent=ROOT):
    """A chain that nothing names, as files of their own."""
    head = store.save_chain(messages, parent)
    store.storage.checkpoint()
    return head


def clean(store: Store) -> bool:
    return list(store.fsck()) == []


# -- what stays and what goes ---------------------------------------------------------------------

choices = st.integers(0, 1 << 30)
steps = st.lists(st.tuples(st.sampled_from("cccfftnsspddabegmr"), choices, choices), max_size=25)


class Anything:
    """Does to a store whatever a list of steps says."""

    def __init__(self, store: Store) -> None:
        self.store, self.nodes, self.count = store, [ROOT], 0

    def node(self, choice):
        return self.nodes[choice % len(self.nodes)]

    def stored_node(self, choice):
        return self.nodes[1 + choice % (len(self.nodes) - 1)] if len(self.nodes) > 1 else None

    def do(self, step, a, b):
        store, self.count = self.store, self.count + 1
        name = f"c{a % 5}"
        node = self.stored_node(b)
        words = [said(f"{step} {a % 7} {i}" + "x" * (b % 3000)) for i in range(1 + b % 4)]
        if step == "c":
            self.nodes.append(store.commit(name, words))
        elif step in "s":
            self.nodes.append(store.save_chain(words, self.node(a)))
        elif step == "p":
            self.nodes.append(store.save_chain([picture(bytes([a % 3]) * 5000), *words], self.node(b)))
        elif step == "m":
            store.commit(f"many{a % 3}", [said(f"{a % 11} {i}") for i in range(70)])
        elif step == "r":
            store.pack()
        elif step == "d" and store.head(name) is not None:
            store.delete(name)
        elif step == "e" and store.head(name) is not None:
            store.describe(name, title=f"title {b % 3}")
        elif node is None:
            return
        elif step == "f":
            store.fork(node, f"f{self.count}")
        elif step == "t":
            store.tag(f"t{self.count}", node)
        elif step == "n":
            store.save_chain(words, self.node(a), note={"n": self.count})
        elif step == "a":
            self.nodes.append(store.save_chain(words, self.node(a), called_by=node))
        elif step == "b":
            store.record(call(self.node(a), node, conversation=name))
        elif step == "g":
            store.record(call(self.node(a), node if b % 2 else None, conversation=name if b % 3 else None))


@settings(max_examples=40)
@given(steps=steps, reflog=st.booleans(), quick=st.booleans())
def test_keeps_exactly_what_an_independent_account_says_is_reachable(tmp_path_factory, steps, reflog, quick):
    with Store.init(tmp_path_factory.mktemp("gc") / ".dag") as store:
        anything = Anything(store)
        for step in steps:
            anything.do(*step)
        expected = reachable(store, None if reflog else "9999")
        chains = {each.name: store.load_chain(each.head) for each in store.conversations()}
        now = time.time()
        store.gc(GcOptions(now + DAY, now, reflog_before=None if reflog else now + DAY, quick=quick))
        kept = everything(store)
        assert expected <= kept if quick else expected == kept
        assert {each.name: store.load_chain(each.head) for each in store.conversations()} == chains
        assert list(store.fsck()) == []
        store.reindex()
        assert everything(store) == kept


def test_a_call_without_a_conversation_keeps_a_history_that_no_ref_names(store):
    asked = store.save_chain([said("what is it?")])
    answered = store.save_chain([said("it is", "assistant")], asked)
    store.record(call(asked, answered))
    store.gc(all_goes())
    assert [message.text for message in store.load_chain(answered)] == ["what is it?", "it is"]
    assert len(store.calls()) == 1 and clean(store)


def test_expire_calls_lets_old_calls_without_a_conversation_go_with_what_only_they_keep(store):
    old = store.save_chain([said("old")])
    new = store.save_chain([said("new")])
    store.record(call(old, at="2026-01-01T00:00:00.000Z"))
    store.record(call(new, at="2026-03-01T00:00:00.000Z"))
    february = 1769904000.0
    report = store.gc(all_goes(calls_before=february))
    assert report.pruned[Kind.CALL] == 1
    assert [each.head_input for each in store.calls()] == [new]
    assert not store.storage.database.has(Kind.NODE, old)


def test_expire_calls_spares_a_call_on_a_live_node(store):
    head = store.commit("main", [said("hello")])
    store.record(call(head, at="2020-01-01T00:00:00.000Z"))
    store.gc(all_goes(calls_before=time.time()))
    assert len(store.calls(head)) == 1


def test_a_call_asked_at_nothing_lives_as_long_as_its_answer(store):
    answer = store.commit("main", [said("good morning", "assistant")])
    store.record(call(ROOT, answer, conversation="main"))
    store.gc(all_goes())
    assert len(store.calls()) == 1
    store.delete("main")
    store.gc(all_goes())
    assert store.calls() == []


def test_a_side_chain_lives_as_long_as_what_called_it(store):
    head = store.commit("main", [said("do it")])
    side = store.save_chain([said("your task"), said("done", "assistant")], called_by=head)
    store.gc(all_goes())
    assert len(store.load_chain(side)) == 2
    store.delete("main")
    store.gc(all_goes())
    assert everything(store) == set()


def test_a_chain_that_is_called_at_every_step_is_walked_once(store):
    head = store.commit("main", [said("go")])
    side = ROOT
    for i in range(120):
        side = store.save_chain([said(f"prompt {i}")], side, called_by=head)
    store.gc(all_goes())
    assert len(store.load_chain(side)) == 120 and clean(store)


def test_now_is_behind_what_was_logged_in_this_very_millisecond(tmp_path):
    with Store.init(tmp_path / "store", clock=lambda: "2026-01-02T03:04:05.678Z") as store:
        store.commit("main", [said("hello")])
        store.delete("main")
        at = calendar.timegm((2026, 1, 2, 3, 4, 5)) + 0.678
        now = time.time()
        for before, gone in ((at - 0.0004, 0), (at + 0.0004, 1)):
            report = store.gc(GcOptions(now + DAY, now, reflog_before=before))
            assert report.pruned[Kind.MESSAGE] == gone


def test_the_reflog_keeps_a_deleted_conversation_until_it_expires(store):
    head = store.commit("main", [said("hello")])
    store.delete("main")
    now = time.time()
    store.gc(GcOptions(now + DAY, now, reflog_before=now - DAY))
    assert store.load_chain(head)
    report = store.gc(all_goes())
    assert report.pruned[Kind.NODE] == 1 and report.reflog_expired == 1
    assert everything(store) == set()


def many_moves(store: Store, folder: str, count: int = 100) -> None:
    """So many that gc puts them into the reflog's archive."""
    head = store.head("main")
    with store.storage.transaction() as transaction:
        for i in range(count):
            transaction.move(f"refs/conversations/{folder}/{i:03}", None, head, "fork")


def archive(store: Store) -> Path:
    (path,) = Path(store.path).glob("reflog-*.gz")
    return path


@pytest.mark.parametrize("quick", [False, True])
def test_older_moves_go_into_an_archive_and_are_found_there(store, quick):
    store.commit("main", [said("hello")])
    many_moves(store, "a")
    before = list(store.reflog())
    plain = Path(store.path, "reflog").read_bytes()
    store.gc(GcOptions(None, time.time(), quick=quick))
    assert gzip.decompress(archive(store).read_bytes()) == plain
    assert Path(store.path, "reflog").read_bytes() == f"# older moves: zcat {archive(store).name}\n".encode()
    assert list(store.reflog()) == before
    first = store.head("main")
    store.commit("main", [said("and on")])
    assert store.resolve("main@{1}") == first
    old = archive(store)
    many_moves(store, "b")
    before = list(store.reflog())
    store.gc(GcOptions(None, time.time(), quick=quick))
    assert list(store.reflog()) == before and archive(store) != old
    assert clean(store)


def test_what_the_archive_names_is_kept_until_it_expires(store):
    store.commit("main", [said("hello")])
    head = store.commit("gone", [said("gone")])
    store.delete("gone")
    many_moves(store, "a")
    store.gc(all_goes(reflog_before=None))
    assert archive(store) and store.load_chain(head)
    report = store.gc(all_goes())
    assert report.pruned[Kind.NODE] == 1 and report.reflog_expired == 1
    assert clean(store)


def test_a_dry_run_leaves_the_reflog_plain(store):
    store.commit("main", [said("hello")])
    many_moves(store, "a")
    store.gc(all_goes(dry_run=True))
    assert not list(Path(store.path).glob("reflog-*"))


def test_an_archive_that_a_crash_left_goes(store):
    store.commit("main", [said("hello")])
    many_moves(store, "a")
    store.gc(GcOptions(None, time.time()))
    stray = Path(store.path, f"reflog-{'0' * 32}.gz")
    stray.write_bytes(b"")
    stray.chmod(0o600)
    assert [(each.name, each.place, each.severity) for each in store.fsck()] == [
        ("stray-file", stray.name, Severity.INFO)
    ]
    assert store.gc(GcOptions(None, time.time())).strays == 1
    assert not stray.exists() and archive(store) and clean(store)


def test_nothing_is_deleted_while_the_archive_cannot_be_read(store):
    store.commit("main", [said("hello")])
    head = store.commit("gone", [said("gone")])
    store.delete("gone")
    many_moves(store, "a")
    store.gc(all_goes(reflog_before=None))
    path = archive(store)
    data = path.read_bytes()
    path.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    before = everything(store)
    for options in (all_goes(), all_goes(reflog_before=None)):
        with pytest.raises(CorruptFile, match="reflog-"):
            store.gc(options)
    assert everything(store) == before and store.load_chain(head)


def test_without_a_time_for_the_reflog_nothing_in_it_expires(store):
    head = store.commit("main", [said("hello")])
    store.delete("main")
    report = store.gc(all_goes(reflog_before=None))
    assert report.reflog_expired == 0 and store.load_chain(head)


# -- age ------------------------------------------------------------------------------------------


def test_grace_is_counted_from_the_time_of_the_file(store):
    old = saved_alone(store, said("old"))
    make_older(store, 15 * DAY)
    young = store.save_chain([said("young")])
    report = store.gc(at_day(0))
    assert (report.pruned[Kind.NODE], report.young[Kind.NODE]) == (1, 1)
    assert not store.storage.database.has(Kind.NODE, old)
    assert store.load_chain(young)


def test_young_garbage_keeps_all_that_it_needs(store):
    old = saved_alone(store, said("old"), picture(b"p" * 9000))
    make_older(store, 15 * DAY)
    young = store.save_chain([said("young")], old)
    store.gc(at_day(0))
    assert len(store.load_chain(young)) == 3
    assert store.load_chain(old)[1].parts[0].attachment.content == b"p" * 9000
    assert clean(store)


def test_packing_does_not_renew_the_time_of_young_garbage(store):
    store.commit("main", [said("kept")])
    garbage = saved_alone(store, said("garbage"))
    make_older(store, 10 * DAY)
    store.gc(at_day(0))
    assert store.load_chain(garbage)
    assert min(path.stat().st_mtime for path in packs(store)) == pytest.approx(time.time() - 10 * DAY, abs=60)
    store.gc(at_day(5))
    assert not store.storage.database.has(Kind.NODE, garbage)


def test_new_garbage_every_day_does_not_keep_the_old(store):
    heads = []
    for day in range(20):
        heads.append(saved_alone(store, said(f"garbage of day {day}")))
        then = time.time() + day * DAY
        node = store.storage.files.path(loose_name(Kind.NODE, heads[-1]))
        for kind, oid in everything(store):
            path = store.storage.files.path(loose_name(kind, oid))
            if os.path.exists(path):
                os.utime(path, (then, then))
        assert os.path.exists(node)
        store.gc(at_day(day, grace=4.5))
    there = [store.storage.database.has(Kind.NODE, head) for head in heads]
    assert there == [False] * 15 + [True] * 5


def test_what_is_sent_again_is_young_again(store):
    history = [said("hello"), said("hi", "assistant")]
    head = saved_alone(store, *history)
    make_older(store, 20 * DAY)
    store.save_with_dedup(history)
    store.gc(at_day(0))
    assert store.load_chain(head) == history


def test_never_deletes_nothing(store):
    saved_alone(store, said("garbage"))
    make_older(store, 900 * DAY)
    before = everything(store)
    report = store.gc(GcOptions(None, time.time()))
    assert everything(store) == before and report.young[Kind.NODE] == 1


def test_a_record_that_is_not_understood_is_copied_as_it_is(store):
    head = store.commit("main", [said("one")])
    raw = dumps({**call(head).to_dict(), "of_a_later_version": 1})
    oid = sha256(raw).hexdigest()
    with PackWriter(store.storage.files) as writer:
        writer.record(Kind.CALL, oid, raw)
        written = writer.finish()
    with store.storage.lock(), store.storage.index.changing() as db:
        first = store.storage.index.add_pack(db, written.pack, written.frames)
        store.storage.index.add(db, [Arrival(Kind.CALL, oid, place_packed(first, 0), call(head))])
    for _ in range(2):
        store.commit("main", [said("more")])
        store.gc(all_goes())
        assert [pack.name for pack in packs(store)] != [f"pack-{written.pack}.pack"] and len(packs(store)) == 1
        assert store.storage.database.read(Kind.CALL, oid)[1] == raw


# -- what a run does to the files -----------------------------------------------------------------


def test_a_second_run_writes_nothing(store):
    store.commit("main", [said(f"{i}") for i in range(80)])
    store.save_chain([said("young")])
    store.gc(at_day(0))
    before = objects_on_disk(store)
    store.gc(at_day(0))
    assert objects_on_disk(store) == before


def test_a_dry_run_changes_no_file_and_tells_what_the_run_does(store):
    for i in range(6):
        store.commit(f"c{i % 3}", [said(f"{i} {j}" + "y" * 300) for j in range(30)])
    store.commit("big", [said(f"big {j}") for j in range(90)])
    store.save_chain([picture(b"gone" * 3000)])
    store.delete("c1")
    before, reflog = objects_on_disk(store), store.storage.files.read("reflog", 1 << 20)
    options = all_goes()
    expected = store.gc(replace(options, dry_run=True))
    assert objects_on_disk(store) == before
    assert store.storage.files.read("reflog", 1 << 20) == reflog
    assert store.gc(options) == expected
    assert expected.pruned[Kind.PAYLOAD] == 1 and expected.disk_after < expected.disk_before


def test_a_dry_run_of_a_quick_run_tells_the_same(store):
    for i in range(4):
        store.commit(f"c{i}", [said(f"{i} {j}") for j in range(70)])
    store.commit("c9", [said("loose")])
    options = all_goes(quick=True)
    expected = store.gc(replace(options, dry_run=True))
    assert store.gc(options) == expected and expected.packs_after == 1


def test_a_quick_run_never_takes_the_parent_of_a_node_that_stays(store, monkeypatch):
    root = store.save_chain([said("first")])
    store.pack()
    child = store.save_chain([said(f"later {i} " + os.urandom(3000).hex()) for i in range(70)], root)
    small, large = sorted(path.stat().st_size for path in packs(store))
    monkeypatch.setattr(objstore.gc, "SMALL_PACK_BYTES", (small + large) // 2)
    store.save_chain([said("loose")])
    store.gc(all_goes(quick=True))
    assert len(store.load_chain(child)) == 71 and clean(store)
    assert store.find_longest_existing_prefix([said("first")]) == (root, 1)


def test_loose_copies_of_what_is_packed_go(store, tmp_path):
    head = store.commit("main", [said("hello")])
    store.storage.checkpoint()
    name = loose_name(Kind.NODE, head)
    copy = store.storage.files.read(name, 1 << 20)
    store.pack()
    store.storage.files.replace(name, copy)
    report = store.gc(at_day(0))
    assert store.storage.files.stat(name) is None and report.strays == 1
    assert store.load_chain(head) and clean(store)


def test_old_temporary_files_go_and_young_ones_stay(store):
    files = store.storage.files
    for name, age in ((".tmp-old", 2 * 3600), ("objects/pack/.tmp-old", 2 * 3600), (".tmp-young", 60)):
        files.place(name, b"x")
        files.touch(name, time.time() - age)
    report = store.gc(at_day(0))
    assert report.strays == 2
    assert files.stat(".tmp-young") is not None and files.stat(".tmp-old") is None


def test_packs_hold_conversations_in_chain_order(store):
    a = store.commit("a", [said("shared"), said("a1")])
    store.fork(store.node(a).parent, "b")
    store.commit("b", [said("b1")])
    store.commit("a", [said("a2")])
    store.gc(at_day(0))
    (pack,) = packs(store)
    lines = store.storage.database.frame(store.storage.database.locate(Kind.NODE, a)).lines
    assert pack.name
    texts = [line.decode() for line in lines if line.startswith(b'{"parts"')]
    assert [t.split('"')[5] for t in texts] == ["shared", "a1", "a2", "b1"]


def test_packs_hold_conversations_that_share_a_message_side_by_side(store):
    for i in range(8):
        store.commit(
            f"{i}", [said(f"first {i}"), said(f"{i % 4} is said again"), said("go on"), said(f"last {i}")]
        )
    store.gc(at_day(0))
    (pack,) = packs(store)
    assert pack.name
    lines = store.storage.database.frame(store.storage.database.locate(Kind.NODE, store.head("0"))).lines
    texts = [line.decode().split('"')[5] for line in lines if line.startswith(b'{"parts"')]
    firsts = [text for text in texts if text.startswith("first")]
    assert firsts == [f"first {i}" for i in (0, 4, 1, 5, 2, 6, 3, 7)]
    assert clean(store)


def test_the_index_has_no_half_empty_pages_afterwards(store, tmp_path):
    for i in range(30):
        store.commit("a", [said(f"{i} {j}") for j in range(100)])  # too many for the journal
    store.gc(at_day(0))
    size = (store.path / "index.sqlite").stat().st_size
    with store.storage.index.reading() as db:
        db.execute("VACUUM INTO ?", (str(tmp_path / "anew.sqlite"),))
    assert size == (tmp_path / "anew.sqlite").stat().st_size
    assert clean(store)


# -- on doubt nothing is deleted ------------------------------------------------------------------


def spoil(store, path, data=b"spoiled"):
    with open(store.storage.files.path(path), "r+b") as file:
        file.write(data)


def test_an_unreadable_ref_stops_it(store):
    store.commit("main", [said("hello")])
    saved_alone(store, said("garbage"))
    store.storage.checkpoint()
    spoil(store, "refs/conversations/main")
    before = objects_on_disk(store)
    with pytest.raises(CorruptFile):
        store.gc(all_goes())
    assert objects_on_disk(store) == before


def test_a_ref_to_what_is_not_stored_stops_it(store):
    store.commit("main", [said("hello")])
    saved_alone(store, said("garbage"))
    store.storage.checkpoint()
    spoil(store, "refs/conversations/main", b"0" * 64)
    before = objects_on_disk(store)
    with pytest.raises(CorruptFile):
        store.gc(all_goes())
    assert objects_on_disk(store) == before


@pytest.mark.parametrize("kind", [Kind.NODE, Kind.MESSAGE])
def test_a_live_object_that_cannot_be_read_stops_it(store, kind):
    head = store.commit("main", [said("hello")])
    saved_alone(store, said("garbage"))
    store.storage.checkpoint()
    oid = head if kind is Kind.NODE else store.node(head).message
    spoil(store, loose_name(kind, oid))
    before = objects_on_disk(store)
    with pytest.raises((CorruptObject, CorruptFile)):
        store.gc(all_goes())
    assert objects_on_disk(store) == before


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM node WHERE row = 1",
        "DELETE FROM message WHERE row = 1",
        "UPDATE node SET parent = 1000 WHERE row = 2",
        "UPDATE node SET message = 1000 WHERE row = 2",
        "UPDATE node SET parent = -1 WHERE row = 2",
        "UPDATE node SET message = -1 WHERE row = 2",
        "UPDATE node SET message = 'one' WHERE row = 2",
        "UPDATE node SET row = 1 << 40 WHERE row = 3",
        "UPDATE note_run SET note = 1000",
        "UPDATE note_run SET note = 'one'",
        "UPDATE call_edge SET asked = 'one'",
        "UPDATE call_edge SET call = 1000",
        "UPDATE call_edge SET instructions = 1000",
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_an_index_in_which_a_live_chain_leads_nowhere_stops_it(store, damage, dry_run):
    store.commit("main", [said("one"), said("two"), said("three")], call=NewCall(model="m"))
    saved_alone(store, said("garbage"))
    store.pack()
    with store.storage.index.changing() as db:
        db.execute(damage)
    before = objects_on_disk(store)
    with pytest.raises(CorruptFile):
        store.gc(all_goes(dry_run=dry_run))
    assert objects_on_disk(store) == before


@pytest.mark.parametrize("kind", [Kind.NODE, Kind.MESSAGE, Kind.NOTE])
@pytest.mark.parametrize("step", [1, 16384 // 2, 16384, -16384])
def test_an_index_that_says_wrongly_where_a_live_object_stands_stops_it(store, kind, step):
    store.commit("main", [said("one"), said("two"), said("three")], note={"from": "here"})
    saved_alone(store, said("garbage"))
    store.pack()
    with store.storage.index.changing() as db:
        db.execute(f"UPDATE {kind} SET loc = loc + ? WHERE row = 1", (step,))
    before = objects_on_disk(store)
    with pytest.raises(DagError):
        store.gc(all_goes())
    assert before.items() <= objects_on_disk(store).items()


def test_rows_that_earlier_runs_left_empty_are_no_objects(store):
    heads = [store.commit(f"c{i}", [said(f"{i} {j}") for j in range(3)]) for i in range(6)]
    for i in (0, 2, 3):
        store.delete(f"c{i}")
    assert store.gc(all_goes()).pruned[Kind.NODE] == 9
    report = store.gc(all_goes(dry_run=True))
    assert report.kept[Kind.NODE] == report.kept[Kind.MESSAGE] == 9 and not any(report.pruned.values())
    store.delete("c5")
    assert store.gc(all_goes()).pruned[Kind.NODE] == 3
    assert [len(store.load_chain(heads[i])) for i in (1, 4)] == [3, 3] and clean(store)


def test_an_index_that_lost_a_parent_stops_it(store):
    head = store.commit("main", [said("one"), said("two")])
    saved_alone(store, said("garbage"))
    store.storage.checkpoint()
    with store.storage.index.changing() as db:
        db.execute("DELETE FROM node WHERE depth=1 AND row IN (SELECT parent FROM node)")
    before = objects_on_disk(store)
    with pytest.raises(DagError):
        store.gc(all_goes())
    assert objects_on_disk(store) == before
    store.reindex()
    assert len(store.load_chain(head)) == 2


# -- what others do between marking and sweeping --------------------------------------------------


def gc_with(store: Store, between, options=None):
    """Run gc; when it is about to take the lock for the sweep, let another store do something, once."""
    called = []

    def progress(what, done, total):
        if (what, done) == ("sweep", 0) and not called:
            called.append(True)
            with Store.open(store.path) as other:
                between(other)

    return store.gc(options or all_goes(), progress=progress)


def test_a_commit_between_is_kept(store):
    store.commit("main", [said("one")])
    gc_with(store, lambda other: other.commit("main", [said("two")]))
    assert len(store.load_chain(store.head("main"))) == 2 and clean(store)


@pytest.mark.parametrize("packed", [False, True])
def test_garbage_that_is_named_between_is_kept(store, packed):
    dead = store.save_chain([said("one"), said("two"), picture(b"p" * 8000)])
    if packed:
        store.pack()
    gc_with(store, lambda other: other.fork(dead, "again"))
    assert len(store.load_chain(dead)) == 3 and clean(store)


@pytest.mark.parametrize("packed", [False, True])
def test_garbage_that_is_built_on_between_is_kept(store, packed):
    history = [said("one"), said("two")]
    dead = store.save_chain(history)
    if packed:
        store.pack()
    heads = []
    gc_with(store, lambda other: heads.append(other.save_chain([said("three")], dead)))
    assert len(store.load_chain(heads[0])) == 3 and clean(store)


def test_garbage_that_is_sent_again_between_is_kept(store):
    history = [said("one"), said("two")]
    head = saved_alone(store, *history)
    make_older(store, 20 * DAY)
    gc_with(store, lambda other: other.save_with_dedup(history), at_day(0))
    assert store.load_chain(head) == history and clean(store)


def test_a_call_that_is_recorded_between_keeps_what_it_names(store):
    dead = store.save_chain([said("one")])
    gc_with(store, lambda other: other.record(call(dead, conversation="elsewhere")))
    assert store.load_chain(dead) and len(store.calls(dead)) == 1 and clean(store)


def test_another_gc_and_new_objects_in_the_rows_it_freed_are_noticed(store):
    store.commit("main", [said("kept")])
    for i in range(5):
        store.save_chain([said(f"garbage {i}")])
    saved = []

    def between(other):
        other.gc(all_goes())
        saved.append(other.save_chain([said("in the row of garbage"), said("and its child")]))

    gc_with(store, between, GcOptions(time.time() - 1, time.time(), reflog_before=time.time() + DAY))
    assert len(store.load_chain(saved[0])) == 2
    assert len(store.load_chain(store.head("main"))) == 1 and clean(store)


def test_an_index_made_anew_between_is_noticed(store):
    for i in range(4):
        store.commit(f"c{i}", [said(f"{i} {j}") for j in range(5)])
        store.save_chain([said(f"garbage {i}")])
    gc_with(store, lambda other: other.reindex())
    assert all(len(store.load_chain(each.head)) == 5 for each in store.conversations())
    assert store.storage.index.counts()[Kind.NODE] == 20 and clean(store)


def test_loose_objects_that_are_packed_between_are_found(store):
    head = store.commit("main", [said("one"), said("two")])
    dead = store.save_chain([said("garbage")])
    gc_with(store, lambda other: other.pack())
    assert len(store.load_chain(head)) == 2 and clean(store)
    store.gc(all_goes())
    assert not store.storage.database.has(Kind.NODE, dead)


def test_a_reader_with_an_old_view_finds_what_was_moved(store):
    with Store.open(store.path) as reader:
        head = store.commit("main", [said(f"{i} " + "z" * 900) for i in range(80)])
        other = store.commit("other", [said(f"other {i}") for i in range(80)])
        assert len(reader.load_chain(head)) == 80
        for i in range(3):
            store.save_chain([said(f"garbage {i} {j}") for j in range(80)])
            store.gc(all_goes())
            store.commit("main", [said(f"more {i} {j}") for j in range(70)])
            assert len(reader.load_chain(head)) == 80
            assert len(reader.load_chain(other)) == 80


def test_packing_by_hand_packs_everything_and_loses_nothing(store):
    for i in range(5):
        store.commit("main", [said(f"{i}")])
    before = everything(store)
    assert store.pack() == 15
    assert store.storage.index.loose_count() == 0 and everything(store) == before and clean(store)
    assert store.pack() == 0


def test_prune_now_takes_what_was_saved_just_before(store):
    head = store.save_chain([said("hello")])
    now = time.time()
    expected = store.gc(GcOptions(now, now, dry_run=True))
    assert store.gc(GcOptions(now, now)) == expected and expected.pruned[Kind.NODE] == 1
    assert not store.storage.database.has(Kind.NODE, head)


def test_progress_is_told_and_ends(store):
    store.commit("main", [said("hello")])
    told = []
    store.gc(at_day(0), progress=lambda *each: told.append(each))
    assert {what for what, _, _ in told} == {"mark", "pack", "sweep"}
    assert told[-1] == ("sweep", 1, 1) and list(store.fsck(Level.QUICK)) == []
