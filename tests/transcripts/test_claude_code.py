"""Claude Code sessions: chains that fork, repeat, cycle, start anew, and call others."""

import base64
import json

import pytest

from objstore.message import ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from objstore.transcripts import claude_code
from objstore.transcripts.files import BytesSource, View
from objstore.transcripts.model import Certainty
from objstore.transcripts.peek import start_of
from tests.transcripts.conformance import (
    parents,
    read_files,
    read_path,
    real_file,
    shape,
    survives_damage,
    survives_odd_values,
    texts,
)

SECONDS = iter(range(10_000))


def row(kind, uuid, parent, content=None, *, at=None, session="s-1", **more):
    at = f"2026-05-01T10:{next(SECONDS) // 60 % 60:02}:{next(SECONDS) % 60:02}.000Z" if at is None else at
    made = {"parentUuid": parent, "sessionId": session, "type": kind, "uuid": uuid, "timestamp": at}
    if kind in ("user", "assistant"):
        made["message"] = {"role": kind, "content": content}
    return made | more


def said(uuid, parent, *blocks, message=None, **more):
    """An assistant's record; blocks may be plain text."""
    made = row("assistant", uuid, parent, None, **more)
    made["message"] = {
        "id": message or f"msg_{uuid}",
        "role": "assistant",
        "model": "claude-x",
        "content": [{"type": "text", "text": each} if isinstance(each, str) else each for each in blocks],
        "usage": {"input_tokens": 9, "output_tokens": 42, "cache_read_input_tokens": 7},
    }
    return made


def call(id, name="Bash", **given):
    return {"type": "tool_use", "id": id, "name": name, "input": given}


def result(uuid, parent, id, content="done", **more):
    return row("user", uuid, parent, [{"type": "tool_result", "tool_use_id": id, "content": content}], **more)


def lines(*rows):
    return b"".join(json.dumps(each).encode() + b"\n" for each in rows)


def read(*rows, **files):
    return read_files(claude_code, {"s-1.jsonl": lines(*rows), **files})


def heads(transcript):
    return [(head.label, head.key, head.active) for head in transcript.heads]


# -- what a message is ----------------------------------------------------------------------------


def test_prompts_answers_and_results_are_messages_with_their_times_and_ids():
    made = read(
        row("user", "u", None, "list", at="2026-05-01T10:00:00.5Z", cwd="/d", gitBranch="main", version="2"),
        said("a", "u", {"type": "thinking", "thinking": "hm", "signature": "c2ln"}, "ok", call("t", cmd="ls")),
        row("user", "r", "a", [{"type": "tool_result", "tool_use_id": "t", "content": "x", "is_error": True}]),
    ).only
    first, answer, output = made.entries
    assert (first.key, first.parent, first.at) == ("u", None, "2026-05-01T10:00:00.500Z")
    assert first.note == {"id": "u", "cwd": "/d", "branch": "main", "version": "2"}
    assert answer.message.parts == (
        ReasoningPart("hm", provider_metadata={"anthropic": {"signature": "c2ln"}}),
        TextPart("ok"),
        ToolCallPart("Bash", {"cmd": "ls"}, "t"),
    )
    assert output.message.role == "tool"
    assert output.message.parts == (ToolResultPart("Bash", "x", "t", exception="error"),)
    assert (made.id, made.model, made.created_at) == ("s-1", "claude-x", "2026-05-01T10:00:00.500Z")


def test_a_call_is_told_with_its_tokens():
    made = read(row("user", "u", None, "hi"), said("a", "u", "yo", requestId="req_1")).only
    [told] = made.calls
    assert (told.id, told.model, told.head_input, told.head_output) == ("msg_a", "claude-x", "u", "a")
    assert (told.input_tokens, told.output_tokens) == (9, 42)
    assert told.token_details == {"cache_read_input_tokens": 7}
    assert made.entries[1].note["request_id"] == "req_1"


