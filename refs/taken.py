"""Which names can stand beside each other: not two that differ only by case, none that is another's folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from refs.names import fold_key


class NameSet:
    """Names, and the folders that they need, by their case-blind keys. Each question costs O(depth)."""

    __slots__ = ("_folders", "_names")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: dict[str, str] = {}
        self._folders: dict[str, tuple[str, int]] = {}  # its spelling, and how many names are below it
        for name in names:
            self.add(name)

    def __contains__(self, name: str) -> bool:
        return self._names.get(fold_key(name)) == name

    def add(self, name: str) -> bool:
        """Take a name; False if it (or its twin in another case) is there already."""
        key = fold_key(name)
        if key in self._names:
            return False
        self._names[name if key == name else key] = name  # one text for both, mostly
        for folder in _folders(name):
            folder_key = fold_key(folder)
            spelling, count = self._folders.get(folder_key, (folder, 0))
            self._folders[folder_key] = spelling, count + 1
        return True

    def discard(self, name: str) -> bool:
        """Free a name; False if it wasn't there."""
        key = fold_key(name)
        if self._names.get(key) != name:
            return False
        del self._names[key]
        for folder in _folders(name):
            folder_key = fold_key(folder)
            spelling, count = self._folders[folder_key]
            if count == 1:
                del self._folders[folder_key]
            else:
                self._folders[folder_key] = spelling, count - 1
        return True

    def conflict(self, name: str) -> str | None:
        """Why `name` can't be beside the others, or None. The name itself is no conflict."""
        key = fold_key(name)
        twin = self._names.get(key, name)
        if twin != name:
            return f"it differs only by case from {twin!r}"
        if key in self._folders:
            return f"{self._folders[key][0]!r} is a folder of other names"
        for folder in _folders(name):
            folder_key = fold_key(folder)
            above = self._names.get(folder_key)
            if above is not None:
                return f"{above!r} is a name, and can't be a folder too"
            spelling = self._folders.get(folder_key, (folder, 0))[0]
            if spelling != folder:
                return f"its folder differs only by case from {spelling!r}"
        return None


class Taken(NamedTuple):
    """The names of a store's loose and packed refs."""

    loose: NameSet
    packed: NameSet

    def holds(self, name: str) -> bool:
        """Whether there is a ref of this very name."""
        return name in self.loose or name in self.packed

    def conflict(self, name: str) -> str | None:
        """Why a new ref of this name can't stand beside those that there are, or None."""
        return self.loose.conflict(name) or self.packed.conflict(name)


def _folders(name: str) -> Iterator[str]:
    """The folders above a ref's name, the nearest first; `refs` is everybody's."""
    folder = name.rpartition("/")[0]
    while "/" in folder:
        yield folder
        folder = folder.rpartition("/")[0]
