"""Calls in the store: recorded with what answered them, counted once, kept by gc as long as they are needed."""

import itertools
from dataclasses import replace

import pytest

from objstore.gc import GcOptions, collect
from objstore.jsonvalue import loads
from objstore.kinds import Kind
from objstore.message import Message, TextPart, ToolCallPart
from objstore.newcall import NewCall
from objstore.node import Node
from objstore.records import Call
from objstore.requests import Api
from objstore.usage import By, Prices
from refs.errors import Diverged, InvalidValue, NoSuchRef, ObjectMissing, RefChanged
from refs.ids import ROOT
from tests.storetools import indexed, init_quiet, quiet_store, say, talk, words_of

CALL = NewCall(model="m", input_tokens=7, output_tokens=3)
AGES_FROM_NOW = 1e12
TOOLS = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}]


@pytest.fixture
def store(tmp_path):
    with init_quiet(tmp_path / "store") as made:
        yield made


def count(store, kind):
    return store.storage.index.counts()[kind]


def sweep(store, **how):
    """gc with nothing young to it."""
    return collect(store.storage, GcOptions(prune_before=AGES_FROM_NOW, now=AGES_FROM_NOW, **how))


# -- recording ------------------------------------------------------------------------------------


def test_a_commit_with_a_call_is_one_transaction_of_output_ref_and_call(store):
    asked = store.commit("trip", talk("hi"))
    moves = len(list(store.reflog("trip")))

    head = store.commit("trip", [say("One.", "assistant"), say("Two.", "assistant")], call=CALL)

    assert store.head("trip") == head and words_of(store.load_chain(head)) == ["hi", "One.", "Two."]
    assert len(list(store.reflog("trip"))) == moves + 1
    (call,) = store.calls()
    assert (call.head_input, call.head_output, call.conversation) == (asked, head, "trip")
    assert store.calls(asked) == store.calls(head) == [call]
    assert store.calls(store.node(head).parent) == []


def test_what_is_told_of_a_call_comes_back(store):
    told = NewCall(
        model="m",
        started_at="2026-01-02T03:04:05.678Z",
        duration_ms=1200,
        input_tokens=1,
        output_tokens=2,
        token_details={"cached_tokens": 1},
        resolved_model="m-2026",
        options={"temperature": 0.5},
        request={"stream": True},
        response={"id": "r1"},
        instructions=say("Be brief.", "system"),
        tools=TOOLS,
    )
    store.commit("trip", talk("hi"), call=told)

    (call,) = store.calls()
    for name in ("started_at", "duration_ms", "input_tokens", "output_tokens", "resolved_model", "options"):
        assert getattr(call, name) == getattr(told, name)
    assert call.token_details == {"cached_tokens": 1} and call.request == {"stream": True}
    assert store.message(call.instructions) == say("Be brief.", "system")
    assert loads(store.open_payload(call.tools).read()) == TOOLS


def test_a_failed_call_is_recorded_without_an_answer(store):
    asked = store.commit("trip", talk("hi"))

    assert store.commit("trip", [], call=replace(CALL, error="503\n\toverloaded")) == asked

    (call,) = store.calls(asked)
    assert call.head_output is None and call.error == "503 overloaded"
    assert store.head("trip") == asked


def test_a_key_in_an_error_is_not_kept(store):
    store.commit("trip", talk("hi"), call=replace(CALL, error="bad key sk-proj-abcdefgh12345678"))
    assert store.calls()[0].error == "bad key [key]"


def test_retries_of_one_prompt_are_several_calls(store):
    asked = store.commit("trip", talk("hi"))
    for _ in range(2):
        store.commit("trip", [], call=replace(CALL, error="overloaded"))
    head = store.commit("trip", talk("x", "Hello.")[1:], call=CALL)

    calls = store.calls(asked)
    assert [call.head_output for call in calls] == [None, None, head]
    assert len({call.call for call in calls}) == 3


def test_a_call_in_a_conversation_that_was_never_made_is_kept_all_the_same(store):
    store.commit("nowhere", [], call=replace(CALL, error="no route"))
    assert store.head("nowhere") is None

    sweep(store)

    assert [call.error for call in store.calls(ROOT)] == ["no route"]


