"""The store as a program sees it: chains, dedup, conversations and what is known about them."""

from __future__ import annotations

import math
import os
import shutil
import stat
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objstore import engine
from objstore.canonical import canonical_message_json, message_content_hash
from objstore.chain import longest_prefix, node_ids
from objstore.config import config_text
from objstore.kinds import Kind
from objstore.node import Node, node_id
from objstore.records import Call, Note
from objstore.store import Store
from refs.errors import (
    CorruptFile,
    CorruptObject,
    DagError,
    Diverged,
    InvalidRefName,
    InvalidValue,
    NoSuchRef,
    ObjectMissing,
    ReadOnlyStore,
    RefChanged,
    RefExists,
    StorageFailure,
    StoreExists,
    StoreNotFound,
    UnsupportedFormat,
)
from refs.ids import ROOT
from tests.storetools import indexed, init_quiet, picture, quiet_store, say, talk, ticking, words_of
from tests.strategies import messages

NOWHERE = "f" * 64
ULID = "01J00000000000000000000000"


@pytest.fixture
def store(tmp_path):
    with init_quiet(tmp_path / "store") as made:
        yield made


def counts(store):
    return store.storage.index.counts()


# -- life -----------------------------------------------------------------------------------------


def test_a_new_store_is_empty_private_and_ignored_by_git(tmp_path):
    with Store.init(tmp_path / "deep" / "store") as store:
        assert list(store.conversations()) == []
        assert store.current() == "main"
        assert store.head("main") is None
        assert store.children(ROOT) == []
    root = tmp_path / "deep" / "store"
    assert (root / ".gitignore").read_text() == "*\n"
    for path in [root, *root.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_what_was_committed_is_there_when_the_store_is_opened_again(tmp_path):
    with Store.init(tmp_path / "store", conversation="trip") as store:
        assert store.current() == "trip"
        head = store.commit("trip", talk("hello", "hi"))
        made = store.id
    notices = []
    with Store.open(tmp_path / "store", notice=notices.append) as store:
        assert store.id == made
        assert store.head("trip") == head
        assert words_of(store.load_chain(head)) == ["hello", "hi"]
    assert notices == []


def test_init_refuses_a_folder_that_holds_a_store_and_leaves_it_alone(store, tmp_path):
    store.commit("main", talk("hello"))
    seen = picture(store)
    with pytest.raises(StoreExists):
        Store.init(tmp_path / "store")
    assert picture(quiet_store(tmp_path / "store")) == seen


def test_a_bad_name_for_the_first_conversation_makes_no_store(tmp_path):
    with pytest.raises(InvalidRefName):
        Store.init(tmp_path / "store", conversation="no/../way")
    with pytest.raises(StoreNotFound):
        Store.open(tmp_path / "store")


def test_a_folder_that_cannot_be_made_is_a_failure_with_its_path(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFailure, match="file"):
        Store.init(tmp_path / "file" / "store")


def test_an_unfinished_init_is_no_store_and_can_be_done_again(tmp_path):
    init_quiet(tmp_path / "store").close()
    (tmp_path / "store" / "config").unlink()
    with pytest.raises(StoreNotFound):
        Store.open(tmp_path / "store")
    with init_quiet(tmp_path / "store") as store:
        store.commit("main", talk("hello"))


def test_two_processes_that_init_one_folder_make_one_store(tmp_path):
    children = []
    for _ in range(6):
        child = os.fork()
        if child == 0:
            try:
                Store.init(tmp_path / "store").commit("main", talk("mine"))
                os._exit(0)
            except StoreExists:
                os._exit(3)
            finally:
                os._exit(1)
        children.append(child)
    codes = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    assert codes == [0, 3, 3, 3, 3, 3]
    assert words_of(quiet_store(tmp_path / "store").conversation("main").messages()) == ["mine"]


def test_no_store_is_told_by_its_path(tmp_path):
    with pytest.raises(StoreNotFound, match="nothing-here"):
        Store.open(tmp_path / "nothing-here")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('format = 2\nid = "x"\n', UnsupportedFormat),
        ('format = 1\nid = "x"\nextensions = ["signed"]\n', UnsupportedFormat),
        ('format = true\nid = "x"\n', CorruptFile),
        ('format = "1"\nid = "x"\n', CorruptFile),
        ('id = "x"\n', CorruptFile),
        ("format = 1\n", CorruptFile),
        ('format = 1\nid = "x"\nextensions = 5\n', CorruptFile),
        ("not toml [", CorruptFile),
        ("\0", CorruptFile),
        ("", CorruptFile),
    ],
)
def test_a_config_of_another_format_or_none_is_refused_and_nothing_is_changed(store, tmp_path, text, error):
    store.commit("main", talk("hello"))
    store.close()
    (tmp_path / "store" / "config").write_text(text)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")}
    with pytest.raises(error):
        Store.open(tmp_path / "store")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")} == before