def test_images_become_bytes_once_however_often_they_stand_there():
    image = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(b"\x89PNG" * 20_000).decode()}
    block = {"type": "image", "source": image}
    made = read(
        row("user", "u", None, [block, {"type": "text", "text": "look"}]),
        said("a", "u", call("t")),
        result("r", "a", "t", [block, {"type": "text", "text": "shot"}]),
    ).only
    held = made.entries[0].message.parts[0].attachment
    [again] = made.entries[2].message.parts[0].attachments
    assert held == again
    assert (held.type, held.content) == ("image/png", b"\x89PNG" * 20_000)
    assert made.entries[2].message.parts[0].output == "shot"


def test_injected_and_synthetic_messages_are_flagged():
    synthetic = said("e", "m", "API Error")
    synthetic["message"]["model"] = "<synthetic>"
    made = read(row("user", "m", None, "<caveat>", isMeta=True), synthetic).only
    assert made.entries[0].note["hidden"] is True
    assert made.entries[1].note["synthetic"] is True
    assert made.calls == []


def test_unknown_blocks_are_kept_and_told():
    outputs = read(said("a", None, {"type": "hologram", "x": 1}))
    assert outputs.only.entries[0].message.to_dict()["parts"] == [{"type": "hologram", "x": 1}]
    assert outputs.warnings == ["unknown-part"]


def test_events_between_messages_are_spliced_out():
    made = read(
        row("user", "u", None, "a"),
        row("progress", "p", "u", data={"type": "hook"}),
        row("system", "s", "p", subtype="turn_duration", durationMs=5),
        row("attachment", "t", "s", attachment={"type": "todo"}),
        said("a", "t", "b"),
        {"type": "file-history-snapshot", "messageId": "u", "snapshot": {}},
    ).only
    assert parents(made) == {"u": None, "a": "u"}


# -- one response over many records ---------------------------------------------------------------


def test_the_records_of_one_response_are_one_message_and_one_call():
    made = read(
        row("user", "u", None, "list and read"),
        said("b1", "u", {"type": "thinking", "thinking": "two", "signature": "s"}, message="same"),
        said("b2", "b1", "Looking.", message="same"),
        said("b3", "b2", call("t1"), message="same"),
        result("r1", "b3", "t1"),
        said("b4", "b3", call("t2"), message="same"),
        result("r2", "b4", "t2"),
        said("a", "r2", "Done."),
    ).only
    assert shape(made) == [
        ("user", ("text",)),
        ("assistant", ("reasoning", "text", "tool_call", "tool_call")),
        ("tool", ("tool_result",)),
        ("tool", ("tool_result",)),
        ("assistant", ("text",)),
    ]
    assert parents(made) == {"u": None, "b1": "u", "r1": "b1", "r2": "r1", "a": "r2"}
    assert made.entries[1].note["records"] == ["b1", "b2", "b3", "b4"]
    assert [each.output_tokens for each in made.calls if each.id == "same"] == [42]
    assert not made.warnings


def test_blocks_are_joined_across_the_results_between_them():
    made = read(
        row("user", "u", None, "go"),
        said("b1", "u", call("t1"), message="same"),
        result("r1", "b1", "t1"),
        said("b2", "r1", call("t2"), message="same"),
        result("r2", "b2", "t2"),
    ).only
    assert parents(made) == {"u": None, "b1": "u", "r1": "b1", "r2": "r1"}


def test_an_answer_that_was_asked_for_again_is_a_fork():
    made = read(row("user", "u", None, "go"), said("a", "u", "one"), said("b", "u", "two")).only
    assert parents(made) == {"u": None, "a": "u", "b": "u"}
    assert heads(made) == [("s-1/a", "a", False), ("s-1", "b", True)]


def test_one_result_given_twice_is_a_fork():
    made = read(said("a", None, call("t")), result("r", "a", "t", "x"), result("q", "a", "t", "y")).only
    assert parents(made) == {"a": None, "r": "a", "q": "a"}


# -- parents that lie -----------------------------------------------------------------------------


def test_a_parent_that_was_never_written_loses_nothing():
    outputs = read(row("user", "u1", None, "a"), said("a1", "u1", "b"), row("user", "u2", "ghost", "c"))
    assert parents(outputs.only) == {"u1": None, "a1": "u1", "u2": "a1"}
    assert outputs.only.entries[2].note["inferred_parent"] is True
    assert [(warn.kind, warn.place) for warn in outputs.only.warnings] == [("dangling-parent", "line 3")]


