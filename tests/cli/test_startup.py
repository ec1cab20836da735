"""What a fresh process loads: each module is paid for by whoever waits for the prompt."""

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import said

ROOT = Path(__file__).parents[2]
OURS = {"cli", "objstore", "refs"}
PROGRAM = """
import sys
before = {*sys.modules}  # the interpreter's own start
from cli.main import main
try:
    main()
finally:
    print(*({*sys.modules} - before), file=sys.stderr)
"""

STORES = {"dataclasses", "hashlib", "json", "orjson", "sqlite3", "zstandard"}
"""What opening a store takes."""
STANDARD_LIBRARY = {
    "asyncio",
    "base64",
    "calendar",
    "email",
    "http",
    "pathlib",
    "secrets",
    "subprocess",
    "tomllib",
}
"""What a log does without. `pathlib` brings urllib with it."""
LIBRARIES = {"obstore", "ulid"}
WRITING = {
    "objstore.draft", "objstore.drafts", "objstore.ingest", "objstore.newcall", "objstore.requests",
    "objstore.saving", "objstore.transaction",
}  # fmt: skip
OTHERS = {
    "cli.calls", "cli.graph", "cli.pager", "objstore.exchange", "objstore.fsck", "objstore.gc",
    "objstore.hierarchy", "objstore.importing", "objstore.repair", "objstore.rowreader", "objstore.stats",
    "objstore.transcripts", "objstore.transfer", "objstore.usage", "objstore.views",
}  # fmt: skip


def loaded(folder, *args) -> set[str]:
    """The modules that a run of the program in `folder` loads."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "DAG_DIR": str(folder / ".dag")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout
    return set(run.stderr.split())


def test_version_loads_nothing_but_click_and_the_group(tmp_path):
    found = loaded(tmp_path, "--version")
    assert {name for name in found if name.partition(".")[0] in OURS} == {"cli", "cli.main"}
    assert not found & (STORES | STANDARD_LIBRARY | LIBRARIES)


def test_a_log_loads_nothing_that_writes_or_that_other_commands_use(dag):
    dag("commit", dag.write("a.json", said("one", "two", "three")))
    found = loaded(dag.folder, "log", "-n", "5")
    assert "objstore.store" in found
    assert not found & (STANDARD_LIBRARY | LIBRARIES | WRITING | OTHERS)
    assert {name for name in found if name.startswith("cli.commands.")} == {"cli.commands.log"}