def test_members_of_the_config_that_are_not_known_are_kept_and_harmless(tmp_path):
    init_quiet(tmp_path / "store").close()
    (tmp_path / "store" / "config").write_bytes(config_text(ULID) + b'[remote.origin]\nurl = "x"\n')
    assert quiet_store(tmp_path / "store").storage.config.rest == {"remote": {"origin": {"url": "x"}}}


def test_a_missing_journal_is_made_anew_with_a_notice(store, tmp_path):
    store.commit("main", talk("hello"))
    seen = picture(store)
    store.close()
    (tmp_path / "store" / "journal").unlink()
    notices = []
    with quiet_store(tmp_path / "store", notices.append) as again:
        assert picture(again) == seen
        again.commit("main", talk("more"))
    assert "the journal is missing: a new one is made" in notices
    notices.clear()
    with quiet_store(tmp_path / "store", notices.append) as again:
        assert words_of(again.conversation("main").messages()) == ["hello", "more"]
    assert notices == []


def test_a_missing_head_is_told_and_only_what_needs_it_fails(store, tmp_path):
    store.commit("main", talk("hello"))
    store.close()
    (tmp_path / "store" / "HEAD").unlink()
    with quiet_store(tmp_path / "store") as again:
        with pytest.raises(CorruptFile, match="HEAD"):
            again.current()
        with pytest.raises(CorruptFile, match="HEAD"):
            again.resolve("HEAD")
        assert words_of(again.conversation("main").messages()) == ["hello"]
        again.switch("main")
        assert again.current() == "main"


def test_an_ordinary_start_of_the_machine_is_no_crash(store, tmp_path, monkeypatch):
    store.commit("main", talk("hello"))
    store.close()
    monkeypatch.setattr(engine, "_boot", lambda: b"another boot of it")
    notices = []
    with quiet_store(tmp_path / "store", notices.append) as again:
        assert words_of(again.conversation("main").messages()) == ["hello"]
        again.commit("main", talk("more"))
    assert notices == []


@pytest.fixture
def unprivileged(tmp_path_factory):
    """Runs a function where files can't be written: in a child process of a user who owns nothing."""

    def run(act) -> None:
        child = os.fork()
        if child == 0:
            try:
                if os.getuid() == 0:
                    os.setgid(65534)
                    os.setuid(65534)
                act()
                os._exit(0)
            except BaseException as error:
                os.write(2, repr(error).encode())
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    return run


@pytest.fixture
def for_reading(store, tmp_path):
    """A store that was closed, copied where nobody may write."""
    store.commit("main", talk("hello", "hi"))
    store.commit("long", [say(f"{i}") for i in range(70)])
    store.close()
    folder = tempfile.mkdtemp(prefix="read-only-")
    path = os.path.join(folder, "store")
    shutil.copytree(tmp_path / "store", path)
    os.chmod(folder, 0o755)

    def lock(mode_files: int, mode_folders: int) -> None:
        for root, _, files in os.walk(path):
            for name in files:
                os.chmod(os.path.join(root, name), mode_files)
            os.chmod(root, mode_folders)

    lock(0o444, 0o555)
    yield path
    lock(0o644, 0o755)
    shutil.rmtree(folder)


