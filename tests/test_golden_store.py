"""Files written down once: read by the program, and by a reader made of docs/format.md and nothing of ours."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import struct
import zlib
from hashlib import sha256
from pathlib import Path

import pytest
import zstandard

from objstore.message import Message
from objstore.store import Store
from refs.files import Files
from refs.store import RefStore

GOLDEN = Path(__file__).parent / "golden" / "store"
MAIN = ["Hello, world", "Hi! How can I help?", "What is this?", ""]
SIDE = ["Hello, world", "Hi! How can I help?", "Half a smile: \ud83d", "The other half."]
PICTURE = bytes(range(256)) * 20
GREETING = "00dc4286b7e0de590fa85978031e89402265c0d6a477bd48f39d0f7ccf739991"
ANSWER = "13263dbf8b3fa594e9196a3e750cfc3468734fd801451e737ec793d764d88cfa"


@pytest.fixture
def folder(tmp_path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / ".dag"))


def test_the_program_reads_it(folder):
    with Store.open(folder) as store:
        chains = {each.name: store.load_chain(each.head) for each in store.conversations()}
        assert [message.text for message in chains["main"]] == MAIN
        assert [message.text for message in chains["side"]] == SIDE
        assert chains["main"][2].parts[1].attachment.content == PICTURE
        assert store.description("side").title == "Another way"
        (tag, tagged), *_ = store.tags()
        assert (tag, len(store.load_chain(tagged))) == ("v1", 3)
        (call,) = store.calls()
        assert call.head_input == tagged and call.input_tokens == 17
        (spawn,) = store.called_from(store.head("main"))
        assert [message.text for message in store.load_chain(store.children(spawn.first)[0])] == [
            "Look up the tides.",
            "High water at six.",
        ]
        assert store.notes(tagged)[0].members == {"hidden": True}
        assert len(list(store.reflog())) == 7
        of_a_checkout = {"bad-permissions", "missing-folder"}  # git keeps neither modes nor empty folders
        assert {finding.name for finding in store.fsck()} <= of_a_checkout


# -- by the document alone ------------------------------------------------------------------------


def canonical(value) -> bytes:
    """Canonical JSON of values without floats (chapter 1)."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


def named(raw: bytes) -> str:
    return sha256(raw).hexdigest()


def read_pack(data: bytes) -> dict[str, dict[str, object]]:
    """Kind -> id -> value of everything in a pack (chapter 6)."""
    count, flags, magic = struct.unpack("<IBI", data[-9:])
    assert (flags, magic) == (0, 0x8F92EAB1)
    table = data[-9 - 8 * count : -9]
    assert struct.unpack("<II", data[-17 - 8 * count : -9 - 8 * count]) == (0x184D2A5E, 8 * count + 9)
    objects: dict[str, dict[str, object]] = {
        kind: {} for kind in ("message", "node", "call", "note", "description")
    }
    at = 0
    for packed, unpacked in struct.iter_unpack("<II", table):
        raw = zstandard.ZstdDecompressor().decompress(data[at : at + packed])
        assert len(raw) == unpacked
        read_frame(raw, objects)
        at += packed
    assert at == len(data) - 17 - 8 * count
    return objects


def read_frame(raw: bytes, objects) -> None:
    *lines, end = raw.split(b"\n")
    assert end == b""
    ids: list[str] = []

    def whole(reference):
        return reference if isinstance(reference, str) else ids[len(ids) - reference]

    for line in lines:
        value = json.loads(line)
        first = next(iter(value))
        if first == "parts":
            kind, oid = "message", named(line)
        elif first == "condensed":
            kind, oid, value = "message", value["id"], value["condensed"]
        elif first == "node":
            keys = ("parent", "message", "called_by")
            node = {key: whole(each) for key, each in zip(keys, value["node"], strict=False)}
            if len(value["node"]) > 3:
                node["tool_call_id"] = value["node"][3]
            kind, oid, value = "node", named(canonical(node)), node
        elif first == "call":
            ends = {key: whole(value[key]) for key in ("head_input", "head_output") if key in value}
            kind, value = "call", {**value, **ends}
            oid = named(canonical(value))
        elif first == "at":
            named_nodes = {}
            for node, *said in value["nodes"]:
                run = [whole(node if isinstance(node, str) else node - at) for at in range(len(said))]
                named_nodes |= zip(run, said, strict=True)
            kind, value = "note", {**value, "nodes": named_nodes}
            oid = named(canonical(value))
        else:
            assert first == "created_at"
            kind, oid = "description", named(line)
        ids.append(oid)
        objects[kind][oid] = value


