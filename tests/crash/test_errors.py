"""The disk refuses: at each file operation in turn, once or from there on, until there is none left to fail."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from objstore.attachment import Attachment
from objstore.message import AttachmentPart, Message
from objstore.storage import Storage
from objstore.store import Store
from refs.errors import DagError, StorageFailure
from refs.files import Bytes
from tests.storetools import QuietFiles, init_quiet, picture, quiet_store, say, talk, ticking, words_of


class FaultyFiles(QuietFiles):
    """Files of a disk that refuses the `at`-th operation from now, or with `lasting` all from there on."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.count = 0
        self._at = 0
        self._code = 0
        self._lasting = False

    def arm(self, at: int, code: int, lasting: bool) -> None:
        self.count, self._at, self._code, self._lasting = 0, at, code, lasting

    def disarm(self) -> None:
        self._at = 0

    def _failing(self) -> bool:
        self.count += 1
        return bool(self._at) and (self.count >= self._at if self._lasting else self.count == self._at)

    def _error(self, name: str) -> StorageFailure:
        return StorageFailure(self.path(name), OSError(self._code, os.strerror(self._code)))

    def _check(self, name: str) -> None:
        if self._failing():
            raise self._error(name)

    def _open(self, name: str, flags: int) -> int:
        self._check(name)
        return super()._open(name, flags)

    def _write(self, name: str, fd: int, offset: int, data: Bytes) -> None:
        if self._failing():
            super()._write(name, fd, offset, bytes(data)[: len(data) // 2])
            raise self._error(name)
        super()._write(name, fd, offset, data)

    def _truncate(self, name: str, fd: int, size: int) -> None:
        self._check(name)
        super()._truncate(name, fd, size)

    def _sync(self, name: str, fd: int) -> None:
        self._check(name)

    def sync_dir(self, name: str) -> None:
        self._check(name)

    def rename(self, old: str, new: str) -> None:
        self._check(new)
        super().rename(old, new)

    def remove(self, name: str) -> bool:
        self._check(name)
        return super().remove(name)

    def mkdir(self, name: str) -> bool:
        self._check(name)
        return super().mkdir(name)

    def remove_dir(self, name: str) -> bool:
        self._check(name)
        return super().remove_dir(name)

    def pread(self, name: str, fd: int, offset: int, size: int) -> bytes:
        self._check(name)
        return super().pread(name, fd, offset, size)

    def stat(self, name: str) -> os.stat_result | None:
        self._check(name)
        return super().stat(name)

    def entries(self, name: str) -> list[tuple[str, bool]]:
        self._check(name)
        return super().entries(name)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("errors") / "base"
    store = init_quiet(path)
    long = store.commit("long", [say(f"line {i}") for i in range(70)])
    store.commit("main", talk("hello", "hi"))
    store.describe("main", title="Greetings")
    store.fork(long, "side")
    with store.storage.lock():
        store.storage.refs.pack()
    store.commit("main", [say("how are you?")])
    store.storage.index.close()  # without a checkpoint: the journal is in use
    return path


def small_commit(store: Store) -> None:
    part = AttachmentPart(Attachment(content=bytes(6000)))
    store.commit("main", [*talk("fine", "good"), Message("user", (part,))])


def large_commit(store: Store) -> None:
    store.commit("main", [say(f"more {i}") for i in range(66)])


def checkpoint(store: Store) -> None:
    store.storage.checkpoint()


def fork(store: Store) -> None:
    store.fork(store.resolve("long~3"), "branch", title="A branch")


def delete(store: Store) -> None:
    store.delete("main")


def rename(store: Store) -> None:
    store.rename("main", "renamed")


def pack(store: Store) -> None:
    store.pack()


def pack_refs(store: Store) -> None:
    with store.storage.lock():
        store.storage.refs.pack()


def archive_moves(store: Store) -> None:
    """Refs and moves with such long names that both stand in gzip members."""
    with store.storage.transaction() as transaction:
        for i in range(70):
            transaction.move(f"refs/conversations/{'long' * 45}/{i}", None, store.head("main"), "fork")
    with store.storage.lock():
        store.storage.checkpoint()
        store.storage.refs.reflog.compact()


def open_store(path: Path) -> tuple[FaultyFiles, Store]:
    files = FaultyFiles(path)
    return files, Store(Storage.open(files, ticking(60_000), lambda _: None))


def expected(base: Path, act: Callable[[Store], None], folder: Path) -> list[dict[str, object]]:
    """What may be seen: the state before, and the state behind it. HEAD follows a rename as a step of its own."""
    shutil.copytree(base, folder)
    with quiet_store(folder, clock=ticking(60_000)) as store:
        before = picture(store)
        act(store)
        after = picture(store)
    return [before, after, {**after, "current": before["current"]}]


def faults() -> Iterator[tuple[int, bool]]:
    """Which error, and whether it lasts, in turn."""
    return itertools.cycle(
        [(errno.EIO, False), (errno.ENOSPC, True), (errno.EACCES, False), (errno.EIO, True), (errno.ENOSPC, False)]
    )


@pytest.mark.parametrize(
    "act",
    [small_commit, large_commit, checkpoint, fork, delete, rename, pack, pack_refs, archive_moves],
    ids=lambda a: a.__name__,
)
def test_an_error_leaves_the_old_state_or_the_new_one_and_the_store_works_on(act, base, tmp_path):
    allowed = expected(base, act, tmp_path / "expected")
    refused = 0
    for at, (code, lasting) in zip(range(1, 10_000), faults(), strict=False):
        folder = tmp_path / "work"
        shutil.copytree(base, folder)
        files, store = open_store(folder)
        where = f"operation {at}: {errno.errorcode[code]}{', lasting' if lasting else ''}"
        try:
            with store:
                files.arm(at, code, lasting)
                try:
                    act(store)
                except DagError as error:
                    refused += 1
                    assert isinstance(error, StorageFailure), repr(error)
                    assert os.strerror(code) in str(error)
                reached = files.count >= at
                files.disarm()
                if not lasting:
                    assert picture(store) in allowed
                head = store.commit("after", talk("it", "works"))
                assert words_of(store.load_chain(head)) == ["it", "works"]
                seen = picture(store)
            with quiet_store(folder) as again:
                assert picture(again) == seen
                head = again.commit("after", [say("again")])
                if at % 10 == 0:
                    assert not [each for each in again.fsck() if each.severity.name == "ERROR"]
                again.delete("after")
                left = picture(again)
                left["reflog"] = [each for each in left["reflog"] if each[1] != "refs/conversations/after"]
                assert left in allowed
        except BaseException as error:
            error.add_note(where)
            raise
        shutil.rmtree(folder)
        if not reached:
            break
    assert refused
    print(f"\n{act.__name__}: {at - 1} operations refused in turn, {refused} times the caller was told")


def test_opening_fails_clearly_or_works_whatever_is_refused(base, tmp_path):
    wanted = picture(quiet_store(base))
    for at, (code, lasting) in zip(range(1, 10_000), faults(), strict=False):
        files = FaultyFiles(base)
        files.arm(at, code, lasting)
        try:
            store = Store(Storage.open(files, ticking(), lambda _: None))
        except DagError as error:
            assert os.strerror(code) in str(error)
            files.disarm()
            files.close()
            continue
        reached = files.count >= at
        files.disarm()
        assert picture(store) == wanted
        store.close()
        if not reached:
            break
    assert at > 3


def test_init_fails_clearly_and_can_be_done_again_whatever_is_refused(tmp_path):
    for at, (code, lasting) in zip(range(1, 10_000), faults(), strict=False):
        folder = tmp_path / f"store-{at}"
        files = FaultyFiles(folder)
        files.arm(at, code, lasting)
        try:
            store = Store(Storage.create(files, "01J00000000000000000000000", ticking(), lambda _: None))
        except DagError:
            files.disarm()
            files.close()
            store = init_quiet(folder) if not (folder / "config").exists() else quiet_store(folder)
        reached = files.count >= at
        files.disarm()
        store.commit("main", talk("hello"))
        assert words_of(store.conversation("main").messages()) == ["hello"]
        store.close()
        if not reached:
            break
    assert at > 20


@pytest.mark.parametrize("act", [small_commit, large_commit, fork], ids=lambda act: act.__name__)
def test_a_full_disk_under_the_index_stops_nobody(act, base, tmp_path):
    """What the journal took is committed: the index goes on in memory, or the old state stays."""
    folder = tmp_path / "work"
    shutil.copytree(base, folder)
    after = expected(base, act, tmp_path / "expected")[1]
    with quiet_store(folder, clock=ticking(60_000)) as store:
        with store.storage.index.reading() as db:
            pages = db.execute("PRAGMA page_count").fetchone()[0]
            db.execute(f"PRAGMA max_page_count={pages}")
        for turn in range(60):  # until the pages in use are full
            store.commit("fill", [say(f"fill {turn}.{i}") for i in range(10)])
        assert len(store.conversation("fill").messages()) == 600
        assert store.storage.index.in_memory
        store.delete("fill")
        seen = picture(store)
        try:
            act(store)
        except StorageFailure:
            assert picture(store) == seen
        if picture(store) == seen:
            act(store)
        for name, value in after.items():
            if name != "reflog" and not name.startswith("refs/descriptions/"):  # those tell the time
                assert picture(store)[name] == value
        seen = picture(store)
    with quiet_store(folder) as again:
        assert picture(again) == seen
        assert not [each for each in again.fsck() if each.severity.name == "ERROR"]


@pytest.mark.parametrize("name", ["index.sqlite-shm", ".tmp-index.sqlite"])
def test_a_store_is_opened_where_there_is_no_room_for_an_index(name, base, tmp_path):
    """A folder stands where SQLite must make a file: for its log, or for a new index."""
    folder = tmp_path / "work"
    shutil.copytree(base, folder)
    if name.startswith(".tmp"):
        (folder / "index.sqlite").unlink()
    (folder / name).mkdir()
    notices = []
    with quiet_store(folder, notices.append) as store:
        seen = picture(store)
        head = store.commit("new", talk("one", "two"))
        assert store.depth(head) == 2
    (folder / name).rmdir()
    assert "Traceback" not in "".join(notices)
    with quiet_store(folder) as again:
        assert not again.storage.index.in_memory
        assert again.depth(head) == 2
        assert picture(again).items() >= {key: seen[key] for key in seen if key != "reflog"}.items()
        assert not [each for each in again.fsck() if each.severity.name == "ERROR"]


@pytest.mark.parametrize("steps", range(1, 40, 3))
def test_an_index_that_gives_up_at_the_beginning_of_a_change_holds_nobody_up(steps, base, tmp_path):
    """SQLite may have begun it all the same."""
    folder = tmp_path / "work"
    shutil.copytree(base, folder)
    with quiet_store(folder, clock=ticking(60_000)) as store:
        store.commit("new", talk("one", "two"))
        left = [steps]

        def give_up() -> bool:
            left[0] -= 1
            return left[0] == 0

        store.storage.index._connection().set_progress_handler(give_up, 1)
        with contextlib.suppress(StorageFailure), store.storage.index.reading():
            pass
        store.storage.index._connection().set_progress_handler(None, 0)
        assert len(store.children(store.resolve("new~1"))) == 1
        store.commit("new", talk("three"))
    with quiet_store(folder) as again:
        assert len(again.conversation("new").messages()) == 3
        assert not [each for each in again.fsck() if each.severity.name == "ERROR"]


@pytest.mark.parametrize("act", [small_commit, large_commit, fork, delete], ids=lambda act: act.__name__)
def test_an_index_that_gives_up_at_any_moment_leaves_the_old_state_or_the_new_one(act, base, tmp_path):
    allowed = expected(base, act, tmp_path / "expected")
    for at in itertools.count(1):
        folder = tmp_path / "work"
        shutil.copytree(base, folder)
        with quiet_store(folder, clock=ticking(60_000)) as store:
            left = [at * (1 if at < 10 else 5)]

            def give_up(left=left) -> bool:
                left[0] -= 1
                return left[0] == 0

            with store.storage.index.reading() as db:
                db.set_progress_handler(give_up, 2)  # asked every 2 steps of SQLite's machine
            refused = False
            try:
                act(store)
            except DagError as error:
                refused = True
                assert isinstance(error, StorageFailure)
            store.storage.index._connection().set_progress_handler(None, 0)
            seen = picture(store)
            assert seen in allowed
            store.commit("after", talk("works"))
        shutil.rmtree(folder)
        if not refused:
            break
    assert at > 3
