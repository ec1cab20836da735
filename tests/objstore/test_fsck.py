import os
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from objstore.attachment import Attachment
from objstore.canonical import canonical_message_json
from objstore.findings import Level, Severity
from objstore.frames import compress
from objstore.fsck import check
from objstore.gc import GcOptions
from objstore.kinds import Kind
from objstore.loose import loose_name
from objstore.message import AttachmentPart, Message
from objstore.records import Tombstone
from objstore.repair import repair
from objstore.store import Store
from refs.errors import DagError
from refs.files import Files
from tests.objstore.stores import call, everything, packs, picture, said

NOW = "2026-01-02T03:04:05.678Z"


@pytest.fixture
def store(tmp_path):
    """Some of everything, loose and packed."""
    with Store.init(tmp_path / ".dag") as store:
        store.commit("packed", [said(f"{i} " + "p" * 40) for i in range(70)])
        head = store.commit("main", [said("one"), picture(b"picture" * 1000), said("three", "assistant")])
        store.record(call(head, instructions=store.node(head).message))
        store.save_chain([said("side")], called_by=head)
        store.describe("main", title="All of it")
        store.tag("first", head)
        store.storage.checkpoint()
        yield store


def names(store_or_files, level=Level.FULL):
    files = store_or_files if isinstance(store_or_files, Files) else store_or_files.storage.files
    return sorted({finding.name for finding in check(files, level)})


def file_of(store, name) -> Path:
    return Path(store.path) / name


