"""What every writer takes and gives."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from objstore.attachment import Attachment
from objstore.jsonvalue import EMPTY, Json, dumps, freeze, thaw
from objstore.message import Message, ToolCallPart
from objstore.transcripts.build import arguments_of
from objstore.transcripts.draft import extras_of, written

_BASE64_MARK: Final = ";base64,"


@dataclass(frozen=True, slots=True)
class ExportEntry:
    """One message of the chain to write, first to last, with what is known about it."""

    message: Message
    at: str | None = None
    note: Mapping[str, Json] = EMPTY
    node_id: str = ""


@dataclass(frozen=True, slots=True)
class SideEntry(ExportEntry):
    """A message of a side chain that the chain to write asked for, or one of its side chains.

    `parent` is the node before it, empty for a first message; `called_by` the node that asked for it, empty
    for none. Both come before it.
    """

    parent: str = ""
    called_by: str = ""
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """Something the format can't hold: a named kind, where (`message 3`), and what was done about it."""

    kind: str
    place: str
    text: str = ""


Written = tuple[str, list[Loss]]
"""What a writer gives: the file's text, and what it doesn't say."""

SidesWritten = tuple[str, list[Loss], set[str]]
"""What a writer of side chains gives: that, and the ids of the side chains' nodes that the file holds."""


class Losses(list[Loss]):
    """The losses of one export, in order. `about` tells those that are no part of a message, once each.

    `places` says where a message is that `message 3` would not find.
    """

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[int, str] = {}

    def add(self, kind: str, message: int, text: str = "") -> None:
        self.append(Loss(kind, self.places.get(message, f"message {message + 1}"), text))

    def about(
        self,
        chain: Sequence[ExportEntry],
        title: str | None = None,
        times: bool = False,
        held: str = "",
        place: str = "conversation",
    ) -> None:
        """Tell the title, times and notes that don't go out. `held`: the note keys that do, split by spaces."""
        if title:
            self.append(Loss("title", "conversation", "the format has no place for it"))
        timed = sum(entry.at is not None for entry in chain)
        if timed and not times:
            self.append(Loss("times", "conversation", f"of {timed} message{'' if timed == 1 else 's'}"))
        lost = {key for entry in chain for key in entry.note} - {"parts", *held.split()}
        if lost:
            self.append(Loss("notes", place, ", ".join(sorted(lost))))


def to_json(value: Json) -> str:
    """JSON text for people and programs. The half of a surrogate pair becomes its escape."""
    return one_line(value, indent=1) + "\n"


def one_line(value: Json, indent: int | None = None) -> str:
    """JSON text without a line break in it."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    return text.encode("utf-8", "backslashreplace").decode()


def arguments_text(part: ToolCallPart, note: Mapping[str, Json], index: int) -> Json:
    """Tool arguments as they were written, where a reader noted that; else as compact JSON."""
    kept = extras_of(note, index)
    if "arguments" in kept and _says_the_same(kept["arguments"], part.arguments):
        return thaw(kept["arguments"])
    return written(part.arguments)


def _says_the_same(kept: Json, arguments: Mapping[str, Json]) -> bool:
    """Whether a note says what the message says: it is no part of the message and may be wrong."""
    read = arguments_of(kept, lambda kind, place, text: None, "")
    return dumps(freeze(read, "")) == dumps(freeze(arguments, ""))


def json_or_text(text: str) -> Json:
    """What a text says as JSON, or the text where it isn't JSON."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def _refuse(name: str) -> Json:
    raise ValueError(name)


def data_url(attachment: Attachment) -> str:
    """The attachment's bytes as a `data:` URL."""
    return f"data:{attachment.type or 'application/octet-stream'}{_BASE64_MARK}{base64_text(attachment)}"


def base64_text(attachment: Attachment) -> str:
    return base64.b64encode(attachment.content or b"").decode("ascii")
