"""rev-parse, cat-file, reflog, reindex."""

import hashlib
import json

import pytest

from objstore import AttachmentPart, Kind, Message, Store
from objstore.attachment import Attachment
from tests.cli.conftest import said


@pytest.fixture
def trip(dag):
    dag("commit", dag.write("a.json", said("one", "two", "three")))
    return dag


def test_revisions_of_every_form_are_resolved(trip):
    trip("commit", "-m", "four")
    trip("tag", "v1", "HEAD~1")
    head = trip("rev-parse", "HEAD").out.strip()
    back = trip("rev-parse", "HEAD~1").out.strip()
    forms = ["main", "@", head[:6], head, "refs/conversations/main", "main@{0}", "@{0}"]
    assert trip("rev-parse", *forms).out.split() == [head] * len(forms)
    forms = ["main^", "@~1", "v1", "tags/v1", f"{head[:6]}^", "main@{1}", "@{1}", "HEAD@{1}"]
    assert trip("rev-parse", *forms).out.split() == [back] * len(forms)
    assert trip("rev-parse", "root", "main~4").out.split() == ["root", "root"]


def test_rev_parse_as_json_is_a_line_a_revision(trip):
    head = trip("rev-parse", "HEAD").out.strip()
    assert trip("rev-parse", "@", "--json").json() == {"schema": 1, "revision": "@", "node": head}


@pytest.mark.parametrize(
    ("revision", "reason"),
    [
        ("nowhere", "no conversation, ref or node of that name"),
        ("a/b/c", "no conversation, ref or node of that name"),
        ("../../etc/passwd", "no conversation, ref or node of that name"),
        ("/etc/passwd", "no conversation, ref or node of that name"),
        ("ab/" + "0" * 62, "no conversation, ref or node of that name"),
        ("\x1b]0;evil\x07", "no conversation, ref or node of that name"),
        ("0000dead", "no node's id begins so"),
        ("f" * 64, f"no node {'f' * 64}"),
        ("abc", "at least 4 digits"),
        ("main~99", "there are only 3 messages"),
        ("main@{9}", "doesn't go back so far"),
        ("main~1@{0}", "@{…} stands directly behind the name of a ref"),
    ],
)
def test_unknown_revisions_are_a_clear_line(trip, revision, reason):
    before = trip.snapshot()
    for args in (("rev-parse", revision), ("log", revision), ("cat", revision), ("fork", revision, "new")):
        ran = trip(*args, code=1)
        assert ran.err.startswith("dag: ") and reason in ran.err and "\x1b" not in ran.err
    assert trip.snapshot() == before


def test_an_ambiguous_prefix_lists_the_candidates(dag):
    with Store.open(dag.folder / ".dag") as store:
        ids, prefixes = [], {}
        while not (found := [each for each in prefixes.values() if len(each) > 1]):
            start = len(ids)
            ids.append(store.save_chain([Message.of("user", str(start))]))
            prefixes.setdefault(ids[-1][:4], []).append(ids[-1])
    ran = dag("rev-parse", found[0][0][:4], code=1)
    assert ran.err.startswith(f"dag: ambiguous prefix '{found[0][0][:4]}': ")
    assert all(each in ran.err for each in found[0]) and ran.err.endswith("hint: give more digits\n")


# -- cat-file -------------------------------------------------------------------------------------


def test_cat_file_prints_the_bytes_whose_hash_is_the_id(trip):
    node = trip("rev-parse", "HEAD").out.strip()
    raw = trip("cat-file", node).raw
    assert hashlib.sha256(raw).hexdigest() == node
    message = json.loads(raw)["message"]
    raw = trip("cat-file", message[:12]).raw
    assert hashlib.sha256(raw).hexdigest() == message
    assert trip("cat-file", f"message:{message[:12]}").raw == raw


def test_cat_file_tells_the_kind_and_indents(trip):
    node = trip("rev-parse", "HEAD").out.strip()
    assert trip("cat-file", "-t", "HEAD").out == "node\n"
    made = trip("cat-file", node, "--json").json()
    assert (made["schema"], made["kind"], made["id"], made["value"]["message"][:0]) == (1, "node", node, "")
    assert trip("cat-file", "-p", node).out == json.dumps(made["value"], indent=2) + "\n"


