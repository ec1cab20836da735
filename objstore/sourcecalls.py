"""Calls as a source tells them, made into records that are the same at every import."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from objstore import clock as clocks
from objstore.entrytree import NOWHERE, EntryTree
from objstore.records import Call
from objstore.transcripts.model import SourceCall, Transcript

UNKNOWN_TIME: Final = "1970-01-01T00:00:00.000Z"
"""When a call was made whose source tells no time at all."""

_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def call_record(transcript: Transcript, call: SourceCall, tree: EntryTree, asked: int, name: str) -> Call:
    """The record of a call that was asked at the place `asked`, for the conversation `name`."""
    answered = tree.get(call.head_output)
    times = (tree.time(each) for each in (answered, asked) if each is not None and each != NOWHERE)
    started = call.started_at or next(filter(None, times), None) or transcript.created_at or UNKNOWN_TIME
    return Call(
        call=_ulid(started, f"{transcript.format}\n{transcript.id}\n{call.id}"),
        model=call.model or "unknown",
        resolved_model=call.resolved_model,
        head_input=tree.id(asked),
        head_output=None if answered is None else tree.id(answered),
        conversation=name,
        started_at=started,
        duration_ms=call.duration_ms,
        error=call.error,
        input_tokens=call.input_tokens,
        output_tokens=call.output_tokens,
        token_details=call.token_details or None,
        options=call.options or None,
    )


def _ulid(at: str, seed: str) -> str:
    """A ULID that is the same for the same source: importing again records nothing twice, anywhere."""
    milliseconds = max(0, clocks.milliseconds(at))
    random = int.from_bytes(sha256(seed.encode("utf-8", "surrogatepass")).digest()[:10], "big")
    value = (milliseconds << 80) | random
    return "".join(_CROCKFORD[(value >> shift) & 31] for shift in range(125, -1, -5))
