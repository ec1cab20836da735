"""What all readers need to make messages: times, arguments, attachments, notes, parts that aren't known."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from objstore.attachment import Attachment
from objstore.jsonvalue import EMPTY, FrozenDict, Json, freeze, freeze_object, loads_exactly
from objstore.message import RAW_ARGUMENTS, Message, Part, UnknownPart
from objstore.transcripts.warnings import Warner
from refs.errors import DagError, InvalidValue

_ISO: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9})\d*)?)?)?"
    r"\s*(?:(Z|UTC)|([+-])(\d\d):?(\d\d)?)?",
    re.ASCII | re.IGNORECASE,
)
_AS_WANTED: Final = re.compile(
    r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z", re.ASCII
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = ((1e11, 1), (1e14, 1000), (1e17, 1_000_000), (1e20, 1_000_000_000))  # below: ticks a second
_DATA_URL: Final = re.compile(r"data:([^,;]*)((?:;[^,;]*)*),", re.ASCII | re.IGNORECASE)
_MESSAGE_PART_DEPTH: Final = 3


# -- times ----------------------------------------------------------------------------------------


def time_of(value: object) -> str | None:
    """A time as `records.check_time` wants it, or None where `value` isn't one.

    Takes ISO 8601 (without a zone: UTC) and seconds, milli-, micro- or nanoseconds since 1970, told apart by
    their size; as numbers or as digits. Zero is what programs write for "unknown".
    """
    if isinstance(value, str):
        if _AS_WANTED.fullmatch(value) and int(value[8:10]) <= 28:
            return value
        found = _ISO.fullmatch(value.strip())
        if found:
            return _iso_time(found)
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    if not math.isfinite(number) or number <= 0:
        return None
    ticks = next((ticks for bound, ticks in _UNITS if number < bound), None)
    if ticks is None:
        return None
    # Integers stay exact; a float of seconds is rounded down to what it shows.
    milliseconds = value * 1000 // ticks if isinstance(value, int) else math.floor(number * 1000 / ticks + 1e-6)
    return _written(_EPOCH + timedelta(milliseconds=milliseconds))


def _iso_time(found: re.Match[str]) -> str | None:
    year, month, day, hour, minute, second = (int(found[i] or 0) for i in range(1, 7))
    try:
        moment = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC)
        moment += timedelta(milliseconds=int((found[7] or "0").ljust(3, "0")[:3]))
        if found[9]:
            offset = timedelta(hours=int(found[10]), minutes=int(found[11] or 0))
            moment += offset if found[9] == "-" else -offset
    except (ValueError, OverflowError):
        return None
    return _written(moment)


def _written(moment: datetime) -> str:
    return f"{moment.isoformat(timespec='milliseconds')[:23]}Z"


# -- numbers, text and arguments ---------------------------------------------------------------------------


def count_of(value: object) -> int | None:
    """A number of tokens or milliseconds as a call holds it, or None where `value` isn't one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None


def text_of(value: Json) -> str:
    """A string as it is, None as an empty one, everything else as its JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return ""


def arguments_of(value: Json, warn: Warner, place: str) -> Mapping[str, Json]:
    """A tool call's arguments as an object: from an object, or from JSON text.

    An empty text is no arguments. What isn't an object is kept as `{"_raw": "<the text>"}` and told as
    `invalid-arguments`.
    """
    if value is None or value == "":
        return EMPTY
    given = value
    if isinstance(value, str):
        try:
            given = loads_exactly(value.encode("utf-8", "surrogatepass"))
        except InvalidValue:
            given = None
    if isinstance(given, Mapping):
        try:
            return freeze_object(given, "arguments", depth=_MESSAGE_PART_DEPTH)
        except InvalidValue:
            pass
    warn("invalid-arguments", place, "")
    return {RAW_ARGUMENTS: text_of(value)}


# -- attachments ----------------------------------------------------------------------------------


def bytes_of(encoded: object) -> bytes | None:
    """The bytes of base64 text, as leniently as it is written: line breaks, URL alphabet, no padding."""
    if not isinstance(encoded, str):
        return None
    digits = re.sub(r"\s+", "", encoded).translate({ord("-"): "+", ord("_"): "/"}).rstrip("=")
    try:
        return base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def attachment_of_base64(encoded: object, media_type: str | None = None) -> Attachment | None:
    """An attachment with its bytes, or None where `encoded` isn't base64 (or holds nothing)."""
    content = bytes_of(encoded)
    return Attachment(media_type, content=content) if content else None


def attachment_of_url(url: str, media_type: str | None = None) -> Attachment:
    """An attachment from a URL: with its bytes where it is a `data:` URL, else by reference."""
    found = _DATA_URL.match(url)
    if found and ";base64" in found[2].lower():
        made = attachment_of_base64(url[found.end() :], found[1] or media_type)
        if made is not None:
            return made
    return Attachment(media_type, url=url)


# -- notes ---------------------------------------------------------------------------


def note_of(**known: Json) -> FrozenDict:
    """A note of what is there: None, False, empty text and empty collections are left out.

    A value that can't be held (nested too deep) is left out too: a note must not cost its message.
    """
    kept: dict[str, Json] = {}
    for key, value in known.items():
        if value is None or value is False or (isinstance(value, str | Mapping | list | tuple) and not value):
            continue
        try:
            kept[key] = freeze(value, key, depth=2)
        except InvalidValue:
            continue
    return freeze_object(kept, "")


# -- parts and messages ---------------------------------------------------------------------------


def unknown_part(value: Json, warn: Warner, place: str) -> Part:
    """A part that keeps `value`, told as `unknown-part`.

    What has no type of its own, or one of ours with another shape, is kept as `{"type": "unknown", …}`.
    """
    kind = value.get("type") if isinstance(value, Mapping) else None
    warn("unknown-part", place, kind if isinstance(kind, str) else type(value).__name__)
    if isinstance(value, Mapping) and isinstance(kind, str):
        try:
            return UnknownPart(value)
        except InvalidValue:
            pass
    try:
        return UnknownPart({"type": "unknown", "value": value})
    except InvalidValue:
        return UnknownPart({"type": "unknown", "json": text_of(value)})


def message_or_none(
    role: object, parts: Iterable[Part], warn: Warner, place: str, metadata: Mapping[str, Any] = EMPTY
) -> Message | None:
    """A message, or None with the warning `invalid-message`."""
    try:
        return Message(role if isinstance(role, str) else "", tuple(parts), metadata)
    except DagError as error:
        warn("invalid-message", place, str(error))
        return None
