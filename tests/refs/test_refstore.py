"""RefStore: loose files and packed-refs as one mapping, moved by compare-and-swap."""

import multiprocessing
import os
import tempfile
import threading

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from refs.errors import CorruptFile, InvalidRefName, RefChanged, RefExists, StorageFailure
from refs.files import Files
from refs.ids import Oid
from refs.names import CONVERSATIONS, RefName, check_ref_name, conversation_ref, remote_ref, tag_ref
from refs.reflog import ReflogEntry
from refs.store import MAX_LOOSE_MOVES, Move, RefStore

MANY = MAX_LOOSE_MOVES + 1
SPAWN = multiprocessing.get_context("spawn")


def oid(n: int) -> Oid:
    return Oid(f"{n:064x}")


A, B, C = conversation_ref("a"), conversation_ref("b"), conversation_ref("c")


@pytest.fixture
def store(tmp_path):
    found = RefStore(Files(tmp_path))
    yield found
    found.close()


def change(store, *moves):
    """What a transaction does: check, then apply, all under one lock."""
    with store._files.lock("lock"):
        store.check(moves)
        store.apply(moves)


def create(store, *names):
    change(store, *(Move(conversation_ref(name), None, oid(1)) for name in names))


def refs(store, prefix=""):
    return dict(store.list(prefix))


def pack(store):
    with store._files.lock("lock"):
        return store.pack()


def filled(store, count=MANY):
    """A store with `count` packed refs; ref `t0007` is at 7."""
    moves = [Move(conversation_ref(f"t{n:04}"), None, oid(n)) for n in range(count)]
    change(store, *moves)
    return moves


# -- one ref --------------------------------------------------------------------------------------


def test_a_created_ref_is_a_file_with_its_id_and_a_newline(store, tmp_path):
    change(store, Move(A, None, oid(1)))
    assert (tmp_path / A).read_bytes() == f"{oid(1)}\n".encode()
    assert store.resolve(A) == oid(1)
    assert store.resolve(B) is None


def test_a_move_overwrites_the_file_in_place(store, tmp_path):
    change(store, Move(A, None, oid(1)))
    inode = (tmp_path / A).stat().st_ino
    change(store, Move(A, oid(1), oid(2)))
    assert store.resolve(A) == oid(2)
    assert (tmp_path / A).stat().st_ino == inode


def test_a_deleted_ref_is_gone_and_so_are_the_folders_it_needed(store, tmp_path):
    change(store, Move(conversation_ref("x/y/z"), None, oid(1)))
    change(store, Move(conversation_ref("x/other"), None, oid(1)))
    change(store, Move(conversation_ref("x/y/z"), oid(1), None))
    assert refs(store) == {conversation_ref("x/other"): oid(1)}
    assert not (tmp_path / CONVERSATIONS / "x/y").exists()
    change(store, Move(conversation_ref("x/other"), oid(1), None))
    assert (tmp_path / CONVERSATIONS).is_dir()
    assert list((tmp_path / CONVERSATIONS).iterdir()) == []


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("move", "actual"),
    [
        (Move(A, None, oid(9)), oid(1)),
        (Move(A, oid(2), oid(9)), oid(1)),
        (Move(A, oid(2), None), oid(1)),
        (Move(B, oid(1), oid(9)), None),
        (Move(B, oid(1), None), None),
    ],
)
def test_a_ref_elsewhere_than_expected_is_left_alone_and_the_error_says_where_it_is(store, packed, move, actual):
    change(store, Move(A, None, oid(1)))
    if packed:
        pack(store)
    with pytest.raises(RefChanged) as caught:
        change(store, Move(C, None, oid(3)), move)
    assert (caught.value.name, caught.value.expected, caught.value.actual) == (move.ref, move.expected, actual)
    assert refs(store) == {A: oid(1)}


def test_two_moves_of_one_ref_are_a_mistake_of_the_caller(store):
    with pytest.raises(ValueError, match="two moves"):
        store.check([Move(A, None, oid(1)), Move(A, oid(1), oid(2))])


