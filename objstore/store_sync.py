"""The store's doors to other stores: remotes, fetch, push, pull, merge, clone. Imported when they are used."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from objstore import clock as clocks
from objstore.config import check_remote_name, read_remotes, write_remote
from objstore.store_base import StoreBase
from refs.errors import NoSuchRemote, RemoteExists, StoreExists
from refs.ids import NodeId
from refs.names import CONVERSATIONS, REMOTES, TAGS, RefName, conversation_ref, tag_ref

if TYPE_CHECKING:
    from objstore.engine import Clock
    from objstore.scan import Notice, Progress
    from objstore.transfer.remote import Remote
    from objstore.transfer.report import Report, Tracked

ORIGIN = "origin"
"""What a clone calls the remote that it comes from."""


class StoreSync(StoreBase):
    """Part of `Store`. `options` are what an object storage needs, see `objstore.transfer.connect`."""

    # -- remotes ----------------------------------------------------------------------------------

    def remotes(self) -> dict[str, str]:
        """The addresses of all remotes, by name."""
        return read_remotes(self._storage.files)

    def add_remote(
        self, name: str, url: str | os.PathLike[str], *, options: Mapping[str, str] | None = None
    ) -> None:
        """Give another store a name here; an object storage becomes a store if it is none.

        Raises `RemoteExists`, `NoSuchRemote` if nothing is there, `RemoteFailure`, and `UnsafeRemote` for an
        object storage in which writers would overwrite each other.
        """
        from objstore.transfer.connect import address  # noqa: PLC0415

        check_remote_name(name)
        if name in self.remotes():
            raise RemoteExists(name)
        url = address(url)
        with self._connected(url, options, create=True) as remote:
            check = getattr(remote, "check_conditions", None)
            if check is not None:
                check()
        with self._storage.lock():
            if name in self.remotes():
                raise RemoteExists(name)
            write_remote(self._storage.files, name, url)

    def remove_remote(self, name: str) -> None:
        """Forget a remote, and where its refs stood."""
        self._url(name)
        with self._storage.lock():
            with self._storage.transaction() as transaction:
                for ref, oid in self._storage.refs.list(f"{REMOTES}{name}/"):
                    transaction.move(ref, oid, None, "remove remote")
            write_remote(self._storage.files, name, None)

    def rename_remote(self, old: str, new: str) -> None:
        """Give a remote another name; what is remembered of it goes along."""
        url = self._url(old)
        if new in self.remotes():
            raise RemoteExists(new)
        with self._storage.lock():
            write_remote(self._storage.files, new, url)
            with self._storage.transaction() as transaction:
                for ref, oid in self._storage.refs.list(f"{REMOTES}{old}/"):
                    renamed = RefName(f"{REMOTES}{new}/{ref.removeprefix(f'{REMOTES}{old}/')}")
                    transaction.move(ref, oid, None, f"rename remote to {new}")
                    transaction.move(renamed, None, oid, f"rename remote from {old}")
            write_remote(self._storage.files, old, None)

    def tracked(self) -> Iterator[Tracked]:
        """Our conversations beside where remotes have them, as far as we know."""
        from objstore.chain import Chains  # noqa: PLC0415
        from objstore.transfer.report import Tracked  # noqa: PLC0415

        refs = self._storage.refs
        chains = Chains(self._storage.database, self._storage.index)
        for ref, oid in refs.list(REMOTES):
            remote, kind, name = ref.removeprefix(REMOTES).split("/", 2)
            ours = refs.resolve(RefName(CONVERSATIONS + name)) if kind == "conversations" else None
            if ours is not None:
                common = chains.depth(chains.common_ancestor(NodeId(ours), NodeId(oid)))
                ahead, behind = (chains.depth(NodeId(each)) - common for each in (ours, oid))
                yield Tracked(remote, name, NodeId(oid), ahead, behind)

    # -- sync -------------------------------------------------------------------------------------

    def fetch(
        self,
        remote: str = ORIGIN,
        *,
        dry_run: bool = False,
        options: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> Report:
        """Bring what a remote has here. No conversation moves: heads are remembered as `remotes/<remote>/…`.

        All that comes is checked before anything of it is visible: raises `BadTransfer` for what can't be
        believed. Interrupted, run it again.
        """
        from objstore.transfer.fetch import fetch  # noqa: PLC0415

        with self._connected(self._url(remote), options, progress=progress) as opened:
            return fetch(self._storage, opened, remote, dry_run=dry_run, progress=progress).report

    def pull(
        self,
        remote: str = ORIGIN,
        names: Collection[str] = (),
        *,
        fork: bool = False,
        dry_run: bool = False,
        options: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> Report:
        """Fetch, then bring our conversations (or some `names`) up to the remote's where they only went on.

        Where both went on, ours stays and the report says so; with `fork` theirs becomes a conversation of
        its own. A dry run tells what a fetch would bring.
        """
        with self._connected(self._url(remote), options, progress=progress) as opened:
            return self._join(opened, remote, names, fork, dry_run, progress)

    def push(
        self,
        remote: str = ORIGIN,
        names: Sequence[str] = (),
        *,
        everything: bool = False,
        tags: bool | Sequence[str] = False,
        force: NodeId | None = None,
        delete: bool = False,
        dry_run: bool = False,
        options: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> Report:
        """Send conversations, their descriptions and (all or some) tags, and move the remote's heads forward.

        `everything` sends all conversations, and the calls that belong to none. No head is lost: what isn't
        an advance is refused, unless `force` names the head that one conversation may lose. `delete` takes
        the names away there instead. Raises `NoSuchRef`.
        """
        from objstore.transfer import push as pushing  # noqa: PLC0415

        refs = [conversation_ref(name) for name in names]
        if everything:
            refs = [ref for ref, _ in self._storage.refs.list(CONVERSATIONS)]
        if not isinstance(tags, bool):
            refs += [tag_ref(name) for name in tags]
        elif tags:
            refs += [ref for ref, _ in self._storage.refs.list(TAGS)]
        with self._connected(self._url(remote), options, create=True, progress=progress) as opened:
            if delete:
                return pushing.delete(self._storage, opened, remote, refs, dry_run=dry_run)
            return pushing.push(
                self._storage,
                opened,
                remote,
                refs,
                everything=everything,
                force=force,
                dry_run=dry_run,
                progress=progress,
            )

    def merge_from(
        self,
        other: str | os.PathLike[str] | StoreSync,
        names: Collection[str] = (),
        *,
        fork: bool = False,
        dry_run: bool = False,
        options: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> Report:
        """Take all that another store has (or some conversations), as `pull` does, without making it a remote.

        Heads that part from ours are kept as `remotes/<the other store's id>/…`.
        """
        from objstore.transfer.connect import address  # noqa: PLC0415

        url = address(other._storage.files.root if isinstance(other, StoreSync) else other)
        with self._connected(url, options, progress=progress) as opened:
            return self._join(opened, opened.id, names, fork, dry_run, progress, track_all=False)

    @classmethod
    def clone(
        cls,
        url: str | os.PathLike[str],
        path: str | os.PathLike[str],
        *,
        clock: Clock = clocks.now,
        notice: Notice | None = None,
        options: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> tuple[Self, Report]:
        """A new store in the folder `path` with all that is at an address, which is its remote `origin`.

        A clone that was interrupted is completed by the same call. Raises `StoreExists` for any other store.
        """
        from objstore.transfer.connect import address  # noqa: PLC0415

        url = address(url)
        try:
            store = cls.init(path, clock=clock, notice=notice)  # type: ignore[attr-defined]
        except StoreExists:
            store = cls.open(path, clock=clock, notice=notice)  # type: ignore[attr-defined]
            if store.remotes() != {ORIGIN: url} and (store.remotes() or any(store.refs())):
                store.close()
                raise
        made: Self = store
        try:
            with made._connected(url, options, progress=progress) as opened:
                with made._storage.lock():
                    write_remote(made._storage.files, ORIGIN, url)
                report = made._join(opened, ORIGIN, (), False, False, progress)
            made._choose_current()
        except BaseException:
            made._storage.close()
            raise
        return made, report

    # -- inside -----------------------------------------------------------------------------------

    def _join(
        self,
        opened: Remote,
        label: str,
        names: Collection[str],
        fork: bool,
        dry_run: bool,
        progress: Progress | None,
        *,
        track_all: bool = True,
    ) -> Report:
        from objstore.transfer.fetch import fetch, forget  # noqa: PLC0415
        from objstore.transfer.integrate import integrate  # noqa: PLC0415

        here = self._storage
        fetched = fetch(here, opened, label, names=names, track_all=track_all, dry_run=dry_run, progress=progress)
        if not dry_run:
            fetched.report.join(integrate(here, label, fetched.refs, names=names, fork=fork))
            if not track_all:
                forget(here, label)
                ours = [moved for moved in fetched.report.moved if not moved.ref.startswith(REMOTES)]
                fetched.report.moved = ours
        return fetched.report

    def _choose_current(self) -> None:
        """The conversation `main`, or the first there is, where the current one has no message."""
        refs = self._storage.refs
        if refs.resolve(refs.head()) is None:
            first = next(iter(refs.list(CONVERSATIONS)), None)
            if first is not None:
                with self._storage.lock():
                    refs.set_head(first[0])

    def _url(self, remote: str) -> str:
        url = self.remotes().get(remote)
        if url is None:
            raise NoSuchRemote(remote)
        return url

    @contextlib.contextmanager
    def _connected(
        self,
        url: str,
        options: Mapping[str, str] | None,
        *,
        create: bool = False,
        progress: Progress | None = None,
    ) -> Iterator[Remote]:
        from objstore.transfer.connect import connect  # noqa: PLC0415

        storage = self._storage
        remote = connect(url, storage, notice=storage.notice, options=options, create=create, progress=progress)
        try:
            yield remote
        finally:
            remote.close()
