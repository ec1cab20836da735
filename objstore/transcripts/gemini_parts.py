"""Parts of Gemini's contents, in camelCase or snake_case, as parts of a message.

A `thoughtSignature` is in provider_metadata under `google`: it must go back with its part. A function's answer
`{"output": "…"}` or `{"error": "…"}` is taken out of its wrapping; any other is kept as its JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from objstore.attachment import Attachment
from objstore.jsonvalue import Json
from objstore.message import ToolCallPart, ToolResultPart
from objstore.transcripts.build import attachment_of_base64, text_of
from objstore.transcripts.draft import Draft, mapping, sequence, string

PROVIDER: Final = "google"
SIGNATURE: Final = "thought_signature"
CODE: Final = "code_execution"
"""The name of Gemini's own tool; `executableCode` has none."""
OK: Final = "OUTCOME_OK"

_BESIDE: Final = ("videoMetadata", "mediaResolution", "partMetadata")


def member(value: Mapping[str, Json], name: str) -> Json:
    """A member by its camelCase name, or as the Python SDK writes it."""
    if name in value:
        return value[name]
    return value.get("".join(f"_{each.lower()}" if each.isupper() else each for each in name))


def parts_in(content: Json) -> Sequence[Json]:
    """A content's parts, also where a program wrote a single one, or only its text."""
    if isinstance(content, dict):
        content = content.get("parts", [content])
    if isinstance(content, dict):
        return [content]
    return [{"text": content}] if isinstance(content, str) else sequence(content)


def read_part(draft: Draft, given: Json) -> None:
    """Add one part; one that isn't known is kept as it is."""
    part: Mapping[str, Json] = {"text": given} if isinstance(given, str) else mapping(given)
    signature = member(part, "thoughtSignature")
    text = string(part.get("text"))
    for key in _BESIDE:
        draft.extra(**{key: member(part, key)})
    if text is not None or (signature is not None and len(part) == 1):
        metadata = draft.sendable(PROVIDER, {SIGNATURE: signature})
        if part.get("thought") is True:
            draft.reasoning(text or "", metadata)
        else:
            draft.text(text or "", metadata)
    elif isinstance(call := member(part, "functionCall"), dict):
        metadata = draft.sendable(PROVIDER, {SIGNATURE: signature})
        draft.call(string(call.get("name")) or "", call.get("args"), string(call.get("id")), metadata)
    elif isinstance(answer := member(part, "functionResponse"), dict):
        _answer(draft, answer, signature)
    elif isinstance(code := member(part, "executableCode"), dict):
        metadata = draft.sendable(PROVIDER, {SIGNATURE: signature})
        arguments = {key: value for key, value in code.items() if key != "id"}
        draft.parts.append(ToolCallPart(CODE, arguments, string(code.get("id")), True, metadata))
    elif isinstance(result := member(part, "codeExecutionResult"), dict):
        outcome = string(result.get("outcome"))
        failed = outcome if outcome and outcome != OK else None
        output = text_of(result.get("output"))
        draft.parts.append(ToolResultPart(CODE, output, string(result.get("id")), True, failed))
    elif (attachment := _attachment(part)) is not None:
        draft.extra(signature=signature)
        draft.attach(attachment)
    else:
        draft.unknown(given)


def _attachment(part: Mapping[str, Json]) -> Attachment | None:
    inline, file = mapping(member(part, "inlineData")), mapping(member(part, "fileData"))
    media = string(member(inline or file, "mimeType"))
    name = string(member(inline or file, "displayName"))
    if inline:
        made = attachment_of_base64(inline.get("data"), media)
        return Attachment(made.type, path=name, content=made.content) if made is not None and name else made
    url = string(member(file, "fileUri"))
    return Attachment(media, url=url, path=name) if url else None


def _answer(draft: Draft, answer: Mapping[str, Json], signature: Json) -> None:
    given = answer.get("response")
    output, error = mapping(given).get("output"), mapping(given).get("error")
    exception = None
    wrapped = isinstance(given, dict) and given and set(given) <= {"output", "error"}
    if wrapped and all(isinstance(each, str) for each in mapping(given).values()):
        text, exception = string(output) or "", string(error)
        draft.extra(empty=True if output == "" and error is not None else None)
    else:
        text = text_of(given)
        draft.extra(bare=None if isinstance(given, dict) else True)
    attached = [_attachment(mapping(part)) for part in sequence(answer.get("parts"))]
    metadata = draft.sendable(PROVIDER, {SIGNATURE: signature})
    more = {key: answer[key] for key in ("willContinue", "scheduling") if key in answer}
    draft.extra(more=more or None)
    draft.parts.append(
        ToolResultPart(
            string(answer.get("name")) or "",
            text,
            string(answer.get("id")),
            exception=exception,
            attachments=[each for each in attached if each is not None],
            provider_metadata=metadata,
        )
    )
