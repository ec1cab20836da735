"""git as a store of conversations: libgit2 with a commit a turn, and `git fast-import` in two layouts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

from tests.bench.compare.peers import Native, Peer

_COMMITTER = b"committer bench <bench@example.invalid> 0 +0000\ndata 0\n"


class _Repository(Peer):
    """A bare repository; a branch is a conversation."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        if not (folder / "HEAD").exists():
            self._git("init", "--quiet", "--bare", ".")

    def settle(self) -> None:
        self._git("gc", "--quiet", "--prune=now")

    def _git(self, *arguments: str, given: bytes | None = None) -> bytes:
        return subprocess.run(
            ["git", "-C", str(self.folder), *arguments], input=given, check=True, capture_output=True
        ).stdout

    def _contents(self, names: Iterable[str]) -> list[Any]:
        """The JSON of some blobs, in one process."""
        told = self._git("cat-file", "--batch", given="\n".join(names).encode() + b"\n")
        found, at = [], 0
        while at < len(told):
            begin = told.index(b"\n", at) + 1
            end = begin + int(told[at:begin].split()[2])
            found.append(orjson.loads(told[begin:end]))
            at = end + 1
        return found


class _FastImport(_Repository):
    needs = ("git",)
    durable = "packs are synced, refs are not"

    def store_all(self, chats: Iterable[tuple[str, Native]]) -> None:
        command = ["git", "-C", str(self.folder), "fast-import", "--quiet"]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            for chat, messages in chats:
                process.stdin.writelines(self._stream(f"refs/heads/{chat}".encode(), messages))
            process.stdin.close()
            if process.wait():
                raise subprocess.CalledProcessError(process.returncode, command)

    def _stream(self, branch: bytes, messages: Native) -> Iterator[bytes]:
        raise NotImplementedError


class GitTree(_FastImport):
    name = "git, a tree a conversation"

    def _stream(self, branch: bytes, messages: Native) -> Iterator[bytes]:
        yield b"commit %b\n%b" % (branch, _COMMITTER)
        for place, each in enumerate(messages):
            yield _file(b"%06d" % place, each)

    def load(self, chat: str) -> Native:
        names = self._git("ls-tree", "--name-only", f"refs/heads/{chat}").decode().split()
        return self._contents(f"refs/heads/{chat}:{name}" for name in names)


class GitCommits(_FastImport):
    name = "git, a commit a message"

    def _stream(self, branch: bytes, messages: Native) -> Iterator[bytes]:
        for each in messages:
            yield b"commit %b\n%b" % (branch, _COMMITTER)
            yield _file(b"message", each)

    def load(self, chat: str) -> Native:
        commits = self._git("rev-list", "--reverse", f"refs/heads/{chat}").decode().split()
        return self._contents(f"{commit}:message" for commit in commits)


def _file(name: bytes, value: object) -> bytes:
    data = orjson.dumps(value)
    return b"M 644 inline %b\ndata %d\n%b\n" % (name, len(data), data)


class Pygit2(_Repository):
    """A commit a turn, with the turn's messages in its tree: the least that git can write."""

    name = "pygit2"
    durable = "no: libgit2 does not sync by default"
    needs = ("pygit2", "git")
    _sync = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        import pygit2  # noqa: PLC0415

        self._repository = pygit2.Repository(str(folder))
        self._signature = pygit2.Signature("bench", "bench@example.invalid", 0, 0)

    def append(self, chat: str, messages: Native) -> None:
        import pygit2  # noqa: PLC0415

        pygit2.settings.enable_fsync_gitdir(self._sync)
        repository, ref = self._repository, f"refs/heads/{chat}"
        builder = repository.TreeBuilder()
        for place, each in enumerate(messages):
            blob = repository.create_blob(orjson.dumps(each))
            builder.insert(f"{place:06}", blob, pygit2.enums.FileMode.BLOB)
        head = repository.references.get(ref)
        parents = [] if head is None else [head.target]
        repository.create_commit(ref, self._signature, self._signature, "", builder.write(), parents)

    def store_all(self, chats: Iterable[tuple[str, Native]]) -> None:
        for chat, messages in chats:
            self.append(chat, messages)

    def load(self, chat: str) -> Native:
        repository = self._repository
        trees = []
        commit = repository.references[f"refs/heads/{chat}"].peel()
        while True:
            trees.append(commit.tree)
            if not commit.parents:
                break
            commit = commit.parents[0]
        return [orjson.loads(entry.data) for tree in reversed(trees) for entry in tree]

    def close(self) -> None:
        self._repository.free()


class Pygit2Synced(Pygit2):
    name = "pygit2, synced"
    durable = "yes: enable_fsync_gitdir, each object and ref"
    _sync = True
