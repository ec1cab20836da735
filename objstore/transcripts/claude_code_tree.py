"""How the records of Claude Code hang together, once all of them are known.

What looks like a fork often is none: the blocks of one response are records of their own, the results of
parallel calls all hang on their calls, a resumed session copies its past under new ids, and a compaction
starts from no parent at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from objstore.transcripts.claude_code_rows import Above, Kind, Rows
from objstore.transcripts.graph import Forest, children_of, contract, cut_cycles, parents_first
from objstore.transcripts.warnings import Warner

_MAX_STEPS: Final = 512  # records between two blocks of one response


@dataclass(slots=True)
class Tree:
    """`parents` of the messages, each a row; a response of several records is its first one's row."""

    parents: dict[int, int | None]
    members: dict[int, list[int]] = field(default_factory=dict)  # the rows of a response, where it has several
    inferred: set[int] = field(default_factory=set)
    replaced: dict[int, int] = field(default_factory=dict)  # a row that was folded into another message

    def message_of(self, row: int) -> int:
        """The message that a row is part of, or the row itself."""
        while row in self.replaced:  # a copy of a block of a response: two steps
            row = self.replaced[row]
        return row


def grow(rows: Rows, warn: Warner) -> Tree:
    """The messages of `rows` as a tree."""
    forest = _linked(rows, warn)
    cut_cycles(forest, lambda row: warn("parent-cycle", rows.place(row), "cut at the earliest record"))
    tree = Tree(forest.parents, inferred=forest.inferred)
    _fold_replays(rows, tree)
    _join_responses(rows, tree)
    kept = [row for row in tree.parents if rows.is_message(row) and row not in tree.replaced]
    for row, message in tree.replaced.items():
        tree.parents[row] = message
    tree.parents = contract(tree.parents, kept)
    _line_up_results(rows, tree)
    return tree


def _linked(rows: Rows, warn: Warner) -> Forest[int]:
    forest: Forest[int] = Forest({})
    lanes = list(zip(rows.file, rows.session, rows.lane, strict=True))
    linked = {lane for lane, above in zip(lanes, rows.above, strict=True) if isinstance(above, str)}
    last: dict[tuple[int, int, int], int] = {}
    for row, above in enumerate(rows.above):
        lane = lanes[row]
        before = last.get(lane)
        parent = rows.by_key.get(above) if isinstance(above, str) else None
        boundary = rows.kind[row] == Kind.BOUNDARY
        if parent is None:
            if isinstance(above, str) and not boundary:
                warn("dangling-parent", rows.place(row), f"its parent {above[:80]!r} is not there")
            # Where no record names its parent, all of them saying "none" means no more than saying nothing.
            if above is not Above.ROOT or lane not in linked or _continues(rows, row):
                parent = before
                # Records without ids follow each other: there the order is what the source says.
                if parent is not None and (rows.named[row] or above is not Above.NOTHING):
                    forest.inferred.add(row)
        elif boundary:
            forest.inferred.add(row)  # a message that was kept may now stand behind its own boundary
        forest.parents[row] = parent
        last[lane] = row
    return forest


def _continues(rows: Rows, row: int) -> bool:
    """Whether a record without a parent can't be a beginning: an answer, a result, what a compaction left."""
    return rows.kind[row] in (Kind.ASSISTANT, Kind.RESULT, Kind.BOUNDARY) or row in rows.summary


def _fold_replays(rows: Rows, tree: Tree) -> None:
    """One of several children that say the same at the same time: copies under new ids."""
    signs = [(rows.time[row], rows.digest[row], rows.kind[row]) for row in tree.parents if rows.time[row]]
    if len(set(signs)) == len(signs):
        return
    seen: dict[tuple[int | None, int, int, int], int] = {}
    for row in parents_first(tree.parents):
        parent = tree.parents[row]
        if parent is not None:
            parent = tree.parents[row] = tree.replaced.get(parent, parent)
        if not rows.time[row] or not rows.is_message(row):
            continue
        first = seen.setdefault((parent, rows.time[row], rows.digest[row], rows.kind[row]), row)
        if first != row:
            tree.replaced[row] = first
            rows.copies.setdefault(first, set()).update({rows.session[row]}, rows.copies.get(row, ()))


def _join_responses(rows: Rows, tree: Tree) -> None:
    """Records of one response become one message, at the place of the first."""
    started: dict[int, int] = {}
    for row in parents_first(tree.parents):
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


def _line_up_results(rows: Rows, tree: Tree) -> None:
    """The results of parallel calls follow one another; what came after them follows the last."""
    answers: dict[int, set[str]] = {}
    for row, call_id in rows.used.results:
        answers.setdefault(row, set()).add(call_id)
    below = children_of(tree.parents)
    for parent, children in list(below.items()):
        results = [row for row in children if rows.kind[row] == Kind.RESULT]
        if parent is None or len(results) < 2:
            continue
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
