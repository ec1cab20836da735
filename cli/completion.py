"""What the shell offers for a name that is being typed. Silent whatever happens: nobody asked for an error."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from cli.context import find_store
from refs.errors import DagError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from objstore.store import Store


def conversations(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of conversations."""
    return _names(ctx, incomplete, revisions=False)


def revisions(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of conversations and tags, and `HEAD`."""
    return _names(ctx, incomplete, revisions=True)


def remotes(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of remotes."""
    return _matching(ctx, incomplete, lambda store: list(store.remotes()))


def _names(ctx: click.Context, incomplete: str, *, revisions: bool) -> list[CompletionItem]:
    def find(store: Store) -> list[str]:
        names = [each.name for each in store.conversations()]
        return [*names, "HEAD", *(f"tags/{name}" for name, _ in store.tags())] if revisions else names

    return _matching(ctx, incomplete, find)


def _matching(ctx: click.Context, incomplete: str, find: Callable[[Store], list[str]]) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem  # noqa: PLC0415  most runs complete nothing

    from objstore.store import Store  # noqa: PLC0415

    try:
        path = find_store(ctx.find_root().params.get("store"), os.environ, os.getcwd())
        with Store.open(path) as store:
            names = find(store)
    except (DagError, OSError):
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
