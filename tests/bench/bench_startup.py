"""What it costs to start: `dag --version` and `dag log -n 5` in fresh processes, beside a bare `import click`.

Run it: `python tests/bench/bench_startup.py`. The contestants take turns, so that a slow moment of the
machine hits all of them; medians are compared. Target: at most 1.5 times `import click` plus 20 ms.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 31
MESSAGES = 200
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "from cli.main import main; main()"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        # Compiled modules in a place of their own: the environment may forbid to write them beside the sources.
        environ = {
            **{key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPATH": str(ROOT),
            "PYTHONPYCACHEPREFIX": f"{folder}/compiled",
            "DAG_DIR": f"{folder}/store",
        }
        contestants = {
            "import click": [sys.executable, "-c", "import click"],
            "dag --version": [sys.executable, "-c", PROGRAM, "--version"],
            "dag log -n 5": [sys.executable, "-c", PROGRAM, "log", "-n", "5"],
        }

        def run(command: list[str]) -> float:
            start = time.perf_counter()
            subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)
            return time.perf_counter() - start

        history = "\n".join(f'{{"role": "user", "content": "message {i}"}}' for i in range(MESSAGES))
        dag = [sys.executable, "-c", PROGRAM]
        subprocess.run([*dag, "init"], env=environ, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(
            [*dag, "commit", "-"], env=environ, check=True, stdout=subprocess.DEVNULL, input=history, text=True
        )
        taken: dict[str, list[float]] = {name: [] for name in contestants}
        for number in range(ROUNDS + 2):
            for name, command in contestants.items():
                seconds = run(command)
                if number >= 2:  # the first rounds compile
                    taken[name].append(seconds)
    bare = statistics.median(taken["import click"])
    bound = 1.5 * bare + 0.020
    for name, times in taken.items():
        median = statistics.median(times)
        print(f"{name:16} {median * 1000:6.1f} ms  {median / bare:4.2f} times  bound {bound * 1000:.1f} ms")


if __name__ == "__main__":
    main()
