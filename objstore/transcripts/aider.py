"""aider's chat history (`.aider.chat.history.md`): Markdown, one file for many sessions. Lossy.

Prompts are quoted by `#### `, aider's own output by `> `; the rest is the model's. Roles are told by these
marks alone, so an answer that holds such a line is cut there. Files that were in the chat, and what was
really sent, are not in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from objstore.limits import MAX_RECORD_BYTES, MIB
from objstore.transcripts.build import message_or_none, note_of, time_of
from objstore.transcripts.draft import Draft
from objstore.transcripts.lines import decode_leniently
from objstore.transcripts.model import Certainty, Entry, Head, ReaderOutput, Skipped, Transcript, Warn
from objstore.transcripts.source import Source, SourceFile
from objstore.transcripts.warnings import Warner, collector
from refs.errors import DagError

FORMAT: Final = "aider"

_STARTED: Final = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*")
_SNIFFED: Final = re.compile(rb"^# aider chat started at \d{4}-\d\d-\d\d", re.MULTILINE)
_MODEL: Final = re.compile(r"(?:Main model|Models?): (\S+)")
_PROMPT: Final = "#### "
_OUTPUT: Final = "> "
_MAX_LINE_BYTES: Final = 16 * MIB
_MAX_OUTPUT_CHARS: Final = 64 * 1024  # of aider's own lines, for each message
_BOM: Final = "\ufeff"


def sniff(file_start: bytes, name: str) -> Certainty:
    """Certain of the line that begins a session."""
    return Certainty.YES if _SNIFFED.search(file_start) else Certainty.NO


def read(source: Source) -> Iterator[ReaderOutput]:
    """One transcript for each session in which something was said."""
    ids: dict[str, int] = {}
    for file in source.files():
        warnings: list[Warn] = []
        empty = 0
        for session in _sessions(file, collector(warnings)):
            if session.blocks:
                yield _transcript(session, file, warnings, ids)
                warnings.clear()
            else:
                empty += 1
        if empty:
            yield Skipped("empty-conversation", file.name, f"{empty} sessions without a message")
        for each in warnings:
            yield Skipped(each.kind, file.name, f"{each.place} {each.text}")


@dataclass(slots=True)
class _Block:
    """Lines of one speaker. `output` is what aider printed after them."""

    role: str
    line: int
    lines: list[str]
    output: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Session:
    started: str
    line: int
    blocks: list[_Block] = field(default_factory=list)
    greeting: list[str] = field(default_factory=list)
    model: str | None = None
    printing: bool = True  # whether an unmarked line goes on with aider's own output
    size: int = 0

    def add(self, number: int, line: str) -> None:
        # With the space: `>>>>>>> REPLACE` ends the model's edits.
        if f"{line} ".startswith(_PROMPT):
            self._say("user", number, line.removeprefix(_PROMPT.strip()).removeprefix(" ").removesuffix("  "))
            self.printing = False
        elif f"{line} ".startswith(_OUTPUT):
            self._print(line.removeprefix(_OUTPUT.strip()).removeprefix(" ").removesuffix("  "))
            self.printing = True
        elif self.printing and (line.strip() or not self.blocks):
            self._print(line)
        elif line.strip() or (self.blocks and self.blocks[-1].role == "assistant"):
            self._say("assistant", number, line)
        if not line.strip() and self.blocks:
            # An answer stands apart from what aider printed; only the first line of that is marked.
            self.printing = False

    def _say(self, role: str, number: int, line: str) -> None:
        self.size += len(line)
        last = self.blocks[-1] if self.blocks else None
        if last is not None and last.role == role and not (role == "user" and last.output):
            last.lines.append(line)
        else:
            self.blocks.append(_Block(role, number, [line]))

    def _print(self, line: str) -> None:
        found = _MODEL.match(line)
        if found and self.model is None:
            self.model = found[1]
        self.size += len(line)
        (self.blocks[-1].output if self.blocks else self.greeting).append(line)


def _sessions(file: SourceFile, warn: Warner) -> Iterator[_Session]:
    session = _Session("", 1)
    try:
        with file.open() as stream:
            number = 0
            while raw := stream.readline(_MAX_LINE_BYTES):
                number += 1
                line = decode_leniently(raw, f"line {number}", warn).rstrip("\r\n").removeprefix(_BOM)
                started = _STARTED.fullmatch(line)
                if started or session.size > MAX_RECORD_BYTES:
                    yield session
                    session = _Session(started[1] if started else f"line {number}", number)
                if not started:
                    session.add(number, line)
    except DagError as error:
        warn("unreadable-file", file.name, str(error))
    yield session


def _transcript(session: _Session, file: SourceFile, warnings: list[Warn], ids: dict[str, int]) -> Transcript:
    wanted = session.started or "before the first session"
    again = ids[wanted] = ids.get(wanted, 0) + 1
    name = wanted if again == 1 else f"{wanted} ({again})"
    made = Transcript(FORMAT, name, (), warnings=list(warnings), place=f"{file.name}: line {session.line}")
    made.created_at = time_of(session.started)
    made.model = session.model
    entries: list[Entry] = []
    for block in session.blocks:
        draft = Draft(block.role, f"line {block.line}", made.warn)
        draft.text("\n".join(block.lines).strip("\n"))
        message = message_or_none(block.role, draft.parts, made.warn, draft.place)
        if message is not None:
            parent = entries[-1].key if entries else None
            note = note_of(
                greeting=None if entries else _printed(session.greeting),
                output=_printed(block.output),
            )
            entries.append(Entry(f"m{len(entries) + 1}", parent, message, note=note))
    made.entries = entries
    made.heads.append(Head(entries[-1].key, name, True))
    made.warn("lossy-format", made.place, "roles are told by Markdown marks; what was sent is not in it")
    return made


def _printed(lines: list[str]) -> str:
    return "\n".join(lines).strip()[:_MAX_OUTPUT_CHARS]
