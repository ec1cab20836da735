"""All the work, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from tests.bench.compare import work
from tests.bench.compare.chat import Chat
from tests.bench.compare.corpora import Corpora
from tests.bench.compare.disk import syncs_a_turn
from tests.bench.compare.growth import Grower
from tests.bench.compare.peers import Peer
from tests.bench.compare.peers_git import Pygit2Synced
from tests.bench.compare.profiles import profiles
from tests.bench.compare.results import Results, Work
from tests.bench.compare.roster import ROSTER
from tests.bench.compare.sizes import Sizes
from tests.bench.compare.startup import startup

Tell = Callable[[str], None]
LONG, SHORT = 1000, 40
"""Messages of the conversations that are loaded."""
_CHECKED = 5


def run(sizes: Sizes, corpora: Corpora, folder: Path, tell: Tell) -> Results:
    """Measure everything, in a folder that is on a real disk. Raises `OtherMessages` where a peer loses any."""
    results = Results(origins=corpora.origins)
    kinds: list[type[Peer]] = []
    for name, kind in ROSTER.items():
        lacks = kind.lacks()
        results.durable[name] = kind.durable
        if lacks is None:
            kinds.append(kind)
        else:
            results.absent[name] = f"{lacks} is not installed"
    for each in (_Chats, _Session, _Corpus, _Others, _Growing, _Ourselves):
        started = time.monotonic()
        step = each(sizes, corpora, kinds, folder / each.__name__.strip("_").lower(), results)
        step.folder.mkdir()
        step.do()
        tell(f"{each.__doc__}: {time.monotonic() - started:.0f} s")
    return results


class _Step:
    def __init__(
        self, sizes: Sizes, corpora: Corpora, kinds: list[type[Peer]], folder: Path, results: Results
    ) -> None:
        self.sizes, self.corpora, self.kinds = sizes, corpora, kinds
        self.folder, self.results = folder, results

    def do(self) -> None:
        raise NotImplementedError


class _Chats(_Step):
    """chats of many turns"""

    def do(self) -> None:
        chats, rounds = self.corpora.joined, self.sizes.rounds
        with work.open_all(self.kinds, self.folder) as peers:
            outcomes = work.turns(peers, chats, rounds)
            able = [each for each in peers.values() if not isinstance(outcomes[each.name], str)]
            work.verify(able, chats)
            self.results.work["turns"] = Work(
                f"a turn of a chat: {len(chats)} chats of {self.sizes.turns} turns, in new stores",
                "turn",
                outcomes,
            )
            for peer in peers.values():
                if peer not in able:
                    peer.store_all([(chat.name, peer.native(chat.messages)) for chat in chats])
                peer.settle()
            work.verify(peers.values(), chats[:_CHECKED])
        self.results.sizes["chats"] = work.on_disk(
            f"{len(chats)} chats of {self.sizes.turns} turns, a turn at a time", self.kinds, self.folder, chats
        )
        for kind in self.kinds:
            if not isinstance(outcomes[kind.name], str):
                self.results.syncs[kind.name] = syncs_a_turn(kind.name, self.folder)


class _Session(_Step):
    """an agent's session"""

    def do(self) -> None:
        session = self.corpora.session
        self.results.session_turns = len(session.messages) // 2
        with work.open_all(self.kinds, self.folder) as peers:
            outcomes = work.session_turns(peers, session, self.sizes.rounds)
            for peer in peers.values():
                if isinstance(outcomes[peer.name], str):
                    peer.store_all([(session.name, peer.native(session.messages))])
                peer.settle()
            work.verify(peers.values(), [session])
        self.results.work["session"] = Work(
            f"a turn of an agent's session of {len(session.messages) // 2:,} turns, in new stores",
            "turn",
            outcomes,
        )
        self.results.sizes["session"] = work.on_disk(
            f"one agent's session of {len(session.messages) // 2:,} turns, a turn at a time",
            self.kinds,
            self.folder,
            [session],
        )