def flip(path: Path, at: int = -1, mask: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[at if at >= 0 else len(data) // 2] ^= mask
    path.write_bytes(data)


def loose(store, kind, oid, suffix=".zst") -> Path:
    return file_of(store, loose_name(kind, oid).removesuffix(".zst") + suffix)


# -- a good store ---------------------------------------------------------------------------------


@pytest.mark.parametrize("level", list(Level))
def test_nothing_is_found_in_a_good_store(store, level):
    assert names(store, level) == []
    store.pack()
    assert names(store, level) == []


def test_a_store_is_looked_at_without_its_index(store):
    for path in Path(store.path).glob("index.sqlite*"):
        path.unlink()
    assert names(Files(store.path)) == ["bad-index"]
    assert all(each.severity is Severity.WARNING for each in check(Files(store.path)))


def test_looking_changes_nothing(store):
    def files():
        paths = Path(store.path).rglob("*")
        return {path: path.read_bytes() for path in paths if path.is_file() and not path.name.endswith("-shm")}

    before = files()
    list(store.fsck())
    assert files() == before


def test_what_stands_in_the_journal_counts_as_stored(store, tmp_path):
    head = store.commit("main", [said("just now")])
    assert not loose(store, Kind.NODE, head).exists()
    shutil.copytree(store.path, tmp_path / "copy")
    assert names(store) == names(Files(tmp_path / "copy")) == []


# -- each kind of damage has its name -------------------------------------------------------------


def test_a_flipped_byte_in_a_pack(store):
    flip(packs(store)[0])
    assert {"bad-pack-name", "dangling-ref"} <= set(names(store))
    assert names(store, Level.QUICK) == ["bad-pack-name"]


def test_a_pack_without_its_end(store):
    path = packs(store)[0]
    path.write_bytes(path.read_bytes()[:-5])
    assert names(store, Level.QUICK) == ["bad-pack-name", "bad-seek-table"]
    assert names(store) == ["bad-pack-name", "bad-seek-table"]  # its frames are found all the same


def test_a_pack_under_another_name(store):
    path = packs(store)[0]
    path.rename(path.with_name(f"pack-{'0' * 64}.pack"))
    assert {"bad-pack-name", "stale-index"} <= set(names(store, Level.QUICK))


def test_a_loose_object_of_other_bytes(store):
    node = store.node(store.head("main"))
    path = loose(store, Kind.MESSAGE, node.message)
    path.write_bytes(compress(canonical_message_json(said("forged"))))
    assert names(store, Level.QUICK) == []
    assert {"bad-object", "missing-message", "dangling-ref"} <= set(names(store, Level.CONNECTIVITY))


def test_a_loose_object_that_is_no_frame(store):
    flip(loose(store, Kind.NODE, store.head("main")))
    assert names(store, Level.QUICK) == ["bad-frame"]
    assert {"bad-frame", "dangling-ref"} <= set(names(store, Level.CONNECTIVITY))


def test_an_object_that_is_not_in_canonical_form(store):
    raw = canonical_message_json(said("spaced")).replace(b":", b": ")
    oid = sha256(raw).hexdigest()
    path = loose(store, Kind.MESSAGE, oid)
    path.parent.mkdir(exist_ok=True, mode=0o700)
    path.write_bytes(compress(raw))
    path.chmod(0o600)
    assert names(store, Level.CONNECTIVITY) == []
    assert "non-canonical" in names(store)


@pytest.mark.parametrize(
    ("which", "name"), [("parent", "missing-parent"), ("message", "missing-message"), ("caller", "missing-caller")]
)
def test_what_a_node_needs_and_is_gone(store, which, name):
    head = store.head("main")
    side = store.called_from(head)[0].first
    node = store.node(head)
    gone = {
        "parent": (Kind.NODE, node.parent),
        "message": (Kind.MESSAGE, node.message),
        "caller": (Kind.NODE, head),
    }[which]
    store.fork(side, "side")
    store.storage.checkpoint()
    loose(store, *gone).unlink()
    found = [each for each in store.fsck(Level.CONNECTIVITY) if each.name == name]
    assert found and found[0].severity is Severity.ERROR


def test_what_nothing_needs_is_no_error_when_it_is_incomplete(store):
    parent = store.save_chain([said("nobody")])
    store.save_chain([said("names this")], parent)
    store.storage.checkpoint()
    loose(store, Kind.NODE, parent).unlink()
    found = [each for each in store.fsck(Level.CONNECTIVITY) if each.name == "missing-parent"]
    assert [each.severity for each in found] == [Severity.WARNING]


def test_a_payload_that_is_gone_or_changed(store):
    (path,) = Path(store.path).joinpath("objects/payloads").rglob("*.zst")
    good = path.read_bytes()
    path.write_bytes(compress(b"another picture"))
    assert names(store, Level.CONNECTIVITY) == []
    assert "bad-frame" in names(store)
    path.write_bytes(good)
    assert names(store) == []
    path.unlink()
    assert "missing-payload" in names(store, Level.CONNECTIVITY)


def test_a_tombstone_in_the_place_of_a_payload(store):
    (path,) = Path(store.path).joinpath("objects/payloads").rglob("*.zst")
    payload = path.name.removesuffix(".zst")
    tombstone = path.with_name(f"{payload}.tombstone.zst")
    path.unlink()
    for oid, found in ((payload, []), ("0" * 64, ["bad-object", "missing-payload"])):
        tombstone.write_bytes(compress(Tombstone(Kind.PAYLOAD, oid, NOW, "erased").canonical()))
        tombstone.chmod(0o600)
        assert names(store, Level.CONNECTIVITY) == found


def test_a_condensed_message_that_names_another_payload(store):
    content = b"other" * 2000
    store.save_chain([Message("user", (AttachmentPart(Attachment("image/png", content=content)),))])
    store.storage.checkpoint()
    condensed = sorted(Path(store.path).joinpath("objects/messages").rglob("*.condensed.zst"))
    first, second = condensed[0].read_bytes(), condensed[1].read_bytes()
    assert first != second
    condensed[0].write_bytes(second)
    assert "bad-object" in names(store)


def test_a_call_whose_node_is_gone(store):
    dead = store.save_chain([said("asked")])
    store.record(call(dead))
    store.storage.checkpoint()
    loose(store, Kind.NODE, dead).unlink()
    assert "missing-call-node" in names(store, Level.CONNECTIVITY)


def test_refs_that_name_nothing_or_the_wrong_thing(store):
    ref = file_of(store, "refs/conversations/main")
    good = ref.read_bytes()
    ref.write_bytes(b"0" * 64 + b"\n")
    assert "dangling-ref" in names(store, Level.CONNECTIVITY)
    ref.write_bytes(file_of(store, "refs/descriptions/main").read_bytes())
    assert "bad-ref" in names(store, Level.CONNECTIVITY)
    ref.write_bytes(b"nonsense\n")
    assert "bad-ref" in names(store, Level.QUICK)
    ref.write_bytes(good)
    file_of(store, "HEAD").write_bytes(b"nowhere\n")
    assert names(store, Level.QUICK) == ["bad-ref"]


def test_files_that_do_not_belong_there(store):
    file_of(store, "notes.txt").write_text("hello")
    file_of(store, "objects/messages/extra").write_text("hello")
    file_of(store, "objects/pack/pack-1.pack").write_text("hello")
    for each in ("notes.txt", "objects/messages/extra", "objects/pack/pack-1.pack"):
        file_of(store, each).chmod(0o600)
    found = list(store.fsck(Level.QUICK))
    assert [each.name for each in found] == ["stray-file"] * 3
    assert {each.severity for each in found} == {Severity.WARNING}


def test_a_link_in_the_place_of_a_file(store, tmp_path):
    path = loose(store, Kind.NODE, store.head("main"))
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert "bad-file-kind" in names(store, Level.QUICK)


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(store):
    path = loose(store, Kind.NODE, store.head("main"))
    path.unlink()
    os.mkfifo(path, 0o600)
    assert "bad-file-kind" in names(store)


def test_an_object_in_the_wrong_folder(store):
    path = loose(store, Kind.NODE, store.head("main"))
    other = path.parent.parent / ("00" if path.parent.name != "00" else "01")
    other.mkdir(exist_ok=True)
    path.rename(other / path.name)
    assert "misplaced-object" in names(store, Level.QUICK)


def test_files_that_others_may_read(store):
    file_of(store, "config").chmod(0o644)
    assert names(store, Level.QUICK) == ["bad-permissions"]


def test_a_torn_journal_and_a_damaged_one(store):
    path = file_of(store, "journal")
    good = path.read_bytes()
    path.write_bytes(good + b"DAGR and no more")
    assert names(Files(store.path), Level.QUICK) == ["torn-journal"]
    path.write_bytes(b"\xff" * 256)
    assert "bad-journal" in names(Files(store.path), Level.QUICK)
    path.unlink()
    assert "missing-journal" in names(Files(store.path), Level.QUICK)


def test_a_config_that_cannot_be_read(store):
    file_of(store, "config").write_text("format = ")
    assert "bad-config" in names(Files(store.path), Level.QUICK)


# -- the index against the objects ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("UPDATE node SET depth = depth + 1 WHERE row = 3", "wrong-index"),
        ("UPDATE node SET parent = 1 WHERE row = 9", "wrong-index"),
        ("UPDATE node SET message = 1 WHERE row = 9", "wrong-index"),
        ("UPDATE message SET loc = loc + 1 WHERE row = 5", "wrong-index"),
        ("UPDATE node SET loc = -1 WHERE row = 5", "wrong-index"),
        ("DELETE FROM called", "unindexed"),
        ("UPDATE called SET by = 1", "wrong-index"),
        ("UPDATE call_edge SET asked = 1", "wrong-index"),
        ("UPDATE message_payload SET payload = zeroblob(32)", "wrong-index"),
        ("DELETE FROM message_id WHERE row = 5", "unindexed-object"),
        ("INSERT INTO note_id VALUES (zeroblob(16), 999)", "missing-object"),
    ],
)
def test_what_the_index_says_wrongly(store, statement, name):
    with store.storage.index.changing() as db:
        db.execute(statement)
    found = names(store)
    assert found == ([name] if name != "unindexed" else []) or name in found
    done = store.repair() if found else None
    assert done is None or names(store) == []


