"""What is particular to an object storage: answers that are lost, servers that can't, listings that are enough."""

from __future__ import annotations

import pytest

from objstore.store import Store
from objstore.transfer import bucket as requests
from refs.errors import NoSuchRemote, RefChanged, RemoteFailure, UnsafeRemote
from refs.ids import Oid
from tests.storetools import talk
from tests.transfer.parties import object_place

obstore = pytest.importorskip("obstore", reason="object storage needs the extra 'remote'")
REF = "refs/conversations/trip"


@pytest.fixture
def place(tmp_path):
    made = object_place(tmp_path, obstore.store.MemoryStore())
    yield made
    made.close()


def moved(party, expected, new) -> None:
    with party.remote() as remote:
        remote.move(REF, expected, new)


ONE, TWO, THREE = (Oid(digit * 64) for digit in "abc")


def lose_answers(monkeypatch, error: Exception) -> None:
    """Every write that moves a ref is made, and then said to have failed."""
    put = obstore.put

    def lost(store, key, *args, **more):
        done = put(store, key, *args, **more)
        if key.startswith("refs/"):
            raise error
        return done

    monkeypatch.setattr(requests.obstore, "put", lost)


@pytest.mark.parametrize("error", ["PreconditionError", "AlreadyExistsError", "GenericError"])
def test_a_writer_whose_answer_was_lost_knows_its_own_value(place, monkeypatch, error):
    party = place.party("ann")
    moved(party, None, ONE)
    lose_answers(monkeypatch, getattr(obstore.exceptions, error)("lost"))
    moved(party, ONE, TWO)
    moved(party, TWO, None)
    moved(party, None, ONE)
    assert party.heads() == {REF: ONE}


def test_an_answer_that_was_lost_is_no_success_where_another_was_faster(place, monkeypatch):
    ann = place.party("ann")
    moved(ann, None, ONE)
    put = obstore.put

    def faster(store, key, *args, **more):
        if key.startswith("refs/"):
            put(store, key, b'{"op":"another","value":"%s"}' % TWO.encode())
        return put(store, key, *args, **more)

    monkeypatch.setattr(requests.obstore, "put", faster)
    with pytest.raises(RefChanged) as caught:
        moved(ann, ONE, THREE)
    assert caught.value.actual == TWO
    assert ann.heads() == {REF: TWO}


def test_a_ref_moves_only_from_where_it_is_expected(place):
    party = place.party("ann")
    with pytest.raises(RefChanged):
        moved(party, ONE, TWO)
    moved(party, None, ONE)
    for expected in (None, TWO):
        with pytest.raises(RefChanged):
            moved(party, expected, THREE)
    moved(party, ONE, None)
    assert party.heads() == {}
    with pytest.raises(RefChanged):
        moved(party, ONE, TWO)
    moved(party, None, TWO)
    assert party.heads() == {REF: TWO}


def test_refs_that_have_not_changed_are_not_read_again(place, monkeypatch):
    party = place.party("ann")
    for i in range(30):
        party.store.commit(f"c{i}", talk(f"{i}"))
    party.push(everything=True)
    party.heads()
    read, get = [], obstore.get
    monkeypatch.setattr(requests.obstore, "get", lambda store, key: (read.append(key), get(store, key))[1])
    assert len(party.heads()) == 30
    assert [key for key in read if key.startswith("refs/")] == []


def test_a_storage_that_can_not_replace_on_a_condition_is_refused(tmp_path):
    (tmp_path / "local").mkdir()
    place = object_place(tmp_path, obstore.store.LocalStore(tmp_path / "local"))
    with pytest.raises(UnsafeRemote):
        place.party("ann").heads()
    place.close()


def test_an_object_storage_that_is_not_there_fails_with_its_address(tmp_path):
    with Store.init(tmp_path / "store") as store:
        options = {"endpoint": "http://127.0.0.1:9", "region": "us-east-1", "skip_signature": "true"}
        with pytest.raises(RemoteFailure, match="s3://bucket/x"):
            store.merge_from("s3://bucket/x", options={**options, "access_key_id": "a", "secret_access_key": "b"})
        with pytest.raises(NoSuchRemote, match="an address begins with"):
            store.merge_from("https://example.invalid/x")


def test_what_nobody_made_a_store_is_none(place, tmp_path):
    from objstore.transfer.objects import ObjectRemote  # noqa: PLC0415

    party = place.party("ann")
    with pytest.raises(NoSuchRemote):
        ObjectRemote("memory://other", obstore.store.MemoryStore(), party.store.storage)
