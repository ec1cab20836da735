"""The index is a cache: gone, damaged, stale or another store's, it is made anew, and answers are the same."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3

import pytest

from objstore.arrival import Arrival, place_loose
from objstore.gc import GcOptions
from objstore.index import Index
from objstore.kinds import Kind
from objstore.loose import Form
from objstore.node import Node
from objstore.parts import ALL_PARTS, NOTES_OF
from objstore.records import Call, Note
from refs.errors import CorruptFile, DagError
from refs.ids import ROOT
from tests.storetools import indexed, init_quiet, picture, quiet_store, say, talk, words_of

TIME = "2026-01-02T03:04:05.678Z"
ULID = "01J00000000000000000000000"


@pytest.fixture
def path(tmp_path):
    """A store with packs, loose files, a journal in use, a fork, a side chain, a call and a note."""
    with init_quiet(tmp_path / "store") as store:
        long = store.commit("long", [say(f"line {i}") for i in range(200)])
        head = store.commit("main", talk("hello", "hi"))
        store.storage.checkpoint()
        store.fork(store.resolve("long~50"), "side")
        store.commit("side", talk("elsewhere"), note={"source": "x"})
        asked = store.save_chain(talk("look", "found"), called_by=head, tool_call_id="c1")
        store.record(Call(call=ULID, model="m", head_input=head, head_output=asked, started_at=TIME))
        store.describe("main", title="Greetings")
        store.commit("long", [say(f"more {i}") for i in range(100)])
        store.tag("v1", long)
        store.storage.index.close()
    return tmp_path / "store"


def answers(store) -> dict[str, object]:
    """Everything that only the index can tell, and what is read through it."""
    main, long = store.head("main"), store.head("long")
    return {
        "picture": picture(store),
        "roots": sorted(store.children(ROOT)),
        "children": store.children(store.resolve("long~150")),
        "ancestor": store.common_ancestor(store.head("side"), long),
        "depth": store.depth(long),
        "prefix": store.find_longest_existing_prefix([*talk("hello", "hi"), say("new")]),
        "calls": [call.to_dict() for call in store.calls(main)],
        "notes": [dict(note.members) for note in store.notes(store.head("side"))],
        "objects": sorted(indexed(store)),
        "short": store.resolve(main[:10]),
    }


def index_files(path) -> list:
    return [
        path / name for name in ("index.sqlite", "index.sqlite-wal", "index.sqlite-shm") if (path / name).exists()
    ]


def remove_index(path) -> None:
    for each in index_files(path):
        each.unlink()


@pytest.fixture
def expected(path):
    with quiet_store(path) as store:
        return answers(store)


def check(path, expected, *, rebuilt: bool = True) -> None:
    notices: list[str] = []
    with quiet_store(path, notices.append) as store:
        assert answers(store) == expected
        head = store.commit("after", talk("it", "works"))
        assert words_of(store.load_chain(head)) == ["it", "works"]
        store.delete("after")
    assert any("rebuilt" in notice for notice in notices) is rebuilt, notices
    notices.clear()
    with quiet_store(path, notices.append) as store:
        assert store.depth(store.head("long")) == 300
    assert notices == []


def test_an_index_that_is_gone_is_made_anew(path, expected):
    remove_index(path)
    check(path, expected)


@pytest.mark.parametrize("size", [0, 1, 50, 100, 4096, 8192, 30_000, -1, -4096])
def test_an_index_that_was_cut_short_is_made_anew(path, expected, size):
    data = (path / "index.sqlite").read_bytes()
    (path / "index.sqlite").write_bytes(data[:size])
    check(path, expected)


def test_an_index_of_noise_is_made_anew(path, expected):
    (path / "index.sqlite").write_bytes(random.Random(1).randbytes(50_000))
    check(path, expected)


def test_another_sqlite_database_in_its_place_is_made_anew(path, expected):
    remove_index(path)
    with sqlite3.connect(path / "index.sqlite") as db:
        db.execute("CREATE TABLE node(row INTEGER PRIMARY KEY)")
    db.close()
    check(path, expected)


@pytest.mark.parametrize("pragma", ["user_version=7", "application_id=5"])
def test_an_index_of_another_version_is_made_anew(path, expected, pragma):
    with sqlite3.connect(path / "index.sqlite") as db:
        db.execute(f"PRAGMA {pragma}")
    db.close()
    check(path, expected)


def test_the_index_of_another_store_is_made_anew(path, expected, tmp_path):
    with init_quiet(tmp_path / "other") as other:
        other.commit("main", talk("quite", "another"))
    remove_index(path)
    shutil.copy(tmp_path / "other" / "index.sqlite", path / "index.sqlite")
    check(path, expected)


def test_the_index_of_a_new_store_is_not_taken_for_that_of_another_new_one(tmp_path):
    init_quiet(tmp_path / "one").close()
    with init_quiet(tmp_path / "two") as two:
        two.commit("main", talk("a"))
    init_quiet(tmp_path / "three").close()
    shutil.copy(tmp_path / "one" / "index.sqlite", tmp_path / "three" / "index.sqlite")
    notices: list[str] = []
    with quiet_store(tmp_path / "three", notices.append) as three:
        three.commit("main", talk("b"))
    assert any("rebuilt" in notice for notice in notices)


@pytest.mark.parametrize("seed", range(12))
def test_pages_of_noise_in_the_index_are_noticed_where_they_matter_and_it_is_made_anew(path, expected, seed):
    """What is asked gives the right answer, or an error of ours once; the store behind it is whole again."""
    rng = random.Random(seed)
    data = bytearray((path / "index.sqlite").read_bytes())
    for _ in range(rng.randrange(1, 4)):
        page = rng.randrange(1, len(data) // 4096)
        data[page * 4096 : (page + 1) * 4096] = rng.randbytes(4096)
    (path / "index.sqlite").write_bytes(data)
    for _ in range(12):
        try:
            with quiet_store(path) as store:
                seen = answers(store)
        except DagError:
            continue
        assert seen == expected
        break
    else:
        pytest.fail("the index was never made anew")


def test_reading_by_id_goes_on_over_a_damaged_index(path, expected):
    with quiet_store(path) as store:
        heads = {info.name: info.head for info in store.conversations()}
        chains = {name: store.load_chain(head) for name, head in heads.items()}
    data = bytearray((path / "index.sqlite").read_bytes())
    data[4096:] = random.Random(3).randbytes(len(data) - 4096)
    (path / "index.sqlite").write_bytes(data)
    with quiet_store(path) as store:
        for name, head in heads.items():
            assert store.load_chain(head) == chains[name]
        assert answers(store) == expected


def test_an_old_copy_of_the_index_is_brought_up_to_date_or_made_anew(path, tmp_path):
    """Taken while the journal grows, before and after a checkpoint, before and after a gc, restored later."""
    copies = []

    def copy() -> None:
        folder = tmp_path / f"copy-{len(copies)}"
        folder.mkdir()
        with quiet_store(path):
            pass  # the last one to close brings the log into the file
        shutil.copy(path / "index.sqlite", folder / "index.sqlite")
        copies.append(folder / "index.sqlite")

    copy()
    steps = [
        lambda store: store.commit("main", talk("one")),
        lambda store: store.commit("main", [say(f"big {i}") for i in range(80)]),
        lambda store: store.storage.checkpoint(),
        lambda store: store.commit("main", talk("two")),
        lambda store: store.pack(),
        lambda store: store.save_chain(talk("garbage", "more garbage")),
        lambda store: store.gc(GcOptions(prune_before=1e12, now=1e12)),
        lambda store: store.commit("main", talk("three")),
        lambda store: store.storage.checkpoint(),
        lambda store: store.commit("main", talk("four")),
    ]
    for step in steps:
        with quiet_store(path) as store:
            step(store)
        copy()
    with quiet_store(path) as store:
        expected = answers(store)
        missing = store.find_longest_existing_prefix(talk("garbage", "more garbage"))
    assert missing == (None, 0)
    for each in copies:
        remove_index(path)
        shutil.copy(each, path / "index.sqlite")
        with quiet_store(path) as store:
            assert answers(store) == expected, each
            assert store.find_longest_existing_prefix(talk("garbage", "more garbage")) == (None, 0), each


def test_an_index_whose_log_is_gone_is_brought_up_to_date(path, tmp_path):
    """The process was killed, and somebody tidied up."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store = quiet_store(path)
            store.commit("main", talk("from the one that is killed"))
            os.write(writing, b"x")
            os.read(reading, 100)
            os.kill(os.getpid(), 9)
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)
    assert (path / "index.sqlite-wal").exists()
    for name in ("index.sqlite-wal", "index.sqlite-shm"):
        (path / name).unlink(missing_ok=True)
    with quiet_store(path) as store:
        assert words_of(store.conversation("main").messages())[-1] == "from the one that is killed"
        assert store.depth(store.head("long")) == 300


