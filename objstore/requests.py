"""Raw provider requests and responses, cut down to what a call keeps of them.

An allow-list decides: what isn't named here is not kept. So no header, key, token, user id or answer's text
gets into a call by a name that nobody thought of. The message list is taken out whole, for it is the chain
already: what is left has the same size after one turn and after a thousand. Instructions and tools that
travel beside the list come apart, to be stored once and named by id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from objstore.jsonvalue import Json, freeze, freeze_object
from objstore.limits import MAX_TEXT_FIELD_CHARS
from objstore.message import Message, Part, TextPart, UnknownPart
from refs.errors import InvalidValue


class Api(StrEnum):
    """Whose request or response it is."""

    OPENAI_CHAT = "openai-chat"
    OPENAI_RESPONSES = "openai-responses"
    ANTHROPIC = "anthropic-messages"
    GEMINI = "gemini"


@dataclass(frozen=True, slots=True)
class RequestParts:
    """A request without its messages. `options` shape the answer, `request` is what else was asked.

    `instructions` and `tools` (a JSON list) travelled beside the messages; None where there were none.
    """

    api: Api
    model: str | None
    request: Mapping[str, Json]
    options: Mapping[str, Json]
    instructions: Message | None
    tools: Json | None


@dataclass(frozen=True, slots=True)
class ResponseParts:
    """A response without its messages. Token counts as the provider counts; `error` on one line.

    OpenAI's and Gemini's input tokens hold the cached ones, Anthropic's do not. Gemini's output tokens are
    answer and thoughts together, as those of the others are.
    """

    response: Mapping[str, Json]
    resolved_model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    token_details: Mapping[str, Json] | None = None
    error: str | None = None


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Gemini's names are compared in camel case; its client library writes them with underscores.
_OPTIONS: Final = {
    Api.OPENAI_CHAT: _words(
        "temperature top_p top_k min_p max_tokens max_completion_tokens stop seed n presence_penalty"
        " frequency_penalty repetition_penalty logit_bias logprobs top_logprobs reasoning_effort verbosity"
        " tool_choice parallel_tool_calls function_call response_format modalities"
    ),
    Api.OPENAI_RESPONSES: _words(
        "temperature top_p max_output_tokens max_tool_calls top_logprobs reasoning text tool_choice"
        " parallel_tool_calls truncation"
    ),
    Api.ANTHROPIC: _words(
        "temperature top_p top_k max_tokens stop_sequences thinking tool_choice output_config output_format"
    ),
    Api.GEMINI: _words(
        "temperature topP topK candidateCount maxOutputTokens stopSequences seed presencePenalty"
        " frequencyPenalty responseMimeType responseSchema responseJsonSchema responseLogprobs logprobs"
        " responseModalities mediaResolution thinkingConfig functionCallingConfig"
    ),
}
_REQUEST: Final = {
    Api.OPENAI_CHAT: _words("stream stream_options store service_tier prompt_cache_retention"),
    Api.OPENAI_RESPONSES: _words(
        "stream store background include service_tier previous_response_id prompt_cache_retention"
    ),
    Api.ANTHROPIC: _words("stream service_tier context_management inference_geo"),
    Api.GEMINI: _words("safetySettings cachedContent"),
}
_RESPONSE: Final = {
    Api.OPENAI_CHAT: _words("id created service_tier system_fingerprint provider"),
    Api.OPENAI_RESPONSES: _words(
        "id created_at completed_at status incomplete_details service_tier previous_response_id"
    ),
    Api.ANTHROPIC: _words("id stop_reason stop_sequence context_management"),
    Api.GEMINI: _words("responseId createTime"),
}
_ENDING: Final = {
    Api.OPENAI_CHAT: ("choices", _words("index finish_reason native_finish_reason")),
    Api.GEMINI: ("candidates", _words("index finishReason")),
}
# A hosted tool's address, headers, tokens and the user's place stay out; so do cache marks, which move.
_TOOL: Final = _words(
    "type name description parameters strict function custom format"
    " inputSchema inputExamples allowedCallers deferLoading maxUses allowedDomains blockedDomains"
    " maxCharacters displayWidthPx displayHeightPx vectorStoreIds maxNumResults searchContextSize"
    " serverLabel serverDescription allowedTools requireApproval"
    " functionDeclarations googleSearch googleSearchRetrieval codeExecution urlContext"
)
_KEYS: Final = re.compile(r"(?i)\b(?:sk|pk|rk|gsk|xai)-[\w*-]{8,}|\bAIza[\w-]{16,}|\bbearer\s+[\w.~+/=-]{8,}")


def split_request(raw: Mapping[str, Any], api: Api | None = None) -> RequestParts:
    """The body of a request, in parts. `api=None` tells it by its keys, or raises `InvalidValue`."""
    api = api or _api_of_request(raw)
    shaping = [_member(raw, "generationConfig"), _member(raw, "toolConfig")] if api is Api.GEMINI else [raw]
    config = {key: value for each in shaping if isinstance(each, Mapping) for key, value in each.items()}
    tools = raw.get("tools", raw.get("functions"))
    return RequestParts(
        api=api,
        model=_string(raw.get("model")),
        request=_kept(raw, _REQUEST[api], "request"),
        options=_kept(config, _OPTIONS[api], "options"),
        instructions=_instructions(raw, api),
        tools=freeze([_tool(tool) for tool in tools], "tools")
        if isinstance(tools, list | tuple) and tools
        else None,
    )


def split_response(raw: Mapping[str, Any], api: Api | None = None) -> ResponseParts:
    """The body of a whole response, or of an error, in parts. `api` as in `split_request`."""
    error = error_line(raw.get("error"))
    if api is None:
        api = _api_of_response(raw)
        if api is None:
            if error is None:
                raise InvalidValue("", "not a response of a provider that is known here")
            return ResponseParts(freeze_object({}, ""), error=error)
    response = dict(_kept(raw, _RESPONSE[api], "response"))
    if api in _ENDING:
        name, members = _ENDING[api]
        endings = raw.get(name)
        if isinstance(endings, list | tuple):
            response[name] = [_kept(each, members, name) for each in endings if isinstance(each, Mapping)]
    usage = _member(raw, "usageMetadata" if api is Api.GEMINI else "usage")
    usage = usage if isinstance(usage, Mapping) else {}
    if api is Api.ANTHROPIC and isinstance(usage.get("service_tier"), str):
        response["service_tier"] = usage["service_tier"]
    inputs, outputs = _COUNTS[api]
    details = _details(usage, {*inputs[:1], *outputs[:1], *_TOTALS})
    return ResponseParts(
        response=freeze_object(response, "response"),
        resolved_model=_string(raw.get("model") if api is not Api.GEMINI else _member(raw, "modelVersion")),
        input_tokens=_sum(usage, inputs),
        output_tokens=_sum(usage, outputs),
        token_details=freeze_object(details, "token_details") if details else None,
        error=error,
    )


# The counts that make up input and output; the first of each is no detail besides.
_COUNTS: Final = {
    Api.OPENAI_CHAT: (("prompt_tokens",), ("completion_tokens",)),
    Api.OPENAI_RESPONSES: (("input_tokens",), ("output_tokens",)),
    Api.ANTHROPIC: (("input_tokens",), ("output_tokens",)),
    Api.GEMINI: (("promptTokenCount", "toolUsePromptTokenCount"), ("candidatesTokenCount", "thoughtsTokenCount")),
}
_TOTALS: Final = ("total_tokens", "totalTokenCount")


def _api_of_request(raw: Mapping[str, Any]) -> Api:
    if "contents" in raw:
        return Api.GEMINI
    if "messages" in raw:
        model = raw.get("model")
        if raw.keys() & {"system", "stop_sequences", "thinking", "anthropic_version"} or (
            isinstance(model, str) and "claude" in model and "max_tokens" in raw
        ):
            return Api.ANTHROPIC
        return Api.OPENAI_CHAT
    if raw.keys() & {"input", "previous_response_id"}:
        return Api.OPENAI_RESPONSES
    raise InvalidValue("", "not a request of a provider that is known here")


def _api_of_response(raw: Mapping[str, Any]) -> Api | None:
    if "choices" in raw:
        return Api.OPENAI_CHAT
    if "output" in raw:
        return Api.OPENAI_RESPONSES
    if "stop_reason" in raw:
        return Api.ANTHROPIC
    if any(_camel(key) in {"candidates", "usageMetadata", "promptFeedback"} for key in raw):
        return Api.GEMINI
    return None


def _camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)


def _member(raw: Mapping[str, Any], camel: str) -> Any:
    """A member under its name in camel case or with underscores."""
    return next((value for key, value in raw.items() if isinstance(key, str) and _camel(key) == camel), None)


def _kept(raw: Mapping[str, Any], allowed: frozenset[str], path: str) -> Mapping[str, Json]:
    kept = {
        key: value
        for key, value in raw.items()
        if isinstance(key, str) and value is not None and (key in allowed or _camel(key) in allowed)
    }
    return freeze_object(kept, path)


def _tool(tool: object) -> Json:
    return _kept(tool, _TOOL, "tools") if isinstance(tool, Mapping) else tool


def _instructions(raw: Mapping[str, Any], api: Api) -> Message | None:
    name = {Api.OPENAI_RESPONSES: "instructions", Api.ANTHROPIC: "system", Api.GEMINI: "systemInstruction"}.get(
        api
    )
    given = None if name is None else _member(raw, name)
    if isinstance(given, Mapping):
        given = given.get("parts")
    pieces = [given] if isinstance(given, str) and given else given
    if not isinstance(pieces, Iterable) or isinstance(pieces, Mapping):
        return None
    parts = [_piece(piece) for piece in pieces]
    return Message("system", parts) if parts else None


def _piece(piece: object) -> Part:
    if isinstance(piece, str):
        return TextPart(piece)
    if not isinstance(piece, Mapping):
        raise InvalidValue("instructions", f"neither text nor an object: {type(piece).__name__}")
    words = piece.get("text")
    return TextPart(words) if isinstance(words, str) else UnknownPart(piece)


def _string(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _sum(usage: Mapping[str, Any], names: Iterable[str]) -> int | None:
    counts = [count for name in names if (count := _count(_member(usage, _camel(name)))) is not None]
    return sum(counts) if counts else None


def _details(usage: Mapping[str, Any], known: set[str]) -> dict[str, Json]:
    """The other counts, one level deep. A float, a list or a word is no count."""
    found: dict[str, Json] = {}
    for key, value in usage.items():
        if not isinstance(key, str) or key in known or _camel(key) in known:
            continue
        if isinstance(value, Mapping):
            inner = {name: count for name, each in value.items() if (count := _count(each)) is not None}
            if inner:
                found[key] = inner
        elif (count := _count(value)) is not None:
            found[key] = count
    return found


def error_line(error: object) -> str | None:
    """Kind and message on one line, without anything that looks like a key: some servers send it back."""
    if isinstance(error, Mapping):
        kind = next((str(error[key]) for key in ("type", "status", "code") if error.get(key)), "error")
        error = f"{kind}: {error.get('message') or ''}".removesuffix(": ")
    if not isinstance(error, str) or not error:
        return None
    return " ".join(_KEYS.sub("[key]", error).split())[:MAX_TEXT_FIELD_CHARS]
