"""Any value of a transcript may be of another type than it should: readers go on, and writers write the rest."""

import pytest

from objstore.transcripts import (
    anthropic,
    gemini_contents,
    inspect_ai,
    oasst,
    openai_chat,
    openai_responses,
    openprogram,
    otel,
    sharegpt,
)
from objstore.transcripts.export.registry import writer
from tests.transcripts.conformance import read_files
from tests.transcripts.roundtrip import as_bytes, chains
from tests.transcripts.test_anthropic import TALK as ANTHROPIC
from tests.transcripts.test_gemini_contents import TALK as GEMINI
from tests.transcripts.test_inspect_ai import LOG
from tests.transcripts.test_oasst import TREE
from tests.transcripts.test_openai_chat import TOOLS
from tests.transcripts.test_openai_responses import MIXED
from tests.transcripts.test_openprogram import TALK as NODES
from tests.transcripts.test_otel import TALK as SPANS
from tests.transcripts.test_sharegpt import TALK as TURNS

WRONG = [None, True, -1.5, 10**400, "", [None], {"type": "text"}]
SAMPLES = {
    "openai-chat": (openai_chat, TOOLS, "openai"),
    "openai-responses": (openai_responses, MIXED, "responses"),
    "anthropic": (anthropic, ANTHROPIC, "anthropic"),
    "gemini-contents": (gemini_contents, GEMINI, "gemini"),
    "sharegpt": (sharegpt, [TURNS], "sharegpt"),
    "oasst": (oasst, [TREE], "markdown"),
    "otel": (otel, SPANS, "html"),
    "inspect-ai": (inspect_ai, LOG, "chatgpt"),
    "openprogram": (openprogram, NODES, "claude-code"),
}


def with_each_value_replaced(value, wrong):
    """The same document, once for each value in it, with `wrong` in that one's place."""
    if isinstance(value, dict):
        for key, inner in value.items():
            for changed in (wrong, *with_each_value_replaced(inner, wrong)):
                yield {**value, key: changed}
            yield {other: each for other, each in value.items() if other != key}
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            for changed in (wrong, *with_each_value_replaced(inner, wrong)):
                yield [*value[:i], changed, *value[i + 1 :]]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: repr(wrong)[:12])
@pytest.mark.parametrize("format", SAMPLES)
def test_a_value_of_the_wrong_type_costs_no_more_than_itself(format, wrong):
    module, sample, written_as = SAMPLES[format]
    write = writer(written_as)
    seen = set()
    for number, changed in enumerate(with_each_value_replaced(sample, wrong)):
        data = as_bytes(changed)
        if data in seen:
            continue
        seen.add(data)
        for transcript in read_files(module, {"a.json": data}).transcripts:
            if number % 7 == 0:
                for chain in chains(transcript):
                    write(chain, transcript.title)