def test_a_folder_that_cannot_be_written_is_read_by_its_index_and_refuses_changes(for_reading, unprivileged):
    def act() -> None:
        notices = []
        with Store.open(for_reading, notice=notices.append) as store:
            assert notices == []
            assert words_of(store.conversation("main").messages()) == ["hello", "hi"]
            assert store.resolve("long~69") == store.children(ROOT)[1]
            assert store.find_longest_existing_prefix(talk("hello", "hi", "new"))[1] == 2
            for change in (
                lambda: store.commit("main", talk("more")),
                lambda: store.fork(store.resolve("main"), "f"),
                lambda: store.delete("main"),
                lambda: store.switch("long"),
                lambda: store.reindex(),
            ):
                with pytest.raises(ReadOnlyStore):
                    change()
            assert store.save_chain(talk("hello", "hi")) == store.head("main")

    unprivileged(act)


def test_a_folder_that_cannot_be_written_is_read_without_its_index_too(for_reading, unprivileged):
    os.chmod(for_reading, 0o755)
    os.unlink(f"{for_reading}/index.sqlite")
    os.chmod(for_reading, 0o555)

    def act() -> None:
        notices = []
        with Store.open(for_reading, notice=notices.append) as store:
            assert len(notices) == 1
            assert words_of(store.conversation("main").messages()) == ["hello", "hi"]
            assert len(store.conversation("long").messages()) == 70

    unprivileged(act)


# -- chains and dedup -----------------------------------------------------------------------------


def test_a_chain_comes_back_equal_and_its_ids_are_those_that_can_be_worked_out(store):
    messages_ = talk("a", "b", "c")
    head = store.save_chain(messages_)
    assert store.load_chain(head) == messages_
    assert head == node_ids(messages_)[-1]
    assert head == node_id(node_ids(messages_)[-2], message_content_hash(messages_[2]))
    assert [entry.id for entry in store.walk(head)] == node_ids(messages_)[::-1]
    assert [entry.message for entry in store.walk(head)] == messages_[::-1]
    assert store.depth(head) == 3
    assert store.load_chain(ROOT) == []
    assert list(store.walk(ROOT)) == []
    assert list(store.conversations()) == []


@settings(max_examples=60)
@given(st.lists(messages, max_size=5), st.lists(messages, max_size=3))
def test_any_messages_come_back_equal(tmp_path_factory, first, second):
    with init_quiet(tmp_path_factory.mktemp("any") / "store") as store:
        one = store.save_chain(first)
        two = store.save_chain(second, one)
        assert [canonical_message_json(each) for each in store.load_chain(two)] == [
            canonical_message_json(each) for each in [*first, *second]
        ]
        assert store.load_chain(two) == [*first, *second]
        store.pack()
        assert store.load_chain(two) == [*first, *second]
        store.reindex()
        assert store.load_chain(two) == [*first, *second]


def test_equal_messages_in_two_places_are_one_object(store):
    store.save_chain(talk("yes", "yes"))
    before = counts(store)
    store.save_chain([say("no"), say("yes")])
    after = counts(store)
    assert after[Kind.MESSAGE] == before[Kind.MESSAGE] + 1
    assert after[Kind.NODE] == before[Kind.NODE] + 2


def test_saving_again_writes_nothing(store, tmp_path):
    head = store.save_chain(talk("a", "b"))
    store.storage.checkpoint()
    before = files_of(tmp_path / "store")
    assert store.save_chain(talk("a", "b")) == head
    assert store.save_with_dedup(talk("a", "b")) == head
    assert store.save_with_dedup(talk("a")) == node_ids(talk("a"))[0]
    assert files_of(tmp_path / "store") == before