# -- repair ---------------------------------------------------------------------------------------


def test_repair_of_a_good_store_does_nothing(store):
    before = everything(store)
    done = store.repair()
    assert done.done == [] and done.remaining == [] and everything(store) == before
    assert not file_of(store, "quarantine").exists()


def test_repair_takes_the_copy_in_a_pack_for_a_bad_loose_object(store):
    head = store.head("main")
    path = loose(store, Kind.NODE, head)
    copy = path.read_bytes()
    store.pack()
    path.write_bytes(copy[:-3])
    path.chmod(0o600)
    done = store.repair()
    assert done.remaining == [] and len(store.load_chain(head)) == 3
    (kept,) = file_of(store, "quarantine").rglob("*.zst")
    assert kept.read_bytes() == copy[:-3] and not path.exists()


def test_repair_takes_the_loose_copy_for_a_bad_pack(store):
    head = store.head("main")
    copies = {path: path.read_bytes() for path in Path(store.path).joinpath("objects").rglob("*.zst")}
    store.pack()
    for path, data in copies.items():
        path.write_bytes(data)
        path.chmod(0o600)
    newest = max(packs(store), key=lambda path: path.stat().st_mtime_ns)
    flip(newest)
    done = store.repair()
    assert done.remaining == [] and len(store.load_chain(head)) == 3
    assert [path.name for path in file_of(store, "quarantine").rglob("*.pack")] == [newest.name]


