"""How the records of Claude Code hang together, once all of them are known.

What looks like a fork often is none: the blocks of one response are records of their own, the results of
parallel calls all hang on their calls, a resumed session copies its past under new ids, and a compaction
starts from no parent at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from objstore.columns import Column
from objstore.compact import Links, Lists, Marks, Numbers
from objstore.transcripts.claude_code_rows import Above, Kind, Rows
from objstore.transcripts.graph import Forest, cut_cycles_of, place_parents_first
from objstore.transcripts.warnings import Warner

_MAX_STEPS: Final = 512  # records between two blocks of one response


@dataclass(slots=True)
class Tree:
    """`parents` of the messages, each a row; a response of several records is its first one's row."""

    parents: Links
    inferred: Marks = field(default_factory=Marks)
    replaced: Links = field(default_factory=Links)  # a row that was folded into another message
    more: Lists = field(default_factory=Lists)  # the other rows of a response, where it has several

    def message_of(self, row: int) -> int:
        """The message that a row is part of, or the row itself."""
        while (other := self.replaced.get(row)) is not None:  # a copy of a block of a response: two steps
            row = other
        return row

    def members(self, row: int) -> list[int]:
        """The rows of a message."""
        return sorted([row, *self.more.get(row)])

    def order(self, wanted: Marks | None = None) -> Iterable[int]:
        """The messages (or those wanted, which are with all above them), each after its parent."""
        return _parents_first(self.parents, wanted)


def grow(rows: Rows, warn: Warner) -> Tree:
    """The messages of `rows` as a tree."""
    parents, inferred = _linked(rows, warn)
    if not _in_order(parents):
        forest = Forest(parents, inferred=inferred)
        keys = range(len(rows.keys))
        told = "cut at the earliest record"
        cut_cycles_of(forest, keys, int, Marks(), lambda row: warn("parent-cycle", rows.place(row), told))
    tree = Tree(parents, inferred)
    _fold_replays(rows, tree)
    _join_responses(rows, tree)
    for row, message in tree.replaced.items():
        tree.parents[row] = message
    tree.parents = _messages_alone(rows, tree)
    _line_up_results(rows, tree)
    return tree


def _linked(rows: Rows, warn: Warner) -> tuple[Links, Marks]:
    parents, inferred = Links(), Marks()
    linked = {_lane(rows, row) for row in rows.each() if rows.names_parent(row)}
    last: dict[tuple[int, int, int], int] = {}
    for row in rows.each():
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
                    inferred.add(row)
        elif boundary:
            inferred.add(row)  # a message that was kept may now stand behind its own boundary
        parents[row] = parent
        last[lane] = row
    return parents, inferred


def _lane(rows: Rows, row: int) -> tuple[int, int, int]:
    return rows.file[row], rows.session[row], rows.lane[row]


def _in_order(parents: Links) -> bool:
    """Whether every message comes after its parent in the file, as nearly always: then much is known already."""
    return all(parent is None or parent < row for row, parent in parents.items())


def _parents_first(parents: Links, wanted: Marks | None = None) -> Iterable[int]:
    """The rows in their order, but each after its parent."""
    rows = parents if wanted is None else wanted
    if _in_order(parents):
        return rows
    order = Column("i")
    place_parents_first(rows, parents.__getitem__, Marks(), order.append)
    return order


def _continues(rows: Rows, row: int) -> bool:
    """Whether a record without a parent can't be a beginning: an answer, a result, what a compaction left."""
    return rows.kind[row] in (Kind.ASSISTANT, Kind.RESULT, Kind.BOUNDARY) or row in rows.summary


def _fold_replays(rows: Rows, tree: Tree) -> None:
    """One of several children that say the same at the same time: copies under new ids."""
    if not _says_anything_twice(rows):
        return
    parents, seen, hashes = tree.parents, Numbers(), Column("q", len(rows.keys))
    for row in _parents_first(parents):
        parent = parents[row]
        if parent is not None:
            parent = parents[row] = tree.replaced.get(parent, parent)
        if not rows.time[row] or not rows.is_message(row):
            continue
        sign = _sign(rows, row)
        hashed = hashes[row] = hash((parent, *sign))
        for first in seen.candidates(hashed):
            if hashes[first] == hashed and parents[first] == parent and _sign(rows, first) == sign:
                tree.replaced[row] = first
                for session in (rows.session[row], *rows.copies.get(row)):
                    rows.copies.add(first, session)
                break
        else:
            seen.add(hashed, row, hashes.__getitem__)


def _says_anything_twice(rows: Rows) -> bool:
    """Whether two messages say the same at the same time, as far as hashes tell."""
    signs, numbers = Column("q"), Numbers()
    for row in rows.each():
        sign = hash(_sign(rows, row))
        signs.append(sign)
        if rows.time[row] and rows.is_message(row):
            if any(signs[each] == sign for each in numbers.candidates(sign)):
                return True
            numbers.add(sign, row, signs.__getitem__)
    return False


def _sign(rows: Rows, row: int) -> tuple[int, int, int]:
    """What a record says, and when."""
    return rows.time[row], rows.digest[row], rows.kind[row]


def _join_responses(rows: Rows, tree: Tree) -> None:
    """Records of one response become one message, at the place of the first."""
    started = Links()
    for row in _parents_first(tree.parents):
        response = rows.response[row]
        if response < 0 or row in tree.replaced:
            continue
        first = started.get(response)
        if first is not None and _stands_in(rows, tree, row, first):
            tree.replaced[row] = first
            tree.more.add(first, row)
        else:
            started[response] = row


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


def _messages_alone(rows: Rows, tree: Tree) -> Links:
    """The parents among the messages: each one's nearest message."""
    nearest, found = Links(), Links()
    for row in _parents_first(tree.parents):
        parent = tree.parents[row]
        above = None if parent is None else nearest[parent]
        if rows.is_message(row) and row not in tree.replaced:
            found[row], nearest[row] = above, row
        else:
            nearest[row] = above
    return found


def _line_up_results(rows: Rows, tree: Tree) -> None:
    """The results of parallel calls follow one another; what came after them follows the last."""
    several = _asked_in_parallel(rows, tree)
    if not several:
        return
    parallel, below = Marks(), Lists()
    for row, parent in tree.parents.items():
        if parent in several and rows.kind[row] == Kind.RESULT:
            parallel.add(row)
    asked = Column("i")
    for row, parent in tree.parents.items():
        if parent is not None and (parent in several or parent in parallel):
            if parent in several and parent not in below:
                asked.append(parent)
            below.add(parent, row)
    answers, calls = Lists(), rows.calls
    for row, call in zip(calls.answering, calls.answered, strict=True):
        if row in parallel:
            answers.add(row, call)
    for parent in asked:
        _line_up(tree, below, [row for row in below.get(parent) if row in parallel], answers)


def _line_up(tree: Tree, below: Lists, results: list[int], answers: Lists) -> None:
    answered: set[int] = set()
    lined: list[int] = []
    for row in results:
        given = answers.get(row)
        if answered.isdisjoint(given):
            answered.update(given)
            if lined:
                tree.parents[row] = lined[-1]
            lined.append(row)
    for row in lined[:-1]:
        for child in below.get(row):
            if child > lined[-1]:
                tree.parents[child] = lined[-1]


def _asked_in_parallel(rows: Rows, tree: Tree) -> Marks:
    """The messages that several results answer."""
    once, several = Marks(), Marks()
    for row, parent in tree.parents.items():
        if rows.kind[row] == Kind.RESULT and parent is not None:
            (several if parent in once else once).add(parent)
    return several