def files_of(root):
    return {path: path.stat().st_size for path in root.rglob("*") if "index.sqlite" not in path.name}


def test_a_request_sent_n_times_growing_by_one_stores_each_message_and_node_once(store):
    history = [say(f"turn {i}", "user" if i % 2 == 0 else "assistant") for i in range(30)]
    for size in range(1, len(history) + 1):
        store.save_with_dedup(history[:size])
    held = counts(store)
    assert (held[Kind.MESSAGE], held[Kind.NODE]) == (30, 30)
    for size in range(1, len(history) + 1):
        store.commit_history("main", history[:size])
    held = counts(store)
    assert (held[Kind.MESSAGE], held[Kind.NODE]) == (30, 30)
    assert store.conversation("main").messages() == history


def test_a_chain_behind_a_node_that_isnt_stored_is_refused_and_leaves_nothing(store):
    before = indexed(store)
    with pytest.raises(ObjectMissing):
        store.save_chain(talk("a"), NOWHERE)
    with pytest.raises(ObjectMissing):
        store.save_chain(talk("a"), called_by=NOWHERE)
    with pytest.raises(ObjectMissing):
        store.commit("main", talk("a"), expected=None, note=None) and store.load_chain(NOWHERE)
    assert {each for each in indexed(store) if each[0] == "node"} - before == {("node", node_ids(talk("a"))[0])}


def test_nothing_to_save_gives_the_parent(store):
    head = store.save_chain(talk("a"))
    assert store.save_chain([]) == ROOT
    assert store.save_chain([], head) == head
    assert store.commit("main", [], expected=None) == ROOT
    assert store.head("main") is None


def test_a_chain_that_was_asked_for_names_who_asked_on_its_first_node_only(store):
    asking = store.save_chain(talk("please look"))
    head = store.save_chain(talk("look", "found"), called_by=asking, tool_call_id="call_1")
    last, first = (entry.node for entry in store.walk(head))
    assert (first.parent, first.called_by, first.tool_call_id) == (ROOT, asking, "call_1")
    assert (last.called_by, last.tool_call_id) == (None, None)
    assert store.save_chain(talk("look", "found"), called_by=asking, tool_call_id="call_1") == head
    assert store.save_chain(talk("look", "found")) != head
    assert store.load_chain(head) == talk("look", "found")


def test_a_tool_call_without_who_asked_is_refused(store):
    with pytest.raises(InvalidValue):
        store.transaction().put_node(Node(ROOT, NOWHERE, None, "call_1"))


def test_children_stand_in_order_of_arrival_and_roots_are_children_of_root(store):
    first = store.save_chain(talk("a"))
    second = store.save_chain(talk("z"))
    assert store.children(ROOT) == [first, second]
    replies = [store.save_chain([say(f"reply {i}")], first) for i in range(3)]
    assert store.children(first) == replies
    assert store.children(replies[0]) == []
    with pytest.raises(ObjectMissing):
        store.children(NOWHERE)


def test_the_common_ancestor_of_any_two_nodes_is_the_last_that_both_chains_have(store):
    trunk = [store.save_chain([say(f"{i}") for i in range(5)])]
    nodes = [entry.id for entry in store.walk(trunk[0])][::-1]
    left = store.save_chain(talk("l1", "l2", "l3"), nodes[2])
    right = store.save_chain(talk("r1"), nodes[2])
    other = store.save_chain(talk("elsewhere"))
    assert store.common_ancestor(left, right) == nodes[2]
    assert store.common_ancestor(left, nodes[4]) == nodes[2]
    assert store.common_ancestor(left, nodes[1]) == nodes[1]
    assert store.common_ancestor(left, left) == left
    assert store.common_ancestor(left, other) == ROOT
    assert store.common_ancestor(left, ROOT) == ROOT
    with pytest.raises(ObjectMissing):
        store.common_ancestor(left, NOWHERE)


