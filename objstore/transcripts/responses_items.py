"""Items of OpenAI's Responses API as messages.

What the model gave between two inputs is one message, whatever the number of items: reasoning, text, calls,
the provider's own tools with what they found. Item ids and states are in the note; what must go back is in
provider_metadata under `openai`: a reasoning item's `id` and `encrypted_content`, `annotations`, `phase`, and
the `type` and other members of calls that are no plain function calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from objstore.attachment import Attachment
from objstore.jsonvalue import Json
from objstore.message import RAW_ARGUMENTS, ReasoningPart, ToolCallPart, ToolResultPart
from objstore.transcripts.build import attachment_of_base64, attachment_of_url, text_of
from objstore.transcripts.chains import Spoken
from objstore.transcripts.draft import Draft, mapping, sequence, string
from objstore.transcripts.warnings import Warner

SEPARATOR: Final = "\n\n"
"""Between the texts of one reasoning item."""

SERVER_CALLS: Final[Mapping[str, tuple[str, tuple[str, ...], str]]] = {
    "web_search_call": ("web_search", ("action",), ""),
    "file_search_call": ("file_search", ("queries",), "results"),
    "code_interpreter_call": ("code_interpreter", ("code", "container_id"), "outputs"),
    "image_generation_call": ("image_generation", (), "result"),
}
"""The provider's own tools: name, the members that are arguments, the member that is the result."""

CLIENT_CALLS: Final[Mapping[str, tuple[str, str]]] = {
    "computer_call": ("computer", "action"),
    "local_shell_call": ("local_shell", "action"),
    "shell_call": ("shell", "action"),
    "apply_patch_call": ("apply_patch", "operation"),
}
"""Tools that the provider defines and the caller runs: name, the member that is the arguments."""

OUTPUTS: Final = frozenset(
    {"function_call_output", "custom_tool_call_output", *(f"{kind}_output" for kind in CLIENT_CALLS)}
)
ITEM_TYPES: Final = frozenset(
    {"reasoning", "function_call", "custom_tool_call", "mcp_call", "item_reference", "compaction"}
).union(SERVER_CALLS, CLIENT_CALLS, OUTPUTS)
"""Types of items beside messages."""


def messages_of(items: Iterable[tuple[Json, str]], warn: Warner, names: dict[str, str]) -> Iterator[Spoken]:
    """Messages from items and their places. `names` maps the ids of calls to tools and grows."""
    answer: Draft | None = None
    for given, place in items:
        item = {"role": "user", "content": given} if isinstance(given, str) else mapping(given)
        if not item:
            warn("not-an-item", place, type(given).__name__)
            continue
        kind, role = string(item.get("type")), string(item.get("role"))
        is_message = kind == "message" or (kind is None and role is not None)
        if (is_message and role != "assistant") or kind in OUTPUTS:
            if answer is not None:
                yield Spoken(answer)
                answer = None
            said = Draft("tool" if kind in OUTPUTS else role or "user", place, warn)
            _READERS["message" if is_message else "output"](said, item, names)
            yield Spoken(said)
            continue
        answer = answer or Draft("assistant", place, warn)
        _READERS.get("message" if is_message else kind or "", _unknown)(answer, item, names)
    if answer is not None:
        yield Spoken(answer)


def _unknown(draft: Draft, item: Mapping[str, Json], names: dict[str, str]) -> None:
    draft.unknown(item, "unknown-item")


def _compaction(draft: Draft, item: Mapping[str, Json], names: dict[str, str]) -> None:
    draft.unknown(item, "compaction-item")


def _message(draft: Draft, item: Mapping[str, Json], names: dict[str, str]) -> None:
    content, item_id = item.get("content"), string(item.get("id"))
    phase, start = string(item.get("phase")), len(draft.parts)
    for block in content if isinstance(content, list) else [content]:
        if block is not None:
            # One answer may be several message items: what tells them apart.
            draft.extra(item=item_id or start or None, status=item.get("status"))
            _block(draft, {"type": "text", "text": block} if isinstance(block, str) else block, phase)


