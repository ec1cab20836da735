"""Peers from the package registry that keep messages in SQLite. Their modules are imported when they are used."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.bench.compare.chat import Plain
from tests.bench.compare.peers import Native, Peer


class Llm(Peer):
    """`llm.logs.LogStore`. Whole histories go in as its `log` puts them: `ensure_chain` in one transaction."""

    name = "llm"
    durable = "yes: rollback journal, synchronous=FULL, a transaction a message"
    needs = ("llm.logs", "sqlite_utils")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        import sqlite_utils  # noqa: PLC0415
        from llm.logs import LogStore  # noqa: PLC0415

        self._db = sqlite_utils.Database(folder / "logs.db")
        self._store = LogStore(self._db)
        self._threads: set[str] = set()

    def native(self, messages: Sequence[Plain]) -> Native:
        from llm.parts import Message  # noqa: PLC0415

        return [Message.from_dict(each) for each in messages]

    def plain(self, native: Native) -> list[Plain]:
        return [each.to_dict() for each in native]

    def append(self, chat: str, messages: Native) -> None:
        self._store.append(self._thread(chat), messages)

    def whole(self, chat: str, history: Native) -> None:
        thread = self._thread(chat)
        with self._db.atomic():
            tip = self._store.ensure_chain(history)
            self._db["threads"].update(thread, {"tip_message_hash": tip})

    def resend(self, history: Native) -> None:
        with self._db.atomic():
            self._store.ensure_chain(history)

    def store_all(self, chats: Iterable[tuple[str, Native]]) -> None:
        with self._db.atomic():
            for chat, messages in chats:
                self.append(chat, messages)

    def load(self, chat: str) -> Native:
        return self._store.thread_messages(chat)

    def close(self) -> None:
        self._db.close()

    def _thread(self, chat: str) -> str:
        if chat not in self._threads:
            self._store.ensure_thread(chat)
            self._threads.add(chat)
        return chat


class LangGraph(Peer):
    """`SqliteSaver`: a checkpoint after each turn, with the whole state in it.

    The messages are plain dicts: smaller and faster than LangChain's own objects. The state stays in memory
    between turns, where a graph would read it from the latest checkpoint first.
    """

    name = "LangGraph"
    durable = "yes: WAL, synchronous=FULL, a transaction a checkpoint"
    needs = ("langgraph.checkpoint.sqlite",)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415

        self._opened = SqliteSaver.from_conn_string(str(folder / "checkpoints.sqlite"))
        self._saver = self._opened.__enter__()
        self._states: dict[str, list[Plain]] = {}
        self._configs: dict[str, Any] = {}

    def append(self, chat: str, messages: Native) -> None:
        if chat not in self._states:
            held = self._saver.get_tuple(_config(chat))
            self._states[chat] = [] if held is None else list(held.checkpoint["channel_values"]["messages"])
        self.whole(chat, self._states[chat] + messages)

    def whole(self, chat: str, history: Native) -> None:
        from langgraph.checkpoint.base import empty_checkpoint  # noqa: PLC0415

        checkpoint = empty_checkpoint()
        version = len(history)
        checkpoint["channel_values"] = {"messages": history}
        checkpoint["channel_versions"] = {"messages": version}
        config = self._configs.get(chat) or _config(chat)
        step = {"source": "loop", "step": version, "parents": {}}
        self._configs[chat] = self._saver.put(config, checkpoint, step, {"messages": version})
        self._states[chat] = history

    def resend(self, history: Native) -> None:
        self.whole("resent", history)

    def store_all(self, chats: Iterable[tuple[str, Native]]) -> None:
        for chat, messages in chats:
            self.whole(chat, messages)

    def load(self, chat: str) -> Native:
        return self._saver.get_tuple(_config(chat)).checkpoint["channel_values"]["messages"]

    def settle(self) -> None:
        self._saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self._opened.__exit__(None, None, None)


def _config(chat: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": chat, "checkpoint_ns": ""}}


class OpenAiAgents(Peer):
    """`SQLiteSession`: one object a conversation, items as plain dicts."""

    name = "openai-agents"
    durable = "yes: WAL, synchronous=FULL, a transaction a turn"
    needs = ("agents",)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._runner = asyncio.Runner()
        self._sessions: dict[str, Any] = {}

    def append(self, chat: str, messages: Native) -> None:
        self._runner.run(self._session(chat).add_items(messages))

    def store_all(self, chats: Iterable[tuple[str, Native]]) -> None:
        for chat, messages in chats:
            self.append(chat, messages)
            self._sessions.pop(chat).close()

    def load(self, chat: str) -> Native:
        return self._runner.run(self._session(chat).get_items())

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._runner.close()

    def _session(self, chat: str) -> Any:
        from agents import SQLiteSession  # noqa: PLC0415

        if chat not in self._sessions:
            self._sessions[chat] = SQLiteSession(chat, self.folder / "sessions.sqlite")
        return self._sessions[chat]