def test_ten_thousand_messages_and_two_thousand_forks_at_one_node(store):
    messages_ = [say(f"message {i}") for i in range(10_000)]
    head = store.commit("long", messages_)
    assert store.load_chain(head) == messages_
    assert store.depth(head) == 10_000
    assert store.resolve("long~9999") == store.children(ROOT)[0]
    middle = store.resolve("long~5000")
    with store.transaction() as transaction:
        for i in range(2000):
            transaction.move(f"refs/conversations/forks/{i}", None, middle, "fork")
    for i in range(0, 2000, 400):
        store.commit(f"forks/{i}", [say(f"fork {i}")])
        assert store.load_chain(store.head(f"forks/{i}"))[:-1] == messages_[:5000]
    assert len(list(store.conversations())) == 2001
    assert len(store.children(middle)) == 6
    assert store.common_ancestor(store.head("forks/0"), head) == middle


# -- the longest stored prefix --------------------------------------------------------------------


@given(st.integers(0, 3000), st.data())
def test_the_prefix_search_is_right_and_asks_little(count, data):
    stored = data.draw(st.integers(0, count))
    asked = []

    def there(i: int) -> bool:
        asked.append(i)
        return i < stored

    assert longest_prefix(count, there) == stored
    assert len(asked) <= (4 + 2 * math.log2(count) if count else 0)
    assert len(asked) == len(set(asked))
    if count and stored >= count - 1:
        assert len(asked) <= 2


@settings(max_examples=30)
@given(st.data())
def test_the_longest_stored_prefix_of_real_chains(tmp_path_factory, data):
    with init_quiet(tmp_path_factory.mktemp("prefix") / "store") as store:
        history = [say(f"{i % 7} and {i}") for i in range(data.draw(st.integers(1, 40)))]
        saved = data.draw(st.integers(0, len(history)))
        parent = store.save_chain(talk("before")) if data.draw(st.booleans()) else ROOT
        store.save_chain(history[:saved], parent)
        asked = store.prefix_checks
        node, count = store.find_longest_existing_prefix(history, parent)
        assert store.prefix_checks - asked <= 4 + 2 * math.log2(len(history))
        assert count == saved
        assert node == (node_ids(history, parent)[count - 1] if count else None)


def test_the_prefix_of_nothing_is_nothing(store):
    assert store.find_longest_existing_prefix([]) == (None, 0)


# -- conversations --------------------------------------------------------------------------------


def test_a_commit_makes_and_moves_a_conversation_and_logs_it(store):
    first = store.commit("trip", talk("a"))
    second = store.commit("trip", talk("b"), reason="on and on")
    assert store.head("trip") == second
    assert [(e.old, e.new, e.reason) for e in store.reflog("trip")] == [
        (first, second, "on and on"),
        (None, first, "commit"),
    ]
    assert [(info.name, info.head) for info in store.conversations()] == [("trip", second)]


def test_a_second_writer_gets_ref_changed_and_loses_nothing(store):
    start = store.commit("trip", talk("a"))
    winner = store.commit("trip", talk("mine"), expected=start)
    with pytest.raises(RefChanged) as caught:
        store.commit("trip", talk("yours"), expected=start)
    error = caught.value
    assert (error.name, error.expected, error.actual) == ("trip", start, winner)
    assert words_of(store.load_chain(error.stored)) == ["a", "yours"]
    assert store.head("trip") == winner
    assert store.fork(error.stored, "saved") == "saved"


def test_a_conversation_that_should_not_be_there_yet_is_not_taken_over(store):
    store.commit("trip", talk("a"))
    with pytest.raises(RefChanged) as caught:
        store.commit("trip", talk("b"), expected=None)
    assert words_of(store.load_chain(caught.value.stored)) == ["b"]
    with pytest.raises(RefChanged):
        store.commit("other", talk("b"), expected=node_ids(talk("a"))[0])


