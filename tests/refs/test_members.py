"""Lines in gzip members: read by zcat, hopped over by us, bounded whatever they claim."""

import gzip
import random
import struct
import zlib
from hashlib import sha256

import pytest

from refs.files import Files
from refs.members import (
    END,
    HEAD_BYTES,
    MAGIC,
    MAX_RAW_BYTES,
    MemberWriter,
    find_member,
    member_size,
    pack_member,
    places,
    split_lines,
    unpack_member,
)

LIMIT = 2000


def lines(start: int, end: int) -> list[bytes]:
    return [
        f"{sha256(str(n).encode()).hexdigest()} refs/conversations/t{n:05}\n".encode() for n in range(start, end)
    ]


@pytest.fixture
def sink(tmp_path):
    with Files(tmp_path).create("lines") as handle:
        yield handle


def content(handle) -> bytes:
    return handle.read_at(0, handle.size())


def members(handle) -> list[bytes]:
    """All but the empty one at the end."""
    *found, last = [handle.read_at(at, size) for at, size in places(handle, 0, handle.size())]
    assert last == END
    return found


def write(sink, *parts, head=b"") -> MemberWriter:
    """Lists of lines are added, bytes are members to be copied."""
    writer = MemberWriter(sink, LIMIT, 0, head)
    for part in parts:
        writer.copy(part) if isinstance(part, bytes) else writer.add(part)
    assert writer.finish() is None
    return writer


def damaged_member(raw: bytes, says: int | None = None) -> bytes:
    """A member that is right in all but how much it holds."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = deflate.compress(raw) + deflate.flush()
    tail = struct.pack("<II", zlib.crc32(raw), len(raw) if says is None else says)
    return MAGIC + struct.pack("<H", HEAD_BYTES + len(body) + 7) + body + tail


@pytest.mark.parametrize("size", [0, 1, 65280, MAX_RAW_BYTES])
def test_a_member_comes_back_and_is_gzip(size):
    raw = b"".join(lines(0, 700))[:size]
    member = pack_member(raw)
    assert unpack_member(member) == gzip.decompress(member) == raw
    assert member_size(member[:HEAD_BYTES]) == len(member)


def test_what_does_not_compress_fits_all_the_same():
    raw = random.Random(1).randbytes(65280)
    assert unpack_member(pack_member(raw)) == raw
    with pytest.raises(ValueError, match="too many"):
        pack_member(random.Random(1).randbytes(MAX_RAW_BYTES))
    with pytest.raises(ValueError, match="too many"):
        pack_member(bytes(MAX_RAW_BYTES + 1))


def test_ids_cost_little_more_than_their_bits():
    raw = b"".join(lines(0, 600))
    assert len(pack_member(raw)) < 600 * 37


def test_each_changed_byte_and_each_cut_is_found_or_changes_nothing():
    member = pack_member(b"".join(lines(0, 3)))
    for at in range(len(member)):
        for bit in range(8):
            changed = bytearray(member)
            changed[at] ^= 1 << bit
            try:  # the last bits of deflate's last byte may stand for nothing
                assert unpack_member(bytes(changed)) == unpack_member(member), (at, bit)
            except ValueError:
                continue
        with pytest.raises(ValueError, match=r"member|unpacked|fit"):
            unpack_member(member[:at])
    with pytest.raises(ValueError, match="member"):
        unpack_member(member + b"x")


@pytest.mark.parametrize("says", [None, 0, 65536, 100])
def test_a_member_that_holds_too_much_is_refused_without_unpacking_it_all(says):
    bomb = damaged_member(bytes(40_000_000), says)
    assert len(bomb) < 1 << 16
    with pytest.raises(ValueError, match=r"fit|too much"):
        unpack_member(bomb)
    with pytest.raises(ValueError, match="too much"):
        unpack_member(damaged_member(bytes(MAX_RAW_BYTES + 1)))


def test_lines_are_written_as_members_of_about_the_limit(sink):
    writer = write(sink, lines(0, 500))
    assert gzip.decompress(content(sink)) == b"".join(lines(0, 500))
    assert writer.size == sink.size()
    sizes = [len(unpack_member(each)) for each in members(sink)]
    assert all(LIMIT / 2 <= size < LIMIT * 5 / 4 + 100 for size in sizes)


def test_a_head_has_a_member_of_its_own(sink):
    write(sink, lines(0, 50), head=b"# head\n")
    assert unpack_member(members(sink)[0]) == b"# head\n"
    assert gzip.decompress(content(sink)) == b"# head\n" + b"".join(lines(0, 50))


def test_few_lines_are_given_back_and_nothing_is_written(sink):
    for parts in ([lines(0, 15)], [pack_member(b"".join(lines(n, n + 5))) for n in (0, 5, 10)]):
        writer = MemberWriter(sink, LIMIT, 1500, b"# head\n")
        for part in parts:
            writer.copy(part) if isinstance(part, bytes) else writer.add(part)
        assert writer.finish() == b"".join(lines(0, 15))
        assert sink.size() == 0


def test_full_members_are_taken_as_they_are(sink):
    old = [pack_member(b"".join(lines(n, n + 20))) for n in range(0, 200, 20)]
    write(sink, *old[:5], lines(100, 120), *old[6:])
    made = members(sink)
    assert gzip.decompress(content(sink)) == b"".join(lines(0, 200))
    assert made[:5] == old[:5] and made[-4:] == old[6:]


def test_behind_few_lines_one_member_is_packed_anew_and_the_rest_is_not(sink):
    old = [pack_member(b"".join(lines(n, n + 20))) for n in range(20, 200, 20)]
    write(sink, lines(18, 20), *old)
    made = members(sink)
    assert gzip.decompress(content(sink)) == b"".join(lines(18, 200))
    assert made[-8:] == old[1:] and len(made) <= 10


def test_small_members_become_full_ones(sink):
    write(sink, *[pack_member(each) for each in lines(0, 200)])
    assert gzip.decompress(content(sink)) == b"".join(lines(0, 200))
    assert len(members(sink)) < 200 * 99 / LIMIT * 2


def test_a_stretch_that_is_no_member_is_told_and_the_next_one_found(sink):
    first, second, third = (pack_member(b"".join(lines(n, n + 20))) for n in (0, 20, 40))
    for gap in (b"?", second[1:], b"\x1f\x8b" * 300_000, MAGIC + b"\xff\xff"):
        sink.truncate(0)
        sink.write_at(0, first + gap + third)
        found = list(places(sink, 0, sink.size()))
        assert found[0] == (0, len(first))
        assert sum(size for _, size in found) == sink.size()
        good = []
        for at, size in found:
            try:
                good.append(unpack_member(sink.read_at(at, size)))
            except ValueError:
                continue
        assert good[0] == b"".join(lines(0, 20))
        if not gap.startswith(MAGIC):
            assert good == [b"".join(lines(0, 20)), b"".join(lines(40, 60))]


@pytest.mark.parametrize("shift", range(-17, 3))
def test_a_member_at_a_border_of_what_is_read_at_once_is_found(sink, shift):
    member = pack_member(b"x\n")
    at = (1 << 18) + shift
    sink.write_at(0, b"\x1f" * at + member)
    assert find_member(sink, 0, sink.size()) == at
    assert find_member(sink, at + 1, sink.size()) == sink.size()
    assert find_member(sink, 0, at) == at


def test_lines_end_with_a_newline_only():
    assert split_lines(b"a\r\nb\x0bc\ntorn") == [b"a\r\n", b"b\x0bc\n"]
