"""Which ref names are allowed, and why not.

A name becomes a path on somebody's disk, an argument of a command and a line on a terminal, so the rules
are git's (`git check-ref-format`), plus what Windows, case-blind disks and readers' eyes stumble over.
Titles for people go into descriptions.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final, NewType

from refs.errors import InvalidRefName
from refs.ids import is_prefix

RefName = NewType("RefName", str)
"""A whole ref path that was checked, such as `refs/conversations/trip`: safe as a path below the store."""

CONVERSATIONS: Final = "refs/conversations/"
DESCRIPTIONS: Final = "refs/descriptions/"
TAGS: Final = "refs/tags/"
REMOTES: Final = "refs/remotes/"

MAX_NAME_BYTES: Final = 200
"""Of a name after `refs/<class>/`, in UTF-8: below the 255 that file systems allow one component."""
MAX_REMOTE_NAME_BYTES: Final = 512
"""Of what follows `refs/remotes/`: a remote's name, then a whole ref path there, each with a full name."""
MAX_REF_BYTES: Final = len(REMOTES) + MAX_REMOTE_NAME_BYTES

_CLASSES: Final = frozenset({"conversations", "descriptions", "tags", "remotes"})
_CLASS = re.compile(r"[a-z][a-z0-9-]{0,31}", re.ASCII)
# Names that no rule about characters or components can refuse: nearly all, so the rules are skipped.
_PLAIN = re.compile(
    r"(?!.*\.[Ll][Oo][Cc][Kk](?:/|\Z))[A-Za-z0-9_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*"
    r"(?:/[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)*",
    re.ASCII,
)
_DEVICES: Final = frozenset(
    {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in "123456789¹²³")}
)
_RESERVED = frozenset({"head", "root"})

# What has no ink though its category isn't Cf: Unicode's Default_Ignorable_Code_Point, and the blank of Braille.
_NO_INK = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff"

_INVISIBLE: Final = "invisible and direction-changing characters aren't allowed"
# As text: `re` compiles them, and keeps them, for the first name that isn't plain.
_RULES: Final = (
    (r"[\ud800-\udfff]", "half a surrogate pair is no character"),
    (r"[\x00-\x1f\x7f-\x9f]", "control characters aren't allowed"),
    (r"\s", "spaces aren't allowed"),
    (r"^/", "it starts with a slash"),
    (r"/\Z", "it ends with a slash"),
    (r"//", "it has an empty component"),
    (r"^-", "it starts with a dash and would be taken for an option"),
    (r"\\", "backslashes aren't allowed"),
    (r"^[A-Za-z]:", "it starts with a drive letter"),
    (r"[~^:?*\[]", "none of ~ ^ : ? * [ is allowed"),
    (r"@\{", "'@{' asks for the reflog"),
    (r"^@\Z", "'@' alone is reserved"),
    (r"\.\.", "'..' isn't allowed"),
    (r"(?:^|/)\.", "a component starts with a dot"),
    (r"(?i:\.lock)(?:/|\Z)", "a component ends in '.lock'"),
    (r"\.(?:/|\Z)", "a component ends with a dot"),
    (f"[{_NO_INK}]", _INVISIBLE),
)


@lru_cache(1024)
def check_name(text: str) -> str:
    """`text` as what may follow `refs/<class>/`: the name of a conversation or a tag; or `InvalidRefName`."""
    fault = _fault(text, MAX_NAME_BYTES)
    if fault is not None:
        raise InvalidRefName(text, fault)
    return text


@lru_cache(1024)
def check_ref_name(text: str) -> RefName:
    """`text` as a whole ref path, or `InvalidRefName`. Any class is allowed: a newer version may have more."""
    fault = _ref_fault(text)
    if fault is not None:
        raise InvalidRefName(text, fault)
    return RefName(text)


def conversation_ref(name: str) -> RefName:
    return RefName(CONVERSATIONS + check_name(name))


def description_ref(name: str) -> RefName:
    """Where the description of the conversation `name` stands."""
    return RefName(DESCRIPTIONS + check_name(name))


def tag_ref(name: str) -> RefName:
    return RefName(TAGS + check_name(name))


def remote_ref(remote: str, path: str) -> RefName:
    """Where `path` of a remote is remembered: `refs/remotes/<remote>/<path>`."""
    return check_ref_name(f"{REMOTES}{remote}/{path}")


def short_name(ref: RefName) -> str:
    """A ref as people write it: `trip`, `tags/v1`, `remotes/origin/conversations/trip`.

    No two refs share one: a conversation that is called `tags/v1` itself is `conversations/tags/v1`. So a
    reader takes `refs/…` as it stands, what begins with one of the four classes as `refs/` + text, and all
    else as a conversation.
    """
    _, kind, name = ref.split("/", 2)
    if kind == "conversations" and name.partition("/")[0] not in {"refs", *_CLASSES}:
        return name
    return f"{kind}/{name}" if kind in _CLASSES else ref


def fold_key(name: str) -> str:
    """Equal for two names that a disk blind to case would take for one."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def _ref_fault(text: str) -> str | None:
    parts = text.split("/", 2)
    if parts[0] != "refs":
        return "a ref's path starts with 'refs/'"
    if len(parts) < 3:
        return "a ref's path is 'refs/', a class and a name"
    if _CLASS.fullmatch(parts[1]) is None:
        return "the class after 'refs/' is one lower-case word"
    name = parts[2]
    if parts[1] != "remotes":
        return _fault(name, MAX_NAME_BYTES)
    remote, slash, path = name.partition("/")
    if not slash:
        return "a remote's ref is 'refs/remotes/', the remote and a path"
    fault = _fault(remote, MAX_NAME_BYTES) or _fault(path, MAX_REMOTE_NAME_BYTES)
    if fault is None and len(name.encode()) > MAX_REMOTE_NAME_BYTES:
        return _too_long(MAX_REMOTE_NAME_BYTES)
    return fault


def _fault(text: str, limit: int) -> str | None:
    """The first rule that a name breaks."""
    if not text:
        return "it is empty"
    if len(text) > limit:
        return _too_long(limit)
    if _PLAIN.fullmatch(text) is None:
        for pattern, reason in _RULES:
            if re.search(pattern, text):
                return reason
        if any(unicodedata.category(char) == "Cf" for char in text):
            return _INVISIBLE
        if not unicodedata.is_normalized("NFC", text):
            return "it isn't in Unicode's composed form (NFC)"
        if len(text.encode()) > limit:
            return _too_long(limit)
    lowered = text.lower()
    if lowered in _RESERVED:
        return "it is reserved"
    if is_prefix(text):
        return "it reads as an object id"
    parts = lowered.split("/")
    if not _DEVICES.isdisjoint([part.partition(".")[0] for part in parts] if "." in lowered else parts):
        return "a component is a device's name on Windows"
    return None


def _too_long(limit: int) -> str:
    return f"it is longer than {limit} bytes"