def test_a_history_is_brought_up_to_date_and_one_that_is_there_changes_nothing(store):
    assert store.commit_history("trip", talk("a", "b")) == (node_ids(talk("a", "b"))[-1], 2)
    head, new = store.commit_history("trip", talk("a", "b", "c"))
    assert (new, words_of(store.load_chain(head))) == (1, ["a", "b", "c"])
    for part in (talk("a", "b", "c"), talk("a", "b"), talk("a"), []):
        assert store.commit_history("trip", part) == (head, 0)
    assert len(list(store.reflog("trip"))) == 2
    with pytest.raises(NoSuchRef):
        store.commit_history("nothing", [])


@pytest.mark.parametrize(
    ("history", "common"),
    [(talk("a", "b", "x"), 2), (talk("a", "b", "x", "y"), 2), (talk("x"), 0), (talk("a", "x", "c", "d"), 1)],
)
def test_a_history_that_diverges_is_refused_with_the_place(store, history, common):
    head, _ = store.commit_history("trip", talk("a", "b", "c"))
    store.save_chain(history)  # known or not makes no difference
    seen = picture(store)
    with pytest.raises(Diverged) as caught:
        store.commit_history("trip", history)
    assert (caught.value.common, caught.value.head) == (common, head)
    assert caught.value.at == (node_ids(history)[common - 1] if common else ROOT)
    assert picture(store) == seen


def test_a_fork_costs_a_ref_and_both_sides_go_on(store, tmp_path):
    head = store.commit("trip", talk("a", "b", "c"))
    store.storage.checkpoint()
    before = indexed(store)
    assert store.fork(store.resolve("trip~1"), "other") == "other"
    assert indexed(store) == before
    store.commit("trip", talk("on"))
    store.conversation("other").append(talk("elsewhere"))
    assert words_of(store.conversation("trip").messages()) == ["a", "b", "c", "on"]
    assert words_of(store.conversation("other").messages()) == ["a", "b", "elsewhere"]
    assert store.common_ancestor(store.head("trip"), store.head("other")) == store.resolve(f"{head}~1")


def test_a_fork_without_a_name_is_called_by_a_ulid_and_may_have_a_title(store):
    head = store.commit("trip", talk("a"))
    name = store.fork(head, title="Another way")
    assert len(name) == 26
    about = store.description(name)
    assert (about.title, about.forked_from, about.description) == ("Another way", head, name)
    assert store.conversation("trip").fork("named").head == head


def test_a_fork_is_refused_where_it_cannot_be(store):
    head = store.commit("trip", talk("a"))
    for name, error in (
        ("trip", RefExists),
        ("TRIP", RefExists),
        ("trip/deeper", RefExists),
        ("bad..name", InvalidRefName),
        ("", InvalidRefName),
        ("abcd1234", InvalidRefName),
    ):
        with pytest.raises(error):
            store.fork(head, name)
    with pytest.raises(ObjectMissing):
        store.fork(NOWHERE, "other")
    assert [info.name for info in store.conversations()] == ["trip"]


def test_the_place_before_all_messages_is_no_head(store):
    with pytest.raises(DagError):
        store.fork(ROOT, "x")
    assert list(store.conversations()) == []


def test_no_ref_can_be_made_to_point_at_what_isnt_stored(store):
    store.commit("trip", talk("a"))
    seen = picture(store)
    for ref in ("refs/conversations/x", "refs/tags/x", "refs/descriptions/x"):
        with pytest.raises(ObjectMissing), store.transaction() as transaction:
            transaction.move(ref, None, NOWHERE, "test")
    for ref, new in (("refs/conversations/../../x", NOWHERE), ("refs/conversations/x", "no id"), ("x", NOWHERE)):
        with pytest.raises(DagError), store.transaction() as transaction:
            transaction.move(ref, None, new, "test")
    assert picture(store) == seen


