"""What a remote may send to do harm, or by mistake: it is refused with the reason, and nothing of it is seen."""

from __future__ import annotations

import itertools
import json
import sqlite3
import struct
from hashlib import sha256

import pytest
import zstandard

from objstore.attachment import Attachment
from objstore.canonical import canonical_message_json, condense
from objstore.frames import PayloadReader, compress
from objstore.fsck import damaged
from objstore.kinds import Kind
from objstore.message import AttachmentPart, Message
from objstore.node import Node, node_id
from objstore.transfer import fetch as fetching
from objstore.transfer import folder
from objstore.transfer import remote as remotes
from objstore.transfer.report import Report
from refs.errors import BadTransfer, LimitExceeded
from refs.ids import ROOT
from tests.storetools import indexed, say, talk
from tests.transfer.parties import folder_place, object_place

obstore = pytest.importorskip("obstore", reason="object storage needs the extra 'remote'")


def message(words: str) -> bytes:
    return canonical_message_json(say(words))


def oid(raw: bytes) -> str:
    return sha256(raw).hexdigest()


def pack_of(*frames: list[bytes], packed: list[bytes] | None = None) -> bytes:
    """A pack that holds these lines, or these very frames."""
    raws = [b"".join(line + b"\n" for line in lines) for lines in frames]
    packed = packed if packed is not None else [compress(raw) for raw in raws]
    sizes = [len(raw) for raw in raws] or [1000] * len(packed)
    table = b"".join(struct.pack("<II", len(data), size) for data, size in zip(packed, sizes, strict=True))
    footer = struct.pack("<IBI", len(packed), 0, 0x8F92EAB1)
    return b"".join(packed) + struct.pack("<II", 0x184D2A5E, len(table) + len(footer)) + table + footer


class Bucket:
    """An object storage whose owner means harm."""

    def __init__(self, tmp_path):
        self.store = obstore.store.MemoryStore()
        self.place = object_place(tmp_path, self.store)
        self.victim = self.place.party("victim")
        self.victim.store.commit("mine", talk("mine"))
        self.victim.push("mine")

    def pack(self, *frames: list[bytes], packed: list[bytes] | None = None, name: str | None = None) -> None:
        data = pack_of(*frames, packed=packed)
        obstore.put(self.store, f"packs/{name or oid(data)}.pack", data)

    def ref(self, name: str, value: object) -> None:
        obstore.put(self.store, name, json.dumps({"op": "x", "value": value}).encode())

    def refused(self, reason: str) -> None:
        """A fetch fails for this reason, and leaves no trace."""
        before = indexed(self.victim.store), list(self.victim.store.refs()), self.files()
        with pytest.raises(BadTransfer, match=reason or None):
            self.victim.pull()
        assert (indexed(self.victim.store), list(self.victim.store.refs()), self.files()) == before
        assert not damaged(list(self.victim.store.fsck()))

    def files(self) -> set[str]:
        """All objects' files. An attachment that has the hash it is named by may stay: gc takes it."""
        folder = self.victim.store.path / "objects"
        files = {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()}
        return {name for name in files if not name.startswith("payloads/") or "tmp" in name}


@pytest.fixture
def bucket(tmp_path):
    made = Bucket(tmp_path)
    yield made
    made.place.close()


HELLO = message("hello")
FIRST = node_id(ROOT, oid(HELLO))
FIRST_LINE = b'{"node":["root",1]}'


def test_what_an_honest_owner_would_send_is_taken(bucket):
    bucket.pack([HELLO, FIRST_LINE])
    bucket.ref("refs/conversations/good", FIRST)
    bucket.victim.pull()
    assert bucket.victim.store.head("good") == FIRST


def test_a_pack_of_another_hash(bucket):
    bucket.pack([HELLO, FIRST_LINE], name="0" * 64)
    bucket.refused("another hash")


def test_a_ref_to_what_is_not_there(bucket):
    bucket.ref("refs/conversations/lost", "ab" * 32)
    bucket.refused("isn't there")


