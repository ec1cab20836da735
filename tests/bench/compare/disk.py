"""What things take on the disk, and what nothing could be much smaller than."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import zstandard

from objstore.canonical import canonical_message_json
from objstore.message import Message
from objstore.pack import PackReader, list_packs
from refs.files import Files
from tests.bench.compare.chat import Chat

ROOT = Path(__file__).resolve().parents[3]
_BLOCK = 512  # bytes: the unit of st_blocks
_NOT_COUNTED = "search.sqlite"
_FEW, _MORE = 10, 40


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes: of the files, and of the blocks that they and their folders take."""

    apparent: int
    allocated: int


def usage(folder: Path) -> Usage:
    """What a folder takes once all is written. A search index is left out: only one peer has one."""
    apparent = allocated = 0
    for place, _, names in os.walk(folder):
        allocated += os.stat(place).st_blocks * _BLOCK
        for name in names:
            if not name.startswith(_NOT_COUNTED):
                found = _written(os.path.join(place, name))
                apparent += found.st_size
                allocated += found.st_blocks * _BLOCK
    return Usage(apparent, allocated)


def _written(path: str) -> os.stat_result:
    """A file's sizes. Without a sync the file system may not have given it its blocks yet."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        return os.fstat(fd)
    finally:
        os.close(fd)


def shares(folder: Path) -> dict[str, int]:
    """Bytes of our own store by what they are for."""
    found = {"packs": 0, "index": 0, "refs, reflog and the rest": 0}
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith(_NOT_COUNTED):
            part = "packs" if path.suffix == ".pack" else "index" if path.name.startswith("index") else None
            found[part or "refs, reflog and the rest"] += path.stat().st_size
    return found


def limit(chats: Iterable[Chat]) -> tuple[int, int]:
    """(bytes of the unique messages' lines, bytes after `zstd -19 --long=27`) as one file."""
    lines = dict.fromkeys(
        canonical_message_json(Message.from_dict(each)) for chat in chats for each in chat.messages
    )
    raw = b"\n".join([*lines, b""])
    return len(raw), _at_best(raw)


def packs_limit(store: Path) -> int:
    """The lines of a store's packs, each once, in one file: its bytes after `zstd -19 --long=27`."""
    lines: dict[bytes, None] = {}
    files = Files(store)
    for pack in list_packs(files):
        reader = PackReader(files, pack)
        for offset, packed in reader.frames():
            lines.update(dict.fromkeys(reader.frame(offset, packed).lines))
        reader.close()
    return _at_best(b"\n".join([*lines, b""]))


def _at_best(raw: bytes) -> int:
    parameters = zstandard.ZstdCompressionParameters.from_level(
        19, source_size=len(raw), window_log=27, enable_ldm=True
    )
    return len(zstandard.ZstdCompressor(compression_params=parameters).compress(raw))


def syncs_a_turn(peer: str, folder: Path) -> float | str:
    """How often a turn waits for the disk, counted by strace in a process of its own; or why it isn't known."""
    if shutil.which("strace") is None:
        return "not counted: no strace"
    counted = []
    for turns in (_FEW, _MORE):
        with tempfile.NamedTemporaryFile(dir=folder) as told:
            command = [
                "strace",
                "-f",
                "--seccomp-bpf",
                "-qq",
                "-e",
                "trace=fsync,fdatasync,msync",
                "-o",
                told.name,
            ]
            place = tempfile.mkdtemp(dir=folder)
            child = [sys.executable, "-m", "tests.bench.compare.child", "turns", peer, place, str(turns)]
            run = subprocess.run([*command, *child], cwd=ROOT, capture_output=True, text=True, check=False)
            if run.returncode:
                return "not counted: strace failed"
            lines = Path(told.name).read_text("utf-8").splitlines()
            counted.append(sum("sync(" in line for line in lines))
    return (counted[1] - counted[0]) / (_MORE - _FEW)
