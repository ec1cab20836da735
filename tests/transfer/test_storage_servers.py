"""The program and real servers of object storage: clone, push, pull, races, a server that is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from objstore.store import Store
from objstore.transfer.connect import RETRY_SECONDS
from objstore.transfer.report import Report
from refs.errors import RemoteFailure, UnsafeRemote
from tests.storetools import indexed, say, talk
from tests.transfer.parties import Party, object_place
from tests.transfer.servers import START_SECONDS, STEADY_ANSWERS, rclone, seaweed

stores = pytest.importorskip("obstore.store", reason="object storage needs the extra 'remote'")

PUSHERS = 16


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = seaweed(tmp_path_factory.mktemp("seaweed"), "team")
    made.start()
    yield made
    made.stop()


@pytest.fixture
def url(request):
    return f"s3://team/{request.node.name}"


@pytest.fixture
def place(tmp_path, request, server):
    """The bucket as the library sees it."""
    store = stores.S3Store(
        "team",
        prefix=request.node.name,
        endpoint=f"http://127.0.0.1:{server.port}",
        access_key_id="test",
        secret_access_key="testsecret",
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True, "timeout": "10s"},
        # As the program has it: a server that has just begun may answer with an error of its own.
        retry_config={"max_retries": 5, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
    )
    made = object_place(tmp_path, store, f"s3://team/{request.node.name}")
    yield made
    made.close()


@pytest.fixture
def dag(tmp_path, server):
    """Runs the program in a process of its own, in the store of somebody."""

    def run(who: str, *args: object, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / who
        folder.mkdir(exist_ok=True)
        environ = {**server.environ, "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        command = [sys.executable, "-c", "from cli.main import main; main()", *map(str, args)]
        ran = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
        assert code is None or ran.returncode == code, (args, ran.returncode, ran.stdout, ran.stderr)
        return ran

    return run


def lines(ran: subprocess.CompletedProcess[str]) -> list[str]:
    return ran.stdout.splitlines()


def test_a_team_clones_pushes_and_pulls_through_a_bucket(dag, url):
    dag("ann", "init")
    dag("ann", "commit", "-m", "hello")
    dag("ann", "remote", "add", "origin", url)
    dag("ann", "push")
    dag("ben", "clone", url)
    dag("ben", "commit", "-m", "hi", "--role", "assistant")
    dag("ben", "push", "--all")
    pulled = json.loads(dag("ann", "pull", "--json").stdout)
    assert [(each["ref"], each["how"]) for each in pulled["moved"] if "remotes" not in each["ref"]] == [
        ("refs/conversations/main", "fast-forward")
    ]
    assert dag("ann", "rev-parse", "main").stdout == dag("ben", "rev-parse", "main").stdout
    assert lines(dag("ann", "pull")) == ["everything is up to date"]
    assert lines(dag("ben", "push", "--all")) == ["everything is up to date"]


def test_of_many_pushers_to_one_ref_one_wins_and_the_others_lose_nothing(place):
    first = place.party("first")
    first.store.commit("trip", talk("hello"))
    first.push("trip")
    parties = [place.party(f"p{i}") for i in range(PUSHERS)]
    together = threading.Barrier(PUSHERS)

    def race(party: Party) -> Report:
        party.store.commit("trip", [say(f"from {party.store.path.name}")])
        together.wait()
        return party.push("trip")

    with ThreadPoolExecutor(PUSHERS) as pool:
        list(pool.map(Party.pull, parties))
        reports = list(pool.map(race, parties))
    winners = [party for party, report in zip(parties, reports, strict=True) if report.moved]
    assert len(winners) == 1
    losers = [report for report in reports if not report.moved]
    # Whoever comes only when the winner is done is told what is there, and not that it has just been moved.
    reasons = [report.refused[0].reason for report in losers]
    assert all("somebody else moved it" in reason or "fetch first" in reason for reason in reasons)
    head = winners[0].store.head("trip")
    assert first.heads() == {"refs/conversations/trip": head}

    def catch_up(party: Party) -> None:
        party.pull(fork=True)
        assert party.store.head("trip.origin") == head
        mine = f"trip-of-{party.store.path.name}"
        party.store.rename("trip", mine)
        assert party.push(mine).refused == []

    with ThreadPoolExecutor(PUSHERS) as pool:
        list(pool.map(catch_up, [party for party in parties if party not in winners]))
    first.pull()
    assert len(list(first.store.conversations())) == PUSHERS
    assert len(first.store.children(first.store.resolve("trip~1"))) == PUSHERS


def test_a_server_that_ignores_conditions_is_refused_when_it_is_added(dag, tmp_path):
    (tmp_path / "rclone").mkdir()
    careless = rclone(tmp_path / "rclone", "bucket")
    careless.start()
    try:
        options = {
            "endpoint": f"http://127.0.0.1:{careless.port}",
            "region": "us-east-1",
            "access_key_id": "test",
            "secret_access_key": "testsecret",
        }
        dag("ann", "init")
        with Store.open(tmp_path / "ann" / ".dag") as store:
            with pytest.raises(UnsafeRemote, match="overwrites"):
                store.add_remote("origin", "s3://bucket/prefix", options=options)
            assert store.remotes() == {}
    finally:
        careless.stop()


def wait_for_what_is_stored(party: Party) -> None:
    """A server that was killed answers before the part of it that holds the bytes has come back."""
    deadline, well = time.monotonic() + START_SECONDS, 0
    while well < STEADY_ANSWERS:
        try:
            with party.remote() as remote:
                well += len(dict(remote.refs())) > 0
        except RemoteFailure:
            well = 0
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def test_a_server_killed_and_started_again_has_all_that_was_acknowledged(place, server):
    ann, ben = place.party("ann"), place.party("ben")
    for number in range(2):
        ann.store.commit("trip", talk(*(f"{number} {i}" for i in range(50))))
        ann.push("trip")
        server.kill()
        ann.store.commit("trip", talk(f"while it is away {number}"))
        with pytest.raises(RemoteFailure):
            ann.push("trip")
        with pytest.raises(RemoteFailure):
            ben.pull()
        server.start()
        wait_for_what_is_stored(ann)
        ann.push("trip")
        ben.pull()
        assert indexed(ben.store) == indexed(ann.store)
        assert ben.store.head("trip") == ann.store.head("trip")
