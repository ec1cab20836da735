"""The log of moves: written at its end, read from its end, whole after a crash."""

import contextlib
import gzip
import tracemalloc
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refs.errors import CorruptFile
from refs.files import Files
from refs.ids import Oid
from refs.logupkeep import SMALL_BYTES
from refs.members import END, pack_member, places
from refs.names import conversation_ref
from refs.reflog import MAX_LINE_BYTES, MAX_REASON_CHARS, Reflog, ReflogEntry, line, parse_line

TRIP = conversation_ref("trip")
OTHER = conversation_ref("other")


def oid(n: int) -> Oid:
    return Oid(f"{n:064x}")


def entry(n: int, ref=TRIP, reason: str = "commit") -> ReflogEntry:
    """The n-th move, from n to n + 1; a thousand of them span a second."""
    return ReflogEntry(
        f"2026-01-02T03:{n // 1000:02}:04.{n % 1000:03}Z", ref, oid(n) if n else None, oid(n + 1), reason
    )


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


@pytest.fixture
def log(files):
    return Reflog(files)


def test_a_line_says_when_from_where_to_where_which_and_why():
    move = ReflogEntry("2026-01-02T03:04:05.678Z", TRIP, None, oid(1), "commit: two words")
    written = line(move)
    assert written == f"2026-01-02T03:04:05.678Z - {oid(1)} {TRIP} commit: two words\n".encode()
    assert parse_line(written) == move
    assert parse_line(written.replace(b" - ", b" %b " % (b"0" * 64))) == move


@given(st.text(max_size=MAX_REASON_CHARS))
def test_any_reason_comes_back_and_stays_in_one_line(reason):
    written = line(entry(1, reason=reason))
    assert written.count(b"\n") == 1
    assert not any(byte < 32 for byte in written[:-1])
    assert parse_line(written).reason == reason


def test_a_long_reason_is_cut_and_writing_it_again_changes_nothing():
    written = line(entry(1, reason="\x00" * 10_000))
    assert len(written) < MAX_LINE_BYTES
    again = parse_line(written)
    assert len(again.reason) == MAX_REASON_CHARS
    assert again.reason.endswith("…")
    assert line(again) == written


@pytest.mark.parametrize("time", ["", "yesterday", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.678+00:00"])
def test_a_time_of_another_form_is_refused_before_it_is_written(time):
    with pytest.raises(ValueError, match="reflog"):
        line(ReflogEntry(time, TRIP, None, oid(1), ""))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"nonsense\n",
        line(entry(1))[5:],
        line(entry(1)).replace(b"refs/conversations/trip", b"refs/conversations/../x"),
        line(entry(1)).replace(oid(2).encode(), oid(2)[:63].encode()),
        line(entry(1))[:-1] + b"\xff\n",
        line(entry(1)) * 2,
    ],
)
def test_a_damaged_line_is_no_entry(data):
    with pytest.raises(ValueError, match=r"reflog|bad name|utf-8"):
        parse_line(data)


def test_an_empty_log_has_no_entries(log):
    assert list(log.entries()) == []
    assert log.entry(TRIP, 0) is None
    assert log.young("") == set()
    assert log.size() == 0
    assert log.expire("9", keep_last=False) == 0


def test_entries_come_newest_first_over_many_blocks(log):
    moves = [entry(n, reason="x" * (n % 300)) for n in range(3000)]
    log.append(moves)
    assert log.size() > 3 * (1 << 16)
    assert list(log.entries()) == moves[::-1]
    assert log.damaged == 0


