"""`llm`'s log before 0.36: prompts and responses in rows, of which conversations are made as `llm` makes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final

from objstore.message import (
    AttachmentPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from objstore.transcripts.build import arguments_of, message_or_none, note_of, time_of
from objstore.transcripts.databases import Database, Row, Value, text_of
from objstore.transcripts.exports import title_from
from objstore.transcripts.graph import heads_of
from objstore.transcripts.llm_parts import attachments_of, call_of, fragments_of
from objstore.transcripts.model import Entry, ReaderOutput, Skipped, SourceCall, Transcript
from objstore.transcripts.source import SourceFile
from objstore.transcripts.warnings import Warner, bounded

_RESPONSE: Final = (
    *("id", "model", "resolved_model", "prompt", "system", "options_json", "response", "reasoning"),
    *("conversation_id", "duration_ms", "datetime_utc", "input_tokens", "output_tokens", "token_details"),
)
_LOG: Final = (*_RESPONSE, "chat_id", "timestamp", "timestamp_utc")


def read_responses(database: Database, file: SourceFile, format: str) -> Iterator[ReaderOutput]:
    """Conversations from `responses`. A response without one is a conversation by itself."""
    if not database.has("responses", "id", "prompt", "response"):
        return
    calls = _ids_by_response(database, "tool_calls")
    results = _ids_by_response(database, "tool_results")
    rows = database.rows("responses", _RESPONSE, order=("conversation_id", "datetime_utc", "id"))
    for label, group in groupby(rows, lambda row: text_of(row["conversation_id"]) or text_of(row["id"]) or "-"):
        made = Transcript(format, label, (), place=f"{file.name}: conversation {label}")
        chain = _Chain(database, bounded(made.warn), calls, results)
        chain.extend(group)
        about = next(iter(database.rows("conversations", ("name", "model"), {"id": label})), None)
        if about is not None:
            made.title, made.model = text_of(about["name"]) or None, text_of(about["model"]) or None
        yield chain.finish(made)


def read_logs(database: Database, file: SourceFile, format: str) -> Iterator[ReaderOutput]:
    """Chats from `log` or `logs`, the tables before July 2023: a reply names the first row of its chat."""
    for table in ("log", "logs"):
        if not database.has(table, "prompt", "response"):
            continue
        chats: dict[str, list[Row]] = {}
        for i, row in enumerate(database.rows(table, _LOG, order=("id", "timestamp"))):
            key = text_of(row["id"]) or f"row-{i}"
            at = row["datetime_utc"] or row["timestamp_utc"] or row["timestamp"]
            chat = text_of(row["chat_id"]) or key
            chats.setdefault(chat, []).append({**row, "id": key, "datetime_utc": at})
        for chat, listed in chats.items():
            made = Transcript(format, f"{table}/{chat}", (), place=f"{file.name}: {table} {chat}")
            chain = _Chain(database, bounded(made.warn), {}, {})
            chain.extend(listed)
            yield chain.finish(made)


def _ids_by_response(database: Database, table: str) -> dict[str, list[Value]]:
    """The rows of each response: neither table has an index for that."""
    found: dict[str, list[Value]] = {}
    for row in database.rows(table, ("id", "response_id"), order=("id",)):
        found.setdefault(text_of(row["response_id"]) or "", []).append(row["id"])
    return found


class _Chain:
    """The messages of one conversation, as responses are added to it."""

    def __init__(
        self,
        database: Database,
        warn: Warner,
        calls: Mapping[str, list[Value]],
        results: Mapping[str, list[Value]],
    ) -> None:
        self._database, self._warn, self._calls_of, self._results_of = database, warn, calls, results
        self._entries: list[Entry] = []
        self._calls: dict[str, SourceCall] = {}
        self._keys: set[str] = set()
        self._system: str | None = None

    def extend(self, rows: Iterable[Row]) -> None:
        for row in rows:
            key = text_of(row["id"]) or "-"
            while key in self._keys:
                key += "+"
            self._keys.add(key)
            asked = self._last
            for role, parts in self._asked(row, key):
                asked = self._add(row, f"{key}/{role}", role, parts)
            answered = self._add(row, key, "assistant", self._answered(row, key))
            call = call_of(row, asked, answered)
            self._calls.setdefault(call.id, call)

    def finish(self, made: Transcript) -> ReaderOutput:
        if not self._entries:
            return Skipped("empty-conversation", made.place, made.title or "")
        made.entries, made.calls = self._entries, list(self._calls.values())
        made.heads = heads_of(self._entries)
        made.title = made.title or title_from(self._entries)
        made.model = made.model or made.calls[-1].model
        made.created_at = self._entries[0].at
        return made

    @property
    def _last(self) -> str | None:
        return self._entries[-1].key if self._entries else None

    def _add(self, row: Row, key: str, role: str, parts: list[Part]) -> str | None:
        message = message_or_none(role, parts, self._warn, key) if parts else None
        if message is None:
            return None
        model = text_of(row["model"]) if role == "assistant" else None
        note = note_of(id=text_of(row["id"]), model=model)
        self._entries.append(Entry(key, self._last, message, time_of(text_of(row["datetime_utc"])), note=note))
        return key

    def _asked(self, row: Row, key: str) -> Iterator[tuple[str, list[Part]]]:
        """What was new in a prompt: a system prompt other than before, tools' results, the user's words."""
        where = {"response_id": row["id"]}
        pieces = [*self._fragments("system_fragments", where, key), text_of(row["system"]) or ""]
        system = "\n\n".join(piece.strip() for piece in pieces if piece.strip())
        if system and system != self._system:
            yield "system", [TextPart(system)]
        self._system = system or self._system
        results = [
            part for each in self._results_of.get(text_of(row["id"]) or "", ()) for part in self._result(each, key)
        ]
        if results:
            yield "tool", results
        prompt = text_of(row["prompt"]) or ""
        words = "\n".join([*self._fragments("prompt_fragments", where, key), *([prompt] if prompt else [])])
        ids = [
            found["attachment_id"]
            for found in self._database.rows("prompt_attachments", ("attachment_id",), where, ("order",))
        ]
        attached = attachments_of(self._database, ids, key, self._warn)
        parts: list[Part] = [TextPart(words)] if words else []
        parts += [AttachmentPart(attachment) for attachment in attached]
        if parts:
            yield "user", parts

    def _fragments(self, table: str, where: Mapping[str, Value], key: str) -> list[str]:
        ids = [found["fragment_id"] for found in self._database.rows(table, ("fragment_id",), where, ("order",))]
        return fragments_of(self._database, ids, key, self._warn)

    def _result(self, row_id: Value, key: str) -> Iterator[Part]:
        columns = ("name", "output", "tool_call_id", "exception")
        for row in self._database.rows("tool_results", columns, {"id": row_id}):
            linked = self._database.rows(
                "tool_results_attachments", ("attachment_id",), {"tool_result_id": row_id}, ("order",)
            )
            ids = [found["attachment_id"] for found in linked]
            yield ToolResultPart(
                text_of(row["name"]) or "",
                text_of(row["output"]) or "",
                text_of(row["tool_call_id"]),
                exception=text_of(row["exception"]),
                attachments=attachments_of(self._database, ids, key, self._warn),
            )

    def _answered(self, row: Row, key: str) -> list[Part]:
        parts: list[Part] = []
        if reasoning := text_of(row["reasoning"]):
            parts.append(ReasoningPart(reasoning))
        if response := text_of(row["response"]):
            parts.append(TextPart(response))
        for call_id in self._calls_of.get(text_of(row["id"]) or "", ()):
            for call in self._database.rows("tool_calls", ("name", "arguments", "tool_call_id"), {"id": call_id}):
                arguments = arguments_of(text_of(call["arguments"]), self._warn, key)
                parts.append(ToolCallPart(text_of(call["name"]) or "", arguments, text_of(call["tool_call_id"])))
        return parts
