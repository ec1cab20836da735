"""dag stats: what the store holds and what it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import click

from cli.context import App, pass_app
from cli.progress import progress_line
from cli.render import SCHEMA, count, one_line
from cli.sizes import size
from objstore.kinds import Kind
from objstore.stats import Stats


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@pass_app
def command(app: App, as_json: bool) -> None:
    """Show how much is stored: objects by kind, bytes raw, stored and on disk, and what was saved.

    \b
    Example:
      dag stats
    """
    with progress_line() as progress:
        stats = app.store.stats(progress=progress)
    if as_json:
        saved = {
            "messages": stats.dedup_messages,
            "bytes": stats.dedup_bytes,
            "packing_bytes": stats.packing_bytes,
        }
        app.screen.json([{"schema": SCHEMA, **asdict(stats), "saved": saved}])
    else:
        app.screen.lines(_lines(stats))


def _lines(stats: Stats) -> Iterator[str]:
    for kind in Kind:
        yield f"{count(stats.objects[kind], kind.value):>24}  {size(stats.raw[kind]):>12} raw"
    yield ""
    yield f"packs:         {stats.packs}, {count(stats.packed_objects, 'object')}, {size(stats.pack_stored)}"
    yield f"loose objects: {stats.loose_objects:,}, {size(stats.loose_stored)}, on disk {size(stats.loose_disk)}"
    yield f"payloads:      {size(stats.payload_stored)}, on disk {size(stats.payload_disk)}"
    yield f"index:         {size(stats.index_bytes)}"
    yield f"journal:       {size(stats.journal_bytes)}"
    yield f"all on disk:   {size(stats.disk)}"
    yield ""
    chains = f"{count(stats.conversations, 'conversation')} of {count(stats.chain_messages, 'message')}"
    yield f"{chains}, {size(stats.chain_raw)} if each had its own copy"
    yield f"saved by storing once: {count(stats.dedup_messages, 'message')}, {size(stats.dedup_bytes)}"
    yield f"saved by packing: {size(stats.packing_bytes)} of disk"
    if stats.largest:
        yield ""
        yield "largest conversations:"
        for each in stats.largest:
            yield f"{size(each.raw_bytes):>12}  {count(each.messages, 'message')}  {one_line(each.name)}"
