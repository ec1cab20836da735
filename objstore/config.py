"""The file `config` of a store: its format, its own id, and the extensions it uses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from objstore.limits import MIB
from refs.errors import CorruptFile, InvalidRefName, InvalidValue, StoreNotFound, UnsupportedFormat
from refs.files import Files
from refs.names import check_name

CONFIG: Final = "config"
FORMAT: Final = 1
KNOWN_EXTENSIONS: Final[frozenset[str]] = frozenset()

# Nearly every config is as `config_text` wrote it: it needs no parser, which takes 5 ms to import.
_AS_WRITTEN: Final = re.compile(
    rb'format = %d\nid = "([0-9A-Z]{26})"\nextensions = \[\]\n(?:\n\[remote\."[^"\\]+"\]\nurl = "[^"\\]*"\n)*'
    % FORMAT
)


class Config(NamedTuple):
    """`id` is the store's own ULID; `extensions` names what a reader must know to read this store."""

    id: str
    format: int = FORMAT
    extensions: tuple[str, ...] = ()
    rest: Mapping[str, Any] = MappingProxyType({})


def read_config(files: Files) -> Config:
    """Raises `StoreNotFound`, `CorruptFile`, and `UnsupportedFormat` for what a newer version wrote."""
    raw = files.read_or_none(CONFIG, MIB)
    if raw is None:
        raise StoreNotFound(str(files.root))
    if (plain := _AS_WRITTEN.fullmatch(raw)) is not None:
        return Config(plain[1].decode())
    import tomllib  # noqa: PLC0415

    where = files.path(CONFIG)
    try:
        value = tomllib.loads(raw.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CorruptFile(where, f"not TOML: {error}") from error
    written = value.pop("format", None)
    if type(written) is not int:
        raise CorruptFile(where, "it names no format")
    if written != FORMAT:
        raise UnsupportedFormat(f"format {written} (this version reads {FORMAT})")
    extensions = value.pop("extensions", [])
    if not isinstance(extensions, list) or not all(isinstance(each, str) for each in extensions):
        raise CorruptFile(where, "its extensions are not a list of names")
    unknown = sorted(set(extensions) - KNOWN_EXTENSIONS)
    if unknown:
        raise UnsupportedFormat(f"extension {unknown[0]!r}")
    store = value.pop("id", None)
    if not isinstance(store, str):
        raise CorruptFile(where, "it names no store id")
    return Config(store, written, tuple(extensions), value)


def read_remotes(files: Files) -> dict[str, str]:
    """The addresses of the remotes that a store knows, by name."""
    read_config(files)
    held = _parsed(files)[1].get("remote", {})
    if not isinstance(held, dict):
        raise CorruptFile(files.path(CONFIG), "its remotes are no table")
    remotes = {name: about.get("url") for name, about in held.items() if isinstance(about, dict)}
    return {name: url for name, url in sorted(remotes.items()) if isinstance(url, str) and _fits(name)}


def write_remote(files: Files, name: str, url: str | None) -> None:
    """Set the address of a remote, or forget it; durably, and with all else as it is. The lock is held.

    Raises `InvalidRefName` for a name that can't be one, `InvalidValue` for a config that was written by hand
    in a way that this can't change.
    """
    check_remote_name(name)
    import tomllib  # noqa: PLC0415

    raw, before = _parsed(files)
    kept, inside = [], False
    for line in raw.splitlines():
        if line.strip().startswith("["):
            inside = line.strip() in (f"[remote.{name}]", f"[remote.{_quoted(name)}]")
        if not inside:
            kept.append(line)
    text = "\n".join(kept).rstrip("\n") + "\n"
    wanted = {key: dict(value) if key == "remote" else value for key, value in before.items()}
    wanted.setdefault("remote", {}).pop(name, None)
    if url is not None:
        text += f"\n[remote.{_quoted(name)}]\nurl = {_quoted(url)}\n"
        wanted["remote"][name] = {"url": url}
    try:
        made = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidValue("url", f"it can't be written into the config: {error}") from error
    if {"remote": {}, **made} != wanted:
        raise InvalidValue("config", f"the remote {name!r} is written in a way that has to be changed by hand")
    files.replace(CONFIG, text.encode("utf-8"))


def check_remote_name(name: str) -> str:
    """`name` as that of a remote, or `InvalidRefName`: one component of a ref's path."""
    check_name(name)
    if "/" in name:
        raise InvalidRefName(name, "a remote's name has no slash")
    return name


def _parsed(files: Files) -> tuple[str, dict[str, Any]]:
    """The config's text, and what it says."""
    import tomllib  # noqa: PLC0415

    text = files.read(CONFIG, MIB).decode("utf-8")
    return text, tomllib.loads(text)


def _fits(name: str) -> bool:
    try:
        check_remote_name(name)
    except InvalidRefName:
        return False
    return True


def _quoted(value: str) -> str:
    """A TOML string: JSON's escapes are TOML's too."""
    import json  # noqa: PLC0415

    return json.dumps(value, ensure_ascii=False)


def config_text(store: str) -> bytes:
    """A new store's config."""
    return f'format = {FORMAT}\nid = "{store}"\nextensions = []\n'.encode()