def test_cycles_are_cut_at_their_earliest_record():
    outputs = read(
        row("user", "u1", None, "a"),
        said("a1", "u1", "b"),
        row("user", "c1", "c2", "c"),
        said("c2", "c1", "d"),
        row("user", "s1", "s1", "self"),
    )
    assert parents(outputs.only) == {"u1": None, "a1": "u1", "c1": None, "c2": "c1", "s1": None}
    assert outputs.warnings == ["parent-cycle", "parent-cycle"]
    assert len(outputs.only.heads) == 3


def test_records_without_ids_follow_each_other():
    made = read(
        {"type": "user", "timestamp": "2026-05-01T10:00:00Z", "message": {"content": "a"}},
        {"type": "assistant", "message": {"content": [{"type": "text", "text": "b"}]}},
        {"type": "user", "message": {"content": "c"}},
    ).only
    assert texts(made) == [("user", "a"), ("assistant", "b"), ("user", "c")]
    assert len(made.heads) == 1
    assert "inferred_parent" not in made.entries[1].note


def test_where_no_record_names_a_parent_the_order_is_the_chain():
    made = read(row("user", "u", None, "a"), said("a", None, "b"), row("user", "v", None, "c")).only
    assert parents(made) == {"u": None, "a": "u", "v": "a"}


# -- resume, compaction, rewind -------------------------------------------------------------------


def test_a_resumed_session_shares_the_chain_of_the_one_it_copied():
    first = [row("user", "u1", None, "q"), said("a1", "u1", "r")]
    copied = [each | {"sessionId": "s-2", "slug": "resumed"} for each in first]
    edited = said("a1", "u1", "r (edited)")
    outputs = read(
        *first,
        row("user", "u2", "a1", "old end"),
        *copied,
        row("user", "u3", "a1", "new end", session="s-2"),
        edited,
    )
    one, two = outputs.transcripts
    assert [(one.id, texts(one)[-1][1]), (two.id, texts(two)[-1][1])] == [("s-1", "old end"), ("s-2", "new end")]
    assert [entry.message for entry in one.entries[:2]] == [entry.message for entry in two.entries[:2]]
    assert len({entry.key for each in (one, two) for entry in each.entries}) == 4
    assert outputs.warnings == ["duplicate-uuid-conflict"]


def test_a_copy_that_nothing_was_added_to_is_no_session_of_its_own():
    first = [row("user", "u1", None, "q"), said("a1", "u1", "r")]
    made = read(*first, row("user", "u2", "a1", "more", session="s-2")).only
    assert (made.id, len(made.entries)) == ("s-2", 3)
    assert made.entries[0].note["session"] == "s-1"


def test_sessions_that_all_share_one_past_are_told_in_bounded_work():
    chain = [row("user", "u0", None, "0")]
    chain += [row("user", f"u{i}", f"u{i - 1}", str(i)) for i in range(1, 300)]
    ends = [row("user", f"e{i}", "u299", "end", session=f"end-{i}") for i in range(200)]
    outputs = read(*chain, *ends)
    assert sum(len(transcript.entries) for transcript in outputs.transcripts) < 17 * 500
    labels = {head.label for transcript in outputs.transcripts for head in transcript.heads}
    assert {f"end-{i}" for i in range(200)} <= labels


def test_a_replay_under_new_ids_is_the_same_chain():
    at = "2026-05-01T10:00:00Z"
    first = [row("user", "u1", None, "q", at=at), said("a1", "u1", "r", at=at, message="m1")]
    again = [row("user", "x1", None, "q", at=at), said("x2", "x1", "r", at=at, message="m1")]
    made = read(*first, row("user", "u2", "a1", "end"), *again, row("user", "x3", "x2", "other end")).only
    assert parents(made) == {"u1": None, "a1": "u1", "u2": "a1", "x3": "a1"}


