"""How the records of Claude Code hang together, once all of them are known.

What looks like a fork often is none: the blocks of one response are records of their own, the results of
parallel calls all hang on their calls, a resumed session copies its past under new ids, and a compaction
starts from no parent at all.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Final

from objstore.compact import Links, Numbers
from objstore.transcripts.claude_code_rows import Above, Kind, Rows
from objstore.transcripts.graph import Forest, children_of, contract, cut_cycles, parents_first
from objstore.transcripts.warnings import Warner

_MAX_STEPS: Final = 512  # records between two blocks of one response


@dataclass(slots=True)
class Tree:
    """`parents` of the messages, each a row; a response of several records is its first one's row."""

    parents: MutableMapping[int, int | None]
    members: dict[int, list[int]] = field(default_factory=dict)  # the rows of a response, where it has several
    inferred: set[int] = field(default_factory=set)
    replaced: Links = field(default_factory=Links)  # a row that was folded into another message

    def message_of(self, row: int) -> int:
        """The message that a row is part of, or the row itself."""
        while (other := self.replaced.get(row)) is not None:  # a copy of a block of a response: two steps
            row = other
        return row


def grow(rows: Rows, warn: Warner) -> Tree:
    """The messages of `rows` as a tree."""
    forest = _linked(rows, warn)
    if not _in_order(forest.parents):
        cut_cycles(forest, lambda row: warn("parent-cycle", rows.place(row), "cut at the earliest record"))
    tree = Tree(forest.parents, inferred=forest.inferred)
    _fold_replays(rows, tree)
    _join_responses(rows, tree)
    for row, message in tree.replaced.items():
        tree.parents[row] = message
    tree.parents = _messages_alone(rows, tree)
    _line_up_results(rows, tree)
    return tree


def _linked(rows: Rows, warn: Warner) -> Forest[int]:
    forest: Forest[int] = Forest(Links())
    linked = {_lane(rows, row) for row in range(len(rows.keys)) if rows.names_parent(row)}
    last: dict[tuple[int, int, int], int] = {}
    for row in range(len(rows.keys)):
        lane, above = _lane(rows, row), rows.above[row]
        before = last.get(lane)
        missing, parent = rows.named_parent(row)
        boundary = rows.kind[row] == Kind.BOUNDARY
        if parent is None:
            if missing is not None and not boundary:
                warn("dangling-parent", rows.place(row), f"its parent {missing[:80]!r} is not there")
            # Where no record names its parent, all of them saying "none" means no more than saying nothing.
            if above != Above.ROOT or lane not in linked or _continues(rows, row):
                parent = before
                # Records without ids follow each other: there the order is what the source says.
                if parent is not None and (rows.named[row] or above != Above.NOTHING):
                    forest.inferred.add(row)
        elif boundary:
            forest.inferred.add(row)  # a message that was kept may now stand behind its own boundary
        forest.parents[row] = parent
        last[lane] = row
    return forest


def _lane(rows: Rows, row: int) -> tuple[int, int, int]:
    return rows.file[row], rows.session[row], rows.lane[row]


def _in_order(parents: Mapping[int, int | None]) -> bool:
    """Whether every message comes after its parent in the file, as nearly always: then much is known already."""
    return all(parent is None or parent < row for row, parent in parents.items())


def _parents_first(parents: Mapping[int, int | None]) -> Iterable[int]:
    """The rows, each after its parent."""
    return parents if _in_order(parents) else parents_first(parents)


def _continues(rows: Rows, row: int) -> bool:
    """Whether a record without a parent can't be a beginning: an answer, a result, what a compaction left."""
    return rows.kind[row] in (Kind.ASSISTANT, Kind.RESULT, Kind.BOUNDARY) or row in rows.summary


def _fold_replays(rows: Rows, tree: Tree) -> None:
    """One of several children that say the same at the same time: copies under new ids."""
    if not _says_anything_twice(rows):
        return
    seen: dict[tuple[int | None, int, int, int], int] = {}
    for row in _parents_first(tree.parents):
        parent = tree.parents[row]
        if parent is not None:
            parent = tree.parents[row] = tree.replaced.get(parent, parent)
        if not rows.time[row] or not rows.is_message(row):
            continue
        first = seen.setdefault((parent, *_sign(rows, row)), row)
        if first != row:
            tree.replaced[row] = first
            rows.copies.setdefault(first, set()).update({rows.session[row]}, rows.copies.get(row, ()))