def test_a_commit_that_loses_the_race_keeps_its_call(store):
    asked = store.commit("trip", talk("hi"))
    winner = store.commit("trip", talk("x", "first")[1:])

    with pytest.raises(RefChanged) as caught:
        store.commit("trip", talk("x", "second")[1:], expected=asked, call=CALL)

    assert store.head("trip") == winner
    (call,) = store.calls(caught.value.stored)
    assert call.head_input == asked


@pytest.mark.parametrize(
    "told",
    [
        {"model": ""},
        {"started_at": "yesterday"},
        {"tools": {"name": "ls"}},
        {"input_tokens": -1},
        {"options": {"x": float("nan")}},
    ],
)
def test_a_call_that_cannot_be_is_refused_and_nothing_stored(store, told):
    with pytest.raises(InvalidValue):
        store.commit("trip", talk("hi"), call=NewCall(**{"model": "m", **told}))
    assert store.head("trip") is None and indexed(store) == set()


@pytest.mark.parametrize("member", ["head_input", "head_output", "instructions", "tools"])
def test_a_call_that_names_what_is_not_stored_is_refused(store, member):
    head = store.commit("trip", talk("hi"))
    call = Call(
        call="01J00000000000000000000001",
        model="m",
        started_at="2026-01-02T03:04:05.678Z",
        **{"head_input": head, member: "0" * 64},
    )
    with pytest.raises(ObjectMissing):
        store.record(call)
    assert store.calls() == []


# -- exchanges ------------------------------------------------------------------------------------


def test_an_exchange_stores_history_and_answer_and_moves_no_ref(store):
    history = talk("one", "two", "three")

    made = store.record_exchange(history, [say("four", "assistant")], call=CALL)

    assert words_of(store.load_chain(made.head_output)) == ["one", "two", "three", "four"]
    assert words_of(store.load_chain(made.head_input)) == ["one", "two", "three"]
    assert made.new == 4 and list(store.refs()) == []
    (call,) = store.calls(made.head_input)
    assert call.head_output == made.head_output and call.conversation is None


def test_an_exchange_may_bring_a_conversation_on(store):
    history = talk("one")
    for number in range(2, 8, 2):
        answer = say(f"answer {number}", "assistant")
        made = store.record_exchange(history, [answer], call=CALL, conversation="trip")
        assert store.head("trip") == made.head_output
        history += [answer, say(f"prompt {number}")]

    assert [call.conversation for call in store.calls()] == ["trip"] * 3
    with pytest.raises(Diverged):
        store.record_exchange(talk("another"), call=CALL, conversation="trip")
    assert len(store.calls()) == 3


def test_a_pure_resend_adds_a_call_and_nothing_else(store):
    history, answer = talk("one"), [say("two", "assistant")]
    first = store.record_exchange(history, answer, call=CALL, conversation="trip")
    before = indexed(store)

    again = store.record_exchange(history, answer, call=CALL, conversation="trip")

    assert (again.head_output, again.new) == (first.head_output, 0)
    assert indexed(store) - before == {("call", again.call)}
    assert len(list(store.reflog("trip"))) == 1


def test_resends_can_be_left_out_but_not_what_failed(store):
    history, answer = talk("one"), [say("two", "assistant")]
    how = {"call": CALL, "resends": False}
    assert store.record_exchange(history, answer, **how).call is not None
    before = indexed(store)

    again = store.record_exchange(history, answer, **how)
    assert again.call is None and indexed(store) == before

    failed = store.record_exchange(history, **{**how, "call": replace(CALL, error="overloaded")})
    assert failed.call is not None and failed.head_output is None


def test_an_older_part_of_a_conversation_may_be_asked_again(store):
    store.record_exchange(talk("one"), talk("x", "two")[1:], call=CALL, conversation="trip")
    head = store.record_exchange(
        talk("one", "two", "three"), talk("x", "four")[1:], call=CALL, conversation="trip"
    ).head_output

    made = store.record_exchange(talk("one"), talk("x", "two")[1:], call=CALL, conversation="trip")

    assert store.head("trip") == head and made.new == 0
    assert len(store.calls(made.head_input)) == 2


