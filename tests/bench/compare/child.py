"""What runs in a fresh process, for the benchmark that started it; prints one JSON object.

`python -m tests.bench.compare.child load PEER FOLDER CHAT`, `… turns PEER FOLDER COUNT`, `… reindex FOLDER`.
"""

from __future__ import annotations

import importlib
import json
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from objstore.store import Store
from tests.bench.compare.chat import text
from tests.bench.compare.roster import ROSTER
from tests.bench.compare.timing import cpu_seconds

_TURN_CHARS = 400


def load(peer: str, folder: str, chat: str) -> dict[str, float]:
    """Opening and one load, imports not counted."""
    kind = ROSTER[peer]
    for need in kind.needs:
        if shutil.which(need) is None:
            importlib.import_module(need)
    wall, cpu = time.perf_counter(), cpu_seconds()
    opened = kind(Path(folder))
    count = len(opened.load(chat))
    taken = {"wall": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu, "messages": count}
    opened.close()
    return taken


def turns(peer: str, folder: str, count: str) -> dict[str, float]:
    """Some turns of one conversation, and no clean end: what is counted is what a turn does."""
    opened = ROSTER[peer](Path(folder))
    for number in range(int(count)):
        said = [
            text("user", f"{number} " + "x" * _TURN_CHARS),
            text("assistant", f"{number} " + "y" * _TURN_CHARS),
        ]
        opened.append("chat", opened.native(said))
    return {"turns": int(count)}


def reindex(folder: str) -> dict[str, float]:
    """The index built anew: seconds, and the most memory this process ever had (MB)."""
    with Store.open(folder) as store:
        wall, cpu = time.perf_counter(), cpu_seconds()
        store.reindex()
        taken = {"wall": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu}
    return {**taken, "memory": _peak()}


def _peak() -> float:
    """The most memory this process ever had (MB). Not ru_maxrss: it begins with that of who started it."""
    told = Path("/proc/self/status")
    if not told.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return next(int(line.split()[1]) for line in told.read_text().splitlines() if line.startswith("VmHWM")) / 1024


def main() -> None:
    actions: dict[str, Callable[..., dict[str, float]]] = {"load": load, "turns": turns, "reindex": reindex}
    action, *arguments = sys.argv[1:]
    print(json.dumps(actions[action](*arguments)))


if __name__ == "__main__":
    main()
