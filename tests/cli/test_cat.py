"""dag cat and dag show: conversations back out, whole and in."""

import json

import pytest

from objstore import AttachmentPart, Message, ReasoningPart, Store, TextPart, ToolCallPart, ToolResultPart
from objstore.attachment import Attachment
from objstore.message import UnknownPart
from tests.cli.conftest import said
from tests.cli.test_commit import CHAT

EVERYTHING = [
    Message("system", [TextPart("Be brief.")]),
    Message("user", [TextPart("Look: "), AttachmentPart(Attachment("image/png", content=b"\x89PNG" * 3000))]),
    Message(
        "assistant",
        [
            ReasoningPart("hm", token_count=3),
            TextPart("I'll look ```here```."),
            ToolCallPart("find", {"q": 1e-7, "big": 2**70, "nested": {"a": [None, True]}}, "call_1"),
        ],
        {"provider": {"id": "x"}},
    ),
    Message(
        "tool", [ToolResultPart("find", "found \ud83d", "call_1", attachments=[Attachment("text/plain", "u:/x")])]
    ),
    Message("assistant", [ToolResultPart("search", "", exception="timed out", server_executed=True)]),
    Message("assistant", [UnknownPart({"type": "video", "seconds": 1.5})]),
    Message("narrator", []),
    Message("user", [TextPart("")]),
]


@pytest.fixture
def full(dag):
    with Store.open(dag.folder / ".dag") as store:
        store.commit("main", EVERYTHING)
    return dag


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_json_goes_back_in_unchanged(full, form):
    head = full("rev-parse", "HEAD").out
    written = full("cat", "--format", form)
    copy = full("commit", "-", "--fork", "copy", input=written.raw)
    assert copy.out.startswith("copy: 0 new messages")
    assert full("rev-parse", "copy").out == head
    assert full("cat", "copy", "--format", form).raw == written.raw


def test_openai_chat_goes_out_as_it_came_and_back_in_unchanged(dag):
    dag("commit", dag.write("chat.json", CHAT))
    ran = dag("cat", "--format", "openai")
    assert json.loads(ran.out) == {"messages": CHAT}
    assert ran.err == ""
    assert dag("commit", "-", input=ran.raw).out.startswith("main: 0 new messages")


def test_what_openais_form_cannot_hold_is_told(full):
    ran = full("cat", "--format", "openai")
    assert "messages" in json.loads(ran.out)
    assert "dag: not in OpenAI's form: message 3: reasoning" in ran.err


def test_json_is_one_document_with_a_schema(full):
    made = json.loads(full("cat", "--json").out)
    assert (made["schema"], made["head"]) == (1, full("rev-parse", "HEAD").out.strip())
    assert [each["role"] for each in made["messages"]] == [each.role for each in EVERYTHING]


def test_text_is_for_reading_oldest_first(dag):
    dag("commit", dag.write("chat.json", CHAT))
    lines = [line for line in dag("cat").out.splitlines() if not line.startswith("[")]
    assert lines == [
        *("Be brief.", "", "Weather in Rome?", ""),
        *("→ weather (call_1)", "    {", '      "city": "Rome"', "    }", ""),
        *("← weather (call_1)", "    Sunny", "", "Sunny."),
    ]


def test_markdown_fences_what_holds_fences(dag):
    output = "a\n````\nb"
    dag("commit", "-", input=json.dumps([{"role": "tool", "content": output, "name": "sh", "tool_call_id": "c"}]))
    lines = dag("cat", "--format", "markdown").out.splitlines()
    assert lines == ["## tool", "", "**Tool result** `sh` (`c`)", "", "`````", *output.split("\n"), "`````"]


def test_a_revision_is_where_the_conversation_ends(dag):
    dag("commit", dag.write("a.json", said("a", "b", "c")))
    assert len(json.loads(dag("cat", "HEAD~1", "--json").out)["messages"]) == 2
    assert json.loads(dag("cat", "root", "--json").out)["messages"] == []


def test_every_part_can_be_shown_as_text_and_markdown(full):
    for out in (full("cat").out, full("cat", "--format", "markdown").out):
        for word in (
            "Be brief.",
            "image/png",
            "hm",
            "I'll look ```here```.",
            "find",
            "found",
            "timed out",
            "video",
        ):
            assert word in out


def test_show_has_ids_parts_notes_and_names(dag):
    dag("commit", "-", input=json.dumps([{"role": "user", "content": "hello", "weight": 1}]))
    out = dag("show").out
    made = dag("show", "--json").json()
    assert out.splitlines()[0] == f"node     {made['node']} (HEAD -> main)"
    assert "    hello" in out.splitlines() and '{"weight": 1}' in out
    assert made["message"] == {"role": "user", "parts": [{"type": "text", "text": "hello"}]}
    assert made["notes"][0]["members"] == {"weight": 1}
    assert (made["schema"], made["parent"], made["refs"], made["calls"]) == (1, "root", ["main"], [])


def test_show_of_what_is_before_the_first_message_is_refused(dag):
    assert "nothing to show" in dag("show", "root", code=1).err
