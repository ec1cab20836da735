"""What every reader must hold, whatever it is given. Used by the tests of each format.

outputs = read_files(claude_code, {"a.jsonl": data})     # reads, checks, and gives the transcripts
survives_damage(claude_code, {"a.jsonl": data})          # cuts and flips bits: nothing is raised
"""

import copy
import json
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from objstore.codec import decode, encode
from objstore.jsonvalue import freeze_object
from objstore.records import check_time
from objstore.transcripts.files import BytesSource, open_source
from objstore.transcripts.model import Skipped, Transcript

DATA = Path(__file__).parents[3] / "shared" / "data"


@dataclass
class Outputs:
    transcripts: list
    skipped: list

    @property
    def only(self):
        """The one transcript, where there is exactly one and nothing was skipped."""
        assert len(self.transcripts) == 1, [t.id for t in self.transcripts]
        assert not self.skipped, self.skipped
        return self.transcripts[0]

    @property
    def warnings(self):
        return sorted(warn.kind for transcript in self.transcripts for warn in transcript.warnings)


def real_file(name):
    """A file of the shared data, which is not part of the project."""
    path = DATA / name
    if not path.exists():
        pytest.skip("the shared data is not beside this checkout")
    return path


def read_files(module, files):
    """Read files given as bytes by name, checking all that must hold."""
    return read_source(module, lambda: BytesSource(files, "test"))


def read_path(module, path):
    return read_source(module, lambda: open_source(path))


def read_source(module, make_source):
    outputs = _read(module, make_source())
    for transcript in outputs.transcripts:
        check_transcript(transcript, module.FORMAT)
    for skipped in outputs.skipped:
        assert skipped.kind and skipped.place
    ids = [transcript.id for transcript in outputs.transcripts]
    assert len(set(ids)) == len(ids), "an id names one conversation"
    again = _read(module, make_source())
    assert [described(t) for t in again.transcripts] == [described(t) for t in outputs.transcripts]
    assert again.skipped == outputs.skipped
    return outputs


def _read(module, source):
    outputs = Outputs([], [])
    for output in module.read(source):
        if isinstance(output, Skipped):
            outputs.skipped.append(output)
        else:
            assert isinstance(output, Transcript)
            output.read_all()
            outputs.transcripts.append(output)
    return outputs


def described(transcript):
    """All that a transcript says, comparable."""
    return (
        transcript.id,
        transcript.title,
        transcript.model,
        transcript.created_at,
        transcript.tags,
        [
            (e.key, e.parent, e.message.to_dict(), e.at, e.called_by, e.tool_call_id, dict(e.note))
            for e in transcript.entries
        ],
        transcript.heads,
        transcript.calls,
        transcript.warnings,
    )


def check_transcript(transcript, format):
    """Parents come first, keys are unique, heads exist, everything can be stored."""
    assert transcript.format == format
    assert transcript.id
    seen = set()
    for entry in transcript.entries:
        assert entry.key, "a key"
        assert entry.key not in seen, f"{entry.key} twice"
        assert entry.parent is None or entry.parent in seen, f"{entry.key}: its parent {entry.parent} comes later"
        assert entry.called_by is None or entry.called_by in seen, f"{entry.key}: its caller comes later"
        assert entry.tool_call_id is None or entry.called_by is not None
        if entry.at is not None:
            check_time(entry.at, "at")
        freeze_object(entry.note, "note", depth=3)
        kind, _, raw = encode(entry.message)
        assert encode(decode(kind, raw))[2] == raw
        seen.add(entry.key)
    _check_heads(transcript, seen)
    for call in transcript.calls:
        assert call.id and call.model
        assert call.head_input is None or call.head_input in seen
        assert call.head_output is None or call.head_output in seen
        if call.started_at is not None:
            check_time(call.started_at, "started_at")
        for count in (call.input_tokens, call.output_tokens, call.duration_ms):
            assert count is None or (isinstance(count, int) and not isinstance(count, bool) and count >= 0)
    assert len({call.id for call in transcript.calls}) == len(transcript.calls), "a call is told once"
    for warn in transcript.warnings:
        assert warn.kind == warn.kind.lower() and " " not in warn.kind
        assert warn.place, f"{warn.kind} without a place"
    if transcript.created_at is not None:
        check_time(transcript.created_at, "created_at")


def _check_heads(transcript, seen):
    labels = [head.label for head in transcript.heads]
    assert len(set(labels)) == len(labels), "two heads of one label"
    assert all(labels)
    assert all(head.key in seen for head in transcript.heads)
    if seen:
        assert sum(head.active for head in transcript.heads) == 1, "exactly one head is active"
    reached = {head.key for head in transcript.heads}
    inner = {entry.parent for entry in transcript.entries}
    assert all(e.key in reached for e in transcript.entries if e.key not in inner), "a leaf without a head"


def survives_damage(module, files, *, cuts=60, flips=60, seed=5):
    """Cut each file at many lengths and flip its bytes: what comes out conforms, and nothing is raised."""
    chance = random.Random(seed)
    for name, data in files.items():
        lengths = {0, 1, len(data) - 1, *(chance.randrange(len(data)) for _ in range(cuts))}
        for length in sorted(lengths):
            _check_damaged(module, {**files, name: data[:length]})
        for _ in range(flips):
            damaged = bytearray(data)
            for _ in range(chance.choice((1, 1, 3, 20))):
                damaged[chance.randrange(len(data))] = chance.choice(
                    (0, 34, 44, 91, 92, 93, 123, 125, 255, 10, 49)
                )
            _check_damaged(module, {**files, name: bytes(damaged)})


ODD = (
    None,
    True,
    5,
    -1,
    1e300,
    2**70,
    "",
    "x",
    [],
    {},
    [1],
    [[]],
    [{}],
    {"a": [{}]},
    {"type": {}},
    {"type": ["x"]},
)


def survives_odd_values(module, files, *, tries=150, seed=7):
    """Put values of other types where the format has its own: what comes out conforms, and nothing is raised."""
    chance = random.Random(seed)
    for name, data in files.items():
        records = [json.loads(line) for line in ([data] if name.endswith(".json") else data.splitlines()) if line]
        for _ in range(tries):
            damaged = copy.deepcopy(records)
            for _ in range(chance.choice((1, 1, 2, 5))):
                _put_odd(damaged, chance)
            written = b"\n".join(json.dumps(record).encode() for record in damaged)
            _check_damaged(module, {**files, name: written})


def _put_odd(root, chance):
    at = root
    while True:
        key = chance.choice(list(at) if isinstance(at, dict) else range(len(at)))
        if isinstance(at[key], dict | list) and at[key] and chance.random() < 0.85:
            at = at[key]
        else:
            at[key] = copy.deepcopy(chance.choice(ODD))
            return


def _check_damaged(module, files):
    for transcript in _read(module, BytesSource(files, "damaged")).transcripts:
        check_transcript(transcript, module.FORMAT)


def texts(transcript):
    """(role, text) of every entry, for short expectations."""
    return [(entry.message.role, entry.message.text) for entry in transcript.entries]


def shape(transcript):
    """(role, types of parts) of every entry."""
    return [(e.message.role, tuple(part.type for part in e.message.parts)) for e in transcript.entries]


def parents(transcript):
    return {entry.key: entry.parent for entry in transcript.entries}
