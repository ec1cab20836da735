"""Power cuts and kills at every step of the kinds of gc: nothing that anything names is lost."""

from __future__ import annotations

import random
import time

import pytest

from objstore.findings import Severity
from objstore.gc import GcOptions
from objstore.store import Store
from tests.crash.test_power import LONG, Trials, base, boots, forks, tell  # noqa: F401  two of them are fixtures
from tests.storetools import picture, quiet_store, say, talk

CHECK_EVERY = 3
"""So many states are looked at before one is read whole by fsck, and gc run in it."""


def many_packs(store: Store) -> None:
    """Small packs, loose objects, and garbage in both."""
    for i in range(2):
        store.commit(f"pack{i}", [say(f"pack {i} line {j}") for j in range(66)])
        store.save_chain([say(f"garbage {i} {j}") for j in range(66)])
    store.save_chain(talk("loose", "garbage"))
    store.commit("main", talk("loose", "and kept"))
    store.delete("pack1")


def quick(store: Store) -> None:
    later = time.time() + 3600
    store.gc(GcOptions(later, later, quick=True))


def nothing_left(store: Store) -> None:
    """The reflog goes as well, and with it what was deleted."""
    later = time.time() + 3600
    store.gc(GcOptions(later, later, reflog_before=later))


def young_garbage(store: Store) -> None:
    """Garbage is kept, in a pack of its own."""
    now = time.time()
    store.gc(GcOptions(now - 3600, now))


def twice(store: Store) -> None:
    quick(store)
    nothing_left(store)


class WithoutReflog(Trials):
    """The reflog may be the one of before or of after: it is shortened by itself."""

    def _look(self, folder, allowed) -> None:
        with quiet_store(folder) as store:
            seen = picture(store)
            del seen["reflog"]
            assert seen in [{name: held for name, held in each.items() if name != "reflog"} for each in allowed]
            if self._counts["states"] % CHECK_EVERY:
                return
            assert [finding for finding in store.fsck() if finding.severity is Severity.ERROR] == []
            quick(store)
            after = picture(store)
            assert seen.items() <= after.items()


def archives(store: Store) -> None:
    """Another archive of the reflog takes the place of one, and what is old goes out of that."""
    twice(store)


@pytest.mark.parametrize(
    "act", [quick, nothing_left, young_garbage, twice, archives], ids=lambda act: act.__name__
)
def test_gc_may_be_cut_short_anywhere(act, base, boots, tmp_path):  # noqa: F811
    with quiet_store(base) as store:
        many_packs(store)
        if act is archives:
            forks(store, LONG + "1", 30)
            quick(store)
            forks(store, LONG + "2", 30)
    story, disk = tell(base, act)
    tried = WithoutReflog(tmp_path, boots, random.Random(act.__name__))
    for step, op in enumerate([None, *story.files.ops]):
        if op is not None:
            disk.apply(op)
        tried.crash(disk, step, story, f"after step {step} ({op})", boot=1)
    assert act is not archives or any(op.other.endswith(".gz") for op in story.files.ops)
    tried.tell(f"gc, {act.__name__}", len(story.files.ops))
