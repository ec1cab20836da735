"""Requests to an object storage, with its errors as ours, and what it must be able to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from objstore.clock import new_ulid
from objstore.limits import MAX_MARKER_BYTES
from refs.errors import BadTransfer, RemoteFailure, UnsafeRemote
from refs.files import Handle

_CHUNK_BYTES: Final = 1 << 20


Version = Mapping[str, str]
"""What a write on a condition names: a tag, and in some storages a generation beside it."""


class Conflicting(Exception):
    """A conditional write that was refused: the object isn't what the condition says."""


class Bucket:
    """Any obstore store; its prefix is where the keys begin. Raises `RemoteFailure`, `BadTransfer`."""

    def __init__(self, url: str, store: Any) -> None:
        self._url, self._store = url, store

    def write(self, key: str, body: bytes, version: Version | None) -> None:
        """Write an object that has this version, or (None) isn't there; else raise `Conflicting`."""
        mode: Any = "create" if version is None else version
        try:
            with self._telling():
                obstore.put(self._store, key, body, mode=mode)
        except (AlreadyExistsError, PreconditionError) as error:
            raise Conflicting from error

    def probe(self) -> None:
        """Try whether the server honours conditions. Raises `UnsafeRemote`."""
        key = f"probe/{new_ulid()}"
        with self._telling():
            first = obstore.put(self._store, key, b"1", mode="create")
            try:
                self._refused(key, "create", "it overwrites what is to be created only")
                version = _version(first)
                if not version:
                    raise UnsafeRemote(self._url, "it gives objects no version")
                obstore.put(self._store, key, b"2", mode=version)  # type: ignore[arg-type]
                self._refused(key, version, "it overwrites what has changed since it was read")
            except (PreconditionError, NotImplementedError) as error:
                raise UnsafeRemote(self._url, "it can't replace an object on a condition") from error
            finally:
                obstore.delete(self._store, key)

    def _refused(self, key: str, mode: Any, reason: str) -> None:
        try:
            obstore.put(self._store, key, b"3", mode=mode)
        except (AlreadyExistsError, PreconditionError):
            return
        raise UnsafeRemote(self._url, reason)

    def download(self, key: str, handle: Handle, bound: int, digest: Any = None) -> None:
        """Write an object into a file; an object larger than it is said to be is refused."""
        at = 0
        with self._telling():
            for chunk in obstore.get(self._store, key).stream(min_chunk_size=_CHUNK_BYTES):
                data = bytes(chunk)
                if at + len(data) > bound:
                    raise BadTransfer(self._url, f"{key} is larger than it may be")
                if digest is not None:
                    digest.update(data)
                handle.write_at(at, data)
                at += len(data)

    def upload(self, key: str, path: Path) -> int:
        """Write a file as an object; its bytes."""
        with self._telling():
            obstore.put(self._store, key, path)
        return path.stat().st_size

    def list(self, prefix: str) -> Iterator[tuple[str, Any, str | None]]:
        """(key, what is known of it, tag) of the objects below a prefix; the tag changes with the content."""
        with self._telling():
            for chunk in obstore.list(self._store, prefix):
                for meta in chunk:
                    yield str(meta["path"]), meta, meta["e_tag"]

    def read_small(self, key: str) -> tuple[bytes, Version] | None:
        """(bytes, version) of a small object, or None if it isn't there."""
        with self._telling():
            try:
                found = obstore.get(self._store, key)
            except FileNotFoundError:
                return None
            if found.meta["size"] > MAX_MARKER_BYTES:
                raise BadTransfer(self._url, f"{key} is larger than it may be")
            return bytes(found.bytes()), _version(found.meta)

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (AlreadyExistsError, PreconditionError):
            raise
        except BaseError as error:
            raise RemoteFailure(self._url, _first_line(error)) from error


def _version(meta: Mapping[str, Any]) -> Version:
    return {key: meta[key] for key in ("e_tag", "version") if meta.get(key) is not None}


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