def test_a_reader_and_a_writer_go_on_while_another_process_makes_the_index_anew(path):
    def loop(act) -> int:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with quiet_store(path) as store:
                    for turn in range(15):
                        act(store, turn)
                code = 0
            finally:
                os._exit(code)
        return child

    def read(store, _) -> None:
        assert len(store.conversation("long").messages()) == 300
        assert store.depth(store.resolve("long~10")) == 290
        assert store.common_ancestor(store.head("side"), store.head("long")) == store.resolve("side~1")

    def write(store, turn) -> None:
        store.commit("written", [say(f"{turn}")])

    def rebuild(store, _) -> None:
        store.reindex()

    children = [loop(read), loop(read), loop(write), loop(rebuild)]
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    with quiet_store(path) as store:
        assert words_of(store.conversation("written").messages()) == [f"{turn}" for turn in range(15)]


# -- admission ------------------------------------------------------------------------------------

A, B, C, D = (letter * 64 for letter in "abcd")


@pytest.fixture
def index(tmp_path):
    made = Index(str(tmp_path / "index.sqlite"), ALL_PARTS)
    made.create()
    yield made
    made.close()


def node(parent, message, **more) -> Arrival:
    made = Node(parent, message, **more)
    return Arrival(Kind.NODE, made.id, place_loose(Form.PLAIN), made)


