"""dag commit: what goes in, what is new in it, and what is refused."""

import json

import pytest

from tests.cli.conftest import said

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather in Rome?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "Sunny"},
    {"role": "assistant", "content": "Sunny."},
]


def test_a_history_is_stored_and_the_conversation_moves_to_its_end(dag):
    ran = dag("commit", dag.write("chat.json", said("a", "b", "c")))
    head = dag("rev-parse", "HEAD").out.strip()
    assert ran.out == f"main: 3 new messages, head {head[:8]}\n"
    assert dag.counts() == (3, 3)


def test_the_same_history_again_adds_nothing(dag):
    path = dag.write("chat.json", said("a", "b"))
    dag("commit", path)
    before = dag.snapshot()
    assert dag("commit", path).out.startswith("main: 0 new messages")
    assert dag.snapshot() == before


def test_a_history_that_grew_adds_only_what_is_new(dag):
    dag("commit", dag.write("chat.json", said("a", "b")))
    assert dag("commit", dag.write("chat.json", said("a", "b", "c"))).out.startswith("main: 1 new message,")
    assert dag.counts() == (3, 3)


def test_a_history_that_is_behind_the_head_changes_nothing(dag):
    dag("commit", dag.write("chat.json", said("a", "b", "c")))
    assert dag("commit", dag.write("chat.json", said("a"))).out.startswith("main: 0 new messages")
    assert len(dag("log", "--json").json()) == 3


def test_a_request_sent_again_with_each_turn_stores_every_message_once(dag):
    for length in range(1, 12):
        history = said(*map(str, range(length)))
        dag("commit", "-", input=json.dumps({"model": "m", "messages": history}))
    assert dag.counts() == (11, 11)


@pytest.mark.parametrize(
    "written",
    [
        lambda messages: json.dumps(messages),
        lambda messages: json.dumps({"messages": messages}),
        lambda messages: json.dumps({"model": "gpt-4o", "temperature": 0.5, "messages": messages}, indent=2),
        lambda messages: "".join(json.dumps(message) + "\n" for message in messages),
        lambda messages: "\n\n".join(json.dumps(message) for message in messages),
        lambda messages: "\ufeff" + json.dumps(messages),
    ],
    ids=["list", "messages", "request", "lines", "blank-lines", "byte-order-mark"],
)
@pytest.mark.parametrize("messages", [said("a", "b"), CHAT], ids=["own", "openai"])
def test_message_lists_are_told_apart_by_their_shape(dag, written, messages):
    dag("commit", "-", input=written(messages))
    assert [each["role"] for each in dag("log", "--json").json()] == [m["role"] for m in reversed(messages)]


def test_one_message_alone_is_a_history_of_one(dag):
    dag("commit", "-", input=json.dumps(said("a")[0]))
    assert dag.counts() == (1, 1)


def test_openai_tool_calls_and_results_become_parts_of_their_own(dag):
    dag("commit", dag.write("chat.json", CHAT))
    shown = dag("show", "HEAD~2", "--json").json()["message"]["parts"]
    assert shown == [
        {"type": "tool_call", "name": "weather", "arguments": {"city": "Rome"}, "tool_call_id": "call_1"}
    ]
    (result,) = dag("show", "HEAD~1", "--json").json()["message"]["parts"]
    assert (result["type"], result["name"], result["output"]) == ("tool_result", "weather", "Sunny")


