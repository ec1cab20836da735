"""What holds of every remote, a folder or an object storage."""

from __future__ import annotations

import random
import sqlite3

import pytest

from objstore import NewCall
from objstore.attachment import Attachment
from objstore.kinds import Kind
from objstore.message import AttachmentPart, Message, TextPart
from objstore.pack import PackReader, list_packs
from objstore.transfer import push as pushing
from objstore.transfer.report import How
from refs.errors import DagError, NoSuchRef
from refs.ids import ROOT
from tests.storetools import indexed, say, talk, words_of
from tests.transfer.parties import folder_place

LONG = [f"word {i} of a story that goes on" for i in range(200)]


def ids(party):
    return indexed(party.store)


@pytest.fixture
def alice(place):
    return place.party("alice")


@pytest.fixture
def bob(place):
    return place.party("bob")


def attached(data: bytes) -> Message:
    return Message("user", (TextPart("look"), AttachmentPart(Attachment("image/png", content=data))))


def test_all_that_was_pushed_arrives_with_descriptions_and_tags(alice, bob):
    alice.store.commit("trip", talk(*LONG), note={"from": "test"})
    alice.store.commit("deep/er", [attached(random.Random(1).randbytes(20_000))])
    alice.store.describe("trip", title="Rome")
    alice.store.tag("v1", alice.store.head("trip"))
    sent = alice.push(everything=True, tags=("v1",))
    assert sent.objects[Kind.NODE] == 201
    assert sent.objects[Kind.PAYLOAD] == 1
    got = bob.pull()
    assert got.objects == sent.objects
    assert ids(bob) == ids(alice)
    assert bob.store.head("trip") == alice.store.head("trip")
    assert bob.store.description("trip").title == "Rome"
    assert dict(bob.store.tags()) == dict(alice.store.tags())
    assert bob.store.load_chain(bob.store.head("deep/er")) == alice.store.load_chain(alice.store.head("deep/er"))
    assert list(bob.store.fsck()) == []


def test_what_arrives_is_packed_with_each_message_beside_its_node(alice, bob):
    """However the frames of the packs that came were filled."""
    noise = random.Random(5)
    for name in "abc":
        alice.store.commit(name, [say(f"{name} {i} {noise.randbytes(2000).hex()}") for i in range(45)])
        alice.push(name)
    bob.pull()
    files = bob.store.storage.files
    told = []
    for pack in list_packs(files):
        reader = PackReader(files, pack)
        frames = [reader.frame(*place) for place in reader.frames()]
        reader.close()
        told += [frame.members(at)[1] for frame in frames for at in _nodes(frame)]
    assert len(told) == 135
    assert all(isinstance(message, int) for message in told)


def _nodes(frame):
    return [at for at in range(len(frame.lines)) if frame.kind(at) is Kind.NODE]


def test_a_second_push_and_a_second_pull_move_nothing(alice, bob):
    alice.store.commit("trip", talk(*LONG))
    alice.push(everything=True)
    bob.pull()
    for report in (alice.push(everything=True), bob.pull(), bob.push(everything=True), alice.pull()):
        assert (report.objects, report.bytes, report.moved) == ({}, 0, [])


def statements(index, act) -> int:
    """How many statements an act asks an index for."""
    count = 0

    def trace(_: str) -> None:
        nonlocal count
        count += 1

    with index.reading() as db:
        db.set_trace_callback(trace)
    try:
        act()
    finally:
        with index.reading() as db:
            db.set_trace_callback(None)
    return count


def test_syncing_what_has_not_changed_costs_by_the_refs_and_not_by_the_objects(place):
    counts = []
    for size in (10, 1000):
        party = place.party(f"with-{size}")
        name = f"conversation-of-{size}"
        party.store.commit(name, talk(*(f"{size} {i}" for i in range(size))))
        for _ in range(2):
            party.push(name)
            party.fetch()
        fetches = statements(party.store.storage.index, party.fetch)
        pushes = statements(party.store.storage.index, lambda party=party, name=name: party.push(name))
        counts.append((fetches, pushes))
    assert counts[1][0] <= counts[0][0] + 20  # the second one has fetched one conversation more
    assert counts[1][1] <= counts[0][1] + 5


