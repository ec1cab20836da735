"""What a remote is to the rest: refs, objects in packs, and refs that move only from where they are expected."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol

from objstore.kinds import Kind
from objstore.limits import MAX_REMOTE_REFS
from objstore.pack import PackReader, Written
from objstore.transfer.memory import Mark
from objstore.transfer.negotiate import Known, Wanted
from objstore.transfer.report import Report
from refs.errors import InvalidRefName, LimitExceeded
from refs.ids import Oid, PayloadId, is_oid
from refs.names import CONVERSATIONS, DESCRIPTIONS, TAGS, RefName, check_ref_name
from refs.taken import NameSet


class Remote(Protocol):
    """A folder or an object storage. Nothing that it says is believed before it was checked.

    `url` is how a person names it, `id` its own ULID. Raises `RemoteFailure`, `StorageFailure`.
    """

    url: str
    id: str

    def refs(self) -> Iterator[tuple[str, str]]:
        """(name, value) of every ref, as they stand there: unchecked text."""

    def missing(self, kind: Kind, ids: Iterable[Oid]) -> set[Oid]:
        """Those of `ids` that aren't known to be there. A node that is there has all before it there too."""

    def get(self, wanted: Wanted, *, again: bool = False) -> Iterator[AbstractContextManager[PackReader]]:
        """Packs that hold what is wanted and what hangs on it, as far as it isn't here.

        `again` asks for what was taken before too: something of it may have been lost here.
        """

    def taken(self, wanted: Wanted) -> None:
        """All that `get` gave is stored here now: it need not come again."""

    def sent(self, wanted: Wanted, mark: Mark) -> None:
        """All that is wanted of this store is there, as of `mark`."""

    def known(self) -> Known:
        """What of this store was compared with what is there before."""

    def open_payload(self, payload: PayloadId) -> BinaryIO:
        """An attachment's raw bytes, checked when the end is reached."""

    def put(self, sealed: Written | None, payloads: Collection[PayloadId]) -> int:
        """Send a sealed pack and attachments of this store; how many bytes that took. No ref moves."""

    def move(self, ref: RefName, expected: Oid | None, new: Oid | None) -> None:
        """Move a ref (None makes or deletes it), or raise `RefChanged` and leave it alone. Durable on return."""

    def weigh(self, wanted: Wanted) -> tuple[dict[Kind, int], int]:
        """(objects by kind as far as that is known, bytes) that a `get` would bring."""

    def close(self) -> None: ...


def read_refs(remote: Remote, report: Report) -> dict[RefName, Oid]:
    """The refs of a remote that may be believed to be refs; the others go into the report.

    Raises `LimitExceeded` beyond `MAX_REMOTE_REFS`, whatever they are called.
    """
    found: dict[RefName, Oid] = {}
    taken = NameSet()
    for number, (name, value) in enumerate(remote.refs()):
        if number >= MAX_REMOTE_REFS:
            raise LimitExceeded(f"the refs of {remote.url}", number + 1, MAX_REMOTE_REFS, "refs")
        try:
            ref = check_ref_name(name)
        except InvalidRefName as error:
            report.refuse(name, error.reason)
            continue
        if not ref.startswith((CONVERSATIONS, DESCRIPTIONS, TAGS)):
            continue  # what the remote knows of its own remotes is nobody else's
        conflict = "it is there twice" if ref in found else taken.conflict(ref)
        if not is_oid(value):
            conflict = "its value is no object id"
        if conflict is not None:
            report.refuse(name, conflict)
            continue
        taken.add(ref)
        found[ref] = Oid(value)
    return found
