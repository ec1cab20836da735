"""The views through the store: rows of stored nodes, and histories of other programs shown whole."""

import json
from pathlib import Path

import pytest

from objstore.message import Message, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from objstore.records import Note, Tombstone
from objstore.transcripts import registry
from objstore.transcripts.files import open_source
from objstore.transcripts.model import Transcript
from refs.errors import ObjectMissing
from refs.ids import ROOT
from tests.storetools import init_quiet, say, talk

_SHARED = Path(__file__).parents[3] / "shared"
_DATA = _SHARED / "data"
_VECTORS_FILE = _SHARED / "vectors" / "call-hierarchy.json"
_VECTORS = json.loads(_VECTORS_FILE.read_text()) if _VECTORS_FILE.exists() else {}
_ROLES = {"llm": "assistant", "code": "tool"}


@pytest.fixture
def store(tmp_path):
    with init_quiet(tmp_path / "store") as made:
        yield made


def called(name, oid=None, **arguments):
    return Message("assistant", [ToolCallPart(name, arguments, oid)])


def result(name, output, oid=None):
    return Message("tool", [ToolResultPart(name, output, oid)])


def run(name, output):
    """A function's run: arguments and result in one message."""
    return Message("tool", [ToolCallPart(name, {}, "r"), ToolResultPart(name, output, "r")])


def said(rows):
    return [row.message.text for row in rows]


# -- another program's rows as nodes: docs/calls.md tells the mapping


def cases(group):
    needed = [case for case in _VECTORS.get(group, []) if case["name"] not in _NO_NODES]
    return [
        pytest.mark.parametrize("case", needed, ids=[case["name"] for case in needed]),
        pytest.mark.skipif(not _VECTORS, reason="the shared vectors are not beside this repository"),
    ]


_NO_NODES = {
    "unknown head",
    "unknown head -> []",
    "cycle terminates",  # no node can be on one
    "dangling predecessor stops",  # nor be stored before its parent
    "default head",  # the store's door is asked for a head
}


def with_marks(marks):
    def decorate(test):
        for mark in marks:
            test = mark(test)
        return test

    return decorate


class Stored:
    """Their rows as nodes of a store."""

    def __init__(self, store, rows):
        self.node_of, self.id_of, self.rows = {}, {ROOT: None}, rows
        for row in sorted(rows, key=lambda row: row.get("created_at", 0)):
            self._put(store, row)

    def _put(self, store, row):
        about = row.get("metadata", {})
        note = {key: row.get(key) or about.get(key) for key in ("expose", "display", "source")}
        note = {key: value for key, value in note.items() if value is not None}
        caller = row.get("caller") or None
        covers = [self.node_of[oid] for oid in about.get("covers_ids", ())]
        if covers:
            node = store.summarize(covers, self._message(row))
        else:
            if caller in ("ROOT", None):
                by = None
            else:
                by = self.node_of.get(caller) or store.save_chain([say(caller, "assistant")])
            parent = self.node_of.get(row.get("predecessor"), ROOT)
            node = store.save_chain([self._message(row)], parent, called_by=by, note=note)
        self.node_of[row["id"]], self.id_of[node] = node, row["id"]

    def _message(self, row):
        return say(row["id"], _ROLES.get(row["role"], row["role"]))

    def ids(self, nodes):
        return [self.id_of[node] for node in nodes]

    def at(self, place):
        return None if place is None else self.node_of[self.rows[place]["id"]]


@with_marks(cases("linear_history"))
def test_linear_history_of_stored_rows(store, case):
    stored = Stored(store, case["msgs"])
    assert stored.ids(row.id for row in store.history_rows(stored.node_of[case["head"]])) == case["ids"]


@with_marks(cases("siblings"))
def test_siblings_of_stored_rows(store, case):
    stored = Stored(store, case["msgs"])
    found = store.siblings(stored.node_of[case["id"]], among=stored.node_of.values())
    assert stored.ids(found.ids) == case["siblings"]
    assert [found.index, len(found.ids)] == case["index"]
    assert stored.ids(found.leaves)[found.index - 1] == case["deepest_leaf"]


@with_marks(cases("render_context"))
def test_context_of_stored_rows(store, case):
    stored, args = Stored(store, case["nodes"]), case["args"]
    shown = store.context(
        stored.node_of[args["head_id"]],
        until=stored.at(args.get("head_seq")),
        frame=stored.at(args.get("frame_entry_seq")),
        max_caller_rows=args.get("render_range", {}).get("callers"),
    )
    assert stored.ids(row.id for row in shown) == case["ids"]


