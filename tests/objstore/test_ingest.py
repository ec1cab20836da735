"""Transcripts into a store: what an import makes of them the first time, and every time after."""

import gc
import random
import time

import pytest

from objstore import ingest as module
from objstore.entrytree import NOWHERE, EntryTree
from objstore.gc import GcOptions
from objstore.ingest import CHUNK_ENTRIES, Ingest
from objstore.kinds import Kind
from objstore.message import Message, TextPart, ToolCallPart
from objstore.records import Description
from objstore.transaction import NewObject
from objstore.transcripts.model import Entry, Head, SourceCall, Transcript
from refs.errors import InvalidValue, ObjectMissing
from refs.names import description_ref
from tests.storetools import init_quiet, quiet_store, say, talk, words_of


@pytest.fixture
def store(tmp_path):
    with init_quiet(tmp_path / "store") as made:
        yield made


def session(*words, id="s", **about):
    """A linear session: each word a message."""
    entries = [Entry(f"{i}", f"{i - 1}" if i else None, message) for i, message in enumerate(talk(*words))]
    return Transcript("test", id, entries, [Head(entries[-1].key, id, True)] if entries else [], **about)


def tree(*paths, id="s", active=0):
    """A session of several branches: each path is a text of one-letter messages."""
    entries, heads = {}, []
    for number, path in enumerate(paths):
        for end in range(1, len(path) + 1):
            key = path[:end]
            entries.setdefault(key, Entry(key, key[:-1] or None, say(key[-1])))
        heads.append(Head(path, f"{id}/{path}", number == active))
    return Transcript("test", id, list(entries.values()), heads)


def ingest(store, *transcripts, **options):
    with Ingest(store, **options) as one:
        return [one.add(each) for each in transcripts]


def ingested(store, *transcripts):
    """Names and what is said there, once these have been imported one after the other, each by itself."""
    for each in transcripts:
        ingest(store, each)
    return held(store)


def held(store):
    return {each.name: "".join(words_of(store.load_chain(each.head))) for each in store.conversations()}


def counts(store):
    return {kind.value: sum(1 for _ in store.storage.database.ids(kind)) for kind in Kind}


# -- the first time -------------------------------------------------------------------------------


def test_a_session_becomes_a_conversation_with_notes_and_a_description(store):
    transcript = session("why?", "so", title="A question", model="m-1", created_at="2026-03-04T05:06:07.890Z")
    transcript.entries[0] = Entry("0", None, say("why?"), "2026-03-04T05:06:07.890Z", note={"hidden": True})
    [done] = ingest(store, transcript)
    assert (done.name, done.messages, done.new, done.created) == ("test/s", 2, 2, ["test/s"])
    about = store.description("test/s")
    assert (about.title, about.model, about.created_at) == ("A question", "m-1", "2026-03-04T05:06:07.890Z")
    assert about.source == {"format": "test", "id": "s", "importer": "msgdag 1"}
    first = list(store.walk(store.head("test/s")))[-1]
    [note] = store.notes(first.id)
    assert note.members == {"hidden": True, "key": "0", "at": "2026-03-04T05:06:07.890Z"}


def test_nothing_of_the_source_is_part_of_an_id(store):
    transcript = session("why?", "so", title="A question", id="other")
    ingest(store, transcript)
    assert store.head("test/other") == store.save_chain(talk("why?", "so"))


def test_the_active_branch_has_the_sessions_own_name_and_others_that_of_where_they_leave(store):
    leaves = store.save_chain([say("a"), say("b"), say("x")])
    assert ingested(store, tree("abx", "abcd", active=1)) == {"test/s": "abcd", f"test/s.at-{leaves[:10]}": "abx"}


def test_a_side_chain_knows_who_asked_for_it(store):
    asks = Message("assistant", [ToolCallPart("Task", {}, "call_1")])
    entries = [
        Entry("u", None, say("go")),
        Entry("a", "u", asks),
        Entry("x", None, say("do it"), called_by="a", tool_call_id="call_1"),
    ]
    ingest(store, Transcript("test", "s", entries, [Head("a", "s", True), Head("x", "s/x")]))
    [spawn] = store.called_from(store.head("test/s"))
    assert spawn.tool_call_id == "call_1"


