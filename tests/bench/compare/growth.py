"""Our own costs as the store grows, and what upkeep costs at each size."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from objstore.gc import GcOptions
from tests.bench.compare.chat import Chat
from tests.bench.compare.generated import Writer
from tests.bench.compare.peers import Ours
from tests.bench.compare.prefix import prefix
from tests.bench.compare.results import Growth, Prefix
from tests.bench.compare.timing import Timed, in_turns, measure
from tests.bench.compare.work import child, turns

_BATCH_CHATS = 2000
_TURNS = 40
_LOOKUPS = 200
_HISTORY_MESSAGES = 1000


class Grower:
    """A store that is filled with made-up chats, and measured now and then."""

    def __init__(self, folder: Path, rounds: int) -> None:
        self._ours = Ours(folder)
        self._folder, self._rounds = folder, rounds
        self._chats = Writer(seed=3).chats("grown")
        self._others = Writer(seed=4).chats("later")
        self._held: list[Chat] = []
        self._nodes = 0

    def grow(self, sizes: Sequence[int]) -> Iterator[Growth]:
        """Measure at each number of nodes."""
        for size in sizes:
            self._fill(size)
            yield self._measured()

    def close(self) -> None:
        self._ours.close()

    def prefixes(self) -> Iterator[Prefix]:
        """Searches in the store as it is now: a quarter is missing, and, as usual, only the last message."""
        history = [each for chat in self._held for each in chat.messages][:_HISTORY_MESSAGES]
        for stored in (len(history) * 3 // 4, len(history) - 1):
            yield prefix(self._ours, history, stored, self._nodes, max(5, self._rounds * 3))

    def _fill(self, nodes: int) -> None:
        while self._nodes < nodes:
            room = nodes - self._nodes
            batch = []
            for chat in islice(self._chats, min(_BATCH_CHATS, max(1, room // 6))):
                batch.append((chat.name, self._ours.native(chat.messages)))
                self._nodes += len(chat.messages)
                if len(self._held) < _LOOKUPS:
                    self._held.append(chat)
            self._ours.store_all(batch)

    def _measured(self) -> Growth:
        ours = self._ours
        repack = measure(lambda: _settled(ours)).wall
        mark = measure(lambda: _marked(ours)).wall
        later = [next(self._others) for _ in range(_TURNS)]
        appended = turns({"msgdag": ours}, later, self._rounds)["msgdag"]
        assert isinstance(appended, Timed)
        self._nodes += sum(len(chat.messages) for chat in later)

        def looked_up(_: int) -> Callable[[], int]:
            histories = [ours.native(chat.messages) for chat in self._held]

            def act() -> int:
                for each in histories:
                    ours.store.find_longest_existing_prefix(each)
                return len(histories)

            return act

        def load_all() -> int:
            for chat in self._held:
                ours.load(chat.name)
            return len(self._held)

        ours_only = in_turns({"lookup": looked_up, "load": lambda _: load_all}, self._rounds)
        lookup, load = ours_only["lookup"], ours_only["load"]
        assert isinstance(lookup, Timed) and isinstance(load, Timed)
        ours.close()
        told = child("reindex", str(self._folder / "store"))
        self._ours = Ours(self._folder)
        return Growth(self._nodes, appended, lookup, load, mark, repack, told["wall"], told["cpu"], told["memory"])


def _settled(ours: Ours) -> int:
    ours.settle()
    return 1


def _marked(ours: Ours) -> int:
    ours.store.gc(GcOptions(prune_before=None, now=time.time(), dry_run=True))
    return 1
