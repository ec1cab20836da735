"""packed-refs of very many refs: gzip members that zcat prints, bisected without unpacking the rest."""

import contextlib
import gzip
import random
import tracemalloc
from hashlib import sha256

import pytest

from refs.errors import CorruptFile
from refs.files import Files
from refs.ids import Oid
from refs.members import END, MAGIC, pack_member, places
from refs.names import conversation_ref
from refs.packed import PackedRefs
from refs.packedfile import HEADER, salvage
from refs.store import RefStore

COUNT = 1200


def digest(n: int) -> Oid:
    return Oid(sha256(str(n).encode()).hexdigest())


def named(n: int):
    return conversation_ref(f"t{n:05}")


def values(count: int = COUNT) -> dict:
    """Of every second name, so that there is one missing between any two."""
    return {named(2 * n): digest(n) for n in range(count)}


def text(held) -> bytes:
    return HEADER + b"".join(f"{oid} {name}\n".encode() for name, oid in sorted(held.items()))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "packed-refs"


@pytest.fixture
def packed(tmp_path):
    found = PackedRefs(Files(tmp_path))
    yield found
    found.close()


def members(path) -> list[bytes]:
    """All but the empty one at the end."""
    with Files(path.parent).open_read(path.name) as handle:
        *found, last = [handle.read_at(at, size) for at, size in places(handle, 0, handle.size())]
    assert last == END
    return found


def test_many_refs_stand_in_members_that_zcat_prints(packed, path):
    packed.rewrite(values())
    assert gzip.decompress(path.read_bytes()) == text(values())
    parts = [gzip.decompress(each) for each in members(path)]
    assert parts[0] == HEADER
    assert all(4096 <= len(part) <= 10240 + 100 and part.endswith(b"\n") for part in parts[1:])
    assert path.stat().st_size < COUNT * 42


def test_few_refs_are_plain_and_become_so_again(packed, path):
    few = values(100)
    packed.rewrite(few)
    assert path.read_bytes() == text(few)
    packed.rewrite(values())
    assert path.read_bytes() != text(values())
    packed.rewrite(dict.fromkeys(values().keys() - few.keys()))
    assert path.read_bytes() == text(few)


def test_each_is_found_and_none_between_them(packed):
    packed.rewrite(values())
    held = values()
    for n in range(2 * COUNT + 1):
        assert packed.find(named(n)) == held.get(named(n))
    for name in ("", "refs/", "refs/conversations/", "refs/conversations/u", "refs/tags/x", "\udcff"):
        assert packed.find(name) is None
    assert packed.find_all(map(named, range(2 * COUNT))) == values()


def test_a_part_of_the_names_is_listed_from_where_it_begins(packed):
    packed.rewrite(values())
    for prefix in ("", "refs/conversations/t0", "refs/conversations/t012", "refs/conversations/t02398", "refs/t"):
        expected = [(name, oid) for name, oid in values().items() if name.startswith(prefix)]
        assert list(packed.items(prefix)) == expected
        wanted = {digest(0), digest(700), digest(COUNT - 1)}
        assert list(packed.standing_at(wanted, prefix)) == [each for each in expected if each[1] in wanted]


def test_a_large_plain_file_is_read_and_becomes_members_with_the_next_change(packed, path):
    path.write_bytes(text(values()))
    assert dict(packed.items()) == values()
    assert packed.find(named(600)) == digest(300) and packed.find(named(601)) is None
    changed = {**values(), named(601): digest(1)}
    packed.rewrite({named(601): digest(1)})
    assert gzip.decompress(path.read_bytes()) == text(changed) != path.read_bytes()
    assert packed.find(named(601)) == digest(1)


