"""The nodes that a transcript's entries make: a session may have millions of them.

A place is a number, in order of arrival. Two entries that say the same after the same node have one place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from objstore.columns import Column, scratch
from objstore.compact import Keyed, Numbers
from refs.ids import ROOT, NodeId, Oid

NOWHERE: Final = -1
"""The place before the first node: `ROOT`."""
FEW: Final = 4096
"""Entries up to which plain lists and dicts hold a tree: they are faster."""

_ID_BYTES: Final = 32
_UNTOLD: Final = -1  # the time of a node whose entry tells none
_NO_DIGITS: Final = str.maketrans("", "", "-:T.Z")
_PAGES_EACH: Final = 64  # entries between two times that the columns' pages are given back


class EntryTree:
    """Ids, parents and times by place; places by key and by id. Of many, nearly all is in files."""

    __slots__ = ("_by_id", "_by_key", "_first_time", "_ids", "_many", "_times", "last", "parents")

    def __init__(self) -> None:
        self.parents: list[int] | Column = []
        self._ids: list[NodeId] = []
        self._times: list[str | None] = []
        self._by_id: dict[NodeId, int] = {}
        self._by_key: dict[str, int] = {}
        self._many: _Many | None = None
        self._first_time: str | None = None
        self.last = NOWHERE
        """The place of the entry that came last."""

    def __len__(self) -> int:
        return len(self.parents)

    def add(self, key: str, oid: NodeId, parent: int, at: str | None) -> int:
        """Take an entry's node; its place."""
        many = self._many
        place = self._by_id.get(oid) if many is None else many.find(oid)
        if place is None:
            place = len(self.parents)
            self.parents.append(parent)
            if at is not None and (self._first_time is None or at < self._first_time):
                self._first_time = at
            if many is None:
                self._ids.append(oid)
                self._times.append(at)
                self._by_id[oid] = place
            else:
                many.add(place, oid, at)
        self.last = place
        if many is not None:
            many.by_key.add(key, place)
        else:
            self._by_key.setdefault(key, place)
            if len(self._by_key) >= FEW:
                self._move()
        return place

    def get(self, key: str | None) -> int | None:
        """The place of an entry's node, or None where there is no such entry."""
        if key is None:
            return None
        return self._by_key.get(key) if self._many is None else self._many.by_key.find(key)

    def id(self, place: int) -> NodeId:
        """The node at a place."""
        if place == NOWHERE:
            return ROOT
        return self._ids[place] if self._many is None else NodeId(Oid(self._many.raw(place).hex()))

    def time(self, place: int) -> str | None:
        """When the entry at a place was said, as far as it tells."""
        return self._times[place] if self._many is None else self._many.time(place)

    def first_time(self) -> str | None:
        """The earliest time that an entry tells."""
        return self._first_time

    def up(self, place: int) -> Iterator[int]:
        """A place and all before it, nearest first."""
        while place != NOWHERE:
            yield place
            place = self.parents[place]

    def find(self, ids: Collection[NodeId]) -> dict[int, NodeId]:
        """Those of some nodes that are here, by place."""
        find = self._by_id.get if self._many is None else self._many.find
        return {place: oid for oid in ids if (place := find(oid)) is not None}

    def _move(self) -> None:
        """From the plain lists and dicts into columns."""
        self._many = many = _Many()
        parents = Column("i")
        for place, oid in enumerate(self._ids):
            parents.append(self.parents[place])
            many.add(place, oid, self._times[place])
        for key, place in self._by_key.items():
            many.by_key.add(key, place)
        self.parents = parents
        self._ids, self._times, self._by_id, self._by_key = [], [], {}, {}


class _Many:
    """The ids and times of many nodes, and where they are: about 80 bytes each, in columns."""

    __slots__ = ("_by_id", "_ids", "_times", "by_key")

    def __init__(self) -> None:
        self._ids, self._times = Column("B"), Column("q")
        self._by_id, self.by_key = Numbers(), Keyed()

    def add(self, place: int, oid: NodeId, at: str | None) -> None:
        if not place % _PAGES_EACH:
            scratch().give_back()
        raw = bytes.fromhex(oid)
        self._ids.add_bytes(raw)
        self._times.append(_UNTOLD if at is None else int(at.translate(_NO_DIGITS)))
        self._by_id.add(int.from_bytes(raw[:8], "little"), place, self._start)

    def find(self, oid: NodeId) -> int | None:
        raw = bytes.fromhex(oid)
        for place in self._by_id.candidates(int.from_bytes(raw[:8], "little")):
            if self.raw(place) == raw:
                return place
        return None

    def raw(self, place: int) -> bytes:
        return self._ids.bytes(place * _ID_BYTES, (place + 1) * _ID_BYTES)

    def time(self, place: int) -> str | None:
        told = self._times[place]
        return None if told == _UNTOLD else _time(told)

    def _start(self, place: int) -> int:
        return int.from_bytes(self._ids.bytes(place * _ID_BYTES, place * _ID_BYTES + 8), "little")


def _time(digits: int) -> str:
    """A time from its digits alone, which fit into 8 bytes."""
    text = f"{digits:017d}"
    date, clock = f"{text[:4]}-{text[4:6]}-{text[6:8]}", f"{text[8:10]}:{text[10:12]}:{text[12:14]}.{text[14:]}"
    return f"{date}T{clock}Z"
