"""Import, export to the same format, import again: the messages are the same."""

import json

from objstore.transcripts.export.model import ExportEntry
from tests.transcripts.conformance import read_files


def chains(transcript):
    """For each head the entries from the first message to it, as a writer takes them."""
    by_key = {entry.key: entry for entry in transcript.entries}
    for head in transcript.heads:
        chain, key = [], head.key
        while key is not None:
            entry = by_key[key]
            chain.append(ExportEntry(entry.message, entry.at, entry.note, key))
            key = entry.parent
        yield chain[::-1]


def messages(transcript):
    return [entry.message for entry in transcript.entries]


def survives_export(module, write, transcript, name="again.json"):
    """Each chain of `transcript`, written and read again, has equal messages. Gives the losses told."""
    told = []
    for chain in chains(transcript):
        text, losses = write(chain, None)
        again = read_files(module, {name: text.encode("utf-8")}).transcripts
        assert len(again) == 1, text[:400]
        assert [m.to_dict() for m in messages(again[0])] == [entry.message.to_dict() for entry in chain]
        told += losses
    return told


def as_bytes(value):
    return json.dumps(value).encode()


def lines(*values):
    return b"".join(as_bytes(value) + b"\n" for value in values)
