"""Where our own microseconds go at a turn, an import and a load, beside the floor of each.

A profiler slows small functions down more than large ones: the shares say where to look, the first line of
each profile what it costs without one.
"""

from __future__ import annotations

import cProfile
import os
import pstats
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import orjson

from objstore.frames import FAST_LEVEL, compress, decompress
from objstore.limits import FRAME_BYTES
from objstore.message import Message
from tests.bench.compare.chat import Chat
from tests.bench.compare.disk import ROOT
from tests.bench.compare.peers import Ours
from tests.bench.compare.results import Profile
from tests.bench.compare.timing import measure

_SHOWN = 14
_NODE_LINE = b'{"message":"%b","parent":"%b"}'


def profiles(folder: Path, chats: Sequence[Chat], large: Sequence[Chat]) -> list[Profile]:
    """The three hot paths: turns and loads of `chats`, an import of `large`. Half of them without the profiler."""
    ours = Ours(folder / "profiled")
    try:
        made = [_turn(ours, folder, chats[::2], chats[1::2]), _import(ours, large[::2], large[1::2])]
        ours.settle()
        made.append(_load(ours, chats))
    finally:
        ours.close()
    return made


def _turn(ours: Ours, folder: Path, plain: Sequence[Chat], profiled: Sequence[Chat]) -> Profile:
    def steps(chats: Sequence[Chat]) -> list[tuple[str, object]]:
        return [
            (chat.name, ours.native(chat.messages[at : at + 2]))
            for chat in chats
            for at in range(0, len(chat.messages), 2)
        ]

    def run(made: list[tuple[str, object]]) -> int:
        for name, said in made:
            ours.append(name, said)
        return len(made)

    def floor() -> int:
        """The turn's lines at the end of a file, and one wait for the disk."""
        count = 0
        with (folder / "floor").open("ab", buffering=0) as file:
            for chat in plain:
                for at in range(0, len(chat.messages), 2):
                    file.write(orjson.dumps(chat.messages[at : at + 2]))
                    os.fdatasync(file.fileno())
                    count += 1
        return count

    first, second = steps(plain), steps(profiled)
    least = measure(floor).wall
    return _profile("a turn", "turn", lambda: run(first), lambda: run(second), (least, "an append and fdatasync"))


def _import(ours: Ours, plain: Sequence[Chat], profiled: Sequence[Chat]) -> Profile:
    native = [[(chat.name, ours.native(chat.messages)) for chat in each] for each in (plain, profiled)]

    def run(made: list[tuple[str, list[Message]]]) -> int:
        ours.store_all(made)
        return sum(len(messages) for _, messages in made)

    def floor() -> int:
        """Canonical JSON, two hashes, and zstd over a frame's worth of lines."""
        lines: list[bytes] = []
        size = count = 0
        for chat in plain:
            parent = b"0" * 64
            for each in chat.messages:
                raw = orjson.dumps(each, option=orjson.OPT_SORT_KEYS)
                message = sha256(raw).hexdigest().encode()
                parent = sha256(_NODE_LINE % (message, parent)).hexdigest().encode()
                lines.append(raw)
                size, count = size + len(raw), count + 1
                if size >= FRAME_BYTES:
                    compress(b"\n".join(lines), FAST_LEVEL)
                    lines, size = [], 0
        compress(b"\n".join(lines), FAST_LEVEL)
        return count

    least = measure(floor).wall
    return _profile(
        "import",
        "message",
        lambda: run(native[0]),
        lambda: run(native[1]),
        (least, "canonical JSON, two hashes, zstd"),
    )


def _load(ours: Ours, chats: Sequence[Chat]) -> Profile:
    def run() -> int:
        for chat in chats:
            ours.load(chat.name)
        return len(chats)

    packed = [
        compress(b"\n".join(orjson.dumps(each, option=orjson.OPT_SORT_KEYS) for each in chat.messages))
        for chat in chats
    ]

    def floor() -> int:
        """zstd of just these lines, and JSON."""
        for each in packed:
            for line in decompress(each, FRAME_BYTES << 10, "floor").split(b"\n"):
                orjson.loads(line)
        return len(packed)

    least = measure(floor).wall
    count = sum(len(chat.messages) for chat in chats) / len(chats)
    return _profile(f"a load of {count:.0f} messages", "load", run, run, (least, "zstd of these lines, and JSON"))


def _profile(
    title: str, unit: str, act: Callable[[], int], profiled: Callable[[], int], floor: tuple[float, str]
) -> Profile:
    sample = measure(act)
    profiler = cProfile.Profile()
    units = profiler.runcall(profiled)
    found = []
    for (file, _, name), (_, _, own, _, _) in pstats.Stats(profiler).stats.items():  # type: ignore[attr-defined]
        found.append((_called(file, name), own * 1e6 / units))
    found.sort(key=lambda each: -each[1])
    rest = sum(micros for _, micros in found[_SHOWN:])
    shown = [*found[:_SHOWN], ("all others", rest)]
    return Profile(title, unit, sample.wall * 1e6, floor[0] * 1e6, floor[1], shown)


def _called(file: str, name: str) -> str:
    if file == "~":
        return name.removeprefix("<").removesuffix(">")
    path = Path(file)
    return f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name}: {name}"
