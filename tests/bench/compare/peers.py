"""What takes part, and how: this store, a plain SQLite table, JSON Lines; others are in modules of their own.

Each is used as its own documentation says. What a peer's program would have in its hands anyway (its own
message objects) is made by `native` outside the clock.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sqlite3
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import orjson

from objstore.gc import GcOptions
from objstore.ingest import Ingest
from objstore.message import Message
from objstore.store import Store
from objstore.transcripts.model import Entry, Transcript
from tests.bench.compare.chat import Plain
from tests.bench.compare.timing import Unable

Native = Any
"""Messages as a peer's own objects."""


class Peer:
    """One way to keep conversations, in a folder of its own. What it can't do raises `Unable`.

    `needs` are modules and programs it can't do without; `durable` says what holds when `append` returns.
    """

    name: ClassVar[str]
    durable: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder

    @classmethod
    def lacks(cls) -> str | None:
        """The first of its needs that isn't here."""
        for need in cls.needs:
            module = importlib.util.find_spec(need.partition(".")[0]) is not None
            if not module and shutil.which(need) is None:
                return need
        return None

    def native(self, messages: Sequence[Plain]) -> Native:
        """Messages as its own objects."""
        return messages

    def plain(self, native: Native) -> list[Plain]:
        """And back."""
        return list(native)

    def append(self, chat: str, messages: Native) -> None:
        """A turn of a conversation, which may be a new one."""
        raise Unable("is made for whole conversations")

    def whole(self, chat: str, history: Native) -> None:
        """A conversation's whole history, sent again with the latest turn in it."""
        raise Unable("can't tell what of it is stored")

    def resend(self, history: Native) -> None:
        """A whole history of no conversation, as a gateway sees it."""
        raise Unable("can't tell what of it is stored")

    def store_all(self, chats: Iterable[tuple[str, Native]]) -> None:
        """Whole conversations, many at once, the fastest way it has."""
        raise Unable("has no way of its own for many at once")

    def load(self, chat: str) -> Native:
        """A conversation's messages, oldest first."""
        raise NotImplementedError

    def settle(self) -> None:
        """Bring what is stored into its smallest form, where it has one."""

    def close(self) -> None:
        """Give back all files."""


class Ours(Peer):
    name = "msgdag"
    durable = "yes: fdatasync of the journal"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        path = folder / "store"
        self.store = Store.open(path) if path.exists() else Store.init(path)

    def native(self, messages: Sequence[Plain]) -> Native:
        return [Message.from_dict(each) for each in messages]

    def plain(self, native: Native) -> list[Plain]:
        return [each.to_dict() for each in native]

    def append(self, chat: str, messages: Native) -> None:
        self.store.commit(chat, messages)

    def whole(self, chat: str, history: Native) -> None:
        self.store.commit_history(chat, history)

    def resend(self, history: Native) -> None:
        self.store.save_with_dedup(history)

    def store_all(self, chats: Iterable[tuple[str, Native]]) -> None:
        with Ingest(self.store, pattern="{id}") as ingest:
            for name, messages in chats:
                ingest.add(Transcript("bench", name, _entries(messages)))

    def load(self, chat: str) -> Native:
        return self.store.conversation(chat).messages()

    def settle(self) -> None:
        self.store.gc(GcOptions(prune_before=None, now=time.time()))

    def close(self) -> None:
        self.store.close()


def _entries(messages: Sequence[Message]) -> Iterable[Entry]:
    for place, message in enumerate(messages):
        yield Entry(str(place), str(place - 1) if place else None, message)


class SqliteTable(Peer):
    name = "SQLite table"
    durable = "yes: WAL, synchronous=FULL, a transaction a turn"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._db = sqlite3.connect(folder / "messages.sqlite", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS message"
            "(chat TEXT, place INTEGER, body BLOB, PRIMARY KEY(chat, place)) WITHOUT ROWID"
        )

    def append(self, chat: str, messages: Native) -> None:
        self.store_all([(chat, messages)])

    def store_all(self, chats: Iterable[tuple[str, Native]]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        for chat, messages in chats:
            [(first,)] = self._db.execute("SELECT ifnull(max(place), -1) + 1 FROM message WHERE chat=?", (chat,))
            rows = [(chat, first + i, orjson.dumps(each)) for i, each in enumerate(messages)]
            self._db.executemany("INSERT INTO message VALUES(?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def load(self, chat: str) -> Native:
        rows = self._db.execute("SELECT body FROM message WHERE chat=? ORDER BY place", (chat,))
        return [orjson.loads(body) for (body,) in rows]

    def settle(self) -> None:
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self._db.close()


class JsonLines(Peer):
    name = "JSON Lines"
    durable = "yes: fsync of the file, and of the folder when it is new"

    def append(self, chat: str, messages: Native) -> None:
        path = self.folder / f"{chat}.jsonl"
        new = not path.exists()
        with path.open("ab") as file:
            file.write(b"".join([orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in messages]))
            file.flush()
            os.fsync(file.fileno())
        if new:
            folder = os.open(self.folder, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)

    def store_all(self, chats: Iterable[tuple[str, Native]]) -> None:
        for chat, messages in chats:
            self.append(chat, messages)

    def load(self, chat: str) -> Native:
        with (self.folder / f"{chat}.jsonl").open("rb") as file:
            return [orjson.loads(line) for line in file]