def _block(draft: Draft, block: Json, phase: str | None = None) -> None:
    about = mapping(block)
    kind = about.get("type")
    if kind in _TEXTS and isinstance(about.get("text"), str):
        draft.extra(logprobs=about.get("logprobs") or None)
        annotations = about.get("annotations") or None
        draft.text(about["text"], draft.sendable("openai", {"annotations": annotations, "phase": phase}))
    elif kind == "refusal" and isinstance(about.get("refusal"), str):
        draft.text(about["refusal"], {"openai": {"refusal": True}})
    elif (attachment := _attachment(about)) is not None:
        draft.extra(detail=about.get("detail"))
        draft.attach(attachment)
    else:
        draft.unknown(block)


_TEXTS: Final = ("input_text", "output_text", "text", "summary_text")


def _attachment(block: Mapping[str, Json]) -> Attachment | None:
    kind = block.get("type")
    if kind in ("input_image", "computer_screenshot"):
        if url := string(block.get("image_url")):
            return attachment_of_url(url, "image/*")
        file_id = string(block.get("file_id"))
        return Attachment("image/*", url=file_id) if file_id else None
    if kind == "input_audio":
        audio = mapping(block.get("input_audio")) or block
        return attachment_of_base64(audio.get("data"), f"audio/{string(audio.get('format')) or '*'}")
    if kind != "input_file":
        return None
    data, url = string(block.get("file_data")), string(block.get("file_url")) or string(block.get("file_id"))
    if data is not None:
        made = attachment_of_url(data) if data.startswith("data:") else attachment_of_base64(data)
    else:
        made = Attachment(url=url) if url else None
    name = string(block.get("filename"))
    return Attachment(made.type, made.url, name, made.content) if made is not None and name else made


def _reasoning(draft: Draft, item: Mapping[str, Json], names: dict[str, str]) -> None:
    summary, content = (
        [text for block in sequence(item.get(key)) if (text := string(mapping(block).get("text"))) is not None]
        for key in ("summary", "content")
    )
    text = SEPARATOR.join([*summary, *content])
    if len(summary) > 1 or content:
        draft.extra(
            lengths={"summary": [len(each) for each in summary], "content": [len(each) for each in content]}
        )
    draft.extra(status=item.get("status"))
    encrypted = item.get("encrypted_content")
    metadata = draft.sendable("openai", {"id": item.get("id"), "encrypted_content": encrypted})
    draft.parts.append(ReasoningPart(text, redacted=bool(encrypted) and not text, provider_metadata=metadata))


def _function_call(draft: Draft, item: Mapping[str, Json], names: dict[str, str]) -> None:
    name, call_id = string(item.get("name")) or "", string(item.get("call_id"))
    draft.extra(id=item.get("id"), status=item.get("status"), namespace=item.get("namespace"))
    draft.call(name, item.get("arguments"), call_id)
    names[call_id or ""] = name


def _custom_call(draft: Draft, item: Mapping[str, Json], names: dict[str, str]) -> None:
    name, call_id = string(item.get("name")) or "", string(item.get("call_id"))
    draft.extra(id=item.get("id"), status=item.get("status"))
    arguments = {RAW_ARGUMENTS: text_of(item.get("input"))}
    draft.parts.append(ToolCallPart(name, arguments, call_id, provider_metadata={"openai": {"type": "custom"}}))
    names[call_id or ""] = name


def _client_call(draft: Draft, item: Mapping[str, Json], names: dict[str, str]) -> None:
    kind = str(item["type"])
    name, member = CLIENT_CALLS[kind]
    call_id = string(item.get("call_id")) or string(item.get("id"))
    draft.extra(id=item.get("id"))
    rest = {key: value for key, value in item.items() if key not in ("id", "call_id", member)}
    metadata = draft.sendable("openai", rest)
    draft.parts.append(ToolCallPart(name, mapping(item.get(member)), call_id, provider_metadata=metadata))
    names[call_id or ""] = name


