"""Files: created, replaced, placed and locked as promised, and nothing opened that isn't a regular file."""

import multiprocessing
import os
import stat
import threading

import pytest

from refs.errors import CorruptFile, LimitExceeded, StorageFailure
from refs.files import TEMP_PREFIX, Files

FORK = multiprocessing.get_context("fork")
SPAWN = multiprocessing.get_context("spawn")


class Recorded(Files):
    """Files that write down their primitives, and can let one of them fail."""

    def __init__(self, root):
        super().__init__(root)
        self.steps = []
        self.broken = None

    def _step(self, what, name):
        self.steps.append((what, "temp" if TEMP_PREFIX in name else name))
        if what == self.broken:
            raise StorageFailure(name, OSError(28, "No space left on device"))

    def _create(self, name):
        self._step("create", name)
        return super()._create(name)

    def _write(self, name, fd, offset, data):
        self._step("write", name)
        super()._write(name, fd, offset, data)

    def _sync(self, name, fd):
        self._step("sync", name)
        super()._sync(name, fd)

    def rename(self, old, new):
        self._step("rename", new)
        super().rename(old, new)

    def sync_dir(self, name):
        self._step("sync_dir", name)
        super().sync_dir(name)


@pytest.fixture
def files(tmp_path):
    return Recorded(tmp_path)


def test_replace_writes_and_syncs_before_the_name_changes_and_the_folder_after(files):
    files.replace("a", b"one")
    assert files.steps == [
        ("create", "temp"),
        ("write", "temp"),
        ("sync", "temp"),
        ("rename", "a"),
        ("sync_dir", ""),
    ]
    files.replace("a", b"two")
    assert files.read("a", 10) == b"two"
    assert files.entries("") == [("a", False)]


def test_replace_without_durability_syncs_nothing(files):
    files.replace("a", b"one", durable=False)
    assert files.steps == [("create", "temp"), ("write", "temp"), ("rename", "a")]


@pytest.mark.parametrize("broken", ["write", "sync", "rename"])
def test_a_failed_replace_leaves_the_old_file_and_no_temporary_one(files, broken):
    files.replace("a", b"old")
    files.broken = broken
    with pytest.raises(StorageFailure, match="No space"):
        files.replace("a", b"new")
    assert files.read("a", 10) == b"old"
    assert files.entries("") == [("a", False)]


def test_publish_gives_a_temporary_file_its_name(files):
    handle = files.create_temp("sub")
    handle.write_at(0, b"data")
    files.publish(handle, "sub/a")
    assert files.entries("sub") == [("a", False)]
    assert handle.fd == -1
    assert files.steps[-3:] == [("sync", "temp"), ("rename", "sub/a"), ("sync_dir", "sub")]


def test_place_creates_once_and_tells(files):
    assert files.place("sub/a", b"one")
    assert not files.place("sub/a", b"two")
    assert files.read("sub/a", 10) == b"one"
    assert ("sync", "sub/a") not in files.steps


def test_a_failed_place_takes_its_half_away(files):
    files.broken = "write"
    with pytest.raises(StorageFailure):
        files.place("a", b"one")
    assert files.entries("") == []


def test_files_and_folders_are_for_their_owner_only(files, tmp_path):
    files.place("sub/a", b"one")
    files.replace("sub/b", b"one")
    assert stat.S_IMODE((tmp_path / "sub").stat().st_mode) == 0o700
    for name in "ab":
        assert stat.S_IMODE((tmp_path / "sub" / name).stat().st_mode) == 0o600


def test_make_dirs_makes_what_is_missing_from_the_top_and_syncs_each_name(files, tmp_path):
    files.make_dirs("a")
    files.steps.clear()
    files.make_dirs("a/b/c")
    assert (tmp_path / "a/b/c").is_dir()
    assert files.steps == [("sync_dir", "a"), ("sync_dir", "a/b")]
    files.steps.clear()
    files.make_dirs("a/b/c")
    assert files.steps == []


def test_a_file_where_a_folder_should_be_is_an_error(files):
    files.place("a", b"")
    with pytest.raises(StorageFailure):
        files.make_dirs("a/b")
    assert files.read_or_none("a/b", 10) is None
    assert files.stat("a/b") is None


def test_remove_and_remove_dir_tell_whether_they_did(files, tmp_path):
    files.place("sub/a", b"")
    assert not files.remove_dir("sub")
    assert files.remove("sub/a")
    assert not files.remove("sub/a")
    assert files.remove_dir("sub")
    assert not files.remove_dir("sub")


def test_positioned_writes_and_reads(files):
    with files.open_rw("a") as handle:
        handle.write_at(3, b"def")
        handle.write_at(0, b"abc")
        assert handle.read_at(1, 4) == b"bcde"
        assert handle.read_at(4, 100) == b"ef"
        handle.truncate(2)
        assert handle.size() == 2
    with files.open_rw("a") as handle:
        assert handle.read_at(0, 10) == b"ab"


def test_a_file_over_the_limit_is_not_read(files):
    files.place("a", b"x" * 11)
    assert files.read("a", 11) == b"x" * 11
    with pytest.raises(LimitExceeded) as caught:
        files.read("a", 10)
    assert (caught.value.actual, caught.value.bound) == (11, 10)


def test_what_is_missing_is_missing(files):
    assert files.read_or_none("a", 10) is None
    assert files.entries("a") == []
    assert list(files.walk("a")) == []
    with pytest.raises(FileNotFoundError):
        files.open_read("a")
    with pytest.raises(FileNotFoundError):
        files.open_rw_existing("a")
    files.sync("a")