class _Corpus(_Step):
    """the large corpora"""

    def do(self) -> None:
        sizes, found = self.sizes, self.results.work
        chats = self.corpora.large
        # It would store as pygit2 does, and wait for each object: that says nothing more.
        kinds = [kind for kind in self.kinds if kind is not Pygit2Synced]
        said = [each for chat in chats for each in chat.messages]
        loaded = {
            count: [
                Chat(f"loaded-{count}-{i}", said[i * count : (i + 1) * count])
                for i in range(max(1, min(sizes.loads, len(said) // count)))
            ]
            for count in (SHORT, LONG)
        }
        loaded[LONG] = loaded[LONG][: max(1, sizes.loads // 8)]
        extra = [chat for each in loaded.values() for chat in each]
        turned = self._more_turns()
        with work.open_all(kinds, self.folder) as peers:
            found["import"] = Work(
                f"import of {len(chats):,} conversations, {len(said):,} messages",
                "message",
                work.imports(peers, chats, sizes.rounds),
            )
            for peer in peers.values():
                peer.store_all([(chat.name, peer.native(chat.messages)) for chat in extra])
                peer.settle()
            work.verify(peers.values(), [*islice(chats, _CHECKED), *extra[:2]])
        self.results.sizes["corpus"] = work.on_disk("the large corpora", kinds, self.folder, [*chats, *extra])
        with work.open_all(kinds, self.folder) as peers:
            for count, some in loaded.items():
                size = len(some[0].messages)
                title = f"load of {size:,} messages"
                found[f"load {count}"] = Work(f"{title}, warm", "load", work.loads(peers, some, sizes.rounds))
                found[f"load {count} fresh"] = Work(
                    f"{title}, opened in a fresh process",
                    "load",
                    work.fresh_loads(kinds, self.folder, some, sizes.rounds),
                )
            nodes = f"{len(said):,} messages in the store before"
            found["turns filled"] = Work(
                f"a turn of a chat, {nodes}", "turn", work.turns(peers, turned, sizes.rounds)
            )
            found["whole"] = Work(
                f"a turn of a chat, the whole history sent again, {nodes}",
                "turn",
                work.whole_histories(peers, turned, sizes.rounds),
            )
            able = [
                peer for peer in peers.values() if not isinstance(found["turns filled"].outcomes[peer.name], str)
            ]
            work.verify(able, turned)
            sent = [peer for peer in able if not isinstance(found["whole"].outcomes[peer.name], str)]
            work.verify(sent, [Chat(f"{chat.name}-whole", chat.messages) for chat in turned])
            found.update(work.resends(peers, chats, sizes.resends, sizes.rounds))

    def _more_turns(self) -> list[Chat]:
        """Chats for the turns in a full store, with messages that are new to it."""
        chats = []
        for chat in self.corpora.joined[: max(self.sizes.rounds, self.sizes.corpus_turns // self.sizes.turns)]:
            said = [
                {**each, "parts": [{"type": "text", "text": f"later: {each['parts'][0]['text']}"}]}
                for each in chat.messages
            ]
            chats.append(Chat(f"later-{chat.name}", said))
        return chats


class _Others(_Step):
    """agents' sessions and the tool benchmark"""

    def do(self) -> None:
        for key, title, chats in (
            ("coding", "coding agents' sessions", self.corpora.coding),
            ("tools", "the tool benchmark", self.corpora.tools),
        ):
            kinds = [kind for kind in self.kinds if kind is not Pygit2Synced]
            with work.open_all(kinds, self.folder / key) as peers:
                for peer in peers.values():
                    peer.store_all([(chat.name, peer.native(chat.messages)) for chat in chats])
                    peer.settle()
                work.verify(peers.values(), chats)
            self.results.sizes[key] = work.on_disk(title, kinds, self.folder / key, chats)


class _Growing(_Step):
    """a growing store"""

    def do(self) -> None:
        grower = Grower(self.folder, self.sizes.rounds)
        try:
            self.results.growth = list(grower.grow(self.sizes.growth))
            self.results.prefixes = list(grower.prefixes())
        finally:
            grower.close()


class _Ourselves(_Step):
    """start-up and profiles"""

    def do(self) -> None:
        self.results.work["startup"] = startup(self.folder, self.sizes.starts)
        self.results.profiles = profiles(self.folder, self.corpora.joined, self.corpora.large)
