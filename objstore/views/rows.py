"""What every view reads: nodes as rows, with their message and what notes say about them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final, Self

from objstore.jsonvalue import Json
from objstore.message import Message
from objstore.node import Node
from refs.ids import ROOT

RUNTIME: Final = "runtime"
"""The `display` of a run that a program started beside the conversation: never a turn of it."""

HIDDEN: Final = "hidden"
"""The `display` of a message that the source itself didn't show."""

AGENT_SPAWN: Final = "agent_spawn"
"""The `source` of a prompt that starts an agent with a context of its own."""


class Expose(StrEnum):
    """What of a function's run the context of its caller shows."""

    IO = "io"  # the function and the functions it called, not its LLM calls
    LLM = "llm"  # its LLM calls, neither the function nor those it called
    FULL = "full"
    HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class Row:
    """A node as the views see it. `parent` is the conversation's order, `called_by` who asked for it.

    `order` is when it came: any integers that rise with time (row numbers, milliseconds); equal ones keep
    the order in which they are given. `message` is None where it is erased or wasn't loaded. `covers` are
    the rows that this one sums up.
    """

    id: str
    role: str
    parent: str = ROOT
    called_by: str | None = None
    tool_call_id: str | None = None
    order: int = 0
    message: Message | None = None
    expose: Expose = Expose.IO
    display: str | None = None
    source: str | None = None
    covers: tuple[str, ...] = ()

    @classmethod
    def of(cls, oid: str, node: Node, message: Message | None, about: Mapping[str, Json], order: int) -> Self:
        """The row of a stored node; `about` is what the notes say about it.

        Of `about` it reads `expose`, `display`, `source`, `hidden` and `covers`; what isn't of their form is
        passed over, for notes come from anywhere.
        """
        expose, covers = about.get("expose"), about.get("covers")
        display, source = about.get("display"), about.get("source")
        return cls(
            id=oid,
            role="" if message is None else message.role,
            parent=node.parent,
            called_by=node.called_by,
            tool_call_id=node.tool_call_id,
            order=order,
            message=message,
            expose=Expose(expose) if isinstance(expose, str) and expose in _EXPOSES else Expose.IO,
            display=HIDDEN if about.get("hidden") is True else display if isinstance(display, str) else None,
            source=source if isinstance(source, str) else None,
            covers=tuple(each for each in covers if isinstance(each, str)) if isinstance(covers, list) else (),
        )

    @property
    def is_function(self) -> bool:
        """Whether this is a function's run: a tool row that a call put there, not a result in a chain."""
        return self.role == "tool" and self.called_by is not None

    @property
    def is_turn(self) -> bool:
        """Whether others at its place are alternatives to it: not so for runs and summaries at the root."""
        if self.display == RUNTIME or self.covers:
            return False
        return self.parent != ROOT or (self.called_by is None and self.role != "tool")


_EXPOSES: Final = frozenset(each.value for each in Expose)


@dataclass(frozen=True, slots=True)
class Place:
    """The turns after one row: ids in order, the deepest leaf below each, and each one's number from 1."""

    ids: tuple[str, ...]
    leaves: tuple[str, ...]
    numbers: Mapping[str, int]


class Rows:
    """Rows by id, sorted by `order`; a repeated id keeps its first row. Edges are indexed once.

    Every view takes rows in any iterable; give it this where several views read the same rows.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self._by_id: dict[str, Row] = {}
        for row in sorted(rows, key=lambda row: row.order):
            self._by_id.setdefault(row.id, row)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Rows:
        return rows if isinstance(rows, Rows) else cls(rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, oid: object) -> bool:
        return oid in self._by_id

    def get(self, oid: str | None) -> Row | None:
        return None if oid is None else self._by_id.get(oid)

    def up(self, oid: str | None) -> Iterator[Row]:
        """The row and its ancestors, nearest first, until the root, a missing row, or one seen before."""
        seen: set[str] = set()
        row = self.get(oid)
        while row is not None and row.id not in seen:
            seen.add(row.id)
            yield row
            row = self.get(row.parent)

    @cached_property
    def by_parent(self) -> Mapping[str, list[Row]]:
        """The rows after each, in order; also under `ROOT` and under parents that are missing."""
        found: defaultdict[str, list[Row]] = defaultdict(list)
        for row in self:
            found[row.parent].append(row)
        return dict(found)

    @cached_property
    def by_caller(self) -> Mapping[str, list[Row]]:
        """The rows that each one asked for, in order."""
        found: defaultdict[str, list[Row]] = defaultdict(list)
        for row in self:
            if row.called_by is not None:
                found[row.called_by].append(row)
        return dict(found)

    @cached_property
    def downward(self) -> list[Row]:
        """Every row once, each after its parent; a cycle is entered at its first row."""
        reached: dict[str, Row] = {}
        tops = (row for row in self if row.parent not in self)
        for starts in (tops, self):  # what no top leads to hangs in a cycle
            for start in starts:
                stack = [start]
                while stack:
                    row = stack.pop()
                    if row.id not in reached:
                        reached[row.id] = row
                        stack.extend(self.by_parent.get(row.id, ()))
        return list(reached.values())

    @cached_property
    def deepest_leaf(self) -> Mapping[str, str]:
        """For each row the leaf with the longest chain below it; of equally long ones the newest."""
        depth: dict[str, int] = {}
        for row in self.downward:
            depth[row.id] = depth.get(row.parent, 0) + 1
        age = {row.id: i for i, row in enumerate(self)}
        best = {oid: oid for oid in depth}
        for row in reversed(self.downward):
            if depth.get(row.parent) == depth[row.id] - 1:  # not so where a cycle was entered
                mine, theirs = best[row.id], best[row.parent]
                if (depth[mine], age[mine]) > (depth[theirs], age[theirs]):
                    best[row.parent] = mine
        return best

    @cached_property
    def turns(self) -> Mapping[str, Place]:
        """The place after each row (and after `ROOT`)."""
        found = {}
        for parent, children in self.by_parent.items():
            ids = tuple(row.id for row in children if row.is_turn)
            numbers = {oid: number for number, oid in enumerate(ids, 1)}
            found[parent] = Place(ids, tuple(self.deepest_leaf[oid] for oid in ids), numbers)
        return found
