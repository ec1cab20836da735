"""What a message's bytes and ids cost, beside orjson alone and the standard library alone.

Run it: `python tests/bench/bench_values.py`. Ratios are medians over rounds in which the contestants take
turns, so that a slow moment of the machine hits all of them.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import orjson

from objstore.canonical import canonical_message_json, message_content_hash
from objstore.codec import decode, encode, read_message
from objstore.kinds import Kind
from objstore.message import Message
from objstore.node import node_id

ROUNDS = 201
CALLS_A_ROUND = 40
PARENT = sha256(b"parent").hexdigest()
WORDS = "The store keeps what was said; “who said it” stands beside it. "


def text_message(size: int) -> dict:
    text = (WORDS * (size // len(WORDS) + 1))[:size]
    return {"role": "user", "parts": [{"type": "text", "text": text}]}


def tool_call_message(temperature: float | int) -> dict:
    arguments = {
        "query": WORDS * 4,
        "filters": [{"field": f"field_{i}", "op": "eq", "value": i} for i in range(6)],
        "limit": 20,
        "temperature": temperature,
        "nested": {"a": {"b": [1, 2, 3, None, True]}},
    }
    call = {"type": "tool_call", "name": "search", "arguments": arguments, "tool_call_id": "call_1"}
    return {"role": "assistant", "parts": [{"type": "text", "text": WORDS}, call]}


def ours(message: Message) -> bytes:
    _, oid, raw = encode(message)
    node_id(PARENT, oid)
    return raw


def by_orjson(value: dict) -> bytes:
    raw = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    oid = sha256(raw).hexdigest()
    sha256(orjson.dumps({"message": oid, "parent": PARENT}, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return raw


def by_json(value: dict) -> bytes:
    raw = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    oid = sha256(raw).hexdigest()
    node = json.dumps({"message": oid, "parent": PARENT}, sort_keys=True, separators=(",", ":"))
    sha256(node.encode()).hexdigest()
    return raw


def rounds_of(contestants: dict[str, tuple[Callable[[Any], object], Callable[[], Any]]]) -> dict[str, list[float]]:
    """Microseconds a call, round by round. A contestant is what runs, and what makes a fresh input for it."""
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(ROUNDS):
        for name, (run, make) in contestants.items():
            inputs = [make() for _ in range(CALLS_A_ROUND)]
            start = time.perf_counter()
            for each in inputs:
                run(each)
            taken[name].append((time.perf_counter() - start) / CALLS_A_ROUND * 1e6)
    return taken


def ratio(one: list[float], other: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def shown(taken: dict[str, list[float]], width: int) -> str:
    return "".join(f"{name:>{width}} {statistics.median(times):6.2f} us" for name, times in taken.items())


def main() -> None:
    inputs = {
        "text, 100 B": text_message(100),
        "text, 1 kB": text_message(1000),
        "text, 10 kB": text_message(10_000),
        "tool call": tool_call_message(1),
        "tool call with floats": tool_call_message(0.7),
    }
    print("bytes and two ids of a message (targets for text of 1 kB: ours/orjson <= 1.5, json/ours >= 3)")
    for name, value in inputs.items():
        assert ours(Message.from_dict(value)) == by_json(value)
        # An id is remembered in its message, so each call gets a message of its own.
        took = rounds_of(
            {
                "ours": (ours, lambda v=value: Message.from_dict(v)),
                "orjson": (by_orjson, lambda v=value: v),
                "json": (by_json, lambda v=value: v),
            }
        )
        print(
            f"  {name:22}{shown(took, 8)}",
            f"  ours/orjson {ratio(took['ours'], took['orjson']):4.2f}",
            f"  json/ours {ratio(took['json'], took['ours']):4.2f}",
        )
    print("bytes to a message (read_message trusts a hash; decode writes again and compares)")
    for name, value in inputs.items():
        message = Message.from_dict(value)
        raw, oid = canonical_message_json(message), message_content_hash(message)
        took = rounds_of(
            {
                "read_message": (lambda r, o=oid: read_message(r, o), lambda r=raw: r),
                "decode": (lambda r: decode(Kind.MESSAGE, r), lambda r=raw: r),
                "json.loads": (json.loads, lambda r=raw: r),
            }
        )
        print(f"  {name:22}{shown(took, 14)}")


if __name__ == "__main__":
    main()
