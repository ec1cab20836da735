"""The error family: every error that a caller may want to catch.

All derive from `DagError`. Each carries the facts it was made from as attributes; `str(error)` is one
line for a person, `hint` (where there is one) says what to do about it.
"""

from __future__ import annotations

from collections.abc import Sequence


class DagError(Exception):
    """Base of everything that msgdag raises on purpose."""

    hint: str | None = None

    def __init__(self, text: str, *, hint: str | None = None) -> None:
        super().__init__(text)
        if hint is not None:
            self.hint = hint


class InvalidValue(DagError, ValueError):
    """A value that can't be a message, a part, a call…: `path` says where, `reason` what is wrong."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason

    def under(self, prefix: str) -> InvalidValue:
        """The same error seen from outside `prefix`: `text` becomes `parts[3].text`."""
        joiner = "" if not self.path or self.path.startswith("[") else "."
        return InvalidValue(f"{prefix}{joiner}{self.path}", self.reason)


class InvalidId(DagError, ValueError):
    """Text that should have been an object id."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"not an object id: {text!r} ({reason})")
        self.text = text


class InvalidRefName(DagError, ValueError):
    """A ref or conversation name that isn't allowed; `reason` names the rule."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"bad name {name!r}: {reason}")
        self.name = name
        self.reason = reason


class LimitExceeded(DagError):
    """Something is larger than a bound of `objstore.limits` allows."""

    def __init__(self, what: str, actual: int, bound: int, unit: str = "bytes") -> None:
        super().__init__(f"{what}: {actual} {unit}, more than the {bound} that are allowed")
        self.what, self.actual, self.bound, self.unit = what, actual, bound, unit


class NotFound(DagError, LookupError):
    """Base of everything that was asked for by name and isn't there."""


class ObjectMissing(NotFound):
    """No object of this kind and id is in the store."""

    def __init__(self, kind: str, oid: str) -> None:
        super().__init__(f"no {kind} {oid}")
        self.kind, self.oid = kind, oid
        self.hint = "if it should be here, 'dag fsck' tells what is wrong, and 'dag reindex' makes the index anew"


class NoSuchRef(NotFound):
    """No ref of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no ref {name!r}")
        self.name = name


class NoSuchDraft(NotFound):
    """No draft of this id was left behind."""

    def __init__(self, draft: str) -> None:
        super().__init__(f"no draft {draft!r}")
        self.draft = draft
        self.hint = "'dag drafts' lists what cut streams have left"


class UnknownRevision(NotFound):
    """Text that names no node: no conversation, no ref, no id, no prefix of one."""

    def __init__(self, revision: str, reason: str = "no conversation, ref or node of that name") -> None:
        super().__init__(f"unknown revision {revision!r}: {reason}")
        self.revision = revision
        self.hint = "'dag list' shows the conversations, 'dag log --all' the nodes"


class AmbiguousRevision(NotFound):
    """An id prefix that more than one object has; `candidates` lists them."""

    def __init__(self, prefix: str, candidates: Sequence[str]) -> None:
        shown = ", ".join(candidates[:8]) + (", …" if len(candidates) > 8 else "")
        super().__init__(f"ambiguous prefix {prefix!r}: {shown}")
        self.prefix = prefix
        self.candidates = tuple(candidates)
        self.hint = "give more digits"


class Conflict(DagError):
    """Base of: the store is fine, but this change doesn't fit what is there."""


class RefChanged(Conflict):
    """A ref wasn't where the caller expected it; it was left alone.

    `stored` is the head of what the caller wanted to add, where that has been stored all the same.
    """

    def __init__(self, name: str, expected: str | None, actual: str | None, stored: str | None = None) -> None:
        super().__init__(f"{name} is at {_at(actual)}, not at {_at(expected)}: somebody else moved it")
        self.name, self.expected, self.actual, self.stored = name, expected, actual, stored


class RefExists(Conflict):
    """A ref of this name (or one that can't stand beside it) is there already."""

    def __init__(self, name: str, reason: str = "it exists already") -> None:
        super().__init__(f"can't create {name!r}: {reason}")
        self.name, self.reason = name, reason


