"""Stores that meet at one remote, which is a folder or an object storage: the tests of both are the same."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from objstore.storage import Storage
from objstore.store import Store
from objstore.transfer import fetch as fetching
from objstore.transfer import push as pushing
from objstore.transfer.folder import FolderRemote
from objstore.transfer.integrate import integrate
from objstore.transfer.objects import ObjectRemote
from objstore.transfer.remote import Remote
from objstore.transfer.report import Report
from refs.ids import Oid
from refs.names import conversation_ref, tag_ref
from tests.storetools import QuietFiles, init_quiet, quiet_store, ticking

Open = Callable[[Storage], Remote]


@dataclass
class Party:
    """A store, and the remote `origin` as it sees it."""

    store: Store
    open_remote: Open

    @contextlib.contextmanager
    def remote(self) -> Iterator[Remote]:
        with contextlib.closing(self.open_remote(self.store.storage)) as remote:
            yield remote

    def fetch(self, **how: Any) -> Report:
        with self.remote() as remote:
            return fetching.fetch(self.store.storage, remote, "origin", **how).report

    def pull(self, *names: str, fork: bool = False) -> Report:
        with self.remote() as remote:
            fetched = fetching.fetch(self.store.storage, remote, "origin", names=names)
            report = integrate(self.store.storage, "origin", fetched.refs, names=names, fork=fork)
        report.objects, report.bytes = fetched.report.objects, fetched.report.bytes
        report.refused += fetched.report.refused
        return report

    def push(self, *names: str, tags: tuple[str, ...] = (), **how: Any) -> Report:
        refs = [*map(conversation_ref, names), *map(tag_ref, tags)]
        if how.get("everything"):
            refs += [ref for ref, _ in self.store.refs("refs/conversations/")]
        with self.remote() as remote:
            return pushing.push(self.store.storage, remote, "origin", refs, **how)

    def heads(self) -> dict[str, Oid]:
        """What stands at the remote."""
        with self.remote() as remote:
            return {name: Oid(value) for name, value in remote.refs()}


class Place:
    """Where the remote is, and the stores that meet there."""

    def __init__(self, root: Path, open_remote: Open) -> None:
        self._root, self.open_remote = root, open_remote
        self._stores: list[Store] = []

    def party(self, name: str) -> Party:
        """A store, new or as it was left."""
        path = self._root / name
        start = 60_000 * (1 + len(self._stores))
        store = quiet_store(path, clock=ticking(start)) if path.exists() else init_quiet(path, ticking(start))
        self._stores.append(store)
        return Party(store, self.open_remote)

    def close(self) -> None:
        for store in self._stores:
            store.close()


def folder_place(root: Path) -> Place:
    """Everybody meets at a store in a folder."""
    there = root / "there"
    init_quiet(there, ticking(1)).close()

    def open_remote(here: Storage) -> Remote:
        return FolderRemote(str(there), Storage.open(QuietFiles(there), here.clock, here.notice), here)

    return Place(root, open_remote)


def object_place(root: Path, store: Any, url: str = "memory://") -> Place:
    """Everybody meets at an object storage."""

    def open_remote(here: Storage) -> Remote:
        return ObjectRemote(url, store, here, create=True)

    return Place(root, open_remote)
