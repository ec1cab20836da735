"""Each byte of a store's files turned over, and each file cut short at each length: never taken for good data."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from objstore import engine
from objstore.attachment import Attachment
from objstore.frames import decompress
from objstore.fsck import check
from objstore.kinds import Kind
from objstore.limits import MIB
from objstore.loose import Form, loose_name
from objstore.message import AttachmentPart, Message, TextPart
from objstore.pack import list_packs, pack_name
from objstore.store import Store
from refs.errors import DagError
from refs.files import Files
from tests.storetools import indexed, init_quiet, picture, quiet_store, say, talk

MEMORY: int = 300 * MIB
"""What the process may grow by: much less than any size that a turned byte may declare."""


@pytest.fixture(autouse=True)
def _memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MEMORY


def damages(data: bytes, step: int = 1) -> Iterator[tuple[str, bytes]]:
    """Each byte turned over in one of its bits and in all; each length that is shorter."""
    for at in range(0, len(data), step):
        for mask in (1 << at % 8, 0xFF):
            yield f"byte {at} ^ {mask:#x}", data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
    for size in range(0, len(data), step):
        yield f"cut to {size}", data[:size]


def never_wrong(true: object, read: Callable[[], object], where: str) -> bool:
    """Whether what is read is the true value; it may only be that, or one of our errors."""
    try:
        seen = read()
    except DagError:
        return False
    assert seen == true, where
    return True


@pytest.fixture
def store(tmp_path) -> Iterator[Store]:
    with init_quiet(tmp_path / "store") as made:
        yield made


def test_no_byte_of_a_pack_can_change_what_is_read(store, tmp_path):
    # Little to say in many messages: a pack of a kilobyte or two.
    head = store.commit("main", [say(f"{i}") for i in range(66)])
    (pack,) = list_packs(store.storage.files)
    path = tmp_path / "store" / pack_name(pack)
    data = path.read_bytes()
    true = store.load_chain(head)
    good = 0
    for where, damaged in damages(data):
        path.write_bytes(damaged)
        store.storage.database.forget_packs()
        good += never_wrong(true, lambda: store.load_chain(head), where)
    path.write_bytes(data)
    assert store.load_chain(head) == true
    # The seek table isn't needed to read what the index knows: all of the frame is.
    unneeded = len(data) - store.storage.index.locate(Kind.NODE, head).size
    # Beside them only bits that zstd does not use: reserved ones, and those that fill up the tables' last bytes.
    assert good <= 3 * unneeded + 8


def test_no_byte_of_a_pack_brings_something_wrong_into_a_new_index(store, tmp_path):
    head = store.commit("main", [say(f"{i}") for i in range(66)])
    (pack,) = list_packs(store.storage.files)
    path = tmp_path / "store" / pack_name(pack)
    data = path.read_bytes()
    true, held = store.load_chain(head), indexed(store)
    store.close()
    for number, (where, damaged) in enumerate(damages(data, step=17)):
        path.write_bytes(damaged)
        (tmp_path / "store" / "index.sqlite").unlink()
        notices: list[str] = []
        with quiet_store(tmp_path / "store", notices.append) as again:
            assert notices, where
            never_wrong(true, lambda again=again: again.load_chain(head), where)
            assert indexed(again) <= held, where
            if number % 10 == 0:
                assert [each for each in again.fsck() if each.severity.name == "ERROR"], where
    path.write_bytes(data)
    (tmp_path / "store" / "index.sqlite").unlink()
    with quiet_store(tmp_path / "store") as again:
        assert again.load_chain(head) == true


def loose_message(store: Store, message: Message) -> tuple[Kind, str, Form]:
    store.commit("main", [message])
    form = Form.PLAIN if isinstance(message.parts[-1], TextPart) else Form.CONDENSED
    return Kind.MESSAGE, store.node(store.head("main")).message, form


def test_no_byte_of_a_loose_object_can_change_what_is_read(store, tmp_path):
    picture_of = Attachment("image/png", content=bytes(i % 7 for i in range(4200)))
    plain = loose_message(store, say("some words"))
    condensed = loose_message(store, Message("user", (TextPart("look"), AttachmentPart(picture_of))))
    node = Kind.NODE, store.head("main"), Form.PLAIN
    store.storage.checkpoint()
    (payload,) = store.storage.database.ids(Kind.PAYLOAD)
    (note, *_) = store.storage.database.ids(Kind.NOTE)
    reads = {
        plain: lambda: store.message(plain[1]),
        condensed: lambda: store.message(condensed[1]).parts[1].attachment.content,
        node: lambda: store.node(node[1]),
        (Kind.PAYLOAD, payload, Form.PLAIN): lambda: store.message(condensed[1]).parts[1].attachment.content,
        (Kind.NOTE, note, Form.PLAIN): lambda: store.read_object(Kind.NOTE, note),
    }
    for (kind, oid, form), read in reads.items():
        path = tmp_path / "store" / loose_name(kind, oid, form)
        data, true = path.read_bytes(), read()
        good = 0
        for where, damaged in damages(data):
            path.write_bytes(damaged)
            good += never_wrong(true, read, f"{kind}: {where}")
        path.write_bytes(data)
        assert good <= 2, f"{kind}: only the bits that zstd doesn't use may go unnoticed"


def journals(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Copies of a small store, each with another byte of its journal damaged."""
    with init_quiet(tmp_path / "store") as store:
        store.commit("main", talk("hello", "hi"))
        store.commit("main", [say("how are you?")])
    data = (tmp_path / "store" / "journal").read_bytes()
    for number, (where, damaged) in enumerate(damages(data)):
        if number % 9 != 0:
            continue
        (tmp_path / "store" / "journal").write_bytes(damaged)
        shutil.copytree(tmp_path / "store", tmp_path / "copy")
        yield where, tmp_path / "copy"
        shutil.rmtree(tmp_path / "copy")
    (tmp_path / "store" / "journal").write_bytes(data)


