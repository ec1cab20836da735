"""Attachments: large ones stand beside their messages, once, and are read when they are asked for."""

from __future__ import annotations

import base64
import io
import json
import shutil
import subprocess
from hashlib import sha256

import pytest

from objstore.attachment import Attachment
from objstore.canonical import canonical_message_json, message_content_hash
from objstore.frames import decompress
from objstore.kinds import Kind
from objstore.limits import MIB, PAYLOAD_THRESHOLD_BYTES
from objstore.loose import Form, loose_name
from objstore.message import AttachmentPart, Message, TextPart, ToolResultPart
from refs.errors import CorruptFile, CorruptObject, DagError, ObjectMissing
from tests.storetools import QuietFiles, init_quiet, quiet_store, say

LARGE = bytes(i * i % 251 for i in range(PAYLOAD_THRESHOLD_BYTES))
SMALL = LARGE[:-1]


@pytest.fixture
def store(tmp_path):
    with init_quiet(tmp_path / "store") as made:
        yield made


def with_bytes(content: bytes, words: str = "look") -> Message:
    return Message("user", (TextPart(words), AttachmentPart(Attachment("image/png", content=content))))


def payload_files(root) -> list[str]:
    return sorted(path.name for path in (root / "objects" / "payloads").rglob("*.zst"))


def test_from_one_disk_block_on_the_bytes_stand_in_a_file_of_their_own(store, tmp_path):
    small, large = with_bytes(SMALL), with_bytes(LARGE)
    store.commit("main", [small])
    assert payload_files(tmp_path / "store") == []
    store.commit("main", [large])
    oid = sha256(LARGE).hexdigest()
    assert payload_files(tmp_path / "store") == [f"{oid}.zst"]
    assert store.conversation("main").messages() == [small, large]
    store.storage.checkpoint()
    condensed = tmp_path / "store" / loose_name(Kind.MESSAGE, message_content_hash(large), Form.CONDENSED)
    raw = json.loads(decompress(condensed.read_bytes(), MIB, "here"))
    assert raw["parts"][1]["attachment"]["content"] == {"payload": oid}
    assert store.conversation("main").messages() == [small, large]


def test_the_id_of_a_message_is_that_of_its_whole_form(store):
    large = with_bytes(LARGE)
    head = store.save_chain([large])
    whole = canonical_message_json(large)
    assert store.node(head).message == sha256(whole).hexdigest()
    (back,) = store.load_chain(head)
    assert canonical_message_json(back) == whole
    assert base64.b64encode(LARGE) in whole


def test_bytes_that_many_messages_carry_are_stored_once(store, tmp_path):
    store.commit("main", [with_bytes(LARGE, "one"), with_bytes(LARGE, "two")])
    result = ToolResultPart("see", "ok", attachments=(Attachment(content=LARGE), Attachment(content=SMALL)))
    store.commit("main", [Message("tool", (result,))])
    assert len(payload_files(tmp_path / "store")) == 1
    assert store.storage.index.counts()[Kind.PAYLOAD] == 1
    last = store.conversation("main").messages()[-1]
    assert [each.content for each in last.parts[0].attachments] == [LARGE, SMALL]


def test_walking_and_listing_open_no_payload(store, tmp_path):
    head = store.commit("main", [with_bytes(LARGE), say("after")])
    for path in (tmp_path / "store" / "objects" / "payloads").rglob("*.zst"):
        path.unlink()
    assert [entry.message.parts[0].text for entry in store.walk(head)] == ["after", "look"]
    (first, _) = store.load_chain(head)
    assert first.parts[1].attachment.has_content
    assert store.find_longest_existing_prefix([first])[1] == 1
    with pytest.raises(ObjectMissing):
        first.parts[1].attachment.content  # noqa: B018


def test_a_message_read_from_one_store_goes_into_another_with_its_bytes(store, tmp_path):
    store.commit("main", [with_bytes(LARGE)])
    with init_quiet(tmp_path / "other") as other:
        other.commit("main", store.conversation("main").messages())
        shutil.rmtree(tmp_path / "store" / "objects")
        (back,) = other.conversation("main").messages()
        assert back.parts[1].attachment.content == LARGE


def test_packing_takes_the_condensed_message_and_leaves_the_payload(store, tmp_path):
    head = store.commit("main", [with_bytes(LARGE)])
    store.pack()
    assert len(payload_files(tmp_path / "store")) == 1
    assert list((tmp_path / "store" / "objects" / "messages").rglob("*.zst")) == []
    assert store.load_chain(head) == [with_bytes(LARGE)]
    store.reindex()
    assert store.load_chain(head)[0].parts[1].attachment.content == LARGE
    assert store.storage.index.counts()[Kind.PAYLOAD] == 1


