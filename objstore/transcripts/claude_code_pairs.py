"""Which calls of a session were never answered, and which results answer none: `graph.unpaired_tools` for rows.

A session may have more calls than memory holds: all that is kept for each is in columns.
"""

from __future__ import annotations

from collections.abc import Iterator

from objstore.columns import Column
from objstore.compact import Lists, Marks
from objstore.transcripts.claude_code_rows import Kind, Rows
from objstore.transcripts.claude_code_tree import Tree
from objstore.transcripts.graph import MAX_SAME_CALLS


def unpaired_calls(rows: Rows, tree: Tree) -> Iterator[tuple[str, int, str]]:
    """(kind, row, call id): results whose call is not above them, and calls that were passed over."""
    calls, span = rows.calls, _Spans(tree)
    of_call, counts = Lists(), Column("i", len(calls.ids))  # the numbers of all that asked with an id
    answered = Marks()
    for number, call in enumerate(calls.asked):
        of_call.add(call, number)
        counts[call] += 1
    for row, call in zip(calls.answering, calls.answered, strict=True):
        if counts[call] > MAX_SAME_CALLS:
            continue  # an id that says nothing; comparing each with each would take for ever
        answer = tree.message_of(row)
        above = [n for n in of_call.get(call) if span.holds(tree.message_of(calls.asking[n]), answer)]
        if above:
            answered.add(next((each for each in reversed(above) if each not in answered), above[-1]))
        else:
            yield "orphan-tool-result", answer, calls.ids[call]
    went_on = _gone_on(rows, tree, span)
    told = Marks()
    for call in calls.asked:
        if call in told or counts[call] > MAX_SAME_CALLS:
            continue
        told.add(call)
        for number in of_call.get(call):
            asked = tree.message_of(calls.asking[number])
            if number not in answered and asked in went_on:
                yield "unanswered-tool-call", asked, calls.ids[call]


def _gone_on(rows: Rows, tree: Tree, span: _Spans) -> Marks:
    """The messages that something follows which is not an answer."""
    found = Marks()
    for row in span.backwards():
        if rows.kind[row] != Kind.RESULT or row in found:
            parent = tree.parents[row]
            if parent is not None:
                found.add(parent)
    return found


class _Spans:
    """Who is above whom: the first number and the size of each message's subtree, numbered parents first."""

    def __init__(self, tree: Tree) -> None:
        self._order = Column("i")
        for row in tree.order():
            self._order.append(row)
        parents, count = tree.parents, 1 + max(tree.parents, default=-1)
        self._size, self._first = Column("i", count), Column("i", count)
        for row in self.backwards():
            self._size[row] += 1
            above = parents[row]
            if above is not None:
                self._size[above] += self._size[row]
        free, roots = Column("i", count), 0  # the next number below each
        for row in self._order:
            above = parents[row]
            if above is None:
                self._first[row], roots = roots, roots + self._size[row]
            else:
                self._first[row] = free[above]
                free[above] += self._size[row]
            free[row] = self._first[row] + 1

    def backwards(self) -> Iterator[int]:
        """The messages, each before its parent."""
        return self._order.backwards()

    def holds(self, above: int, row: int) -> bool:
        """Whether a message is `above` or somewhere below it."""
        first = self._first[above]
        return first <= self._first[row] < first + self._size[above]
