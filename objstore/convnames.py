"""What an imported conversation is called: legal, and the same at every import."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from objstore.transcripts.model import Transcript
from refs.errors import InvalidRefName
from refs.ids import NodeId
from refs.names import CONVERSATIONS, check_ref_name

DEFAULT_PATTERN: Final = "{format}/{id}"
PLACEHOLDERS: Final = ("format", "id", "title")
MAX_NAME_BYTES: Final = 150
"""Of each part of a name as it is made from what a source says; branches add to it."""
BRANCH_DIGITS: Final = (10, 20)
"""Digits of the node in a branch's name: more only where two branches share the first ones."""

_BRANCH: Final = re.compile(r"\.at-[0-9a-f]{10,20}\Z", re.ASCII)
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._@+=-]+")
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")


def check_pattern(pattern: str) -> None:
    """Raise `InvalidRefName` for a pattern that can't make a name."""
    unknown = [each for each in _PLACEHOLDER.findall(pattern) if each not in PLACEHOLDERS]
    if unknown:
        raise InvalidRefName(pattern, f"{{{unknown[0]}}} is none of {', '.join(f'{{{p}}}' for p in PLACEHOLDERS)}")
    check_ref_name(CONVERSATIONS + _PLACEHOLDER.sub("x.x", pattern))


def conversation_name(pattern: str, transcript: Transcript) -> str:
    """The name of a transcript's conversation.

    What a name can't hold becomes `-`, with a hash behind it; what still makes no name is its hash alone.
    """
    parts = {"format": transcript.format, "id": transcript.id, "title": transcript.title or "untitled"}
    fit = {key: _fit(value) for key, value in parts.items()}
    name = _PLACEHOLDER.sub(lambda found: fit.get(found[1], found[0]), pattern)
    try:
        return check_ref_name(CONVERSATIONS + name).removeprefix(CONVERSATIONS)
    except InvalidRefName:
        return f"{transcript.format}/x-{_hash(transcript.id)[:16]}"


def beside(is_free: Callable[[str], bool], name: str) -> str:
    """`name`, or where it can't stand beside the conversations that there are, one that can."""
    for each in (name, f"{name}-{_hash(name)[:6]}", f"imported-{_hash(name)[:16]}"):
        if is_free(each):
            return each
    return name


def branch_name(name: str, first: NodeId, digits: int = BRANCH_DIGITS[0]) -> str:
    """A branch's name, from the first of its nodes that no other branch has."""
    return f"{name}.at-{first[:digits]}"


def family(name: str) -> str:
    """The name of the conversation that a branch belongs to."""
    return _BRANCH.sub("", name)


def _fit(text: str) -> str:
    made = _UNFIT.sub("-", text).strip("-.")
    if made != text or len(made) > MAX_NAME_BYTES:
        # Two ids that look alike once they fit must not become one conversation.
        made = f"{made[: MAX_NAME_BYTES - 8]}-{_hash(text)[:6]}"
    return made.lstrip("-.") or "x"


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