def test_only_what_is_missing_is_sent(alice, bob, tmp_path):
    rng = random.Random(7)
    alice.store.commit("trip", talk(*(rng.randbytes(300).hex() for _ in range(200))))
    first = alice.push("trip").bytes
    bob.pull()
    new = talk(*(rng.randbytes(300).hex() for _ in range(20)))
    bob.store.commit("trip", new)
    alone = folder_place(tmp_path / "elsewhere").party("alone")
    alone.store.commit("new", new)
    second = bob.push("trip")
    assert second.objects[Kind.NODE] == second.objects[Kind.MESSAGE] == 20
    assert second.bytes <= alone.push("new").bytes * 1.2 + 200
    assert second.bytes < first / 5
    got = alice.pull()
    assert got.objects == second.objects
    assert got.bytes <= second.bytes


def test_heads_only_move_forward(alice, bob):
    alice.store.commit("trip", talk("one"))
    alice.push("trip")
    bob.pull()
    bob.store.commit("trip", talk("two"))
    assert [moved.how for moved in bob.push("trip").moved] == [How.FORWARD]
    alice.store.commit("trip", talk("three"))
    refused = alice.push("trip")
    assert refused.moved == []
    assert "fetch first" in refused.refused[0].reason
    assert alice.heads()["refs/conversations/trip"] == bob.store.head("trip")
    alice.fetch()
    assert [parted.name for parted in alice.push("trip").diverged] == ["trip"]
    assert alice.heads()["refs/conversations/trip"] == bob.store.head("trip")


def test_where_both_went_on_both_heads_are_kept_until_somebody_joins_them(alice, bob):
    alice.store.commit("trip", talk("one"))
    alice.push("trip")
    bob.pull()
    alice.store.commit("trip", [say("alice")])
    bob.store.commit("trip", [say("bob")])
    bob.push("trip")
    mine = alice.store.head("trip")
    report = alice.pull()
    assert [(p.name, p.ours, p.theirs, p.forked) for p in report.diverged] == [
        ("trip", mine, bob.store.head("trip"), None)
    ]
    assert alice.store.head("trip") == mine
    assert alice.store.resolve("remotes/origin/conversations/trip") == bob.store.head("trip")
    assert [p.forked for p in alice.pull(fork=True).diverged] == ["trip.origin"]
    assert words_of(alice.store.load_chain(alice.store.head("trip.origin"))) == ["one", "bob"]
    again = alice.pull(fork=True)
    assert [p.forked for p in again.diverged] == ["trip.origin"]
    assert again.moved == []
    bob.store.commit("trip", [say("more")])
    bob.push("trip")
    alice.pull(fork=True)
    assert alice.store.head("trip.origin") == bob.store.head("trip")


def test_force_replaces_the_head_it_names_and_no_other(alice, bob):
    alice.store.commit("trip", talk("one"))
    alice.push("trip")
    bob.pull()
    old = bob.store.head("trip")
    bob.store.commit("trip", talk("two"))
    bob.push("trip")
    alice.store.reset("trip", alice.store.commit("other", talk("new")))
    wrong = alice.push("trip", force=old)
    assert wrong.moved == []
    assert alice.heads()["refs/conversations/trip"] == bob.store.head("trip")
    right = alice.push("trip", force=bob.store.head("trip"))
    assert [moved.how for moved in right.moved] == [How.FORCED]
    assert alice.heads()["refs/conversations/trip"] == alice.store.head("trip")


def test_calls_notes_and_side_chains_behind_a_shared_head_arrive(alice, bob):
    head = alice.store.commit("trip", talk("one", "two", "three"))
    alice.push(everything=True)
    bob.pull()
    middle = alice.store.resolve("trip~1")
    side = alice.store.save_chain(talk("go", "done"), called_by=head, tool_call_id="call_1")
    alice.store.record_exchange(talk("one"), [say("retry", "assistant")], call=NewCall(model="m"))
    alice.store.commit("trip", [], call=NewCall(model="m", error="refused"))
    alice.store.summarize([middle], say("in short"))
    with alice.store.transaction() as transaction:
        from objstore.records import Note  # noqa: PLC0415

        transaction.put_record(
            Note(note="01J00000000000000000000009", at="2026-01-02T03:04:05.678Z", nodes={middle: {"flag": True}})
        )
    assert alice.store.head("trip") == head
    alice.push(everything=True)
    bob.pull()
    assert ids(bob) == ids(alice)
    assert [spawn.first for spawn in bob.store.called_from(head)] == [
        spawn.first for spawn in alice.store.called_from(head)
    ]
    longer = alice.store.save_chain(talk("and", "more"), side)
    alice.push("trip")
    bob.pull()
    assert bob.store.depth(longer) == 4