def test_walk_names_all_files_below_a_folder(files):
    for name in ("r/b", "r/a/x", "r/a/y/z", "s"):
        files.place(name, b"")
    assert sorted(files.walk("r")) == ["r/a/x", "r/a/y/z", "r/b"]
    assert "s" in set(files.walk(""))


@pytest.mark.parametrize("opened", [Files.open_read, Files.open_rw, Files.open_rw_existing])
@pytest.mark.parametrize("kind", ["link", "dangling", "pipe"])
def test_links_and_pipes_are_refused_rather_than_followed_or_waited_for(tmp_path, opened, kind):
    secret = tmp_path / "secret"
    secret.write_bytes(b"keep out")
    if kind == "pipe":
        os.mkfifo(tmp_path / "a")
    else:
        (tmp_path / "a").symlink_to(secret if kind == "link" else tmp_path / "nowhere")
    with pytest.raises(CorruptFile, match="not a regular file"):
        opened(Files(tmp_path), "a")
    assert secret.read_bytes() == b"keep out"
    assert not (tmp_path / "nowhere").exists()


def test_create_never_writes_through_a_link(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "target")
    assert not Files(tmp_path).place("a", b"x")
    assert not (tmp_path / "target").exists()


# -- the lock -------------------------------------------------------------------------------------


def _try_lock(root, answers):
    with Files(root).lock("lock", wait=False) as held:
        answers.put(held)


def _count_up(root, rounds):
    files = Files(root)
    for _ in range(rounds):
        with files.lock("lock"):
            count = int(files.read("count", 20))
            files.replace("count", str(count + 1).encode(), durable=False)


def _in_child(context, target, *args):
    answers = context.Queue()
    child = context.Process(target=target, args=(*args, answers))
    child.start()
    answer = answers.get(timeout=60)
    child.join(60)
    assert child.exitcode == 0
    return answer


def test_another_process_gets_the_lock_only_after_it_was_given_back(tmp_path):
    files = Files(tmp_path)
    with files.lock("lock") as held:
        assert held
        assert files.lock_depth
        assert _in_child(SPAWN, _try_lock, tmp_path) is False
    assert not files.lock_depth
    assert _in_child(SPAWN, _try_lock, tmp_path) is True


def test_two_processes_that_count_under_the_lock_lose_nothing(tmp_path):
    Files(tmp_path).place("count", b"0")
    children = [SPAWN.Process(target=_count_up, args=(tmp_path, 100)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join(120)
        assert child.exitcode == 0
    assert Files(tmp_path).read("count", 20) == b"200"


def test_two_objects_of_one_process_exclude_each_other(tmp_path):
    with Files(tmp_path).lock("lock"), Files(tmp_path).lock("lock", wait=False) as held:
        assert not held


def test_the_lock_is_reentrant_in_a_thread_and_excludes_others(tmp_path):
    files = Files(tmp_path)
    seen = []

    def other():
        with files.lock("lock", wait=False) as held:
            seen.append(held)

    with files.lock("lock"):
        with files.lock("lock") as again:
            assert again
        assert _in_child(SPAWN, _try_lock, tmp_path) is False  # the inner end gave nothing back
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(60)
    assert seen == [False]


def test_an_error_gives_the_lock_back(tmp_path):
    with pytest.raises(RuntimeError), Files(tmp_path).lock("lock"):
        raise RuntimeError
    assert _in_child(SPAWN, _try_lock, tmp_path) is True


def test_a_killed_process_leaves_no_stale_lock(tmp_path):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with Files(tmp_path).lock("lock"):
            os.write(writer, b"x")
            threading.Event().wait(60)
        os._exit(0)
    assert os.read(reader, 1) == b"x"
    with Files(tmp_path).lock("lock", wait=False) as held:
        assert not held
    os.kill(child, 9)
    os.waitpid(child, 0)
    with Files(tmp_path).lock("lock", wait=False) as held:
        assert held


def _lock_inherited(files, answers):
    with files.lock("lock", wait=False) as held:
        answers.put((files.lock_depth, held))


def test_a_forked_child_does_not_share_its_parents_lock(tmp_path):
    files = Files(tmp_path)
    with files.lock("lock"):
        assert _in_child(FORK, _lock_inherited, files) == (False, False)
        assert _in_child(SPAWN, _try_lock, tmp_path) is False  # the child's end didn't give it back
    assert _in_child(FORK, _lock_inherited, files) == (True, True)


def test_a_child_that_leaves_the_parents_with_block_does_not_end_the_lock(tmp_path):
    files = Files(tmp_path)
    child = 0
    with files.lock("lock"):
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
            with Files(tmp_path).lock("lock", wait=False) as held:
                assert not held
    if child == 0:
        os._exit(1 if files.lock_depth else 0)


def test_a_child_does_not_keep_a_dead_parents_lock_alive(tmp_path):
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:
        files = Files(tmp_path)
        with files.lock("lock"):
            if os.fork() == 0:
                os.write(writer, b"x")
                threading.Event().wait(2)
            os._exit(0)
    os.waitpid(parent, 0)
    assert os.read(reader, 1) == b"x"
    with Files(tmp_path).lock("lock", wait=False) as held:
        assert held


def test_a_fork_while_another_thread_holds_the_lock_does_not_hang_the_child(tmp_path):
    files = Files(tmp_path)
    held, done = threading.Event(), threading.Event()

    def hold():
        with files.lock("lock"):
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    try:
        assert _in_child(FORK, _lock_inherited, files) == (False, False)
    finally:
        done.set()
        thread.join(60)


def test_close_can_come_again_and_the_lock_works_afterwards(tmp_path):
    files = Files(tmp_path)
    with files.lock("lock"):
        pass
    files.close()
    files.close()
    with files.lock("lock") as held:
        assert held
