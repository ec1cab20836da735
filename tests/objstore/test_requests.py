"""What a call keeps of a request and a response: by allow-list, and never the history."""

import json
import re
from pathlib import Path

import pytest

from objstore.jsonvalue import dumps
from objstore.message import Message, TextPart, UnknownPart
from objstore.requests import Api, split_request, split_response
from refs.errors import InvalidValue

SECRET = "hush-this-is-secret"
FUNCTION = {"type": "object", "properties": {"headers": {"type": "string"}, "authorization": {"type": "string"}}}


def history(turns):
    return [{"role": ("user", "assistant")[i % 2], "content": f"turn {i}"} for i in range(turns)]


def requests(turns=2):
    """One request of each provider, with everything in it that must not be kept."""
    messages = history(turns)
    leaks = {
        "api_key": SECRET,
        "headers": {"authorization": SECRET},
        "extra_headers": {"x-api-key": SECRET},
        "extra_body": {"key": SECRET},
        "metadata": {"user_id": SECRET},
        "user": SECRET,
    }
    return {
        Api.OPENAI_CHAT: {
            "model": "gpt-x",
            "messages": messages,
            "temperature": 0.5,
            "max_tokens": None,
            "stream": True,
            "tools": [
                {"type": "function", "function": {"name": "get", "parameters": FUNCTION}},
            ],
            "prediction": {"content": SECRET},
            **leaks,
        },
        Api.OPENAI_RESPONSES: {
            "model": "gpt-x",
            "input": messages,
            "instructions": "Be brief.",
            "reasoning": {"effort": "high"},
            "store": False,
            "tools": [
                {"type": "function", "name": "get", "parameters": FUNCTION},
                {
                    "type": "mcp",
                    "server_label": "shop",
                    "server_url": f"https://shop.example/?key={SECRET}",
                    "authorization": SECRET,
                    "headers": {"x-key": SECRET},
                },
            ],
            **leaks,
        },
        Api.ANTHROPIC: {
            "model": "claude-x",
            "messages": messages,
            "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
            "max_tokens": 1024,
            "thinking": {"type": "enabled", "budget_tokens": 512},
            "tools": [{"name": "get", "input_schema": FUNCTION, "cache_control": {"type": "ephemeral"}}],
            "mcp_servers": [{"url": "https://shop.example", "authorization_token": SECRET}],
            **leaks,
        },
        Api.GEMINI: {
            "contents": [{"role": "user", "parts": [{"text": each["content"]}]} for each in messages],
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "generationConfig": {"temperature": 0.5, "maxOutputTokens": 100, "apiKey": SECRET},
            "toolConfig": {"functionCallingConfig": {"mode": "ANY"}, "retrievalConfig": {"languageCode": SECRET}},
            "tools": [
                {"functionDeclarations": [{"name": "get", "parameters": FUNCTION}]},
                {"retrieval": {"externalApi": {"apiAuth": SECRET}}},
            ],
            **leaks,
        },
    }


def written(parts):
    """All that is kept of a request, as bytes."""
    kept = [dumps(parts.request), dumps(parts.options), dumps(parts.tools)]
    return b"".join(kept + ([dumps(parts.instructions.to_dict())] if parts.instructions else []))


@pytest.mark.parametrize("api", Api)
def test_no_key_header_or_user_is_kept(api):
    assert SECRET.encode() not in written(split_request(requests()[api]))


@pytest.mark.parametrize("api", Api)
def test_what_is_kept_has_the_same_size_however_long_the_history(api):
    short, long = (split_request(requests(turns)[api]) for turns in (2, 2000))
    assert written(short) == written(long)
    assert b"turn 1" not in written(short)


@pytest.mark.parametrize("api", Api)
def test_a_request_is_told_by_its_keys(api):
    assert split_request(requests()[api]).api is api


@pytest.mark.parametrize("api", Api)
def test_a_functions_own_parameters_are_kept_whole_whatever_they_are_called(api):
    assert dumps(FUNCTION) in dumps(split_request(requests()[api]).tools)


@pytest.mark.parametrize("api", [Api.OPENAI_RESPONSES, Api.ANTHROPIC, Api.GEMINI])
def test_instructions_beside_the_messages_become_a_message(api):
    assert split_request(requests()[api]).instructions == Message.of("system", "Be brief.")


