"""Tables of texts and numbers that hang on `columns`: a session may have a million records.

Where few are held they cost less than what dicts of Python's own objects take; where many are, they are in a
file.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, MutableMapping, MutableSet
from typing import Final

from objstore.columns import Column

_FIRST_SLOTS: Final = 64
_ABSENT: Final = 0  # a link is stored as itself and two: new places of a column are zero
_NONE: Final = 1
_OFFSET: Final = 2


class Numbers:
    """A hash table of small numbers, at a tenth of what a dict takes. Who asks knows what they stand for."""

    __slots__ = ("_slots", "_used")

    def __init__(self) -> None:
        self._slots = Column("i", _FIRST_SLOTS)  # numbers and one, zero for none
        self._used = 0

    def find(self, hashed: int, is_it: Callable[[int], bool]) -> int | None:
        """The number of that hash which it is."""
        slots, mask = self._slots.data, len(self._slots) - 1
        at = hashed & mask
        while number := slots[at]:
            if is_it(number - 1):
                found: int = number - 1
                return found
            at = (at + 1) & mask
        return None

    def candidates(self, hashed: int) -> Iterator[int]:
        """The numbers that may be of that hash."""
        slots, mask = self._slots.data, len(self._slots) - 1
        at = hashed & mask
        while number := slots[at]:
            yield number - 1
            at = (at + 1) & mask

    def add(self, hashed: int, number: int, hash_of: Callable[[int], int]) -> None:
        """Take a number; `hash_of` gives the hashes of those that are here."""
        if self._used * 3 >= len(self._slots) * 2:
            old, self._slots = self._slots, Column("i", 2 * len(self._slots))
            for each in old:
                if each:
                    self._put(hash_of(each - 1), each)
        self._put(hashed, number + 1)
        self._used += 1

    def _put(self, hashed: int, stored: int) -> None:
        slots, mask = self._slots.data, len(self._slots) - 1
        at = hashed & mask
        while slots[at]:
            at = (at + 1) & mask
        slots[at] = stored


class Keyed:
    """Numbers by key, of which only the hash is kept: it is Python's own, which nobody can foresee."""

    __slots__ = ("_hashes", "_numbers", "_places")

    def __init__(self) -> None:
        self._hashes, self._places = Column("q"), Column("i")
        self._numbers = Numbers()

    def add(self, key: object, place: int) -> None:
        hashed = hash(key)
        number = len(self._hashes)
        self._hashes.append(hashed)
        self._places.append(place)
        self._numbers.add(hashed, number, self._hashes.__getitem__)

    def find(self, key: object) -> int | None:
        hashed, hashes = hash(key), self._hashes.data
        for each in self._numbers.candidates(hashed):
            if hashes[each] == hashed:
                return self._places[each]
        return None


class Texts:
    """Different texts, numbered in the order in which they were added."""

    __slots__ = ("_ends", "_hashes", "_held", "_numbers")

    def __init__(self) -> None:
        self._held = Column("B")
        self._ends = Column("q", 1)
        self._hashes = Column("q")
        self._numbers = Numbers()

    def __len__(self) -> int:
        return len(self._hashes)

    def __getitem__(self, number: int) -> str:
        return self._bytes(number).decode("utf-8", "surrogatepass")

    def __contains__(self, text: str) -> bool:
        return self.find(text) is not None

    def add(self, text: str) -> int:
        """The number of a text that isn't there yet."""
        number, hashed = len(self._hashes), hash(text)
        self._held.add_bytes(text.encode("utf-8", "surrogatepass"))
        self._ends.append(len(self._held))
        self._hashes.append(hashed)
        self._numbers.add(hashed, number, self._hashes.__getitem__)
        return number

    def find(self, text: str) -> int | None:
        """The number of a text, or None."""
        hashed, hashes = hash(text), self._hashes.data
        for each in self._numbers.candidates(hashed):
            if hashes[each] == hashed and self._bytes(each) == text.encode("utf-8", "surrogatepass"):
                return each
        return None

    def number(self, text: str) -> int:
        """The number of a text, which is added if it isn't there yet."""
        found = self.find(text)
        return self.add(text) if found is None else found

    def _bytes(self, number: int) -> bytes:
        ends = self._ends.data
        return self._held.bytes(ends[number], ends[number + 1])


class Links(MutableMapping[int, int | None]):
    """A number, or None, for each of some numbers from 0 on; in rising order whatever the order of arrival."""

    __slots__ = ("_count", "_links")

    def __init__(self) -> None:
        self._links = Column("i")
        self._count = 0

    def __getitem__(self, key: int) -> int | None:
        link = self._links.data[key] if 0 <= key < len(self._links) else _ABSENT
        if link == _ABSENT:
            raise KeyError(key)
        return None if link == _NONE else link - _OFFSET

    def get(self, key: int, default: int | None = None) -> int | None:  # type: ignore[override]
        link = self._links.data[key] if 0 <= key < len(self._links) else _ABSENT
        return default if link == _ABSENT else None if link == _NONE else link - _OFFSET

    def __setitem__(self, key: int, link: int | None) -> None:
        links = self._links
        links.extend_to(key + 1)
        self._count += links.data[key] == _ABSENT
        links.data[key] = _NONE if link is None else link + _OFFSET

    def __delitem__(self, key: int) -> None:
        self[key]  # KeyError
        self._links[key] = _ABSENT
        self._count -= 1

    def __iter__(self) -> Iterator[int]:
        return (key for key, _ in self.items())

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: object) -> bool:
        return isinstance(key, int) and 0 <= key < len(self._links) and self._links.data[key] != _ABSENT

    def items(self) -> ItemsView[int, int | None]:
        return _LinkItems(self)


class _LinkItems(ItemsView[int, int | None]):
    """As the base class, but faster."""

    _mapping: Links

    def __iter__(self) -> Iterator[tuple[int, int | None]]:
        for key, link in enumerate(self._mapping._links):
            if link != _ABSENT:
                yield key, (None if link == _NONE else link - _OFFSET)


class Marks(MutableSet[int]):
    """Numbers from 0 on, in rising order: a byte for each up to the largest."""

    __slots__ = ("_count", "_marks")

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._marks = Column("B")
        self._count = 0
        for each in numbers:
            self.add(each)

    def add(self, value: int) -> None:
        self._marks.extend_to(value + 1)
        self._count += not self._marks.data[value]
        self._marks.data[value] = 1

    def discard(self, value: int) -> None:
        if value in self:
            self._marks[value] = 0
            self._count -= 1

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and 0 <= value < len(self._marks) and self._marks.data[value] == 1

    def __iter__(self) -> Iterator[int]:
        return (number for number, mark in enumerate(self._marks) if mark)

    def __len__(self) -> int:
        return self._count


class Lists:
    """Some numbers for each of some numbers, in the order in which they were added."""

    __slots__ = ("_before", "_last", "_values")

    def __init__(self) -> None:
        self._last = Links()
        self._values, self._before = Column("i"), Column("i")  # of each value that before it, and one

    def __contains__(self, key: int) -> bool:
        return key in self._last

    def add(self, key: int, value: int) -> None:
        last = self._last.get(key)
        self._before.append(0 if last is None else last + 1)
        self._last[key] = len(self._values)
        self._values.append(value)

    def get(self, key: int, most: int | None = None) -> list[int]:
        """The numbers of `key`, or the last `most` of them."""
        found: list[int] = []
        at = self._last.get(key)
        while at is not None and at >= 0 and (most is None or len(found) < most):
            found.append(self._values[at])
            at = self._before[at] - 1
        return found[::-1]
