"""Makes a session file of any size, in the shape that agents leave behind. Run as a program: PATH BYTES [KIND].

Lengths are drawn as real sessions have them: short prompts, calls of some hundred bytes, results of a
kilobyte with a long tail, now and then a pasted file.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

_WORDS = 400


def session(path: Path, size: int, *, seed: int = 1) -> None:
    """One session of Claude Code of about `size` bytes: a single chain with forks, progress and compactions."""
    chance = random.Random(seed)
    words = [" ".join(f"{chance.getrandbits(24):x}" for _ in range(300)) for _ in range(_WORDS)]

    def text(mean: float, spread: float, most: int) -> str:
        length = min(most, int(chance.lognormvariate(mean, spread)) + 1)
        start = chance.randrange(_WORDS)
        made = words[start]
        while len(made) < length:
            start = (start + 1) % _WORDS
            made += " " + words[start]
        return made[:length]

    with path.open("w", encoding="utf-8") as stream:
        written = number = 0
        last = None
        while written < size:
            number += 1
            for kind, message in _turn(number, text, chance):
                uuid = f"{chance.getrandbits(128):032x}"
                record = {
                    "parentUuid": last,
                    "isSidechain": False,
                    "cwd": "/w",
                    "sessionId": "01020304-0000-4000-8000-000000000000",
                    "type": kind,
                    "uuid": uuid,
                    "timestamp": f"2026-03-{1 + number // 86400 % 28:02}T{number // 3600 % 24:02}"
                    f":{number // 60 % 60:02}:{number % 60:02}.000Z",
                    **message,
                }
                line = json.dumps(record) + "\n"
                stream.write(line)
                written += len(line)
                if kind != "progress":
                    last = uuid


def _turn(number, text, chance):
    if number % 8 == 1:
        yield "user", {"message": {"role": "user", "content": text(4.6, 1.4, 400_000)}}
    usage = {"input_tokens": number, "output_tokens": 42}
    about = {"id": f"msg_{number}", "role": "assistant", "model": "m-1", "usage": usage}
    call = {
        "type": "tool_use",
        "id": f"toolu_{number}",
        "name": "Bash",
        "input": {"command": text(5.8, 0.84, 20_000)},
    }
    yield "assistant", {"message": {**about, "content": [{"type": "text", "text": text(5, 1, 5000)}]}}
    yield "assistant", {"message": {**about, "content": [call]}}
    for _ in range(chance.randrange(3)):
        yield "progress", {"data": {"type": "bash_progress", "output": text(4, 1, 2000)}}
    result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": text(7.1, 1.2, 120_000)}
    yield "user", {"message": {"role": "user", "content": [result]}}


def chats(path: Path, size: int, *, seed: int = 1) -> None:
    """Fine-tuning lines of about `size` bytes: many small conversations."""
    chance = random.Random(seed)
    with path.open("w", encoding="utf-8") as stream:
        written = 0
        while written < size:
            messages = [
                {"role": ("user", "assistant")[i % 2], "content": f"{chance.getrandbits(4000):x}"}
                for i in range(chance.randrange(2, 12))
            ]
            line = json.dumps({"messages": messages}) + "\n"
            stream.write(line)
            written += len(line)


if __name__ == "__main__":
    {"session": session, "chats": chats}[([*sys.argv, "session"])[3]](Path(sys.argv[1]), int(sys.argv[2]))