def test_a_node_whose_parent_is_missing(bucket):
    orphan = node_id("ab" * 32, oid(HELLO))
    bucket.pack([HELLO, b'{"node":["%s",1]}' % (b"ab" * 32)])
    bucket.ref("refs/conversations/orphan", orphan)
    bucket.refused("node abab.* isn't there")


def test_a_node_whose_message_is_missing(bucket):
    bucket.pack([b'{"node":["root","%s"]}' % (b"ab" * 32)])
    bucket.refused("message abab.* isn't there")


def test_a_node_whose_asker_is_missing(bucket):
    bucket.pack([HELLO, b'{"node":["root",1,"%s"]}' % (b"ab" * 32)])
    bucket.refused("node abab.* isn't there")


def test_a_call_about_what_is_missing(bucket):
    call = {
        "call": "01J00000000000000000000000",
        "head_input": "ab" * 32,
        "model": "m",
        "started_at": "2026-01-02T03:04:05.678Z",
    }
    bucket.pack([json.dumps(call, separators=(",", ":")).encode()])
    bucket.refused("node abab.* isn't there")


def test_a_ref_that_names_an_object_of_another_kind(bucket):
    bucket.pack([HELLO, FIRST_LINE])
    bucket.ref("refs/conversations/message", oid(HELLO))
    bucket.refused("isn't there")


def test_a_description_where_a_conversation_belongs(bucket):
    text = b'{"created_at":"2026-01-02T03:04:05.678Z","description":"x"}'
    bucket.pack([text])
    bucket.ref("refs/conversations/x", oid(text))
    bucket.refused("isn't there")


@pytest.mark.parametrize(
    "line",
    [
        b'{"parts":[{"text":"hello","type":"text"}], "role":"user"}',
        b'{"parts":[{"type":"text","text":"hello"}],"role":"user"}',
        b'{"parts":[{"text":"h\\u0065llo","type":"text"}],"role":"user"}',
        b'{"parts":[{"text":"hello","type":"text"}],"role":"user","role":"user"}',
        b'{"parts":[{"text":"hello","type":"text"}],"provider_metadata":null,"role":"user"}',
        b'{"parts":[],"role":"user","more":1}',
        b'{"parts":' + b"[" * 5000 + b"]" * 5000 + b',"role":"user"}',
        b'{"created_at":"2026-01-02T03:04:05.678Z", "description":"x"}',
    ],
)
def test_a_twin_of_an_object_that_is_not_canonical(bucket, line):
    bucket.pack([line])
    bucket.refused("canonical|nest|deep|levels|key")


@pytest.mark.parametrize(
    "line",
    [
        b'{"node":[1,1]}',  # its message is no node
        b'{"node":["root",0]}',
        b'{"node":["root",-1]}',
        b'{"node":["root",2]}',  # before the frame
        b'{"node":["root",1e0]}',
        b'{"node":["root",true]}',
        b'{"node":["root"]}',
        b'{"node":["ROOT",1]}',
        b'{"node":["root",1,null]}',
        b'{"node":["root",1,"root",7]}',
        b'{"node":{}}',
        b'{"at":"2026-01-02T03:04:05.678Z","nodes":[[5,{}]],"note":"01J00000000000000000000000"}',
        b"not json at all",
        b"",
    ],
)
def test_a_line_that_no_store_writes(bucket, line):
    bucket.pack([HELLO, line])
    bucket.refused("")


def test_references_that_lead_in_a_circle(bucket):
    bucket.pack([b'{"node":[-1,2]}', b'{"node":[1,2]}', HELLO])
    bucket.refused("reference")


def test_a_frame_that_unpacks_to_more_than_any_may_hold(bucket):
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(70 << 20))
    bucket.pack(packed=[bomb])
    bucket.refused("more than")


def test_a_frame_that_does_not_say_how_large_it_is(bucket):
    writer = zstandard.ZstdCompressor().compressobj()
    bucket.pack(packed=[writer.compress(HELLO + b"\n") + writer.flush()])
    bucket.refused("unknown size")


def test_a_frame_of_nothing_but_line_ends(bucket):
    bucket.pack(packed=[compress(b"\n" * 1_000_000)])
    bucket.refused("too many")