@pytest.mark.parametrize("another_boot", [False, True], ids=["the same boot", "another boot"])
def test_no_byte_of_the_journal_can_change_what_is_read(tmp_path, monkeypatch, another_boot):
    """What it held has been applied: it is all there, and the store works on."""
    monkeypatch.setattr(engine, "_boot", lambda: b"1" * 16)
    true = None
    for where, path in journals(tmp_path):
        if true is None:
            with quiet_store(tmp_path / "store") as whole:
                true = picture(whole)
        if another_boot:
            monkeypatch.setattr(engine, "_boot", lambda: b"2" * 16)
        with quiet_store(path) as store:
            assert picture(store) == true, where
            store.commit("after", talk("still", "works"))
        monkeypatch.setattr(engine, "_boot", lambda: b"1" * 16)


def test_a_damaged_record_of_the_journal_takes_no_later_one_with_it(tmp_path, monkeypatch):
    """The machine stopped before a checkpoint, and a byte of the first record has turned over."""
    monkeypatch.setattr(engine, "_boot", lambda: b"1" * 16)
    with init_quiet(tmp_path / "live") as store:
        store.commit("first", talk("lost"))
        at = (tmp_path / "live" / "journal").stat().st_size
        head = store.commit("second", talk("kept", "all the same"))
        shutil.copytree(tmp_path / "live", tmp_path / "store")
    (tmp_path / "store" / "refs" / "conversations" / "second").unlink()
    journal = tmp_path / "store" / "journal"
    data = bytearray(journal.read_bytes())
    data[at - 5] ^= 1
    journal.write_bytes(data)
    monkeypatch.setattr(engine, "_boot", lambda: b"2" * 16)
    notices: list[str] = []
    with quiet_store(tmp_path / "store", notices.append) as store:
        assert store.head("second") == head
        assert [message.text for message in store.load_chain(head)] == ["kept", "all the same"]
    assert any("damaged" in notice for notice in notices)


@pytest.fixture
def small(tmp_path) -> Path:
    """The folder of a store with a pack, loose objects and a journal in use, as small as they can be."""
    store = init_quiet(tmp_path / "small")
    head = store.commit("main", talk("hello", "hi"), note={"a": 1})
    store.fork(head, "side")
    store.pack()
    store.commit("main", talk("more"))
    store.storage.checkpoint()
    store.commit("side", talk("and", "on"))
    indexed(store)
    store.storage.index.close()  # without a checkpoint: the journal is in use
    return tmp_path / "small"


@pytest.mark.parametrize("pattern", ["journal", "objects/pack/*.pack", "objects/*/??/*"])
def test_fsck_finds_each_byte_that_turned_over_and_each_cut(small, pattern):
    assert list(check(Files(small))) == []
    for path in sorted(small.glob(pattern)):
        data = path.read_bytes()
        for where, damaged in damages(data):
            path.write_bytes(damaged)
            if not list(check(Files(small))):
                # A frame has bits that zstd doesn't use: what is packed is the same without them.
                assert path.suffix == ".zst", where
                assert decompress(damaged, MIB, "damaged") == decompress(data, MIB, "whole"), where
        path.write_bytes(data)


def test_no_byte_of_the_index_can_change_what_is_read(small, tmp_path):
    """It has no checksum: what it leads to is checked, and what can't be in it makes it damaged."""
    with quiet_store(small) as store:
        true = picture(store)
    path = small / "index.sqlite"
    data = path.read_bytes()
    noticed = 0
    for at, byte in enumerate(data):
        if byte:  # nearly all others are in pages that hold nothing
            shutil.copytree(small, tmp_path / "copy")
            mask = 0xFF if at % 9 == 8 else 1 << at % 9
            (tmp_path / "copy" / "index.sqlite").write_bytes(data[:at] + bytes([byte ^ mask]) + data[at + 1 :])
            notices: list[str] = []
            try:
                with quiet_store(tmp_path / "copy", notices.append) as store:
                    never_wrong(true, lambda store=store: picture(store), f"byte {at} ^ {mask:#x}")
            except DagError as error:
                assert "index.sqlite" in str(error), at
            noticed += bool(notices)
            shutil.rmtree(tmp_path / "copy")
    assert noticed > 1000


@pytest.mark.parametrize("name", ["refs/conversations/main", "HEAD", "packed-refs", "config", "reflog"])
def test_no_byte_of_a_small_file_can_move_a_conversation(tmp_path, name):
    with init_quiet(tmp_path / "store") as store:
        store.commit("main", talk("hello"))
        store.commit("other", talk("there"))
        store.commit("other", talk("is", "more"))
        with store.storage.lock():
            store.storage.refs.pack()
        store.commit("main", talk("and", "on"))
        true = {info.name: info.head for info in store.conversations()}
        nodes = set(store.storage.database.ids(Kind.NODE))
    path = tmp_path / "store" / name
    data = path.read_bytes()

    def heads() -> dict[str, str]:
        with quiet_store(tmp_path / "store") as again:
            seen = {info.name: info.head for info in again.conversations()}
            again.current()
            for entry in again.reflog():
                assert entry.new is None or entry.new in nodes or name == "reflog"
            return seen

    for where, damaged in damages(data, step=2):
        path.write_bytes(damaged)
        try:
            seen = heads()
        except DagError:
            continue
        # An id or a name of other digits is what another store may hold; whoever follows it is told.
        for conversation, head in seen.items():
            if head in nodes:
                assert true.get(conversation, head) == head, where
            else:
                with quiet_store(tmp_path / "store") as again, pytest.raises(DagError):
                    again.load_chain(head)