def test_a_call_that_came_before_its_history_was_shared_arrives_with_it(alice, bob):
    alice.store.commit("open", talk("hello"))
    alice.store.commit("private", talk("secret"), call=NewCall(model="m"))
    alice.push("open")
    bob.store.commit("private", talk("secret"))
    bob.push("private")
    alice.push("private")
    bob.pull()
    assert len(bob.store.calls()) == 1


def test_what_nothing_shared_leads_to_stays_at_home(alice, bob):
    alice.store.commit("open", talk("hello", "hi"))
    alice.push("open")
    alice.store.fork(alice.store.resolve("open"), "private")
    secret = alice.store.commit("private", talk("secret"))
    alice.push("open")
    bob.pull()
    assert not bob.store.storage.database.has(Kind.NODE, secret)


def test_calls_of_stateless_clients_go_along_with_everything(alice, bob):
    alice.store.record_exchange(talk("stateless"), [say("answer", "assistant")], call=NewCall(model="m"))
    alice.store.commit("trip", talk("one"))
    alice.push("trip")
    bob.pull()
    assert bob.store.calls() == []
    alice.push(everything=True)
    bob.pull()
    assert ids(bob) == ids(alice)


def test_equal_conversations_of_two_machines_are_the_same_nodes_and_both_notes_are_kept(alice, bob):
    for party, source in ((alice, "laptop"), (bob, "desk")):
        party.store.commit("trip", talk(*LONG), note={"from": source})
    assert alice.store.head("trip") == bob.store.head("trip")
    alice.push("trip")
    bob.pull()
    bob.push("trip")
    got = alice.pull()
    assert Kind.NODE not in got.objects
    assert {note.members["from"] for note in alice.store.notes(alice.store.head("trip"))} == {"laptop", "desk"}
    assert ids(alice) == ids(bob)


def test_a_tag_is_never_replaced(alice, bob):
    alice.store.tag("v1", alice.store.commit("trip", talk("one")))
    bob.store.tag("v1", bob.store.commit("trip", talk("two")))
    alice.push("trip", tags=("v1",))
    before = dict(bob.store.tags())
    report = bob.pull()
    assert dict(bob.store.tags()) == before
    assert [(each.name, each.reason) for each in report.refused] == [
        ("refs/tags/v1", "there is another tag of that name here")
    ]
    assert [each.name for each in bob.push(tags=("v1",)).refused] == ["refs/tags/v1"]
    assert alice.heads()["refs/tags/v1"] == dict(alice.store.tags())["v1"]


def test_a_description_follows_its_last_change_and_one_changed_on_both_sides_stays(alice, bob):
    alice.store.commit("trip", talk("one"))
    alice.store.describe("trip", title="first")
    alice.push("trip")
    bob.pull()
    alice.store.describe("trip", title="second")
    alice.push("trip")
    bob.pull()
    assert bob.store.description("trip").title == "second"
    bob.pull()
    alice.store.describe("trip", title="alice's")
    alice.push("trip")
    bob.store.describe("trip", title="bob's")
    report = bob.pull()
    assert bob.store.description("trip").title == "bob's"
    assert [each.name for each in report.refused] == ["refs/descriptions/trip"]


def test_a_conversation_deleted_here_comes_back_when_it_is_named_or_went_on(alice, bob):
    alice.store.commit("trip", talk("one"))
    alice.push("trip")
    bob.pull()
    bob.store.delete("trip")
    report = bob.pull()
    assert bob.store.head("trip") is None
    assert [each.name for each in report.skipped] == ["refs/conversations/trip"]
    bob.pull("trip")
    assert bob.store.head("trip") == alice.store.head("trip")
    bob.store.delete("trip")
    alice.store.commit("trip", talk("two"))
    alice.push("trip")
    bob.pull()
    assert bob.store.head("trip") == alice.store.head("trip")


def test_a_name_deleted_there_is_free_again_and_its_heads_stay_here(alice, bob, place):
    alice.store.commit("trip", talk("one"))
    alice.push("trip")
    bob.pull()
    with alice.remote() as remote:
        pushing.delete(alice.store.storage, remote, "origin", ["refs/conversations/trip"])
    assert alice.heads() == {}
    bob.pull()
    assert bob.store.head("trip") == alice.store.head("trip")
    assert not list(bob.store.refs("refs/remotes/"))
    bob.store.commit("trip", talk("two"))
    bob.push("trip")
    assert alice.heads() == {"refs/conversations/trip": bob.store.head("trip")}


