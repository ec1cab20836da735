"""The command: the peers' environment first, then everything else in a process of it."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.compare import environment
from tests.bench.compare.disk import ROOT

_INSIDE = "MSGDAG_BENCH_INSIDE"
_SAMPLES = ROOT.parent / "shared" / "data"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.compare", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small corpora: a few minutes")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "performance.md", help="the document")
    parser.add_argument(
        "--venv", type=Path, default=ROOT / ".bench", help="the environment, made where it is missing"
    )
    options = parser.parse_args()
    folder = options.venv.resolve()
    if os.environ.get(_INSIDE) is None:
        environment.make(folder)
        python = str(environment.python_of(folder))
        inside = {**os.environ, _INSIDE: "1", "PYTHONPATH": str(ROOT), "OPENAI_AGENTS_DISABLE_TRACING": "1"}
        os.execve(python, [python, "-m", "tests.bench.compare", *sys.argv[1:]], inside)
    measure(options.quick, options.out, folder)


def measure(quick: bool, out: Path, folder: Path) -> None:
    """Run, print the document, and write it with its plots."""
    from tests.bench.compare.corpora import fetch, gather  # noqa: PLC0415
    from tests.bench.compare.report import write  # noqa: PLC0415
    from tests.bench.compare.run import run  # noqa: PLC0415
    from tests.bench.compare.sizes import FULL, QUICK  # noqa: PLC0415

    sizes = QUICK if quick else FULL
    busy = environment.busy()
    corpora = gather(sizes, fetch(folder / "corpora"), _SAMPLES)
    # Beside the environment, since a temporary folder may be in memory, where nothing waits for a disk.
    with tempfile.TemporaryDirectory(dir=folder, prefix="run-") as place:
        results = run(sizes, corpora, Path(place), lambda told: print(told, file=sys.stderr))
    results.facts = [
        ("command", f"`python -m tests.bench.compare{' --quick' if quick else ''}`"),
        ("date", datetime.now(UTC).strftime("%Y-%m-%d")),
        *environment.facts(folder),
        ("load of the machine", f"{busy} at the beginning, {environment.busy()} at the end"),
    ]
    document, plots = write(results)
    print(document)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(document, "utf-8")
    for name, drawn in plots.items():
        out.with_name(f"performance-{name}.svg").write_text(drawn, "utf-8")


if __name__ == "__main__":
    main()