def test_a_compaction_goes_on_where_the_session_stood():
    made = read(
        row("user", "u1", None, "a"),
        said("a1", "u1", "b"),
        row("system", "cb", None, subtype="compact_boundary", logicalParentUuid="a1"),
        row("user", "sum", "cb", "Summary.", isCompactSummary=True),
        said("a2", "sum", "c"),
    ).only
    assert parents(made) == {"u1": None, "a1": "u1", "sum": "a1", "a2": "sum"}
    assert made.entries[2].note["compact_summary"] is True


def test_a_message_kept_behind_its_own_boundary_makes_no_cycle():
    outputs = read(
        row("user", "u1", None, "start"),
        said("a1", "u1", "ready"),
        row("user", "x1", "a1", "try one"),
        said("x2", "x1", "one"),
        row("user", "y1", "a1", "try two"),
        said("y2", "y1", "two"),
        row("user", "y3", "y2", "keep going"),
        row("system", "cb", None, subtype="compact_boundary", logicalParentUuid="y4"),
        row("user", "y5", "cb", "Summary.", isCompactSummary=True),
        said("y4", "y5", "kept going"),
        row("user", "y9", "y4", "after"),
    )
    chain = {"y1": "a1", "y2": "y1", "y3": "y2", "y5": "y3", "y4": "y5", "y9": "y4"}
    assert parents(outputs.only) == {"u1": None, "a1": "u1", "x1": "a1", "x2": "x1", **chain}
    assert heads(outputs.only) == [("s-1/x2", "x2", False), ("s-1", "y9", True)]
    assert outputs.warnings == []


# -- tools ----------------------------------------------------------------------------------------


def test_results_without_calls_and_calls_without_results_are_told_and_kept():
    outputs = read(
        row("user", "u", None, "Summary of earlier work"),
        result("r", "u", "gone", "late"),
        said("a", "r", call("open", cmd="sleep")),
        row("user", "v", "a", "[Request interrupted]"),
    )
    assert len(outputs.only.entries) == 4
    assert outputs.warnings == ["orphan-tool-result", "unanswered-tool-call"]


# -- sub-agents -----------------------------------------------------------------------------------


def agent(id, *rows):
    return lines(*(each | {"isSidechain": True, "agentId": id} for each in rows))


SPAWN = (
    row("user", "u", None, "go"),
    said("a", "u", call("task", "Task", prompt="Look around.", subagent_type="explore")),
)
AGENT = (row("user", "g1", None, "Look around."), said("g2", "g1", "Seen."))


@pytest.mark.parametrize(
    ("rows", "files"),
    [
        ((result("r", "a", "task", "Seen.", toolUseResult={"agentId": "x7"}),), {}),
        ((), {"subagents/agent-x7.meta.json": b'{"agentType": "explore", "toolUseId": "task"}'}),
        ((row("progress", "p", "a", parentToolUseID="task", data={"agentId": "x7"}),), {}),
        ((), {}),
    ],
    ids=["result", "meta", "progress", "prompt"],
)
def test_an_agents_chain_is_called_by_the_call_that_started_it(rows, files):
    made = read(*SPAWN, *rows, **{"subagents/agent-x7.jsonl": agent("x7", *AGENT), **files}).only
    entries = {entry.key: entry for entry in made.entries}
    assert (entries["g1"].parent, entries["g1"].called_by, entries["g1"].tool_call_id) == (None, "a", "task")
    assert entries["g2"].called_by is None
    assert entries["g1"].note["agent"] == "x7"
    assert ("s-1/g2", "g2", False) in heads(made)
    assert [head.key for head in made.heads if head.active] == ["r" if "r" in entries else "a"]


def test_an_agent_of_an_agent_comes_after_its_caller():
    outer = agent("x1", row("user", "g1", None, "Look."), said("g2", "g1", call("t2", "Task", prompt="Closer.")))
    inner = agent("x2", row("user", "h1", None, "Closer."), said("h2", "h1", "Here."))
    spawn = row("user", "u", None, "go"), said("a", "u", call("t1", "Task", prompt="Look."))
    files = {
        "subagents/agent-x2.jsonl": inner,
        "subagents/agent-x2.meta.json": b'{"toolUseId": "t2", "agentType": "x"}',
    }
    made = read(*spawn, **{"subagents/agent-x1.jsonl": outer, **files}).only
    called = {entry.key: entry.called_by for entry in made.entries if entry.called_by}
    assert called == {"g1": "a", "h1": "g2"}


