"""The light gc that the command line runs after it has written: the library never does it unasked.

Imported after every commit: so gc itself is imported only where there is something to do.
"""

from __future__ import annotations

import time
from typing import Final

from cli.ages import GRACE, REFLOG, moment
from cli.failures import say
from objstore.pack import pack_name
from objstore.storage import Storage
from objstore.store import Store
from refs.errors import DagError

LOOSE_OBJECTS: Final = 4096
"""More loose objects than this are put into a pack."""
SMALL_PACKS: Final = 50
"""More small packs than this are put together."""


def after_writing(store: Store) -> None:
    """Run gc quickly where there are many small files, and say so. What was written stands, whatever comes."""
    try:
        why = _crowded(store.storage)
        if why is None:
            return
        from objstore.gc import GcOptions  # noqa: PLC0415

        say(f"{why}: packing them")
        now = time.time()
        options = GcOptions(moment(GRACE, now), now, reflog_before=moment(REFLOG, now), quick=True)
        report = store.gc(options)
        say(f"packed: {report.packs_after} packs")
    except DagError as error:
        say(f"packing failed, nothing is lost: {error}", error.hint)


def _crowded(storage: Storage) -> str | None:
    loose = storage.index.loose_count()
    if loose > LOOSE_OBJECTS:
        return f"there are {loose:,} loose objects"
    packs = storage.index.packs()
    if len(packs) > SMALL_PACKS:
        from objstore.gc import SMALL_PACK_BYTES  # noqa: PLC0415

        sizes = (storage.files.stat(pack_name(pack)) for pack in packs)
        small = sum(1 for found in sizes if found is not None and found.st_size <= SMALL_PACK_BYTES)
        if small > SMALL_PACKS:
            return f"there are {small} small packs"
    return None
