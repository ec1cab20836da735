"""What people write to name a node."""

from __future__ import annotations

import itertools

import pytest

from objstore.chain import node_ids
from objstore.revisions import MAX_CANDIDATES
from refs.errors import AmbiguousRevision, ObjectMissing, UnknownRevision
from refs.ids import ROOT
from tests.storetools import init_quiet, say, talk


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with init_quiet(tmp_path_factory.mktemp("revisions") / "store") as made:
        made.commit("main", talk("a", "b"))
        made.commit("main", talk("c"))
        made.commit("trip/deep", talk("x", "y"))
        made.tag("v1", made.resolve("main~1"))
        made.tag("main", made.resolve("trip/deep"))
        made.commit("tags/odd", talk("odd"))
        made.describe("main", title="About")
        made.reset("main", made.resolve("main~1"))
        made.reset("main", made.resolve("main@{1}"))
        yield made


A, B, C = node_ids(talk("a", "b", "c"))
X, Y = node_ids(talk("x", "y"))
(ODD,) = node_ids(talk("odd"))


@pytest.mark.parametrize(
    ("revision", "node"),
    [
        ("main", C),
        ("refs/conversations/main", C),
        ("conversations/main", C),
        ("HEAD", C),
        ("@", C),
        ("root", ROOT),
        (A, A),
        (A[:8], A),
        (f"{C[:12]}~2", A),
        ("main~0", C),
        ("main~", B),
        ("main~1", B),
        ("main^", B),
        ("main^^", A),
        ("main~1^", A),
        ("main^~1", A),
        ("main~3", ROOT),
        ("root~0", ROOT),
        ("v1", B),
        ("tags/v1", B),
        ("refs/tags/v1", B),
        ("v1~1", A),
        ("tags/main", Y),
        ("trip/deep", Y),
        ("conversations/tags/odd", ODD),
        ("main@{0}", C),
        ("main@{1}", B),
        ("main@{2}", C),
        ("main@{3}", B),
        ("main@{2}~2", A),
        ("HEAD@{1}", B),
        ("@@{1}", B),
        ("@{1}", B),
        ("v1@{0}", B),
        ("tags/v1@{0}", B),
    ],
)
def test_a_revision_names_its_node(store, revision, node):
    assert store.resolve(revision) == node


@pytest.mark.parametrize(
    ("revision", "said"),
    [
        ("nothing", "no conversation"),
        ("", "unknown revision"),
        ("~1", "unknown revision"),
        ("main~4", "only 3 messages"),
        ("root~1", "only 0 messages"),
        ("main~999999999", "only 3"),
        ("main@{4}", "doesn't go back so far"),
        ("nothing@{0}", "doesn't go back so far"),
        ("main~1@{0}", "directly behind"),
        ("main@{0}@{0}", "directly behind"),
        ("abc", "at least 4 digits"),
        ("0000", "no node's id begins so"),
        ("main~x", "unknown revision"),
        ("main~-1", "unknown revision"),
        ("main@{-1}", "unknown revision"),
        ("main@{yesterday}", "unknown revision"),
        ("main@{1", "unknown revision"),
        ("main~9999999999", "unknown revision"),
        ("bad..name", "unknown revision"),
        ("-x", "unknown revision"),
        ("tags/nothing", "unknown revision"),
        ("tags/odd", "unknown revision"),
        ("descriptions/main", "a description is no node"),
        ("refs/descriptions/main", "a description is no node"),
        ("descriptions/main@{0}", "a description is no node"),
        ("main~٣", "unknown revision"),
        ("../../etc/passwd", "unknown revision"),
        ("a/b/../../c", "unknown revision"),
        ("main\n", "unknown revision"),
        ("\0", "unknown revision"),
    ],
)
def test_what_names_no_node_is_unknown_and_says_why(store, revision, said):
    with pytest.raises(UnknownRevision, match=said) as caught:
        store.resolve(revision)
    assert caught.value.revision == revision


def test_a_whole_id_that_isnt_stored_is_missing(store):
    with pytest.raises(ObjectMissing):
        store.resolve("f" * 64)
    with pytest.raises((ObjectMissing, UnknownRevision)):
        store.resolve("f" * 64 + "~1")


def test_an_id_in_capitals_is_no_id(store):
    with pytest.raises(UnknownRevision):
        store.resolve(A.upper())


def test_a_prefix_that_several_nodes_have_lists_them(tmp_path):
    seen: dict[str, list[str]] = {}
    for number in itertools.count():
        (node,) = node_ids(talk(f"{number}"))
        seen.setdefault(node[:4], []).append(node)
        if len(seen[node[:4]]) == 2:
            break
    prefix, nodes = node[:4], seen[node[:4]]
    with init_quiet(tmp_path / "store") as store:
        for each in range(number + 1):
            if node_ids(talk(f"{each}"))[0] in nodes:
                store.save_chain(talk(f"{each}"))
        with pytest.raises(AmbiguousRevision) as caught:
            store.resolve(prefix)
        assert sorted(caught.value.candidates) == sorted(nodes)
        with pytest.raises(AmbiguousRevision):
            store.resolve(f"{prefix}~1")
        for node in nodes:
            assert store.resolve(node[:12]) == node


def test_only_nodes_count_for_a_prefix(tmp_path):
    """A message whose id begins like a node's is no second candidate."""
    with init_quiet(tmp_path / "store") as store:
        head = store.save_chain([say(f"{i}") for i in range(300)])
        for entry in store.walk(head):
            found = {oid for _, oid in store.revisions.objects(entry.id[:4])}
            assert entry.id in found
            nodes = {each.id for each in store.walk(head) if each.id.startswith(entry.id[:4])}
            if len(nodes) == 1:
                assert store.resolve(entry.id[:4]) == entry.id
    assert MAX_CANDIDATES == 20


def test_a_conversation_comes_before_a_tag_of_its_name_and_neither_hides_an_id(store):
    assert store.resolve("main") == C
    assert store.resolve("tags/main") == Y
