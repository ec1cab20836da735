"""Why an aim is missed where it is, and what was tried."""

from __future__ import annotations

from typing import Final

_IMPORT: Final = """\
an import also finds out what is here already, notes where each message comes from, names and describes each
conversation, checks what each node builds on and keeps the index: each a microsecond or two of Python a
message, where the floor is C. Tried, and kept: rows by whole batches, notes by runs of nodes, bytes made once,
no look-up of what can't be there, the collector of cycles at rest between two commits. Larger batches: a
twenty-fifth faster, and half as much memory again."""
_BYTES: Final = """\
what is not packs is the index, which needs two keys of 16 bytes a message (shorter ones could be made to
collide) and knows what follows what, and the refs and the reflog, whose ids don't compress. git keeps neither the
children of a node nor a time for each message. Tried, and kept: edges as row numbers, parents in an index only
where they aren't the row before, notes as runs and in the chain's order, refs and older moves in gzip members."""
_SQUARE: Final = """\
LangGraph's bytes grow with the square of the turns, so the ratio is set by what these messages take at all: the
limit in the table below is zstd's best for them alone."""
_TURN: Final = """\
a turn here also hashes what is said, checks what it builds on, moves a ref, logs the move and notes the time,
where the other inserts rows. Tried, and kept: one record in a journal and no file, room written ahead in it, one
statement for what a turn brings, rows of the index by the hundred, small objects not compressed. What is left is
one fdatasync and Python, which runs a third slower just after the processor slept through a sync."""
_PACKS: Final = """\
the corpus repeats itself over longer distances than a frame, which is what a cold load unpacks. Tried, and kept:
each kind of line by itself, conversations that share a message side by side. Tried: larger frames, which are a
little smaller and slower to load; conversations sorted by what they say, which tears apart what came together."""
_MARK: Final = """\
all edges are read into arrays first, and which rows the refs and the reflog name is asked of the index id by id.
Tried, and kept: tables read as whole columns, refs and the reflog by blocks of lines, notes by runs."""
_REBUILD: Final = """\
every line is hashed and read again in Python. Tried, and kept: rows and keys by large batches, many with one
statement, a short way for the usual lines, the collector of cycles held back."""

_WHY: Final = (
    ("import:", _IMPORT),
    ("LangGraph against ours", _SQUARE),
    ("bytes,", _BYTES),
    ("a durable turn: openai", _TURN),
    ("a turn with the whole history", _TURN),
    ("packs against", _PACKS),
    ("gc's mark", _MARK),
    ("rebuild of the index", _REBUILD),
)


def why(aim: str) -> str | None:
    """The reason for an aim by its text, or None where there is none to give."""
    return next((reason.replace("\n", " ") for part, reason in _WHY if part in aim), None)