@pytest.mark.parametrize("distance", range(-2, 3))
def test_a_newline_at_a_block_border_is_seen_once(log, distance):
    first, second, size = entry(0), entry(1, reason="y"), 1 << 16
    filler = [entry(2, reason="z" * 100)] * ((size - 2000) // len(line(entry(2, reason="z" * 100))))
    rest = size + distance - sum(map(len, map(line, [second, *filler])))
    pad = []
    while rest:  # lines between 200 and 600 bytes that fill what is left
        take = rest if rest < 600 else 300
        pad.append(entry(3, reason="p" * (take - len(line(entry(3, reason=""))))))
        rest -= take
    moves = [first, second, *filler, *pad]
    log.append(moves)
    assert list(log.entries()) == moves[::-1]


def test_entries_of_one_ref_and_the_nth_of_them(log):
    log.append([entry(n, TRIP if n % 2 else OTHER) for n in range(10)])
    assert [move.new for move in log.entries(TRIP)] == [oid(n + 1) for n in (9, 7, 5, 3, 1)]
    assert log.entry(TRIP, 0) == entry(9)
    assert log.entry(TRIP, 2) == entry(5)
    assert log.entry(TRIP, 5) is None


def test_a_ref_whose_name_stands_in_a_reason_is_not_taken_for_it(log):
    log.append([entry(1, OTHER, f"fork of {TRIP} here")])
    assert list(log.entries(TRIP)) == []


def test_what_a_crash_left_of_a_last_line_is_not_read_and_is_cut_by_the_next_append(log, files, tmp_path):
    log.append([entry(0), entry(1)])
    with (tmp_path / "reflog").open("ab") as file:
        file.write(line(entry(2))[:50])
    assert list(log.entries()) == [entry(1), entry(0)]
    log.append([entry(3)])
    assert (tmp_path / "reflog").read_bytes() == b"".join(line(entry(n)) for n in (0, 1, 3))


def test_a_torn_tail_longer_than_any_line_is_cut_whole(files, tmp_path):
    (tmp_path / "reflog").write_bytes(line(entry(0)) + b"\0" * 200_000)
    Reflog(files).append([entry(1)])
    assert (tmp_path / "reflog").read_bytes() == line(entry(0)) + line(entry(1))


def test_a_log_that_is_all_torn_starts_anew(files, tmp_path):
    (tmp_path / "reflog").write_bytes(b"2026-01")
    Reflog(files).append([entry(1)])
    assert (tmp_path / "reflog").read_bytes() == line(entry(1))


def test_damaged_lines_are_skipped_counted_and_hide_nothing(log, tmp_path):
    lines = [line(entry(0)), b"garbage\n", line(entry(1)), b"\n", b"\0" * 300_000 + b"\n", line(entry(2))]
    (tmp_path / "reflog").write_bytes(b"".join(lines))
    assert list(log.entries()) == [entry(2), entry(1), entry(0)]
    assert log.damaged == 3
    assert log.young("2026") == {oid(n) for n in (1, 2, 3)}
    assert log.damaged == 3


def test_young_gives_both_ends_of_entries_from_the_moment_on(log):
    log.append([entry(n) for n in range(5)])
    assert set(log.young(entry(3).time)) == {oid(3), oid(4), oid(5)}
    assert log.young("") == {oid(n) for n in range(1, 6)}


def test_a_clock_that_was_set_back_hides_no_young_entry(log):
    log.append([entry(5), entry(1), entry(0)])
    assert set(log.young(entry(5).time)) == {oid(5), oid(6)}


def test_a_deletion_keeps_its_old_end_young(log):
    log.append([ReflogEntry(entry(7).time, TRIP, oid(7), None, "delete")])
    assert log.young("") == {oid(7)}


@pytest.mark.parametrize("there", range(6))
def test_a_replay_adds_only_what_is_missing_however_often_it_runs(log, there):
    before, replayed = [entry(0), entry(1)], [entry(n) for n in range(2, 7)]
    log.append(before + replayed[:there])
    for _ in range(3):
        log.append_missing(replayed)
        assert list(log.entries()) == (before + replayed)[::-1]


def test_a_replay_after_a_torn_line_writes_it_whole(log, tmp_path):
    moves = [entry(n) for n in range(4)]
    log.append(moves)
    data = (tmp_path / "reflog").read_bytes()
    for size in range(0, len(data), 37):
        (tmp_path / "reflog").write_bytes(data[:size])
        log.append_missing(moves)
        assert (tmp_path / "reflog").read_bytes() == data


def test_a_replay_into_no_log_makes_it(log):
    log.append_missing([entry(1)])
    assert list(log.entries()) == [entry(1)]


def test_expire_drops_the_older_and_the_damaged(log, tmp_path):
    log.append([entry(n) for n in range(5)])
    with (tmp_path / "reflog").open("ab") as file:
        file.write(b"garbage\n")
    assert log.expire(entry(3).time, keep_last=False) == 4
    assert (tmp_path / "reflog").read_bytes() == line(entry(3)) + line(entry(4))
    inode = (tmp_path / "reflog").stat().st_ino
    assert log.expire(entry(3).time, keep_last=False) == 0
    assert (tmp_path / "reflog").stat().st_ino == inode


def test_expire_can_spare_the_newest_entry_of_each_ref(log):
    log.append([entry(0, OTHER), entry(1), entry(2), entry(3, OTHER)])
    assert log.expire("9", keep_last=True) == 2
    assert list(log.entries()) == [entry(3, OTHER), entry(2)]


def test_an_append_notices_that_another_process_replaced_the_log(files):
    ours, theirs = Reflog(files), Reflog(files)
    ours.append([entry(0), entry(1)])
    theirs.expire(entry(1).time, keep_last=False)
    ours.append([entry(2)])
    theirs.append([entry(3)])
    ours.append([entry(4)])
    assert list(ours.entries()) == [entry(n) for n in (4, 3, 2, 1)]


def test_a_reading_that_has_begun_survives_expire(log):
    log.append([entry(n) for n in range(1000)])
    reading = log.entries()
    assert next(reading) == entry(999)
    log.expire("9", keep_last=False)
    assert len(list(reading)) == 999


def test_sync_needs_no_log(log):
    log.sync()
    log.append([entry(0)])
    log.sync()
    log.close()
    log.append([entry(1)])
    assert len(list(log.entries())) == 2


# -- the archive ----------------------------------------------------------------------------------


def many(start: int, end: int, ref=TRIP) -> list[ReflogEntry]:
    """Moves with ids that don't compress."""
    return [
        ReflogEntry(entry(n).time, ref, Oid(digest(n)), Oid(digest(n + 1)), "commit") for n in range(start, end)
    ]


def digest(n: int) -> str:
    return sha256(str(n).encode()).hexdigest()


def archive(tmp_path) -> Path:
    (path,) = tmp_path.glob("reflog-*.gz")
    return path


def archived(log, count: int = 2000) -> list[ReflogEntry]:
    """A log of which all but two moves stand in its archive."""
    moves = many(0, count + 2)
    log.append(moves[:count])
    assert log.compact()
    log.append(moves[count:])
    return moves


def members(path) -> list[bytes]:
    """All but the empty one at the end."""
    with Files(path.parent).open_read(path.name) as handle:
        *found, last = [handle.read_at(at, size) for at, size in places(handle, 0, handle.size())]
    assert last == END
    return found


def test_older_moves_go_into_an_archive_that_zcat_reads(log, tmp_path):
    moves = archived(log)
    name, _, rest = (tmp_path / "reflog").read_bytes().partition(b"\n")
    assert name == f"# older moves: zcat {archive(tmp_path).name}".encode()
    assert rest == b"".join(map(line, moves[2000:]))
    data = archive(tmp_path).read_bytes()
    assert gzip.decompress(data) == b"".join(map(line, moves[:2000]))
    assert archive(tmp_path).name == f"reflog-{sha256(data).hexdigest()[:32]}.gz"
    assert len(data) < 2000 * 55 and all(
        len(gzip.decompress(each)) <= 65536 for each in members(archive(tmp_path))
    )


def test_what_is_archived_is_read_as_before(log):
    moves = archived(log)
    assert list(log.entries()) == moves[::-1]
    assert log.damaged == 0
    assert [log.entry(TRIP, n) for n in (0, 1, 2, 3, 2001, 2002)] == [
        *(moves[-n] for n in (1, 2, 3, 4, 2002)),
        None,
    ]
    assert list(log.entries(OTHER)) == []
    assert set(log.young(moves[0].time)) == {Oid(digest(n)) for n in range(2003)}
    assert list(log.archive_problems()) == [] and log.strays() == []


def test_few_moves_stay_plain(log, tmp_path):
    log.append(many(0, 40))
    assert log.size() < SMALL_BYTES
    before = (tmp_path / "reflog").stat()
    assert not log.compact()
    assert (tmp_path / "reflog").stat().st_ino == before.st_ino
    assert not list(tmp_path.glob("*.gz"))


def test_an_empty_log_needs_no_archive(log, tmp_path):
    assert not log.compact() and log.strays() == [] and log.sweep() == 0
    assert log.mend(pytest.fail) is None
    assert list(tmp_path.iterdir()) == []


def test_later_moves_join_the_archive_and_full_members_are_taken_as_they_are(log, tmp_path):
    moves = archived(log)
    old = members(archive(tmp_path))
    assert len(old) > 5
    log.append(many(2002, 2100))
    assert log.compact()
    new = members(archive(tmp_path))
    assert new[: len(old) - 1] == old[:-1]
    assert list(log.entries()) == [*moves, *many(2002, 2100)][::-1]
    assert not log.compact()


def test_many_small_additions_make_no_small_members(log, tmp_path):
    for n in range(0, 2000, 50):
        log.append(many(n, n + 50))
        assert log.compact()
    assert list(log.entries()) == many(0, 2000)[::-1]
    assert len(members(archive(tmp_path))) <= 15


def test_damaged_lines_do_not_get_into_the_archive(log, tmp_path):
    log.append(many(0, 30))
    with (tmp_path / "reflog").open("ab") as file:
        file.write(b"garbage\n" + b"x" * 200_000 + b"\n\n")
    log.append(many(30, 60))
    assert log.compact()
    assert list(log.entries()) == many(0, 60)[::-1]
    assert log.damaged == 0


def test_expire_drops_lines_out_of_the_archive(log, tmp_path):
    moves = archived(log)
    old = members(archive(tmp_path))
    assert log.expire(moves[500].time, keep_last=True) == 500
    assert list(log.entries()) == moves[500:][::-1]
    new = members(archive(tmp_path))
    assert len(set(new) & set(old)) >= 3  # what loses nothing is taken as it is
    assert log.expire(moves[500].time, keep_last=True) == 0


def test_expire_spares_the_newest_of_each_ref_wherever_it_stands(log):
    log.append([*many(0, 1, OTHER), *many(1, 1000)])
    assert log.compact()
    assert log.expire("9", keep_last=True) == 998
    assert list(log.entries()) == [*many(999, 1000), *many(0, 1, OTHER)]


def test_when_little_is_left_it_is_plain_again(log, tmp_path):
    moves = archived(log)
    assert log.expire(moves[1990].time, keep_last=False) == 1990
    assert (tmp_path / "reflog").read_bytes() == b"".join(map(line, moves[1990:]))
    assert not list(tmp_path.glob("*.gz"))
    assert log.expire("9", keep_last=False) == 12
    assert list(log.entries()) == [] and (tmp_path / "reflog").read_bytes() == b""


def test_a_replay_behind_an_archive_adds_only_what_is_missing(log, tmp_path):
    moves = archived(log, 100)
    whole = (tmp_path / "reflog").read_bytes()
    start = whole.index(b"\n") + 1
    for size in range(start, len(whole), 29):
        (tmp_path / "reflog").write_bytes(whole[:size])
        log.append_missing(moves[100:])
        assert (tmp_path / "reflog").read_bytes() == whole
    (tmp_path / "reflog").write_bytes(whole[:start] + b"\0" * 500)
    log.append_missing(moves[100:])
    assert list(log.entries()) == moves[::-1]


def test_a_torn_line_behind_an_archive_is_cut_by_the_next_append(log, files, tmp_path):
    archived(log, 100)
    whole = (tmp_path / "reflog").read_bytes()
    first = whole[: whole.index(b"\n") + 1]
    (tmp_path / "reflog").write_bytes(first + line(entry(7))[:60])
    Reflog(files).append([entry(7)])
    assert (tmp_path / "reflog").read_bytes() == first + line(entry(7))


def test_an_append_notices_that_the_log_was_archived(files):
    ours, theirs = Reflog(files), Reflog(files)
    ours.append(many(0, 100))
    assert theirs.compact()
    ours.append(many(100, 101))
    assert list(theirs.entries()) == many(0, 101)[::-1]


def test_a_reading_that_has_begun_survives_a_new_archive(log):
    moves = archived(log)
    reading = log.entries()
    assert next(reading) == moves[-1]
    log.append(many(2002, 2100))
    log.compact()
    log.expire("9", keep_last=False)
    assert len(list(reading)) == 2001


class Overtaken(Files):
    """Files in which somebody archives moves whenever an archive is about to be opened."""

    def __init__(self, root, times: int) -> None:
        super().__init__(root)
        self.times = times

    def open_read(self, name):
        if name.endswith(".gz") and self.times:
            self.times -= 1
            other = Reflog(Files(self.root))
            other.append(many(100 * self.times, 100 * self.times + 100, OTHER))
            assert other.compact()
        return super().open_read(name)


@pytest.mark.parametrize("times", [1, 3])
def test_a_reader_whose_archive_is_replaced_looks_again(log, tmp_path, times):
    moves = archived(log)
    reading = Reflog(Overtaken(tmp_path, times))
    assert list(reading.entries(TRIP)) == moves[::-1]
    assert reading.damaged == 0
    assert len(list(tmp_path.glob("*.gz"))) == 1


def test_an_archive_that_a_crash_left_is_swept_and_the_named_one_stays(log, tmp_path):
    moves = archived(log)
    stray = tmp_path / f"reflog-{'0' * 32}.gz"
    stray.write_bytes(b"")
    (tmp_path / "reflog-notes.gz").write_bytes(b"mine")
    assert log.strays() == [stray.name]
    assert log.sweep() == 1
    assert not stray.exists() and (tmp_path / "reflog-notes.gz").exists()
    assert list(log.entries()) == moves[::-1]


def test_a_damaged_member_is_counted_and_hides_nothing_else(log, tmp_path):
    moves = archived(log)
    parts = members(archive(tmp_path))
    at = len(b"".join(parts[:2])) + 1000
    data = bytearray(archive(tmp_path).read_bytes())
    data[at] ^= 4
    archive(tmp_path).write_bytes(data)
    lost = gzip.decompress(parts[2]).count(b"\n")
    seen = list(log.entries())
    assert log.damaged == 1 and len(seen) == len(moves) - lost
    assert seen[0] == moves[-1] and seen[-1] == moves[0]
    assert list(log.archive_problems()) == [
        f"{archive(tmp_path).name} isn't what was written: its name is the hash of other bytes"
    ]


@pytest.mark.parametrize("damage", ["a bit", "a header", "cut", "gone", "the first line"])
def test_nothing_is_dropped_while_a_part_of_the_archive_cannot_be_read(log, tmp_path, damage):
    archived(log)
    log.append(many(3000, 3100))
    path = archive(tmp_path)
    data = bytearray(path.read_bytes())
    if damage == "a bit":
        data[-1000] ^= 1
    elif damage == "a header":
        data[sum(map(len, members(path)[:-1]))] ^= 1
    elif damage == "cut":
        del data[-100:]
    path.write_bytes(data)
    if damage == "gone":
        path.unlink()
    elif damage == "the first line":
        plain = (tmp_path / "reflog").read_bytes()
        (tmp_path / "reflog").write_bytes(plain.replace(b"older", b"0lder"))
    before = {each: each.read_bytes() for each in tmp_path.iterdir()}
    for act in (lambda: list(log.young("")), lambda: log.expire("9", keep_last=True), log.compact):
        with pytest.raises(CorruptFile):
            act()
    assert log.sweep() == 0
    assert {each: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_mending_leaves_out_what_cannot_be_read_and_leaves_plain_lines_where_they_are(log, tmp_path):
    moves = archived(log)
    path = archive(tmp_path)
    parts = members(path)
    parts[1] = parts[1][:500] + b"?" + parts[1][501:]
    path.write_bytes(b"".join(parts))
    kept: list[str] = []
    assert "without 1 parts" in (log.mend(kept.append) or "")
    assert kept == [path.name] and not path.exists()
    assert list(log.archive_problems()) == [] and log.mend(kept.append) is None
    assert (tmp_path / "reflog").read_bytes().endswith(b"".join(map(line, moves[2000:])))
    seen = list(log.entries())
    assert log.damaged == 0 and seen[0] == moves[-1] and seen[-1] == moves[0] and len(seen) > 1500
    assert set(log.young(""))


def test_mending_without_the_archive_keeps_what_is_plain(log, tmp_path):
    moves = archived(log)
    archive(tmp_path).unlink()
    assert list(log.entries()) == moves[2000:][::-1] and log.damaged == 1
    assert log.mend(pytest.fail)
    assert (tmp_path / "reflog").read_bytes() == b"".join(map(line, moves[2000:]))


def test_mending_names_the_archive_again_whose_name_was_damaged(log, tmp_path):
    moves = archived(log)
    plain = (tmp_path / "reflog").read_bytes()
    (tmp_path / "reflog").write_bytes(b"?" + plain[1:])
    assert list(log.archive_problems())
    assert log.mend(pytest.fail)
    assert (tmp_path / "reflog").read_bytes() == plain
    assert list(log.entries()) == moves[::-1]


@pytest.mark.parametrize(
    "name", ["../x.gz", "reflog-../../0123456789abcdef012345.gz", "HEAD", f"reflog-{'A' * 32}.gz"]
)
def test_no_other_file_is_taken_for_an_archive(log, tmp_path, name):
    (tmp_path / "reflog").write_bytes(f"# older moves: zcat {name}\n".encode() + line(entry(0)))
    (tmp_path / "HEAD").write_bytes(pack_member(line(entry(1))))
    assert list(log.entries()) == [entry(0)]
    assert log.damaged == 1


def test_an_archive_that_is_a_link_is_refused(log, tmp_path):
    archived(log)
    path = archive(tmp_path)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CorruptFile, match="a link"):
        list(log.entries())


def test_members_of_nothing_are_no_lines(log, tmp_path):
    data = pack_member(b"") + pack_member(line(entry(0))) + pack_member(b"")
    name = f"reflog-{sha256(data).hexdigest()[:32]}.gz"
    (tmp_path / name).write_bytes(data)
    (tmp_path / "reflog").write_bytes(f"# older moves: zcat {name}\n".encode())
    assert list(log.entries()) == [entry(0)] and log.damaged == 0
    log.append(many(0, 100))
    assert log.compact()
    assert list(log.entries()) == [*many(0, 100)[::-1], entry(0)]


@pytest.mark.parametrize("part", [b"?", pack_member(b"x" * 65536), pack_member(b"x" * 100)[:-1] + b"?"])
def test_an_archive_of_anything_else_is_refused_under_whatever_name(log, tmp_path, part):
    data = pack_member(line(entry(0))) + part + END
    name = f"reflog-{sha256(data).hexdigest()[:32]}.gz"
    (tmp_path / name).write_bytes(data)
    (tmp_path / "reflog").write_bytes(f"# older moves: zcat {name}\n".encode())
    log.append(many(0, 100))
    assert list(log.entries()) == [*many(0, 100)[::-1], entry(0)]
    assert log.damaged == 1
    before = {each: each.read_bytes() for each in tmp_path.iterdir()}
    with contextlib.suppress(CorruptFile):
        assert log.compact()
        assert list(log.entries()) == [*many(0, 100)[::-1], entry(0)]
        return
    assert {each: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_the_archive_is_read_in_bounded_memory(log, files):
    for n in range(0, 30_000, 3000):
        log.append(many(n, n + 3000))
        log.compact()
    assert len(list(log.entries())) == 30_000
    tracemalloc.start()
    try:
        assert sum(1 for _ in log.entries()) == 30_000
        assert log.expire("0", keep_last=True) == 0
        assert tracemalloc.get_traced_memory()[1] < 1_500_000
        assert log.expire(entry(3000).time, keep_last=True) > 0
        assert tracemalloc.get_traced_memory()[1] < 3_000_000  # 6 MB of lines
    finally:
        tracemalloc.stop()
