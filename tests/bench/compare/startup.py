"""What it costs to start the command line, beside what it can't do without and other command lines."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench.compare.disk import ROOT
from tests.bench.compare.results import Work
from tests.bench.compare.timing import in_turns

_PROGRAM = "from cli.main import main; main()"
_MESSAGES = 200


def startup(folder: Path, rounds: int) -> Work:
    """Fresh processes, compiled modules at hand. A unit is a run."""
    environ = {
        **{key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"},
        "PYTHONPATH": str(ROOT),
        "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
        "DAG_DIR": str(folder / "store"),
    }

    def run(command: list[str], given: str = "") -> int:
        subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL, input=given, text=True)
        return 1

    dag = [sys.executable, "-c", _PROGRAM]
    run([*dag, "init"])
    run([*dag, "commit", "-"], "".join(_lines()))
    commands = {
        "import click": [sys.executable, "-c", "import click"],
        "dag --version": [*dag, "--version"],
        "dag log -n 5": [*dag, "log", "-n", "5"],
        "git --version": ["git", "--version"],
    }
    llm = Path(sys.executable).with_name("llm")
    if llm.exists():
        commands["llm --version"] = [str(llm), "--version"]
    if shutil.which("git") is None:
        del commands["git --version"]
    for command in commands.values():
        run(command)  # compiles

    def contestant(command: list[str]) -> Callable[[int], Callable[[], int]]:
        return lambda _: lambda: run(command)

    outcomes = in_turns({name: contestant(command) for name, command in commands.items()}, rounds)
    return Work("start-up", "run", outcomes)


def _lines() -> Iterator[str]:
    for number in range(_MESSAGES):
        yield json.dumps({"role": "user", "content": f"message {number}"}) + "\n"
