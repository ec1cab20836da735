"""OpenTelemetry's GenAI spans and log records as calls: what was sent, what came back, how each was told.

Three generations of the convention: `gen_ai.input.messages` and `gen_ai.output.messages` (as JSON text or as a
value, on a span, its events or a log record), one event a message (`gen_ai.user.message`, `gen_ai.choice`), and
numbered attributes (`gen_ai.prompt.0.content`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from objstore.jsonvalue import Json, loads
from objstore.transcripts.build import time_of
from objstore.transcripts.draft import is_deep, mapping, sequence, string
from refs.errors import InvalidValue

_INPUT: Final = "gen_ai.input.messages"
_OUTPUT: Final = "gen_ai.output.messages"
_SYSTEM: Final = "gen_ai.system_instructions"
_EVENT_ROLES: Final = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_CHOICE: Final = "gen_ai.choice"
_NUMBERED: Final = re.compile(r"gen_ai\.(prompt|completion)\.(\d{1,6})\.(.+)", re.DOTALL)
_NUMBERED_CALL: Final = re.compile(r"tool_calls\.(\d{1,6})\.(id|name|arguments)")
_TEXTS: Final = ("stringValue", "string_value")


@dataclass(slots=True)
class Told:
    """One call. `chat` says that the messages are in the chat shape, not in that of parts."""

    span: str
    trace: str
    attributes: dict[str, Json] = field(default_factory=dict)
    sent: list[Json] = field(default_factory=list)
    answers: list[Json] = field(default_factory=list)
    chat: bool = False
    started_at: str | None = None
    ended_at: str | None = None
    duration_ms: int | None = None
    error: str | None = None

    @property
    def instructions(self) -> Json:
        return value_of(self.attributes.get(_SYSTEM))


def calls_in(document: Json) -> Iterator[Told]:
    """The calls of one document: an export request, a span, a log record."""
    about = mapping(document)
    for resource in sequence(about.get("resourceSpans", about.get("resource_spans"))):
        yield from _spans_below(mapping(resource))
    records: dict[tuple[str, str], Told] = {}
    for resource in sequence(about.get("resourceLogs", about.get("resource_logs"))):
        for record in _below(mapping(resource), "scopeLogs", "logRecords"):
            _add_record(records, mapping(record))
    if "resourceSpans" not in about and "resourceLogs" not in about and "resource_spans" not in about:
        if "body" in about or "eventName" in about:
            _add_record(records, about)
        elif "attributes" in about:
            yield _span(about)
        elif "spans" in about or "scopeSpans" in about:
            yield from _spans_below(about)
    yield from records.values()


def _spans_below(resource: Mapping[str, Json]) -> Iterator[Told]:
    for span in _below(resource, "scopeSpans", "spans"):
        yield _span(mapping(span))


def _below(resource: Mapping[str, Json], scopes: str, items: str) -> Iterator[Json]:
    yield from sequence(resource.get(items))
    for name in (scopes, scopes.replace("scope", "instrumentationLibrary")):
        for scope in sequence(resource.get(name)):
            yield from sequence(mapping(scope).get(items))


def _span(span: Mapping[str, Json]) -> Told:
    context = mapping(span.get("context"))
    told = Told(
        string(span.get("spanId")) or string(context.get("span_id")) or "",
        string(span.get("traceId")) or string(context.get("trace_id")) or "",
        attributes_of(span.get("attributes")),
    )
    start, end = (span.get(f"{name}TimeUnixNano", span.get(f"{name}_time")) for name in ("start", "end"))
    told.started_at, told.ended_at = time_of(start), time_of(end)
    nanoseconds = _nanoseconds(end) - _nanoseconds(start)
    told.duration_ms = nanoseconds // 1_000_000 if _nanoseconds(start) and nanoseconds >= 0 else None
    status = mapping(span.get("status"))
    if status.get("code") in (2, "STATUS_CODE_ERROR") or status.get("status_code") == "ERROR":
        told.error = string(status.get("message")) or string(told.attributes.get("error.type")) or "error"
    _take_messages(told, told.attributes)
    for event in sequence(span.get("events")):
        _take_event(
            told, string(mapping(event).get("name")) or "", attributes_of(mapping(event).get("attributes"))
        )
    return told


def _nanoseconds(value: Json) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 20:
        return int(value)
    return value if isinstance(value, int) else 0


def _add_record(records: dict[tuple[str, str], Told], record: Mapping[str, Json]) -> None:
    attributes = attributes_of(record.get("attributes"))
    where = (string(record.get("traceId")) or "", string(record.get("spanId")) or "")
    told = records.setdefault(where, Told(where[1], where[0]))
    told.started_at = told.started_at or time_of(record.get("timeUnixNano", record.get("timestamp")))
    name = string(record.get("eventName")) or string(attributes.get("event.name")) or ""
    body = decoded(record.get("body"))
    _take_event(told, name, {**attributes, **body} if isinstance(body, dict) else attributes)
    told.attributes |= {key: value for key, value in attributes.items() if key not in (_INPUT, _OUTPUT)}


def _take_event(told: Told, name: str, given: Mapping[str, Json]) -> None:
    if name in _EVENT_ROLES or name == _CHOICE:
        content = value_of(given.get("gen_ai.event.content"))
        body = {**given, **content} if isinstance(content, dict) else dict(given)
        told.chat = True
        if name == _CHOICE:
            message = mapping(value_of(body.get("message"))) or body
            chosen = {"role": "assistant", **message, "finish_reason": body.get("finish_reason")}
            told.answers.append(_chat_message(chosen))
        else:
            told.sent.append(_chat_message({"role": _EVENT_ROLES[name], **body}))
    else:
        _take_messages(told, given)


def _chat_message(body: Mapping[str, Json]) -> dict[str, Json]:
    """An event's body as a chat message: a tool's answer names its call `id`."""
    message = {key: body[key] for key in ("role", "content", "name", "finish_reason") if body.get(key) is not None}
    if (calls := value_of(body.get("tool_calls"))) is not None:
        message["tool_calls"] = calls
    if message["role"] == "tool" and body.get("id") is not None:
        message["tool_call_id"] = body["id"]
    return message


def _take_messages(told: Told, given: Mapping[str, Json]) -> None:
    """What attributes hold, in any of the ways but events."""
    for key, into in ((_INPUT, told.sent), (_OUTPUT, told.answers)):
        if key in given:
            found = value_of(given[key])
            into.extend(found if isinstance(found, list) else [found])
    for key, into in (("gen_ai.prompt", told.sent), ("gen_ai.completion", told.answers)):
        if key in given:
            found = value_of(given[key])
            told.chat = True
            role = "user" if into is told.sent else "assistant"
            into.extend(found if isinstance(found, list) else [{"role": role, "content": given[key]}])
    numbered: dict[str, dict[int, dict[str, Json]]] = {"prompt": {}, "completion": {}}
    for key, value in given.items():
        if found := _NUMBERED.fullmatch(key):
            numbered[found[1]].setdefault(int(found[2]), {})[found[3]] = value
    for into, messages in ((told.sent, numbered["prompt"]), (told.answers, numbered["completion"])):
        for _, flat in sorted(messages.items()):
            told.chat = True
            into.append(_unflattened(flat))


def _unflattened(flat: Mapping[str, Json]) -> dict[str, Json]:
    calls: dict[int, dict[str, Any]] = {}
    for key, value in flat.items():
        if found := _NUMBERED_CALL.fullmatch(key):
            calls.setdefault(int(found[1]), {})[found[2]] = value
    message = {key: value for key, value in flat.items() if not _NUMBERED_CALL.fullmatch(key)}
    message.setdefault("role", "assistant")
    if isinstance(blocks := value_of(message.get("content")), list):
        message["content"] = blocks
    if calls:
        message["tool_calls"] = [call for _, call in sorted(calls.items())]
    return message


def attributes_of(given: Json) -> dict[str, Json]:
    """Attributes as an object: they may be a list of keys and typed values."""
    if isinstance(given, dict):
        return dict(given)
    pairs = [mapping(each) for each in sequence(given)]
    return {pair["key"]: decoded(pair.get("value")) for pair in pairs if isinstance(pair.get("key"), str)}


def decoded(given: Json) -> Json:
    """A value of the protocol, such as `{"stringValue": "x"}`, as plain JSON. Its depth was checked."""
    if not isinstance(given, dict) or len(given) != 1:
        return given
    ((kind, value),) = given.items()
    if kind in _TEXTS or kind in ("boolValue", "doubleValue", "bytesValue"):
        return value
    if kind == "intValue":
        return _nanoseconds(value) if isinstance(value, str) and value.isdecimal() else value
    if kind == "arrayValue":
        return [decoded(each) for each in sequence(mapping(value).get("values"))]
    if kind == "kvlistValue":
        return attributes_of(mapping(value).get("values"))
    return given


def value_of(given: Json) -> Json:
    """An attribute that may hold its value as JSON text."""
    if not isinstance(given, str) or not given.lstrip().startswith(("[", "{")):
        return given
    try:
        value = loads(given.encode("utf-8", "surrogatepass"))
    except InvalidValue:
        return given
    return given if is_deep(value) else value


def conversation_of(told: Told) -> str:
    """What a call belongs to: its conversation, else its session, else its trace."""
    keys: Sequence[str] = ("gen_ai.conversation.id", "session.id", "gen_ai.thread.id")
    return next((key for key in map(string, map(told.attributes.get, keys)) if key), told.trace)
