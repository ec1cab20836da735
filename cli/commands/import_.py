"""dag import: conversations of other programs into the store."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import click

from cli.context import App, pass_app
from cli.failures import NOT_FOUND, PARTLY, say, tell
from cli.imported import Telling
from cli.interrupts import deferred
from cli.maintenance import after_writing
from cli.progress import progress_line
from cli.times import first_moment
from cli.tools import TOOLS, format_of_tool, usual_places
from objstore.convnames import DEFAULT_PATTERN
from objstore.importing import Importer, Options, Progress, Report
from objstore.transcripts.registry import formats
from refs.errors import Conflict


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One source: its path, how the user named it, the only format to read there (None: whatever there is)."""

    path: str
    label: str
    format: str | None = None

    def options(self, given: Options) -> Options:
        return given if self.format is None or given.format is not None else replace(given, format=self.format)


@click.command("import")
@click.argument(
    "paths", metavar="PATH…", nargs=-1, required=True, type=click.Path(readable=False, allow_dash=True)
)
@click.option(
    "--format", type=click.Choice(formats()), metavar="FORMAT", help="Read as this, whatever it looks like."
)
@click.option(
    "--name",
    "pattern",
    metavar="PATTERN",
    default=DEFAULT_PATTERN,
    show_default=True,
    help="What to call conversations; {title} may stand in it too.",
)
@click.option("--since", callback=first_moment, metavar="TIME", help="Only conversations that went on since then.")
@click.option("--again", is_flag=True, help="Also read what is unchanged since it was imported.")
@click.option("--dry-run", is_flag=True, help="Read everything, tell, and write nothing.")
@click.option("--watch", is_flag=True, help="Go on importing what changes, until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    default=5.0,
    show_default=True,
    help="With --watch: how often to look.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a conversation, and for the sums.")
@pass_app
def command(
    app: App,
    paths: tuple[str, ...],
    format: str | None,
    pattern: str,
    since: str | None,
    again: bool,
    dry_run: bool,
    watch: bool,
    interval: float,
    as_json: bool,
) -> int:
    """Import conversations from files, folders and archives (- for standard input).

    Formats are told by content: exports of ChatGPT and Claude.ai, sessions of Claude Code, Codex, Gemini CLI,
    opencode and aider, llm's logs, requests to the APIs and more (docs/transcripts.md). 'claude-code', 'codex',
    'gemini' and 'llm' name the places where those programs keep theirs. Importing again brings what is new:
    a session that grew moves on, one that was rewound becomes a fork. Nothing at the source is changed.

    \b
    Example:
      dag import claude-code codex
      dag import ~/Downloads/chatgpt-export.zip --name 'chatgpt/{title}'
      dag import --watch claude-code
    """
    if watch and (dry_run or again or "-" in paths):
        raise click.UsageError("--watch goes with files and folders, and not with --dry-run or --again")
    options = Options(pattern, format, since, dry_run, again)
    telling = Telling(app.screen, as_json=as_json, dry_run=dry_run)
    wanted = [each for path in paths for each in _wanted(path, app)]
    if watch:
        return _watch(app, wanted, options, telling, interval)
    code = _import(app, wanted, options, telling)
    after_writing(app.store)
    return code


def _wanted(path: str, app: App) -> Iterator[_Wanted]:
    if path not in TOOLS:
        yield _Wanted(path, path)
        return
    places = usual_places(path, app.environ)
    if os.path.exists(path):
        if not os.path.exists(places[0]):
            yield _Wanted(path, path)
            return
        say(f"{path} is the program's own place; {os.path.join(os.curdir, path)} names what is here")
    for place in places:
        yield _Wanted(place, place, format_of_tool(path))


def _import(app: App, wanted: Sequence[_Wanted], options: Options, telling: Telling) -> int:
    """Import each source; the exit code."""
    total, failed = Report(""), False
    with progress_line() as bar, deferred() as asked:
        progress = _step(asked, bar)
        for each in wanted:
            if not os.path.lexists(each.path) and each.path != "-":
                say(f"{each.label}: no such file or folder")
                failed = True
                continue
            with (
                _on_disk(each) as path,
                Importer(app.store, each.options(options), telling.event, progress) as made,
            ):
                report = made.add(path, each.label)
                made.commit()
                for conflict in made.refused:
                    telling.refused(conflict)
            telling.report(report)
            failed |= bool(made.refused or report.missed)
            if report.is_empty and each.format is None:
                failed = True
                say(f"{each.label}: nothing that can be imported")
            total += report
            if asked.is_set():
                raise KeyboardInterrupt
    if len(wanted) > 1:
        telling.report(total)
    if total.is_empty:
        return NOT_FOUND
    return PARTLY if failed else 0


def _watch(app: App, wanted: Sequence[_Wanted], options: Options, telling: Telling, interval: float) -> int:
    """Import again and again what has changed. Ends with Ctrl-C, which is no failure."""
    telling.only_changes = True
    with deferred() as asked, contextlib.suppress(KeyboardInterrupt):
        while not asked.is_set():
            try:
                _import_changes(app, wanted, options, telling, _step(asked, None))
            except Conflict as error:  # somebody else writes too: the next time it will do
                tell(error)
            after_writing(app.store)
            asked.wait(interval)
    return 0


def _import_changes(
    app: App, wanted: Sequence[_Wanted], options: Options, telling: Telling, progress: Progress
) -> None:
    for each in wanted:
        if os.path.lexists(each.path):
            with Importer(app.store, each.options(options), telling.event, progress) as importer:
                report = importer.add(each.path, each.label)
            telling.report(report)


def _step(asked: threading.Event, bar: Progress | None) -> Progress:
    """What an import calls between two messages: there it can stop, and what it has read whole is kept."""

    def step(what: str, done: int, total: int) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        if bar is not None:
            bar(what, done, total)

    return step


@contextmanager
def _on_disk(wanted: _Wanted) -> Iterator[str]:
    """The path to read; standard input is copied to the disk first, as some formats are read twice."""
    if wanted.path != "-":
        yield wanted.path
        return
    with tempfile.TemporaryDirectory(prefix="dag-import-") as folder:
        path = os.path.join(folder, "standard-input")
        with open(path, "xb") as stream:
            shutil.copyfileobj(sys.stdin.buffer, stream, 1 << 20)
        yield path
