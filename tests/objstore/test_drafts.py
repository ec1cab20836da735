"""Drafts: never half a message in the chain, and nothing of a cut stream is lost."""

import multiprocessing
import os

import pytest

from objstore import drafts as drafts_module
from objstore.draft import Delta, DeltaKind
from objstore.message import Message, ReasoningPart, TextPart, ToolCallPart
from objstore.newcall import NewCall
from objstore.storage import Storage
from objstore.store import Store
from refs.errors import (
    CorruptFile,
    DraftInUse,
    InvalidRefName,
    InvalidValue,
    NoSuchDraft,
    ObjectMissing,
    RefChanged,
    RefExists,
    StorageFailure,
)
from refs.ids import ROOT
from tests.storetools import QuietFiles, init_quiet, quiet_store, say, talk, ticking, words_of

DELTAS = [
    Delta(DeltaKind.REASONING, "Let me see."),
    Delta(DeltaKind.TEXT, "Hel"),
    Delta(DeltaKind.TEXT, "lo"),
    Delta(DeltaKind.TOOL_CALL, '{"path":', id="c1", name="ls"),
    Delta(DeltaKind.TOOL_CALL, ' "/"}'),
]
ANSWER = Message(
    "assistant", [ReasoningPart("Let me see."), TextPart("Hello"), ToolCallPart("ls", {"path": "/"}, "c1")]
)
CALL = NewCall(model="m", input_tokens=3, output_tokens=5)


@pytest.fixture
def store(tmp_path):
    with init_quiet(tmp_path / "store") as made:
        made.commit("main", talk("hi"))
        yield made


def texts(*words):
    return [Delta(DeltaKind.TEXT, each) for each in words]


def fed(draft, deltas):
    for delta in deltas:
        draft.feed(delta)
    return draft


def files(store):
    return sorted(os.listdir(store.path / "drafts"))


def left_behind(store, deltas=(), conversation="main", **how):
    """The id of a draft whose writer has gone away."""
    with store.draft(conversation, **how) as draft:
        fed(draft, deltas)
    return draft.id


def test_a_finished_draft_is_one_transaction_of_message_ref_and_call(store):
    asked = store.head("main")
    moves = len(list(store.reflog("main")))
    draft = fed(store.draft("main"), DELTAS)

    head = draft.finish(call=CALL)

    assert store.head("main") == head
    assert store.load_chain(head) == [say("hi"), ANSWER]
    assert len(list(store.reflog("main"))) == moves + 1
    (call,) = store.calls(head)
    assert (call.head_input, call.head_output, call.conversation) == (asked, head, "main")
    assert call.input_tokens == 3
    assert files(store) == [] and store.drafts() == []


def test_nothing_of_a_draft_is_in_the_chain_before_its_end(store):
    head = store.head("main")
    draft = fed(store.draft("main"), DELTAS)

    assert store.head("main") == head and store.children(head) == []
    assert draft.message() == ANSWER
    assert draft.at == head


def test_an_abandoned_draft_leaves_nothing(store):
    head = store.head("main")
    fed(store.draft("main"), DELTAS).abandon()

    assert store.head("main") == head and store.children(head) == []
    assert files(store) == []


def test_the_call_of_a_draft_started_when_the_draft_did(store):
    draft = store.draft("main")
    store.describe("main", title="meanwhile the clock goes on")
    head = fed(draft, DELTAS).finish(call=CALL)

    (call,) = store.calls(head)
    assert call.started_at < store.first_stored(head)


def test_a_draft_makes_a_new_conversation(store):
    head = fed(store.draft("other"), texts("hello")).finish()
    assert store.head("other") == head and store.node(head).parent == ROOT


def test_a_draft_without_a_conversation_moves_no_ref_and_is_kept_by_its_call(store):
    node = store.save_chain(talk("stateless"))
    before = list(store.refs())

    with pytest.raises(InvalidValue, match="call"):
        fed(store.draft(None, at=node), texts("no call")).finish()
    head = fed(store.draft(None, at=node), texts("yes")).finish(call=CALL)

    assert list(store.refs()) == before
    (call,) = store.calls(head)
    assert (call.head_input, call.conversation) == (node, None)


def test_a_draft_must_say_where_it_goes(store):
    with pytest.raises(InvalidValue, match="at"):
        store.draft(None)
    with pytest.raises(ObjectMissing):
        store.draft("main", at="0" * 64)
    with pytest.raises(InvalidRefName):
        store.draft("no..name", at=store.head("main"))
    assert store.drafts() == []


def test_of_two_drafts_in_one_conversation_the_second_loses_the_race_and_nothing_else(store):
    first, second = store.draft("main"), store.draft("main")
    winner = fed(first, texts("first")).finish(call=CALL)

    with pytest.raises(RefChanged) as caught:
        fed(second, texts("second")).finish(call=CALL)

    assert store.head("main") == winner
    assert words_of(store.load_chain(caught.value.stored)) == ["hi", "second"]
    assert len(store.calls(caught.value.stored)) == 1
    assert files(store) == []


