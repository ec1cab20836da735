"""A clone and an incremental fetch, beside `git clone` and `git fetch` of the same objects as files in git.

Run it: `python -m tests.bench.bench_sync [CONVERSATIONS]`. Both sides read a packed source on this disk and
check all that arrives; times are wall and CPU seconds, ratios are ours / git's.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from objstore.gc import GcOptions
from objstore.kinds import Kind
from objstore.message import Message
from objstore.store import Store

CONVERSATIONS = 2000
NEW = 20
"""Conversations that come between the clone and the fetch."""
_WORDS = [f"{a}{b}{c}" for a in ("ra", "ti", "mo", "ne", "ka") for b in ("lo", "su", "ve", "xi") for c in "nrstm"]


def conversation(rng: random.Random, number: int) -> list[Message]:
    """Lengths as real chats have them: 6 messages in the middle, of about 80 and 1,000 bytes."""
    messages = []
    for turn in range(min(126, max(1, round(rng.lognormvariate(1.74, 0.73))))):
        role, middle = ("assistant", 6.86) if turn % 2 else ("user", 4.59)
        count = max(1, round(min(20_000, rng.lognormvariate(middle, 1.2)) / 6))
        messages.append(Message.of(role, f"{number} {turn} " + " ".join(rng.choices(_WORDS, k=count))))
    return messages


def grow(store: Store, rng: random.Random, numbers: range) -> None:
    for number in numbers:
        store.commit(f"chat-{number}", conversation(rng, number))


def in_git(store: Store, repository: Path, known: set[str]) -> None:
    """Commit every object of a store that git doesn't have yet, as a file of its canonical bytes."""
    stream = [b"commit refs/heads/main\ncommitter a <a@example.org> 0 +0000\ndata 1\nx\n"]
    if known:
        stream.append(b"from refs/heads/main^0\n")
    for kind in (Kind.MESSAGE, Kind.NODE, Kind.NOTE):
        for oid in store.storage.database.ids(kind):
            if oid not in known:
                known.add(oid)
                raw = store.read_object(kind, oid)
                stream.append(
                    b"M 644 inline %b/%b/%b\ndata %d\n" % (kind.encode(), oid[:2].encode(), oid.encode(), len(raw))
                )
                stream.append(raw + b"\n")
    git(repository, "fast-import", "--quiet", stdin=b"".join(stream))
    git(repository, "gc", "--quiet")


def git(where: Path, *args: str, stdin: bytes = b"") -> None:
    subprocess.run(["git", "-C", str(where), *args], input=stdin, check=True, capture_output=True)


def timed(act: Callable[[], object]) -> tuple[float, float]:
    """(wall, CPU) seconds, children's included."""
    before, start = os.times(), time.perf_counter()
    act()
    wall, after = time.perf_counter() - start, os.times()
    return wall, sum(after[:4]) - sum(before[:4])


def measure(root: Path, conversations: int) -> Iterator[tuple[str, tuple[float, float], tuple[float, float]]]:
    rng, known = random.Random(1), set[str]()
    repository, copy = root / "repository", root / "copy"
    repository.mkdir()
    git(repository, "init", "--quiet", "--bare")
    with Store.init(root / "source") as source:
        grow(source, rng, range(conversations))
        source.gc(GcOptions(prune_before=None, now=time.time()))
        in_git(source, repository, known)
        print(f"{len(known):,} objects in {conversations:,} conversations")
        theirs = timed(lambda: git(root, "clone", "--quiet", "--bare", f"file://{repository}", str(copy)))
        store, report = None, None

        def clone() -> None:
            nonlocal store, report
            store, report = Store.clone(root / "source", root / "clone")

        ours = timed(clone)
        assert store is not None and report is not None and report.total == len(known)
        yield "clone", ours, theirs
        grow(source, rng, range(conversations, conversations + NEW))
        in_git(source, repository, known)
        fetch_git = ("fetch", "--quiet", "origin", "+refs/heads/*:refs/heads/*")
        theirs = timed(lambda: git(copy, *fetch_git))
        yield f"fetch of {NEW} conversations", timed(lambda: store.fetch("origin")), theirs
        theirs = timed(lambda: git(copy, *fetch_git))
        yield "fetch of nothing", timed(lambda: store.fetch("origin")), theirs
        assert store.resolve("remotes/origin/conversations/chat-0") == source.head("chat-0")
        store.close()


def main() -> None:
    conversations = int(sys.argv[1]) if len(sys.argv) > 1 else CONVERSATIONS
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'wall (CPU) seconds':<28}{'ours':>16}{'git':>16}{'ratio':>16}")
        for what, ours, theirs in measure(Path(folder), conversations):
            pair = [f"{wall:.2f} ({cpu:.2f})" for wall, cpu in (ours, theirs)]
            ratio = f"{ours[0] / theirs[0]:.2f} ({ours[1] / max(theirs[1], 0.01):.2f})"
            print(f"{what:<28}{pair[0]:>16}{pair[1]:>16}{ratio:>16}", flush=True)


if __name__ == "__main__":
    main()