def test_applying_again_changes_nothing(store, tmp_path):
    change(store, Move(A, None, oid(1)), Move(B, None, oid(1)))
    moves = [Move(A, oid(1), oid(2)), Move(B, oid(1), None), Move(C, None, oid(3))]
    for _ in range(3):
        store.apply(moves)
        assert refs(store) == {A: oid(2), C: oid(3)}
    many = [Move(conversation_ref(f"t{n}"), None, oid(n)) for n in range(MANY)]
    for _ in range(3):
        store.apply(many)
        assert len(refs(store)) == MANY + 2


def test_apply_asks_no_questions_because_a_replay_has_none(store):
    store.apply([Move(A, oid(5), oid(6)), Move(B, oid(5), None)], durable=True)
    assert refs(store) == {A: oid(6)}


# -- listing --------------------------------------------------------------------------------------


def test_listing_is_sorted_over_loose_and_packed_and_loose_wins(store):
    change(store, Move(A, None, oid(1)), Move(C, None, oid(1)), Move(tag_ref("t"), None, oid(1)))
    assert pack(store) == 3
    change(store, Move(C, oid(1), oid(2)), Move(B, None, oid(3)))
    assert list(store.list()) == [(A, oid(1)), (B, oid(3)), (C, oid(2)), (tag_ref("t"), oid(1))]
    assert store.resolve(C) == oid(2)


@pytest.mark.parametrize("packed", [False, True])
def test_a_prefix_lists_what_starts_with_it(store, packed):
    create(store, "team/a", "team/b", "teams", "x", "é/a")
    change(store, Move(tag_ref("team"), None, oid(1)), Move(remote_ref("origin", "tags/x"), None, oid(1)))
    if packed:
        assert pack(store) == 7
    assert list(refs(store, "refs/conversations/team/")) == [
        conversation_ref("team/a"),
        conversation_ref("team/b"),
    ]
    assert list(refs(store, "refs/conversations/team"))[-1] == conversation_ref("teams")
    assert list(refs(store, "refs/conversations/é")) == [conversation_ref("é/a")]
    assert list(refs(store, "refs/remotes/origin/")) == [remote_ref("origin", "tags/x")]
    assert list(refs(store, "refs/t")) == [tag_ref("team")]
    for nothing in ("refs/../", "/", "x", "refs/conversations/zz", "refs/\x00", "refs/\ud800"):
        assert refs(store, nothing) == {}


@pytest.mark.parametrize("packed", [False, True])
def test_refs_that_stand_at_some_ids_are_those_of_the_whole_listing(store, packed):
    create(store, "team/a", "team/b", "x")
    change(store, Move(B, None, oid(2)), Move(tag_ref("t"), None, oid(1)), Move(C, None, oid(3)))
    if packed:
        assert pack(store) == 6
    for ids in (set(), {oid(1)}, {oid(2), oid(3)}, {oid(9)}):
        for prefix in ("", CONVERSATIONS, "refs/conversations/team/", "refs/tags/", "refs/zz"):
            wanted = [found for found in store.list(prefix) if found[1] in ids]
            assert list(store.list(prefix, at=ids)) == wanted


def test_a_ref_stands_where_its_loose_file_says_not_where_it_was_packed(store):
    create(store, "a", "b")
    pack(store)
    change(store, Move(A, oid(1), oid(2)))
    assert list(store.list(at={oid(1)})) == [(B, oid(1))]
    assert list(store.list(at={oid(2)})) == [(A, oid(2))]


def test_few_are_found_among_packed_refs_of_several_blocks(store):
    filled(store, 6000)
    assert list(store.list(at={oid(0), oid(2999), oid(5999)})) == [
        (conversation_ref(f"t{n:04}"), oid(n)) for n in (0, 2999, 5999)
    ]


@pytest.mark.parametrize("prefix", ["", CONVERSATIONS])
def test_names_that_are_not_allowed_are_skipped_and_remembered(store, tmp_path, prefix):
    create(store, "good")
    for bad in ("a b", "c.lock", ".hidden"):
        (tmp_path / CONVERSATIONS / bad).write_bytes(f"{oid(9)}\n".encode())
    (tmp_path / CONVERSATIONS / ".tmp-0123").write_bytes(b"half")
    os.close(os.open(os.fsencode(tmp_path / CONVERSATIONS) + b"/\xff", os.O_CREAT | os.O_WRONLY))
    assert refs(store, prefix) == {conversation_ref("good"): oid(1)}
    assert sorted(name.rpartition("/")[2] for name, _ in store.suspicious) == [
        ".hidden",
        "a b",
        "c.lock",
        "\udcff",
    ]
    assert all(reason for _, reason in store.suspicious)
    refs(store, "refs/tags/")
    assert store.suspicious == []


