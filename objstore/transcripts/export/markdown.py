"""A conversation to read, as Markdown. Words stand as they are; what tools got and gave stands in fences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from objstore.attachment import Attachment
from objstore.jsonvalue import thaw
from objstore.message import (
    RAW_ARGUMENTS,
    AttachmentPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
)
from objstore.transcripts.export.model import ExportEntry, Losses, Written, to_json

_TICKS: Final = re.compile(r"`+")


def write(chain: Sequence[ExportEntry], title: str | None = None) -> Written:
    """Markdown: a heading for each message."""
    losses = Losses()
    blocks = [f"# {_one_line(title)}"] if title else []
    for number, entry in enumerate(chain):
        at = f" · {entry.at}" if entry.at is not None else ""
        hidden = " · hidden" if entry.note.get("hidden") is True else ""
        blocks.append(f"## {_one_line(entry.message.role)}{at}{hidden}")
        for part in entry.message.parts:
            blocks.extend(_blocks(part))
            tell_unreadable(part, number, losses)
    losses.about(chain, times=True, held="hidden")
    text = "\n\n".join(blocks) + "\n"
    return text.encode("utf-8", "replace").decode(), losses


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _blocks(part: Part) -> Iterator[str]:
    if isinstance(part, TextPart):
        yield part.text
    elif isinstance(part, ReasoningPart):
        words = part.text or ("(kept by the provider)" if part.redacted else "")
        yield "\n".join(f"> {line}" for line in ["*thinking*", "", *words.splitlines()])
    elif isinstance(part, ToolCallPart):
        yield f"**call** {_named(part)}"
        yield fenced(shown_arguments(part), "json" if RAW_ARGUMENTS not in part.arguments else "")
    elif isinstance(part, ToolResultPart):
        failed = f", failed: {_code(part.exception)}" if part.exception is not None else ""
        yield (
            f"**result** {_code(part.name)}"
            + (f" ({_code(part.tool_call_id)})" if part.tool_call_id else "")
            + failed
        )
        yield fenced(part.output)
        yield from (f"- {_code(described(attachment))}" for attachment in part.attachments)
    elif isinstance(part, AttachmentPart):
        yield f"- {_code(described(part.attachment))}"
    elif isinstance(part, UnknownPart):
        yield fenced(to_json(part.to_dict()).rstrip(), "json")


def _named(part: ToolCallPart | ToolResultPart) -> str:
    return _code(part.name) + (f" ({_code(part.tool_call_id)})" if part.tool_call_id else "")


def fenced(text: str, language: str = "") -> str:
    """Text in a fence that nothing in it can close."""
    longest = max((len(found[0]) for found in _TICKS.finditer(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _code(text: str) -> str:
    """Text as inline code, whatever back-ticks it holds."""
    line = _one_line(text)
    longest = max((len(found[0]) for found in _TICKS.finditer(line)), default=0)
    ticks = "`" * (longest + 1)
    return f"{ticks} {line} {ticks}" if longest else f"`{line}`"


def shown_arguments(part: ToolCallPart) -> str:
    """A call's arguments for people: indented JSON, or the text that they are."""
    raw = part.arguments.get(RAW_ARGUMENTS)
    return raw if isinstance(raw, str) and len(part.arguments) == 1 else to_json(thaw(part.arguments)).rstrip()


def described(attachment: Attachment | None) -> str:
    """An attachment in a few words."""
    if attachment is None:
        return "nothing attached"
    content = attachment.content
    size = f"{len(content)} bytes" if content else None
    known = [attachment.path, attachment.url, attachment.type, size]
    return ", ".join(each for each in known if each) or "nothing attached"


def tell_unreadable(part: Part, number: int, losses: Losses) -> None:
    """What of a part a page for people doesn't show."""
    if isinstance(part, TextPart | ReasoningPart | ToolCallPart | ToolResultPart) and part.provider_metadata:
        losses.add("provider-metadata", number, ", ".join(part.provider_metadata))
    attached = part.attachments if isinstance(part, ToolResultPart) else ()
    if isinstance(part, AttachmentPart) and part.attachment is not None:
        attached = (part.attachment,)
    if any(attachment.has_content for attachment in attached):
        losses.add("attachment-bytes", number, "only described")
