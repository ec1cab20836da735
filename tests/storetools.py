"""What the tests of the store share: short messages, a clock that only goes forward, a store that never waits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from objstore.canonical import canonical_message_json
from objstore.kinds import Kind
from objstore.message import Message
from objstore.scan import Notice
from objstore.storage import Storage
from objstore.store import Store
from refs.errors import DagError
from refs.files import Files
from refs.ids import Oid


def say(words: str, role: str = "user") -> Message:
    return Message.of(role, words)


def talk(*words: str) -> list[Message]:
    """A conversation, the user first."""
    return [say(text, "assistant" if i % 2 else "user") for i, text in enumerate(words)]


def words_of(messages: Iterable[Message]) -> list[str]:
    return [message.text for message in messages]


def ticking(start: int = 0) -> Callable[[], str]:
    """A clock that goes a millisecond further each time it is asked."""
    ticks = itertools.count(start)

    def now() -> str:
        seconds, millis = divmod(next(ticks), 1000)
        minutes, seconds = divmod(seconds, 60)
        return f"2026-01-02T{minutes // 60:02}:{minutes % 60:02}:{seconds:02}.{millis:03}Z"

    return now


class QuietFiles(Files):
    """Files that don't wait for the disk: for looking at what a crash has left."""

    def _sync(self, name: str, fd: int) -> None:
        pass

    def sync_dir(self, name: str) -> None:
        pass


def quiet_store(path, notice: Notice = lambda _: None, clock: Callable[[], str] | None = None) -> Store:
    """The store in a folder, opened without waiting for the disk."""
    return Store(Storage.open(QuietFiles(path), clock or ticking(3_600_000), notice))


def init_quiet(path, clock: Callable[[], str] | None = None) -> Store:
    """A new store in a folder, made without waiting for the disk."""
    files = QuietFiles(path)
    return Store(Storage.create(files, "01J00000000000000000000000", clock or ticking(), lambda _: None))


def indexed(store: Store) -> set[tuple[str, Oid]]:
    """(kind, id) of everything the index holds."""
    return {(kind.value, oid) for kind in Kind for oid in store.storage.database.ids(kind)}


def picture(store: Store) -> dict[str, object]:
    """Everything that a transaction makes visible, read back through the facade: equal for equal stores."""
    seen: dict[str, object] = {"current": store.current()}
    for ref, oid in store.refs():
        if ref.startswith("refs/descriptions/"):
            told = store.description(ref.removeprefix("refs/descriptions/"))
            seen[ref] = told and told.to_dict()
        else:
            seen[ref] = [canonical_message_json(message) for message in store.load_chain(oid)]
    seen["reflog"] = [(e.time, e.ref, e.old, e.new, e.reason) for e in store.reflog()]
    return seen


def outcome(act: Callable[[], object]) -> object:
    """What an act gives, or the error it raises where that is one of ours."""
    try:
        return act()
    except DagError as error:
        return error
