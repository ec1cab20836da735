"""Formats that write a file for each session."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from objstore.transcripts.model import Skipped
from objstore.transcripts.source import Source, SourceFile


def each_file(source: Source) -> Iterator[list[SourceFile]]:
    """A `split` into files: none of them has to be read with another one."""
    for file in source.files():
        yield [file]


def one_file_each(
    source: Source, session_of: Callable[[SourceFile], str]
) -> Iterator[tuple[SourceFile | Skipped, str]]:
    """Each session's file and id; of several files of one session (a copy, an archive) the largest."""
    named = [(session_of(file), file) for file in source.files()]
    largest: dict[str, SourceFile] = {}
    for session, file in named:
        if session not in largest or file.size > largest[session].size:
            largest[session] = file
    for session, file in named:
        if largest[session] is file:
            yield file, session
        else:
            text = f"{session} is in {largest[session].name} too"
            yield Skipped("duplicate-conversation", file.name, text), session
