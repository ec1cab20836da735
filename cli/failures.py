"""Errors as a line on standard error, a hint, and an exit code (docs/cli.md lists them)."""

from __future__ import annotations

from typing import Final

import click

from cli.render import one_line
from refs.errors import (
    Conflict,
    DagError,
    DamagedStore,
    InvalidId,
    InvalidRefName,
    InvalidValue,
    LimitExceeded,
)

NOT_FOUND: Final = 1
USAGE: Final = 2
CONFLICT: Final = 3
DAMAGED: Final = 4
PARTLY: Final = 5
"""`dag import`: something was brought in, and something else was skipped or left alone."""

_CODES: Final = (
    (Conflict, CONFLICT),
    (DamagedStore, DAMAGED),
    ((InvalidValue, InvalidRefName, InvalidId, LimitExceeded), USAGE),
)


def code_of(error: Exception) -> int:
    """The exit code for an error."""
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), NOT_FOUND)


def tell(error: Exception) -> int:
    """Print an error that was foreseen, and give its exit code; any other is raised again."""
    if isinstance(error, click.ClickException):
        context = error.ctx if isinstance(error, click.UsageError) else None
        say(error.format_message(), f"'{context.command_path} --help' says more" if context else None)
        return error.exit_code
    if isinstance(error, OSError) and not isinstance(error, DagError):
        say(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
        return NOT_FOUND
    if isinstance(error, DagError):
        say(str(error), error.hint)
        return code_of(error)
    raise error


def say(text: str, hint: str | None = None) -> None:
    """A line for people beside the output, and what they might do about it."""
    click.echo(f"dag: {one_line(text)}", err=True)
    if hint is not None:
        click.echo(f"hint: {one_line(hint)}", err=True)
