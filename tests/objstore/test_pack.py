"""Packs and frames: what is written, that it comes back, and what is refused."""

from __future__ import annotations

import contextlib
import json
import shutil
import struct
import subprocess
import tracemalloc
from hashlib import sha256

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from objstore.attachment import Attachment
from objstore.canonical import canonical_message_json, condense, message_content_hash
from objstore.codec import encode
from objstore.frames import PayloadReader, compress, decompress
from objstore.kinds import Kind
from objstore.limits import FRAME_BYTES, MAX_FRAME_BYTES, MAX_FRAME_LINES, MAX_WINDOW_BYTES, MIB
from objstore.loose import Form
from objstore.message import AttachmentPart, Message
from objstore.node import Node
from objstore.pack import PACK_FOLDER, PackReader, list_packs, pack_name
from objstore.packframe import Frame
from objstore.packwriter import PackWriter
from objstore.records import Call, Description, Note, Tombstone
from objstore.scan import frame_arrivals
from refs.errors import CorruptFile, DagError
from refs.files import Files
from refs.ids import ROOT
from tests.storetools import say, talk
from tests.strategies import texts

TIME = "2026-01-02T03:04:05.678Z"
ULID = "01J00000000000000000000000"


@pytest.fixture
def files(tmp_path) -> Files:
    made = Files(tmp_path)
    made.make_dirs(PACK_FOLDER)
    return made


def write_chain(writer: PackWriter, messages: list[Message], parent=ROOT) -> list[Node]:
    nodes = []
    for message in messages:
        raw = canonical_message_json(message)
        writer.message(message_content_hash(message), raw)
        node = Node(parent, message_content_hash(message))
        writer.node(node.id, node, lambda raw=raw: (Form.PLAIN, raw))
        parent = node.id
        nodes.append(node)
    return nodes


def frames_of(files: Files, pack: str) -> list[Frame]:
    reader = PackReader(files, pack)
    try:
        return [reader.frame(*place) for place in reader.frames()]
    finally:
        reader.close()


def frame(*lines: bytes) -> Frame:
    return Frame(b"".join(line + b"\n" for line in lines), "here")


HELLO, HI = talk("Hello, world", "Hi! How can I help?")
HELLO_LINE = b'{"parts":[{"text":"Hello, world","type":"text"}],"role":"user"}'
HI_LINE = b'{"parts":[{"text":"Hi! How can I help?","type":"text"}],"role":"assistant"}'
FIRST = "00dc4286b7e0de590fa85978031e89402265c0d6a477bd48f39d0f7ccf739991"
SECOND = "13263dbf8b3fa594e9196a3e750cfc3468734fd801451e737ec793d764d88cfa"
SIDE = "0a34d4f5e7917e5e92aaf5b6a6697284ff2b9eb572ac5c714e2d732af1e23ba4"


# -- what is written ------------------------------------------------------------------------------


def test_the_lines_of_a_pack_are_as_the_format_says(files):
    with PackWriter(files) as writer:
        _, second = write_chain(writer, [HELLO, HI])
        side = Node(ROOT, message_content_hash(HELLO), called_by=second.id, tool_call_id="call_1")
        writer.node(side.id, side)
        note = Note(note=ULID, at=TIME, nodes={second.id: {"from": "here"}, side.id: {}, "a" * 64: {}})
        writer.record(*encode(note))
        call = Call(call=ULID, model="m", head_input=ROOT, head_output=side.id, started_at=TIME)
        writer.record(*encode(call))
        writer.record(*encode(Description(description="trip", created_at=TIME, title="Trip")))
        written = writer.finish()
    assert (second.id, side.id) == (SECOND, SIDE)
    (only,) = frames_of(files, written.pack)
    assert only.lines == [
        HELLO_LINE,
        HI_LINE,
        b'{"node":["root",2]}',
        b'{"node":[1,2]}',
        b'{"node":["root",4,1,"call_1"]}',
        b'{"at":"2026-01-02T03:04:05.678Z","nodes":[[2,{"from":"here"},{}],["%b",{}]],"note":"%b"}'
        % (b"a" * 64, ULID.encode()),
        b'{"call":"%b","head_input":"root","head_output":2,"model":"m","started_at":"2026-01-02T03:04:05.678Z"}'
        % ULID.encode(),
        b'{"created_at":"2026-01-02T03:04:05.678Z","description":"trip","title":"Trip"}',
    ]


