"""How an API's requests and responses are told apart and read, whatever they were recorded in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from objstore.jsonvalue import EMPTY, Json, loads
from objstore.transcripts.chains import Spoken
from objstore.transcripts.documents import Document
from objstore.transcripts.draft import is_deep, mapping
from objstore.transcripts.warnings import Warner
from refs.errors import InvalidValue

Item = tuple[Json, str]
"""A message as an API has it, and its place."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a response tells about its call."""

    id: str
    model: str | None
    at: str | None = None
    input_tokens: Json = None
    output_tokens: Json = None
    details: Json = None


class Api(Protocol):
    """How one API's requests and responses are read."""

    @property
    def format(self) -> str: ...
    @property
    def arrays(self) -> Sequence[str]:
        """Where its messages stand in a request or response."""
        ...

    @property
    def handled(self) -> Collection[str]:
        """The members of a request that become messages; the rest is kept beside them."""
        ...

    def is_item(self, value: Json) -> bool:
        """Whether this is one message by itself."""
        ...

    def sent(self, request: Mapping[str, Json]) -> Sequence[Json] | None:
        """A request's messages, or None where it is no request."""
        ...

    def answers(self, response: Mapping[str, Json]) -> Sequence[Sequence[Json]] | None:
        """A response's messages, once for each alternative, or None where it is no response."""
        ...

    def preface(self, request: Mapping[str, Json], place: str, warn: Warner) -> Iterable[Spoken]:
        """What a request says outside its messages."""
        ...

    def messages(self, items: Iterable[Item], warn: Warner, names: dict[str, str]) -> Iterator[Spoken]:
        """Messages from an API's. `names` maps the ids of calls to tools and grows."""
        ...

    def usage(self, response: Mapping[str, Json]) -> Usage | None: ...


@dataclass(slots=True)
class Exchange:
    """One record: a request, a response, or both."""

    place: str
    record: Mapping[str, Json]
    request: Mapping[str, Json] = EMPTY
    response: Mapping[str, Json] = EMPTY
    sent: Sequence[Json] = ()
    answers: Sequence[Sequence[Json]] = ()

    @property
    def is_pair(self) -> bool:
        return bool(self.request and self.response)


def count_of(value: Json) -> int | None:
    """A number of tokens, or None where it can't be one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None


def exchange_of(document: Document, api: Api) -> Exchange | None:
    """A record as a request, a response or both; None where it is neither."""
    record = document.value
    if not isinstance(record, dict):
        return None
    request, response = _half(record, "request"), _half(record, "response")
    if not request and not response:
        request = response = record
        if isinstance(body := record.get("body"), dict):
            request = response = body
    sent, answers = api.sent(request), api.answers(response)
    if sent is None and answers is None:
        return None
    return Exchange(
        document.place,
        record,
        request if sent is not None else EMPTY,
        response if answers is not None else EMPTY,
        sent or (),
        answers or (),
    )


def _half(record: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    half = record.get(name)
    if half is None:
        half = record.get(f"{name}_body")
    if isinstance(half, dict) and half.get("body") is not None:
        half = half["body"]
    if isinstance(half, str):  # a body as it went over the wire
        try:
            half = loads(half.encode("utf-8", "surrogatepass"))
        except InvalidValue:
            return EMPTY
    return EMPTY if is_deep(half) else mapping(half)