def _server_call(draft: Draft, item: Mapping[str, Json], names: dict[str, str]) -> None:
    kind, call_id = str(item["type"]), string(item.get("id"))
    name, members, member = SERVER_CALLS[kind]
    if kind == "web_search_call":
        arguments = mapping(item.get("action"))
        members = ("action",) if isinstance(item.get("action"), dict) else ()
    else:
        arguments = {key: item[key] for key in members if item.get(key) is not None}
    result = item.get(member)
    rest = {key: value for key, value in item.items() if key not in ("id", *members, member)}
    metadata = draft.sendable("openai", rest)
    draft.parts.append(ToolCallPart(name, arguments, call_id, True, metadata))
    if kind == "image_generation_call":
        image = attachment_of_base64(result, f"image/{string(item.get('output_format')) or 'png'}")
        if image is not None:
            draft.parts.append(ToolResultPart(name, "", call_id, True, attachments=[image]))
    elif result is not None:
        draft.parts.append(ToolResultPart(name, text_of(result), call_id, True))


def _mcp_call(draft: Draft, item: Mapping[str, Json], names: dict[str, str]) -> None:
    name, call_id = string(item.get("name")) or "", string(item.get("id"))
    rest = {key: value for key, value in item.items() if key not in ("id", "name", "arguments", "output", "error")}
    metadata = draft.sendable("openai", rest)
    draft.call(name, item.get("arguments"), call_id, metadata, server=True)
    output, error = item.get("output"), item.get("error")
    if output is not None or error is not None:
        if error is not None and not isinstance(error, str):
            draft.extra(error=error)
        exception = None if error is None else text_of(error)
        draft.parts.append(ToolResultPart(name, text_of(output), call_id, True, exception))


def _output(draft: Draft, item: Mapping[str, Json], names: dict[str, str]) -> None:
    call_id = string(item.get("call_id"))
    given = item.get("output")
    kind = item["type"]
    draft.extra(
        id=item.get("id"),
        status=item.get("status"),
        item_type=kind if kind != "function_call_output" else None,
        more={key: value for key, value in item.items() if key not in _OUTPUT_MEMBERS} or None,
    )
    output, attachments, rest = tool_output(draft, given)
    name = names.get(call_id or "", "")
    draft.parts.append(ToolResultPart(name, output, call_id, attachments=attachments))
    for each in rest:
        draft.unknown(each)


_OUTPUT_MEMBERS: Final = ("type", "id", "call_id", "status", "output")


def tool_output(draft: Draft, given: Json) -> tuple[str, list[Attachment], list[Json]]:
    """A call's output: its text, its images and files, and the blocks that are neither."""
    if given is None or isinstance(given, str):
        return given or "", [], []
    blocks: Sequence[Json] = given if isinstance(given, list) else [given]
    texts, attachments, rest = [], [], []
    for block in blocks:
        about = mapping(block)
        if isinstance(block, str):
            texts.append(block)
        elif about.get("type") in _TEXTS and isinstance(about.get("text"), str):
            texts.append(about["text"])
        elif (attachment := _attachment(about)) is not None:
            attachments.append(attachment)
        else:
            rest.append(block)
    if isinstance(given, list) or attachments:
        return "".join(texts), attachments, rest
    draft.extra(json=True)
    return text_of(given), [], []


_READERS: Final[Mapping[str, Callable[[Draft, Mapping[str, Json], dict[str, str]], None]]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _function_call,
    "custom_tool_call": _custom_call,
    "mcp_call": _mcp_call,
    "compaction": _compaction,
    "output": _output,
    **dict.fromkeys(SERVER_CALLS, _server_call),
    **dict.fromkeys(CLIENT_CALLS, _client_call),
}