def test_a_large_transaction_with_attachments_is_whole_again_after_its_index_is_gone(store, tmp_path):
    messages = [with_bytes(bytes([i]) * 5000, f"{i}") for i in range(40)]
    head = store.commit("main", messages)
    before = store.storage.index.counts()
    store.close()
    (tmp_path / "store" / "index.sqlite").unlink()
    with quiet_store(tmp_path / "store") as again:
        assert again.storage.index.counts() == before
        assert again.load_chain(head) == messages


@pytest.mark.parametrize("rounds", [1, 66], ids=["loose", "packed"])
def test_an_attachment_that_holds_the_very_bytes_of_a_message_is_not_taken_for_it(store, rounds):
    """They have one id, and come in one transaction."""
    inner = say("x" * 5000)
    outer = with_bytes(canonical_message_json(inner))
    more = [say(f"{i}") for i in range(rounds)]
    head = store.commit("main", [inner, outer, *more])
    assert store.load_chain(head) == [inner, outer, *more]
    assert store.load_chain(head)[1].parts[1].attachment.content == canonical_message_json(inner)
    store.reindex()
    assert store.load_chain(head) == [inner, outer, *more]


def test_a_payload_goes_in_and_out_as_a_stream(store):
    transaction = store.transaction()
    payload = transaction.put_payload(io.BytesIO(LARGE * 100))
    transaction.commit()
    with store.open_payload(payload) as stream:
        pieces = iter(lambda: stream.read(1000), b"")
        assert b"".join(pieces) == LARGE * 100
    assert payload == sha256(LARGE * 100).hexdigest()
    with pytest.raises(ObjectMissing):
        store.open_payload("f" * 64)


def test_a_source_that_fails_leaves_no_file_behind(store, tmp_path):
    class Torn(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise OSError("torn")

    with pytest.raises(OSError, match="torn"):
        store.transaction().put_payload(Torn())
    assert payload_files(tmp_path / "store") == []
    assert [path for path in (tmp_path / "store").rglob(".tmp-*")] == []  # noqa: C416


def test_a_payload_that_gc_took_while_its_message_was_prepared_is_put_again_or_refused(store, tmp_path):
    transaction = store.transaction()
    transaction.put_message(with_bytes(LARGE))
    for path in (tmp_path / "store" / "objects" / "payloads").rglob("*.zst"):
        path.unlink()
    with pytest.raises(ObjectMissing):
        transaction.commit()
    head = store.commit("main", [with_bytes(LARGE)])
    assert store.load_chain(head)[0].parts[1].attachment.content == LARGE


def test_a_payload_of_other_bytes_is_told(store, tmp_path):
    store.commit("main", [with_bytes(LARGE)])
    (path,) = (tmp_path / "store" / "objects" / "payloads").rglob("*.zst")
    other = QuietFiles(tmp_path)
    with init_quiet(tmp_path / "other") as store2:
        store2.commit("main", [with_bytes(LARGE[::-1])])
    (wrong,) = (tmp_path / "other" / "objects" / "payloads").rglob("*.zst")
    path.write_bytes(wrong.read_bytes())
    other.close()
    (message,) = store.conversation("main").messages()
    with pytest.raises((CorruptFile, CorruptObject)):
        message.parts[1].attachment.content  # noqa: B018
    with pytest.raises(DagError):
        canonical_message_json(message)


def test_every_loose_file_unpacks_to_what_its_name_says(store, tmp_path):
    store.commit("main", [say("hello"), say("wörld \ud83d"), with_bytes(LARGE)], note={"a": 1})
    store.describe("main", title="x")
    store.storage.checkpoint()
    checked = 0
    for path in (tmp_path / "store" / "objects").rglob("*.zst"):
        oid, _, suffix = path.name.partition(".")
        if suffix == "zst":
            payload = "payloads" in path.parts
            raw = store.open_payload(oid).read() if payload else decompress(path.read_bytes(), MIB, "")
            assert sha256(raw).hexdigest() == oid
            checked += 1
            if shutil.which("zstd"):
                told = subprocess.run(["zstd", "-dc", path], check=True, capture_output=True).stdout
                assert told == raw
    assert checked == 2 + 3 + 1 + 1 + 1  # messages, nodes, note, description, payload