def test_a_rename_takes_description_and_head_along(store):
    head = store.commit("main", talk("a"))
    store.describe("main", title="Title")
    store.rename("main", "trip")
    assert store.head("main") is None
    assert store.head("trip") == head
    assert store.current() == "trip"
    assert (store.description("trip").title, store.description("trip").description) == ("Title", "trip")
    assert store.description("main") is None
    store.rename("trip", "Trip")
    assert [info.name for info in store.conversations()] == ["Trip"]
    store.rename("Trip", "Trip/deeper")
    assert store.head("Trip/deeper") == head
    store.commit("other", talk("b"))
    with pytest.raises(RefExists):
        store.rename("other", "Trip/deeper")
    with pytest.raises(NoSuchRef):
        store.rename("nothing", "something")


def test_a_deleted_conversation_is_gone_with_its_description_and_can_be_had_back(store):
    head = store.commit("trip", talk("a"))
    store.describe("trip", title="Title")
    trip = store.conversation("trip")
    assert store.delete("trip") == head
    assert store.head("trip") is None
    assert store.description("trip") is None
    with pytest.raises(NoSuchRef):
        trip.messages()
    with pytest.raises(NoSuchRef):
        store.conversation("trip")
    with pytest.raises(NoSuchRef):
        store.delete("trip")
    (entry, *_) = store.reflog("trip")
    assert (entry.old, entry.new) == (head, None)
    store.fork(entry.old, "trip")
    assert words_of(store.conversation("trip").messages()) == ["a"]


def test_a_conversation_that_moved_is_not_deleted_where_somebody_said_what_it_was(store):
    first = store.commit("trip", talk("a"))
    store.commit("trip", talk("b"))
    with pytest.raises(RefChanged):
        store.delete("trip", expected=first)
    assert words_of(store.conversation("trip").messages()) == ["a", "b"]


def test_a_reset_moves_anywhere_and_is_logged(store):
    store.commit("trip", talk("a", "b"))
    store.reset("trip", store.resolve("trip~1"))
    assert words_of(store.conversation("trip").messages()) == ["a"]
    assert words_of(store.load_chain(store.resolve("trip@{1}"))) == ["a", "b"]
    with pytest.raises(ObjectMissing):
        store.reset("trip", NOWHERE)


def test_tags_name_nodes_and_do_not_move(store):
    head = store.commit("trip", talk("a"))
    store.tag("v1", head)
    store.commit("trip", talk("b"))
    assert list(store.tags()) == [("v1", head)]
    with pytest.raises(RefExists):
        store.tag("v1", store.head("trip"))
    with pytest.raises(ObjectMissing):
        store.tag("v2", NOWHERE)
    assert store.delete_tag("v1") == head
    with pytest.raises(NoSuchRef):
        store.delete_tag("v1")


def test_a_description_keeps_what_is_not_changed_and_drops_what_is_none(store):
    store.commit("trip", talk("a"))
    made = store.describe("trip", title="One", tags=["x", "y"])
    store.describe("trip", title="Two")
    about = store.description("trip")
    assert (about.title, about.tags, about.created_at) == ("Two", ("x", "y"), made.created_at)
    assert store.describe("trip", tags=None).tags is None
    moves = len(list(store.reflog("descriptions/trip")))
    store.describe("trip", title="Two")
    assert len(list(store.reflog("descriptions/trip"))) == moves
    with pytest.raises(NoSuchRef):
        store.describe("nothing", title="x")
    with pytest.raises(InvalidValue):
        store.describe("trip", colour="red")


