"""dag fsck: is what is stored what was written?"""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from cli.context import App, find_store, pass_app
from cli.failures import DAMAGED, say
from cli.progress import progress_line
from cli.render import SCHEMA, count, one_line
from objstore import clock
from objstore.findings import Finding, Level, Severity
from objstore.fsck import check, damaged
from objstore.repair import Repaired, repair
from objstore.store import Store
from refs.errors import DamagedStore
from refs.files import Files

_COLORS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


@click.command()
@click.option(
    "--level",
    type=click.Choice([level.value for level in Level]),
    default=Level.FULL.value,
    show_default=True,
    help="quick: names, sizes, checksums; connectivity: what everything needs is there; full: every object"
    " read, hashed and written again, and the index compared.",
)
@click.option("--repair", "mend", is_flag=True, help="Mend what has a good copy; what is bad is moved aside.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a finding.")
@pass_app
def command(app: App, level: str, mend: bool, as_json: bool) -> None:
    """Look for damage. Changes nothing unless --repair is given; the index need not be right.

    The exit code is 4 if there are errors; warnings alone leave it at 0. --repair always looks at everything:
    it moves bad files to 'quarantine' in the store, takes good copies from packs, loose files and the
    journal, sets a ref that can't be read to its last value in the reflog, and makes the index anew. It never
    invents anything.

    \b
    Example:
      dag fsck --level quick
      dag fsck
      dag fsck --repair
    """
    try:
        store: Store | None = app.store
    except DamagedStore as error:
        say(str(error))
        store = None
    files = store.storage.files if store is not None else Files(find_store(app.given, app.environ, os.getcwd()))
    with progress_line() as progress:
        if mend:
            done = store.repair(progress=progress) if store else repair(files, clock.now(), progress=progress)
            findings = done.remaining
        else:
            done, findings = Repaired(), list(check(files, Level(level), progress))
    if as_json:
        app.screen.json({"schema": SCHEMA, "repaired": text} for text in done.done)
        app.screen.json({"schema": SCHEMA, **finding.to_dict()} for finding in findings)
    else:
        app.screen.lines(_lines(app, done, findings, mend))
    if damaged(findings):
        raise SystemExit(DAMAGED)


def _lines(app: App, done: Repaired, findings: Sequence[Finding], mend: bool) -> list[str]:
    lines = [one_line(text) for text in done.done]
    for each in findings:
        severity = app.screen.paint(each.severity, _COLORS[each.severity])
        lines.append(f"{severity} {each.name}: {one_line(each.place)}: {one_line(each.text)}")
    errors = sum(1 for each in findings if each.severity is Severity.ERROR)
    if not errors:
        lines.append("no errors" if findings else "clean")
    else:
        lines.append(f"{count(errors, 'error')}{' that no good copy was found for' if mend else ''}")
    return lines
