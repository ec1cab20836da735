"""What a fetch, a push or a merge did: lines for people, JSON for programs, and the exit code."""

from __future__ import annotations

from collections.abc import Iterator

import click

from cli.context import App
from cli.failures import CONFLICT
from cli.maintenance import after_writing
from cli.render import SCHEMA, one_line
from cli.sizes import by_kind, size
from objstore.transfer.report import Moved, Report
from refs.ids import abbreviate
from refs.names import short_name


def tell(app: App, report: Report, verb: str, *, dry_run: bool, json: bool, label: str = "") -> None:
    """Print what was done; exits with 3 where heads parted or something was refused. `verb`: fetched, sent.

    `label` is under which name the remote's heads are remembered, to be shown beside ours.
    """
    if json:
        app.screen.json([{"schema": SCHEMA, "dry_run": dry_run, **as_json(report)}])
    else:
        app.screen.lines(lines(report, f"would be {verb}" if dry_run else verb, label))
    if not dry_run:
        after_writing(app.store)
    if report.refused_count or any(parted.forked is None for parted in report.diverged):
        raise click.exceptions.Exit(CONFLICT)


def lines(report: Report, verb: str, label: str = "") -> Iterator[str]:
    """A report for people."""
    if report.objects or report.bytes:
        what = by_kind(report.objects) if report.objects else "objects"
        yield f"{what} {verb}, {size(report.bytes)}"
    for moved in report.moved:
        yield _moved(moved)
    for parted in report.diverged:
        heads = f"ours {abbreviate(parted.ours)}, theirs {abbreviate(parted.theirs)}"
        if parted.forked is not None:
            yield f"diverged      {one_line(parted.name)}: {heads}, which is {one_line(parted.forked)} here"
        else:
            yield f"diverged      {one_line(parted.name)}: {heads}; both are kept"
    if label and any(parted.forked is None for parted in report.diverged):
        name = one_line(next(parted.name for parted in report.diverged if parted.forked is None))
        yield f"              see 'dag diff {name} remotes/{one_line(label)}/conversations/{name}';"
        yield "              with --fork theirs becomes a conversation beside ours"
    for refused in report.skipped:
        yield f"left alone    {one_line(refused.name)}: {one_line(refused.reason)}"
    for refused in report.refused:
        yield f"refused       {one_line(refused.name)}: {one_line(refused.reason)}"
    more = report.refused_count - len(report.refused)
    if more:
        yield f"refused       {more:,} more"
    if not (report.objects or report.moved or report.diverged or report.refused_count):
        yield "everything is up to date"


def _moved(moved: Moved) -> str:
    name = one_line(short_name(moved.ref))
    if moved.new is None:
        return f"{moved.how:<13} {name} (was {abbreviate(moved.old or '')})"
    if moved.old is None:
        return f"{moved.how:<13} {name} {abbreviate(moved.new)}"
    return f"{moved.how:<13} {name} {abbreviate(moved.old)}..{abbreviate(moved.new)}"


def as_json(report: Report) -> dict[str, object]:
    """A report for programs."""
    return {
        "remote": report.remote,
        "objects": report.objects,
        "bytes": report.bytes,
        "moved": [{"ref": m.ref, "old": m.old, "new": m.new, "how": m.how} for m in report.moved],
        "diverged": [
            {"conversation": p.name, "ours": p.ours, "theirs": p.theirs, "forked": p.forked}
            for p in report.diverged
        ],
        "refused": [{"name": r.name, "reason": r.reason} for r in report.refused],
        "refused_count": report.refused_count,
        "left_alone": [{"name": r.name, "reason": r.reason} for r in report.skipped],
    }