def test_an_illegal_name_in_packed_refs_is_suspicious_too(store, tmp_path):
    lines = f"{oid(1)} refs/conversations/../x\n{oid(2)} {A}\n"
    (tmp_path / "packed-refs").write_text(f"# packed-refs sorted\n{lines}")
    assert refs(store) == {A: oid(2)}
    assert [name for name, _ in store.suspicious] == ["refs/conversations/../x"]


def test_an_empty_store_has_no_refs(store):
    assert refs(store) == {}
    assert pack(store) == 0
    assert store.resolve(A) is None


def test_a_ref_that_is_packed_during_a_listing_is_listed(store):
    create(store, "a", "b", "c")
    listing = store.list()
    assert next(listing) == (A, oid(1))
    pack(store)
    assert list(listing) == [(B, oid(1)), (C, oid(1))]


def test_a_ref_that_is_deleted_during_a_listing_is_left_out(store):
    create(store, "a", "b", "c")
    listing = store.list()
    next(listing)
    change(store, Move(B, oid(1), None))
    assert list(listing) == [(C, oid(1))]


# -- packed-refs ----------------------------------------------------------------------------------


def test_many_moves_go_into_packed_refs_at_once(store, tmp_path):
    create(store, "t0003x")
    change(store, Move(conversation_ref("t0003x"), oid(1), None), *[
        Move(conversation_ref(f"t{n:04}"), None, oid(n)) for n in range(MANY)
    ])  # fmt: skip
    assert list((tmp_path / CONVERSATIONS).iterdir()) == []
    expected = "".join(f"{oid(n)} refs/conversations/t{n:04}\n" for n in range(MANY))
    assert (tmp_path / "packed-refs").read_text() == f"# packed-refs sorted\n{expected}"


@pytest.mark.parametrize("packed", [False, True])
def test_of_many_moves_one_that_is_elsewhere_is_told(store, packed):
    create(store, "there")
    if packed:
        pack(store)
    many = [Move(conversation_ref(f"new-{n}"), None, oid(n)) for n in range(MANY)]
    with pytest.raises(RefChanged):
        store.check([*many, Move(conversation_ref("there"), None, oid(1))])
    with pytest.raises(RefChanged):
        store.check([*many, Move(conversation_ref("missing"), oid(1), oid(2))])
    with pytest.raises(RefExists):
        store.check([*many, Move(conversation_ref("There"), None, oid(1))])
    store.check(many)


def test_many_moves_take_the_loose_files_out_of_their_way(store, tmp_path):
    moves = filled(store)
    change(store, *[Move(move.ref, move.new, oid(500)) for move in moves[:5]])
    assert len(list((tmp_path / CONVERSATIONS).iterdir())) == 5
    current = refs(store)
    change(store, *[Move(ref, value, oid(600)) for ref, value in current.items()])
    assert list((tmp_path / CONVERSATIONS).iterdir()) == []
    assert set(refs(store).values()) == {oid(600)}


def test_each_of_5000_packed_refs_is_found_and_none_beside_them(store):
    moves = filled(store, 5000)
    assert all(store.resolve(move.ref) == move.new for move in moves)
    assert list(store.list()) == [(move.ref, move.new) for move in moves]
    for name in ("s", "t", "t0000x", "t2500x", "t4999x", "u", "é"):
        assert store.resolve(conversation_ref(name)) is None
    assert store.resolve(tag_ref("t0001")) is None
    assert [ref for ref, _ in store.list("refs/conversations/t123")] == [
        conversation_ref(f"t123{n}") for n in range(10)
    ]


def test_lines_of_all_lengths_are_found(store):
    names = ["x" * n + "y" for n in range(1, 199)] + [f"{'ü' * n}z" for n in range(1, 99)]
    change(store, *[Move(conversation_ref(name), None, oid(n)) for n, name in enumerate(names)])
    for n, name in enumerate(names):
        assert store.resolve(conversation_ref(name)) == oid(n)
    assert list(refs(store)) == sorted(conversation_ref(name) for name in names)


