"""All real samples through the program: what the manifest and the log of damage say is what the store holds."""

import csv
import re

import pytest

from objstore.canonical import message_content_hash
from objstore.importing import Importer, Options
from objstore.ingest import Ingested
from objstore.kinds import Kind
from objstore.node import node_id
from objstore.transcripts import registry
from objstore.transcripts.files import open_source
from objstore.transcripts.model import Transcript
from tests.cli.conftest import DATA, needs_data
from tests.storetools import init_quiet
from tests.transcripts.test_manifest import EXPLAINED, is_transcript, rows

DAMAGED = DATA / "damaged"


def imported(store, path, **options):
    events = []
    with Importer(store, Options(**options), events.append) as importer:
        report = importer.add(str(path))
    return report, [each for each in events if isinstance(each, Ingested)], events


@pytest.mark.skipif(not rows(), reason="the shared data is not beside this checkout")
@pytest.mark.parametrize("row", [each for each in rows() if is_transcript(each)], ids=lambda row: row["file"])
def test_a_sample_is_held_as_it_was_read_and_its_conversations_are_those_of_its_manifest(tmp_path, row):
    path = DATA / row["file"]
    with init_quiet(tmp_path / "store") as store:
        report, done, _ = imported(store, path)
        conversations = EXPLAINED[row["file"]][0] if row["file"] in EXPLAINED else row["conversations"]
        assert str(conversations) in (str(report.conversations), "-")
        assert report.messages == sum(each.messages for each in done)
        [found] = registry.detect(open_source(path)).found
        read = [each for each in registry.read(found.format, found.source) if isinstance(each, Transcript)]
        ends = {leaf for transcript in read for leaf in leaves(transcript)}
        heads = {each.head for each in store.conversations()}
        # A leaf that another transcript of the file goes on from is no head.
        assert heads <= ends
        assert all(any(leaf in {e.id for e in store.walk(head)} for head in heads) for leaf in ends - heads)


def leaves(transcript):
    """The nodes of the last messages, worked out by the definition of a node's id alone."""
    ids = {}
    inner = set()
    for entry in transcript.entries:
        parent = "root" if entry.parent is None else ids[entry.parent]
        caller = ids.get(entry.called_by)
        ids[entry.key] = node_id(
            parent, message_content_hash(entry.message), caller, entry.tool_call_id if caller else None
        )
        inner.add(parent)
    return set(ids.values()) - inner


def cases():
    path = DAMAGED / "LOG.tsv"
    if not path.exists():
        return []
    with path.open(newline="") as stream:
        return [row for row in csv.DictReader(stream, delimiter="\t") if row["file"]]


def said(row):
    """What the log says of a case: {"conversations": 1, "messages": 5, …}, and the kinds of its warnings."""
    result = row["right import result"]
    return {name: int(number) for name, number in re.findall(r"(conversations|messages|heads)=(\d+)", result)}


@needs_data
@pytest.mark.parametrize("row", cases(), ids=lambda row: row["file"])
def test_a_damaged_file_gives_what_the_log_says_through_the_store(tmp_path, row):
    path = DAMAGED / row["file"]
    if "both shard files" in row["right import result"]:
        folder = tmp_path / "shards"
        folder.mkdir()
        for each in sorted(DAMAGED.glob(f"{row['id']}-*")):
            (folder / each.name.partition("sharded-")[2]).write_bytes(each.read_bytes())
        path = folder
    with init_quiet(tmp_path / "store") as store:
        report, _, events = imported(store, path)
        got = {
            "conversations": report.conversations,
            "messages": sum(1 for _ in store.storage.database.ids(Kind.NODE)),
            "heads": sum(1 for _ in store.conversations()),
        }
        expected = said(row)
        assert {name: got[name] for name in expected} == expected, (got, events)
        for each in store.conversations():
            assert store.load_chain(each.head)
