"""The pager: only on a terminal, the one that the user names, else less where there is one."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import click

_LESS: Final = "FRX"  # quit where one screen is enough, keep colours, don't clear: as git has it


def find_pager(environ: Mapping[str, str]) -> Sequence[str] | None:
    """The pager's command line; None where DAG_PAGER or PAGER is empty or `cat`, or less isn't installed."""
    named = environ.get("DAG_PAGER", environ.get("PAGER"))
    if named is None:
        return ["less"] if shutil.which("less") else None
    words = shlex.split(named)
    return words if words and words != ["cat"] else None


def page(lines: Iterable[str], pager: Sequence[str], environ: Mapping[str, str]) -> None:
    """Show lines in a pager, and wait until it is closed."""
    less = {} if "LESS" in environ else {"LESS": _LESS}
    try:
        process = subprocess.Popen(pager, stdin=subprocess.PIPE, env={**environ, **less})
    except OSError as error:
        raise click.ClickException(f"the pager {pager[0]!r} can't be started: {error.strerror}") from error
    assert process.stdin is not None
    try:
        for line in lines:
            process.stdin.write(f"{line}\n".encode())
        process.stdin.close()
    except BrokenPipeError:
        pass  # the reader has seen enough
    finally:
        while True:
            try:
                process.wait()
                break
            except KeyboardInterrupt:
                continue  # Ctrl-C belongs to the pager while it runs