def test_a_packed_ref_moves_into_a_loose_file_and_can_be_packed_again(store, tmp_path):
    moves = filled(store)
    ref = moves[7].ref
    change(store, Move(ref, oid(7), oid(70)))
    assert (tmp_path / ref).exists()
    assert pack(store) == 1
    assert not (tmp_path / ref).exists()
    assert store.resolve(ref) == oid(70)
    assert len(refs(store)) == MANY


def test_a_deleted_ref_leaves_packed_refs_and_its_loose_file(store, tmp_path):
    moves = filled(store)
    both, packed = moves[7].ref, moves[8].ref
    change(store, Move(both, oid(7), oid(70)))
    change(store, Move(both, oid(70), None), Move(packed, oid(8), None))
    assert store.resolve(both) is None
    assert store.resolve(packed) is None
    assert both.encode() not in (tmp_path / "packed-refs").read_bytes()
    assert len(refs(store)) == MANY - 2


def test_deleting_loose_refs_only_leaves_packed_refs_alone(store, tmp_path):
    filled(store)
    create(store, "a")
    before = (tmp_path / "packed-refs").stat()
    change(store, Move(A, oid(1), None))
    assert (tmp_path / "packed-refs").stat().st_ino == before.st_ino


def test_packing_keeps_a_pack_that_another_process_made(store, tmp_path):
    other = RefStore(Files(tmp_path))
    filled(store)
    assert other.resolve(conversation_ref("t0007")) == oid(7)
    change(store, Move(conversation_ref("t0007"), oid(7), oid(8)))
    pack(store)
    assert other.resolve(conversation_ref("t0007")) == oid(8)
    create(other, "a")
    pack(other)
    assert len(refs(store)) == MANY + 1
    other.close()


# -- which names stand beside each other ------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("there", "new", "why"),
    [
        ("Trip", "trip", "by case"),
        ("köln", "KÖLN", "by case"),
        ("a", "a/b", "folder"),
        ("a", "a/b/c", "folder"),
        ("a/b", "a", "folder"),
        ("a/b/c", "a", "folder"),
        ("A", "a/b", "folder"),
        ("A/b", "a", "folder"),
        ("Team/a", "team/b", "by case"),
    ],
)
def test_names_that_cannot_stand_beside_each_other_are_refused(store, packed, there, new, why):
    create(store, there)
    if packed:
        pack(store)
    with pytest.raises(RefExists, match=why) as caught:
        create(store, new)
    assert caught.value.name == conversation_ref(new)
    assert refs(store) == {conversation_ref(there): oid(1)}
    with pytest.raises(RefExists, match=why):
        create(RefStore(store._files), new)


@pytest.mark.parametrize(("one", "other"), [("Trip", "trip"), ("a", "a/b"), ("a/b", "a"), ("T/a", "t/b")])
def test_names_of_one_call_are_held_against_each_other(store, one, other):
    with pytest.raises(RefExists):
        create(store, one, other)
    assert refs(store) == {}
    create(store, one)  # the refused call left no trace


