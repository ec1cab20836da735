"""From an address to a remote: a folder, or an object storage where the extra `msgdag[remote]` is installed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from objstore.scan import Notice, Progress
from objstore.storage import Storage
from objstore.transfer.folder import FolderRemote
from objstore.transfer.remote import Remote
from refs.errors import NoSuchRemote, RemoteFailure

_SCHEMES: Final = frozenset({"s3", "gs", "az"})
RETRY_SECONDS: Final = 30
"""For how long a request to an object storage is tried again."""


def address(url: str | os.PathLike[str]) -> str:
    """An address that means the same from every folder."""
    text = os.fspath(url)
    return text if "://" in text else os.path.abspath(text)


def connect(
    url: str,
    here: Storage,
    *,
    notice: Notice,
    options: Mapping[str, str] | None = None,
    create: bool = False,
    progress: Progress | None = None,
) -> Remote:
    """Open a remote by its address: `s3://bucket/prefix`, `gs://…`, `az://…`, `file:///path`, or a path.

    `options` are what object storages need (`endpoint`, `region`, keys…, as obstore names them), beside the
    usual variables of the environment, which obstore reads itself. `create` makes an object storage a remote
    if it is none yet. Raises `NoSuchRemote`, `RemoteFailure`, `UnsafeRemote`.
    """
    parts = urlsplit(url)
    if parts.scheme in _SCHEMES:
        return _open_objects(url, here, dict(options or {}), create)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return FolderRemote.open(parts.path, here, notice=notice, progress=progress)
    if "://" in url:
        raise NoSuchRemote(url, "an address begins with s3://, gs://, az:// or file://, or is a path")
    return FolderRemote.open(url, here, notice=notice, progress=progress)


def _open_objects(url: str, here: Storage, options: dict[str, Any], create: bool) -> Remote:
    try:
        from obstore.exceptions import BaseError  # noqa: PLC0415  an extra
        from obstore.store import from_url  # noqa: PLC0415
    except ImportError as error:
        raise RemoteFailure(url, "object storage needs an extra: pip install 'msgdag[remote]'") from error
    from objstore.transfer.objects import ObjectRemote  # noqa: PLC0415

    plain = str(options.get("endpoint", "")).startswith("http://")
    open_url: Any = from_url
    try:
        store = open_url(
            url,
            config=options or None,
            client_options={"allow_http": True} if plain else None,
            retry_config={"max_retries": 5, "retry_timeout": _seconds(RETRY_SECONDS)},
        )
    except (BaseError, ValueError) as error:
        raise RemoteFailure(url, str(error).partition("\n")[0]) from error
    return ObjectRemote(url, store, here, create=create)


def _seconds(amount: int) -> Any:
    from datetime import timedelta  # noqa: PLC0415  only for obstore

    return timedelta(seconds=amount)
