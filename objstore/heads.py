"""Where all conversations are, while an import runs: by name, and which of them are branches of which.

A file may make a hundred thousand conversations: of so many nearly all is in files.
"""

from __future__ import annotations

from typing import Final

from objstore.columns import Column, scratch
from objstore.compact import Lists, Texts
from objstore.convnames import family
from refs.ids import NodeId, Oid

FEW: Final = 8192
"""Conversations up to which plain dicts hold them."""

_ID_BYTES: Final = 32
_PAGES_EACH: Final = 64  # conversations between two times that the columns' pages are given back


class Heads:
    """Conversations' heads by name."""

    __slots__ = ("_branches", "_few", "_many")

    def __init__(self) -> None:
        self._few: dict[str, NodeId] = {}
        self._branches: dict[str, list[str]] = {}  # by the name of the conversation that they belong to
        self._many: _Many | None = None

    def __contains__(self, name: str) -> bool:
        return name in self._few if self._many is None else self._many.names.find(name) is not None

    def keep(self, name: str, head: NodeId) -> None:
        """Know where a conversation is."""
        if self._many is not None:
            self._many.keep(name, head)
            return
        if name not in self._few and (own := family(name)) != name:
            self._branches.setdefault(own, []).append(name)
        self._few[name] = head
        if len(self._few) >= FEW:
            self._many = many = _Many()
            for each, at in self._few.items():
                many.keep(each, at)
            self._few, self._branches = {}, {}

    def family_of(self, name: str) -> dict[str, NodeId]:
        """The heads of a conversation and of its branches, as far as there are any."""
        if self._many is not None:
            return self._many.family_of(name)
        names = (name, *self._branches.get(name, ()))
        return {each: self._few[each] for each in names if each in self._few}


class _Many:
    __slots__ = ("_branches", "_families", "_heads", "names")

    def __init__(self) -> None:
        self.names, self._heads = Texts(), Column("B")
        self._families, self._branches = Texts(), Lists()

    def keep(self, name: str, head: NodeId) -> None:
        number = self.names.find(name)
        if number is None:
            number = self.names.add(name)
            if not number % _PAGES_EACH:
                scratch().give_back()
            self._heads.add_bytes(bytes.fromhex(head))
            if (own := family(name)) != name:
                self._branches.add(self._families.number(own), number)
        else:
            self._heads.put_bytes(number * _ID_BYTES, bytes.fromhex(head))

    def family_of(self, name: str) -> dict[str, NodeId]:
        number, own = self.names.find(name), self._families.find(name)
        numbers = [] if number is None else [number]
        if own is not None:
            numbers += self._branches.get(own)
        return {self.names[each]: self._head(each) for each in numbers}

    def _head(self, number: int) -> NodeId:
        return NodeId(Oid(self._heads.bytes(number * _ID_BYTES, (number + 1) * _ID_BYTES).hex()))