def test_agents_that_call_each_other_are_told_without_one_of_the_callers():
    files = {
        f"agent-{name}.meta.json": json.dumps({"toolUseId": call_id, "agentType": "x"}).encode()
        for name, call_id in (("x1", "t1"), ("x2", "t2"))
    }
    one = agent("x1", row("user", "g1", None, "p"), said("g2", "g1", call("t2", "Task", prompt="q")))
    two = agent("x2", row("user", "h1", None, "q"), said("h2", "h1", call("t1", "Task", prompt="p")))
    made = read(row("user", "u", None, "go"), **{"agent-x1.jsonl": one, "agent-x2.jsonl": two, **files}).only
    assert len(made.entries) == 5


def test_an_agent_alone_is_a_transcript():
    made = read_files(claude_code, {"agent-x7.jsonl": agent("x7", *AGENT)}).only
    assert texts(made) == [("user", "Look around."), ("assistant", "Seen.")]
    assert heads(made) == [("s-1", "g2", True)]


def test_older_side_chains_stand_in_the_sessions_own_file():
    side = [each | {"isSidechain": True} for each in AGENT]
    made = read(*SPAWN, *side, result("r", "a", "task")).only
    assert {entry.key: entry.called_by for entry in made.entries if entry.called_by} == {"g1": "a"}
    assert parents(made)["r"] == "a"
    assert [head.key for head in made.heads if head.active] == ["r"]


# -- titles, files, formats -----------------------------------------------------------------------


def test_the_users_title_comes_before_the_programs_and_the_summarys():
    rows = [row("user", "u", None, "a")]
    summary = {"type": "summary", "summary": "Summed up", "leafUuid": "u"}
    ai = {"type": "ai-title", "aiTitle": "Guessed", "sessionId": "s-1"}
    custom = {"type": "custom-title", "customTitle": "Mine", "sessionId": "s-1"}
    assert read(*rows).only.title is None
    assert read(summary, *rows).only.title == "Summed up"
    assert read(summary, *rows, ai).only.title == "Guessed"
    assert read(summary, custom, *rows, ai).only.title == "Mine"


def test_a_summary_of_another_files_session_is_not_taken():
    assert (
        read({"type": "summary", "summary": "x", "leafUuid": "other"}, row("user", "u", None, "a")).only.title
        is None
    )


def test_the_webs_variant_is_one_document():
    rows = [row("user", "u", None, "a"), said("a", "u", "b")]
    for each in rows:
        del each["uuid"], each["parentUuid"]
    made = read_files(claude_code, {"web.json": json.dumps({"loglines": rows}).encode()}).only
    assert texts(made) == [("user", "a"), ("assistant", "b")]


def test_each_session_of_a_folder_is_a_unit_with_its_agents():
    files = {
        "p/s-1.jsonl": lines(row("user", "u", None, "a")),
        "p/s-1/subagents/agent-x7.jsonl": agent("x7", *AGENT),
        "p/s-1/subagents/agent-x7.meta.json": b'{"agentType": "x", "toolUseId": "t"}',
        "p/s-2.jsonl": lines(row("user", "v", None, "b", session="s-2")),
    }
    source = BytesSource(files)
    assert [[file.name for file in unit] for unit in claude_code.split(source)] == [
        ["p/s-1.jsonl", "p/s-1/subagents/agent-x7.jsonl", "p/s-1/subagents/agent-x7.meta.json"],
        ["p/s-2.jsonl"],
    ]
    alone = View(source, [source.find("p/s-2.jsonl")])
    assert [transcript.id for transcript in claude_code.read(alone)] == ["s-2"]


def test_a_file_without_a_message_is_told():
    outputs = read({"type": "file-history-snapshot", "messageId": "x", "snapshot": {}})
    assert [skipped.kind for skipped in outputs.skipped] == ["empty-conversation"]


