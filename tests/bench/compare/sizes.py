"""How much is measured: a few minutes' worth, all of it, or just enough to see that it is right."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counts. `corpus_messages`: of each large corpus at most so many; None for all."""

    name: str
    rounds: int
    chats: int
    turns: int
    session_turns: int
    corpus_messages: int | None
    corpus_turns: int
    loads: int
    resends: tuple[int, ...]
    growth: tuple[int, ...]
    starts: int


FULL = Sizes(
    name="full",
    rounds=5,
    chats=200,
    turns=40,
    session_turns=1000,
    corpus_messages=None,
    corpus_turns=400,
    loads=40,
    resends=(10, 100, 1000),
    growth=(10_000, 100_000, 1_000_000),
    starts=31,
)
QUICK = Sizes(
    name="quick",
    rounds=3,
    chats=12,
    turns=40,
    session_turns=200,
    corpus_messages=8_000,
    corpus_turns=90,
    loads=20,
    resends=(10, 100, 1000),
    growth=(2_000, 20_000),
    starts=11,
)
TINY = Sizes(
    name="tiny",
    rounds=1,
    chats=2,
    turns=3,
    session_turns=4,
    corpus_messages=60,
    corpus_turns=4,
    loads=2,
    resends=(10,),
    growth=(40, 120),
    starts=1,
)
