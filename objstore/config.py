"""The file `config` of a store: its format, its own id, and the extensions it uses."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from objstore.limits import MIB
from refs.errors import CorruptFile, StoreNotFound, UnsupportedFormat
from refs.files import Files

CONFIG: Final = "config"
FORMAT: Final = 1
KNOWN_EXTENSIONS: Final[frozenset[str]] = frozenset()

# Nearly every config is as `config_text` wrote it: it needs no parser, which takes 5 ms to import.
_AS_WRITTEN: Final = re.compile(rb'format = %d\nid = "([0-9A-Z]{26})"\nextensions = \[\]\n' % FORMAT)


@dataclass(frozen=True, slots=True)
class Config:
    """`id` is the store's own ULID; `extensions` names what a reader must know to read this store."""

    id: str
    format: int = FORMAT
    extensions: tuple[str, ...] = ()
    rest: dict[str, Any] = field(default_factory=dict)


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


def config_text(store: str) -> bytes:
    """A new store's config."""
    return f'format = {FORMAT}\nid = "{store}"\nextensions = []\n'.encode()
