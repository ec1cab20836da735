"""SWE-agent and mini-swe-agent trajectories."""

import json

from objstore.message import ToolCallPart, ToolResultPart
from objstore.transcripts import swe_agent
from objstore.transcripts.files import BytesSource
from objstore.transcripts.model import Certainty
from objstore.transcripts.peek import start_of
from tests.transcripts.conformance import read_files, shape, survives_damage, survives_odd_values, texts

CALL = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
HISTORY = [
    {"role": "system", "content": "Be an engineer.", "agent": "main", "message_type": "system_prompt"},
    {"role": "user", "content": "Fix it.", "agent": "main", "message_type": "observation"},
    {
        "role": "assistant",
        "content": "Look around.",
        "thought": "Look around.",
        "action": "ls",
        "agent": "main",
        "tool_calls": [CALL],
        "message_type": "action",
    },
    {"role": "tool", "content": "a.py", "agent": "main", "tool_call_ids": ["call_1"]},
]
STEPS = [
    {"action": "ls", "observation": "a.py", "response": "Look.\n```\nls\n```", "thought": "Look.", "state": "{}"}
]
MINI = [
    {"role": "system", "content": "Use ```mswea_bash_command blocks."},
    {"role": "user", "content": "Fix it."},
    {"role": "assistant", "content": "```mswea_bash_command\nls\n```"},
    {"role": "user", "content": "<returncode>0</returncode>"},
]


def read(value, name="run/task-7.traj"):
    return read_files(swe_agent, {name: json.dumps(value).encode()})


def test_the_history_is_what_was_sent():
    made = read({"trajectory": STEPS, "history": HISTORY, "info": {"exit_status": "submitted"}}).only
    assert [role for role, _ in shape(made)] == ["system", "user", "assistant", "tool"]
    assert made.entries[2].message.parts[1] == ToolCallPart("bash", {"command": "ls"}, "call_1")
    assert made.entries[3].message.parts == (ToolResultPart("bash", "a.py", "call_1"),)
    assert made.entries[3].note["info"] == {"exit_status": "submitted"}
    assert made.entries[2].note["more"] == {"action": "ls", "agent": "main", "message_type": "action"}
    assert (made.id, len(made.heads)) == ("task-7", 1)
    assert not made.warnings


def test_without_a_history_the_steps_are_read():
    made = read({"trajectory": STEPS, "environment": "swe_main"}).only
    assert texts(made) == [("assistant", "Look.\n```\nls\n```"), ("user", "a.py")]


def test_mini_swe_agents_messages_are_a_list_or_a_member():
    assert len(read(MINI, "task.traj.json").only.entries) == 4
    made = read({"info": {"config": {"model": {"model_name": "m"}}}, "messages": MINI}, "task.traj.json").only
    assert (made.id, made.model, len(made.entries)) == ("task", "m", 4)


def test_runs_of_one_task_are_called_after_their_files():
    files = {f"{run}/task.traj": json.dumps({"history": HISTORY}).encode() for run in ("a", "b")}
    assert [t.id for t in read_files(swe_agent, files).transcripts] == ["task", "b/task.traj"]


def test_the_format_is_told_by_content():
    def sniff(value):
        [file] = BytesSource({"x": json.dumps(value).encode()}).files()
        return swe_agent.sniff(start_of(file), "x")

    assert sniff({"history": HISTORY}) is Certainty.YES
    assert sniff({"trajectory": STEPS, "info": {}}) is Certainty.YES
    assert sniff(MINI) is Certainty.YES
    assert sniff([{"role": "user", "content": "hi"}]) is Certainty.NO
    assert sniff({"messages": [{"role": "user", "content": "hi"}]}) is Certainty.NO


def test_damage_never_raises():
    for value in ({"trajectory": STEPS, "history": HISTORY, "info": {}}, {"trajectory": STEPS}, MINI):
        files = {"a.json": json.dumps(value).encode()}
        survives_damage(swe_agent, files, cuts=30, flips=30)
        survives_odd_values(swe_agent, files, tries=100)