def test_cat_file_reads_every_kind(trip):
    trip("describe", "--title", "Rome")
    with Store.open(trip.folder / ".dag") as store:
        found = {
            kind: next(iter(store.storage.database.ids(kind))) for kind in Kind if kind not in ("call", "payload")
        }
    for kind, oid in found.items():
        assert trip("cat-file", "-t", oid).out == f"{kind}\n"
        assert hashlib.sha256(trip("cat-file", oid).raw).hexdigest() == oid


def test_a_condensed_message_is_printed_as_stored_and_its_payload_by_itself(dag):
    content = bytes(range(256)) * 100
    with Store.open(dag.folder / ".dag") as store:
        store.commit("main", [Message("user", [AttachmentPart(Attachment("a/b", content=content))])])
        message = next(iter(store.storage.database.ids(Kind.MESSAGE)))
    ran = dag("cat-file", message)
    payload = hashlib.sha256(content).hexdigest()
    assert f'"content":{{"payload":"{payload}"}}' in ran.out
    assert (
        ran.err
        == f"dag: message {message[:8]} is printed as it is stored: its attachments are payloads of their own\n"
    )
    assert dag("cat-file", payload).raw == content
    assert dag("cat-file", "-t", payload).out == "payload\n"
    assert "a payload is bytes, not JSON" in dag("cat-file", "-p", payload, code=2).err


def test_cat_file_lists_what_an_ambiguous_prefix_means_with_kinds(trip):
    with Store.open(trip.folder / ".dag") as store:
        known = {}
        for number in range(3000):
            head = store.save_chain([Message.of("user", f"try {number}")])
            message = store.node(head).message
            for kind, oid in (("node", head), ("message", message)):
                other = known.setdefault(oid[:4], (kind, oid))
                if other[0] != kind:
                    break
            else:
                continue
            break
    ran = trip("cat-file", oid[:4], code=1)
    assert f"{kind}:{oid}" in ran.err and f"{other[0]}:{other[1]}" in ran.err
    assert trip("cat-file", "-t", f"{kind}:{oid[:4]}").out == f"{kind}\n"


@pytest.mark.parametrize("oid", ["feed", "cat:feed", "ab/cd", "../" * 3 + "etc/passwd", "0" * 64])
def test_cat_file_of_what_is_not_there_is_a_clear_line(trip, oid):
    ran = trip("cat-file", oid, code=1)
    assert ran.err.startswith("dag: unknown revision") and ran.raw == b""


# -- reflog, reindex ------------------------------------------------------------------------------


def test_reflog_shows_the_moves_newest_first(trip):
    trip("commit", "-m", "four")
    head, back = (each[:8] for each in trip("rev-parse", "HEAD", "HEAD~1").out.split())
    lines = trip("reflog").out.splitlines()
    assert lines[0].startswith(f"{head} main@{{0}} ") and lines[0].endswith(": commit")
    assert lines[1].startswith(f"{back} main@{{1}} ") and len(lines) == 2
    assert len(trip("reflog", "-n", "1").out.splitlines()) == 1


def test_reflog_still_knows_what_was_deleted(trip):
    trip("fork", "HEAD~1", "side")
    node = trip("rev-parse", "side").out.strip()
    trip("delete", "side")
    made = trip("reflog", "side", "--json").json()
    assert [(each["schema"], each["old"], each["new"], each["reason"]) for each in made] == [
        (1, node, None, "delete"),
        (1, None, node, f"fork from {node[:8]}"),
    ]
    assert trip("reflog", "side").out.startswith(f"deleted (was {node[:8]}) side@{{0}} ")
    assert len(trip("reflog", "--all", "--json").json()) == 3
    assert "without a NAME" in trip("reflog", "side", "--all", code=2).err


def test_reindex_changes_nothing_that_can_be_seen(trip):
    before, log = trip.snapshot(), trip("log").out
    ran = trip("reindex")
    assert ran.out == "the index is new: 3 nodes\n"
    assert trip("log").out == log and trip.snapshot() == before


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"no database")])
def test_a_missing_or_damaged_index_is_rebuilt_with_a_line_on_standard_error(trip, damage):
    log = trip("log").out
    for each in (trip.folder / ".dag").glob("index.sqlite-*"):
        each.unlink()
    damage(trip.folder / ".dag" / "index.sqlite")
    ran = trip("log")
    assert ran.out == log
    assert ran.err == "dag: the index is missing or damaged: it is rebuilt from the objects\n"
    assert trip("log").err == ""