def test_repair_keeps_the_good_frames_of_a_bad_pack(store):
    heads = [
        store.commit(f"c{i}", [said(f"{i} {j} " + os.urandom(1500).hex()) for j in range(70)]) for i in range(2)
    ]
    (bad,) = [path for path in packs(store) if path.stat().st_size > 100_000][:1]
    size = bad.stat().st_size
    flip(bad, size - size // 8)
    done = store.repair()
    left = {each.place for each in done.remaining if each.name == "dangling-ref"}
    assert len(left) == 1
    assert sum(store.storage.database.has(Kind.NODE, head) for head in heads) == 1
    assert store.storage.index.counts()[Kind.NODE] > 140
    assert [path.name for path in file_of(store, "quarantine").rglob("*.pack")] == [bad.name]


def test_repair_never_deletes_the_only_copy_and_says_what_remains(store):
    head = store.head("main")
    path = loose(store, Kind.NODE, head)
    flip(path)
    bad = path.read_bytes()
    done = store.repair()
    assert "dangling-ref" in {each.name for each in done.remaining}
    (kept,) = file_of(store, "quarantine").rglob("*.zst")
    assert kept.read_bytes() == bad
    assert any("no good copy" in text for text in done.done)


def test_after_repair_the_same_words_can_be_stored_again(store):
    history = [said("one"), picture(b"picture" * 1000), said("three", "assistant")]
    for path in Path(store.path).joinpath("objects").rglob("*.zst"):
        flip(path)
    store.repair()
    head = store.save_with_dedup(history)
    assert head == store.head("main") and store.load_chain(head) == history
    assert {each.severity for each in store.fsck()} <= {Severity.INFO, Severity.WARNING} or names(store) == [
        "dangling-ref"
    ]


@pytest.mark.parametrize("damage", [b"nonsense\n", b"", b"0" * 64 + b"\n"])
def test_repair_sets_a_bad_ref_to_its_last_value(store, damage):
    head = store.head("main")
    file_of(store, "refs/conversations/main").write_bytes(damage)
    done = store.repair()
    assert store.head("main") == head and done.remaining == []
    assert any("reflog" in text for text in done.done)


def test_repair_writes_packed_refs_anew_from_its_good_lines_and_the_reflog(store):
    with store.storage.lock():
        store.storage.refs.pack()
    heads = {each.name: each.head for each in store.conversations()}
    path = file_of(store, "packed-refs")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"garbage\n" + b"".join(lines[2:]))
    done = store.repair()
    assert {each.name: each.head for each in store.conversations()} == heads and done.remaining == []


def many_forks(store, count=200):
    """So many that packed-refs and the reflog stand in gzip members after a gc."""
    head = store.head("main")
    with store.storage.transaction() as transaction:
        for i in range(count):
            transaction.move(f"refs/conversations/many/{i:03}", None, head, "fork")
    store.gc(GcOptions(None, 0))


def test_repair_mends_packed_refs_in_members(store):
    many_forks(store)
    heads = {each.name: each.head for each in store.conversations()}
    flip(file_of(store, "packed-refs"))
    assert any(each.name == "bad-ref" and "member" in each.text for each in store.fsck(Level.QUICK))
    done = store.repair()
    assert {each.name: each.head for each in store.conversations()} == heads and done.remaining == []
    assert any("packed-refs" in text for text in done.done)


@pytest.mark.parametrize("damage", [flip, Path.unlink])
def test_repair_mends_the_reflog_and_keeps_its_damaged_archive(store, damage):
    many_forks(store)
    (path,) = Path(store.path).glob("reflog-*.gz")
    damage(path)
    store.commit("main", [said("later")])
    found = [each for each in store.fsck(Level.QUICK) if each.severity is Severity.ERROR]
    assert [each.name for each in found] == ["damaged-reflog"]
    bad = path.read_bytes() if path.exists() else None
    done = store.repair()
    assert done.remaining == [] and any("archive" in text for text in done.done)
    assert next(iter(store.reflog("main"))).new == store.head("main")
    kept = [each.read_bytes() for each in Path(store.path, "quarantine").rglob("reflog-*.gz")]
    assert kept == ([] if bad is None else [bad])
    store.gc(GcOptions(None, 0))