@pytest.mark.parametrize("there", ["a", "a/b", "a/b/c", "A"])
@pytest.mark.parametrize("new", ["a", "a/b", "a/x", "A", "A/q"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_deletion_frees_its_name_in_the_same_call(store, there, new, packed):
    if there == new:
        return
    create(store, there)
    if packed:
        pack(store)
    change(store, Move(conversation_ref(new), None, oid(2)), Move(conversation_ref(there), oid(1), None))
    assert refs(store) == {conversation_ref(new): oid(2)}
    create(store, "other")
    assert store.verify() == [("HEAD", "it is missing")]


def test_a_refused_call_frees_no_name(store):
    create(store, "a")
    with pytest.raises(RefExists):
        change(store, Move(A, oid(1), None), Move(B, None, oid(1)), Move(conversation_ref("B"), None, oid(1)))
    with pytest.raises(RefExists):
        create(store, "a/b")


def test_equal_names_in_different_classes_do_not_meet(store):
    create(store, "trip")
    change(store, Move(tag_ref("Trip"), None, oid(1)), Move(remote_ref("trip", "tags/x"), None, oid(1)))
    assert len(refs(store)) == 3


def test_names_that_another_store_object_created_are_seen(store, tmp_path):
    other = RefStore(Files(tmp_path))
    for n in range(20):  # faster than a clock ticks
        create(store, f"x{n}")
        with pytest.raises(RefExists):
            create(other, f"X{n}")
        create(other, f"y{n}")
        with pytest.raises(RefExists):
            create(store, f"y{n}/z")
    change(other, Move(conversation_ref("x3"), oid(1), None))
    create(store, "X3")
    pack(other)
    change(store, Move(conversation_ref("y3"), oid(1), None))
    create(other, "Y3")
    other.close()


def _create_in_child(root, name):
    create(RefStore(Files(root)), name)


def test_names_that_another_process_created_are_seen(store, tmp_path):
    create(store, "a")
    child = SPAWN.Process(target=_create_in_child, args=(tmp_path, "Trip"))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    with pytest.raises(RefExists):
        create(store, "trip")


def test_a_creation_reads_no_folder_again_when_nothing_changed_outside(tmp_path):
    class Counted(Files):
        listed = 0

        def entries(self, name):
            self.listed += 1
            return super().entries(name)

    files = Counted(tmp_path)
    store = RefStore(files)
    create(store, "first")
    before = files.listed
    for n in range(50):
        create(store, f"x{n}")
        change(store, Move(conversation_ref(f"x{n}"), oid(1), oid(2)))
    assert files.listed == before


def test_after_a_failed_write_the_names_on_disk_count(tmp_path):
    class Full(Files):
        full = False

        def _write(self, name, fd, offset, data):
            if self.full and name.startswith("refs/"):
                raise StorageFailure(name, OSError(28, "No space left on device"))
            super()._write(name, fd, offset, data)

    files = Full(tmp_path)
    store = RefStore(files)
    create(store, "a")
    files.full = True
    with pytest.raises(StorageFailure):
        create(store, "b")
    files.full = False
    assert refs(store) == {A: oid(1)}
    create(store, "B")


def test_folders_that_a_crash_left_are_cleared_for_a_ref(store, tmp_path):
    (tmp_path / A / "x" / "y").mkdir(parents=True)
    assert store.resolve(A) is None
    create(store, "a")
    assert store.resolve(A) == oid(1)


# -- HEAD and roots -------------------------------------------------------------------------------


def test_head_names_a_conversation_that_may_not_be_there_yet(store, tmp_path):
    store.set_head(A)
    assert (tmp_path / "HEAD").read_text() == "ref: refs/conversations/a\n"
    assert store.head() == A
    store.set_head(conversation_ref("é/b"))
    assert store.head() == conversation_ref("é/b")
    with pytest.raises(InvalidRefName):
        store.set_head(tag_ref("a"))


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"ref: refs/conversations/a",
        b"ref: refs/conversations/\n",
        b"ref: refs/conversations/../x\n",
        b"ref: refs/tags/a\n",
        b"refs/conversations/a\n",
        b"ref: refs/conversations/a\nb\n",
        b"ref: refs/conversations/\xff\n",
    ],
)
def test_a_head_that_names_no_conversation_is_damage(store, tmp_path, content):
    if content is not None:
        (tmp_path / "HEAD").write_bytes(content)
    with pytest.raises(CorruptFile, match="HEAD"):
        store.head()
    with pytest.raises(CorruptFile, match="HEAD"):
        list(store.roots(""))
    assert [name for name, _ in store.verify()] == ["HEAD"]


def test_roots_are_all_refs_and_young_moves(store):
    store.set_head(A)
    filled(store)
    create(store, "a")
    store.reflog.append(
        [
            ReflogEntry("2026-01-01T00:00:00.000Z", A, None, oid(1001), "old"),
            ReflogEntry("2026-01-02T00:00:00.000Z", A, oid(1002), oid(1003), "young"),
        ]
    )
    assert set(store.roots("2026-01-02")) == {oid(n) for n in (*range(MANY), 1002, 1003)}


