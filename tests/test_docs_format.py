"""docs/format.md is part of the code: what its tables say is what the code does."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import pytest

from objstore import limits
from objstore.attachment import Attachment
from objstore.canonical import condense
from objstore.codec import decode, encode
from objstore.jsonvalue import dumps, freeze, loads_exactly
from objstore.kinds import Kind
from objstore.message import AttachmentPart, Message, Part
from objstore.records import Tombstone

DOCUMENT = (Path(__file__).parents[1] / "docs" / "format.md").read_text("utf-8")
GOLDEN = re.findall(r"^\| ([a-z]+) \| `(\{.*\})` \| `([0-9a-f]{64})` \|$", DOCUMENT, re.MULTILINE)
CHARACTERS = re.findall(r"^\| U\+([0-9A-F]{4,6}) \| (`\S+`|as it is) \|$", DOCUMENT, re.MULTILINE)
NUMBERS = re.findall(r"^\| (-?\d[\d.eE+-]*) \| `(\S+)` \|$", DOCUMENT, re.MULTILINE)
BOUNDS = re.findall(r"^\| `([A-Z_]+)` \| (\d+) \| .+ \|$", DOCUMENT, re.MULTILINE)
PARTS = re.findall(r"^\| `([a-z_]+)` \| `type`(.*?) \|", DOCUMENT, re.MULTILINE)
EXAMPLES = re.findall(r"^```\n(.+?)\n```$", DOCUMENT, re.MULTILINE)


def test_every_table_was_found():
    found = [len(table) for table in (GOLDEN, CHARACTERS, NUMBERS, BOUNDS, PARTS, EXAMPLES)]
    assert all(size >= least for size, least in zip(found, (20, 15, 13, 6, 5, 2), strict=True)), found
    assert {kind for kind, _, _ in GOLDEN} == set(Kind) - {Kind.PAYLOAD}


@pytest.mark.parametrize("kind, canonical, oid", GOLDEN)
def test_golden_value_is_written_and_named_so(kind, canonical, oid):
    raw = canonical.encode()
    assert sha256(raw).hexdigest() == oid
    assert encode(decode(Kind(kind), raw)) == (kind, oid, raw)


@pytest.mark.parametrize("code, written", CHARACTERS)
def test_character_is_escaped_so(code, written):
    character = chr(int(code, 16))
    expected = character if written == "as it is" else written.strip("`")
    assert dumps(freeze(character, "")).decode() == f'"{expected}"'


@pytest.mark.parametrize("number, written", NUMBERS)
def test_number_is_written_so(number, written):
    assert dumps(freeze(loads_exactly(number.encode()), "")).decode() == written


@pytest.mark.parametrize("name, value", BOUNDS)
def test_bound_is_the_one_in_the_code(name, value):
    assert getattr(limits, name) == int(value)


@pytest.mark.parametrize("kind, always", PARTS)
def test_part_always_has_the_members_of_its_row(kind, always):
    example = {"type": kind, "arguments": {}, **dict.fromkeys(("text", "name", "output"), "")}
    assert Part.from_dict(example).to_dict().keys() == {"type", *re.findall(r"`([a-z_]+)`", always)}


def test_condensed_example_is_how_a_message_is_condensed():
    content = b"x" * limits.PAYLOAD_THRESHOLD_BYTES
    message = Message("user", [AttachmentPart(Attachment("image/png", content=content))])
    condensed = condense(message)
    payload = sha256(content).hexdigest()
    assert condensed.raw.decode() == EXAMPLES[0].replace("<sha256 of the raw bytes>", payload)


def test_tombstone_example_is_one():
    tombstone = decode(Kind.MESSAGE, EXAMPLES[1].encode())
    assert isinstance(tombstone, Tombstone)
    assert encode(tombstone)[:2] == (Kind.MESSAGE, tombstone.id)
