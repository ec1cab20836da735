"""Made-up conversations, the same at every run: where the corpora can't be had, and where more is needed.

Lengths are drawn as they were measured on public corpora: of a chat's messages and their bytes, and of the
calls and results of coding agents.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.bench.compare.chat import Chat, Plain, text

_SYLLABLES = ("ba", "co", "du", "fen", "gi", "ho", "jak", "lo", "mun", "pe", "qui", "ra", "sor", "ti", "vu", "zen")
_POOL_CHARS = 1 << 21
_TOOLS = ("read_file", "run", "search", "edit")


class Writer:
    """Draws texts and conversations. Two writers with one seed write the same."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        words = ["".join(self._random.choices(_SYLLABLES, k=self._random.randint(1, 4))) for _ in range(20_000)]
        weights = [1 / place for place in range(1, len(words) + 1)]  # a few words make up most of a text
        self._pool = " ".join(self._random.choices(words, weights, k=_POOL_CHARS // 6))

    def words(self, mean: float, spread: float, most: int) -> str:
        """A text whose length has a log-normal distribution; at least one character."""
        size = min(most, max(1, int(self._random.lognormvariate(mean, spread))))
        start = self._random.randrange(len(self._pool) - size)
        return self._pool[start : start + size]

    def chats(self, prefix: str) -> Iterator[Chat]:
        """Chats without end."""
        number = 0
        while True:
            count = min(126, max(1, int(self._random.lognormvariate(1.74, 0.73))))
            yield Chat(f"{prefix}-{number}", [self._said(place) for place in range(count)])
            number += 1

    def session(self, name: str, turns: int) -> Chat:
        """An agent's session: a request, then calls and their results."""
        messages: list[Plain] = [text("user", self.words(6.0, 1.0, 4000))]
        while len(messages) < 2 * turns:
            call_id, tool = f"call_{len(messages)}", self._random.choice(_TOOLS)
            arguments = {"path": self.words(3.0, 0.3, 60), "text": self.words(5.4, 0.84, 40_000)}
            called = {"type": "tool_call", "name": tool, "arguments": arguments, "tool_call_id": call_id}
            told = {
                "type": "tool_result",
                "name": tool,
                "output": self.words(7.1, 1.2, 120_000),
                "tool_call_id": call_id,
            }
            thought = {"type": "text", "text": self.words(5.0, 0.8, 2000)}
            messages.append({"role": "assistant", "parts": [thought, called]})
            messages.append({"role": "tool", "parts": [told]})
        return Chat(name, messages[: 2 * turns])

    def _said(self, place: int) -> Plain:
        if place % 2:
            return text("assistant", self.words(6.86, 1.08, 83_000))
        return text("user", self.words(4.59, 1.38, 394_000))