# -- whole histories, and the hierarchy beside them


def test_a_session_whose_turns_both_hang_at_the_root_reads_whole_and_keeps_its_hierarchy(store):
    first = store.commit("trip", [say("u1"), called("task", "c")])
    agent = store.save_chain(talk("sub", "done"), called_by=first, tool_call_id="c")
    head = store.commit("trip", [result("task", "done", "c"), say("u2"), say("a2", "assistant")])

    assert said(store.history_rows(head)) == ["u1", "", "", "u2", "a2"]
    assert store.history_rows(head)[-1].called_by is None and store.caller(head) is None
    assert store.caller(agent).called_by == first
    assert [item.row.message.text for item in store.chat_view(head)] == ["u1", "", "sub", "done", "u2", "a2"]


def test_rows_carry_what_notes_say_the_latest_word_last(store):
    head = store.save_chain([say("x")], note={"expose": "full", "display": "runtime", "source": "a"})
    with store.transaction() as transaction:
        later = Note(
            note="01J00000000000000000000001", at="2030-01-01T00:00:00.000Z", nodes={head: {"hidden": True}}
        )
        transaction.put_record(later)
    (row,) = store.history_rows(head)
    assert (row.expose, row.display, row.source, row.role) == ("full", "hidden", "a", "user")


def test_rows_are_in_order_of_when_things_were_said_and_never_before_what_they_follow(store):
    at = {day: {"at": f"2026-01-0{day}T00:00:00.000Z"} for day in range(1, 6)}
    first = store.save_chain([say("u1")], note=at[2])
    asked = store.save_chain([called("f", "c")], first, note=at[1])  # a clock that went back
    store.save_chain([run("late", "x")], called_by=asked, note=at[5])
    store.save_chain([run("early", "y")], called_by=asked, note=at[3])
    head = store.save_chain([say("u2")], asked, note=at[4])

    shown = [row.message.parts[0] for row in store.context(head)]
    names = [getattr(part, "name", None) or part.text for part in shown]
    assert names == ["u1", "f", "early", "u2", "late"]


def test_an_erased_message_leaves_a_row_without_one(store):
    head = store.save_chain(talk("secret", "answer"))
    message = store.node(store.node(head).parent).message
    real = store.chains.message

    def erased(oid):
        return (
            Tombstone("message", message, "2026-01-01T00:00:00.000Z", "asked for") if oid == message else real(oid)
        )

    store.chains.message = erased
    rows = store.history_rows(head)
    assert [row.message and row.message.text for row in rows] == [None, "answer"]
    assert len(store.chat_view(head)) == len(store.context(head)) == 2


def test_a_summary_stands_where_all_that_it_covers_is_on_the_chain(store):
    history = talk("one", "two", "three", "four")
    head = store.commit("trip", history)
    covered = [row.id for row in store.history_rows(head)[:3]]
    store.summarize(covered, say("in short", "assistant"))
    fork = store.save_chain([say("other")], covered[1])

    assert said(store.context(head)) == ["in short", "four"]
    assert said(store.context(fork)) == ["one", "two", "other"]
    assert said(store.history_rows(head)) == ["one", "two", "three", "four"]


def test_a_function_sees_its_callers_and_an_agent_only_itself(store):
    asker = store.commit("trip", [say("u1"), called("f", "c")])
    agent = store.save_chain(talk("sub", "done"), called_by=asker, tool_call_id="c")
    function = store.save_chain([run("f", "..."), say("inside", "assistant")], called_by=asker)

    assert said(store.context(agent)) == ["sub", "done"]
    assert said(store.context(function)) == ["u1", "", "sub", "", "inside"]
    assert said(store.context(asker, max_call_levels=0)) == ["u1", ""]


def test_a_frame_that_is_not_in_the_context_is_told(store):
    head, elsewhere = store.commit("trip", talk("hi")), store.save_chain(talk("elsewhere"))
    with pytest.raises(ObjectMissing):
        store.context(head, until=elsewhere)
    for act in (store.context, store.chat_view, store.history_rows, store.siblings, store.alternatives):
        with pytest.raises(ObjectMissing):
            act("0" * 64)


# -- siblings


def test_siblings_are_counted_with_the_deepest_leaf_of_each(store):
    asked = store.save_chain(talk("hi"))
    first, second, third = (store.save_chain([say(each, "assistant")], asked) for each in "abc")
    shallow = store.save_chain(talk("x"), second)
    deep = store.save_chain(talk("y", "z"), second)
    newer = store.save_chain(talk("v"), third)
    newest = store.save_chain(talk("w"), third)

    found = store.siblings(second)

    assert (found.ids, found.index) == ((first, second, third), 2)
    assert found.leaves == (first, deep, newest)
    assert {shallow, newer}.isdisjoint(found.leaves)
    alone = store.siblings(deep)
    assert (alone.ids, alone.index, alone.leaves) == ((deep,), 1, (deep,))


