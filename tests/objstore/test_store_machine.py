"""Whatever is done to a store, in whatever order, it says the same as a few dictionaries."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from objstore.gc import GcOptions
from objstore.kinds import Kind
from refs.errors import Diverged, NoSuchRef, RefChanged, RefExists
from refs.ids import ROOT
from tests.storetools import init_quiet, quiet_store, say, words_of

NAMES = st.sampled_from(["a", "b", "c/d", "c/e"])
WORDS = st.lists(st.sampled_from(["yes", "no", "perhaps", "x" * 5000]), min_size=1, max_size=4)
MANY = [f"{i}" for i in range(70)]


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="machine-"))
        self.store = init_quiet(self.folder / "store")
        self.heads: dict[str, list[str]] = {}
        self.titles: dict[str, str] = {}
        self.tags: dict[str, list[str]] = {}
        self.moves = 0

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    @rule(name=NAMES, words=WORDS | st.just(MANY))
    def commit(self, name, words) -> None:
        self.store.commit(name, [say(word) for word in words])
        self.heads[name] = [*self.heads.get(name, []), *words]
        self.moves += 1

    @rule(name=NAMES, words=WORDS)
    def commit_history(self, name, words) -> None:
        there = self.heads.get(name, [])
        history = [say(word) for word in words]
        if words == there[: len(words)]:
            assert self.store.commit_history(name, history)[1] == 0
        elif there == words[: len(there)]:
            assert self.store.commit_history(name, history)[1] == len(words) - len(there)
            self.heads[name] = words
            self.moves += 1
        else:
            with pytest.raises(Diverged) as caught:
                self.store.commit_history(name, history)
            common = sum(1 for i in range(min(len(words), len(there))) if words[: i + 1] == there[: i + 1])
            assert caught.value.common == common

    @rule(name=NAMES, words=WORDS)
    def commit_too_late(self, name, words) -> None:
        """Somebody who thinks that the conversation is elsewhere."""
        elsewhere = self.store.save_chain([say("elsewhere")])
        with pytest.raises(RefChanged) as caught:
            self.store.commit(name, [say(word) for word in words], expected=elsewhere)
        assert words_of(self.store.load_chain(caught.value.stored)) == ["elsewhere", *words]

    @precondition(lambda self: self.heads)
    @rule(data=st.data(), name=NAMES)
    def fork(self, data, name) -> None:
        source = data.draw(st.sampled_from(sorted(self.heads)))
        words = self.heads[source]
        back = data.draw(st.integers(0, len(words) - 1))
        node = self.store.resolve(f"{source}~{back}")
        if name in self.heads:
            with pytest.raises(RefExists):
                self.store.fork(node, name)
            return
        self.store.fork(node, name)
        self.heads[name] = words[: len(words) - back]
        self.moves += 1

    @rule(old=NAMES, new=NAMES)
    def rename(self, old, new) -> None:
        if old not in self.heads:
            with pytest.raises(NoSuchRef):
                self.store.rename(old, new)
        elif new in self.heads:
            with pytest.raises(RefExists):
                self.store.rename(old, new)
        else:
            self.store.rename(old, new)
            self.heads[new] = self.heads.pop(old)
            self.moves += 2
            if old in self.titles:
                self.titles[new] = self.titles.pop(old)
                self.moves += 2

    @rule(name=NAMES)
    def delete(self, name) -> None:
        if name not in self.heads:
            with pytest.raises(NoSuchRef):
                self.store.delete(name)
            return
        self.store.delete(name)
        del self.heads[name]
        self.moves += 1 + (self.titles.pop(name, None) is not None)

    @rule(name=NAMES, title=st.sampled_from(["One", "Two"]))
    def describe(self, name, title) -> None:
        if name in self.heads:
            self.store.describe(name, title=title)
            self.moves += self.titles.get(name) != title
            self.titles[name] = title

    @precondition(lambda self: self.heads)
    @rule(data=st.data())
    def tag(self, data) -> None:
        name = data.draw(st.sampled_from(sorted(self.heads)))
        tag = f"t{len(self.tags)}"
        self.store.tag(tag, self.store.head(name))
        self.tags[tag] = self.heads[name]
        self.moves += 1

    @rule()
    def pack(self) -> None:
        self.store.pack()

    @rule()
    def checkpoint(self) -> None:
        self.store.storage.checkpoint()

    @rule(quick=st.booleans())
    def gc(self, quick) -> None:
        self.store.gc(GcOptions(prune_before=1e12, now=1e12, quick=quick))

    @rule()
    def pack_refs(self) -> None:
        with self.store.storage.lock():
            self.store.storage.refs.pack()

    @rule()
    def reindex(self) -> None:
        self.store.reindex()

    @rule()
    def open_again(self) -> None:
        self.store.close()
        self.store = quiet_store(self.folder / "store")

    @rule()
    def open_without_an_index(self) -> None:
        self.store.close()
        (self.folder / "store" / "index.sqlite").unlink()
        self.store = quiet_store(self.folder / "store")

    @rule()
    def open_without_a_checkpoint(self) -> None:
        self.store.storage.index.close()
        self.store = quiet_store(self.folder / "store")

    @invariant()
    def says_the_same(self) -> None:
        store = self.store
        assert {info.name for info in store.conversations()} == set(self.heads)
        for name, words in self.heads.items():
            head = store.head(name)
            assert words_of(store.load_chain(head)) == words
            assert store.depth(head) == len(words)
            about = store.description(name)
            assert (about and about.title) == self.titles.get(name)
        assert {tag: words_of(store.load_chain(node)) for tag, node in store.tags()} == self.tags
        assert len(list(store.reflog())) == self.moves
        for words in self.heads.values():
            assert store.find_longest_existing_prefix([say(word) for word in words])[1] == len(words)

    @precondition(lambda self: len(self.heads) > 1)
    @invariant()
    def ancestors_agree(self) -> None:
        (one, left), (two, right) = sorted(self.heads.items())[:2]
        common = self.store.common_ancestor(self.store.head(one), self.store.head(two))
        shared = sum(1 for i in range(min(len(left), len(right))) if left[: i + 1] == right[: i + 1])
        assert self.store.depth(common) == shared
        assert (common == ROOT) == (shared == 0)

    @rule()
    def nothing_is_wrong(self) -> None:
        assert not [finding for finding in self.store.fsck() if finding.severity.name == "ERROR"]
        counts = self.store.storage.index.counts()
        assert counts[Kind.NODE] >= max([0, *map(len, self.heads.values())])


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=40, stateful_step_count=30)
