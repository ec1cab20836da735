"""What was sent to an API and what came back, however it was recorded: the frame of the API formats' readers.

A record is a request, a response, a pair of both (`request` and `response`, in their `body` where a proxy
wrote them down), or a batch line. An array of pairs is one recorded session: its requests repeat their
history, so it becomes one tree. Every other record is a conversation of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from objstore.jsonvalue import EMPTY, Json
from objstore.limits import MIB
from objstore.transcripts.api import Api, Exchange, Item, Usage, count_of, exchange_of
from objstore.transcripts.build import time_of
from objstore.transcripts.chains import Chain, Recent, Spoken
from objstore.transcripts.documents import Document, read_documents
from objstore.transcripts.draft import mapping, string
from objstore.transcripts.model import Entry, ReaderOutput, Skipped, SourceCall, Transcript, Warn
from objstore.transcripts.source import Source, SourceFile

_MAX_SESSION_BYTES: Final = 64 * MIB
"""An array of pairs up to this size is one session, held in memory; in a larger one each pair stands alone."""
_OWN_IDS: Final = ("conversation_id", "session_id", "thread_id", "uuid")
_IDS_WITHIN_A_FILE: Final = ("id", "custom_id", "task_id")


def each_file(source: Source) -> Iterator[list[SourceFile]]:
    """The files of a source, each by itself: no record continues in another file."""
    for file in source.files():
        yield [file]


def read_exchanges(source: Source, api: Api) -> Iterator[ReaderOutput]:
    """The conversations of all files of `source`."""
    ids: set[int] = set()
    for file in source.files():
        yield from _File(file, api, ids).read()


@dataclass(slots=True)
class _File:
    file: SourceFile
    api: Api
    ids: set[int]
    """Hashes of the ids given so far, in all files."""
    told: list[Warn] = field(default_factory=list)

    def read(self) -> Iterator[ReaderOutput]:
        documents = read_documents(self.file, self._tell, self.api.arrays)
        first = next(documents, None)
        if first is not None:
            everything = chain([first], documents)
            if first.place and self.api.is_item(first.value):
                yield self._bare(((document.value, document.place) for document in everything), {}, "")
            elif self._is_session(first):
                yield from self._session(everything)
            else:
                for document in everything:
                    yield from self._document(document)
        for warn in self.told:
            yield Skipped(
                warn.kind, f"{self.file.name}, {warn.place}" if warn.place else self.file.name, warn.text
            )

    def _tell(self, kind: str, place: str, text: str) -> None:
        self.told.append(Warn(kind, place, text))

    def _is_session(self, first: Document) -> bool:
        in_array = first.place.startswith("element")
        exchange = exchange_of(first, self.api)
        return in_array and exchange is not None and exchange.is_pair and self.file.size <= _MAX_SESSION_BYTES

    def _document(self, document: Document) -> Iterator[ReaderOutput]:
        value, place = document.value, document.place
        if isinstance(value, list) and value and self.api.is_item(value[0]):
            yield self._bare(((item, f"{place} message {i + 1}") for i, item in enumerate(value)), {}, place)
            return
        exchange = exchange_of(document, self.api)
        if exchange is None:
            yield Skipped("not-a-conversation", self._where(place))
        elif not exchange.sent and not any(exchange.answers):
            yield Skipped("no-messages", self._where(place))
        else:
            transcript = self._transcript(exchange.record, exchange, place)
            transcript.entries = _entries(Chain(transcript), [exchange], self.api)
            yield transcript

    def _bare(self, items: Iterator[Item], about: Mapping[str, Json], place: str) -> Transcript:
        transcript = self._transcript(about, None, place)

        def entries() -> Iterator[Entry]:
            made = Chain(transcript)
            yield from made.follow(self.api.messages(items, transcript.warn, Recent()))
            made.end()
            made.finish(made.last)
            transcript.warnings.extend(self.told)
            self.told.clear()

        transcript.entries = entries()
        return transcript

    def _session(self, documents: Iterable[Document]) -> Iterator[ReaderOutput]:
        exchanges = []
        for document in documents:
            exchange = exchange_of(document, self.api)
            if exchange is None:
                yield Skipped("not-a-conversation", self._where(document.place))
            else:
                exchanges.append(exchange)
        transcript = self._transcript(EMPTY, exchanges[0], "")
        transcript.entries = _entries(Chain(transcript, merge=True), exchanges, self.api)
        yield transcript

    def _transcript(self, record: Mapping[str, Json], exchange: Exchange | None, place: str) -> Transcript:
        request = exchange.request if exchange else EMPTY
        usage = self.api.usage(exchange.response) if exchange and exchange.response else None
        about = mapping(record.get("session"))
        made = Transcript(
            self.api.format,
            self._id(record, usage, place),
            (),
            title=string(record.get("title")) or string(about.get("title")),
            model=string(request.get("model")) or string(about.get("model")) or (usage.model if usage else None),
            created_at=(usage.at if usage else None) or _time_in(record) or _time_in(about),
            place=self._where(place),
        )
        made.warnings.extend(self.told)
        self.told.clear()
        return made

    def _id(self, record: Mapping[str, Json], usage: Usage | None, place: str) -> str:
        own = next((record[key] for key in _OWN_IDS if _is_id(record.get(key))), None)
        own = own or mapping(record.get("session")).get("id")
        if not _is_id(own) and usage is not None and place:
            own = usage.id
        if not _is_id(own):
            within = next((record[key] for key in _IDS_WITHIN_A_FILE if _is_id(record.get(key))), None)
            trial = record.get("trial")
            number = f"{within}/{trial}" if within is not None and _is_id(trial) else within
            if number is None and place:
                number = place.rsplit(maxsplit=1)[-1]
            own = self.file.name if number is None else f"{self.file.name}#{number}"
        found = str(own)
        if hash(found) in self.ids:  # the file uses an id twice
            found = f"{found}@{place.rsplit(maxsplit=1)[-1] if place else len(self.ids)}"
        self.ids.add(hash(found))
        return found

    def _where(self, place: str) -> str:
        return f"{self.file.name}, {place}" if place and place != self.file.name else self.file.name


def _is_id(value: Json) -> bool:
    return bool(value) if isinstance(value, str) else isinstance(value, int) and not isinstance(value, bool)


def _time_in(about: Mapping[str, Json]) -> str | None:
    found = (time_of(about.get(key)) for key in ("created_at", "started_at", "start_time", "timestamp", "created"))
    return next((time for time in found if time), None)


def _entries(made: Chain, exchanges: Sequence[Exchange], api: Api) -> Iterator[Entry]:
    transcript = made.transcript
    active: str | None = None
    for number, exchange in enumerate(exchanges):
        names: dict[str, str] = {}
        prefix = f"{exchange.place} " if exchange.place else ""
        usage = api.usage(exchange.response)
        request = exchange.request or exchange.response
        about = {key: value for key, value in request.items() if key not in api.handled and value is not None}
        items = [(item, f"{prefix}message {i + 1}") for i, item in enumerate(exchange.sent)]
        said = chain(
            api.preface(request, f"{prefix}preface", transcript.warn),
            api.messages(items, transcript.warn, names),
        )
        made.again()
        yield from made.follow(said if usage or number else _noted(said, about))
        asked_at = made.last
        outputs = []
        for answer in exchange.answers:
            made.last = asked_at
            answered = [(item, f"{prefix}answer") for item in answer]
            yield from made.follow(_timed(api.messages(answered, transcript.warn, names), usage))
            made.end()
            outputs.append(made.last)
        if not exchange.answers:
            made.end()
        output = next((key for key in outputs if key != asked_at), None)
        active = output or asked_at or active
        if usage is not None and all(call.id != usage.id for call in transcript.calls):
            transcript.calls.append(_call(usage, exchange, about, asked_at, output))
    made.finish(active)


def _timed(said: Iterable[Spoken], usage: Usage | None) -> Iterator[Spoken]:
    for spoken in said:
        spoken.at = spoken.at or (usage.at if usage else None)
        yield spoken


def _noted(said: Iterable[Spoken], about: Mapping[str, Json]) -> Iterator[Spoken]:
    """The first message's note says what else was asked for: tools, temperature, …"""
    for i, spoken in enumerate(said):
        if i == 0 and about:
            spoken.draft.note["record"] = about
        yield spoken


def _call(
    usage: Usage, exchange: Exchange, about: Mapping[str, Json], asked_at: str | None, output: str | None
) -> SourceCall:
    return SourceCall(
        id=usage.id,
        model=string(exchange.request.get("model")) or usage.model or "unknown",
        head_input=asked_at,
        head_output=output,
        started_at=usage.at,
        input_tokens=count_of(usage.input_tokens),
        output_tokens=count_of(usage.output_tokens),
        token_details=mapping(usage.details) or None,
        resolved_model=usage.model,
        options=about or None,
    )
