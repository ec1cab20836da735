"""The nodes that a transcript's entries make, held compactly: a session may have millions of them.

A place is a number, in order of arrival. Two entries that say the same after the same node have one place.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator
from typing import Final

from objstore.compact import Keyed, Numbers
from refs.ids import ROOT, NodeId, Oid

NOWHERE: Final = -1
"""The place before the first node: `ROOT`."""

_ID_BYTES: Final = 32
_UNTOLD: Final = -1  # the time of a node whose entry tells none
_NO_DIGITS: Final = str.maketrans("", "", "-:T.Z")


class EntryTree:
    """Ids, parents and times by place; places by key and by id. About 80 bytes a node."""

    def __init__(self) -> None:
        self.parents: array[int] = array("i")
        self._ids = bytearray()
        self._times: array[int] = array("q")
        self._by_id = Numbers()
        self._by_key = Keyed()
        self.last = NOWHERE
        """The place of the entry that came last."""

    def __len__(self) -> int:
        return len(self.parents)

    def add(self, key: str, oid: NodeId, parent: int, at: str | None) -> int:
        """Take an entry's node; its place."""
        raw = bytes.fromhex(oid)
        place = self._by_id.find(int.from_bytes(raw[:8], "little"), lambda place: self._raw(place) == raw)
        if place is None:
            place = len(self.parents)
            self.parents.append(parent)
            self._ids += raw
            self._times.append(_UNTOLD if at is None else int(at.translate(_NO_DIGITS)))
            self._by_id.add(int.from_bytes(raw[:8], "little"), place, self._start)
        self._by_key.add(key, place)
        self.last = place
        return place

    def get(self, key: str | None) -> int | None:
        """The place of an entry's node, or None where there is no such entry."""
        return None if key is None else self._by_key.find(key)

    def id(self, place: int) -> NodeId:
        """The node at a place."""
        return ROOT if place == NOWHERE else NodeId(Oid(self._raw(place).hex()))

    def time(self, place: int) -> str | None:
        """When the entry at a place was said, as far as it tells."""
        told = self._times[place]
        return None if told == _UNTOLD else _time(told)

    def first_time(self) -> str | None:
        """The earliest time that an entry tells."""
        told = min((each for each in self._times if each != _UNTOLD), default=None)
        return None if told is None else _time(told)

    def up(self, place: int) -> Iterator[int]:
        """A place and all before it, nearest first."""
        while place != NOWHERE:
            yield place
            place = self.parents[place]

    def find(self, ids: Collection[NodeId]) -> dict[int, NodeId]:
        """Those of some nodes that are here, by place."""
        found = {}
        for oid in ids:
            raw = bytes.fromhex(oid)
            place = self._by_id.find(int.from_bytes(raw[:8], "little"), lambda at, raw=raw: self._raw(at) == raw)  # type: ignore[misc]
            if place is not None:
                found[place] = oid
        return found

    def _raw(self, place: int) -> bytes:
        return bytes(self._ids[place * _ID_BYTES : (place + 1) * _ID_BYTES])

    def _start(self, place: int) -> int:
        return int.from_bytes(self._ids[place * _ID_BYTES : place * _ID_BYTES + 8], "little")


def _time(digits: int) -> str:
    """A time from its digits alone, which fit into 8 bytes."""
    text = f"{digits:017d}"
    date, clock = f"{text[:4]}-{text[4:6]}-{text[6:8]}", f"{text[8:10]}:{text[10:12]}:{text[12:14]}.{text[14:]}"
    return f"{date}T{clock}Z"
