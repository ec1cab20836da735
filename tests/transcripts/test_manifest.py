"""Every real sample is read, and gives what its manifest says; where it doesn't, the table says why."""

import csv

import pytest

from objstore.transcripts import registry
from objstore.transcripts.files import open_source
from tests.transcripts.conformance import DATA, Outputs, check_transcript, read_source

FORMATS = {
    "chatgpt-export": "chatgpt",
    "claude-ai-export": "claude-ai",
    "anthropic-messages": "anthropic",
    "gemini-aistudio": "ai-studio",
    "llm-logs-db": "llm-logs",
    "otel-genai": "otel",
}
"""The manifest's names for formats, where they aren't ours."""

NOT_TRANSCRIPTS = {
    ".yaml": "recorded HTTP traffic; reading YAML would need one more dependency",
    "chitchat/": "a corpus of people's chats, read by the benchmark only",
    "other/": "formats that are not among those to be read",
}

EMPTY = "no record in it is a message: skipped, and said so"
JOINED = "what the model gave in one go, or the user in one prompt, is several chunks and one message"
SPLIT = "the manifest counts a call with its result as one message; here the result is a message of its own"
EXPLAINED = {
    # file: (conversations, messages, why)
    "claude-code/poly-claude-normalization-main.jsonl": (2, 11, "a second record under one uuid is not taken"),
    "claude-code/ccl17/claude-code__system__file_history_snapshot.jsonl": (0, 0, EMPTY),
    "claude-code/ccl17/claude-code__system__system_info.jsonl": (0, 0, EMPTY),
    "claude-code/ccl17/claude-code__system__summary.jsonl": (0, 0, EMPTY),
    "claude-code/ccl17/claude-code__system__queue_operation.jsonl": (0, 0, EMPTY),
    "codex/poly-interleaved_stream.jsonl": (1, 8, "a count of tokens stands there as an item"),
    "codex/poly-tool_call_stream.jsonl": (1, 4, "a count of tokens stands there as an item"),
    "codex/poly-text_only_stream.jsonl": (1, 2, "a count of tokens stands there as an item"),
    "gemini-cli/agentsview-gemini-system_messages.json": (1, 0, "info, warnings and errors are events"),
    "gemini-cli/letta-gemini-cli__cleanup__input.json": (1, 2, "telemetry is an event"),
    "gemini-cli/letta-gemini-cli__tool-calls__input.json": (1, 2, "info is an event"),
    "aider/aider-chat-history-first.md": (
        391,
        8084,
        "the other sessions are empty; 2 prompts end in a blank line",
    ),
    "gemini-aistudio/poly-multimodal_session.json": (1, 2, JOINED),
    "gemini-aistudio/poly-code_execution_session.json": (1, 2, JOINED),
    "gemini-aistudio/poly-multi_turn_prompt.json": (1, 4, JOINED),
    "gemini-aistudio/poly-code_execution_prompt.json": (1, 2, JOINED),
    "oasst/realistic_seed_data.json": (74, 444, "the manifest counts rows; they are 74 trees"),
    "openai-chat/taubench-MockRetailDomainEnv-few_shot.jsonl": (
        69,
        1955,
        "messages in one text, not counted there",
    ),
    "openai-chat/taubench-MockAirlineDomainEnv-few_shot.jsonl": (
        19,
        463,
        "messages in one text, not counted there",
    ),
    "openai-chat/tau2-voice-sim-7c6a3e3e.json": (0, 0, "1810 ticks of sound, no messages: skipped, and said so"),
    "opencode/letta-opencode__cleanup__input.json": (1, 4, SPLIT),
    "opencode/letta-opencode__tool-calls__input.json": (1, 4, SPLIT),
    "llm-logs-db/llm036-replayed-cassettes.db": (10, 52, "7 of the 45 messages stand in two threads"),
    "llm-logs-db/llm026-legacy.db": (4, 17, "the manifest counts responses: each is a prompt and an answer"),
    **dict.fromkeys(
        ("langchain/messages_to_dict.json", "langchain/dumpd_lc1.json", "langchain/model_dump_flat.json"),
        (1, 9, "a RemoveMessage is an order, not a message"),
    ),
}


def rows():
    path = DATA / "MANIFEST.tsv"
    if not path.exists():
        return []
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


def is_transcript(row):
    return not any(mark in row["file"] for mark in NOT_TRANSCRIPTS)


def counted(format, transcripts):
    """Messages as the manifest counts them: by the source's records."""
    entries = [entry for transcript in transcripts for entry in transcript.entries]
    if format == "claude-code":
        return sum(len(entry.note.get("records", "1")) for entry in entries)
    if format == "codex":
        return sum(entry.note.get("items", 1) for entry in entries)
    if format == "gemini-cli":
        return sum(not entry.key.endswith("/results") for entry in entries)
    if format == "aider":
        return sum(entry.message.text.count("\n") + 1 for entry in entries if entry.message.role == "user")
    return len(entries)


@pytest.mark.skipif(not rows(), reason="the shared data is not beside this checkout")
def test_the_table_names_files_of_the_manifest():
    assert EXPLAINED.keys() <= {row["file"] for row in rows() if is_transcript(row)}


@pytest.mark.parametrize("row", [each for each in rows() if is_transcript(each)], ids=lambda row: row["file"])
def test_a_sample_gives_what_its_manifest_says(row):
    format = FORMATS.get(row["format"], row["format"])
    [found] = registry.detect(open_source(DATA / row["file"])).found
    assert found.format == format
    outputs = read_source(registry.reader(format), lambda: found.source)
    expected = EXPLAINED.get(row["file"])
    conversations, messages = expected[:2] if expected else (row["conversations"], row["messages"])
    actual = len(outputs.transcripts), counted(format, outputs.transcripts)
    for said, got in zip((conversations, messages), actual, strict=True):
        assert said == "-" or int(said) == got, f"{actual}, not {conversations, messages}"


@pytest.mark.parametrize("row", [each for each in rows() if not is_transcript(each)], ids=lambda row: row["file"])
def test_a_file_of_another_format_does_no_harm(row):
    outputs = Outputs([], [])
    for found in registry.detect(open_source(DATA / row["file"])).found:
        for output in registry.read(found.format, found.source):
            if hasattr(output, "entries"):
                output.read_all()
                check_transcript(output, found.format)
                outputs.transcripts.append(output)
    assert len(outputs.transcripts) <= 1