def test_a_value_under_a_name_that_is_not_allowed_is_a_root_and_other_stray_files_are_nothing(store, tmp_path):
    store.set_head(A)
    create(store, "a")
    (tmp_path / CONVERSATIONS / "b.lock").write_text(f"{oid(7)}\n")
    (tmp_path / CONVERSATIONS / ".DS_Store").write_bytes(b"\0" * 100)
    (tmp_path / "packed-refs").write_text(f"# packed-refs sorted\n{oid(8)} refs/tags/x~\n")
    assert set(store.roots("")) == {oid(1), oid(7), oid(8)}


# -- damage ---------------------------------------------------------------------------------------

DAMAGED_VALUES = [
    b"",
    b"\n",
    b"abc\n",
    b"0" * 64,
    b"0" * 63 + b"\n",
    b"A" * 64 + b"\n",
    b"\0" * 65,
    b"0" * 64 + b"\n\n",
]


@pytest.mark.parametrize("content", [*DAMAGED_VALUES, b"x" * 100_000])
def test_a_damaged_loose_ref_is_named_and_stops_listing_and_gc(store, tmp_path, content):
    store.set_head(A)
    create(store, "a", "b")
    (tmp_path / A).write_bytes(content)
    for reading in (lambda: store.resolve(A), lambda: refs(store), lambda: list(store.roots("")), store.pack):
        with pytest.raises(CorruptFile) as caught:
            reading()
        assert caught.value.path == str(tmp_path / A)
    assert store.resolve(B) == oid(1)
    assert store.verify() == [(A, "not 64 hex digits and a newline")]


def test_a_replay_mends_a_damaged_loose_ref(store, tmp_path):
    for content in DAMAGED_VALUES:
        create(store, "a")
        (tmp_path / A).write_bytes(content)
        store.apply([Move(A, oid(1), oid(2))])
        assert store.resolve(A) == oid(2)
        change(store, Move(A, oid(2), None))


def test_a_link_or_pipe_in_a_refs_place_is_damage(store, tmp_path):
    create(store, "a", "b")
    (tmp_path / A).unlink()
    (tmp_path / A).symlink_to(tmp_path / B)
    with pytest.raises(CorruptFile, match="regular"):
        store.resolve(A)
    with pytest.raises(CorruptFile, match="regular"):
        store.apply([Move(A, oid(1), oid(2))])
    assert store.resolve(B) == oid(1)
    (tmp_path / A).unlink()
    os.mkfifo(tmp_path / A)
    with pytest.raises(CorruptFile, match="regular"):
        refs(store)


GOOD_LINES = [f"{oid(n)} refs/conversations/t{n:04}\n".encode() for n in range(200)]


def _damage(number, line):
    """packed-refs whose `number`-th line (the header is the first) was replaced."""
    lines = [b"# packed-refs sorted\n", *GOOD_LINES]
    lines[number - 1] = line
    return b"".join(lines)


@pytest.mark.parametrize(
    ("number", "line", "reason"),
    [
        (1, b"# pack-refs with: peeled\n", "header"),
        (2, b"garbage\n", "not an id"),
        (101, b"garbage\n", "not an id"),
        (101, b"\n", "not an id"),
        (101, b"F" + GOOD_LINES[99][1:], "not an id"),
        (101, GOOD_LINES[99][1:], "not an id"),
        (101, b"0" + GOOD_LINES[99], "not an id"),
        (101, GOOD_LINES[99][:-1] + b" x\n", "not an id"),
        (101, GOOD_LINES[99][:-1] + b"\xff\n", "UTF-8"),
        (101, GOOD_LINES[98], "out of order"),
        (101, GOOD_LINES[150], "out of order"),
        (101, GOOD_LINES[99][:-1] + b"x" * 5000 + b"\n", "not an id"),
        (101, b"x" * 300_000 + b"\n", "not an id|too long"),
        (201, GOOD_LINES[199][:-1], "middle of a line"),
    ],
)
def test_damaged_packed_refs_are_told_with_the_line(store, tmp_path, number, line, reason):
    store.set_head(A)
    (tmp_path / "packed-refs").write_bytes(_damage(number, line))
    for reading in (lambda: refs(store), lambda: list(store.roots(""))):
        with pytest.raises(CorruptFile, match="packed-refs: line") as caught:
            reading()
        assert caught.value.path == str(tmp_path / "packed-refs")
    problems = store.verify()
    assert problems
    assert {name for name, _ in problems} == {"packed-refs"}
    if "order" not in reason:
        assert problems[0][1].startswith(f"line {number}: ")
        assert any(part in problems[0][1] for part in reason.split("|"))