def message(oid) -> Arrival:
    return Arrival(Kind.MESSAGE, oid, place_loose(Form.PLAIN))


def test_a_node_is_never_admitted_before_its_message_its_parent_and_who_asked_for_it(index):
    first = node(ROOT, A)
    second = node(first.oid, B)
    side = node(ROOT, A, called_by=second.oid)
    with index.changing() as db:
        assert index.add(db, [first]) == [first]
        assert index.add(db, [message(A), second, first]) == [second]
        assert index.add(db, [second]) == [second]
        assert index.add(db, [side]) == [side]
        assert index.add(db, [message(B), side, second]) == [side]
        assert index.add(db, [side]) == []
    assert [index.has_node(each.oid) for each in (first, second, side)] == [True] * 3
    assert index.node_edges(index.row(Kind.NODE, second.oid))[2] == 2


def test_what_is_known_is_not_admitted_again(index):
    first = node(ROOT, A)
    with index.changing() as db:
        index.add(db, [message(A), first, message(A), first])
        index.add(db, [message(A), first])
    counts = index.counts()
    assert (counts[Kind.MESSAGE], counts[Kind.NODE]) == (1, 1)


@pytest.mark.parametrize("at_once", [1, 7, 50, 51, 1000])
def test_the_tables_are_the_same_however_many_come_together(tmp_path, at_once):
    chosen = random.Random(5)
    ids = [f"{chosen.getrandbits(256):064x}" for _ in range(400)]
    arrivals: list[Arrival] = []
    heads = [ROOT]
    for number, oid in enumerate(ids):
        made = Node(chosen.choice(heads[-5:]), oid, heads[-1] if number % 50 == 30 else None)
        arrivals += [Arrival(Kind.MESSAGE, oid, 16384 + number), Arrival(Kind.NODE, made.id, 32768 + number, made)]
        heads.append(made.id)
        if number % 9 == 0:
            arrivals += [message(chosen.choice(ids[: number + 1])), *arrivals[-3:]]
            about = Note(note=ULID, at=TIME, nodes={each: {} for each in heads[1:][-chosen.randint(1, 90) :]})
            arrivals.append(Arrival(Kind.NOTE, f"{chosen.getrandbits(256):064x}", place_loose(Form.PLAIN), about))
    tables = []
    for size in (1, at_once):
        index = Index(str(tmp_path / f"{size}-{len(tables)}"), ALL_PARTS)
        index.create()
        with index.changing() as db:
            for start in range(0, len(arrivals), size):
                assert index.add(db, arrivals[start : start + size]) == []
            names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type='table'")]
            tables.append({name: db.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in names})
        index.close()
    one, many = tables
    assert one.keys() == many.keys()
    for name in one:
        if name != "meta":
            assert one[name] == many[name], name
    assert len(one["node"]) == 400 and len(one["note"]) == len(ids[::9])


def test_a_note_and_a_call_may_come_before_their_nodes(index):
    first = node(ROOT, A)
    note = Note(note=ULID, at=TIME, nodes={first.oid: {}})
    call = Call(call=ULID, model="m", head_input=first.oid, started_at=TIME)
    with index.changing() as db:
        index.add(db, [Arrival(Kind.NOTE, C, -1, note), Arrival(Kind.CALL, D, -1, call)])
        index.add(db, [message(A), first])
        index.link(db)
    row = index.row(Kind.NODE, first.oid)
    with index.reading() as db:
        assert len(db.execute(NOTES_OF, (row,)).fetchall()) == 1
        assert db.execute("SELECT count(*) FROM call_edge WHERE asked=?", (row,)).fetchone() == (1,)


def test_nothing_of_a_change_that_fails_stays(index):
    def fail() -> None:
        with index.changing() as db:
            index.add(db, [message(A), node(ROOT, A)])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert sum(index.counts().values()) == 0
    assert not index.has_node(node(ROOT, A).oid)


def test_a_closed_index_says_so(index):
    index.close()
    with pytest.raises(CorruptFile, match="closed"):
        index.row(Kind.NODE, A)


def test_the_index_is_nobody_elses_business(path):
    for each in index_files(path):
        assert each.stat().st_mode & 0o077 == 0