def test_only_the_conversations_that_are_named_are_pulled(alice, bob):
    alice.store.commit("one", talk("one"))
    alice.store.commit("two", talk("two"))
    alice.push(everything=True)
    bob.pull("one")
    assert [each.name for each in bob.store.conversations()] == ["one"]
    with pytest.raises(NoSuchRef):
        bob.pull("three")


def test_a_dry_run_tells_and_changes_nothing(alice, bob):
    alice.store.commit("trip", talk(*LONG))
    would = alice.push("trip", dry_run=True)
    assert alice.heads() == {}
    assert would.bytes == alice.push("trip").bytes
    would = bob.fetch(dry_run=True)
    assert would.bytes > 0
    assert ids(bob) == set()
    assert not list(bob.store.refs())
    assert would.bytes == bob.fetch().bytes


def test_names_of_any_script_and_depth_travel(alice, bob):
    for name in ("reise/zürich", "旅行", "a.b-c_d", "x=y", "100%"):
        alice.store.commit(name, talk(name))
    alice.push(everything=True)
    bob.pull()
    assert {each.name for each in bob.store.conversations()} == {each.name for each in alice.store.conversations()}


def test_forks_of_one_history_are_sent_once(alice, bob):
    alice.store.commit("trip", talk(*LONG))
    for i in range(30):
        alice.store.fork(alice.store.resolve(f"trip~{i * 5}"), f"fork-{i}")
        alice.store.commit(f"fork-{i}", talk(f"fork {i}"))
    sent = alice.push(everything=True)
    assert sent.objects[Kind.NODE] == 230
    bob.pull()
    assert ids(bob) == ids(alice)
    assert len(bob.store.children(ROOT)) == 1


def test_what_was_learnt_of_a_remote_may_be_deleted(alice, bob):
    alice.store.commit("trip", talk("one"))
    alice.push("trip")
    bob.pull()
    for party in (alice, bob):
        for path in (party.store.path / "sync").iterdir():
            path.write_bytes(b"damaged" * 1000)
    alice.store.commit("trip", talk("two"))
    alice.push("trip")
    bob.pull()
    bob.store.commit("trip", talk("three"))
    bob.push("trip")
    alice.pull()
    assert ids(alice) == ids(bob)


def test_what_gc_took_here_comes_again_when_it_is_needed(alice, bob):
    from objstore.gc import GcOptions  # noqa: PLC0415

    alice.store.commit("trip", talk(*LONG))
    alice.push("trip")
    bob.pull()
    bob.store.delete("trip")
    for ref, oid in list(bob.store.refs("refs/remotes/")):
        with bob.store.transaction() as transaction:
            transaction.move(ref, oid, None, "forget")
    now = 4e9
    bob.store.gc(GcOptions(prune_before=now, now=now, reflog_before=now))
    bob.store.storage.refs.reflog.expire("9999", keep_last=False)
    bob.store.gc(GcOptions(prune_before=now, now=now, reflog_before=now))
    assert not bob.store.storage.database.has(Kind.NODE, alice.store.head("trip"))
    bob.pull("trip")
    assert ids(bob) == ids(alice)


def test_the_memory_of_a_remote_is_a_plain_cache_beside_the_store(alice):
    alice.store.commit("trip", talk("one"))
    alice.push("trip")
    [path] = (alice.store.path / "sync").glob("*.sqlite")
    assert path.stat().st_mode & 0o077 == 0
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert list(alice.store.fsck()) == []


def test_no_byte_of_the_memory_of_a_remote_brings_an_unknown_error_and_a_damaged_one_is_made_anew(alice, bob):
    alice.store.commit("trip", talk("one"))
    alice.push("trip")
    bob.fetch()
    [path] = (bob.store.path / "sync").glob("*.sqlite")
    data = path.read_bytes()
    told = 0
    for at in [at for at, byte in enumerate(data) if byte][::7]:
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
        try:
            bob.fetch()
        except DagError as error:
            told += 1
            assert path.name in str(error), at
            bob.fetch()
    assert told
    assert ids(bob) == ids(alice)
