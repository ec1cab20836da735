"""All formats that can be written."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Final, Protocol, cast

from objstore.transcripts.export.model import ExportEntry, Written

SUFFIXES: Final = {
    "openai": ".json",
    "responses": ".json",
    "anthropic": ".json",
    "gemini": ".json",
    "claude-code": ".jsonl",
    "sharegpt": ".json",
    "chatgpt": ".json",
    "jsonl": ".jsonl",
    "markdown": ".md",
    "html": ".html",
}
"""The formats' names, and how their files end."""


class Write(Protocol):
    """What each format's module offers as `write`: pure, whatever the chain holds."""

    def __call__(self, chain: Sequence[ExportEntry], title: str | None = None) -> Written:
        """The file's text, and what it does not say."""
        ...


def writer(format: str) -> Write:
    """The writer of a format by its name; `KeyError` for one that isn't known."""
    if format not in SUFFIXES:
        raise KeyError(format)
    module = importlib.import_module(f"objstore.transcripts.export.{format.replace('-', '_')}")
    return cast(Write, module.write)
