"""The kinds of stored objects. The kind is part of an object's path, not of its hashed bytes."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    MESSAGE = "message"
    NODE = "node"
    CALL = "call"
    NOTE = "note"
    DESCRIPTION = "description"
    PAYLOAD = "payload"

    @property
    def folder(self) -> str:
        """The folder under `objects/`."""
        return f"{self.value}s"


KINDS: Final = tuple(Kind)
"""All of them: to walk along the class itself takes ten times as long."""