def test_notes_tell_when_a_node_was_first_stored_and_what_came_with_it(tmp_path):
    with init_quiet(tmp_path / "store", ticking()) as store:
        head = store.commit("trip", talk("a", "b"), note=[{"source": 1}, {"source": 2}])
        (note,) = store.notes(head)
        assert dict(note.members) == {"source": 2}
        assert store.first_stored(head) == note.at == "2026-01-02T00:00:00.000Z"
        with store.transaction() as transaction:
            transaction.put_record(Note(note=ULID, at="2025-01-01T00:00:00.000Z", nodes={head: {"late": True}}))
        assert [dict(each.members) for each in store.notes(head)] == [{"late": True}, {"source": 2}]
        assert store.first_stored(head) == "2025-01-01T00:00:00.000Z"
        with pytest.raises(ValueError, match="notes for"):
            store.commit("trip", talk("c"), note=[{}, {}])
        with pytest.raises(ObjectMissing):
            store.notes(NOWHERE)


def test_a_call_is_found_at_both_its_ends_and_refused_without_its_nodes(store):
    asked = store.save_chain(talk("q"))
    answered = store.save_chain([say("a", "assistant")], asked)
    call = Call(
        call=ULID, model="m", head_input=asked, head_output=answered, started_at="2026-01-02T00:00:00.000Z"
    )
    store.record(call)
    assert store.calls(asked) == store.calls(answered) == store.calls() == [call]
    other = ULID[:-1] + "1"
    at_root = Call(call=other, model="m", head_input=ROOT, error="no", started_at="2026-01-01T00:00:00.000Z")
    store.record(at_root)
    assert store.calls(ROOT) == [at_root]
    assert store.calls() == [at_root, call]
    for missing in ({"head_input": NOWHERE}, {"head_output": NOWHERE}):
        with pytest.raises(ObjectMissing):
            store.record(Call.from_dict({**call.to_dict(), **missing}))
    assert store.calls() == [at_root, call]


def test_head_names_a_conversation_that_may_have_no_message_yet(store):
    store.switch("later")
    assert store.current() == "later"
    assert store.head("later") is None
    store.commit(store.current(), talk("a"))
    assert words_of(store.load_chain(store.resolve("HEAD"))) == ["a"]
    with pytest.raises(InvalidRefName):
        store.switch("no~way")


# -- a transaction is whole -----------------------------------------------------------------------


def test_nothing_of_a_transaction_that_fails_is_visible(store):
    store.commit("trip", talk("a"))
    seen, held = picture(store), indexed(store)

    def fail() -> None:
        with store.transaction() as transaction:
            transaction.put_message(say("half"))
            transaction.move("refs/tags/half", None, store.head("trip"), "test")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with pytest.raises(RefChanged), store.transaction() as transaction:
        message = transaction.put_message(say("half"))
        transaction.put_node(Node(ROOT, message))
        transaction.move("refs/tags/half", None, store.head("trip"), "test")
        transaction.move("refs/conversations/trip", None, None, "test")
    assert (picture(store), indexed(store)) == (seen, held)


def test_bytes_that_are_not_canonical_are_not_put(store):
    for kind, raw in (
        (Kind.MESSAGE, b'{"role":"user","parts":[]}'),
        (Kind.NODE, b'{"parent":"root","message":"%b"}' % (b"a" * 64)),
        (Kind.NOTE, b"{}"),
        (Kind.DESCRIPTION, b"\xff"),
    ):
        with pytest.raises(CorruptObject):
            store.transaction().put(kind, raw)


def test_a_clock_that_gives_no_time_stops_a_commit_before_it_begins(tmp_path):
    with init_quiet(tmp_path / "store", lambda: "noon") as store, pytest.raises(InvalidValue):
        store.commit("main", talk("a"))
    with quiet_store(tmp_path / "store") as store:
        store.commit("main", talk("a"))


def test_any_reason_is_logged(store):
    reasons = ["", "two\nlines", "\0", "x" * 10_000, "half \ud83d a pair", "\\u0041", "\u2028 \x85"]
    for reason in reasons:
        store.commit("trip", [say(repr(reason))], reason=reason)
    seen = [entry.reason for entry in store.reflog("trip")][::-1]
    assert seen[:3] == reasons[:3]
    assert len(seen[3]) == 500
    assert seen[4:] == reasons[4:]
