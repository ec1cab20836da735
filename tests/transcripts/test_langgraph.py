"""LangGraph checkpoints: lists of messages that share how they begin."""

import json
import sqlite3
import struct

import pytest

from objstore.message import ToolCallPart
from objstore.transcripts import langgraph
from objstore.transcripts.databases import schema_of
from objstore.transcripts.files import FileSource
from objstore.transcripts.model import Certainty
from tests.transcripts.conformance import parents, read_path, real_file, survives_damage, texts

TABLES = """
CREATE TABLE checkpoints(thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT, parent_checkpoint_id TEXT,
  type TEXT, checkpoint BLOB, metadata BLOB, PRIMARY KEY(thread_id, checkpoint_ns, checkpoint_id));
CREATE TABLE writes(thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT, task_id TEXT, idx INTEGER,
  channel TEXT, type TEXT, value BLOB);
"""


def pack(value):
    """MessagePack, enough of it for these tests."""
    if value is None:
        return b"\xc0"
    if isinstance(value, Ext):
        body = pack([value.module, value.name, value.kwargs])
        return b"\xc9" + struct.pack(">Ib", len(body), value.code) + body
    if isinstance(value, str):
        raw = value.encode()
        return b"\xdb" + struct.pack(">I", len(raw)) + raw
    if isinstance(value, int):
        return b"\xd3" + struct.pack(">q", value)
    if isinstance(value, list):
        return b"\xdd" + struct.pack(">I", len(value)) + b"".join(map(pack, value))
    pairs = b"".join(pack(key) + pack(item) for key, item in value.items())
    return b"\xdf" + struct.pack(">I", len(value)) + pairs


class Ext:
    def __init__(self, module, name, kwargs, code=5):
        self.module, self.name, self.kwargs, self.code = module, name, kwargs, code


def human(key, content="words"):
    return Ext("langchain_core.messages.human", "HumanMessage", {"content": content, "type": "human", "id": key})


def ai(key, content="words", **more):
    return Ext("langchain_core.messages.ai", "AIMessage", {"content": content, "type": "ai", "id": key, **more})


def remove(key):
    return Ext("langchain_core.messages.modifier", "RemoveMessage", {"content": "", "type": "remove", "id": key})


class Saver:
    def __init__(self, path):
        self.path = path
        self.connection = sqlite3.connect(path)
        self.connection.executescript(TABLES)

    def checkpoint(self, key, parent, messages=None, *, thread="t", namespace="", kind="msgpack", **values):
        if messages is not None:
            values["messages"] = messages
        state = {"v": 4, "id": key, "ts": "2026-01-01T00:00:00+00:00", "channel_values": values}
        raw = (
            state if isinstance(state, bytes) else (json.dumps(state).encode() if kind == "json" else pack(state))
        )
        row = (thread, namespace, key, parent, kind, raw, b'{"source": "loop", "step": 1}')
        self.connection.execute("INSERT INTO checkpoints VALUES (?,?,?,?,?,?,?)", row)
        return self

    def write(self, checkpoint, value, *, idx=0, channel="messages", kind="msgpack"):
        row = ("t", "", checkpoint, "task", idx, channel, kind, pack(value))
        self.connection.execute("INSERT INTO writes VALUES (?,?,?,?,?,?,?,?)", row)
        return self

    def read(self):
        self.connection.commit()
        return read_path(langgraph, self.path)


@pytest.fixture
def saver(tmp_path):
    return Saver(tmp_path / "checkpoints.db")


def test_states_that_begin_alike_are_one_chain(saver):
    saver.checkpoint("1", None, [human("a")]).checkpoint("2", "1", [human("a"), ai("b")])
    made = saver.read().only
    assert made.id == "t"
    assert parents(made) == {"a": None, "b": "a"}
    assert made.entries[1].at == "2026-01-01T00:00:00.000Z"
    assert made.entries[1].note["checkpoint"] == "2"
    assert made.warnings == []


def test_a_fork_of_the_thread_is_a_fork_of_the_chain_and_the_latest_is_active(saver):
    saver.checkpoint("1", None, [human("a")])
    saver.checkpoint("2", "1", [human("a"), ai("b")]).checkpoint("3", "1", [human("a"), ai("c")])
    made = saver.read().only
    assert parents(made) == {"a": None, "b": "a", "c": "a"}
    assert {head.key: head.active for head in made.heads} == {"b": False, "c": True}


def test_a_message_that_was_replaced_stays_as_a_branch(saver):
    saver.checkpoint("1", None, [human("a"), ai("b", "old")]).checkpoint("2", "1", [human("a"), ai("b", "new")])
    made = saver.read().only
    assert [text for _, text in texts(made)] == ["words", "old", "new"]
    assert len({entry.key for entry in made.entries}) == 3


def test_what_was_written_after_the_last_checkpoint_is_read(saver):
    saver.checkpoint("1", None, [human("a"), ai("b")])
    saver.write("1", [ai("c")], idx=1).write("1", ai("b", "again"), idx=0).write("1", "x", channel="other")
    made = saver.read().only
    active = next(head.key for head in made.heads if head.active)
    assert active == "c"
    assert [text for _, text in texts(made)] == ["words", "words", "again", "words"]