def test_what_openais_reader_finds_odd_is_told_and_kept(dag):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{cut"}}
    ran = dag("commit", "-", input=json.dumps([{"role": "assistant", "content": "", "tool_calls": [call]}]))
    assert "messages[0]: invalid-arguments" in ran.err
    assert dag("show", "--json").json()["message"]["parts"][-1]["arguments"] == {"_raw": "{cut"}


def test_large_integers_and_floats_stay_what_they_are(dag):
    arguments = '{"big": 123456789012345678901234567890, "small": 1e-7}'
    part = f'{{"type": "tool_call", "name": "f", "arguments": {arguments}}}'
    dag("commit", "-", input=f'[{{"role": "assistant", "parts": [{part}]}}]')
    assert '"arguments":{"big":123456789012345678901234567890,"small":1e-07}' in dag("cat", "--json").out


# -- one message, appending, forking --------------------------------------------------------------


def test_a_text_is_added_after_the_head_in_the_given_role(dag):
    dag("commit", "-m", "Hello")
    dag("commit", "-m", "Hi!", "--role", "assistant")
    assert [(e["role"], e["first_line"]) for e in dag("log", "--json").json()] == [
        ("assistant", "Hi!"),
        ("user", "Hello"),
    ]


def test_append_puts_all_messages_behind_the_head(dag):
    dag("commit", "-m", "x")
    ran = dag("commit", "--append", dag.write("chat.json", said("a", "b")))
    assert ran.out.startswith("main: 2 new messages")
    assert [each["first_line"] for each in dag("log", "--json").json()] == ["b", "a", "x"]


def test_another_conversation_is_named_by_option_or_environment(dag):
    dag("commit", "-m", "a", "-c", "trip")
    dag("commit", "-m", "b", DAG_CONVERSATION="work/today")
    assert [each["conversation"] for each in dag("list", "--json").json()] == ["trip", "work/today"]
    assert dag("log", "--json", DAG_CONVERSATION="work/today").json()["first_line"] == "b"
    assert (
        dag("rev-parse", "HEAD@{0}", "@", "HEAD", DAG_CONVERSATION="trip").out.split()
        == [dag("rev-parse", "trip").out.strip()] * 3
    )


def test_a_history_that_diverges_is_refused_with_the_place_and_both_ways_on(dag):
    dag("commit", dag.write("chat.json", said("a", "b", "c")))
    at, before = dag("rev-parse", "HEAD~1").out[:8], dag.snapshot()
    ran = dag("commit", dag.write("other.json", said("a", "b", "x")), code=3)
    assert f"dag: this history leaves 'main' after 2 common messages (at {at}" in ran.err
    assert "hint: " in ran.err and "--fork NAME" in ran.err and "--append" in ran.err
    assert dag.snapshot() == before


def test_a_diverging_history_can_be_forked_and_shares_its_past(dag):
    dag("commit", dag.write("chat.json", said("a", "b", "c")))
    ran = dag("commit", dag.write("other.json", said("a", "b", "x", "y")), "--fork", "other")
    assert ran.out.startswith("other: 2 new messages")
    assert dag.counts() == (5, 5)
    assert dag("rev-parse", "main~1").out == dag("rev-parse", "other~2").out


def test_a_text_can_be_forked_off_the_head(dag):
    dag("commit", dag.write("chat.json", said("a", "b")))
    dag("commit", "-m", "c", "--fork", "side")
    assert dag("rev-parse", "side~1").out == dag("rev-parse", "main").out


def test_a_fork_keeps_what_is_known_about_its_messages(dag):
    dag("commit", "-", "--fork", "dated", input=json.dumps([{**CHAT[0], "created_at": 1700000000}]))
    assert dag("log", "dated", "--json").json()["at"] == "2023-11-14T22:13:20.000Z"


def test_a_fork_never_takes_a_name_that_is_there(dag):
    dag("commit", "-m", "a", "-c", "taken")
    before = dag.snapshot()
    ran = dag("commit", "-m", "b", "--fork", "taken", code=3)
    assert ran.err == "dag: can't create 'taken': it exists already\n"
    assert dag.snapshot() == before


def test_json_says_what_happened(dag):
    ran = dag("commit", dag.write("chat.json", said("a", "b")), "--json").json()
    head = dag("rev-parse", "HEAD").out.strip()
    assert ran == {"schema": 1, "conversation": "main", "head": head, "new": 2}


@pytest.mark.parametrize("args", [(), ("chat.json", "-m", "x"), ("chat.json", "--role", "user")])
def test_file_and_text_are_one_or_the_other(dag, args):
    dag.write("chat.json", said("a"))
    ran = dag("commit", *args, code=2)
    assert ran.err.startswith("dag: ") and "hint: 'dag commit --help'" in ran.err


# -- what isn't a message list --------------------------------------------------------------------

REFUSED = {
    "empty": ("", "not JSON"),
    "not JSON": ("hello there", "not JSON: Expecting value at line 1, column 1"),
    "cut": ('[{"role": "user"', "not JSON"),
    "a number": ("7", "neither a list of messages nor an object"),
    "another object": ('{"prompt": "hi"}', "neither a list of messages nor an object"),
    "messages of another type": ('{"messages": {}}', "messages: a list is needed, not dict"),
    "no message": ("[]", "there is no message in it"),
    "a number among messages": ('[{"role": "user", "content": "a"}, 7]', "messages[1]: an object is needed"),
    "no role": ('[{"role": "user", "content": "a"}, {"content": "b"}]', "messages[1].role: missing"),
    "an empty role": ('[{"role": "", "content": "a"}]', "messages[0].role: a role is a non-empty string"),
    "no content": ('[{"role": "user"}]', "messages[0].content: missing"),
    "a number as content": ('[{"role": "user", "content": 7}]', "messages[0].content: a string or a list"),
    "a number as block": ('[{"role": "user", "content": [7]}]', "messages[0].content[0]: an object"),
    "a call that is none": ('[{"role": "user", "tool_calls": ["x"]}]', "messages[0].tool_calls[0]: an object"),
    "parts of one only": (
        '[{"role": "user", "parts": []}, {"role": "user", "content": "a"}]',
        "messages[1].parts: missing",
    ),
    "a part without text": (
        '{"messages": [{"role": "user", "parts": [{"type": "text"}]}]}',
        "messages[0].parts[0].text: missing",
    ),
    "lines, one of them not JSON": ('{"role": "user", "content": "a"}\n{oops\n', "line 2: not JSON"),
    "lines, one without a role": ('{"role": "user", "content": "a"}\n{"content": "b"}\n', "line 2.role: missing"),
    "lines of conversations": ('{"messages": []}\n{"messages": []}\n', "'dag import' reads many"),
    "too deep": ("[" * 200 + "]" * 200, "nested more than 128 levels deep"),
    "a number that isn't JSON": ('[{"role": "user", "content": NaN}]', "NaN is not JSON"),
}


@pytest.mark.parametrize(("written", "told"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_message_list_is_refused_with_its_element(dag, written, told):
    dag("commit", "-m", "before")
    before = dag.snapshot()
    ran = dag("commit", dag.write("in.json", written), code=2)
    assert ran.err.startswith("dag: ") and told in ran.err
    assert ran.err.count("\n") == 1 and ran.out == ""
    assert str(dag.folder / "in.json") in ran.err
    assert dag.snapshot() == before


def test_binary_input_is_refused(dag):
    before = dag.snapshot()
    (dag.folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    assert "a binary file, not JSON" in dag("commit", "picture.png", code=2).err
    (dag.folder / "latin.json").write_bytes(b'[{"role": "user", "content": "caf\xe9"}]')
    assert "not UTF-8 at byte 33" in dag("commit", "latin.json", code=2).err
    assert dag.snapshot() == before


def test_a_line_of_200_megabytes_is_refused_unread(dag):
    before = dag.snapshot()
    with (dag.folder / "long.json").open("wb") as stream:
        stream.write(b'[{"role": "user", "content": "')
        stream.truncate(200_000_000)  # the rest is a hole in the file: quick to make
    ran = dag("commit", "long.json", code=2)
    assert ran.err == "dag: long.json: 200000000 bytes, more than the 134217728 that are allowed\n"
    assert dag.snapshot() == before


def test_endless_standard_input_is_cut_short(dag, monkeypatch):
    monkeypatch.setattr("cli.inputs.MAX_INPUT_BYTES", 1000)
    ran = dag("commit", "-", input=b"x" * 2000, code=2)
    assert ran.err == "dag: standard input: 1001 bytes or more, more than the 1000 that are allowed\n"


def test_a_file_that_is_not_there_or_is_a_folder_is_a_clear_line(dag):
    assert dag("commit", "nothing.json", code=1).err == "dag: nothing.json: No such file or directory\n"
    assert dag("commit", ".", code=1).err == "dag: .: Is a directory\n"
