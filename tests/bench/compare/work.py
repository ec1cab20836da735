"""The work that all peers do: turns, whole histories again, imports, loads; and what is on the disk then."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench.compare.chat import Chat, Plain, text
from tests.bench.compare.disk import ROOT, Usage, limit, packs_limit, shares, usage
from tests.bench.compare.peers import Ours, Peer
from tests.bench.compare.results import Sizes as SizesFound
from tests.bench.compare.results import Work
from tests.bench.compare.timing import Outcome, Prepare, Sample, Timed, Unable, in_turns

Kinds = Sequence[type[Peer]]
Opened = Mapping[str, Peer]


class OtherMessages(Exception):
    """A peer gives back something else than it was given."""


@contextmanager
def open_all(kinds: Kinds, folder: Path) -> Iterator[dict[str, Peer]]:
    """Each peer in a folder of its own below `folder`."""
    opened = {kind.name: kind(folder / place(kind)) for kind in kinds}
    try:
        yield opened
    finally:
        for peer in opened.values():
            peer.close()


def place(kind: type[Peer]) -> str:
    return "".join(c if c.isalnum() else "-" for c in kind.name)


def verify(peers: Iterable[Peer], chats: Sequence[Chat]) -> None:
    """Raise `OtherMessages` unless each peer gives the very messages back that were stored."""
    for peer in peers:
        for chat in chats:
            if peer.plain(peer.load(chat.name)) != chat.messages:
                raise OtherMessages(f"{peer.name}: {chat.name}")


def turns(peers: Opened, chats: Sequence[Chat], rounds: int) -> dict[str, Outcome]:
    """Two messages at a time, each durable as far as the peer makes it so. A unit is a turn."""

    def contestant(peer: Peer) -> Prepare:
        def prepare(number: int) -> Callable[[], int]:
            steps = [
                (chat.name, peer.native(chat.messages[at : at + 2]))
                for chat in chats[number::rounds]
                for at in range(0, len(chat.messages), 2)
            ]

            def act() -> int:
                for name, said in steps:
                    peer.append(name, said)
                return len(steps)

            return act

        return prepare

    return in_turns({name: contestant(peer) for name, peer in peers.items()}, rounds)


def session_turns(peers: Opened, session: Chat, rounds: int) -> dict[str, Outcome]:
    """One session from its beginning to its end, a part of it each round. A unit is a turn."""
    size = -(-len(session.messages) // (2 * rounds)) * 2
    parts = [Chat(session.name, session.messages[at : at + size]) for at in range(0, len(session.messages), size)]
    return turns(peers, parts, len(parts))


def whole_histories(peers: Opened, chats: Sequence[Chat], rounds: int) -> dict[str, Outcome]:
    """Two messages at a time, each time with all that came before: what a client without state sends."""

    def contestant(peer: Peer) -> Prepare:
        def prepare(number: int) -> Callable[[], int]:
            steps = [
                (f"{chat.name}-whole", peer.native(chat.messages[:count]))
                for chat in chats[number::rounds]
                for count in range(2, len(chat.messages) + 1, 2)
            ]

            def act() -> int:
                for name, history in steps:
                    peer.whole(name, history)
                return len(steps)

            return act

        return prepare

    return in_turns({name: contestant(peer) for name, peer in peers.items()}, rounds)


def _edited(history: Sequence[Plain], first: int, last: int, mark: str) -> list[Plain]:
    """A history in which some messages say something that was never said before."""
    return [
        text(each["role"], f"{mark} {place} {each['parts'][0]['text']}") if first <= place < last else each
        for place, each in enumerate(history)
    ]


VARIANTS: dict[str, Callable[[list[Plain], str], list[Plain]]] = {
    "all stored": lambda history, _: history,
    "last missing": lambda history, mark: _edited(history, len(history) - 1, len(history), mark),
    "half missing": lambda history, mark: _edited(history, len(history) // 2, len(history), mark),
    "only the system prompt stored": lambda history, mark: _edited(history, 1, len(history), mark),
    "edited in the middle": lambda history, mark: _edited(history, len(history) // 2, len(history) // 2 + 1, mark),
}


def resends(peers: Opened, chats: Sequence[Chat], sizes: Sequence[int], rounds: int) -> Iterator[tuple[str, Work]]:
    """Whole histories of no conversation. A unit is a history."""
    said = [each for chat in chats for each in chat.messages]
    for count in sizes:
        history = _edited([text("system", "You help."), *said][:count], 0, count, f"resent {count}")
        for peer in peers.values():
            try:
                peer.resend(peer.native(history))
            except Unable:
                continue
        for variant, change in VARIANTS.items():
            outcomes = in_turns({name: _resending(peer, history, change) for name, peer in peers.items()}, rounds)
            yield f"resend {variant} {count}", Work(f"{count:,} messages, {variant}", "history", outcomes)


def _resending(peer: Peer, history: list[Plain], change: Callable[[list[Plain], str], list[Plain]]) -> Prepare:
    def prepare(number: int) -> Callable[[], int]:
        native = peer.native(change(history, f"round {number}"))

        def act() -> int:
            peer.resend(native)
            return 1

        return act

    return prepare


def imports(peers: Opened, chats: Sequence[Chat], rounds: int) -> dict[str, Outcome]:
    """Whole conversations, a part of the corpus each round. A unit is a message."""

    def contestant(peer: Peer) -> Prepare:
        def prepare(number: int) -> Callable[[], int]:
            native = [(chat.name, peer.native(chat.messages)) for chat in chats[number::rounds]]

            def act() -> int:
                peer.store_all(native)
                return sum(len(messages) for _, messages in native)

            return act

        return prepare

    return in_turns({name: contestant(peer) for name, peer in peers.items()}, rounds)


def loads(peers: Opened, chats: Sequence[Chat], rounds: int) -> dict[str, Outcome]:
    """Each of some conversations once a round, by a program that has been running. A unit is a conversation."""

    def contestant(peer: Peer) -> Prepare:
        def act() -> int:
            for chat in chats:
                peer.load(chat.name)
            return len(chats)

        return lambda _: act

    for peer in peers.values():
        peer.load(chats[0].name)
    return in_turns({name: contestant(peer) for name, peer in peers.items()}, rounds)


def fresh_loads(kinds: Kinds, folder: Path, chats: Sequence[Chat], rounds: int) -> dict[str, Outcome]:
    """Opening and one load in a process of its own, imports not counted. A unit is a conversation."""
    taken: dict[str, list[Sample]] = {kind.name: [] for kind in kinds}
    for number in range(rounds):
        chat = chats[number % len(chats)]
        for kind in kinds:
            told = child("load", kind.name, str(folder / place(kind)), chat.name)
            if told["messages"] != len(chat.messages):
                raise OtherMessages(f"{kind.name}: {chat.name}")
            taken[kind.name].append(Sample(told["wall"], told["cpu"]))
    return {name: Timed(tuple(samples)) for name, samples in taken.items()}


def child(*arguments: str) -> dict[str, float]:
    """What `tests.bench.compare.child` says."""
    command = [sys.executable, "-m", "tests.bench.compare.child", *arguments]
    run = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    told: dict[str, float] = json.loads(run.stdout)
    return told


def on_disk(title: str, kinds: Kinds, folder: Path, chats: Sequence[Chat]) -> SizesFound:
    """What the peers' folders take; all are closed by now."""
    usages: dict[str, Usage | str] = {kind.name: usage(folder / place(kind)) for kind in kinds}
    lines, least = limit(chats)
    ours = folder / place(Ours)
    return SizesFound(title, usages, shares(ours), lines, least, packs_limit(ours / "store"))