@pytest.mark.parametrize(("count", "becomes_members"), [(100, False), (300, True)])
def test_packing_settles_a_long_plain_file_though_no_ref_has_moved(packed, path, tmp_path, count, becomes_members):
    path.write_bytes(text(values(count)))
    before = path.stat().st_ino
    packed.rewrite({})
    assert path.stat().st_ino == before
    store = RefStore(Files(tmp_path))
    assert store.pack() == 0
    store.close()
    assert path.read_bytes().startswith(MAGIC) == becomes_members == (path.stat().st_ino != before)
    assert dict(packed.items()) == values(count)
    settled = path.stat().st_ino
    packed.rewrite({}, settle=True)
    assert path.stat().st_ino == settled


def test_members_in_which_nothing_changes_are_taken_as_they_are(packed, path):
    packed.rewrite(values())
    before = members(path)
    packed.rewrite({named(1001): digest(5), named(1000): None})
    after = members(path)
    assert len(set(before) - set(after)) <= 3  # that one, and the two that few refs would take
    assert len(after) <= len(before) + 1


def test_any_changes_give_what_a_dict_gives(packed, path):
    rng, held = random.Random(7), {}
    for turn in range(40):
        names = [named(rng.randrange(900)) for _ in range(rng.choice([1, 3, 70, 200]))]
        changes = {name: digest(rng.randrange(10**9)) if rng.random() < 0.7 else None for name in names}
        if turn % 13 == 12:
            changes = dict.fromkeys(held)
        packed.rewrite(changes)
        held = {name: oid for name, oid in {**held, **changes}.items() if oid is not None}
        assert dict(packed.items()) == held
        assert all(packed.find(named(n)) == held.get(named(n)) for n in rng.sample(range(900), 50))
        assert [name for name, problem in packed.audit() if problem is None] == sorted(held)


def test_a_changed_bit_gives_no_wrong_answer(packed, path, tmp_path):
    held = values(300)
    packed.rewrite(held)
    data = path.read_bytes()
    rng = random.Random(3)
    heads = {at + step for at, _ in placed(path) for step in range(18)}
    for at in [*heads, *rng.sample(range(len(data)), 150)]:
        changed = bytearray(data)
        changed[at] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        reader = PackedRefs(Files(tmp_path))
        for n in rng.sample(range(600), 60):
            with contextlib.suppress(CorruptFile):
                assert reader.find(named(n)) == held.get(named(n)), at
        for prefix in ("", "refs/conversations/t002"):
            try:
                expected = {name: oid for name, oid in held.items() if name.startswith(prefix)}
                assert dict(reader.items(prefix)) == expected, at
            except CorruptFile:
                assert any(problem is not None for _, problem in audited(reader))
        reader.close()


def placed(path) -> list[tuple[int, int]]:
    with Files(path.parent).open_read(path.name) as handle:
        return list(places(handle, 0, handle.size()))


def audited(packed) -> list[tuple[str, str | None]]:
    found = []
    try:
        found += packed.audit()
    except CorruptFile as error:
        found.append(("packed-refs", error.reason))
    return found


@pytest.fixture
def damaged(packed, path):
    """A file whose third member of many is damaged; where it begins."""
    packed.rewrite(values())
    parts = members(path)
    parts[2] = parts[2][:100] + bytes([parts[2][100] ^ 1]) + parts[2][101:]
    path.write_bytes(b"".join([*parts, END]))
    return len(parts[0] + parts[1])


def test_a_damaged_member_is_told_and_the_others_are_read(packed, path, damaged):
    with pytest.raises(CorruptFile, match=f"packed-refs: the member at byte {damaged}: "):
        list(packed.items())
    with pytest.raises(CorruptFile, match="the member at byte"):
        packed.find(named(300))
    assert packed.find(named(2000)) == digest(1000) and packed.find(named(2001)) is None
    problems = [(name, problem) for name, problem in packed.audit() if problem is not None]
    assert len(problems) == 1 and problems[0][1].startswith(f"the member at byte {damaged}: ")
    assert sum(1 for _, problem in packed.audit() if problem is None) > COUNT - 120


def test_a_damaged_file_is_never_rewritten(packed, path, damaged):
    before = path.read_bytes()
    with pytest.raises(CorruptFile):
        packed.rewrite({named(1): digest(1)})
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["packed-refs"]


