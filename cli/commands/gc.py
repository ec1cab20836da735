"""dag gc: delete what nothing needs, and pack the rest."""

from __future__ import annotations

import time

import click

from cli.ages import GRACE, REFLOG, age
from cli.context import App, pass_app
from cli.failures import say
from cli.progress import progress_line
from cli.render import SCHEMA, count
from cli.sizes import by_kind, size
from objstore.gc import GcOptions, GcReport


@click.command()
@click.option("--dry-run", is_flag=True, help="Tell what would be done, and do nothing.")
@click.option(
    "--prune",
    callback=age,
    metavar="AGE",
    default=GRACE,
    show_default=True,
    help="Delete what is unreachable and was written before that: 90m, 12h, 30d, 2w, a date, now or never.",
)
@click.option(
    "--expire-calls",
    callback=age,
    metavar="AGE",
    default="never",
    show_default=True,
    help="Calls that belong to no conversation keep what they were asked and answered; not those before that.",
)
@click.option(
    "--expire-reflog",
    callback=age,
    metavar="AGE",
    default=REFLOG,
    show_default=True,
    help="Forget where refs stood before that, but for the last move of each.",
)
@click.option("--quick", is_flag=True, help="Only loose objects and small packs.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@pass_app
def command(
    app: App,
    dry_run: bool,
    prune: float | None,
    expire_calls: float | None,
    expire_reflog: float | None,
    quick: bool,
    as_json: bool,
) -> None:
    """Delete what no conversation, tag, reflog entry or call leads to, and pack the rest in chain order.

    What was deleted less than two weeks ago (--prune) can still be had back with 'dag reflog' and 'dag fork'.
    Others may read and write meanwhile. If anything can't be read, nothing is deleted.

    \b
    Example:
      dag gc --dry-run
      dag gc
      dag gc --prune=now --expire-reflog=now
    """
    now = time.time()
    if not dry_run and prune is not None and prune >= now - 1:
        say("--prune=now also deletes what other programs have stored and not named yet")
    options = GcOptions(
        prune_before=prune,
        now=now,
        reflog_before=expire_reflog,
        calls_before=expire_calls,
        dry_run=dry_run,
        quick=quick,
    )
    with progress_line() as progress:
        report = app.store.gc(options, progress=progress)
    if as_json:
        app.screen.json([{"schema": SCHEMA, "dry_run": dry_run, **_as_json(report)}])
    else:
        app.screen.lines(_lines(report, dry_run))


def _lines(report: GcReport, dry_run: bool) -> list[str]:
    would = "would " if dry_run else ""
    stored, disk = report.stored_before - report.stored_after, report.disk_before - report.disk_after
    lines = [
        f"{would}delete: {by_kind(report.pruned)}",
        f"{would}keep: {by_kind(report.kept)}",
        f"{would}keep for a while, though nothing leads there: {by_kind(report.young)}",
        f"packs: {report.packs_before} before, {report.packs_after} after;"
        f" {count(report.loose_before, 'loose object')} before",
        f"{would}give back: {size(stored)} of objects, {size(disk)} of disk; they take {size(report.disk_after)}",
    ]
    if report.reflog_expired:
        lines.append(f"{would}forget {count(report.reflog_expired, 'move')} in the reflog")
    if report.strays:
        lines.append(f"removed {count(report.strays, 'file')} that a crash had left")
    return lines


def _as_json(report: GcReport) -> dict[str, object]:
    return {
        "pruned": report.pruned,
        "kept": report.kept,
        "young": report.young,
        "stored_bytes": {"before": report.stored_before, "after": report.stored_after},
        "disk_bytes": {"before": report.disk_before, "after": report.disk_after},
        "packs": {"before": report.packs_before, "after": report.packs_after},
        "loose_objects_before": report.loose_before,
        "stray_files": report.strays,
        "reflog_expired": report.reflog_expired,
    }