def test_a_long_session_is_taken_in_in_portions(store):
    words = [f"word {i}" for i in range(2 * CHUNK_ENTRIES + 7)]
    [done] = ingest(store, session(*words))
    assert (done.messages, done.new) == (len(words), len(words))
    assert words_of(store.load_chain(store.head("test/s"))) == words


def test_entries_that_say_the_same_at_one_place_are_one_node(store):
    entries = [
        Entry("a", None, say("why?")),
        Entry("b", "a", say("so")),
        Entry("b again", "a", say("so")),
        Entry("c", "b again", say("ah")),
    ]
    heads = [Head("c", "s", True), Head("b", "s/b")]
    [done] = ingest(store, Transcript("test", "s", entries, heads))
    assert (done.messages, done.new, done.created) == (4, 3, ["test/s"])
    assert held(store) == {"test/s": "why?soah"}


def test_an_entry_before_its_parent_is_refused_and_leaves_no_conversation(store):
    with pytest.raises(InvalidValue, match="'nowhere' does not come before 'a'"):
        ingest(store, Transcript("test", "s", [Entry("a", "nowhere", say("why?"))]))
    assert held(store) == {}


def test_an_empty_transcript_makes_no_conversation(store):
    [done] = ingest(store, session())
    assert (done.messages, done.created, held(store)) == (0, [], {})


# -- again ----------------------------------------------------------------------------------------


def test_importing_again_writes_nothing(store, tmp_path):
    ingest(store, tree("abx", "abcd"), session("why?", "so", id="t", title="T"))
    before = snapshot(tmp_path)
    [first, second] = ingest(store, tree("abx", "abcd"), session("why?", "so", id="t", title="T"))
    assert (first.new, second.new, first.created, second.moved) == (0, 0, [], [])
    assert snapshot(tmp_path) == before


def snapshot(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith("index.sqlite")
    }


def test_a_session_that_grew_moves_its_ref_forward(store):
    assert ingested(store, session(*"ab"), session(*"abcd")) == {"test/s": "abcd"}
    assert [entry.reason for entry in store.reflog("test/s")] == ["import", "import"]


def test_only_what_is_new_is_written(store):
    ingest(store, session(*"ab"))
    before = counts(store)
    [done] = ingest(store, session(*"abcd"))
    assert (done.new, done.known, done.moved) == (2, 2, ["test/s"])
    assert counts(store)["node"] == before["node"] + 2


def test_an_older_copy_after_a_newer_changes_nothing(store, tmp_path):
    ingest(store, session(*"abcd"))
    before = snapshot(tmp_path)
    for older in (session(*"ab"), session(*"abc"), session("a")):
        [done] = ingest(store, older)
        assert (done.new, done.created, done.moved) == (0, [], [])
    assert snapshot(tmp_path) == before


def test_a_session_that_was_rewound_is_a_fork_with_a_stable_name_and_the_old_head_stays(store, tmp_path):
    first = store.save_chain([say("a"), say("x")])
    expected = {"test/s": "abcd", f"test/s.at-{first[:10]}": "axy"}
    assert ingested(store, tree("abcd"), tree("axy")) == expected
    with init_quiet(tmp_path / "other") as other:
        assert ingested(other, tree("abcd"), tree("axy"), tree("abcd")) == expected


def test_a_session_that_grows_after_it_was_rewound_moves_that_fork(store):
    first = store.save_chain([say("a"), say("x")])
    assert ingested(store, tree("abcd"), tree("axy"), tree("axyz")) == {
        "test/s": "abcd",
        f"test/s.at-{first[:10]}": "axyz",
    }


def test_a_session_that_was_rewound_twice_has_two_forks(store):
    forks = [store.save_chain([say(each) for each in path]) for path in ("ax", "axp", "q")]
    assert ingested(store, tree("abcd"), tree("axy"), tree("axpq"), tree("qr")) == {
        "test/s": "abcd",
        f"test/s.at-{forks[0][:10]}": "axy",
        f"test/s.at-{forks[1][:10]}": "axpq",
        f"test/s.at-{forks[2][:10]}": "qr",
    }


def test_branches_grow_each_on_its_own(store):
    fork = store.save_chain([say("a"), say("x")])
    grown = ingested(store, tree("ab", "ax"), tree("abcd", "axy"), tree("abcde", "axyz", active=1))
    assert grown == {"test/s": "abcde", f"test/s.at-{fork[:10]}": "axyz"}


