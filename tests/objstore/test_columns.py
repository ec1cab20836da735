"""Columns say what lists would say, in memory and in a file, and leave nothing behind."""

import errno
import gc
import os
import random

import pytest

from objstore import columns, heads
from objstore.columns import Column, Scratch, using
from objstore.compact import Keyed, Lists, Marks, Texts
from objstore.heads import Heads
from refs.errors import StorageFailure


@pytest.fixture(params=["in memory", "in a file"])
def folder(request, tmp_path, monkeypatch):
    if request.param == "in a file":
        monkeypatch.setattr(columns, "SPILL_BYTES", 0)
    with using(Scratch(str(tmp_path))):
        yield tmp_path


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(("code", "most"), [("i", 1 << 31), ("q", 1 << 63), ("B", 1 << 8)])
def test_a_column_is_a_list_of_numbers(folder, code, most):
    chance = random.Random(1)
    made, plain = Column(code, 3), [0, 0, 0]
    for _ in range(10_000):
        number = chance.randrange(most)
        made.append(number)
        plain.append(number)
        if chance.random() < 0.2:
            place = chance.randrange(len(plain))
            made[place] = plain[place] = chance.randrange(most)
        if chance.random() < 0.01:
            columns.scratch().give_back()
    made.extend_to(len(plain) + 500)
    plain += [0] * 500
    assert len(made) == len(plain) and list(made) == plain and list(made.backwards()) == plain[::-1]
    assert [made[place] for place in (0, 77, len(plain) - 1)] == [plain[place] for place in (0, 77, -1)]


def test_bytes_go_in_and_come_out(folder):
    made, plain = Column("B"), b""
    for i in range(3000):
        raw = bytes([i % 256]) * (i % 7)
        made.add_bytes(raw)
        plain += raw
    made.put_bytes(5, b"hello")
    assert made.bytes(0, len(made)) == plain[:5] + b"hello" + plain[10:]


def test_the_file_has_no_name_and_goes_with_the_column(folder):
    before = open_files()
    made = Column("q", 100_000)
    assert os.listdir(folder) == []
    made[99_999] = 7
    assert made[99_999] == 7
    del made
    gc.collect()
    assert open_files() == before


def test_a_long_column_is_no_part_of_the_process_once_its_pages_are_given_back(tmp_path):
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    with using(Scratch(str(tmp_path))):
        before = resident()
        made = Column("q", 4 << 20)
        for place in range(0, len(made), 512):
            made[place] = place
        touched = resident()
        columns.scratch().give_back()
        assert touched - before > 30 << 20
        assert resident() - before < 4 << 20
        assert all(made[place] == place for place in range(0, len(made), 512))


def test_where_the_folder_cannot_be_written_the_systems_own_is_used(tmp_path):
    with using(Scratch(str(tmp_path / "not there"))):
        assert list(Column("q", 100_000)) == [0] * 100_000


def test_a_full_disk_is_told_and_ends_nothing_else(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with using(Scratch(str(tmp_path))):
        made = Column("i", 10)
        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(StorageFailure, match="No space left"):
            made.extend_to(1_000_000)
        assert list(made) == [0] * 10


def test_tables_say_what_dicts_would_say(folder):
    chance = random.Random(2)
    texts, keyed, marks, lists = Texts(), Keyed(), Marks(), Lists()
    numbers, marked, listed = {}, set(), {}
    for _ in range(4000):
        text = f"{chance.randrange(2000)}\ud800"
        assert texts.number(text) == numbers.setdefault(text, len(numbers))
        if keyed.find(text) is None:
            keyed.add(text, numbers[text])
        number = chance.randrange(300)
        if chance.random() < 0.5:
            marks.add(number)
            marked.add(number)
        else:
            marks.discard(number)
            marked.discard(number)
        lists.add(number, numbers[text])
        listed.setdefault(number, []).append(numbers[text])
    assert [texts[number] for number in range(len(texts))] == list(numbers)
    assert {text: keyed.find(text) for text in numbers} == numbers
    assert list(marks) == sorted(marked) and len(marks) == len(marked)
    assert {key: lists.get(key) for key in listed} == listed and lists.get(999) == []


def test_heads_are_found_by_the_name_of_their_conversation(folder, monkeypatch):
    monkeypatch.setattr(heads, "FEW", 40)
    chance = random.Random(3)
    made, plain = Heads(), {}
    for _ in range(500):
        name = f"a/{chance.randrange(60)}"
        if chance.random() < 0.4:
            name += f".at-{chance.randrange(16):010x}"
        head = f"{chance.getrandbits(256):064x}"
        made.keep(name, head)
        plain[name] = head
        family = name.partition(".at-")[0]
        assert made.family_of(family) == {
            each: plain[each] for each in plain if each == family or each.startswith(f"{family}.at-")
        }
        assert name in made and "b" not in made