def test_first_messages_are_siblings_only_among_heads_that_are_named(store):
    one, two, other = (store.save_chain(talk(each, "yes")) for each in ("one", "two", "elsewhere"))
    first = store.node(one).parent

    assert store.siblings(first).ids == (first,)
    found = store.siblings(first, among=[one, two])
    assert found.leaves == (one, two) and found.index == 1
    assert store.node(other).parent not in found.ids


def test_alternatives_are_the_places_on_a_chain_where_more_than_one_turn_stands(store):
    system = say("You are helpful.", "system")
    history = [system, *talk("one", "two", "three", "four")]
    head = store.commit("trip", history)
    rows = [row.id for row in store.history_rows(head)]
    store.commit("another", [system, say("something else")])
    edited = store.save_chain([say("three, edited")], rows[2])

    found = store.alternatives(head)

    assert list(found) == [rows[3]]  # not the first turn: another conversation only begins alike
    assert (found[rows[3]].ids, found[rows[3]].index) == ((rows[3], edited), 1)
    assert found[rows[3]].leaves == (head, edited)
    assert store.alternatives(rows[1]) == {}


# -- other programs' sessions


def put(store, transcript):
    """A transcript's entries as nodes; the nodes by key."""
    nodes = {}
    for entry in transcript.read_all():
        nodes[entry.key] = store.save_chain(
            [entry.message],
            nodes.get(entry.parent, ROOT),
            called_by=nodes.get(entry.called_by),
            tool_call_id=entry.tool_call_id if entry.called_by in nodes else None,
            note=entry.note,
        )
    return nodes


def results_in(rows):
    parts = [part for row in rows for part in row.message.parts]
    return sum(isinstance(part, ToolResultPart) for part in parts)


@pytest.mark.parametrize(
    ("format", "path", "least"),
    [
        ("openai-chat", "openai-chat/taubench-gpt-4o-airline-first.json", 700),
        ("claude-code", "claude-code", 100),
        ("codex", "codex", 100),
    ],
)
def test_every_tool_result_of_a_session_is_paired_or_shown_as_an_orphan(store, format, path, least):
    source = _DATA / path
    if not source.exists():
        pytest.skip("the shared data is not beside this repository")
    told = chains = 0
    for transcript in registry.read(format, open_source(source)):
        if not isinstance(transcript, Transcript):
            continue
        nodes = put(store, transcript)
        for key in {head.key for head in transcript.heads}:
            history = store.history_rows(nodes[key])
            items = store.chat_view(nodes[key])
            shown = {row.id for row in history} - {item.row.id for item in items}
            assert shown == {oid for item in items for oid in item.folded} & {row.id for row in history}
            here = {row.id for row in history}
            cards = [card for item in items for card in (*item.cards, *item.orphans) if card.result_in in here]
            assert len(cards) == results_in(history)
            assert len({id(card) for card in cards}) == len(cards)
            told += len(cards)
            chains += 1
    assert told >= least and chains


# -- size


def test_views_of_a_long_history_neither_recurse_nor_grow_beyond_it(store):
    """A chain ten times deeper than Python's stack, with a fork, a run and an agent every fiftieth turn."""
    messages, every = [], 50
    for turn in range(2500):
        messages += [say(f"u{turn}"), called("ls", f"c{turn}"), result("ls", "a", f"c{turn}")]
        messages.append(Message("assistant", [ReasoningPart("hm"), TextPart(f"a{turn}")]))
    head = store.commit("long", messages)
    rows = store.history_rows(head)
    for place in range(1, len(rows), 4 * every):
        store.save_chain(talk("x", "y"), rows[place].parent)
        store.save_chain([run("index", "done")], called_by=rows[place].id)
        store.save_chain(talk("sub", "done"), called_by=rows[place].id)
    sides = len(range(1, len(rows), 4 * every))

    assert len(rows) == 10_000 and [row.order for row in rows] == sorted(row.order for row in rows)
    items = store.chat_view(head)
    assert sum(len(item.folded) + 1 for item in items) == 10_000 + 3 * sides
    assert len(store.context(head)) == 10_000 + 2 * sides
    assert len(store.alternatives(head)) == sides
    assert store.siblings(rows[1].id).leaves[0] == head
    assert store.caller(head) is None and store.calls_along(head) == []