def test_a_thousand_resends_store_each_message_once_and_calls_of_one_size(store):
    system = say("You are helpful.", "system")
    history: list[Message] = [system]
    sizes = set()
    for turn in range(1000):
        prompt, answer = say(f"prompt {turn}"), say(f"answer {turn}", "assistant")
        history.append(prompt)
        request = {
            "model": "gpt-x",
            "messages": [{"role": message.role, "content": message.text} for message in history],
            "tools": TOOLS,
            "temperature": 0.5,
        }
        response = {"choices": [{"index": 0, "message": {"content": answer.text}}], "usage": {"prompt_tokens": 9}}
        call = NewCall.of(request, response, api=Api.OPENAI_CHAT, duration_ms=1000)
        made = store.record_exchange(history, [answer], call=call)
        assert made.new == (3 if turn == 0 else 2)
        sizes.add(len(store.read_object(Kind.CALL, made.call)))
        history.append(answer)

    assert len(sizes) == 1
    assert count(store, Kind.MESSAGE) == count(store, Kind.NODE) == 2001
    assert count(store, Kind.CALL) == 1000 and count(store, Kind.PAYLOAD) == 1
    assert list(store.refs()) == []


# -- raw requests ---------------------------------------------------------------------------------


def test_a_raw_request_and_response_make_a_call_without_the_history(store):
    request = {
        "model": "claude-x",
        "max_tokens": 100,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "hush"}],
        "tools": [{"name": "ls", "input_schema": {"type": "object"}}],
        "metadata": {"user_id": "somebody"},
    }
    response = {
        "id": "msg_1",
        "model": "claude-x-2026",
        "content": [{"type": "text", "text": "hush"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 11, "output_tokens": 2, "cache_read_input_tokens": 5},
    }
    call = NewCall.of(request, response, duration_ms=5)
    store.record_exchange(talk("hush"), talk("x", "hush")[1:], call=call)

    (found,) = store.calls()
    assert (found.model, found.resolved_model, found.duration_ms) == ("claude-x", "claude-x-2026", 5)
    assert (found.input_tokens, found.output_tokens) == (11, 2)
    assert found.token_details == {"cache_read_input_tokens": 5}
    assert found.options == {"max_tokens": 100}
    assert found.response == {"id": "msg_1", "stop_reason": "end_turn"}
    assert store.message(found.instructions) == say("Be brief.", "system")
    assert b"hush" not in found.canonical() and b"somebody" not in found.canonical()


def test_a_model_that_only_the_address_names_is_told(store):
    with pytest.raises(InvalidValue, match="model"):
        NewCall.of({"contents": []}, api=Api.GEMINI)
    assert NewCall.of({"contents": []}, model="gemini-x").model == "gemini-x"
    assert NewCall.of(None, {"choices": [], "model": "gpt-x"}).model == "gpt-x"


def test_an_error_response_makes_a_failed_call():
    call = NewCall.of({"model": "m", "messages": []}, {"error": {"type": "rate_limit", "message": "slow"}})
    assert call.error == "rate_limit: slow"


# -- usage ----------------------------------------------------------------------------------------


def test_usage_over_forks_and_resends_is_the_sum_over_unique_calls(store):
    store.commit("trip", talk("hi"))
    for turn in range(4):
        store.commit("trip", [say(f"answer {turn}", "assistant")], call=CALL)
        store.commit("trip", [say(f"prompt {turn}")])
        store.fork(store.head("trip"), f"fork-{turn}")
    store.commit("fork-0", [say("other", "assistant")], call=CALL)
    history = store.load_chain(store.head("trip"))
    for _ in range(2):
        store.record_exchange(history, call=CALL)

    total = store.usage().total
    assert (total.calls, total.input_tokens, total.output_tokens) == (7, 49, 21)

    # Each conversation's own sum counts the shared calls again: what other tools add up.
    per_conversation = [store.calls_along(info.head) for info in store.conversations()]
    assert sum(map(len, per_conversation)) > 7
    assert len({call.call for call in itertools.chain(*per_conversation)}) == 7


def test_usage_has_prices_and_groups(store):
    store.commit("trip", talk("hi"), call=CALL)
    store.record_exchange(talk("hi"), call=replace(CALL, model="other"))
    prices = Prices.from_dict({"m": {"input": 1_000_000, "output": 2_000_000}})

    report = store.usage(By.CONVERSATION, prices)

    assert {name: usage.cost for name, usage in report.groups.items()} == {"trip": 13, "": 0}
    assert report.unpriced == ("other",)


# -- which calls ----------------------------------------------------------------------------------


def test_the_calls_of_a_history_are_those_asked_on_it_and_in_what_it_asked_for(store):
    store.commit("trip", talk("hi"), call=CALL)
    head = store.commit("trip", [Message("assistant", [ToolCallPart("agent", {}, "c1")])], call=CALL)
    agent = store.save_chain(talk("do it"), called_by=head, tool_call_id="c1")
    inner = store.save_chain([say("deeper")], called_by=agent)
    for node in (agent, inner):
        store.record(
            Call(call=f"01J0000000000000000000000{len(store.calls())}", model="m", head_input=node, started_at=AT)
        )
    store.record_exchange(talk("elsewhere"), call=CALL)

    assert len(store.calls_along(head)) == 4
    assert len(store.calls_along(agent)) == 2
    assert len(store.calls()) == 5


AT = "2026-01-02T03:04:05.678Z"


def test_calls_can_be_asked_for_since_a_time(store):
    for day in ("01", "02", "03"):
        store.commit("trip", [], call=replace(CALL, started_at=f"2026-01-{day}T00:00:00.000Z"))
    assert len(store.calls(since="2026-01-02T00:00:00.000Z")) == 2
    assert len(store.calls(ROOT, since="2026-01-02T00:00:00.001Z")) == 1


# -- the hierarchy --------------------------------------------------------------------------------


def test_side_chains_are_told_with_what_asked_for_them(store):
    asker = store.commit("trip", [say("hi"), Message("assistant", [ToolCallPart("agent", {}, "c1")])])
    run = store.save_chain(talk("do it", "done", "more"), called_by=asker, tool_call_id="c1")
    later = store.save_chain(talk("again", "done again"), run, called_by=asker)

    first, second = store.called_from(asker)
    assert (first.called_by, first.tool_call_id) == (asker, "c1")
    assert store.node(first.first).parent == ROOT
    assert (second.first, second.tool_call_id) == (store.node(later).parent, None)
    assert store.caller(run) == first and store.caller(later) == second
    assert store.caller(asker) is None and store.caller(ROOT) is None
    assert store.called_from(run) == []


def test_side_chains_are_listed_behind_what_asked_for_them_with_their_own_size(store):
    asker = store.commit("trip", talk("hi", "ask"))
    later = store.commit("trip", talk("and", "ask again"))
    second = store.save_chain(talk("second"), called_by=later)
    first = store.save_chain(talk("do it", "done"), called_by=asker, tool_call_id="c1")
    inner = store.save_chain(talk("inner"), called_by=store.node(first).parent)
    again = store.save_chain(talk("again", "done"), first, called_by=later)
    store.save_chain(talk("a fork"), first)
    store.record(Call(call="01J00000000000000000000001", model="m", head_input=first, started_at=AT))

    found = store.side_chains(later)

    told = [(each.first, each.level, each.messages, each.calls) for each in found]
    start, prompt = store.node(first).parent, store.node(again).parent
    assert told == [(start, 1, 3, 1), (inner, 2, 1, 0), (second, 1, 1, 0), (prompt, 1, 2, 0)]
    assert [each.tool_call_id for each in found] == ["c1", None, None, None]
    assert store.side_chains(second) == []


def test_a_chain_that_asked_itself_for_a_later_prompt_is_no_side_chain_of_its_own(store):
    first = store.save_chain(talk("do it", "done"))
    head = store.save_chain(talk("go on", "done"), first, called_by=first)
    fork = store.save_chain(talk("otherwise"), store.node(head).parent)

    assert store.side_chains(head) == []
    assert [item.row.id for item in store.chat_view(head)] == [row.id for row in store.history_rows(head)]
    assert fork not in [row.id for row in store.context(head)]


def test_a_called_by_that_is_not_stored_is_refused(store):
    with pytest.raises(ObjectMissing):
        store.save_chain(talk("do it"), called_by="0" * 64)
    with pytest.raises(InvalidValue):
        store.save_chain(talk("do it"), called_by="later")
    assert indexed(store) == set()


def test_a_called_by_that_comes_later_is_impossible(store):
    asked = say("do it")
    plain = store.save_chain([asked])
    later = store.save_chain(talk("x", "done")[1:], plain)

    # To name what comes after it a node must change its id, and what came after it comes after another node.
    claiming = store.save_chain([asked], called_by=later)
    assert claiming != plain
    assert store.children(claiming) == [] and store.caller(later) is None

    with pytest.raises(ObjectMissing), store.transaction() as transaction:
        message = transaction.put_message(say("ring"))
        guessed = Node(plain, message).id
        first = transaction.put_node(Node(ROOT, message, guessed))
        transaction.put_node(Node(first, message))
    assert store.storage.index.row(Kind.NODE, first) is None


def test_an_agents_history_may_be_sent_again_with_what_asked_for_it(store):
    asker = store.commit("trip", talk("hi"))
    how = {"call": CALL, "called_by": asker, "tool_call_id": "c1"}
    made = store.record_exchange(talk("do it"), talk("x", "ok")[1:], **how)
    again = store.record_exchange(talk("do it", "ok", "and"), talk("x", "fine")[1:], **how)
    named = store.record_exchange(talk("do it", "ok", "and"), conversation="agent", **how)

    assert again.new == 2 and named.new == 0
    assert store.caller(again.head_output).called_by == asker
    assert store.node(again.head_input).parent == made.head_output
    assert store.head("agent") == again.head_input


def test_a_summary_needs_something_to_cover(store):
    with pytest.raises(InvalidValue):
        store.summarize([], say("nothing"))


# -- gc -------------------------------------------------------------------------------------------


def test_gc_keeps_all_that_a_call_without_a_conversation_keeps(store):
    call = NewCall(model="m", instructions=say("Be brief.", "system"), tools=TOOLS)
    made = store.record_exchange(talk("one", "two", "three"), talk("x", "four")[1:], call=call)
    agent = store.save_chain(talk("side"), called_by=made.head_output)
    lost = store.save_chain(talk("lost"))
    before = indexed(store)

    sweep(store)

    assert words_of(store.load_chain(made.head_output)) == ["one", "two", "three", "four"]
    (kept,) = store.calls()
    assert store.message(kept.instructions).text == "Be brief."
    assert loads(store.open_payload(kept.tools).read()) == TOOLS
    assert store.storage.index.row(Kind.NODE, agent) is not None
    assert store.storage.index.row(Kind.NODE, lost) is None
    gone = before - indexed(store)
    assert {kind for kind, _ in gone} == {"message", "node", "note"} and len(gone) == 3


def test_gc_keeps_a_call_that_began_a_conversation(store):
    head = store.commit("trip", talk("x", "I am here.")[1:], call=replace(CALL, tools=TOOLS))
    sweep(store)
    (call,) = store.calls(head)
    assert call.head_input == ROOT and store.open_payload(call.tools).read()


def test_gc_lets_stateless_calls_go_with_age_and_named_ones_with_their_conversation(store):
    store.record_exchange(talk("old"), call=replace(CALL, started_at="2020-01-01T00:00:00.000Z"))
    store.record_exchange(talk("new"), call=replace(CALL, started_at="2030-01-01T00:00:00.000Z"))
    store.commit("trip", talk("hi"))
    store.commit("trip", talk("x", "yes")[1:], call=CALL)

    sweep(store, calls_before=1_800_000_000)
    assert [call.started_at[:4] for call in store.calls()] == ["2026", "2030"]

    store.delete("trip")
    sweep(store, reflog_before=AGES_FROM_NOW)
    assert [call.conversation for call in store.calls()] == [None]


def test_a_call_outlives_a_rebuilt_index(store):
    made = store.record_exchange(talk("one"), talk("x", "two")[1:], call=replace(CALL, tools=TOOLS))
    calls = store.calls(made.head_input)
    store.reindex()
    assert store.calls(made.head_input) == store.calls_along(made.head_output) == calls
    with quiet_store(store.path) as other:
        assert other.calls(made.head_output) == calls


def test_an_unknown_node_has_no_calls_to_ask_for(store):
    for act in (store.calls, store.calls_along, store.called_from, store.caller):
        with pytest.raises(ObjectMissing):
            act("0" * 64)
    with pytest.raises(NoSuchRef):
        store.conversation("trip")


def test_text_parts_are_what_an_answer_may_be_made_of(store):
    """Several output messages, one of them with several parts, are one call."""
    outputs = [Message("assistant", [TextPart("a"), ToolCallPart("ls", {}, "c1")]), say("b", "assistant")]
    made = store.record_exchange(talk("one"), outputs, call=CALL)
    assert store.load_chain(made.head_output)[1:] == outputs and len(store.calls()) == 1
