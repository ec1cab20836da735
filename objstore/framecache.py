"""Decoded frames of packs, and what was read of them, within a bound: the least recently used go first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final

from objstore.arrival import Location
from objstore.limits import FRAME_CACHE_BYTES
from objstore.message import Message
from objstore.pack import PackReader
from objstore.packframe import Frame
from objstore.parsed import parsed_message, weight
from objstore.records import Tombstone
from refs.files import Files
from refs.forks import renew_after_fork
from refs.ids import Oid

_MOST_PACKS: Final = 64


class FrameCache:
    """Frames by their places. Safe for several threads; a forked child begins with nothing."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """In a forked child: another thread may have been amidst."""
        self._mutex = threading.RLock()
        self._packs: OrderedDict[str, PackReader] = OrderedDict()
        self.frames: OrderedDict[tuple[str, int], Frame] = OrderedDict()
        self.weight = 0
        """Bytes of memory that `frames` take."""

    def frame(self, place: Location) -> Frame:
        """The frame of a place in a pack. `FileNotFoundError` if its pack is gone."""
        assert place.pack is not None
        name = (place.pack, place.offset)
        with self._mutex:
            frame = self.frames.get(name)
            if frame is not None:
                self.frames.move_to_end(name)
                return frame
            frame = self._pack(place.pack).frame(place.offset, place.size)
            frame.name = name
            self.frames[name] = frame
            self.weight += frame.weight
            self._evict()
            return frame

    def decoded(self, frame: Frame, wanted: Iterable[tuple[Oid, int]]) -> Mapping[int, Message | Tombstone]:
        """Messages of a frame by their lines: those `wanted` by id and line (or -1) that are as usual, and more.

        The ids are known to be those of the lines.
        """
        values, lines = frame.values, frame.lines
        made: dict[int, Message | Tombstone] = {}
        size = 0
        for oid, at in wanted:
            if at >= 0 and at not in values and lines[at].startswith(b'{"parts":'):
                message = parsed_message(lines[at], oid)
                if message is not None:
                    made[at] = message
                    size += weight(message)
        if made and not self.keep(frame, made, size):
            return made | values
        return values

    def keep(self, frame: Frame, values: Mapping[int, Message | Tombstone], size: int) -> bool:
        """Keep values of `size` bytes beside their lines, if their frame is kept and there is room."""
        with self._mutex:
            if self.frames.get(frame.name) is not frame or frame.weight + size > FRAME_CACHE_BYTES:
                return False
            frame.values.update(values)
            frame.weight += size
            self.weight += size
            self._evict()
        return True

    def forget(self) -> None:
        """Close all packs and drop what was decoded of them."""
        with self._mutex:
            for pack in self._packs.values():
                pack.close()
            self._packs.clear()
            self.frames.clear()
            self.weight = 0

    def _evict(self) -> None:
        while self.weight > FRAME_CACHE_BYTES and len(self.frames) > 1:
            self.weight -= self.frames.popitem(last=False)[1].weight

    def _pack(self, pack: str) -> PackReader:
        reader = self._packs.get(pack)
        if reader is None:
            reader = self._packs[pack] = PackReader(self._files, pack)
            if len(self._packs) > _MOST_PACKS:
                self._packs.popitem(last=False)[1].close()
        else:
            self._packs.move_to_end(pack)
        return reader
