import json
import time

import pytest

import cli.maintenance
from cli.ages import moment
from cli.sizes import size
from objstore.message import Message
from objstore.records import Call
from objstore.store import Store


def said(*words):
    return [{"role": "user", "content": word} for word in words]


@pytest.fixture
def talk(dag):
    dag("commit", dag.write("a.json", said("one", "two", "three")))
    return dag


# -- ages -----------------------------------------------------------------------------------------

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("90m", NOW - 5400),
        ("12h", NOW - 43_200),
        ("30d", NOW - 2_592_000),
        ("2w", NOW - 1_209_600),
        (" 2w ", NOW - 1_209_600),
        ("never", None),
        ("1970-01-02T00:00:00Z", 86_400.0),
        ("1970-01-02T01:00:00+01:00", 86_400.0),
    ],
)
def test_an_age_is_a_moment(text, expected):
    assert moment(text, NOW) == expected


def test_a_date_is_the_beginning_of_that_day_here():
    assert time.localtime(moment("2026-01-31", NOW))[:5] == (2026, 1, 31, 0, 0)


@pytest.mark.parametrize(
    "text", ["", "2", "w", "-2w", "2 weeks", "1.5d", "2y", "tomorrow", "9999999d", "2026-02-30", "٣d"]
)
def test_what_is_no_age_is_refused(text):
    with pytest.raises(ValueError, match="no age"):
        moment(text, NOW)


def test_sizes_are_shown_in_binary_units():
    assert [size(each) for each in (0, 1023, 1024, 1536, -2048, 5 << 30)] == [
        "0 bytes",
        "1,023 bytes",
        "1.0 KiB",
        "1.5 KiB",
        "-2.0 KiB",
        "5.0 GiB",
    ]


# -- gc -------------------------------------------------------------------------------------------


def test_gc_keeps_what_was_deleted_lately_and_prunes_it_on_demand(talk):
    talk("delete", "main")
    assert "delete: nothing" in talk("gc").out
    ran = talk("gc", "--prune=now", "--expire-reflog=now")
    assert "delete: 3 messages, 3 nodes, 1 note" in ran.out
    assert "--prune=now" in ran.err


def test_gc_dry_run_tells_and_does_nothing(talk):
    before = talk.snapshot()
    expected = talk("gc", "--dry-run", "--json").json()
    assert expected["dry_run"] is True and expected["kept"]["message"] == 3
    assert talk.snapshot() == before
    assert "would keep: 3 messages" in talk("gc", "--dry-run").out
    done = talk("gc", "--json").json()
    assert {**done, "dry_run": True} == expected


def test_gc_refuses_what_is_no_age(talk):
    assert "no age" in talk("gc", "--prune=soon", code=2).err


def test_gc_never_prunes_with_never(talk):
    talk("delete", "main")
    ran = talk("gc", "--prune=never", "--expire-reflog=now", "--json").json()
    assert ran["young"]["message"] == 3 and ran["pruned"]["message"] == 0


def test_gc_expires_calls_on_demand(talk):
    with Store.open(talk.folder / ".dag") as store:
        node = store.save_chain([Message.of("user", "asked")])
        store.record(Call(call="0" * 26, model="m", head_input=node, started_at="2020-01-01T00:00:00.000Z"))
    assert talk("gc", "--prune=now", "--json").json()["kept"]["call"] == 1
    assert talk("gc", "--prune=now", "--expire-calls=30d", "--json").json()["pruned"]["call"] == 1


# -- pack, fsck, stats ----------------------------------------------------------------------------


def test_pack_packs_loose_objects(talk):
    assert talk("pack").out == "packed 7 objects\n"
    assert talk("pack", "--json").json()["packed"] == 0
    assert talk("cat").out


def test_fsck_says_clean_and_exits_with_0(talk):
    for level in ("quick", "connectivity", "full"):
        assert talk("fsck", "--level", level).out == "clean\n"
    assert talk("fsck", "--json").out == ""


def damage(talk):
    (path,) = (talk.folder / ".dag" / "objects" / "pack").glob("*.pack")
    data = bytearray(path.read_bytes())
    data[30] ^= 1
    path.write_bytes(data)


def test_fsck_names_damage_and_exits_with_4(talk):
    talk("pack")
    damage(talk)
    assert "bad-pack-name" in talk("fsck", "--level=quick", code=4).out
    found = talk("fsck", "--json", code=4).json()
    assert {each["finding"] for each in found} >= {"bad-frame", "dangling-ref"}
    assert all(each.keys() == {"schema", "finding", "severity", "place", "text"} for each in found)


def test_fsck_lists_warnings_and_exits_with_0(talk):
    (talk.folder / ".dag" / "stray").write_text("x")
    (talk.folder / ".dag" / "stray").chmod(0o600)
    ran = talk("fsck")
    assert "warning stray-file" in ran.out and ran.out.endswith("no errors\n")


def test_fsck_repair_says_what_it_did_and_what_remains(talk):
    ref = talk.folder / ".dag" / "refs" / "conversations" / "main"
    ref.write_text("damaged\n")
    ran = talk("fsck", "--repair")
    assert "its last value in the reflog" in ran.out and ran.out.endswith("clean\n")
    assert talk("cat").out
    talk("pack")
    damage(talk)
    assert "no good copy" in talk("fsck", "--repair", code=4).out


def test_fsck_looks_at_a_store_that_does_not_open(talk):
    (talk.folder / ".dag" / "config").write_text("format = ")
    ran = talk("fsck", code=4)
    assert "bad-config" in ran.out


def test_stats_for_people_and_programs(talk):
    talk("fork", "HEAD", "other")
    ran = talk("stats")
    assert "3 messages" in ran.out and "2 conversations of 6 messages" in ran.out
    stats = talk("stats", "--json").json()
    assert stats["objects"]["message"] == 3 and stats["saved"]["messages"] == 3
    assert [each["name"] for each in stats["largest"]] == ["other", "main"]


def test_stats_shows_no_control_characters_of_names(talk):
    assert "\x1b" not in talk("stats").out


# -- the light run after a commit -----------------------------------------------------------------


def test_many_loose_objects_are_packed_after_a_commit_and_it_is_said(talk, monkeypatch):
    monkeypatch.setattr(cli.maintenance, "LOOSE_OBJECTS", 10)
    assert talk("commit", "-m", "few").err == ""
    ran = talk("commit", "-m", "many")
    assert "loose objects: packing them" in ran.err and "packed" in ran.err
    assert talk("stats", "--json").json()["loose_objects"] == 0
    assert json.loads(talk("commit", "-m", "few again", "--json").out)["new"] == 1


def test_many_small_packs_are_put_together_after_a_commit(talk, monkeypatch):
    monkeypatch.setattr(cli.maintenance, "SMALL_PACKS", 2)
    for i in range(3):
        ran = talk("commit", "-m", f"{i}")
        talk("pack")
    assert ran.err == ""
    assert "3 small packs: packing them" in talk("commit", "-m", "one more").err
    assert talk("stats", "--json").json()["packs"] == 1


def test_a_commit_stands_even_if_packing_after_it_fails(talk, monkeypatch):
    monkeypatch.setattr(cli.maintenance, "LOOSE_OBJECTS", 1)
    (talk.folder / ".dag" / "refs" / "conversations" / "broken").write_text("x")
    ran = talk("commit", "-m", "words")
    assert "packing failed, nothing is lost" in ran.err
    assert "words" in talk("cat").out