def test_repair_finds_the_archive_again(store):
    many_forks(store)
    moves = list(store.reflog())
    flip(file_of(store, "reflog"), 3)
    assert "damaged-reflog" in names(store, Level.QUICK)
    assert store.repair().remaining == []
    assert list(store.reflog()) == moves


def test_repair_makes_a_conversation_current_where_head_is_damaged(store):
    file_of(store, "HEAD").write_bytes(b"??")
    done = store.repair()
    assert done.remaining == [] and store.head(store.current()) is not None


def test_repair_cuts_a_torn_journal_and_keeps_a_copy(tmp_path):
    with Store.init(tmp_path / ".dag") as store:
        head = store.commit("main", [said("hello")])
    journal = tmp_path / ".dag" / "journal"
    torn = journal.read_bytes() + b"DAGR torn"
    journal.write_bytes(torn)
    done = repair(Files(tmp_path / ".dag"), NOW)
    assert [each for each in done.remaining if each.severity is Severity.ERROR] == []
    (kept,) = (tmp_path / ".dag" / "quarantine").rglob("journal")
    assert kept.read_bytes() == torn
    with Store.open(tmp_path / ".dag") as store:
        assert store.load_chain(head) == [said("hello")]


def test_repair_writes_a_damaged_copy_of_the_journals_header_anew(store):
    flip(file_of(store, "journal"), 20)
    assert names(store) == ["torn-journal"]
    assert store.repair().remaining == []


def test_repair_moves_an_object_to_its_folder(store):
    head = store.head("main")
    path = loose(store, Kind.NODE, head)
    other = path.parent.parent / ("00" if path.parent.name != "00" else "01")
    other.mkdir(exist_ok=True, mode=0o700)
    path.rename(other / path.name)
    assert store.repair().remaining == []
    assert len(store.load_chain(head)) == 3


def test_a_store_that_does_not_open_can_be_mended_by_its_files(store, tmp_path):
    heads = {each.name: each.head for each in store.conversations()}
    store.close()
    file_of(store, "journal").write_bytes(b"gone")
    for path in Path(store.path).glob("index.sqlite*"):
        path.write_bytes(b"x" * 5000)
    repair(Files(store.path), NOW)
    with Store.open(store.path) as again:
        assert {each.name: each.head for each in again.conversations()} == heads
        assert [each for each in again.fsck() if each.severity is Severity.ERROR] == []


# -- every byte -----------------------------------------------------------------------------------


def every_damage(data: bytes):
    for at in range(len(data)):
        yield data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :]
    for size in range(len(data)):
        yield data[:size]


def small_store(path):
    with Store.init(path) as store:
        store.commit("main", [said("hi"), said("ho")])
        store.pack()
        with store.storage.lock():
            store.storage.refs.pack()


def test_a_pack_with_any_byte_changed_or_any_end_cut_is_found_and_never_believed(tmp_path):
    small_store(tmp_path / ".dag")
    (path,) = (tmp_path / ".dag" / "objects" / "pack").iterdir()
    files, good, tried = Files(tmp_path / ".dag"), path.read_bytes(), 0
    for damaged in every_damage(good):
        path.write_bytes(damaged)
        found = {each.name for each in check(files, Level.QUICK) if each.severity is Severity.ERROR}
        assert "bad-pack-name" in found
        tried += 1
    assert tried == 2 * len(good)


def test_a_loose_object_with_any_byte_changed_or_any_end_cut_is_found(tmp_path):
    with Store.init(tmp_path / ".dag") as store:
        head = store.commit("main", [said("hi")])
        store.storage.checkpoint()
        path = loose(store, Kind.NODE, head)
        good = path.read_bytes()
        for damaged in every_damage(good):
            path.write_bytes(damaged)
            try:
                node = store.node(head)
            except DagError:
                node = None
            if node is not None:  # what zstd doesn't look at, such as the size of its window
                assert store.load_chain(head) == [said("hi")]
            else:
                assert {each.severity for each in store.fsck(Level.CONNECTIVITY)} >= {Severity.ERROR}