def test_openai_chat_has_its_instructions_in_the_messages():
    assert split_request(requests()[Api.OPENAI_CHAT]).instructions is None


def test_what_shapes_the_answer_is_told_apart_from_the_rest():
    parts = split_request(requests()[Api.OPENAI_CHAT])
    assert parts.model == "gpt-x"
    assert parts.options == {"temperature": 0.5}, "a null says nothing"
    assert parts.request == {"stream": True}

    gemini = split_request(requests()[Api.GEMINI])
    assert gemini.options == {
        "temperature": 0.5,
        "maxOutputTokens": 100,
        "functionCallingConfig": {"mode": "ANY"},
    }
    assert (gemini.model, gemini.request) == (None, {})


def test_names_with_underscores_are_geminis_too():
    parts = split_request(
        {
            "contents": [],
            "system_instruction": {"parts": [{"text": "a"}, {"text": "b"}]},
            "generation_config": {"top_k": 3},
            "tools": [{"function_declarations": []}],
        }
    )
    assert parts.options == {"top_k": 3}
    assert parts.tools == [{"function_declarations": []}]
    assert [part.text for part in parts.instructions.parts] == ["a", "b"]


def test_a_hosted_tool_keeps_its_name_and_loses_its_address():
    assert split_request(requests()[Api.OPENAI_RESPONSES]).tools[1] == {"type": "mcp", "server_label": "shop"}


def test_a_cache_mark_does_not_make_other_tools_or_instructions():
    marked, plain = requests()[Api.ANTHROPIC], requests()[Api.ANTHROPIC]
    del plain["system"][0]["cache_control"], plain["tools"][0]["cache_control"]
    assert split_request(marked).tools == split_request(plain).tools
    assert split_request(marked).instructions == split_request(plain).instructions


def test_instructions_that_are_no_text_are_kept_as_they_are():
    image = {"type": "image", "source": {"url": "https://pictures.example/1"}}
    parts = split_request({"messages": [], "system": ["Look.", image]})
    assert parts.instructions == Message("system", [TextPart("Look."), UnknownPart(image)])
    assert split_request({"messages": [], "system": ""}).instructions is None


def test_what_is_no_request_or_response_is_refused():
    with pytest.raises(InvalidValue):
        split_request({"model": "m"})
    with pytest.raises(InvalidValue):
        split_response({"model": "m"})
    with pytest.raises(InvalidValue):
        split_request({"messages": [], "temperature": float("nan")})


# -- responses

RESPONSES = {
    Api.OPENAI_CHAT: {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-x-2026",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"content": SECRET},
                "logprobs": {"content": [SECRET]},
            }
        ],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": None},
            "cost": 0.1,
        },
    },
    Api.OPENAI_RESPONSES: {
        "id": "r1",
        "status": "completed",
        "model": "gpt-x-2026",
        "instructions": SECRET,
        "tools": [SECRET],
        "output": [{"type": "message", "content": SECRET}],
        "error": None,
        "usage": {
            "input_tokens": 10,
            "output_tokens": 5,
            "total_tokens": 15,
            "output_tokens_details": {"reasoning_tokens": 3},
        },
    },
    Api.ANTHROPIC: {
        "id": "m1",
        "type": "message",
        "model": "gpt-x-2026",
        "content": [{"type": "text", "text": SECRET}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "output_tokens": 5,
            "cache_read_input_tokens": 7,
            "cache_creation": {"ephemeral_5m_input_tokens": 2},
            "service_tier": "standard",
        },
    },
    Api.GEMINI: {
        "responseId": "g1",
        "modelVersion": "gpt-x-2026",
        "candidates": [{"index": 0, "finishReason": "STOP", "content": {"parts": [{"text": SECRET}]}}],
        "usageMetadata": {
            "promptTokenCount": 9,
            "toolUsePromptTokenCount": 1,
            "candidatesTokenCount": 3,
            "thoughtsTokenCount": 2,
            "totalTokenCount": 15,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 9}],
        },
    },
}


@pytest.mark.parametrize("api", Api)
def test_a_response_keeps_its_counts_and_model_and_not_its_answer(api):
    parts = split_response(RESPONSES[api])
    assert (parts.input_tokens, parts.output_tokens, parts.resolved_model) == (10, 5, "gpt-x-2026")
    assert parts.error is None
    assert SECRET.encode() not in dumps(parts.response) + dumps(parts.token_details)