def test_both_branches_of_a_session_that_grew_into_a_fork_are_kept(store):
    assert sorted(ingested(store, tree("ab"), tree("abcd", "abxy")).values()) == ["abcd", "abxy"]


def test_the_order_of_imports_does_not_matter_to_what_is_kept(tmp_path):
    chance = random.Random(3)
    copies = [tree("ab"), tree("abcd"), tree("axy"), tree("axyz", "abcd"), tree("abcde")]
    for number in range(6):
        with init_quiet(tmp_path / f"{number}") as store:
            chance.shuffle(copies)
            said = set(ingested(store, *copies).values())
            assert said == {"abcde", "axyz"}


def test_the_same_history_from_two_files_is_one_chain(store):
    ingest(store, session(*"abcd", id="one"))
    before = counts(store)
    [done] = ingest(store, session(*"abcd", id="two"))
    assert (done.new, done.known) == (0, 4)
    assert store.head("test/one") == store.head("test/two")
    assert counts(store) == {**before, "description": before["description"] + 1}


def test_one_session_from_two_files_of_one_import_is_one_conversation(store):
    ingest(store, session(*"ab"), session(*"abcd"), session(*"abc"), tree("axy"))
    assert sorted(held(store).values()) == ["abcd", "axy"]


def test_what_the_user_added_to_an_imported_conversation_stays(store):
    fork = store.save_chain([say("a"), say("b", "assistant"), say("c")])
    ingest(store, session(*"ab"))
    store.commit("test/s", [say("mine")])
    assert ingested(store, session(*"abc")) == {"test/s": "abmine", f"test/s.at-{fork[:10]}": "abc"}
    assert ingested(store, session(*"abcd"))[f"test/s.at-{fork[:10]}"] == "abcd"


def test_an_answer_that_was_still_being_written_moves_on_when_it_is_whole(store):
    half = Transcript("test", "s", [Entry("u", None, say("go")), Entry("a", "u", say("I am wri", "assistant"))])
    whole = Message("assistant", [TextPart("I am writing"), ToolCallPart("f", {}, "c1")])
    more = [Entry("u", None, say("go")), Entry("a", "u", whole), Entry("v", "a", say("well"))]
    ingest(store, half)
    [done] = ingest(store, Transcript("test", "s", more))
    assert (done.moved, done.created) == (["test/s"], [])
    assert list(held(store)) == ["test/s"]


def test_another_answer_at_the_same_place_is_a_fork(store):
    ingest(store, tree("ab"))
    [done] = ingest(store, tree("ac"))
    assert done.moved == []
    assert sorted(held(store).values()) == ["ab", "ac"]


def test_a_title_that_came_later_is_taken_and_one_that_the_user_gave_stays(store):
    ingest(store, session(*"ab"), session(*"ab", id="t"))
    store.describe("test/t", title="mine")
    ingest(store, session(*"abc", title="theirs"), session(*"abc", id="t", title="theirs"))
    assert store.description("test/s").title == "theirs"
    assert store.description("test/t").title == "mine"


# -- calls ----------------------------------------------------------------------------------------


def with_calls(*words, conversation="s"):
    made = session(*words, id=conversation)
    made.calls = [
        SourceCall("r1", "m-1", "0", "1", "2026-03-04T05:06:07.890Z", input_tokens=3, output_tokens=4),
        SourceCall("r2", "m-1", None, "0", None),
    ]
    return made


def test_calls_are_recorded_once_however_often_and_wherever_they_are_imported(store, tmp_path):
    ingest(store, with_calls(*"ab"))
    ingest(store, with_calls(*"ab"), with_calls(*"abc"))
    [unknown, call] = store.calls()
    assert (call.model, call.input_tokens, call.output_tokens) == ("m-1", 3, 4)
    line = [entry.id for entry in store.walk(store.head("test/s"))][::-1]
    assert (call.head_input, call.head_output) == (line[0], line[1])
    assert unknown.head_input == "root"
    with init_quiet(tmp_path / "other") as other:
        ingest(other, with_calls(*"ab"))
        assert [each.to_dict() for each in other.calls()] == [each.to_dict() for each in store.calls()]


