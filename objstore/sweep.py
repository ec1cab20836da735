"""The end of gc, with the lock held: new packs become known, what nothing needs is forgotten, then deleted."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from objstore.arrival import LINES_PER_FRAME
from objstore.kinds import Kind
from objstore.loose import list_loose, loose_name
from objstore.mark import Graph, Live, rows_in, without
from objstore.pack import PACK_FOLDER, pack_name, publish
from objstore.repack import NewPack, Packer, Picker
from objstore.storage import Storage
from refs.errors import DagError
from refs.files import TEMP_PREFIX

STRAY_SECONDS: Final = 3600
"""Younger files that nothing names may belong to a transaction under way."""
PACKED_WELL: Final = "gc_packs"
"""Names the packs in the index that a full run wrote: they need not be written again."""

# What is built on others goes first, so that what a crash leaves has all that it needs.
_DELETION_ORDER: Final = (Kind.NOTE, Kind.CALL, Kind.DESCRIPTION, Kind.NODE, Kind.MESSAGE, Kind.PAYLOAD)


def sweep(
    storage: Storage, late: Graph, keep: Live, picker: Picker, sources: set[str], packer: Packer, *, full: bool
) -> None:
    """Publish what `packer` wrote, forget all that `keep` doesn't hold, and delete `sources` and loose files.

    A crash at any point leaves files that nothing needs, and the next opening or gc finds them.
    """
    files, index = storage.files, storage.index
    _rescue(late, keep, picker, packer)
    gone = loose_files(storage, late, keep, packer.packs)
    new = {pack.written.pack for pack in packer.packs}
    for pack in packer.packs:
        if pack.age is not None and pack.written.temp is not None:
            files.touch(pack.written.temp, pack.age)
        publish(files, pack.written)
    with index.changing() as db:
        index.check_places(db)  # before there are new frames, which a wrong place might seem to mean
        for pack in packer.packs:
            first = index.first_frame(pack.written.pack)
            if first is None:
                first = index.add_pack(db, pack.written.pack, pack.written.frames)
            for kind in Kind:
                places = [first * LINES_PER_FRAME + place for place in pack.places[kind]]
                index.move_rows(db, kind, zip(places, pack.rows[kind], strict=True))
        for kind in Kind:
            index.forget(db, kind, rows_in(late.outside(kind, keep)))
        for name in sources - new:
            index.forget_pack(db, name)
        index.check_places(db)
        known = set((index.meta(PACKED_WELL) or "").split()) - sources
        index.set_meta(db, PACKED_WELL, " ".join(sorted(known | new if full else known)))
    index.checkpoint()
    storage.empty_journal()
    for name in gone:
        files.remove(name)
    for name in sources - new:
        files.remove(pack_name(name))
    files.sync_dir(PACK_FOLDER)


def _rescue(late: Graph, keep: Live, picker: Picker, packer: Packer) -> None:
    """Pack what somebody came to need while the rest was packed."""
    placed = Live(late)
    for pack in packer.packs:
        for kind, rows in pack.rows.items():
            for row in rows:
                placed.rows[kind][row] = 1
    for kind in reversed(_DELETION_ORDER):
        for row in rows_in(without(keep.rows[kind], placed.rows[kind])):
            loc = late.locs[kind][row]
            if picker.in_source(loc):
                packer.add(kind, row, loc, starts=False)
    packer.seal()


def loose_files(storage: Storage, graph: Graph, keep: Live, packs: list[NewPack]) -> list[str]:
    """The files of loose objects that are packed now, or that nothing needs, in the order to delete them."""
    names = []
    for kind in _DELETION_ORDER:
        loose = storage.index.loose_rows(kind)
        packed = {row for pack in packs for row in pack.rows[kind]} if loose else set()
        for row, oid in reversed(loose):
            if row in packed or not keep.holds(kind, row):
                names.append(loose_name(kind, oid, storage.index.location(graph.locs[kind][row]).form))
    return names


def remove_leftovers(storage: Storage, now: float) -> int:
    """Delete what a crash left: old temporary files, archives of the reflog, loose objects that stand in a pack.

    How many there were. The lock is held.
    """
    files, removed = storage.files, storage.refs.reflog.sweep()
    names = [name for name, is_dir in files.entries("") if not is_dir]
    for name in (*names, *files.walk("objects"), *files.walk("refs")):
        if name.rpartition("/")[2].startswith(TEMP_PREFIX):
            found = files.stat(name)
            if found is not None and found.st_mtime < now - STRAY_SECONDS:
                removed += files.remove(name)
    for kind in _DELETION_ORDER:
        for oid, form in list_loose(files, kind):
            place = storage.index.locate(kind, oid)
            if place is not None and place.pack is not None:
                with suppress(DagError):  # the copy in the pack can't be read: then this one is needed
                    if storage.database.read(kind, oid)[0] is form:
                        removed += files.remove(loose_name(kind, oid, form))
    return removed
