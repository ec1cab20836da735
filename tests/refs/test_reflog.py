"""The log of moves: written at its end, read from its end, whole after a crash."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refs.files import Files
from refs.ids import Oid
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
