"""The store's doors to drafts: messages that are being streamed, and what is left of those that were cut."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from objstore.jsonvalue import Json
from objstore.kinds import Kind
from objstore.store_base import StoreBase
from refs.errors import InvalidValue
from refs.ids import ROOT, NodeId
from refs.names import conversation_ref

if TYPE_CHECKING:
    from objstore.drafts import Draft, Drafts, LeftDraft
    from objstore.newcall import NewCall


class StoreDrafts(StoreBase):
    """Part of `Store`."""

    def draft(self, conversation: str | None, *, at: NodeId | None = None) -> Draft:
        """Begin to stream a message into a conversation (behind its head), or into none (behind `at`).

        With both, `at` is where the caller believes the head to be. Feed it deltas, then `finish` or `abandon`
        it. Until then nothing of it is in the chain. Raises `ObjectMissing` if `at` isn't stored.
        """
        if at is None:
            if conversation is None:
                raise InvalidValue("at", "a draft follows a node, or the head of a conversation")
            at = NodeId(self._storage.refs.resolve(conversation_ref(conversation)) or ROOT)
        elif at != ROOT:
            self._storage.database.locate(Kind.NODE, at)
        return self._drafts().begin(conversation, at)

    def drafts(self) -> list[LeftDraft]:
        """The drafts that processes left behind when they ended, oldest first."""
        return self._drafts().left()

    def recover_draft(
        self,
        draft: str,
        *,
        conversation: str | None = None,
        call: NewCall | None = None,
        note: Mapping[str, Json] | None = None,
    ) -> NodeId:
        """Put what is left of a draft into the chain; its node. One that was cut is noted as `partial`.

        It goes to where it was meant for, or with `conversation` into a new one of that name. One that is
        there already (the crash came just before its file went) is not added again. Raises `NoSuchDraft`,
        `DraftInUse` for one that is being written, `CorruptFile` for one that can't be read, and `RefChanged`
        where the conversation has gone on: the message is stored all the same, its node in `stored`.
        """
        return self._drafts().recover(draft, conversation, call, note)

    def drop_draft(self, draft: str) -> None:
        """Forget a draft that was left behind. Raises `NoSuchDraft`, `DraftInUse`."""
        self._drafts().drop(draft)

    def _drafts(self) -> Drafts:
        from objstore.drafts import Drafts  # noqa: PLC0415  most uses of a store stream nothing

        return Drafts(self._storage, self._chains, self._saver)