def test_a_call_that_was_imported_while_it_was_answered_is_counted_once(store):
    half = session("go", "I am wri")
    whole = session("go", "I am writing")
    half.calls = [SourceCall("r1", "m-1", "0", "1", "2026-03-04T05:06:07.890Z", input_tokens=3, output_tokens=1)]
    whole.calls = [SourceCall("r1", "m-1", "0", "1", "2026-03-04T05:06:07.890Z", input_tokens=3, output_tokens=9)]
    for each in (half, whole, session("go", "I am writing")):
        ingest(store, each)
    [call] = store.calls()
    assert (call.output_tokens, call.head_output) == (9, store.head("test/s"))


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "name"),
    [
        ("0198-abc.jsonl", "test/0198-abc.jsonl"),
        ("../../etc/passwd", "test/etc-passwd-fc1b61"),
        ("a b", "test/a-b-c8687a"),
        ("", "test/x-e3b0c44298fc1c14"),
        ("\u202e\ud800", None),
        ("x" * 5000, None),
        ("refs.lock", None),
        ("con", None),
    ],
)
def test_every_id_makes_a_legal_name_that_is_its_own(store, id, name):
    [done] = ingest(store, session("a", id=id))
    [info] = store.conversations()
    assert info.name == done.name
    assert name is None or done.name == name or done.name.startswith("test/")
    assert done.name.startswith("test/")


def test_ids_that_look_alike_once_they_fit_are_two_conversations(store):
    ingest(store, session("a", id="a/b"), session("b", id="a b"), session("c", id="a-b"))
    assert sorted(held(store).values()) == ["a", "b", "c"]


def test_names_that_cannot_stand_beside_each_other_get_names_that_can(store):
    store.commit("test", [say("a conversation called like the folder of the others")])
    for _ in range(2):
        ingest(store, session("a", id="Session"), session("b", id="session"))
    assert sorted(held(store).values()) == ["a", "a conversation called like the folder of the others", "b"]


def test_the_pattern_may_hold_the_title_and_two_of_one_title_stay_apart(store):
    transcripts = [session("a", id="1", title="Same"), session("b", id="2", title="Same")]
    for _ in range(2):
        ingest(store, *transcripts, pattern="mine/{title}")
    assert sorted(held(store).values()) == ["a", "b"]
    assert store.head("mine/Same") is not None


# -- others, and dry runs -------------------------------------------------------------------------


def test_a_dry_run_tells_the_same_and_writes_nothing(store, tmp_path):
    ingest(store, session(*"ab"))
    before = snapshot(tmp_path)
    transcripts = [session(*"abcd"), session(*"abcd", id="t"), tree("xy", "xz", id="u")]
    tried = ingest(store, *transcripts, dry_run=True)
    assert snapshot(tmp_path) == before
    done = ingest(store, *transcripts)
    for one, other in zip(tried, done, strict=True):
        assert (one.messages, one.new, one.created, one.moved) == (
            other.messages,
            other.new,
            other.created,
            other.moved,
        )


def test_a_conversation_that_somebody_else_moves_meanwhile_is_left_alone_and_the_rest_is_imported(store, tmp_path):
    ingest(store, session(*"ab"), session(*"ab", id="t"))
    with Ingest(store) as one:
        one.add(session(*"abc"))
        one.add(session(*"abc", id="t"))
        with quiet_store(tmp_path / "store") as other:
            other.commit("test/s", [say("mine")])
    assert [error.name for error in one.refused] == ["refs/conversations/test/s"]
    assert held(store) == {"test/s": "abmine", "test/t": "abc"}


def test_no_ref_is_set_to_what_a_gc_took_meanwhile(store, tmp_path):
    ingest(store, session(*"ab"))
    store.delete("test/s")
    later = time.time() + 3600
    with pytest.raises(ObjectMissing), Ingest(store) as one:
        one.add(session(*"ab"))  # all of it is here still
        with quiet_store(tmp_path / "store") as other:
            other.gc(GcOptions(prune_before=later, now=later, reflog_before=later))
        store.commit("beside", [say("by another thread")])  # now this process knows of the gc
        one.add(session(*"cd", id="t"))
    assert held(store) == {"beside": "by another thread"}
    assert list(store.fsck()) == []


