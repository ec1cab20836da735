"""A conversation to read, as one page that needs nothing else.

Nothing of a message becomes markup or script: all text is escaped, there is no script at all, and the page's
own policy allows neither scripts nor anything from elsewhere. Only bytes that are a picture of a known kind
become one.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterator, Sequence
from typing import Final

from objstore.attachment import Attachment
from objstore.message import (
    AttachmentPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
)
from objstore.transcripts.export.markdown import described, shown_arguments
from objstore.transcripts.export.model import ExportEntry, Losses, Written, base64_text, to_json

_STYLE: Final = """
:root{color-scheme:light dark;--line:#8884;--soft:#8881;--dim:#767676}
body{font:16px/1.5 system-ui,sans-serif;max-width:48rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}
article{border-top:1px solid var(--line);padding:.75rem 0}
article>header{color:var(--dim);font-size:.85rem;display:flex;gap:1rem;margin-bottom:.25rem}
article>header b{color:CanvasText}
article.user{background:var(--soft);padding:.75rem 1rem;border-radius:.5rem}
.text,pre{white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:plaintext;margin:.5rem 0}
pre{background:var(--soft);padding:.5rem .75rem;border-radius:.25rem;font:13px/1.45 ui-monospace,monospace}
details{margin:.5rem 0}
summary{color:var(--dim);cursor:pointer;overflow-wrap:anywhere}
img{max-width:100%;height:auto}
.failed{color:#c22}
"""
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode("ascii")
_POLICY: Final = (
    f"default-src 'none'; img-src data:; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'"
)
_PICTURES: Final = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}
"""The pictures that are shown, and how their bytes begin. No SVG: it is a program."""
_OPEN_CHARS: Final = 2000
"""What tools got and gave is folded from this length on."""
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_ROLES: Final = frozenset({"user", "assistant", "system", "tool", "developer"})


def write(chain: Sequence[ExportEntry], title: str | None = None) -> Written:
    """One HTML page."""
    losses = Losses()
    name = _escaped(title or "Conversation")
    pieces = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n',
        '<meta name="referrer" content="no-referrer">\n',
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
        f"<title>{name}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{name}</h1>\n",
    ]
    for number, entry in enumerate(chain):
        pieces.extend(_article(entry, number, losses))
    pieces.append("</body>\n</html>\n")
    losses.about(chain, times=True, held="hidden")
    return "".join(pieces), losses


def _escaped(text: str) -> str:
    """Text as text. What can't be seen, or would change the direction of what follows, becomes U+FFFD."""
    return html.escape(_UNSEEN.sub("\ufffd", text), quote=True)


def _article(entry: ExportEntry, number: int, losses: Losses) -> Iterator[str]:
    role = entry.message.role
    at = f"<time>{_escaped(entry.at)}</time>" if entry.at is not None else ""
    hidden = "<span>hidden</span>" if entry.note.get("hidden") is True else ""
    kind = role if role in _ROLES else "other"
    yield f'<article class="{kind}" id="m{number + 1}">\n<header><b>{_escaped(role)}</b>{at}{hidden}</header>\n'
    for part in entry.message.parts:
        yield from _shown(part, number, losses)
        if isinstance(part, TextPart | ReasoningPart | ToolCallPart | ToolResultPart) and part.provider_metadata:
            losses.add("provider-metadata", number, ", ".join(part.provider_metadata))
    yield "</article>\n"


def _shown(part: Part, number: int, losses: Losses) -> Iterator[str]:
    if isinstance(part, TextPart):
        yield f'<div class="text">{_escaped(part.text)}</div>\n'
    elif isinstance(part, ReasoningPart):
        words = part.text or ("(kept by the provider)" if part.redacted else "")
        yield f'<details><summary>thinking</summary><div class="text">{_escaped(words)}</div></details>\n'
    elif isinstance(part, ToolCallPart):
        yield _folded(_named("call", part), shown_arguments(part))
    elif isinstance(part, ToolResultPart):
        yield _folded(
            f"result {part.name}" + (f" · {part.tool_call_id}" if part.tool_call_id else ""), part.output
        )
        if part.exception is not None:
            yield f'<pre class="failed">{_escaped(part.exception)}</pre>\n'
        for attachment in part.attachments:
            yield _attachment(attachment, number, losses)
    elif isinstance(part, AttachmentPart):
        yield _attachment(part.attachment, number, losses)
    elif isinstance(part, UnknownPart):
        yield _folded("part of another kind", to_json(part.to_dict()))


def _named(what: str, part: ToolCallPart | ToolResultPart) -> str:
    return f"{what} {part.name}" + (f" · {part.tool_call_id}" if part.tool_call_id else "")


def _folded(summary: str, text: str) -> str:
    is_open = " open" if len(text) <= _OPEN_CHARS else ""
    return f"<details{is_open}><summary>{_escaped(summary)}</summary><pre>{_escaped(text)}</pre></details>\n"


def _attachment(attachment: Attachment | None, number: int, losses: Losses) -> str:
    words = _escaped(described(attachment))
    content = attachment.content if attachment is not None else None
    if attachment is None or not content:
        return f"<p>{words}</p>\n"
    media = (attachment.type or "").lower()
    if not content.startswith(_PICTURES.get(media, ())) or (media == "image/webp" and content[8:12] != b"WEBP"):
        losses.add("attachment-bytes", number, "only described")
        return f"<p>{words}</p>\n"
    return f'<p><img alt="{words}" src="data:{media};base64,{base64_text(attachment)}"></p>\n'
