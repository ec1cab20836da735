"""The peers' own environment, and what is told about the machine."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tomllib
import venv
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.bench.compare.disk import ROOT

PEERS = (
    "llm==0.36",
    "langgraph-checkpoint-sqlite==3.1.2",
    "openai-agents==0.24.0",
    "pygit2==1.21.0",
)
_TOLD = ("llm", "langgraph-checkpoint-sqlite", "openai-agents", "pygit2", "zstandard", "orjson", "msgdag")


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def make(folder: Path) -> None:
    """The environment in `folder`, made or completed: the peers, and what this project needs."""
    if not python_of(folder).exists():
        venv.create(folder, with_pip=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pip = [str(python_of(folder)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *project["dependencies"], *PEERS], check=True)


def facts(folder: Path) -> list[tuple[str, str]]:
    """What a reader needs to know of the machine and the versions. `folder` is where the stores lie."""
    found = [
        ("machine", f"{_processor()}, {os.cpu_count()} cores, {_memory()}"),
        ("system", f"{platform.system()} {platform.release()}, {_file_system(folder)}"),
        ("Python", f"{platform.python_version()}, SQLite {sqlite3.sqlite_version}"),
        ("revision", _told(["git", "-C", str(ROOT), "describe", "--always", "--dirty"])),
        ("git", _told(["git", "--version"]).removeprefix("git version ")),
    ]
    for name in _TOLD:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return found


def busy() -> str:
    """How many processes wanted a core in the last minute."""
    return f"{os.getloadavg()[0]:.1f}"


def _told(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return "none"
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip() or "unknown"


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB of memory"


def _file_system(folder: Path) -> str:
    """The type of the file system a folder is on."""
    mounts = Path("/proc/self/mounts")
    if sys.platform != "linux" or not mounts.exists():
        return "an unknown file system"
    best = ("", "an unknown file system")
    for line in mounts.read_text("utf-8").splitlines():
        _, where, kind, *_ = line.split()
        if str(folder.resolve()).startswith(where.rstrip("/") + "/") and len(where) >= len(best[0]):
            best = (where, kind)
    return best[1]