@pytest.mark.parametrize("cut", [0, 1, 8, 20, -1])
def test_a_pack_that_is_cut_short(bucket, cut):
    data = pack_of([HELLO, FIRST_LINE])[:cut]
    obstore.put(bucket.store, f"packs/{oid(data)}.pack", data)
    bucket.refused("")


def with_attachment(data: bytes):
    return condense(Message("user", (AttachmentPart(Attachment("image/png", content=data)),)))


def condensed_line(condensed) -> bytes:
    return b'{"condensed":%b,"id":"%b"}' % (condensed.raw, condensed.oid.encode())


def test_an_attachment_that_is_not_there(bucket):
    bucket.pack([condensed_line(with_attachment(b"x" * 10_000))])
    bucket.refused("no payload")


def test_an_attachment_of_other_bytes(bucket):
    condensed = with_attachment(b"x" * 10_000)
    bucket.pack([condensed_line(condensed)])
    payload = condensed.payloads[0][0]
    obstore.put(bucket.store, f"payloads/{payload}.zst", compress(b"y" * 10_000))
    bucket.refused("not what its name says")


def test_an_attachment_that_unpacks_for_ever(bucket, monkeypatch):
    monkeypatch.setattr(PayloadReader.__init__, "__defaults__", (1 << 20,))
    condensed = with_attachment(b"x" * 10_000)
    bucket.pack([condensed_line(condensed)])
    bomb = zstandard.ZstdCompressor().compress(bytes(64 << 20))
    obstore.put(bucket.store, f"payloads/{condensed.payloads[0][0]}.zst", bomb)
    bucket.refused("more bytes than an attachment may have")


def test_a_condensed_message_under_the_id_of_another(bucket):
    data = b"x" * 10_000
    condensed = with_attachment(data)
    line = condensed_line(condensed).replace(condensed.oid.encode(), b"ab" * 32)
    bucket.pack([line])
    obstore.put(bucket.store, f"payloads/{condensed.payloads[0][0]}.zst", compress(data))
    bucket.refused("another hash")


@pytest.mark.parametrize(
    "key",
    [
        "refs/conversations/=2E=2E/=2E=2E/config",
        "refs/conversations/=2Dx",
        "refs/conversations/a=2Elock",
        "refs/conversations/=1B[2J",
        "refs/conversations/CON",
        "refs/conversations/deadbeef",
        "refs/conversations/" + "x" * 300,
        "refs/conversations/=zz",
        "refs/conversations/=61",  # a plain character needs no escape
        "refs/unchecked",
    ],
)
def test_a_name_that_is_not_allowed_is_told_and_the_rest_goes_on(bucket, key):
    bucket.pack([HELLO, FIRST_LINE])
    bucket.ref(key, FIRST)
    bucket.ref("refs/conversations/good", FIRST)
    report = bucket.victim.pull()
    assert report.refused
    assert {ref for ref, _ in bucket.victim.store.refs("refs/conversations/")} == {
        "refs/conversations/good",
        "refs/conversations/mine",
    }
    assert not list(bucket.victim.store.path.parent.glob("config"))


@pytest.mark.parametrize("value", ["", "x", "AB" * 32, ["ab" * 32], {}, 7, True, "../../etc/passwd"])
def test_a_value_that_is_no_id_is_told(bucket, value):
    bucket.ref("refs/conversations/odd", value)
    report = bucket.victim.pull()
    assert value == "" or [each.name for each in report.refused] == ["refs/conversations/odd"]
    assert bucket.victim.store.head("odd") is None


def test_names_that_a_disk_may_take_for_one_are_told(bucket):
    bucket.pack([HELLO, FIRST_LINE])
    for name in ("Trip", "trip", "trip/deeper"):
        bucket.ref(f"refs/conversations/{name}", FIRST)
    report = bucket.victim.pull()
    assert len(report.refused) == 2
    assert len(list(bucket.victim.store.conversations())) == 2


def test_a_ref_object_of_any_size_is_not_read(bucket):
    obstore.put(bucket.store, "refs/conversations/large", b"x" * 100_000)
    bucket.refused("larger than it may be")


