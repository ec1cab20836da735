"""A conversation as every contestant is given it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Plain = dict[str, Any]
"""A message as JSON: `role`, and `parts` with their `type`. Every peer can make its own of it."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation. The name is fit for a ref, a file and a branch."""

    name: str
    messages: list[Plain]


def text(role: str, words: str) -> Plain:
    return {"role": role, "parts": [{"type": "text", "text": words}]}