def test_the_format_is_told_by_content():
    def sniff(data):
        [file] = BytesSource({"x": data}).files()
        return claude_code.sniff(start_of(file), "x")

    image = {"type": "image", "source": {"type": "base64", "data": "A" * 300_000}}
    assert sniff(lines(row("user", "u", None, [image]))) is Certainty.YES
    assert sniff(b"not json\n" + lines(row("user", "u", None, "a"))) is Certainty.YES
    assert sniff(b'{"type": "summary", "summary": "x", "leafUuid": "y"}') is Certainty.YES
    assert sniff(b'{"messages": [{"role": "user", "content": "a"}]}') is Certainty.NO
    assert sniff(b"") is Certainty.NO


def test_damage_never_raises():
    rows = (*SPAWN, result("r", "a", "task", toolUseResult={"agentId": "x7"}), said("b", "r", "end"))
    files = {"s-1.jsonl": lines(*rows), "agent-x7.jsonl": agent("x7", *AGENT)}
    survives_damage(claude_code, files)
    survives_odd_values(claude_code, files)


@pytest.mark.parametrize("value", [None, 5, [], {}, "x", True, [1], {"a": [{}]}])
@pytest.mark.parametrize(
    "path",
    ["uuid", "parentUuid", "timestamp", "sessionId", "type", "message", "isSidechain", "agentId", "content"],
)
def test_members_of_any_type_never_raise(path, value):
    first, second = row("user", "u", None, "a"), said("a", "u", "b", call("t", "Task", prompt="x"))
    if path == "content":
        second["message"]["content"] = value
    else:
        second[path] = value
    outputs = read(first, second, result("r", "a", "t"))
    assert outputs.transcripts


@pytest.mark.parametrize(
    ("name", "conversations", "messages", "leaves", "warnings"),
    [
        ("10-cc-orphan-parent", 1, 5, 1, ["dangling-parent"]),
        ("11-cc-parent-cycle", 1, 5, 3, ["parent-cycle", "parent-cycle"]),
        ("13-cc-duplicate-uuid-resume", 2, 4, 2, ["duplicate-uuid-conflict"]),
        ("14-cc-one-response-many-records", 1, 5, 1, []),
        ("16-cc-orphan-tool-result", 1, 4, 1, ["orphan-tool-result", "unanswered-tool-call"]),
        ("17-jsonl-glued-and-torn", 1, 4, 1, ["glued-records", "torn-record", "torn-record"]),
        ("19-jsonl-nul-padding", 1, 3, 1, ["nul-padding"]),
        ("20-lone-surrogate", 1, 3, 1, ["lone-surrogate", "lone-surrogate", "orphan-tool-result"]),
        ("21-cc-big-image-first-line", 1, 3, 1, []),
        ("34-cc-rewind-then-compact", 1, 10, 2, []),
    ],
)
def test_the_damaged_samples_give_the_right_result(name, conversations, messages, leaves, warnings):
    outputs = read_path(claude_code, real_file(f"damaged/{name}.jsonl"))
    assert len(outputs.transcripts) == conversations
    assert len({entry.key for transcript in outputs.transcripts for entry in transcript.entries}) == messages
    assert sum(len(transcript.heads) for transcript in outputs.transcripts) == leaves
    assert outputs.warnings == warnings


def test_a_uuid_that_looks_like_a_place_takes_no_other_records_key():
    nameless = {"type": "assistant", "parentUuid": "s-1.jsonl#2.0", "message": {"content": "b"}}
    made = read(row("user", "s-1.jsonl#2.0", None, "a"), nameless).only
    assert texts(made) == [("user", "a"), ("assistant", "b")]


def test_agents_are_told_after_their_callers_in_whatever_order_they_were_written():
    depth, rows = 200, []
    for i in reversed(range(depth)):
        side = {"isSidechain": True, "agentId": f"x{i}"}
        rows.append(row("user", f"g{i}", None, f"prompt {i}", **side))
        rows.append(said(f"a{i}", f"g{i}", call(f"t{i + 1}", "Task", prompt=f"prompt {i + 1}"), **side))
        rows.append({"type": "progress", "parentToolUseID": f"t{i + 1}", "data": {"agentId": f"x{i + 1}"}})
    called = {entry.key: entry.called_by for entry in read(*rows).only.entries if entry.called_by}
    assert called == {f"g{i}": f"a{i - 1}" for i in range(1, depth)}