def read_journal(data: bytes):
    """(objects, moves) of all records (chapter 7)."""
    head = data[:88]
    assert head[:16] == b"msgdag-journal1\n" and data[160:248] == head
    assert head[72:] == sha256(head[:72]).digest()[:16]
    assert data[136:144] == sha256(data[128:136]).digest()[:8]
    assert struct.unpack("<Q", data[128:136])[0] == len(data)
    found, moves, at = [], [], 256
    while at < len(data):
        magic, size, check = struct.unpack("<4sI16s", data[at : at + 24])
        payload = data[at + 24 : at + 24 + size]
        assert magic == b"DAGR"
        assert check == sha256(head[16:32] + str(at).encode() + b":" + payload).digest()[:16]
        line, _, body = payload.partition(b"\n")
        record = json.loads(line)
        for kind, oid, form, length in record["objects"]:
            assert form == 0
            raw = zstandard.ZstdDecompressor().decompress(body[:length])
            assert named(raw) == oid
            found.append((kind, oid, json.loads(raw)))
            body = body[length:]
        moves += record["moves"]
        at += 24 + size
    return found, moves


def read_refs() -> dict[str, str]:
    header, *lines = (GOLDEN / "packed-refs").read_text().splitlines()
    assert header == "# packed-refs sorted"
    refs = {line[65:]: line[:64] for line in lines}
    assert list(refs) == sorted(refs)
    for path in (GOLDEN / "refs").rglob("*"):
        if path.is_file():
            refs[path.relative_to(GOLDEN).as_posix()] = path.read_text().removesuffix("\n")
    return refs


def texts(objects, head: str) -> list[str]:
    words = []
    while head != "root":
        node = objects["node"][head]
        parts = objects["message"][node["message"]]["parts"]
        words.append("".join(part.get("text", "") for part in parts))
        head = node["parent"]
    return words[::-1]


def test_the_document_is_enough_to_read_it():
    (path,) = (GOLDEN / "objects" / "pack").iterdir()
    data = path.read_bytes()
    assert path.name == f"pack-{named(data)}.pack"
    objects = read_pack(data)
    assert {GREETING, ANSWER} <= objects["node"].keys()
    recorded, moves = read_journal((GOLDEN / "journal").read_bytes())
    for kind, oid, value in recorded:
        objects[kind][oid] = value
    refs = read_refs()
    assert moves[-1][1] == "refs/conversations/side" and moves[-1][3] == refs["refs/conversations/side"]
    assert texts(objects, refs["refs/conversations/main"]) == MAIN
    assert texts(objects, refs["refs/conversations/side"]) == SIDE
    assert objects["description"][refs["refs/descriptions/side"]]["title"] == "Another way"
    (call,) = objects["call"].values()
    assert call["head_input"] == refs["refs/tags/v1"]
    called = [node for node in objects["node"].values() if "called_by" in node]
    assert [node["called_by"] for node in called] == [refs["refs/conversations/main"]]
    assert {node for note in objects["note"].values() for node in note["nodes"]} <= objects["node"].keys()
    last = (GOLDEN / "reflog").read_text().splitlines()[-1].split(" ")
    assert [*last[:1], last[3], *last[1:3], *last[4:]] == moves[-1]


def test_the_document_is_enough_to_read_what_is_written_now(tmp_path):
    with Store.init(tmp_path / "store") as store:
        head = store.commit("main", [Message.of("user", f"word {i}") for i in range(5)], note={"from": "here"})
        store.pack()
        (path,) = (tmp_path / "store" / "objects" / "pack").iterdir()
        objects = read_pack(path.read_bytes())
        assert texts(objects, head) == [f"word {i}" for i in range(5)]
        (note,) = objects["note"].values()
        assert note["nodes"].keys() == objects["node"].keys()


