"""All formats that can be written."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Final, Protocol, cast

from objstore.transcripts.export.model import ExportEntry, SideEntry, SidesWritten, Written

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


class WriteSides(Protocol):
    """What a format's module offers as `write_sides` where its files hold side chains too."""

    def __call__(
        self, chain: Sequence[ExportEntry], sides: Sequence[SideEntry], title: str | None = None
    ) -> SidesWritten:
        """The file's text, what it does not say, and the nodes of `sides` that it holds."""
        ...


def writer(format: str) -> Write:
    """The writer of a format by its name; `KeyError` for one that isn't known."""
    return cast(Write, _module(format).write)


def sides_writer(format: str) -> WriteSides | None:
    """The writer of a format that holds side chains; None where it doesn't."""
    return cast(WriteSides | None, getattr(_module(format), "write_sides", None))


def _module(format: str) -> ModuleType:
    if format not in SUFFIXES:
        raise KeyError(format)
    return importlib.import_module(f"objstore.transcripts.export.{format.replace('-', '_')}")
