"""What a message looks like to a person: in a line, as text, as Markdown. All of it safe to print."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Final

from cli.render import escape, escape_json, first_line, one_line
from objstore.attachment import Attachment
from objstore.message import (
    RAW_ARGUMENTS,
    AttachmentPart,
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
)
from objstore.records import Tombstone

_FENCES: Final = r"`{3,}"


def summary(message: Message | Tombstone, width: int) -> str:
    """The first line of a message, in at most `width` columns."""
    if isinstance(message, Tombstone):
        return first_line(f"(erased: {message.reason})", width)
    said = [part.text for part in message.parts if isinstance(part, TextPart) and part.text.strip()]
    rest = [words for part in message.parts if (words := _in_a_word(part))]
    return first_line("".join(said) or "; ".join(rest) or "(empty)", width)


def _in_a_word(part: Part) -> str:
    if isinstance(part, ToolCallPart):
        return f"→ {part.name}({arguments(part)})"
    if isinstance(part, ToolResultPart):
        return f"← {part.name}: {part.output or part.exception or ''}"
    if isinstance(part, ReasoningPart):
        return f"(reasoning) {part.text.strip()}"
    if isinstance(part, AttachmentPart):
        return f"[{told(part.attachment)}]"
    if isinstance(part, UnknownPart):
        return f"[{part.value.get('type')}]"
    return ""


def arguments(part: ToolCallPart, indent: int | None = None) -> str:
    """A call's arguments as JSON, or as the text that they were."""
    raw = part.arguments.get(RAW_ARGUMENTS)
    if len(part.arguments) == 1 and isinstance(raw, str):
        return raw
    return escape_json(json.dumps(part.arguments, ensure_ascii=False, indent=indent))


def told(attachment: Attachment | None) -> str:
    """An attachment by its type, where it was, and whether its bytes are stored."""
    if attachment is None:
        return "an attachment of nothing"
    where = attachment.path or attachment.url or ""
    said = [attachment.type or "a file", where if len(where) <= 200 else f"{where[:199]}…"]
    if attachment.payload is not None:
        said.append(f"payload {attachment.payload[:8]}")
    elif attachment.has_content:
        said.append(f"{len(attachment.content or b''):,} bytes")
    return " ".join(filter(None, said))


def text_of(message: Message | Tombstone) -> Iterator[str]:
    """A message's parts as lines of text."""
    yield from _parts(message, part_lines)


def markdown_of(message: Message | Tombstone) -> Iterator[str]:
    """A message's parts as lines of Markdown."""
    yield from _parts(message, _markdown_part)


def _parts(message: Message | Tombstone, show: Callable[[Part], Iterator[str]]) -> Iterator[str]:
    if isinstance(message, Tombstone):
        yield one_line(f"(erased: {message.reason})")
        return
    for number, part in enumerate(message.parts):
        if number:
            yield ""
        yield from show(part)


def part_lines(part: Part) -> Iterator[str]:
    """A part as lines of text."""
    if isinstance(part, TextPart):
        yield from lines_of(part.text)
    elif isinstance(part, ReasoningPart):
        yield "(reasoning, kept by the provider)" if part.redacted else "(reasoning)"
        yield from _indented(part.text)
    elif isinstance(part, ToolCallPart):
        yield one_line(f"→ {part.name}{_id(part.tool_call_id)}")
        yield from _indented(arguments(part, indent=2) if part.arguments else "")
    elif isinstance(part, ToolResultPart):
        yield one_line(f"← {part.name}{_id(part.tool_call_id)}")
        yield from _indented(part.output)
        yield from _indented("" if part.exception is None else f"failed: {part.exception}")
        for attachment in part.attachments:
            yield one_line(f"    [{told(attachment)}]")
    elif isinstance(part, AttachmentPart):
        yield one_line(f"[{told(part.attachment)}]")
    else:
        yield from lines_of(_json(part))


def _markdown_part(part: Part) -> Iterator[str]:
    if isinstance(part, TextPart):
        yield from lines_of(part.text)
    elif isinstance(part, ReasoningPart):
        yield "*Reasoning*" if not part.redacted else "*Reasoning, kept by the provider*"
        if part.text:
            yield ""
            yield from (f"> {line}".rstrip() for line in lines_of(part.text))
    elif isinstance(part, ToolCallPart):
        yield f"**Tool call** {_code(part.name)}{_id(part.tool_call_id, _code)}"
        yield ""
        yield from _fenced(arguments(part, indent=2), "json")
    elif isinstance(part, ToolResultPart):
        yield f"**Tool result** {_code(part.name)}{_id(part.tool_call_id, _code)}"
        yield ""
        yield from _fenced(part.output)
        if part.exception is not None:
            yield from ("", "Failed:", "")
            yield from _fenced(part.exception)
        for attachment in part.attachments:
            yield from ("", f"*Attachment:* {_code(told(attachment))}")
    elif isinstance(part, AttachmentPart):
        yield f"*Attachment:* {_code(told(part.attachment))}"
    else:
        yield from _fenced(_json(part), "json")


def lines_of(text: str) -> list[str]:
    """Text as lines that may be printed."""
    return escape(text).rstrip("\n").split("\n")


def _indented(text: str) -> Iterator[str]:
    if text:
        yield from (f"    {line}".rstrip() for line in lines_of(text))


def _fenced(text: str, language: str = "") -> Iterator[str]:
    fence = max(["```", *(f"{found}`" for found in re.findall(_FENCES, text))], key=len)
    yield f"{fence}{language}"
    yield from lines_of(text)
    yield fence


def _code(text: str) -> str:
    line = one_line(text).replace("`", "'")
    return f"`{line}`" if line.strip() else ""


def _id(tool_call_id: str | None, write: Callable[[str], str] = str) -> str:
    return f" ({write(tool_call_id)})" if tool_call_id else ""


def _json(part: Part) -> str:
    return escape_json(json.dumps(part.to_dict(), ensure_ascii=False, indent=2))