class Diverged(Conflict):
    """A history that doesn't continue a conversation.

    `common` messages are the same; `at` is the last common node (`root` where there is none), `head`
    the conversation's head.
    """

    def __init__(self, name: str, common: int, at: str, head: str) -> None:
        super().__init__(
            f"this history leaves {name!r} after {common} common message{'' if common == 1 else 's'}"
            f" (at {at[:8]}, the head is {head[:8]})"
        )
        self.name, self.common, self.at, self.head = name, common, at, head


class DraftInUse(Conflict):
    """A draft whose process is alive: it is still being written."""

    def __init__(self, draft: str) -> None:
        super().__init__(f"the draft {draft} is being written by a living process")
        self.draft = draft


class StoreNotFound(NotFound):
    """No store at or above a folder."""

    def __init__(self, path: str) -> None:
        super().__init__(f"no store at {path}")
        self.path = path
        self.hint = "'dag init' makes one"


class StoreExists(Conflict):
    """`init` on a folder that holds a store."""

    def __init__(self, path: str) -> None:
        super().__init__(f"there is a store at {path} already")
        self.path = path


class UnsafeStore(DagError):
    """A store found by looking upward belongs to another user."""

    def __init__(self, path: str, owner: int) -> None:
        super().__init__(f"the store at {path} belongs to another user (uid {owner})")
        self.path, self.owner = path, owner
        self.hint = "name it with --store or DAG_DIR if you trust it"


class NoSuchRemote(NotFound):
    """No remote of this name, or nothing at a remote's address."""

    def __init__(self, remote: str, reason: str = "no remote of that name") -> None:
        super().__init__(f"{remote}: {reason}")
        self.remote, self.reason = remote, reason
        self.hint = "'dag remote list' shows the remotes"


class RemoteExists(Conflict):
    """A remote of this name is there already."""

    def __init__(self, remote: str) -> None:
        super().__init__(f"there is a remote {remote!r} already")
        self.remote = remote


class RemoteFailure(DagError):
    """A remote couldn't be reached, or refused what was asked of it. Trying again may help."""

    def __init__(self, remote: str, reason: str) -> None:
        super().__init__(f"{remote}: {reason}")
        self.remote, self.reason = remote, reason


class UnsafeRemote(DagError):
    """An object storage in which two writers would overwrite each other: it ignores conditions."""

    def __init__(self, remote: str, reason: str) -> None:
        super().__init__(f"{remote} can't be a remote: {reason}")
        self.remote, self.reason = remote, reason
        self.hint = "a server is needed that honours If-Match and If-None-Match"


class DamagedStore(DagError):
    """Base of: what is on disk isn't what was written there."""


class UnsupportedFormat(DamagedStore):
    """A store of a format or with an extension that this version doesn't know."""

    def __init__(self, what: str) -> None:
        super().__init__(f"this store needs a newer msgdag: {what}")
        self.what = what


class CorruptObject(DamagedStore):
    """An object's bytes aren't those that its id promises, or aren't canonical."""

    def __init__(self, kind: str, oid: str, reason: str) -> None:
        super().__init__(f"corrupt {kind} {oid}: {reason}")
        self.kind, self.oid, self.reason = kind, oid, reason
        self.hint = "'dag fsck --level full' lists all damage; 'dag fsck --repair' mends what has a good copy"


class CorruptFile(DamagedStore):
    """A file of the store (a pack, the journal, packed-refs, a ref…) can't be what was written there."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason
        self.hint = "'dag fsck' says more"


class BadTransfer(DamagedStore):
    """What a remote sent can't be believed: nothing of it was taken."""

    def __init__(self, remote: str, reason: str) -> None:
        super().__init__(f"{remote}: {reason}; nothing of it was taken")
        self.remote, self.reason = remote, reason


class Redacted(DagError):
    """The bytes of this object were erased on purpose; a tombstone stands in their place."""

    def __init__(self, kind: str, oid: str, reason: str) -> None:
        super().__init__(f"{kind} {oid} was erased: {reason}")
        self.kind, self.oid, self.reason = kind, oid, reason


class ReadOnlyStore(DagError):
    """A change was asked of a store that can't be written."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"can't write to the store at {path}: {reason}")
        self.path, self.reason = path, reason


class StorageFailure(DagError):
    """The operating system refused a read or write (disk full, no permission, I/O error)."""

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(f"{path}: {error.strerror or error}")
        self.path, self.error = path, error


def _at(oid: str | None) -> str:
    return "nothing" if oid is None else oid[:8]