def test_what_is_good_is_salvaged(packed, path, damaged):
    packed.close()
    with Files(path.parent).open_read("packed-refs") as handle:
        saved = [line for line in salvage(handle) if line and not line.startswith(b"#")]
    good = text(values()).splitlines()[1:]
    assert set(saved) < set(good) and len(saved) > COUNT - 120
    path.write_bytes(text(values(50)) + b"garbage")
    with Files(path.parent).open_read("packed-refs") as handle:
        assert list(salvage(handle)) == text(values(50)).splitlines()


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([pack_member(text(values(9)))], "doesn't hold what belongs there"),
        ([pack_member(b"")], "doesn't hold what belongs there"),
        ([pack_member(HEADER)[:-1]], "doesn't fit its checksum"),
        ([pack_member(HEADER), pack_member(b"")], "doesn't hold what belongs there"),
        ([pack_member(HEADER), pack_member(f"{digest(1)} {named(1)}".encode())], "doesn't hold what"),
        ([pack_member(HEADER), pack_member(b"garbage\n")], "not an id and a name"),
        ([pack_member(HEADER), b"garbage"], "not a gzip member"),
        (
            [pack_member(HEADER), *[pack_member(f"{digest(n)} {named(n)}\n".encode()) for n in (2, 1)]],
            "out of order",
        ),
    ],
)
def test_members_of_anything_else_are_refused(packed, path, parts, reason):
    path.write_bytes(b"".join([*parts, END]))
    with pytest.raises(CorruptFile):
        list(packed.items())
    with pytest.raises(CorruptFile):
        packed.rewrite({named(1): digest(1)})
    assert any(reason in (problem or "") for _, problem in audited(packed))


def test_a_file_that_was_cut_is_refused_wherever(packed, path):
    packed.rewrite(values(300))
    data, parts = path.read_bytes(), members(path)
    for size in (len(data) - 1, len(data) - len(END), len(b"".join(parts[:2])), len(parts[0]), 20):
        path.write_bytes(data[:size])
        for read in (lambda: packed.find(named(0)), lambda: list(packed.items()), lambda: list(packed.audit())):
            with pytest.raises(CorruptFile, match="cut short"):
                read()


def test_nothing_but_the_header_is_no_ref(packed, path):
    path.write_bytes(pack_member(HEADER) + END)
    assert list(packed.items()) == [] and packed.find(named(1)) is None and list(packed.audit()) == []
    packed.rewrite({named(1): digest(1)})
    assert path.read_bytes() == text({named(1): digest(1)})


def test_a_lookup_and_a_listing_hold_little_in_memory(packed):
    packed.rewrite({named(n): digest(n) for n in range(40_000)})
    for n in range(0, 40_000, 4001):
        packed.find(named(n))
    tracemalloc.start()
    try:
        assert packed.find(named(31_415)) == digest(31_415)
        assert sum(1 for _ in packed.items()) == 40_000
        packed.rewrite({named(1): None})
        assert tracemalloc.get_traced_memory()[1] < 700_000  # 3.7 MB of lines
    finally:
        tracemalloc.stop()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("says", [1, 2, 20, 0xFFFF])
def test_a_member_that_says_another_size_sends_nobody_round_in_circles(packed, path, tmp_path, says):
    packed.rewrite(values())
    parts = members(path)
    for number in range(1, len(parts)):
        part = parts[number]
        wrong = part[: len(MAGIC)] + (says - 1).to_bytes(2, "little") + part[len(MAGIC) + 2 :]
        path.write_bytes(b"".join([*parts[:number], wrong, *parts[number + 1 :], END]))
        with contextlib.closing(PackedRefs(Files(tmp_path))) as damaged:
            for n in range(0, 2 * COUNT, 37):
                with contextlib.suppress(CorruptFile):
                    assert damaged.find(named(n)) == values().get(named(n))
            with pytest.raises(CorruptFile):
                list(damaged.items())
