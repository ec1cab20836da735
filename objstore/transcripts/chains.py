"""Conversations as they are sent to an API: one message after the other, at the end perhaps several answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from objstore.canonical import message_content_hash
from objstore.message import Message, ToolCallPart, ToolResultPart
from objstore.transcripts.build import message_or_none, note_of
from objstore.transcripts.draft import Draft
from objstore.transcripts.model import Entry, Head, Transcript

_MAX_RECENT: Final = 100_000  # ids of tool calls


class Recent(dict[str, str]):
    """Remembers by id, and forgets the oldest beyond `_MAX_RECENT`: a log's calls are answered soon or never."""

    def __setitem__(self, key: str, value: str) -> None:
        if len(self) >= _MAX_RECENT and key not in self:
            del self[next(iter(self))]
        super().__setitem__(key, value)


@dataclass(slots=True)
class Spoken:
    """A message and when it was said."""

    draft: Draft
    at: str | None = None


@dataclass(slots=True)
class Chain:
    """Makes the entries of one conversation as they come. `last` is the key of the latest one.

    With `merge`, what was said before at the same place is not said again: requests that repeat their history
    become one tree.
    """

    transcript: Transcript
    merge: bool = False
    last: str | None = None
    _count: int = 0
    _known: dict[tuple[str | None, str], str] = field(default_factory=dict)
    _open: Recent = field(default_factory=Recent)
    _asked: Recent = field(default_factory=Recent)
    _ends: dict[str, None] = field(default_factory=dict)

    def follow(self, messages: Iterable[Spoken]) -> Iterator[Entry]:
        """Entries that follow one another, from `last` on."""
        for spoken in messages:
            yield from self._add(spoken)

    def _add(self, spoken: Spoken) -> Iterator[Entry]:
        draft, warn = spoken.draft, self.transcript.warn
        message = message_or_none(draft.role, draft.parts, warn, draft.place, draft.metadata)
        if message is None:
            return
        self._tell_unpaired(message, draft.place)
        if self.merge:
            same = (self.last, message_content_hash(message))
            if (known := self._known.get(same)) is not None:
                self.last = known
                return
            self._known[same] = f"m{self._count + 1}"
        self._count += 1
        parent, self.last = self.last, f"m{self._count}"
        yield Entry(self.last, parent, message, spoken.at, note=note_of(**draft.note))

    def again(self) -> None:
        """Start from the beginning: the next messages are a history of their own, or repeat an earlier one."""
        self.last = None
        self._open.clear()
        self._asked.clear()

    def end(self) -> None:
        """A branch ends at `last`, unless something follows it later."""
        if self.last is not None:
            self._ends[self.last] = None

    def finish(self, active: str | None) -> None:
        """Give the transcript its heads: `active` is called after the conversation, the others after their key."""
        inner = {parent for parent, _ in self._known}
        transcript = self.transcript
        for key in self._ends:
            if key == active:
                transcript.heads.append(Head(key, transcript.id, True, transcript.title))
            elif key not in inner:
                transcript.heads.append(Head(key, f"{transcript.id}/{key}"))

    def _tell_unpaired(self, message: Message, place: str) -> None:
        """Tell results without their call, and calls passed over: the last ones may yet be answered."""
        results = [part for part in message.parts if isinstance(part, ToolResultPart) and not part.server_executed]
        for part in results:
            if part.tool_call_id:
                self._open.pop(part.tool_call_id, None)
                if part.tool_call_id not in self._asked:
                    self.transcript.warn("orphan-tool-result", place, part.tool_call_id)
        if not results:
            for call_id, asked_at in self._open.items():
                self.transcript.warn("unanswered-tool-call", asked_at, call_id)
            self._open.clear()
        for call in message.parts:
            if isinstance(call, ToolCallPart) and call.tool_call_id and not call.server_executed:
                self._open[call.tool_call_id] = place
                self._asked[call.tool_call_id] = place