def test_a_pack_is_named_by_its_bytes_and_ends_with_the_seek_table_of_the_zstd_seekable_format(files):
    with PackWriter(files) as writer:
        write_chain(writer, [say("x" * 100_000 + str(i)) for i in range(5)])
        written = writer.finish()
    data = files.read(pack_name(written.pack), MIB)
    assert list_packs(files) == [written.pack] == [sha256(data).hexdigest()]
    count, flags, magic = struct.unpack("<IBI", data[-9:])
    assert (count, flags, magic) == (len(written.frames), 0, 0x8F92EAB1)
    assert count > 1
    table = data[-(8 + 8 * count + 9) :]
    assert struct.unpack("<II", table[:8]) == (0x184D2A5E, 8 * count + 9)
    entries = [struct.unpack("<II", table[8 + 8 * i : 16 + 8 * i]) for i in range(count)]
    at = 0
    for (packed, raw), place in zip(entries, written.frames, strict=True):
        assert place == (at, packed)
        assert zstandard.get_frame_parameters(data[at : at + packed]).content_size == raw
        assert zstandard.get_frame_parameters(data[at : at + packed]).has_checksum
        at += packed


@pytest.mark.skipif(not shutil.which("zstd") or not shutil.which("jq"), reason="zstd and jq are not here")
def test_the_ordinary_programs_read_a_pack_line_by_line(files):
    with PackWriter(files) as writer:
        write_chain(writer, [say(f"message {i} " + "pad" * 10_000) for i in range(5)])
        written = writer.finish()
    zstd = subprocess.run(
        ["zstd", "-dc", files.path(pack_name(written.pack))], check=True, capture_output=True
    ).stdout
    jq = subprocess.run(["jq", "-c", ".parts[0].text // .node"], input=zstd, check=True, capture_output=True)
    told = [json.loads(line) for line in jq.stdout.splitlines()]
    assert len(told) == 10
    assert [text.split(" ")[1] for text in told[:5]] == ["0", "1", "2", "3", "4"]
    assert told[5:] == [["root", 5]] + [[1, 5]] * 4


def test_nothing_written_leaves_no_file(files):
    with PackWriter(files) as writer:
        assert writer.finish() is None
    assert files.entries(PACK_FOLDER) == []