def test_the_document_is_enough_to_put_an_attachment_back():
    (pack,) = (GOLDEN / "objects" / "pack").iterdir()
    (payload,) = (GOLDEN / "objects" / "payloads").rglob("*.zst")
    raw = zstandard.ZstdDecompressor().decompressobj().decompress(payload.read_bytes())
    assert raw == PICTURE and named(raw) == payload.name.removesuffix(".zst")
    ((oid, message),) = [
        (oid, message)
        for oid, message in read_pack(pack.read_bytes())["message"].items()
        if any(part["type"] == "attachment" for part in message["parts"])
    ]
    held = message["parts"][1]["attachment"]
    assert held["content"] == {"payload": named(PICTURE)}
    held["content"] = base64.b64encode(PICTURE).decode()
    assert named(canonical(message)) == oid


# -- lines in gzip members ------------------------------------------------------------------------

MEMBERS = Path(__file__).parent / "golden" / "members"


def digest(n: int) -> str:
    return named(str(n).encode())


def expected_refs() -> dict[str, str]:
    refs = {f"refs/conversations/chat-{n}": digest(2 * n) for n in range(100)}
    return refs | {f"refs/descriptions/chat-{n}": digest(2 * n + 1) for n in range(100)}


def test_the_program_reads_members(tmp_path):
    folder = shutil.copytree(MEMBERS, tmp_path / "members")
    (folder / "HEAD").write_text("ref: refs/conversations/chat-0\n")
    refs = RefStore(Files(folder))
    assert dict(refs.list()) == expected_refs()
    assert all(refs.resolve(ref) == oid for ref, oid in expected_refs().items())
    assert refs.resolve("refs/conversations/chat-100") is None
    moves = list(refs.reflog.entries())
    assert len(moves) == 402 and refs.reflog.damaged == 0
    assert moves[0].reason == "reset: a\nb" and moves[0].new == digest(1199)
    assert refs.reflog.entry("refs/conversations/session", 0).new is None
    assert refs.reflog.entry("refs/conversations/session", 200).new == digest(1000)
    assert moves[-1].ref == "refs/conversations/chat-0" and moves[-1].new == digest(0)
    assert refs.verify() == [] and list(refs.reflog.archive_problems()) == []
    refs.close()


def read_members(data: bytes) -> list[bytes]:
    """The lines of each member (chapter 5)."""
    found, at = [], 0
    while at < len(data):
        assert data[at : at + 16] == bytes.fromhex("1f8b0804 00000000 00ff0600 42430200")
        size = struct.unpack("<H", data[at + 16 : at + 18])[0] + 1
        raw = zlib.decompress(data[at + 18 : at + size - 8], wbits=-15)
        assert struct.unpack("<II", data[at + size - 8 : at + size]) == (zlib.crc32(raw), len(raw))
        assert len(raw) <= 65536 and raw[-1:] in (b"\n", b"")
        found.append(raw)
        at += size
    assert found.pop() == b"" and data.endswith(bytes.fromhex("0300 00000000 00000000"))
    return found


def test_the_document_is_enough_to_read_members():
    data = (MEMBERS / "packed-refs").read_bytes()
    header, *blocks = read_members(data)
    assert header == b"# packed-refs sorted\n" and len(blocks) > 1 and all(blocks)
    lines = [line.split(" ") for line in b"".join(blocks).decode().splitlines()]
    assert [(name, oid) for oid, name in lines] == sorted(expected_refs().items())
    assert gzip.decompress(data) == header + b"".join(blocks)


def test_the_document_is_enough_to_read_an_archive():
    first, *later = (MEMBERS / "reflog").read_text().splitlines()
    match = re.fullmatch(r"# older moves: zcat (reflog-([0-9a-f]{32})\.gz)", first)
    data = (MEMBERS / match[1]).read_bytes()
    assert named(data)[:32] == match[2]
    moves = [line.split(" ", 4) for line in [*b"".join(read_members(data)).decode().splitlines(), *later]]
    assert len(moves) == 402 and len(later) == 2
    assert {ref: new for _, old, new, ref, _ in moves[:200] if old == "-"} == expected_refs()
    assert [new for _, _, new, _, _ in moves[200:-1]] == [*(digest(1000 + n) for n in range(200)), "-"]
    assert moves[-1][4] == r"reset: a\u000ab"
