"""All formats that can be read, and which of them a source is in."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from objstore.transcripts.archive import ZipSource, looks_like_zip
from objstore.transcripts.files import View
from objstore.transcripts.model import Certainty, ReaderOutput, Skipped
from objstore.transcripts.peek import start_of
from objstore.transcripts.source import Source, SourceFile
from refs.errors import DagError

_FORMATS: Final = (
    "msgdag",
    "claude-code",
    "codex",
    "gemini-cli",
    "swe-agent",
    "chatgpt",
    "claude-ai",
    "open-webui",
    "opencode",
    "ai-studio",
    "llm-logs",
    "langgraph",
    "langchain",
    "inspect-ai",
    "otel",
    "openprogram",
    "anthropic",
    "openai-responses",
    "gemini-contents",
    "sharegpt",
    "oasst",
    "openai-chat",
    "aider",
)
"""Each format's reader is the module of its name. Of two that are equally sure of a file the first reads it."""


class Reader(Protocol):
    """What each format's module offers. A module may have `split` besides, see `units`."""

    FORMAT: str

    def sniff(self, file_start: bytes, name: str) -> Certainty:
        """Whether a file is of this format: from its start as `peek.start_of` gives it, never by name alone."""
        ...

    def read(self, source: Source) -> Iterator[ReaderOutput]:
        """The conversations in `source.files()`. Bad content is told, never raised."""
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """Files of one format: what its reader is given."""

    format: str
    source: Source


@dataclass(slots=True)
class Detection:
    """What a source holds; `unknown` are the files that no format claims (such as images)."""

    found: list[Found] = field(default_factory=list)
    unknown: list[SourceFile] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


def formats() -> list[str]:
    """The names of all formats."""
    return list(_FORMATS)


def reader(format: str) -> Reader:
    """The reader of a format by its name; `KeyError` for one that isn't known."""
    if format not in _FORMATS:
        raise KeyError(format)
    return cast(Reader, importlib.import_module(f"objstore.transcripts.{format.replace('-', '_')}"))


def detect(
    source: Source, *, told: Callable[[SourceFile], str | None] | None = None, nested: bool = False
) -> Detection:
    """Which formats a source's files are in, told by their content (or by `told`, which stands for `format_of`).

    Archives in a folder are looked into.
    """
    told = told or format_of
    made = Detection(skipped=list(source.skipped))
    chosen: dict[str, list[SourceFile]] = {}
    for file in source.files():
        format = told(file)
        if format is not None:
            chosen.setdefault(format, []).append(file)
        elif not nested and looks_like_zip(file):
            inside = detect(ZipSource(file, f"{source.label}/{file.name}"), told=told, nested=True)
            made.found += inside.found
            made.unknown += inside.unknown
            made.skipped += inside.skipped
        else:
            made.unknown.append(file)
    made.found += [Found(format, View(source, files)) for format, files in chosen.items()]
    return made


def format_of(file: SourceFile) -> str | None:
    """The format of one file, or None."""
    start = start_of(file)
    maybe = None
    for format in _FORMATS:
        certainty = reader(format).sniff(start, file.name)
        if certainty is Certainty.YES:
            return format
        if certainty is Certainty.MAYBE and maybe is None:
            maybe = format
    return maybe


def units(found: Found) -> Iterator[Source]:
    """The parts of what was found that can be read apart from each other, such as one session each.

    A unit has to be read again when any of its files has changed, and only then.
    """
    split = getattr(reader(found.format), "split", None)
    if split is None:
        yield found.source
        return
    for files in split(found.source):
        yield View(found.source, files)


def read(format: str, source: Source) -> Iterator[ReaderOutput]:
    """The conversations of a source in a format. What its reader can't go on from ends it, and is told."""
    try:
        yield from reader(format).read(source)
    except DagError as error:
        yield Skipped("unreadable-file", source.label, str(error))
