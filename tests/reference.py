"""The canonical form a second time, as docs/format.md tells it: the standard library alone, nothing of ours.

What the package writes is compared with what this writes.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any


def join_surrogates(value: Any) -> Any:
    """Surrogate halves that meet become one character, in keys too."""
    if isinstance(value, str):
        return value.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
    if isinstance(value, dict):
        return {join_surrogates(key): join_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [join_surrogates(item) for item in value]
    return value


def dumps(value: Any) -> bytes:
    text = json.dumps(join_surrogates(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


def digest(raw: bytes) -> str:
    return sha256(raw).hexdigest()


ALWAYS = {
    "text": ("text",),
    "reasoning": ("text",),
    "tool_call": ("name", "arguments"),
    "tool_result": ("name", "output"),
    "attachment": (),
}
IF_NOT_NULL = {
    "reasoning": ("token_count",),
    "tool_call": ("tool_call_id",),
    "tool_result": ("tool_call_id", "exception"),
}
IF_TRUE = {"reasoning": ("redacted",), "tool_call": ("server_executed",), "tool_result": ("server_executed",)}
ATTACHMENT = ("type", "url", "path", "content")


def attachment_of(given: dict[str, Any]) -> dict[str, Any]:
    return {key: given[key] for key in ATTACHMENT if given.get(key)}


def part_of(given: dict[str, Any], metadata: bool = True) -> dict[str, Any]:
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in ALWAYS:
        return {key: value for key, value in given.items() if metadata or key != "provider_metadata"}
    made = {"type": kind, **{key: given[key] for key in ALWAYS[kind]}}
    made |= {key: given[key] for key in IF_NOT_NULL.get(kind, ()) if given.get(key) is not None}
    made |= {key: True for key in IF_TRUE.get(kind, ()) if given.get(key)}
    if kind == "attachment":
        return made | (
            {} if given.get("attachment") is None else {"attachment": attachment_of(given["attachment"])}
        )
    if kind == "tool_result" and given.get("attachments"):
        made["attachments"] = [attachment_of(each) for each in given["attachments"]]
    if metadata and given.get("provider_metadata"):
        made["provider_metadata"] = given["provider_metadata"]
    return made


def message_of(given: dict[str, Any], metadata: bool = True) -> dict[str, Any]:
    """The members that a message's canonical form has."""
    made = {"role": given["role"], "parts": [part_of(part, metadata) for part in given["parts"]]}
    if metadata and given.get("provider_metadata"):
        made["provider_metadata"] = given["provider_metadata"]
    return made


def canonical(given: dict[str, Any], metadata: bool = True) -> bytes:
    return dumps(message_of(given, metadata))
