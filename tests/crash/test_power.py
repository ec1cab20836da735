"""Power cuts and killed processes, at every step of every kind of change, in every way the disk may look then."""

from __future__ import annotations

import itertools
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from objstore import engine, journal
from objstore.attachment import Attachment
from objstore.findings import Severity
from objstore.gc import GcOptions
from objstore.message import AttachmentPart, Message, TextPart
from objstore.storage import Storage
from objstore.store import Store
from refs.ids import ROOT
from tests.crash.model import Disk, RecordingFiles, lay_out, photograph
from tests.storetools import indexed, init_quiet, picture, quiet_store, say, talk, ticking, words_of

REBUILD_EVERY = 7
"""So many states are looked at before one index is compared with a fresh one: building one takes the longest."""
LONG = "long" * 45
"""A name that makes a long log of few moves."""


@dataclass
class Story:
    """What happened to a store: its steps, and what it looked like whenever something had been acknowledged."""

    store: Store
    files: RecordingFiles
    pictures: list[dict[str, object]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def acknowledge(self) -> None:
        self.steps.append(len(self.files.ops))
        self.pictures.append(picture(self.store))

    def allowed(self, step: int) -> list[dict[str, object]]:
        """What may be seen after a crash behind so many steps: all that was acknowledged, and perhaps the next."""
        done = sum(1 for each in self.steps if each <= step)
        return self.pictures[max(0, done - 1) : done + 1]


@pytest.fixture
def boots(monkeypatch):
    """Says which start of the machine this is."""

    def start(number: int) -> None:
        monkeypatch.setattr(engine, "_boot", lambda: bytes([number]) * 16)

    start(1)
    return start


@pytest.fixture
def base(tmp_path, boots) -> Path:
    """A store with a pack, loose objects, a journal in use, a fork, a tag, a description and packed refs."""
    store = init_quiet(tmp_path / "base")
    long = store.commit("long", [say(f"line {i}") for i in range(70)])
    store.commit("main", talk("hello", "hi"))
    store.fork(long, "side")
    store.storage.checkpoint()
    with store.storage.lock():
        store.storage.refs.pack()
    store.tag("v1", long)
    store.describe("main", title="Greetings")
    store.commit("main", [say("how are you?")])
    leave(store)
    return tmp_path / "base"


def leave(store: Store) -> None:
    """End without a checkpoint, as a process does that is killed while it waits."""
    store.storage.index.close()


def small_commit(store: Store) -> None:
    store.commit("main", talk("fine", "good", "bye"), note={"from": "test"})


def first_commit(store: Store) -> None:
    store.commit("new/deep", talk("one"))


def commit_with_attachment(store: Store) -> None:
    part = AttachmentPart(Attachment("image/png", content=bytes(range(256)) * 32))
    store.commit("main", [Message("user", (TextPart("look"), part))])


def large_commit(store: Store) -> None:
    store.commit("main", [say(f"more {i}") for i in range(66)])


def large_commit_with_attachments(store: Store) -> None:
    parts = [AttachmentPart(Attachment(content=bytes([i]) * 5000)) for i in range(2)]
    store.commit("main", [Message("user", (part,)) for part in parts] + [say(f"more {i}") for i in range(66)])


def checkpoint(store: Store) -> None:
    store.storage.checkpoint()


def checkpoint_into_a_pack(store: Store) -> None:
    """So much stands in the journal that the checkpoint packs it."""
    store.storage.checkpoint()


def pack(store: Store) -> None:
    store.pack()


def gc(store: Store) -> None:
    """Everything is written anew, and a part of it goes."""
    later = time.time() + 3600
    store.gc(GcOptions(prune_before=later, now=later))


def close(store: Store) -> None:
    store.close()


def fork(store: Store) -> None:
    store.fork(store.resolve("side~3"), "branch", title="A branch")


def rename(store: Store) -> None:
    head = store.head("main")
    with store.storage.transaction() as transaction:
        transaction.move("refs/conversations/main", head, None, "rename")
        transaction.move("refs/conversations/renamed", None, head, "rename")


def delete(store: Store) -> None:
    store.delete("main")


def delete_packed(store: Store) -> None:
    store.delete("long")


def reset(store: Store) -> None:
    store.reset("main", store.resolve("main~1"))


def describe(store: Store) -> None:
    store.describe("main", title="Other words", tags=["a"])


def many_forks(store: Store) -> None:
    """More moves than are written loose."""
    forks(store, "many", 70)


def forks(store: Store, folder: str, count: int) -> None:
    with store.storage.transaction() as transaction:
        for i in range(count):
            transaction.move(f"refs/conversations/{folder}/{i}", None, store.head("main"), "fork")


def pack_refs(store: Store) -> None:
    with store.storage.lock():
        store.storage.refs.pack()


def archive_moves(store: Store) -> None:
    """An archive takes the place of the one that there is."""
    with store.storage.lock():
        store.storage.checkpoint()
        assert store.storage.refs.reflog.compact()


ACTS = [
    small_commit,
    first_commit,
    commit_with_attachment,
    large_commit,
    large_commit_with_attachments,
    checkpoint,
    checkpoint_into_a_pack,
    pack,
    gc,
    close,
    fork,
    rename,
    delete,
    delete_packed,
    reset,
    describe,
    many_forks,
    pack_refs,
    archive_moves,
]


def tell(base: Path, act: Callable[[Store], None]) -> tuple[Story, Disk]:
    """Do `act` between two commits, and write it all down."""
    if act in (gc, checkpoint_into_a_pack, archive_moves):
        store = quiet_store(base)
        if act is archive_moves:
            forks(store, LONG + "1", 30)
            archive_moves(store)
            forks(store, LONG + "2", 30)
        elif act is gc:
            store.save_chain([say(f"nobody needs this {i}") for i in range(70)])
            store.save_chain(talk("nor", "this"))
        else:
            for i in range(20):
                store.commit("main", [say(f"turn {i}")])
        leave(store)
    disk = Disk.of(base)
    files = RecordingFiles(base, disk)
    files.indexes.append(photograph(base))
    store = Store(Storage.open(files, ticking(60_000), lambda _: None))
    story = Story(store, files)
    story.acknowledge()
    store.commit("before", talk("before"))
    story.acknowledge()
    act(store)
    if act is not close:
        story.acknowledge()
        store.commit("main", [say("behind")], expected=store.head("main"))
        story.acknowledge()
        leave(store)
    return story, disk


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_nothing_acknowledged_is_lost_and_nothing_is_half_visible(act, base, boots, tmp_path):
    cut_everywhere(act, base, boots, tmp_path)


def cut_everywhere(
    act: Callable[[Store], None], base: Path, boots: Callable[[int], None], tmp_path: Path
) -> Story:
    """Crash behind each step of a kind of change, in every way."""
    story, disk = tell(base, act)
    tried = Trials(tmp_path, boots, random.Random(act.__name__))
    for step, op in enumerate([None, *story.files.ops]):
        if op is not None:
            disk.apply(op)
        tried.crash(disk, step, story, f"after step {step} ({op})", boot=1)
    tried.tell(act.__name__, len(story.files.ops))
    return story


@pytest.mark.parametrize("act", [small_commit, first_commit, checkpoint, close], ids=lambda act: act.__name__)
def test_nothing_is_lost_where_the_journal_has_room_ahead(act, base, boots, tmp_path, monkeypatch):
    """Records are written over zeros then, and some with zeros behind them."""
    monkeypatch.setattr(journal, "ROOM_AFTER", 0)
    monkeypatch.setattr(journal, "ROOM_BYTES", 1500)
    story = cut_everywhere(act, base, boots, tmp_path)
    records = [op for op in story.files.ops if op.name == "journal" and op.data.startswith(b"DAGR")]
    ahead = [op for op in records if op.data.endswith(bytes(1500))]
    assert ahead
    assert act in (checkpoint, close) or len(ahead) < len(records)  # those two end what the room was for


@pytest.mark.parametrize("act", [small_commit, large_commit, rename], ids=lambda act: act.__name__)
def test_a_crash_while_recovering_from_one_loses_nothing(act, base, boots, tmp_path):
    """A process is killed, or the machine loses power; the next one is cut off while it puts things right."""
    story, disk = tell(base, act)
    rng = random.Random(act.__name__)
    tried = Trials(tmp_path, boots, rng)
    steps = 0
    for step, op in enumerate(story.files.ops, start=1):
        disk.apply(op)
        if step % 6 and op.name != "journal":
            continue
        for power in (False, True):
            # After a kill the unsynced rest is still on its way to the disk when the next process comes.
            left = disk.copy()
            folder = tmp_path / f"second-{step}-{power}"
            if power:
                lost = rng.choice(list(disk.states(rng))[1:7])[1]
                lay_out(folder, lost, story.files.indexes[0])
                left = Disk.of(folder)
            else:
                lay_out(folder, next(iter(disk.states(rng)))[1], story.files.indexes[step])
            boots(2 if power else 1)
            files = RecordingFiles(folder, left)
            files.indexes.append(photograph(folder))
            store = Store(Storage.open(files, ticking(120_000), lambda _: None))
            second = Story(store, files)
            second.pictures = story.allowed(step)
            leave(store)
            allowed = story.allowed(step)
            for number, recovery in enumerate(files.ops, start=1):
                left.apply(recovery)
                steps += 1
                second.steps, second.pictures = [], allowed
                where = f"step {step}, then {number} ({recovery})"
                tried.crash(left, number, Recovered(second, allowed), where, boot=2 if power else 1)
            shutil.rmtree(folder)
    tried.tell(f"recovery from {act.__name__}", steps)


def differences(seen: dict[str, object], allowed: list[dict[str, object]]) -> str:
    lines = []
    for each in allowed:
        for name in sorted(seen.keys() | each.keys()):
            if seen.get(name) != each.get(name):
                lines.append(f"{name}: {seen.get(name)!r:.2000} instead of {each.get(name)!r:.2000}")
    return "\n".join(lines)


@dataclass
class Recovered:
    """A story in which nothing more was acknowledged."""

    story: Story
    pictures: list[dict[str, object]]

    @property
    def files(self) -> RecordingFiles:
        return self.story.files

    def allowed(self, step: int) -> list[dict[str, object]]:
        return self.pictures


class Trials:
    """Lays out the ways a disk may look after a crash, and looks at what a store makes of each."""

    def __init__(self, root: Path, boots: Callable[[int], None], rng: random.Random) -> None:
        self._root, self._boots, self._rng = root, boots, rng
        self._seen: set[object] = set()
        self._numbers = itertools.count()
        self._turns = itertools.count()
        self._counts: Counter[str] = Counter()

    def crash(self, disk: Disk, step: int, story: Story | Recovered, where: str, boot: int) -> None:
        now = story.files.indexes[step]
        for lost, state in disk.states(self._rng):
            indexes = [("index as it was", now), ("no index", {})]
            if lost != "nothing":
                indexes.append(("index from before", story.files.indexes[0]))
            number = next(self._turns)
            which, index = indexes[number % len(indexes)]
            # Of a killed process nothing is lost, and the machine goes on.
            then = boot if lost == "nothing" and number % 2 else 9
            self._try(state, index, then, story.allowed(step), f"{where}, lost: {lost}, {which}, boot {then}")

    def _try(self, state, index, boot, allowed, where: str) -> None:
        same = (frozenset(state.items()), frozenset(index.items()), boot, len(allowed))
        if hash(same) in self._seen:
            return
        self._seen.add(hash(same))
        self._counts["states"] += 1
        folder = self._root / f"crashed-{next(self._numbers)}"
        lay_out(folder, state, index)
        self._boots(boot)
        try:
            self._look(folder, allowed)
        except BaseException as error:
            error.add_note(where)
            raise
        shutil.rmtree(folder)

    def _look(self, folder: Path, allowed: list[dict[str, object]]) -> None:
        with quiet_store(folder) as store:
            seen = picture(store)
            assert seen in allowed, differences(seen, allowed)
            head = store.commit("after/the/crash", talk("does it", "work?"), expected=None)
            assert words_of(store.load_chain(head)) == ["does it", "work?"]
            if self._counts["states"] % REBUILD_EVERY == 0:
                self._counts["rebuilt"] += 1
                assert not [finding for finding in store.fsck() if finding.severity is Severity.ERROR]
                held = indexed(store)
                store.reindex()
                assert held <= indexed(store)
                assert store.children(ROOT)
                del seen["reflog"]
                assert seen.items() <= picture(store).items()

    def tell(self, what: str, steps: int) -> None:
        print(f"\n{what}: {steps} cut points, {self._counts['states']} states of the disk")
