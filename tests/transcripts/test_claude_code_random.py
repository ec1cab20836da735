"""Sessions of Claude Code at random: what is held in files reads as what is held in memory."""

import json
import random

import pytest

from objstore import columns
from objstore.transcripts import claude_code
from objstore.transcripts.claude_code_pairs import unpaired_calls
from objstore.transcripts.claude_code_rows import Kind, scan
from objstore.transcripts.claude_code_tree import grow
from objstore.transcripts.files import BytesSource
from objstore.transcripts.graph import ToolUse, parents_first, unpaired_tools
from objstore.transcripts.model import Transcript

KINDS = ("user", "assistant", "assistant", "result", "result", "progress", "system", "boundary")


def session(seed):
    """Files of sessions that fork, cycle, repeat, start anew and call agents, more often than real ones do."""
    chance = random.Random(seed)
    size = chance.randrange(1, 80)
    wild = chance.choice((0.0, 0.1, 1.0))
    calls, records = ["t0"], []
    for i in range(size):
        parent = f"u{i - 1}" if i else None
        if chance.random() < wild:
            parent = chance.choice([*(f"u{each}" for each in range(size)), "gone", None])
        record = {
            "parentUuid": parent,
            "sessionId": chance.choice(("s-1", "s-1", "s-2")),
            "uuid": f"u{i}",
            "timestamp": f"2026-05-01T10:00:{chance.randrange(60):02}.000Z",
            "isSidechain": chance.random() < 0.15,
            "agentId": chance.choice(("one", "two")),
            **said(chance, calls, size),
        }
        records.append(record)
        if chance.random() < 0.1:
            records.append(record | chance.choice(({"sessionId": "s-2"}, {"uuid": f"u{i}c"})))
    if chance.random() < 0.2:
        chance.shuffle(records)
    cut = chance.randrange(size + 1)
    files = {"s-1.jsonl": records[:cut], "s-1/subagents/agent-one.jsonl": records[cut:]}
    return {name: b"".join(json.dumps(each).encode() + b"\n" for each in rows) for name, rows in files.items()}


def said(chance, calls, size):
    kind, word = chance.choice(KINDS), chance.choice("abcd")
    if kind == "assistant":
        calls.append(f"t{chance.randrange(12)}")
        call = {"type": "tool_use", "id": calls[-1], "name": chance.choice(("Bash", "Task"))}
        blocks = [{**call, "input": {"prompt": "do it"}}, {"type": "text", "text": word}]
        about = {"id": f"m{chance.randrange(size) // 2}", "model": "x", "usage": {"output_tokens": 1}}
        return {"type": kind, "message": {"role": kind, "content": blocks[chance.randrange(2) :], **about}}
    if kind == "result":
        blocks = [{"type": "tool_result", "tool_use_id": chance.choice(calls), "content": word}]
        about = {"toolUseResult": {"agentId": "one"}} if chance.random() < 0.2 else {}
        return {"type": "user", "message": {"role": "user", "content": blocks}, **about}
    if kind == "boundary":
        boundary = {"parentUuid": None, "logicalParentUuid": f"u{chance.randrange(size)}"}
        return {"type": "system", "subtype": "compact_boundary", **boundary}
    if kind == "user":
        return {"type": kind, "message": {"role": kind, "content": chance.choice((word, "do it"))}}
    return {"type": kind}


def told(files):
    read = list(claude_code.read(BytesSource(files)))
    for each in read:
        if isinstance(each, Transcript):
            each.read_all()
    return read


def nobody(kind, place, text):
    pass


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_columns_in_files_read_as_columns_in_memory(monkeypatch, start):
    sessions = [session(seed) for seed in range(start, start + 50)]
    in_memory = [told(files) for files in sessions]
    monkeypatch.setattr(columns, "SPILL_BYTES", 0)
    assert [told(files) for files in sessions] == in_memory


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_parents_come_first_and_calls_pair_as_in_plain_dicts(start):
    pairs = 0
    for seed in range(start, start + 50):
        rows = scan(BytesSource(session(seed)).files(), nobody)
        tree = grow(rows, nobody)
        parents = dict(tree.parents.items())
        assert list(tree.order()) == parents_first(parents)
        calls, used = rows.calls, ToolUse()
        used.calls = [
            (tree.message_of(row), calls.ids[n]) for row, n in zip(calls.asking, calls.asked, strict=True)
        ]
        used.results = [
            (tree.message_of(row), calls.ids[n]) for row, n in zip(calls.answering, calls.answered, strict=True)
        ]
        answering = {row for row in parents if rows.kind[row] == Kind.RESULT}
        unpaired = list(unpaired_tools(parents, used, answering))
        assert list(unpaired_calls(rows, tree)) == unpaired
        pairs += len(unpaired)
    assert pairs > 100
