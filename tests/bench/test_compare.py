"""The comparison measures what it says: every peer gives the same messages back, and every figure is written."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import islice
from pathlib import Path

import pytest

from tests.bench.compare import work
from tests.bench.compare.chat import Chat, text
from tests.bench.compare.corpora import Corpora, gather
from tests.bench.compare.disk import limit, usage
from tests.bench.compare.generated import Writer
from tests.bench.compare.peers import JsonLines, Ours, Peer
from tests.bench.compare.report import seconds, write
from tests.bench.compare.results import OURS, Work
from tests.bench.compare.roster import ROSTER
from tests.bench.compare.run import run
from tests.bench.compare.sizes import TINY
from tests.bench.compare.timing import Sample, Timed, Unable, in_turns

SAMPLES = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(params=list(ROSTER))
def kind(request) -> type[Peer]:
    found = ROSTER[request.param]
    lacks = found.lacks()
    if lacks is not None:
        pytest.skip(f"{lacks} is not installed")
    return found


@pytest.fixture(scope="module")
def chats() -> list[Chat]:
    """Some with tool calls, one with an empty text, and one message that two of them share."""
    writer = Writer()
    made = [*islice(writer.chats("chat"), 4), writer.session("session", 6)]
    return [*made, Chat("odd", [text("user", ""), text("assistant", "ü\0\n"), made[0].messages[0]])]


def appended(peer: Peer, chat: Chat) -> None:
    for at in range(0, len(chat.messages), 2):
        peer.append(chat.name, peer.native(chat.messages[at : at + 2]))


def reopened(peer: Peer) -> Peer:
    peer.close()
    return type(peer)(peer.folder)


def test_turns_come_back_as_they_went_in_before_and_after_gc(kind, chats, tmp_path):
    peer = kind(tmp_path)
    try:
        for chat in chats:
            appended(peer, chat)
    except Unable as reason:
        peer.close()
        pytest.skip(f"{kind.name} {reason}")
    work.verify([peer], chats)
    peer.settle()
    peer = reopened(peer)
    work.verify([peer], chats)
    appended(peer, Chat(chats[0].name, [text("user", "and then?")]))
    work.verify([peer], [Chat(chats[0].name, [*chats[0].messages, text("user", "and then?")])])
    peer.close()


def test_whole_conversations_come_back_as_they_went_in(kind, chats, tmp_path):
    peer = kind(tmp_path)
    try:
        peer.store_all([(chat.name, peer.native(chat.messages)) for chat in chats])
    except Unable as reason:
        peer.close()
        pytest.skip(f"{kind.name} {reason}")
    peer.settle()
    peer = reopened(peer)
    work.verify([peer], chats)
    peer.close()


def test_a_history_sent_again_and_again_is_one_conversation(kind, chats, tmp_path):
    peer, chat = kind(tmp_path), chats[-2]
    try:
        for count in range(2, len(chat.messages) + 1, 2):
            peer.whole(chat.name, peer.native(chat.messages[:count]))
    except Unable as reason:
        peer.close()
        pytest.skip(f"{kind.name} {reason}")
    work.verify([peer], [chat])
    peer.close()


def test_a_peer_that_loses_a_message_is_found_out(chats, tmp_path):
    peer = JsonLines(tmp_path)
    peer.append("chat", chats[0].messages)
    with pytest.raises(work.OtherMessages):
        work.verify([peer], [Chat("chat", [*chats[0].messages, text("user", "lost")])])


@pytest.mark.parametrize(
    ("variant", "kept"),
    [
        ("all stored", 10),
        ("last missing", 9),
        ("half missing", 5),
        ("only the system prompt stored", 1),
        ("edited in the middle", 5),
    ],
)
def test_resent_histories_share_as_much_as_they_say(variant, kept, tmp_path):
    ours = Ours(tmp_path)
    history = [text("user", str(number)) for number in range(10)]
    ours.resend(ours.native(history))
    sent = work.VARIANTS[variant](history, "again")
    assert ours.store.find_longest_existing_prefix(ours.native(sent))[1] == kept
    assert len(sent) == 10
    ours.close()


def test_contestants_take_turns_and_none_is_always_first():
    order: list[str] = []

    def contestant(name: str):
        return lambda number: lambda: order.append(f"{name}{number}") or 1

    outcomes = in_turns({name: contestant(name) for name in "ab"}, 2)
    assert order == ["a0", "b0", "b1", "a1"]
    assert all(isinstance(outcome, Timed) and len(outcome.samples) == 2 for outcome in outcomes.values())


def test_what_a_peer_cannot_do_is_told_with_the_reason():
    def unable(_: int):
        raise Unable("has no such thing")

    assert in_turns({"a": unable, "b": lambda _: lambda: 1}, 2)["a"] == "has no such thing"


def test_ratios_are_of_medians():
    slow = Timed(tuple(Sample(wall, wall) for wall in (2.0, 4.0, 90.0)))
    fast = Timed(tuple(Sample(wall, wall) for wall in (2.0, 1.0, 3.0)))
    found = Work("", "", {OURS: fast, "llm": slow, "git": "can't"})
    assert (found.ratio("llm"), found.ratio("git"), found.ratio("nobody")) == (2.0, None, None)


def test_usage_counts_files_and_their_blocks_but_no_search_index(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a").write_bytes(b"x" * 5000)
    (tmp_path / "search.sqlite").write_bytes(b"x" * 100_000)
    found = usage(tmp_path)
    assert found.apparent == 5000
    assert 5000 <= found.allocated < 100_000


def test_the_limit_counts_each_message_once():
    chat = Chat("a", [text("user", "x" * 1000), text("user", "y")])
    assert limit([chat, chat]) == limit([chat])


@pytest.mark.parametrize(
    ("value", "shown"), [(2.0, "2.00 s"), (0.0123, "12.3 ms"), (0.000456, "456 µs"), (1e-7, "0.10 µs")]
)
def test_times_are_shown_in_the_unit_that_fits(value, shown):
    assert seconds(value) == shown


def test_made_up_corpora_are_the_same_at_every_run():
    first, second = (list(islice(Writer().chats("a"), 5)) for _ in range(2))
    assert first == second


@pytest.fixture(scope="module")
def made_up(tmp_path_factory) -> Corpora:
    """Without the registry and without samples."""
    return gather(TINY, {}, tmp_path_factory.mktemp("nothing"))


def test_without_the_registry_all_is_made_up_and_told(made_up):
    assert all(origin.startswith("made up") for origin in made_up.origins.values())
    assert len(made_up.joined) == TINY.chats
    assert all(len(chat.messages) == 2 * TINY.turns for chat in made_up.joined)


def test_real_sessions_are_read_where_they_are_beside_the_repository():
    if not SAMPLES.is_dir():
        pytest.skip("no samples beside the repository")
    found = gather(TINY, {}, SAMPLES)
    assert found.origins["coding agents"].startswith("real sessions of")
    types = {part["type"] for chat in found.coding for each in chat.messages for part in each["parts"]}
    assert "tool_call" in types and "tool_result" in types


def test_a_run_writes_every_figure_and_plot(made_up, tmp_path):
    steps: list[str] = []
    document, plots = write(run(TINY, made_up, tmp_path, steps.append))
    assert len(steps) == 6
    for heading in (
        "Turns",
        "Import",
        "Load",
        "Size on disk",
        "As the store grows",
        "Start-up of the command line",
    ):
        assert f"\n## {heading}\n" in document
    for name, kind in ROSTER.items():
        assert f"| {name} |" in document
        lacks = kind.lacks()
        if lacks is not None:
            assert f"{lacks} is not installed" in document
    assert re.findall(r"\(performance-([a-z0-9-]+)\.svg\)", document) == list(plots)
    for drawn in plots.values():
        assert ET.fromstring(drawn).tag.endswith("svg")