def test_how_the_answer_ended_is_kept():
    kept = {api: split_response(raw).response for api, raw in RESPONSES.items()}
    assert kept[Api.OPENAI_CHAT] == {"id": "c1", "created": 1, "choices": [{"index": 0, "finish_reason": "stop"}]}
    assert kept[Api.OPENAI_RESPONSES] == {"id": "r1", "status": "completed"}
    assert kept[Api.ANTHROPIC] == {"id": "m1", "stop_reason": "end_turn", "service_tier": "standard"}
    assert kept[Api.GEMINI] == {"responseId": "g1", "candidates": [{"index": 0, "finishReason": "STOP"}]}


def test_every_other_count_becomes_a_detail():
    kept = {api: split_response(raw).token_details for api, raw in RESPONSES.items()}
    assert kept[Api.OPENAI_CHAT] == {"prompt_tokens_details": {"cached_tokens": 4}}
    assert kept[Api.OPENAI_RESPONSES] == {"output_tokens_details": {"reasoning_tokens": 3}}
    assert kept[Api.ANTHROPIC] == {
        "cache_read_input_tokens": 7,
        "cache_creation": {"ephemeral_5m_input_tokens": 2},
    }
    assert kept[Api.GEMINI] == {"toolUsePromptTokenCount": 1, "thoughtsTokenCount": 2}


def test_a_response_without_usage_knows_no_counts():
    parts = split_response({"choices": []})
    assert (parts.input_tokens, parts.output_tokens, parts.token_details) == (None, None, None)


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "Over\nloaded"}},
            "overloaded_error: Over loaded",
        ),
        ({"error": {"code": 429, "message": "slow", "status": "EXHAUSTED"}}, "EXHAUSTED: slow"),
        ({"error": {"code": "bad"}}, "bad"),
        ({"error": "no such model"}, "no such model"),
        ({"output": [], "error": {"code": "server_error", "message": "x"}}, "server_error: x"),
    ],
)
def test_an_error_is_one_line(raw, error):
    assert split_response(raw).error == error


@pytest.mark.parametrize(
    "key", ["sk-proj-abcDEF123456", "AIza" + "x" * 35, "Bearer abc.def-123456", "sk-ab***********yz"]
)
def test_a_key_that_a_server_sends_back_in_its_error_is_not_kept(key):
    parts = split_response({"error": {"type": "auth", "message": f"Incorrect API key provided: {key}."}})
    assert parts.error.startswith("auth: Incorrect API key provided: [key]")
    assert "123456" not in parts.error
    assert "xxx" not in parts.error


# -- real traffic

_DATA = Path(__file__).parents[3] / "shared" / "data"
_needs_data = pytest.mark.skipif(not _DATA.exists(), reason="the sample data is not beside this repository")


@_needs_data
def test_recorded_anthropic_traffic_splits():
    exchanges = [
        exchange
        for path in sorted((_DATA / "anthropic-messages").glob("*.json"))
        for exchange in json.loads(path.read_text())
    ]
    assert exchanges
    for exchange in exchanges:
        asked, answered = exchange["request"]["body"], exchange["response"]["body"]
        parts = split_request(asked)
        assert parts.api is Api.ANTHROPIC
        assert parts.model == asked["model"]
        assert len(parts.tools or ()) == len(asked.get("tools", ()))
        if isinstance(answered, dict):
            response = split_response(answered)
            assert response.input_tokens == answered["usage"]["input_tokens"]
            assert response.response["stop_reason"] == answered["stop_reason"]


@_needs_data
@pytest.mark.parametrize("api", [Api.OPENAI_CHAT, Api.OPENAI_RESPONSES])
def test_recorded_openai_requests_are_told_apart(api):
    found = 0
    for path in sorted((_DATA / api).glob("llm-cassette*.yaml")):
        for folded in re.findall(r"^    body: '(\{.*?\})'$", path.read_text(), re.MULTILINE | re.DOTALL):
            # A single-quoted YAML scalar: '' is a quote, and a line's end with its indent one space.
            body = json.loads(re.sub(r"\n +", " ", folded).replace("''", "'"), strict=False)
            assert split_request(body).api is api
            found += 1
    assert found