def test_a_state_without_messages_goes_on_from_what_was_written(saver):
    saver.checkpoint("1", None, [human("a")]).write("1", [ai("b")]).checkpoint("2", "1").write("2", [human("c")])
    assert parents(saver.read().only) == {"a": None, "b": "a", "c": "b"}


def test_removals_and_overwrites(saver):
    saver.checkpoint("1", None, [human("a"), ai("b")]).write("1", [remove("b"), ai("c")])
    assert parents(saver.read().only) == {"a": None, "b": "a", "c": "a"}
    saver.checkpoint("2", "1", [human("a")]).write(
        "2", Ext("langgraph.types", "Overwrite", {"value": [human("z")]}, 2)
    )
    assert parents(saver.read().only)["z"] is None


def test_calls_of_tools_and_models(saver):
    call = {"name": "f", "args": {"x": 1}, "id": "k", "type": "tool_call"}
    about = {"model_name": "m"}
    saver.checkpoint("1", None, [human("a"), ai("b", "", tool_calls=[call], response_metadata=about)])
    made = saver.read().only
    assert made.entries[1].message.parts == (ToolCallPart("f", {"x": 1}, "k"),)
    assert [(each.model, each.head_input, each.head_output) for each in made.calls] == [("m", "a", "b")]


def test_threads_and_the_graphs_within_them_are_conversations(saver):
    saver.checkpoint("1", None, [human("a")], thread="x").checkpoint(
        "1", None, [human("a")], thread="x", namespace="sub:1"
    )
    saver.checkpoint("1", None, [human("a")], thread="y")
    assert [made.id for made in saver.read().transcripts] == ["x", "x/sub:1", "y"]


def test_state_as_json_is_read_and_pickled_state_never_is(saver):
    message = {"lc": 1, "type": "constructor", "id": ["langchain", "HumanMessage"], "kwargs": {"content": "Hi"}}
    saver.checkpoint("1", None, [message], kind="json")
    assert texts(saver.read().only) == [("user", "Hi")]
    saver.connection.execute(
        "UPDATE checkpoints SET type = 'pickle', checkpoint = ?", (b"cos\nsystem\n(S'x'\ntR.",)
    )
    outputs = saver.read()
    assert [(each.kind, "pickle" in each.text) for each in outputs.skipped] == [("unreadable-state", True)]


def test_parents_that_are_missing_or_go_round_in_circles_do_no_harm(saver):
    saver.checkpoint("1", "2", [human("a")]).checkpoint("2", "1").checkpoint("3", "3").checkpoint("4", "gone")
    assert parents(saver.read().only) == {"a": None}


def test_told_by_the_tables(saver):
    saver.connection.commit()
    start = schema_of(FileSource(saver.path).files()[0])
    assert langgraph.sniff(start, "x") is Certainty.YES
    assert langgraph.sniff(b"checkpoint_ns parent_checkpoint_id", "checkpoints.db") is Certainty.NO


def test_a_database_without_checkpoints_is_skipped(tmp_path):
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("CREATE TABLE checkpoints(thread_id)")
    connection.commit()
    assert [each.kind for each in read_path(langgraph, tmp_path / "a.db").skipped] == ["missing-tables"]


def test_damage_of_any_kind_raises_nothing(saver):
    saver.checkpoint("1", None, [human("a"), ai("b")]).write("1", [ai("c")])
    saver.connection.execute("PRAGMA page_size=512")
    saver.connection.commit()
    saver.connection.execute("VACUUM")
    survives_damage(langgraph, {"c.db": saver.path.read_bytes()}, cuts=20, flips=80)


def test_the_real_thread_with_a_fork():
    made = read_path(langgraph, real_file("langgraph/generated-fork-checkpoints.db")).only
    assert len(made.entries) == 8
    assert [head.active for head in made.heads] == [False, True]
    assert made.entries[-1].message.text == "reply 4 🎈"
    assert made.warnings == []


def test_the_real_threads_of_an_agent():
    outputs = read_path(langgraph, real_file("langgraph/letta-deepagents-checkpoint.db"))
    assert [len(made.entries) for made in outputs.transcripts] == [4, 2, 4]
    assert [len(made.heads) for made in outputs.transcripts] == [1, 1, 2]
    assert outputs.warnings == []


def test_messages_with_values_of_any_type_raise_nothing(saver):
    odd = [None, 7, "x", [], {}, [1], {"a": [1]}, [None], [{"type": "text"}], [{"type": []}]]
    fields = ("content", "id", "tool_calls", "invalid_tool_calls", "additional_kwargs", "response_metadata")
    messages = [ai(f"m{i}", **{name: value}) for name in fields[2:] for i, value in enumerate(odd)]
    messages += [Ext("m", "AIMessage", {"content": "x", name: value}) for name in fields[:2] for value in odd]
    saver.checkpoint("1", None, [*messages, 7, "x", [], {"lc": 1, "type": "constructor", "id": [[]]}])
    saver.write("1", {"type": {}, "content": ""}).write("1", [[1]], idx=1).write("1", 7, idx=2)
    made = saver.read().only
    assert len(made.entries) >= len(messages) - len(odd)
    assert "unknown-message" in {warn.kind for warn in made.warnings}
