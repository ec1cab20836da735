"""The index after the journal: what was recorded since the index was stamped is taken in from there."""

from __future__ import annotations

from objstore.arrival import Arrival, place_loose
from objstore.frames import decompress
from objstore.index import Index
from objstore.journal import START, Journal, Position
from objstore.journalrecord import StoredObject
from objstore.kinds import Kind
from objstore.limits import MAX_OBJECT_BYTES
from objstore.loose import loose_name
from objstore.pack import list_packs
from objstore.scan import Notice, admit, adopt_pack, value_of
from refs.errors import CorruptFile, DagError
from refs.files import Files


def stamp_of(position: Position) -> str:
    """A place in a journal as the index is stamped with it."""
    return f"{position.id}:{position.end}"


def stamped(index: Index) -> Position | None:
    """Up to where in which journal an index holds everything; None if it doesn't tell."""
    name, _, end = (index.stamp() or "").partition(":")
    return Position(name, int(end)) if end.isdecimal() else None


def holds_all(index: Index, journal: Journal) -> bool:
    """Whether an index holds all that was committed."""
    here = journal.position()
    # If nothing was recorded since the journal was emptied, the index may still stand where it was emptied.
    return stamped(index) in ((here, journal.emptied_from()) if here.end == START else (here,))


def why_anew(files: Files, index: Index, journal: Journal) -> str | None:
    """Why an index can't be brought up to date, or None."""
    stamp, here = stamped(index), journal.position()
    if stamp is None or not (stamp.id == here.id or stamp == journal.emptied_from()):
        return "the index is of another time than the objects"
    gone = index.packs().keys() - set(list_packs(files))
    if gone or (stamp.id == here.id and stamp.end > here.end):
        return "the index names what is gone"
    return None


def take_in(files: Files, index: Index, journal: Journal, notice: Notice) -> None:
    """Index what was recorded after the stamp, and packs that aren't known."""
    stamp, here = stamped(index), journal.position()
    start = stamp.end if stamp is not None and stamp.id == here.id else START
    with index.changing() as db:
        left: list[Arrival] = []
        for pack in sorted(set(list_packs(files)) - index.packs().keys()):
            left += adopt_pack(files, index, db, pack, notice)
        for record, end in journal.records(start):
            if end <= here.end:
                left += [arrival_of(each) for each in record.objects]
        for arrival in admit(index, db, left):
            notice(f"{arrival.kind} {arrival.oid} is passed over: something before it is missing")
        index.link(db)
        index.set_stamp(db, stamp_of(here))


def take_in_beside(index: Index, journal: Journal) -> bool:
    """`take_in` without the store's lock, beside whoever holds it; False where that can't be done.

    The stamp and the records are of one moment: whoever empties the journal stamps the index behind it, and
    waits for us with that. A record that names packs is left to who holds the lock: it may be taken back.
    """
    try:
        with index.changing() as db:
            stamp, here = stamped(index), journal.position()
            if stamp is None or stamp.id != here.id or stamp.end > here.end:
                raise _NotBeside
            arrivals = []
            for record, end in journal.records(stamp.end):
                if end <= here.end:
                    if record.packs:
                        raise _NotBeside
                    arrivals += [arrival_of(each) for each in record.objects]
            if admit(index, db, arrivals) or journal.position().id != here.id:
                raise _NotBeside
            index.link(db)
            index.set_stamp(db, stamp_of(here))
    except (_NotBeside, DagError):
        return False
    return True


class _NotBeside(Exception):
    """What was begun is rolled back."""


def follow_in_memory(files: Files, index: Index, journal: Journal, notice: Notice) -> bool:
    """Where the index can't be written: go on with a copy that holds all; False if it must be made anew."""
    if why_anew(files, index, journal) is not None:
        return False
    index.go_on_in_memory()
    take_in(files, index, journal, notice)
    return True


def arrival_of(each: StoredObject) -> Arrival:
    """An object from the journal. Raises `CorruptFile` or `CorruptObject` if it isn't what it should be."""
    value = None
    if each.kind is not Kind.PAYLOAD:
        where = loose_name(each.kind, each.oid, each.form)
        value = value_of(each.kind, each.form, decompress(each.packed, MAX_OBJECT_BYTES, where))
    return Arrival(each.kind, each.oid, place_loose(each.form), value)


def recorded(journal: Journal, notice: Notice) -> list[Arrival]:
    """What stands in the journal."""
    try:
        return [arrival_of(each) for record, _ in journal.records() for each in record.objects]
    except (CorruptFile, FileNotFoundError) as error:
        notice(f"the journal can't be read: {error}")
        return []
