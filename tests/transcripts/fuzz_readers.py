"""Coverage-guided fuzzing of every reader. Needs atheris; not part of the test run, for it has no end of its own.

    pip install atheris && python -m tests.transcripts.fuzz_readers --seconds 600

Each input is a byte that says which format, and a file. Whatever a reader raises, and whatever it gives that
doesn't conform, ends the run, and the input stands in `crash-…` in the working folder. Seeds are what the tests
of the formats use, and small files of the shared data where that is there.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

SEED_BYTES = 40_000
MAX_BYTES = 60_000
_NAMES = {"llm-logs": "logs.db", "langgraph": "checkpoints.db", "aider": ".aider.chat.history.md"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="how long in all")
    parser.add_argument("--format", action="append", help="only this format; more than one is allowed")
    options = parser.parse_args()
    import atheris  # noqa: PLC0415  not among what the tests need

    with atheris.instrument_imports(include=["objstore.transcripts"]):
        from objstore.transcripts.registry import formats, reader  # noqa: PLC0415

        names = [name for name in formats() if options.format is None or name in options.format]
        modules = [reader(name) for name in names]
    from tests.transcripts.conformance import read_files  # noqa: PLC0415

    def one(data: bytes) -> None:
        if not data:
            return
        number = data[0] % len(names)
        name = _NAMES.get(names[number], "a.jsonl" if data[0] >= len(names) else "a.json")
        read_files(modules[number], {name: data[1:]})

    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(seeds(names)):
            Path(folder, f"seed-{number}").write_bytes(seed)
        atheris.Setup(
            [
                sys.argv[0],
                folder,
                f"-max_total_time={options.seconds}",
                f"-max_len={MAX_BYTES}",
                "-rss_limit_mb=4096",
            ],
            one,
        )
        atheris.Fuzz()


def seeds(names: list[str]) -> Iterator[bytes]:
    """Inputs to begin with: samples of the tests for each format, as one value and as lines; real files."""
    from objstore.transcripts.files import open_source  # noqa: PLC0415
    from objstore.transcripts.registry import detect  # noqa: PLC0415
    from tests.transcripts.conformance import DATA  # noqa: PLC0415
    from tests.transcripts.test_wrong_shapes import SAMPLES  # noqa: PLC0415

    for number, name in enumerate(names):
        for sample in [SAMPLES[name][1]] if name in SAMPLES else []:
            yield bytes([number]) + json.dumps(sample).encode()
            if isinstance(sample, list):
                yield bytes([number + len(names)]) + b"\n".join(json.dumps(each).encode() for each in sample)
    for path in sorted(DATA.rglob("*")):
        if path.is_file() and path.stat().st_size <= SEED_BYTES:
            for found in detect(open_source(str(path))).found[:1]:
                if found.format in names:
                    number = names.index(found.format) + (len(names) if path.suffix == ".jsonl" else 0)
                    yield bytes([number]) + path.read_bytes()


if __name__ == "__main__":
    main()