def test_more_refs_than_any_remote_has_are_not_kept(monkeypatch):
    """Ten million of them, made as they are read: reading stops at the bound."""
    made = itertools.count()

    class Endless:
        url = "endless"

        def refs(self):
            for _ in range(10_000_000):
                yield f"refs/conversations/c{next(made)}x", "ab" * 32

    monkeypatch.setattr(remotes, "MAX_REMOTE_REFS", 5000)
    with pytest.raises(LimitExceeded, match="5000"):
        remotes.read_refs(Endless(), Report("endless"))
    assert next(made) <= 5002


def test_refused_refs_are_counted_rather_than_kept(monkeypatch):
    class Evil:
        url = "evil"

        def refs(self):
            return ((f"refs/conversations/..{i}", "ab" * 32) for i in range(20_000))

    report = Report("evil")
    assert remotes.read_refs(Evil(), report) == {}
    assert report.refused_count == 20_000
    assert len(report.refused) == 1000


def test_a_head_that_moves_during_a_fetch_is_taken_where_it_was_or_the_next_time(bucket):
    other = bucket.place.party("other")
    other.store.commit("trip", talk("one"))
    other.push("trip")
    first = other.store.head("trip")
    with bucket.victim.remote() as remote:
        inner = remote.get

        def moving(wanted, *, again=False):
            other.store.commit("trip", talk("two"))
            other.push("trip")
            return inner(wanted, again=again)

        remote.get = moving
        fetching.fetch(bucket.victim.store.storage, remote, "origin")
    assert bucket.victim.store.resolve("remotes/origin/conversations/trip") == first
    bucket.victim.pull()
    assert bucket.victim.store.head("trip") == other.store.head("trip")


def test_a_tombstone_under_another_id(bucket):
    stone = b'{"tombstone":{"at":"2026-01-02T03:04:05.678Z","id":"%s","kind":"payload","reason":"x"}}' % (
        b"ab" * 32
    )
    bucket.pack([stone])
    bucket.refused("stands in the place of")


def test_what_a_folder_holds_is_believed_no_more(tmp_path):
    place = folder_place(tmp_path)
    owner, victim = place.party("owner"), place.party("victim")
    head = owner.store.commit("trip", talk(*(f"word {i}" for i in range(100))))
    owner.push("trip")
    there = tmp_path / "there"
    [pack] = (there / "objects" / "pack").glob("*.pack")
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.chmod(0o600)
    pack.write_bytes(data)
    with pytest.raises(BadTransfer):
        victim.pull()
    assert indexed(victim.store) == set()
    assert not victim.store.storage.database.has(Kind.NODE, head)
    place.close()


def test_a_folder_whose_index_leads_in_a_circle(tmp_path):
    place = folder_place(tmp_path)
    owner, victim = place.party("owner"), place.party("victim")
    head = owner.store.commit("trip", talk("one", "two"))
    owner.store.save_chain(talk("side", "chain"), called_by=head)
    owner.push("trip")
    with owner.remote() as remote, remote._storage.index.changing() as db:
        db.execute("UPDATE node SET parent=(SELECT max(row) FROM node)")
    with pytest.raises(BadTransfer):
        victim.pull()
    assert indexed(victim.store) == set()
    place.close()


def test_a_folder_whose_index_holds_code(tmp_path):
    place = folder_place(tmp_path)
    victim = place.party("victim")
    there = tmp_path / "there"
    with sqlite3.connect(there / "index.sqlite") as db:
        db.execute(
            "CREATE VIEW endless AS WITH RECURSIVE e(x) AS (SELECT 1 UNION ALL SELECT x FROM e) SELECT x FROM e"
        )
    db.close()
    with pytest.raises(BadTransfer, match="holds code"):
        folder.FolderRemote.open(str(there), victim.store.storage, notice=print)
    place.close()


def test_a_node_is_never_believed_to_be_what_its_line_says_it_is(bucket):
    """Ids aren't read: they are worked out, so a line can't take the place of another node."""
    bucket.pack([HELLO, FIRST_LINE])
    bucket.ref("refs/conversations/trip", Node(ROOT, oid(message("other"))).id)
    bucket.refused("isn't there")