def _says_anything_twice(rows: Rows) -> bool:
    """Whether two messages say the same at the same time, as far as hashes tell."""
    signs, numbers = array("q"), Numbers()
    for row in range(len(rows.keys)):
        sign = hash(_sign(rows, row))
        signs.append(sign)
        if rows.time[row] and rows.is_message(row):
            if numbers.find(sign, lambda each, sign=sign: signs[each] == sign) is not None:  # type: ignore[misc]
                return True
            numbers.add(sign, row, signs.__getitem__)
    return False


def _sign(rows: Rows, row: int) -> tuple[int, int, int]:
    """What a record says, and when."""
    return rows.time[row], rows.digest[row], rows.kind[row]


def _join_responses(rows: Rows, tree: Tree) -> None:
    """Records of one response become one message, at the place of the first."""
    started: dict[int, int] = {}
    for row in _parents_first(tree.parents):
        response = rows.response[row]
        if response < 0 or row in tree.replaced:
            continue
        first = started.get(response)
        if first is not None and _stands_in(rows, tree, row, first):
            tree.replaced[row] = first
            tree.members.setdefault(first, [first]).append(row)
        else:
            started[response] = row
    for members in tree.members.values():
        members.sort()


def _stands_in(rows: Rows, tree: Tree, row: int, first: int) -> bool:
    """Whether between a block and its response's first one there is nothing but blocks, results and events."""
    above = tree.parents[row]
    for _ in range(_MAX_STEPS):
        if above is None:
            return False
        if tree.message_of(above) == first:
            return True
        if rows.kind[above] not in (Kind.EVENT, Kind.RESULT):
            return False
        above = tree.parents[above]
    return False


def _messages_alone(rows: Rows, tree: Tree) -> MutableMapping[int, int | None]:
    """The parents among the messages: each one's nearest message."""
    kept = bytearray(rows.is_message(row) and row not in tree.replaced for row in range(len(rows.keys)))
    if not _in_order(tree.parents):
        return contract(tree.parents, [row for row in tree.parents if kept[row]])
    nearest = array("i")
    found = Links()
    for row, parent in tree.parents.items():
        above = -1 if parent is None else nearest[parent]
        nearest.append(row if kept[row] else above)
        if kept[row]:
            found[row] = None if above < 0 else above
    return found


def _asked_in_parallel(rows: Rows, tree: Tree) -> set[int | None]:
    """The messages that several results answer."""
    once: set[int | None] = {None}
    several: set[int | None] = set()
    for row, parent in tree.parents.items():
        if rows.kind[row] == Kind.RESULT and parent is not None:
            (several if parent in once else once).add(parent)
    return several


def _line_up_results(rows: Rows, tree: Tree) -> None:
    """The results of parallel calls follow one another; what came after them follows the last."""
    several = _asked_in_parallel(rows, tree)
    if not several:
        return
    parallel = {row for row, parent in tree.parents.items() if parent in several and rows.kind[row] == Kind.RESULT}
    answers: dict[int, set[str]] = {}
    for row, call_id in rows.used.results:
        if row in parallel:
            answers.setdefault(row, set()).add(call_id)
    around = several | parallel
    below = children_of({row: parent for row, parent in tree.parents.items() if parent in around})
    for parent, children in below.items():
        if parent not in several:
            continue
        results = [row for row in children if row in parallel]
        answered: set[str] = set()
        lined: list[int] = []
        for row in sorted(results):
            if answered.isdisjoint(answers.get(row, ())):
                answered |= answers.get(row, set())
                if lined:
                    tree.parents[row] = lined[-1]
                lined.append(row)
        for row in lined[:-1]:
            for child in below.get(row, ()):
                if child > lined[-1]:
                    tree.parents[child] = lined[-1]