def test_what_was_added_before_an_error_is_kept_once_it_is_flushed(store):
    one = Ingest(store)
    one.add(session(*"ab"))
    with pytest.raises(InvalidValue):
        one.add(Transcript("test", "t", [Entry("a", "nowhere", say("x"))]))
    one.flush()
    assert held(store) == {"test/s": "ab"}


def test_of_two_entries_with_one_key_the_first_is_the_one_that_is_named(store):
    entries = [Entry("1", None, say("a")), Entry("1", None, say("b")), Entry("2", "1", say("c"))]
    ingest(store, Transcript("test", "s", entries))
    assert held(store) == {"test/s": "ac"}


@pytest.mark.parametrize("there", ["description", "nothing"])
def test_a_description_that_a_conversation_left_behind_is_replaced(store, there):
    if there == "description":
        left = Description(description="test/s", created_at="2026-01-02T03:04:05.678Z", title="old")
        with store.storage.transaction() as transaction:
            oid = transaction.put_record(left)
            transaction.move(description_ref("test/s"), None, oid, "describe")
    with Ingest(store) as one:
        one.add(session(*"ab", title="new"))
    assert one.refused == []
    assert store.description("test/s").title == "new"


def test_an_import_holds_python_s_collector_back_and_lets_it_go(store):
    with Ingest(store) as one:
        assert not gc.isenabled()
        one.add(session(*"ab"))
    assert gc.isenabled()
    with pytest.raises(InvalidValue), Ingest(store) as one:
        one.add(Transcript("test", "t", [Entry("a", "nowhere", say("x"))]))
    assert gc.isenabled()


def test_what_was_committed_is_let_go_of_at_once(store, monkeypatch):
    """Also in the middle of a session: the peak of memory is one batch, not two."""
    monkeypatch.setattr(module, "BATCH_OBJECTS", 100)
    alive = []
    flush = Ingest.flush
    gc.collect()
    others = {id(each) for each in gc.get_objects() if isinstance(each, NewObject)}  # of tests before this one

    def watched(self):
        flush(self)
        alive.append(sum(isinstance(each, NewObject) and id(each) not in others for each in gc.get_objects()))

    monkeypatch.setattr(Ingest, "flush", watched)
    with Ingest(store) as one:
        one.add(session(*map(str, range(3000))))
    assert len(alive) > 2 and not any(alive)


def test_very_many_branches_cost_no_more_than_their_nodes(store):
    # Two thousand leaves below a line of two thousand: with every leaf walked to the root, four million steps.
    entries = [Entry(f"{i}", f"{i - 1}" if i else None, say(f"{i}")) for i in range(2000)]
    entries += [Entry(f"x{i}", "1999", say(f"x{i}")) for i in range(2000)]
    heads = [Head(f"x{i}", f"s/{i}", i == 5) for i in range(2000)]
    steps = 0
    up = EntryTree.up

    def counted(self, place):
        nonlocal steps
        for each in up(self, place):
            steps += 1
            yield each

    EntryTree.up = counted
    try:
        for _ in range(2):
            ingest(store, Transcript("test", "s", entries, heads))
    finally:
        EntryTree.up = up
    assert sum(1 for _ in store.conversations()) == 2000
    assert steps < 30_000


# -- the compact tree -----------------------------------------------------------------------------


def test_the_tree_is_what_plain_dicts_would_say():
    chance = random.Random(1)
    made = EntryTree()
    places, parents, ids = {}, {}, {}
    for i in range(3000):
        parent = chance.choice([None, *list(places)[-5:]]) if places else None
        oid = f"{chance.randrange(1500):064x}" if chance.random() < 0.3 else f"{chance.getrandbits(250):064x}"
        key = f"key {i}"
        at = f"2026-01-02T03:04:{i % 60:02}.{i % 1000:03}Z"
        place = made.add(key, oid, NOWHERE if parent is None else places[parent], at)
        assert place == ids.setdefault(oid, place)
        if place not in parents:
            parents[place] = NOWHERE if parent is None else places[parent]
            assert made.time(place) == at
        places[key] = place
    assert {key: made.get(key) for key in places} == places
    assert made.get("no such key") is None and made.get(None) is None
    assert {made.id(place): place for place in parents} == ids
    assert made.find([*ids, "ab" * 32]) == {place: oid for oid, place in ids.items()}
    assert list(made.parents) == list(parents.values())
    assert made.first_time() == "2026-01-02T03:04:00.000Z"