def test_a_draft_that_its_process_left_is_listed_with_what_it_says(store):
    draft = left_behind(store, DELTAS[:3])

    (found,) = store.drafts()

    assert found.id == draft and not found.ended and found.damage is None
    assert found.header.conversation == "main" and found.header.at == store.head("main")
    assert found.message == Message("assistant", [ReasoningPart("Let me see."), TextPart("Hello")])
    assert found.size == (store.path / "drafts" / f"{draft}.jsonl").stat().st_size


def test_a_draft_that_is_being_written_is_not_left_over(store):
    draft = fed(store.draft("main"), DELTAS)
    with quiet_store(store.path) as other:
        assert store.drafts() == [] and other.drafts() == []
        for act in (other.recover_draft, other.drop_draft, store.recover_draft):
            with pytest.raises(DraftInUse):
                act(draft.id)
    assert draft.finish() == store.head("main")


def test_a_recovered_draft_is_noted_as_partial(store):
    draft = left_behind(store, DELTAS[:2])

    head = store.recover_draft(draft, call=CALL, note={"why": "cut"})

    assert store.head("main") == head
    assert words_of(store.load_chain(head)) == ["hi", "Hel"]
    assert [note.members for note in store.notes(head)] == [{"partial": True, "why": "cut"}]
    assert len(store.calls(head)) == 1
    assert files(store) == []


def test_a_whole_draft_whose_writer_died_before_the_transaction_is_recovered_as_whole(store):
    draft = left_behind(store, [*DELTAS, Delta(DeltaKind.END)])
    assert store.drafts()[0].ended

    head = store.recover_draft(draft)

    assert store.load_chain(head) == [say("hi"), ANSWER]
    assert "partial" not in store.notes(head)[0].members


def test_a_draft_whose_file_outlived_its_transaction_is_not_added_twice(store):
    draft = store.draft("main")
    name = store.path / "drafts" / f"{draft.id}.jsonl"
    fed(draft, [*DELTAS, Delta(DeltaKind.END)])
    held = name.read_bytes()
    head = draft.finish(call=CALL)
    later = store.commit("main", talk("and on"))
    name.write_bytes(held)

    assert store.recover_draft(draft.id) == head

    assert store.head("main") == later and len(store.calls(head)) == 1
    assert files(store) == []


def test_a_recovered_draft_never_moves_a_conversation_back(store):
    draft = left_behind(store, texts("late"))
    head = store.commit("main", talk("gone on"))

    with pytest.raises(RefChanged) as caught:
        store.recover_draft(draft)

    assert store.head("main") == head
    assert words_of(store.load_chain(caught.value.stored)) == ["hi", "late"]
    assert files(store) == []


def test_a_draft_can_be_recovered_into_a_conversation_of_its_own(store):
    draft = left_behind(store, texts("late"))
    head = store.commit("main", talk("gone on"))

    with pytest.raises(RefExists):
        store.recover_draft(draft, conversation="main")
    kept = store.recover_draft(draft, conversation="kept")

    assert store.head("main") == head and store.head("kept") == kept
    assert words_of(store.load_chain(kept)) == ["hi", "late"]


def test_an_empty_draft_can_only_be_dropped(store):
    draft = left_behind(store)
    with pytest.raises(InvalidValue, match="nothing"):
        store.recover_draft(draft)
    store.drop_draft(draft)
    assert store.drafts() == [] and files(store) == []


@pytest.mark.parametrize("draft", ["01J00000000000000000000009", "../config", "", "x" * 26])
def test_a_draft_that_is_not_there_is_told(store, draft):
    for act in (store.recover_draft, store.drop_draft):
        with pytest.raises((NoSuchDraft, InvalidValue)):
            act(draft)


def test_a_crash_at_every_byte_leaves_all_whole_deltas_and_never_half_of_one(store):
    draft = left_behind(store, [*DELTAS, Delta(DeltaKind.END)])
    head = store.head("main")
    name = store.path / "drafts" / f"{draft}.jsonl"
    whole = name.read_bytes()
    lines = whole.splitlines(keepends=True)

    for cut in range(len(whole) + 1):
        name.write_bytes(whole[:cut])
        (found,) = store.drafts()
        count = sum(len(b"".join(lines[:i])) <= cut for i in range(1, len(lines) + 1))
        if count == 0:
            assert found.damage is not None and found.header is None
            with pytest.raises(CorruptFile):
                store.recover_draft(draft)
            continue
        assert found.damage is None and found.ended == (count == len(lines))
        expected = words_of([found.message])[0]
        assert expected == "".join(delta.text for delta in DELTAS[: count - 1] if delta.kind is DeltaKind.TEXT)
    assert store.head("main") == head and store.children(head) == []
    assert store.load_chain(store.recover_draft(draft)) == [say("hi"), ANSWER]


def test_every_cut_can_be_recovered(store):
    draft = left_behind(store, [*DELTAS, Delta(DeltaKind.END)])
    name = store.path / "drafts" / f"{draft}.jsonl"
    lines = name.read_bytes().splitlines(keepends=True)

    for count in range(2, len(lines)):
        name.write_bytes(b"".join(lines[:count]) + b'{"kind":"te')
        head = store.recover_draft(draft, conversation=f"cut-{count}")
        assert [note.members for note in store.notes(head)] == [{"partial": True}]
        assert store.load_chain(head)[-1].parts


