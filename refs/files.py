"""The only module that touches the file system's bytes: durable create, replace, append, lock.

Every change goes through one of the ten methods under "primitives", so that a test can record them,
cut the power between two of them, or let the n-th one fail. Names are relative to the root, with `/`.

Durability, in one place: a *published* or *replaced* file is written under a temporary name in the same
folder, synced, renamed, and its folder synced; after a crash it is there whole or not at all. A *placed*
file is written straight under its final name and not synced: only for what the journal can write again,
and what readers verify.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from refs.errors import CorruptFile, LimitExceeded, StorageFailure
from refs.forks import renew_after_fork

if TYPE_CHECKING:
    from pathlib import Path

TEMP_PREFIX: Final = ".tmp-"
_NOFOLLOW: Final = os.O_NOFOLLOW | os.O_CLOEXEC
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR})


Bytes = bytes | bytearray | memoryview


class Handle:
    """An open file of a `Files`: positioned writes, sync, truncate. A context manager."""

    __slots__ = ("__weakref__", "_files", "fd", "name")

    def __init__(self, files: Files, name: str, fd: int) -> None:
        self._files, self.name, self.fd = files, name, fd

    def write_at(self, offset: int, data: Bytes) -> None:
        """Write all of `data` at `offset`, or raise `StorageFailure`."""
        self._files._write(self.name, self.fd, offset, data)

    def truncate(self, size: int) -> None:
        self._files._truncate(self.name, self.fd, size)

    def sync(self) -> None:
        """fdatasync: the bytes, and the size, are on the disk on return."""
        self._files._sync(self.name, self.fd)

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; fewer only at the end of the file."""
        return self._files.pread(self.name, self.fd, offset, size)

    def size(self) -> int:
        return self.stat().st_size

    def stat(self) -> os.stat_result:
        """What the file system knows of the open file, whatever has become of its name."""
        return os.fstat(self.fd)

    def lock(self, *, wait: bool) -> bool:
        """Hold the kernel lock on this file until it is closed; False if `wait` is off and somebody holds it.

        A child that is forked meanwhile loses its copy of the open file: the lock ends with this process.
        """
        return self._files._lock_handle(self, wait)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Files:
    """A folder whose files are created, replaced, appended to and locked durably.

    Raises `StorageFailure` where the operating system refuses, `FileNotFoundError` and
    `FileExistsError` as they are. Safe to use from several threads.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._base = os.path.join(os.fspath(root) or ".", "")
        self._lock_state = threading.RLock()
        self._lock_depth = 0
        self._lock_fd = -1
        self._locked: weakref.WeakSet[Handle] = weakref.WeakSet()
        renew_after_fork(self)

    @property
    def root(self) -> Path:
        """The folder."""
        from pathlib import Path  # noqa: PLC0415  5 ms to import, and what reads or writes needs none

        return Path(self._base)

    def path(self, name: str) -> str:
        """Where `name` is on the disk. Names come from constants and parsed ids, never from outside."""
        return self._base + name

    def make_root(self) -> None:
        """Make the root folder (0700) and those above it, durably. Raises `StorageFailure`."""
        missing, here = [], os.path.abspath(self._base)
        while not os.path.isdir(here):
            missing.append(here)
            here = os.path.dirname(here)
        for folder in reversed(missing):
            above = os.path.dirname(folder)
            try:
                os.mkdir(folder, 0o700)
                fd = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
            except OSError as error:
                if not os.path.isdir(folder):  # else another process was faster
                    raise StorageFailure(folder, error) from error

    # -- primitives: each is one step of the crash model ------------------------------------------

    def _create(self, name: str) -> int:
        """A new, empty file; `FileExistsError` if there is one."""
        return self._open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def _open_rw(self, name: str) -> int:
        """An existing or new file for positioned writes."""
        return self._open(name, os.O_RDWR | os.O_CREAT)

    def _write(self, name: str, fd: int, offset: int, data: Bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                done = os.pwrite(fd, view, offset)
                view, offset = view[done:], offset + done
        except OSError as error:
            raise StorageFailure(self.path(name), error) from error

    def _truncate(self, name: str, fd: int, size: int) -> None:
        try:
            os.ftruncate(fd, size)
        except OSError as error:
            raise StorageFailure(self.path(name), error) from error

    def _sync(self, name: str, fd: int) -> None:
        try:
            os.fdatasync(fd)
        except OSError as error:
            raise StorageFailure(self.path(name), error) from error

    def rename(self, old: str, new: str) -> None:
        """Atomically give `old` the name `new`, replacing what was there. Not synced."""
        try:
            os.rename(self.path(old), self.path(new))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StorageFailure(self.path(new), error) from error

    def remove(self, name: str) -> bool:
        """Remove a file; False if it wasn't there. Not synced."""
        try:
            os.unlink(self.path(name))
        except OSError as error:
            if error.errno in _GONE:
                return False
            raise StorageFailure(self.path(name), error) from error
        return True

    def mkdir(self, name: str) -> bool:
        """Make one folder (0700); False if it was there. Not synced."""
        try:
            os.mkdir(self.path(name), 0o700)
        except FileExistsError:
            return False
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StorageFailure(self.path(name), error) from error
        return True

    def remove_dir(self, name: str) -> bool:
        """Remove a folder that is empty; False if it isn't, or isn't there. Not synced."""
        try:
            os.rmdir(self.path(name))
        except OSError as error:
            if error.errno in _GONE or error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise StorageFailure(self.path(name), error) from error
        return True

    def sync_dir(self, name: str) -> None:
        """Make the names in a folder durable: creations, renames and removals."""
        try:
            fd = os.open(self.path(name), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise StorageFailure(self.path(name), error) from error

    # -- reading ----------------------------------------------------------------------------------

    def pread(self, name: str, fd: int, offset: int, size: int) -> bytes:
        try:
            data = os.pread(fd, size, offset)
            while len(data) < size:
                more = os.pread(fd, size - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise StorageFailure(self.path(name), error) from error
        return data

    def open_read(self, name: str) -> Handle:
        """A regular file for reading; `FileNotFoundError` if it isn't there.

        A link, a device or a pipe in its place is refused: opening a pipe would wait for ever.
        """
        return Handle(self, name, self._open(name, os.O_RDONLY | os.O_NONBLOCK))

    def open_rw(self, name: str) -> Handle:
        """A regular file for positioned writes, made if it isn't there."""
        return Handle(self, name, self._open_rw(name))

    def read(self, name: str, limit: int) -> bytes:
        """A whole file of at most `limit` bytes; `LimitExceeded` for a larger one."""
        with self.open_read(name) as handle:
            size = handle.size()
            if size > limit:
                raise LimitExceeded(self.path(name), size, limit)
            return handle.read_at(0, size)

    def read_twice(self, name: str, size: int) -> tuple[bytes, bytes]:
        """Up to `size` bytes of a file, read two times over: they differ where it was overwritten meanwhile."""
        fd = self._open(name, os.O_RDONLY | os.O_NONBLOCK)
        try:
            return os.pread(fd, size, 0), os.pread(fd, size, 0)
        except OSError as error:
            raise StorageFailure(self.path(name), error) from error
        finally:
            os.close(fd)

    def read_or_none(self, name: str, limit: int) -> bytes | None:
        """`read`, or None if there is no such file."""
        try:
            return self.read(name, limit)
        except FileNotFoundError:
            return None

    def stat(self, name: str) -> os.stat_result | None:
        """What the file system knows of a file (links not followed), or None if it isn't there."""
        try:
            return os.lstat(self.path(name))
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise StorageFailure(self.path(name), error) from error

    def entries(self, name: str) -> list[tuple[str, bool]]:
        """(name, is a folder) of what is in a folder, sorted; empty if there is no such folder."""
        try:
            with os.scandir(self.path(name)) as found:
                return sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in found)
        except OSError as error:
            if error.errno in _GONE:
                return []
            raise StorageFailure(self.path(name), error) from error

    def walk(self, name: str) -> Iterator[str]:
        """The names of all files below a folder, relative to the root, sorted within each folder."""
        stack = [name]
        while stack:
            folder = stack.pop()
            below = []
            for entry, is_dir in self.entries(folder):
                path = f"{folder}/{entry}" if folder else entry
                if is_dir:
                    below.append(path)
                else:
                    yield path
            stack.extend(reversed(below))

    # -- changing ---------------------------------------------------------------------------------

    def create(self, name: str) -> Handle:
        """A new file under its final name, its folder made where needed; `FileExistsError` if there is one."""
        try:
            return Handle(self, name, self._create(name))
        except FileNotFoundError:
            self.make_dirs(_folder(name))
            return Handle(self, name, self._create(name))

    def create_temp(self, folder: str) -> Handle:
        """A new file in `folder`, to be published under another name in the same folder."""
        name = f"{TEMP_PREFIX}{os.urandom(8).hex()}"
        return self.create(f"{folder}/{name}" if folder else name)

    def publish(self, handle: Handle, name: str) -> None:
        """Give a finished temporary file its final name, durably, and close it."""
        handle.sync()
        handle.close()
        self.rename(handle.name, name)
        self.sync_dir(_folder(name))

    def replace(self, name: str, data: Bytes, *, durable: bool = True, sync_folder: bool = True) -> None:
        """Create or replace a file whole; on the disk on return with `durable`, its name with `sync_folder`."""
        handle = self.create_temp(_folder(name))
        try:
            handle.write_at(0, data)
            if durable:
                handle.sync()
            handle.close()
            self.rename(handle.name, name)
            if durable and sync_folder:
                self.sync_dir(_folder(name))
        except BaseException:
            handle.close()
            with contextlib.suppress(StorageFailure):  # the first error is the one to tell
                self.remove(handle.name)
            raise

    def place(self, name: str, data: Bytes) -> bool:
        """Create a file under its final name without a sync; False if there is one already.

        Only for what the journal can write again. A failed write takes its half of the file away.
        """
        try:
            handle = self.create(name)
        except FileExistsError:
            return False
        try:
            handle.write_at(0, data)
        except BaseException:
            with contextlib.suppress(StorageFailure):
                self.remove(name)
            raise
        finally:
            handle.close()
        return True

    def touch(self, name: str, at: float | None = None) -> None:
        """Set a file's age, which protects it from gc, to `at` (seconds since 1970) or now. Not synced.

        Nothing happens if it isn't there.
        """
        try:
            os.utime(self.path(name), None if at is None else (at, at))
        except OSError as error:
            if error.errno not in _GONE:
                raise StorageFailure(self.path(name), error) from error

    def sync(self, name: str) -> None:
        """Make an existing file's bytes durable; nothing if it isn't there."""
        with contextlib.suppress(FileNotFoundError), self.open_rw_existing(name) as handle:
            handle.sync()

    def open_rw_existing(self, name: str) -> Handle:
        """An existing regular file for positioned writes; `FileNotFoundError` if it isn't there."""
        return Handle(self, name, self._open(name, os.O_RDWR))

    def make_dirs(self, name: str) -> None:
        """Make a folder and those above it, and make their names durable."""
        missing = []
        while name and self.stat(name) is None:
            missing.append(name)
            name = _folder(name)
        for folder in reversed(missing):
            self.mkdir(folder)
            self.sync_dir(_folder(folder))

    # -- the lock ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def lock(self, name: str, *, wait: bool = True) -> Iterator[bool]:
        """Hold the kernel lock on `name`; re-entrant in a thread. Yields False if `wait` is off and it is held.

        flock belongs to the open file, so it ends with its process: there are no stale locks to break. The
        file is never deleted (two processes could then hold locks on two files of one name).
        """
        state, owner = self._lock_state, os.getpid()
        if not state.acquire(blocking=wait):
            yield False
            return
        try:
            if self._lock_depth == 0 and not self._flock(name, wait):
                yield False
                return
            self._lock_depth += 1
            try:
                yield True
            finally:
                if os.getpid() == owner:  # a child that was forked in here has nothing to give back
                    self._lock_depth -= 1
                    if self._lock_depth == 0:
                        fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
        finally:
            state.release()

    @property
    def lock_depth(self) -> int:
        """How many times over the thread that holds the lock holds it; for that thread to ask."""
        return self._lock_depth

    def _flock(self, name: str, wait: bool) -> bool:
        if self._lock_fd < 0:
            self._lock_fd = self._open(name, os.O_RDWR | os.O_CREAT)
        return self._take(name, self._lock_fd, wait)

    def _lock_handle(self, handle: Handle, wait: bool) -> bool:
        taken = self._take(handle.name, handle.fd, wait)
        if taken:
            self._locked.add(handle)
        return taken

    def _take(self, name: str, fd: int, wait: bool) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        except OSError as error:
            raise StorageFailure(self.path(name), error) from error
        return True

    def close(self) -> None:
        """Give back the lock's file."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def renew(self) -> None:
        """In a forked child: the lock that was inherited is the parent's, to hold and to end.

        The child shares the parent's open file, so it would think that it holds the lock, could end it, and
        would keep it alive after the parent. Closing its copy does none of this.
        """
        self.close()
        for handle in list(self._locked):
            handle.close()
        self._lock_state = threading.RLock()
        self._lock_depth = 0

    def _open(self, name: str, flags: int) -> int:
        path = self.path(name)
        try:
            fd = os.open(path, flags | _NOFOLLOW, 0o600)
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as error:
            if error.errno == errno.ENOTDIR:
                raise FileNotFoundError(error.errno, error.strerror, path) from error
            if error.errno == errno.ELOOP:
                raise CorruptFile(path, "a link, not a regular file") from error
            raise StorageFailure(path, error) from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise CorruptFile(path, "not a regular file")
        return fd


def _folder(name: str) -> str:
    return name.rpartition("/")[0]
