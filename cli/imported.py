"""What an import tells: each conversation and warning as it comes, and a sum for each source."""

from __future__ import annotations

import click

from cli.failures import say
from cli.render import SCHEMA, Screen, count, one_line
from objstore.importing import Report
from objstore.ingest import Ingested
from objstore.transcripts.model import Skipped, Warn
from refs.errors import Conflict

_SHOWN: int = 10
"""Conversations of one source that are named to people; programs get all."""


class Telling:
    """Prints for people or, `as_json`, for programs; warnings always for people on standard error too."""

    def __init__(self, screen: Screen, *, as_json: bool, dry_run: bool) -> None:
        self._screen, self._as_json, self._dry_run = screen, as_json, dry_run
        self.only_changes = False
        """Whether to be silent about sources of which nothing was read."""
        self._told: set[Skipped] = set()
        self._named = 0

    def event(self, event: Ingested | Skipped) -> None:
        """A conversation was imported, or something was skipped."""
        if isinstance(event, Skipped):
            if not self.only_changes or event not in self._told:
                self._skipped(event)
            if self.only_changes:
                self._told.add(event)
            return
        for warn in event.warnings:
            say(_warning(event.place, warn))
        if self._as_json:
            self._screen.json([{"schema": SCHEMA, "type": "conversation", **_conversation(event)}])
        elif event.created or event.moved:
            self._named += 1
            if self._named <= _SHOWN:
                what = "new" if event.created else "moved on"
                click.echo(f"{one_line(event.name)}: {what}, {_messages(event.messages, event.new)}")

    def _skipped(self, skipped: Skipped) -> None:
        text = f" ({skipped.text})" if skipped.text else ""
        say(f"{skipped.place}: skipped: {skipped.kind}{text}")
        if self._as_json:
            about = {"kind": skipped.kind, "place": skipped.place, "text": skipped.text}
            self._screen.json([{"schema": SCHEMA, "type": "skipped", **about}])

    def refused(self, error: Conflict) -> None:
        """A conversation was left alone, because somebody else moved it."""
        say(f"{error}: left alone", "import again")

    def report(self, report: Report) -> None:
        """The sum of a source; of all of them where it is named ``."""
        more = self._named - _SHOWN
        self._named = 0
        if self.only_changes and not report.conversations:
            return
        if self._as_json:
            self._screen.json([{"schema": SCHEMA, "type": "source" if report.source else "total", **_sum(report)}])
            return
        if more > 0:
            click.echo(f"… and {count(more, 'more conversation')}")
        label = one_line(report.source) if report.source else "in all"
        parts = [count(report.conversations, "conversation"), _messages(report.messages, report.new)]
        if not report.conversations:
            parts = ["nothing new"]
        parts += [
            f"{number:,} {what}"
            for number, what in (
                (report.repaired, "repaired"),
                (report.skipped, "skipped"),
                (report.older, "older"),
                (report.unchanged, "unchanged files" if report.unchanged != 1 else "unchanged file"),
                (report.unknown, "other files" if report.unknown != 1 else "other file"),
            )
            if number
        ]
        click.echo(f"{label}: {'would import ' if self._dry_run else ''}{', '.join(parts)}")


def _messages(messages: int, new: int) -> str:
    return f"{count(messages, 'message')} ({new:,} new, {messages - new:,} already here)"


def _warning(place: str, warn: Warn) -> str:
    # A transcript of several files says itself which one.
    told = not place or warn.place.startswith(tuple(place.split(", ")))
    where = warn.place if told else f"{place}, {warn.place}"
    return f"{where}: {warn.kind}{f' ({warn.text})' if warn.text else ''}"


def _conversation(done: Ingested) -> dict[str, object]:
    return {
        "conversation": done.name,
        "format": done.format,
        "id": done.id,
        "place": done.place,
        "title": done.title,
        "messages": done.messages,
        "new": done.new,
        "known": done.known,
        "calls": done.calls,
        "created": done.created,
        "moved": done.moved,
        "warnings": [{"kind": warn.kind, "place": warn.place, "text": warn.text} for warn in done.warnings],
    }


def _sum(report: Report) -> dict[str, object]:
    return {
        "source": report.source or None,
        "conversations": report.conversations,
        "messages": report.messages,
        "new": report.new,
        "known": report.known,
        "repaired": report.repaired,
        "skipped": report.skipped,
        "older": report.older,
        "unchanged_files": report.unchanged,
        "other_files": report.unknown,
    }