def test_a_damaged_draft_is_told_and_left_alone(store):
    draft = left_behind(store, DELTAS)
    name = store.path / "drafts" / f"{draft}.jsonl"
    lines = name.read_bytes().splitlines(keepends=True)
    name.write_bytes(b"".join([*lines[:2], b"\0\0\0\n", *lines[3:]]))

    (found,) = store.drafts()
    assert "line 2" in found.damage and found.message is None
    with pytest.raises(CorruptFile):
        store.recover_draft(draft)
    assert files(store) == [name.name]
    store.drop_draft(draft)
    assert files(store) == []


def test_what_is_no_draft_is_passed_over_and_a_link_is_not_followed(store, tmp_path):
    (store.path / "drafts").mkdir()
    (store.path / "drafts" / "notes.txt").write_text("mine")
    (store.path / "drafts" / "mine.jsonl").write_text("mine")
    assert store.drafts() == []

    (tmp_path / "elsewhere").write_text("{}")
    os.symlink(tmp_path / "elsewhere", store.path / "drafts" / "01J00000000000000000000009.jsonl")
    (found,) = store.drafts()
    assert "link" in found.damage


class CountingFiles(QuietFiles):
    """Counts the syncs of draft files."""

    syncs = 0

    def _sync(self, name, fd):
        self.syncs += name.startswith("drafts/")


@pytest.fixture
def counted(store):
    counting = CountingFiles(store.path)
    with Store(Storage.open(counting, ticking(7_200_000), lambda _: None)) as made:
        yield made, counting


def test_deltas_are_synced_by_bytes_by_time_and_at_the_end(counted, monkeypatch):
    store, counting = counted
    now = [0.0]
    monkeypatch.setattr(drafts_module, "monotonic", lambda: now[0])
    draft = store.draft("main")
    begun = counting.syncs

    fed(draft, texts("a", "b", "c"))
    assert counting.syncs == begun
    fed(draft, texts("x" * drafts_module.SYNC_BYTES))
    assert counting.syncs == begun + 1
    now[0] = drafts_module.SYNC_SECONDS
    fed(draft, texts("d"))
    assert counting.syncs == begun + 2
    fed(draft, texts("e"))
    assert counting.syncs == begun + 2
    draft.finish()
    assert counting.syncs == begun + 3


def test_every_delta_is_in_the_file_as_soon_as_it_is_fed(store):
    draft = store.draft("main")
    name = store.path / "drafts" / f"{draft.id}.jsonl"
    for delta in DELTAS:
        draft.feed(delta)
        assert name.read_bytes().endswith(delta.line())


def test_a_delta_that_could_not_be_written_comes_with_the_next(store, monkeypatch):
    draft = fed(store.draft("main"), texts("a"))
    write = type(store.storage.files)._write

    def full(self, name, fd, offset, data):
        write(self, name, fd, offset, bytes(data)[:5])
        raise StorageFailure(name, OSError(28, "No space left on device"))

    with monkeypatch.context() as patched:
        patched.setattr(type(store.storage.files), "_write", full)
        with pytest.raises(StorageFailure, match="No space"):
            fed(draft, texts("b"))
    fed(draft, texts("c"))
    draft.close()

    assert store.drafts()[0].message.text == "abc"


def _stream_and_die(path, conversation, words):
    with Store.open(path) as store:
        draft = fed(store.draft(conversation), texts(*words))
        assert draft.id
        os._exit(9)  # no end, no cleaning up: what a kill does


def _stream(path, conversation, words):
    with Store.open(path) as store:
        fed(store.draft(conversation), texts(*words)).finish(call=CALL)


def test_a_killed_process_leaves_its_draft_and_the_lock_goes_with_it(store):
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_stream_and_die, args=(store.path, "main", ["all ", "but ", "the end"]))
    process.start()
    process.join()

    (found,) = store.drafts()
    assert found.message.text == "all but the end"
    assert words_of(store.load_chain(store.recover_draft(found.id))) == ["hi", "all but the end"]


def test_processes_stream_into_conversations_of_their_own_at_once(store):
    context = multiprocessing.get_context("fork")
    jobs = [(store.path, f"c{i}", [f"{i}.{n} " for n in range(20)]) for i in range(6)]
    processes = [context.Process(target=_stream, args=job) for job in jobs]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert [process.exitcode for process in processes] == [0] * len(jobs)
    for _, name, words in jobs:
        assert words_of(store.load_chain(store.head(name))) == ["".join(words)]
    assert len(store.calls()) == len(jobs) and store.drafts() == []


def test_a_forked_child_neither_keeps_a_draft_alive_nor_ends_it(store):
    draft = fed(store.draft("main"), texts("mine"))
    read, write = os.pipe()
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.write(tell, b"!")
        os.read(read, 1)  # lives on until the parent has looked
        os._exit(0)
    os.close(read)
    os.read(ready, 1)
    draft.close()
    try:
        assert [found.id for found in store.drafts()] == [draft.id]
    finally:
        os.close(write)
        os.waitpid(child, 0)
