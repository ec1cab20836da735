"""Large files are ordinary: what an import holds in memory does not follow the size of the file.

The whole gigabyte is read where MSGDAG_GIGABYTE is set: it takes some minutes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from objstore.importing import Importer, Options
from objstore.store import Store
from tests.cli.big_session import chats, session

MIB = 1 << 20
SIZES = {"small": 25 * MIB, "large": 100 * MIB}
GIGABYTE = os.environ.get("MSGDAG_GIGABYTE")

CODE = """
import json, sys
from objstore.importing import Importer, Options
from objstore.store import Store
with Store.init(sys.argv[2]) as store, Importer(store, Options(), lambda event: None) as importer:
    report = importer.add(sys.argv[1])
# Not ru_maxrss: it starts with that of the process that made this one.
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) // 1024
print(json.dumps({"peak": peak, "messages": report.messages, "new": report.new, "skipped": report.skipped}))
"""


def imported(make, size, folder):
    """What an import of a file of that size came to, and the most memory (MiB) its process ever had."""
    folder.mkdir()
    file = folder / "big.jsonl"
    make(Path(file), size)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", CODE, str(file), str(folder / "store")]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    file.unlink()
    return json.loads(ran.stdout)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("make", "growth"), [(session, 30), (chats, 50)])
def test_memory_is_bounded_and_hardly_grows(tmp_path, make, growth):
    found = {name: imported(make, size, tmp_path / name) for name, size in SIZES.items()}
    large, small = found["large"], found["small"]
    assert large["messages"] > 3.5 * small["messages"] and large["skipped"] == 0
    assert large["peak"] < 170
    # Measured: 10 MiB for a session, 32 for chats, of which nearly all are the store's refs and the index's cache,
    # which has yet to fill.
    assert large["peak"] - small["peak"] < growth


def test_what_is_kept_of_the_index_is_as_before_once_an_import_is_over(tmp_path):
    def kept(store):
        with store.storage.index.reading() as db:
            return [db.execute(f"PRAGMA {name}").fetchone() for name in ("cache_size", "mmap_size")]

    chats(tmp_path / "few.jsonl", 10_000)
    with Store.init(tmp_path / "store") as store:
        before, during = kept(store), []
        with Importer(store, Options(), lambda event: during.append(kept(store))) as importer:
            importer.add(str(tmp_path / "few.jsonl"))
        assert kept(store) == before
        assert during and before not in during


@pytest.mark.skipif(not GIGABYTE, reason="MSGDAG_GIGABYTE is not set: this takes some minutes")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("make", "most"), [(session, 210), (chats, 220)])
def test_a_gigabyte_is_imported(tmp_path, make, most):
    found = imported(make, 1 << 30, tmp_path / "giga")
    print(make.__name__, found)
    assert found["messages"] == found["new"] > 100_000
    assert found["peak"] < most
