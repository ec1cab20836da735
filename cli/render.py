"""What stands between stored text and a terminal: escapes, widths, colours, the pager.

Nothing that a message, a title, a name or an error holds may move a cursor, change a title or the direction
of reading, or break a line of a listing.
"""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

SCHEMA: Final = 1
"""The version of everything that `--json` prints; it grows when a member changes its meaning or goes."""

PLAIN_WIDTH: Final = 200
"""Columns of a line where nobody says how wide the screen is."""

# C0 but tab and newline, DEL, C1, line separators, what changes the direction of reading, half characters.
# As text: `re` compiles it, and keeps it, for the first text that isn't plain.
_UNSAFE: Final = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\ud800-\udfff]"
)
_SPACE: Final = r"\s+"


def escape(text: str) -> str:
    """Text of several lines as it may be printed. Line ends of other systems become plain ones."""
    if text.isascii() and text.isprintable():
        return text
    return re.sub(_UNSAFE, _visible, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Text as it may stand within a line."""
    if text.isascii() and text.isprintable():
        return text
    return escape(re.sub(_SPACE, " ", text))


def escape_json(text: str) -> str:
    """JSON text in which what must not reach a terminal is written as JSON's own escapes: it means the same."""
    return re.sub(_UNSAFE, lambda found: f"\\u{ord(found[0]):04x}", text)


def _visible(found: re.Match[str]) -> str:
    code = ord(found[0])
    if found[0] == "\r":
        return "\\r"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def width_of(text: str) -> int:
    """Columns that a line takes on a terminal: two for wide characters, none for combining ones."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def first_line(text: str, width: int) -> str:
    """The first line that says something, safe to print, cut to `width` columns."""
    start = text.lstrip()
    line = one_line(start[: 4 * width + 256].partition("\n")[0].rstrip())
    more = len(start) > 4 * width + 256
    if width_of(line) <= width and not more:
        return line
    kept, room = 0, max(width, 1) - 1
    for char in line:
        room -= _columns(char)
        if room < 0:
            break
        kept += 1
    return f"{line[:kept].rstrip()}…"


def count(number: int, thing: str) -> str:
    """`1 message`, `3 messages`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


class Screen:
    """Standard output, for people or for programs."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.is_terminal = sys.stdout.isatty()
        self.color = self.is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        self.width = _columns_of_terminal(environ) if self.is_terminal else PLAIN_WIDTH

    def paint(self, text: str, color: str, **style: Any) -> str:
        """`text` in a colour, where colours are wanted."""
        return click.style(text, fg=color, **style) if self.color else text

    def lines(self, lines: Iterable[str]) -> None:
        """Print lines that have been made safe, through a pager on a terminal."""
        if self.is_terminal:
            from cli.pager import find_pager, page  # noqa: PLC0415  it costs more than what programs read

            pager = find_pager(self._environ)
            if pager is not None:
                page(lines, pager, self._environ)
                return
        for line in lines:
            sys.stdout.write(f"{line}\n")

    def json(self, values: Iterable[object]) -> None:
        """Print values as JSON Lines, for programs."""
        self.utf8(escape_json(json.dumps(each, ensure_ascii=False, allow_nan=False)) for each in values)

    def utf8(self, lines: Iterable[str]) -> None:
        """Print lines for programs: always UTF-8, never through a pager."""
        for line in lines:
            sys.stdout.buffer.write(f"{line}\n".encode())


def _columns_of_terminal(environ: Mapping[str, str]) -> int:
    if environ.get("COLUMNS", "").isdecimal():
        return int(environ["COLUMNS"])
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or PLAIN_WIDTH
    except OSError:
        return PLAIN_WIDTH
