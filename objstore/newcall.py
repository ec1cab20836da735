"""What a program tells of an LLM call it has made, before the store knows where the call belongs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from objstore.jsonvalue import Json, dumps, freeze
from objstore.message import Message
from objstore.records import Call, check_time
from objstore.requests import Api, error_line, split_request, split_response
from refs.errors import InvalidValue
from refs.ids import MessageId, NodeId, PayloadId


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCall:
    """One LLM call that is to be recorded: the members of `Call` but for its id and its nodes.

    `started_at` as `records.check_time` wants it; None stands for the time of recording. `duration_ms` in
    milliseconds, token counts as the provider gives them. `instructions` and `tools` (a JSON list) travelled
    beside the messages; they are stored once. `error` is kept on one line, without what looks like a key.
    `of` makes one out of a raw request and response. Raises `InvalidValue`.
    """

    model: str
    started_at: str | None = None
    duration_ms: int | None = None
    error: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    token_details: Mapping[str, Json] | None = None
    resolved_model: str | None = None
    options: Mapping[str, Json] | None = None
    request: Mapping[str, Json] | None = None
    response: Mapping[str, Json] | None = None
    instructions: Message | None = None
    tools: Json | None = None

    def __post_init__(self) -> None:
        if self.started_at is not None:
            check_time(self.started_at, "started_at")
        if self.error is not None:
            object.__setattr__(self, "error", error_line(self.error) or "error")
        if self.tools is not None:
            if not isinstance(self.tools, list | tuple):
                raise InvalidValue("tools", "a list is needed")
            object.__setattr__(self, "tools", freeze(self.tools, "tools"))

    @classmethod
    def of(
        cls,
        request: Mapping[str, Any] | None = None,
        response: Mapping[str, Any] | None = None,
        *,
        api: Api | None = None,
        **told: Any,
    ) -> Self:
        """The call of a raw request and response (bodies as parsed JSON), as far as it may be kept.

        An allow-list decides, see `objstore.requests`; the message list is never part of it. `told` are
        members that are known better, such as `model` (Gemini has it in the address) or `duration_ms`.
        """
        members: dict[str, Any] = {}
        if request is not None:
            asked = split_request(request, api)
            api = asked.api
            members |= {
                "model": asked.model,
                "request": asked.request or None,
                "options": asked.options or None,
                "instructions": asked.instructions,
                "tools": asked.tools,
            }
        if response is not None:
            answered = split_response(response, api)
            members |= {
                "response": answered.response or None,
                "resolved_model": answered.resolved_model,
                "input_tokens": answered.input_tokens,
                "output_tokens": answered.output_tokens,
                "token_details": answered.token_details,
                "error": answered.error,
            }
        members |= told
        if members.get("model") is None:
            members["model"] = members.get("resolved_model")
        if members["model"] is None:
            raise InvalidValue("model", "missing")
        return cls(**members)

    def tools_json(self) -> bytes:
        """The canonical bytes of the tool list."""
        return dumps(self.tools)

    def record(
        self,
        call: str,
        now: str,
        head_input: NodeId,
        head_output: NodeId | None,
        conversation: str | None,
        instructions: MessageId | None,
        tools: PayloadId | None,
    ) -> Call:
        """The record, once it is known where the call was asked and answered. `call` is its ULID."""
        return Call(
            call=call,
            model=self.model,
            head_input=head_input,
            started_at=self.started_at or now,
            head_output=head_output,
            conversation=conversation,
            duration_ms=self.duration_ms,
            error=self.error,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            token_details=self.token_details,
            resolved_model=self.resolved_model,
            instructions=instructions,
            tools=tools,
            options=self.options,
            request=self.request,
            response=self.response,
        )
