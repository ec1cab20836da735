"""Stores of real conversations that grew apart meet, and end with the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from objstore.findings import Level
from objstore.ingest import Ingest
from objstore.kinds import Kind
from objstore.store import Store
from objstore.transcripts.files import open_source
from objstore.transcripts.model import Transcript
from objstore.transcripts.registry import detect, reader
from tests.storetools import indexed, init_quiet, ticking

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
FOLDERS = ("claude-code", "chatgpt-export", "codex", "langchain", "openai-chat")
OVERLAP = 4
"""Every fourth file is imported on both machines."""

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the shared data is not beside this checkout")


def sources() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((DATA / folder).iterdir()) if path.is_file()]


def take_in(store: Store, paths: list[Path]) -> None:
    with Ingest(store) as ingest:
        for path in paths:
            for found in detect(open_source(path)).found:
                for output in reader(found.format).read(found.source):
                    if isinstance(output, Transcript):
                        ingest.add(output)


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """Two stores with a half of the files each, and some in both."""
    root = tmp_path_factory.mktemp("grown")
    paths = sources()
    both = paths[::OVERLAP]
    for number, name in enumerate(("one", "two")):
        with init_quiet(root / name, ticking(60_000 * (number + 1))) as store:
            take_in(store, [path for path in paths[number::2] if path not in both] + both)
    return root / "one", root / "two"


def test_two_stores_merge_both_ways_to_the_same_ids_and_then_move_nothing(grown, tmp_path):
    with Store.open(grown[0]) as one, Store.open(grown[1]) as two:
        before = indexed(one), indexed(two)
        shared = before[0] & before[1]
        assert {kind for kind, _ in shared} >= {Kind.MESSAGE, Kind.NODE}
        first = one.merge_from(grown[1], fork=True)
        assert first.total == len(before[1] - before[0])
        back = two.merge_from(grown[0], fork=True)
        assert back.total == len(before[0] - before[1])
        assert indexed(one) == indexed(two) == before[0] | before[1]
        for store, other in ((one, grown[1]), (two, grown[0])):
            again = store.merge_from(other, fork=True)
            assert (again.objects, again.bytes, again.moved) == ({}, 0, [])
            assert not [finding for finding in store.fsck(Level.CONNECTIVITY) if finding.severity == "error"]
        # What was sent is what was missing, packed: no more than a store takes that holds it alone.
        clone, cloned = Store.clone(grown[1], tmp_path / "clone")
        clone.close()
        assert first.bytes < cloned.bytes
