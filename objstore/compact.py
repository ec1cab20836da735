"""Tables of texts and numbers at a fraction of what a dict of Python's own objects takes: a session may have
a million records.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, ItemsView, Iterator, MutableMapping
from typing import Final

_FIRST_SLOTS: Final = 64
_NONE: Final = -1
_ABSENT: Final = -2


class Numbers:
    """A hash table of small numbers, at a tenth of what a dict takes. Who asks knows what they stand for."""

    def __init__(self) -> None:
        self._slots: array[int] = array("i", [-1]) * _FIRST_SLOTS
        self._used = 0

    def find(self, hashed: int, is_it: Callable[[int], bool]) -> int | None:
        """The number of that hash which it is."""
        slots, mask = self._slots, len(self._slots) - 1
        at = hashed & mask
        while (number := slots[at]) >= 0:
            if is_it(number):
                return number
            at = (at + 1) & mask
        return None

    def add(self, hashed: int, number: int, hash_of: Callable[[int], int]) -> None:
        """Take a number; `hash_of` gives the hashes of those that are here."""
        if self._used * 3 >= len(self._slots) * 2:
            old, self._slots = self._slots, array("i", [-1]) * (2 * len(self._slots))
            for each in old:
                if each >= 0:
                    self._put(hash_of(each), each)
        self._put(hashed, number)
        self._used += 1

    def _put(self, hashed: int, number: int) -> None:
        slots, mask = self._slots, len(self._slots) - 1
        at = hashed & mask
        while slots[at] >= 0:
            at = (at + 1) & mask
        slots[at] = number


class Keyed:
    """Places by key, of which only the hash is kept: it is Python's own, which nobody can foresee."""

    def __init__(self) -> None:
        self._hashes: array[int] = array("q")
        self._places: array[int] = array("i")
        self._numbers = Numbers()

    def add(self, key: str, place: int) -> None:
        hashed = hash(key)
        number = len(self._hashes)
        self._hashes.append(hashed)
        self._places.append(place)
        self._numbers.add(hashed, number, self._hashes.__getitem__)

    def find(self, key: str) -> int | None:
        hashed, hashes = hash(key), self._hashes
        number = self._numbers.find(hashed, lambda each: hashes[each] == hashed)
        return None if number is None else self._places[number]


class Texts:
    """Different texts, numbered in the order in which they were added. About 25 bytes each, and their own."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._ends: array[int] = array("q", [0])
        self._hashes: array[int] = array("q")
        self._numbers = Numbers()

    def __len__(self) -> int:
        return len(self._hashes)

    def __getitem__(self, number: int) -> str:
        return self._bytes(number).decode("utf-8", "surrogatepass")

    def __contains__(self, text: str) -> bool:
        return self.find(text) is not None

    def add(self, text: str) -> int:
        """The number of a text that isn't there yet."""
        number = len(self._hashes)
        self._held += text.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._held))
        self._hashes.append(hash(text))
        self._numbers.add(hash(text), number, self._hashes.__getitem__)
        return number

    def find(self, text: str) -> int | None:
        """The number of a text, or None."""
        hashed, hashes = hash(text), self._hashes
        raw = text.encode("utf-8", "surrogatepass")
        return self._numbers.find(hashed, lambda each: hashes[each] == hashed and self._bytes(each) == raw)

    def _bytes(self, number: int) -> bytes:
        return bytes(self._held[self._ends[number] : self._ends[number + 1]])


class Links(MutableMapping[int, int | None]):
    """A number, or None, for each of some numbers from 0 on; in rising order whatever the order of arrival."""

    def __init__(self) -> None:
        self._links: array[int] = array("i")  # _NONE for None, _ABSENT where there is nothing
        self._count = 0

    def __getitem__(self, key: int) -> int | None:
        link = self._links[key] if 0 <= key < len(self._links) else _ABSENT
        if link == _ABSENT:
            raise KeyError(key)
        return None if link == _NONE else link

    def __setitem__(self, key: int, link: int | None) -> None:
        links = self._links
        if key >= len(links):
            links.extend([_ABSENT] * (key + 1 - len(links)))
        self._count += links[key] == _ABSENT
        links[key] = _NONE if link is None else link

    def __delitem__(self, key: int) -> None:
        self[key]  # KeyError
        self._links[key] = _ABSENT
        self._count -= 1

    def __iter__(self) -> Iterator[int]:
        return (key for key, link in enumerate(self._links) if link != _ABSENT)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: object) -> bool:
        return isinstance(key, int) and 0 <= key < len(self._links) and self._links[key] != _ABSENT

    def items(self) -> ItemsView[int, int | None]:
        return _LinkItems(self)


class _LinkItems(ItemsView[int, int | None]):
    """As the base class, but faster."""

    _mapping: Links

    def __iter__(self) -> Iterator[tuple[int, int | None]]:
        for key, link in enumerate(self._mapping._links):
            if link != _ABSENT:
                yield key, (None if link == _NONE else link)