def test_a_writer_that_fails_leaves_no_file(files):
    def fail() -> None:
        with PackWriter(files) as writer:
            write_chain(writer, talk("a", "b"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert files.entries(PACK_FOLDER) == []


def test_a_frame_is_closed_before_it_is_overfull_and_a_long_message_stands_with_its_node(files):
    long = say("long " + "x" * (3 * FRAME_BYTES))
    with PackWriter(files) as writer:
        nodes = write_chain(writer, [*(say(f"{i} " + "y" * 3000) for i in range(100)), long, say("after")])
        written = writer.finish()
    frames = frames_of(files, written.pack)
    assert all(each.size <= FRAME_BYTES for each in frames if len(each.lines) > 2)
    (alone,) = [each for each in frames if each.size > FRAME_BYTES]
    assert alone.lines[1] == b'{"node":["%b",1]}' % nodes[99].id.encode()


def test_nodes_of_one_and_the_same_message_fill_no_frame_beyond_its_lines(files):
    """A ping that is sent forty thousand times is written once a frame."""
    ping = say("ping")
    with PackWriter(files) as writer:
        nodes = write_chain(writer, [ping] * 40_000)
        written = writer.finish()
    frames = frames_of(files, written.pack)
    assert max(len(each.lines) for each in frames) <= MAX_FRAME_LINES
    assert all(each.size <= FRAME_BYTES for each in frames)
    assert sum(each.kind(at) is Kind.MESSAGE for each in frames for at in range(len(each.lines))) == len(frames)
    assert frames[-1].node_oid(len(frames[-1].lines) - 1) == nodes[-1].id


def test_a_small_message_of_another_frame_is_written_again_and_a_larger_one_is_named(files):
    small, large = say("small"), say("large " + "z" * 1000)
    with PackWriter(files) as writer:
        write_chain(writer, [small, large, say("x" * FRAME_BYTES)])
        for message in (small, large):
            node = Node(ROOT, message_content_hash(message), called_by="c" * 64)
            raw = canonical_message_json(message)
            writer.node(node.id, node, lambda raw=raw: (Form.PLAIN, raw))
        written = writer.finish()
    last = frames_of(files, written.pack)[-1]
    assert last.lines[0] == canonical_message_json(small)
    assert last.lines[1] == b'{"node":["root",1,"%b"]}' % (b"c" * 64)
    assert last.lines[2] == b'{"node":["root","%b","%b"]}' % (
        message_content_hash(large).encode(),
        b"c" * 64,
    )


@pytest.mark.parametrize("words", [(30,), (5_000, 90_000, 3, 70_000), (FRAME_BYTES - 700, 100, FRAME_BYTES, 1)])
def test_a_message_with_its_node_is_written_like_the_two_of_them(files, words):
    messages = [say("x" * count + str(i % 7)) for i, count in enumerate(words * 20)]
    with PackWriter(files) as writer:
        nodes = write_chain(writer, messages)
        apart = writer.finish()
    with PackWriter(files) as writer:
        for message, node in zip(messages, nodes, strict=True):
            writer.pair(node.message, canonical_message_json(message), node.id, node)
        together = writer.finish()
    assert (together.pack, together.placed) == (apart.pack, apart.placed)


def test_a_conversation_begins_a_new_frame_once_the_old_one_is_three_quarters_full(files):
    with PackWriter(files) as writer:
        write_chain(writer, [say("a" * (FRAME_BYTES // 2))])
        writer.start_chain()
        write_chain(writer, [say("b" * (FRAME_BYTES // 4))])
        writer.start_chain()
        write_chain(writer, [say("c")])
        written = writer.finish()
    assert [len(each.lines) for each in frames_of(files, written.pack)] == [4, 2]


def test_the_first_message_of_a_conversation_goes_along_into_the_new_frame(files):
    with PackWriter(files) as writer:
        write_chain(writer, [say("a" * (FRAME_BYTES * 4 // 5))])
        message = say("first")
        oid, raw = message_content_hash(message), canonical_message_json(message)
        writer.message(oid, raw)
        writer.start_chain()
        node = Node(ROOT, oid)
        writer.node(node.id, node)
        written = writer.finish()
    one, two = frames_of(files, written.pack)
    assert len(one.lines) == 2
    assert two.lines == [raw, b'{"node":["root",1]}']
    assert [each[1:] for each in written.placed[2:]] == [(oid, 1, 0), (node.id, 1, 1)]


def test_a_note_names_its_nodes_by_runs_of_neighbours(files):
    with PackWriter(files) as writer:
        nodes = write_chain(writer, talk("a", "b", "c", "d", "e"))
        about = {nodes[at].id: {"key": str(at)} for at in (4, 0, 1, 3)}
        writer.record(*encode(Note(note=ULID, at=TIME, nodes=about)))
        written = writer.finish()
    (held,) = frames_of(files, written.pack)
    assert json.loads(held.lines[-1])["nodes"] == [
        [5, {"key": "0"}, {"key": "1"}],
        [2, {"key": "3"}, {"key": "4"}],
    ]
    assert held.record(len(held.lines) - 1)[1] == Note(note=ULID, at=TIME, nodes=about).canonical()


def test_nothing_is_placed_before_its_frame_is_closed(files):
    with PackWriter(files) as writer:
        first = write_chain(writer, [say("a" * (FRAME_BYTES * 4 // 5))])
        assert writer.drain() == []
        second = write_chain(writer, [say("b" * (FRAME_BYTES * 4 // 5))])
        assert [each.oid for each in writer.drain()] == [first[0].message, first[0].id]
        assert [each.oid for each in writer.finish().placed] == [second[0].message, second[0].id]


# -- what is written comes back -------------------------------------------------------------------


@st.composite
def graphs(draw):
    """Objects in the order in which they may be written: any DAG of nodes, and what hangs on it."""
    made: list[tuple[Kind, object]] = []
    nodes = [ROOT]
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["message", "message", "node", "note", "call", "description", "erased"]))
        if kind in ("message", "node"):
            message = say(draw(texts), draw(st.sampled_from(["user", "assistant"])))
            if draw(st.integers(0, 9)) == 0:
                message = say("w" * draw(st.sampled_from([600, FRAME_BYTES + 1])))
            if draw(st.integers(0, 9)) == 0:
                message = Message("user", (AttachmentPart(attachment(draw(st.integers(0, 3)))),))
            if kind == "message":
                made.append((Kind.MESSAGE, message))
            caller = draw(st.sampled_from(nodes)) if draw(st.booleans()) else ROOT
            call_id = draw(st.none() | texts) if caller != ROOT else None
            node = Node(
                draw(st.sampled_from(nodes)),
                message_content_hash(message),
                None if caller == ROOT else caller,
                call_id,
            )
            made.append((Kind.NODE, node))
            nodes.append(node.id)
        elif kind == "note":
            about = {node: {"said": draw(texts)} for node in draw(st.lists(st.sampled_from(nodes), max_size=3))}
            about.pop(ROOT, None)
            made.append((Kind.NOTE, Note(note=ULID, at=TIME, nodes=about)))
        elif kind == "call":
            ends = draw(st.tuples(st.sampled_from(nodes), st.sampled_from(nodes)))
            more = {} if ends[1] == ROOT else {"head_output": ends[1]}
            made.append((Kind.CALL, Call(call=ULID, model="m", head_input=ends[0], started_at=TIME, **more)))
        elif kind == "description":
            about = Description(description=draw(texts.filter(bool)), created_at=TIME)
            made.append((Kind.DESCRIPTION, about))
        else:
            made.append(
                (Kind.MESSAGE, Tombstone(Kind.MESSAGE, draw(st.text("0a", min_size=64, max_size=64)), TIME, ""))
            )
    return made


def attachment(number: int):
    return Attachment("image/png", content=bytes([number]) * 5000)


@settings(max_examples=150)
@given(graphs())
def test_any_graph_comes_back_line_by_line(tmp_path_factory, graph):
    files = Files(tmp_path_factory.mktemp("packs"))
    files.make_dirs(PACK_FOLDER)
    stored = {}
    with PackWriter(files) as writer:
        for kind, value in graph:
            if isinstance(value, Message):
                held = condense(value)
                form = Form.CONDENSED if held.payloads else Form.PLAIN
                stored[kind, held.oid] = form, held.raw
                writer.message(held.oid, held.raw, form)
            elif isinstance(value, Tombstone):
                stored[kind, value.id] = Form.TOMBSTONE, value.canonical()
                writer.message(value.id, value.canonical(), Form.TOMBSTONE)
            elif isinstance(value, Node):
                stored[kind, value.id] = Form.PLAIN, value.canonical()
                writer.node(value.id, value)
            else:
                _, oid, raw = encode(value)
                stored[kind, oid] = Form.PLAIN, raw
                writer.record(kind, oid, raw)
        written = writer.finish()
    frames = frames_of(files, written.pack)
    for placed in written.placed:
        held = frames[placed.frame]
        assert held.kind(placed.line) is placed.kind
        if placed.kind is Kind.NODE:
            assert held.node_oid(placed.line) == placed.oid
            seen = Form.PLAIN, held.node(placed.line).canonical()
            before, steps = held.chain(placed.line)
            assert steps[-1].oid == placed.oid
            assert before == ROOT or (Kind.NODE, before) in stored
        elif placed.kind is Kind.MESSAGE:
            oid, form, raw = held.message(placed.line)
            assert oid == placed.oid
            seen = form, raw
        else:
            seen = Form.PLAIN, held.record(placed.line)[1]
        assert seen == stored[placed.kind, placed.oid]
    assert {(each.kind, each.oid) for each in written.placed} == set(stored)


def test_lines_in_any_order_and_notes_of_single_pairs_are_read(files):
    """As packs were written before: each message right before its node, each node of a note by itself."""
    note = Note(note=ULID, at=TIME, nodes={FIRST: {}, SECOND: {"hidden": True}})
    line = b'{"at":"%b","nodes":[[1,{"hidden":true}],[3,{}]],"note":"%b"}' % (TIME.encode(), ULID.encode())
    held = frame(HELLO_LINE, b'{"node":["root",1]}', HI_LINE, b'{"node":[2,1]}', line)
    assert held.record(4) == (Kind.NOTE, note.canonical())
    assert [each.oid for each in held.chain(3)[1]] == [FIRST, SECOND]


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "nodes",
    [
        b"[[1]]",
        b"[[]]",
        b"[1]",
        b"[{}]",
        b"[[0,{}]]",
        b"[[3,{}]]",
        b"[[true,{}]]",
        b"[[[],{}]]",
        b"[[1,{},{}]]",  # as far as the note itself
        b"[[2,{},{},{}]]",
        b'[["%b",{},{}]]' % (b"a" * 64),
    ],
)
def test_a_run_of_nodes_that_leaves_what_stands_before_it_is_refused(nodes):
    line = b'{"at":"2026-01-02T03:04:05.678Z","nodes":%b,"note":"%b"}' % (nodes, ULID.encode())
    held = frame(HELLO_LINE, b'{"node":["root",1]}', line)
    with pytest.raises(CorruptFile):
        held.record(2)


@pytest.mark.parametrize(
    "reference",
    [b"0", b"-1", b"2", b"99", b"true", b"false", b"null", b"1.0", b"1e0", b"18446744073709551617", b"[1]", b"{}"],
)
def test_a_reference_to_no_earlier_line_of_a_message_is_refused(reference):
    held = frame(HELLO_LINE, b'{"node":["root",%b]}' % reference)
    for read in (held.node, held.node_oid, held.chain, lambda at: held.node_and_oid(at)):
        with pytest.raises(CorruptFile):
            read(1)


@pytest.mark.parametrize(
    "reference",
    [b"0", b"-1", b"4", b"true", b"null", b"2.0", b"36893488147419103232", b"[]", b'"short"', b'"ROOT"', b"3"],
)
def test_a_reference_to_no_earlier_node_is_refused_as_parent_and_as_caller(reference):
    for line in (b'{"node":[%b,1]}' % reference, b'{"node":["root",1,%b]}' % reference):
        held = frame(HELLO_LINE, b'{"node":["root",1]}', HI_LINE, line)
        for read in (held.node, held.node_oid, held.chain):
            with pytest.raises(CorruptFile):
                read(3)


@pytest.mark.parametrize(
    "line",
    [
        b'{"node":[]}',
        b'{"node":["root"]}',
        b'{"node":["root","%b","%b","x",1]}' % (b"a" * 64, b"b" * 64),
        b'{"node":["root","%b","%b",5]}' % (b"a" * 64, b"b" * 64),
        b'{"node":["root","%b",null,"x"]}' % (b"a" * 64),
        b'{"node":["root","%b"]' % (b"a" * 64),
        b'{"node":["root","nothex"]}',
        b'{"node":["root","%b"]}' % (b"A" * 64),
        b'{"node":"root"}',
        b'{"node":{}}',
        b'{"node":[' + b"[" * 5000 + b"]" * 5000 + b"]}",
    ],
)
def test_a_line_that_is_no_node_is_refused(line):
    held = frame(line)
    for read in (held.node, held.node_oid):
        with pytest.raises(CorruptFile):
            read(0)


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"[]", b"null", b"\xff", b'{"nodes":1}', b' {"parts":[]}', b'{"role":"user"}', b"x" * 1000],
)
def test_a_line_of_no_known_kind_is_refused(line):
    with pytest.raises(CorruptFile):
        frame(line).kind(0)


@pytest.mark.parametrize(
    "line",
    [
        b'{"condensed":{"parts":[]},"id":"%b"}' % (b"g" * 64),
        b'{"condensed":{"parts":[]},"id":"%b"}' % (b"a" * 63),
        b'{"condensed":5,"id":"%b"}' % (b"a" * 64),
        b'{"tombstone":5}',
        b'{"tombstone":{"id":5}}',
        b'{"tombstone":{"id":"%b"' % (b"a" * 64),
        b'{"node":["root","%b"]}' % (b"a" * 64),
        b'{"call":"x"}',
    ],
)
def test_a_line_that_is_no_message_is_refused(line):
    with pytest.raises(CorruptFile):
        frame(line).message(0)


@pytest.mark.parametrize("read", ["line", "kind", "message", "node", "node_oid", "record", "chain"])
@pytest.mark.parametrize("at", [-1, 1, 16384])
def test_a_line_that_isnt_there_is_refused(read, at):
    with pytest.raises(CorruptFile):
        getattr(frame(HELLO_LINE), read)(at)


@pytest.mark.parametrize(
    "raw", [b"", b"\n", HELLO_LINE, HELLO_LINE + b"\n" + HI_LINE, b"\n" * (MAX_FRAME_LINES + 1)]
)
def test_a_frame_without_lines_with_half_a_line_or_with_too_many_is_refused(raw):
    with pytest.raises(CorruptFile):
        held = Frame(raw, "here")
        held.kind(0)  # an empty line is one, but no object's


def test_a_frame_of_nothing_but_newlines_is_refused_without_much_memory():
    raw = b"\n" * (32 * MIB)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptFile):
            Frame(raw, "here")
        assert tracemalloc.get_traced_memory()[1] < 2 * len(raw)
    finally:
        tracemalloc.stop()


def test_a_chain_as_long_as_a_frame_is_read_without_recursion():
    lines = [HELLO_LINE, b'{"node":["root",1]}']
    lines += [b'{"node":[1,%d]}' % at for at in range(2, MAX_FRAME_LINES)]
    held = frame(*lines)
    assert len(held.chain(MAX_FRAME_LINES - 1)[1]) == MAX_FRAME_LINES - 1
    again = frame(*lines)
    assert again.node_oid(MAX_FRAME_LINES - 1) == held.chain(MAX_FRAME_LINES - 1)[1][-1].oid


@settings(max_examples=300)
@given(st.data())
def test_lines_that_nobody_wrote_are_refused_and_nothing_else_happens(data):
    """Whatever stands in a frame, reading it gives a value or one of our errors."""
    lines = [HELLO_LINE, b'{"node":["root",1]}', HI_LINE, b'{"node":[2,1]}']
    lines += [
        b'{"at":"2026-01-02T03:04:05.678Z","nodes":[[1,{}]],"note":"%b"}' % ULID.encode(),
        b'{"call":"%b","head_input":2,"model":"m","started_at":"2026-01-02T03:04:05.678Z"}' % ULID.encode(),
        b'{"condensed":{"parts":[{"attachment":{"content":{"payload":"%b"}},"type":"attachment"}],"role":"user"}'
        b',"id":"%b"}' % (b"c" * 64, b"d" * 64),
        b'{"tombstone":{"at":"2026-01-02T03:04:05.678Z","id":"%b","kind":"message","reason":""}}' % (b"e" * 64),
    ]
    number = data.draw(st.integers(0, len(lines) - 1))
    line = bytearray(lines[number])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(line) - 1))
        piece = data.draw(
            st.sampled_from(
                [b"", b"[", b"]", b"{", b"}", b'"', b",", b"0", b"-", b"1e9", b"null", b"\\ud800", b"\xff"]
            )
        )
        line[at : at + data.draw(st.integers(0, 3))] = piece
    lines[number] = bytes(line).replace(b"\n", b"")
    held = frame(*lines)
    for read in (held.kind, held.node, held.node_oid, held.message, held.record, held.chain):
        for at in range(len(lines)):
            try:
                read(at)
            except DagError:
                continue
    with contextlib.suppress(DagError):
        list(frame_arrivals(held, 1))


# -- damage and bombs -----------------------------------------------------------------------------


@pytest.fixture
def pack(files) -> bytes:
    with PackWriter(files) as writer:
        write_chain(writer, [say(f"{i} " + "x" * (FRAME_BYTES * 2 // 5)) for i in range(5)])  # three frames
        return files.read(pack_name(writer.finish().pack), MIB)


def put(files: Files, data: bytes) -> PackReader:
    oid = sha256(data).hexdigest()
    files.replace(pack_name(oid), data)
    return PackReader(files, oid)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:8],
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: data[:-9] + struct.pack("<IBI", 2**32 - 1, 0, 0x8F92EAB1),
        lambda data: data[:-9] + struct.pack("<IBI", 2, 0, 0x8F92EAB1),
        lambda data: data[:-9] + struct.pack("<IBI", 3, 0x80, 0x8F92EAB1),
        lambda data: data[:-9] + struct.pack("<IBI", 3, 0, 0x8F92EAB0),
        lambda data: data[1:],
        lambda data: b"\0" + data,
        lambda data: data[: -9 - 24] + struct.pack("<II", 2**32 - 1, 10) + data[-9 - 16 :],
        lambda data: data[: -9 - 24] + struct.pack("<II", 100, MAX_FRAME_BYTES + 1) + data[-9 - 16 :],
    ],
)
def test_a_damaged_seek_table_is_refused(files, pack, damage):
    reader = put(files, damage(pack))
    with pytest.raises(CorruptFile):
        list(reader.frames())
    reader.close()


@pytest.mark.parametrize("place", [(-1, 10), (0, 0), (0, -1), (0, MAX_FRAME_BYTES + 1), (10**9, 100), (1, 100)])
def test_a_frame_that_isnt_in_the_pack_is_refused(files, pack, place):
    reader = put(files, pack)
    with pytest.raises(CorruptFile):
        reader.frame(*place)
    reader.close()


def header(size: int | None, window_log: int | None = None, dict_id: int = 0) -> bytes:
    """The beginning of a zstd frame that declares these."""
    single = window_log is None
    descriptor = (0b11 << 6 if size is not None else 0) | (single << 5) | (0b11 if dict_id else 0)
    made = struct.pack("<IB", 0xFD2FB528, descriptor)
    if window_log is not None:
        made += bytes([(window_log - 10) << 3])
    if dict_id:
        made += struct.pack("<I", dict_id)
    return made + (struct.pack("<Q", size) if size is not None else b"")


def rle(times: int, last: bool = True) -> bytes:
    """Blocks that say one byte 128 KiB times over, `times` times."""
    blocks = [
        ((128 * 1024) << 3 | 0b010 | (last and i == times - 1)).to_bytes(3, "little") + b"a" for i in range(times)
    ]
    return b"".join(blocks)


BOMBS = {
    "a declared size beyond the bound": header(MAX_FRAME_BYTES + 1) + rle(1),
    "a declared size of 2^63": header(2**63) + rle(1),
    "no declared size": header(None, window_log=17) + rle(4000),
    "a giant window": header(100, window_log=31) + rle(1),
    "a window over the bound": header(100, window_log=MAX_WINDOW_BYTES.bit_length()) + rle(1),
    "a dictionary": header(100, dict_id=77) + rle(1),
    "more content than declared": header(1000) + rle(4000),
    "less content than declared": header(8 * MIB) + rle(1),
    "another frame behind": compress(b"x") + compress(b"y"),
    "bytes behind": compress(b"x") + b"z",
    "a skippable frame behind": compress(b"x") + struct.pack("<II", 0x184D2A50, 1) + b"z",
    "only a skippable frame": struct.pack("<II", 0x184D2A50, 1) + b"z",
    "nothing": b"",
    "no zstd": b"plain text that is no frame",
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_refused_without_being_unpacked(bomb):
    tracemalloc.start()
    try:
        with pytest.raises(CorruptFile):
            decompress(bomb, MAX_FRAME_BYTES, "here")
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()


def test_a_payload_that_unpacks_to_far_more_than_allowed_is_noticed_before_it_fills_the_memory(tmp_path):
    files = Files(tmp_path)
    files.replace("bomb", header(None, window_log=17) + rle(16_000))
    reader = PayloadReader(files.open_read("bomb"), "0" * 64, bound=64 * MIB)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptFile):
            while reader.read(MIB):
                pass
        assert tracemalloc.get_traced_memory()[1] < 100 * MIB
    finally:
        tracemalloc.stop()
        reader.close()


@pytest.mark.parametrize("behind", [b"z", compress(b"more")], ids=["bytes", "a frame"])
@pytest.mark.parametrize("size", [10, 200_000])
def test_a_payload_with_something_behind_its_frame_is_refused(tmp_path, behind, size):
    content = bytes(i * i % 251 for i in range(size))
    files = Files(tmp_path)
    for data, fits in ((compress(content), True), (compress(content) + behind, False)):
        files.replace("payload", data)
        with PayloadReader(files.open_read("payload"), sha256(content).hexdigest()) as reader:
            if fits:
                assert reader.read() == content
            else:
                with pytest.raises(CorruptFile):
                    reader.read()