def test_a_damaged_line_is_told_when_it_is_looked_up(store, tmp_path):
    (tmp_path / "packed-refs").write_bytes(_damage(101, b"xx" + GOOD_LINES[99][2:]))
    with pytest.raises(CorruptFile, match="line 101: "):
        store.resolve(conversation_ref("t0099"))


def test_a_damaged_line_is_told_when_its_id_is_looked_for(store, tmp_path):
    lines = f"{oid(1)} {A}\n{oid(2)} a b\n{oid(1)} {C}\n"
    (tmp_path / "packed-refs").write_text(f"# packed-refs sorted\n{lines}")
    assert list(store.list(at={oid(1)})) == [(A, oid(1)), (C, oid(1))]
    with pytest.raises(CorruptFile, match="line 3: not an id and a name"):
        list(store.list(at={oid(2)}))


def test_damaged_packed_refs_are_never_rewritten(store, tmp_path):
    damaged = _damage(101, b"garbage\n")
    (tmp_path / "packed-refs").write_bytes(damaged)
    create_a = [Move(A, None, oid(1))]
    store.apply(create_a)
    with pytest.raises(CorruptFile):
        store.pack()
    assert (tmp_path / "packed-refs").read_bytes() == damaged
    assert (tmp_path / A).exists()


def test_verify_finds_every_problem_at_once(store, tmp_path):
    create(store, "Trip", "a", "damaged")
    (tmp_path / CONVERSATIONS / "trip").write_text(f"{oid(1)}\n")
    (tmp_path / CONVERSATIONS / "a b").write_text(f"{oid(1)}\n")
    (tmp_path / CONVERSATIONS / "damaged").write_text("?")
    (tmp_path / "packed-refs").write_text(f"# packed-refs sorted\n?\n{oid(1)} {A}/b\n{oid(1)} refs/tags/x~\n?\n")
    assert store.verify() == [
        *sorted(
            [
                ("refs/conversations/a b", "spaces aren't allowed"),
                ("refs/conversations/damaged", "not 64 hex digits and a newline"),
            ],
            key=lambda problem: list(store._loose.names()).index(problem[0]),
        ),
        ("packed-refs", "line 2: not an id and a name"),
        ("refs/tags/x~", "none of ~ ^ : ? * [ is allowed"),
        ("packed-refs", "line 5: not an id and a name"),
        ("HEAD", "it is missing"),
        ("refs/conversations/a/b", "'refs/conversations/a' is a name, and can't be a folder too"),
        ("refs/conversations/trip", "it differs only by case from 'refs/conversations/Trip'"),
    ]


def test_a_healthy_store_has_no_problems(store):
    store.set_head(A)
    filled(store)
    create(store, "a")
    assert store.verify() == []


# -- readers beside a writer ----------------------------------------------------------------------


def test_a_reader_beside_a_writer_sees_only_values_that_were_written(store, tmp_path):
    values = [Oid(digit * 64) for digit in "0123456789abcdef"]
    change(store, Move(A, None, values[0]))
    reader, done, seen = RefStore(Files(tmp_path)), threading.Event(), set()

    def read():
        while not done.is_set():
            seen.add(reader.resolve(A))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for n in range(300):
            store.apply([Move(A, None, values[n % 16])])
            if n % 50 == 0:
                pack(store)
    finally:
        done.set()
        thread.join(60)
        reader.close()
    assert seen
    assert seen <= set(values)


def test_a_ref_whose_creator_has_yet_to_write_it_is_waited_for(store, tmp_path):
    create(store, "b")
    (tmp_path / A).touch()
    writer = threading.Timer(0.005, lambda: (tmp_path / A).write_bytes(f"{oid(1)}\n".encode()))
    writer.start()
    assert store.resolve(A) == oid(1)
    writer.join(60)


# -- durability -----------------------------------------------------------------------------------


