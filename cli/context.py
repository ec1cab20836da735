"""What every command starts from: which store, which conversation, which node."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

import click

from cli.failures import say
from cli.render import Screen
from refs.errors import StoreNotFound, UnknownRevision, UnsafeStore
from refs.names import conversation_ref, short_name

if TYPE_CHECKING:
    from objstore.store import Store
    from refs.ids import NodeId

FOLDER: Final = ".dag"
_CONFIG: Final = "config"
_CURRENT: Final = re.compile(r"(?:HEAD|@)?(?=[~^]|@\{|\Z)")  # how a revision names the current conversation


def find_store(given: str | None, environ: Mapping[str, str], start: str) -> str:
    """The store's folder: the one named, the nearest upward of `start`, or the user's own.

    Raises `StoreNotFound`, and `UnsafeStore` for one found upward that belongs to another user: whoever can
    write above this folder could otherwise choose what is read here.
    """
    named = given or environ.get("DAG_DIR")
    if named:
        return _inside(named)
    folder = start
    while True:
        candidate = os.path.join(folder, FOLDER)
        if _is_store(candidate):
            for owner in (os.lstat(candidate).st_uid, os.stat(candidate).st_uid):
                if owner != os.geteuid():
                    raise UnsafeStore(candidate, owner)
            return candidate
        above = os.path.dirname(folder)
        if above == folder:
            break
        folder = above
    own = _inside(user_store(environ))
    if _is_store(own):
        return own
    raise StoreNotFound(f"{start} or above it")


def user_store(environ: Mapping[str, str]) -> str:
    """Where the user's own store is, if there is one."""
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Application Support/msgdag")
    data = environ.get("XDG_DATA_HOME", "")
    # A relative path is to be ignored: XDG base directory specification.
    return os.path.join(data if os.path.isabs(data) else os.path.expanduser("~/.local/share"), "msgdag")


def _inside(path: str) -> str:
    """The store that a path names: the folder itself, or the `.dag` in it."""
    below = os.path.join(path, FOLDER)
    return below if _is_store(below) else path


def _is_store(path: str) -> bool:
    return os.path.isfile(os.path.join(path, _CONFIG))


class App:
    """One run of the program. Opens its store when that is first asked for."""

    def __init__(self, given: str | None, environ: Mapping[str, str]) -> None:
        self.given, self.environ = given, environ
        self._close: Callable[[], None] = lambda: None

    def __enter__(self) -> App:
        if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that can't show a character shows its number
            sys.stdout.reconfigure(errors="backslashreplace")
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    @cached_property
    def screen(self) -> Screen:
        return Screen(self.environ)

    @cached_property
    def store(self) -> Store:
        path = find_store(self.given, self.environ, os.getcwd())
        from objstore.store import Store  # noqa: PLC0415  not before there is a store to open

        store = Store.open(path, notice=say)
        self._close = store.close
        return store

    @property
    def current(self) -> str:
        """The name of the current conversation."""
        return self.environ.get("DAG_CONVERSATION") or self.store.current()

    def resolve(self, revision: str | None = None) -> NodeId:
        """The node that a revision names; without one, the head of the current conversation."""
        revision = "HEAD" if revision is None else revision
        found = _CURRENT.match(revision)
        if found is not None:
            name = self.current
            if self.store.head(name) is None and "@{" not in revision:
                raise UnknownRevision(revision, f"the conversation {name!r} has no message yet")
            revision = short_name(conversation_ref(name)) + revision[found.end() :]
        return self.store.resolve(revision)


pass_app: Final = click.make_pass_decorator(App)