class Synced(Files):
    """Files that remember what was synced."""

    def __init__(self, root):
        super().__init__(root)
        self.steps = []

    def _sync(self, name, fd):
        super()._sync(name, fd)
        self.steps.append(name)

    def sync_dir(self, name):
        super().sync_dir(name)
        self.steps.append(f"{name}/")


def test_apply_syncs_no_loose_file_unless_asked_and_sync_does_later(tmp_path):
    files = Synced(tmp_path)
    store = RefStore(files)
    create(store, "a", "x/y")
    files.steps.clear()
    moves = [Move(A, oid(1), oid(2)), Move(B, None, oid(2)), Move(conversation_ref("x/y"), oid(1), None)]
    store.apply(moves)
    assert files.steps == []
    store.sync([move.ref for move in moves])
    assert sorted(files.steps) == sorted([A, B, CONVERSATIONS])
    files.steps.clear()
    store.apply(moves, durable=True)
    assert sorted(files.steps) == sorted([A, B, CONVERSATIONS])


def test_a_name_that_became_a_folder_and_one_that_was_in_it_can_be_synced(tmp_path):
    files = Synced(tmp_path)
    store = RefStore(files)
    inside = conversation_ref("a/b")
    create(store, "a")
    store.apply([Move(A, oid(1), None), Move(inside, None, oid(1))], durable=True)
    assert refs(store) == {inside: oid(1)}
    store.apply([Move(inside, oid(1), None), Move(A, None, oid(1))], durable=True)
    assert refs(store) == {A: oid(1)}


def test_packing_makes_the_removal_of_loose_files_durable(tmp_path):
    files = Synced(tmp_path)
    store = RefStore(files)
    create(store, "a")
    files.steps.clear()
    store.pack()
    assert files.steps[-1] == CONVERSATIONS


# -- against a plain mapping ----------------------------------------------------------------------

NAMES = st.sampled_from(["a", "A", "a/b", "a/B", "a/b/c", "b", "b/c", "B/d", "é", "É"]).map(conversation_ref)


def _fits(names: set[RefName]) -> bool:
    """The rule about names, written down as simply as can be."""
    paths = {name: {"/".join(name.split("/")[:n]) for n in range(3, name.count("/") + 1)} for name in names}
    folders = set().union(*paths.values()) if paths else set()
    everything = names | folders
    return len({path.casefold() for path in everything}) == len(names) + len(folders)


class RefMachine(RuleBasedStateMachine):
    """Two store objects on one folder behave as one mapping."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.stores = [RefStore(Files(self.folder.name)) for _ in range(2)]
        self.model = {}
        self.count = 0

    @rule(which=st.booleans(), changes=st.dictionaries(NAMES, st.booleans(), min_size=1, max_size=4))
    def change(self, which, changes):
        self.count += 1
        moves = [
            Move(ref, self.model.get(ref), None if delete and ref in self.model else oid(self.count))
            for ref, delete in changes.items()
        ]
        after = {**self.model, **{move.ref: move.new for move in moves}}
        after = {ref: value for ref, value in after.items() if value is not None}
        if _fits(set(after)):
            change(self.stores[which], *moves)
            self.model = after
        else:
            with pytest.raises(RefExists):
                change(self.stores[which], *moves)

    @precondition(lambda self: self.model)
    @rule(which=st.booleans())
    def pack(self, which):
        pack(self.stores[which])

    @rule()
    def reopen(self):
        self.stores[0].close()
        self.stores[0] = RefStore(Files(self.folder.name))

    @invariant()
    def both_see_the_same(self):
        for store in self.stores:
            assert list(store.list()) == sorted(self.model.items())
            for ref in (A, conversation_ref("a/b"), conversation_ref("É")):
                assert store.resolve(ref) == self.model.get(ref)

    def teardown(self):
        assert self.stores[0].verify() == [("HEAD", "it is missing")]
        for store in self.stores:
            store.close()
        self.folder.cleanup()


TestRefMachine = RefMachine.TestCase
TestRefMachine.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


def test_a_checked_name_is_the_same_in_and_out(store):
    create(store, "é/旅行")
    assert [check_ref_name(ref) for ref in refs(store)] == [conversation_ref("é/旅行")]
