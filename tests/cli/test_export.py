"""Conversations out of the store: lossless where the format can hold them, and told where it can't."""

import html.parser
import json

import pytest

from objstore.chain import Chains
from objstore.kinds import Kind
from objstore.records import Tombstone
from objstore.store import Store
from objstore.transcripts.export.registry import SUFFIXES
from tests.cli.conftest import DATA, needs_data, said

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'>&lt; ]]> \x1b[31m \u202e"

LOSSLESS = {
    "openai": ["openai-chat", "damaged/26-openai-bad-arguments.json", "damaged/28-bom-crlf.jsonl"],
    "responses": ["damaged/35-openai-responses-items.json"],
    "anthropic": ["anthropic-messages"],
    "gemini": [],
    "claude-code": ["claude-code"],
    "sharegpt": ["sharegpt"],
    "chatgpt": ["chatgpt-export", "derived/oasst-as-chatgpt-conversations.json"],
    "jsonl": ["codex", "gemini-cli", "opencode", "otel", "aider", "langgraph", "swe-agent", "gemini-aistudio"],
}
"""What each format is tried with, of the shared data."""

CALL = {"type": "function", "id": "call_1", "function": {"name": "climate", "arguments": '{"city": "Rome"}'}}
OWN = {
    "openai": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "How warm?"}]},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "23 degrees"},
            {"role": "assistant", "content": "23 degrees."},
        ]
    },
    "responses": {
        "model": "m",
        "input": [
            {"role": "user", "content": "How warm?"},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
            {"type": "function_call", "call_id": "call_1", "name": "climate", "arguments": '{"city":"Rome"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "23 degrees"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "23."}]},
        ],
    },
    "gemini": {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "How warm?"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "hm", "thought": True},
                    {"functionCall": {"name": "climate", "args": {"city": "Rome"}}, "thoughtSignature": "AAEC"},
                ],
            },
            {"role": "user", "parts": [{"functionResponse": {"name": "climate", "response": {"output": "23"}}}]},
            {"role": "model", "parts": [{"text": "23 degrees."}]},
        ],
    },
    "sharegpt": [
        {"id": "a", "conversations": [{"from": "human", "value": "How warm?"}, {"from": "gpt", "value": "23."}]}
    ],
}
"""Small inputs that each of the formats holds whole."""

ABOUT_IT = {"notes", "times", "title", "side-chains"}
"""Losses that are no part of a message that is read back, so its id may be the same all the same."""


@pytest.mark.parametrize("format", OWN)
def test_import_export_import_gives_equal_nodes(dag, tmp_path, format):
    assert exported_twice(dag, tmp_path, format, [dag.write("own.json", OWN[format])]) == []


@needs_data
@pytest.mark.parametrize("format", [format for format, names in LOSSLESS.items() if names])
def test_real_conversations_come_back_with_equal_nodes(dag, tmp_path, format):
    exported_twice(dag, tmp_path, format, [DATA / name for name in LOSSLESS[format]])


def exported_twice(dag, tmp_path, format, samples):
    """Import, export, import into a store of its own. Where nothing was told to be lost, ids must be equal.

    Gives the conversations that the format can't hold whole.
    """
    dag("import", *samples, code=None)
    lines = dag("export", "--all", "--format", format, "-o", tmp_path / "out", "--json").out.splitlines()
    exported = [json.loads(line) for line in lines]
    lossy = [each for each in exported if any(map(changes_a_message, each["losses"]))]
    whole = [each for each in exported if each not in lossy]
    # The promise isn't kept by losing nearly all.
    assert len(whole) > len(lossy), [(each["conversation"], each["losses"]) for each in lossy]
    dag("--store", tmp_path / "other", "init")
    for i, each in enumerate(whole):
        dag("--store", tmp_path / "other", "import", each["file"], "--name", f"x{i}")
    with Store.open(tmp_path / "other") as other:
        for i, each in enumerate(whole):
            assert other.head(f"x{i}") == each["head"], (each["conversation"], each["losses"])
    return lossy


def changes_a_message(loss):
    return loss["kind"] not in ABOUT_IT and loss["text"] != "written as it is"


@pytest.mark.parametrize("format", SUFFIXES)
def test_every_format_is_written_to_the_output_and_to_a_file_alike(dag, tmp_path, format):
    dag("commit", "-", input=json.dumps(said("Where to?", "Rome.")))
    printed = dag("export", "--format", format)
    dag("export", "main", "--format", format, "-o", tmp_path / "a" / "b.out")
    assert (tmp_path / "a" / "b.out").read_text("utf-8") == printed.out
    assert "Rome." in printed.out


def test_what_a_format_cannot_hold_is_told_with_its_place(dag, tmp_path):
    parts = [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "Rome."}]
    dag("commit", "-", input=json.dumps([*said("Where to?"), {"role": "assistant", "parts": parts}]))
    ran = dag("export", "--format", "sharegpt", "-o", tmp_path / "a.json", "--json")
    assert "dag: main: message 2: reasoning (left out)" in ran.err
    assert {"kind": "reasoning", "place": "message 2", "text": "left out"} in ran.json()["losses"]


def test_all_conversations_go_into_files_of_their_names(dag, tmp_path):
    dag("commit", "-", input=json.dumps(said("Where to?", "Rome.")))
    dag("fork", "HEAD~1", "codex/one")
    dag("export", "--all", "--format", "markdown", "-o", tmp_path / "out")
    found = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.md")}
    assert found == {"main.md", "codex/one.md"}


def test_a_file_that_is_there_is_replaced_as_a_whole(dag, tmp_path):
    dag("commit", "-", input=json.dumps(said("Where to?")))
    (tmp_path / "a.json").write_text("x" * 10_000)
    dag("export", "--format", "openai", "-o", tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text())["messages"]
    assert not list(tmp_path.glob(".dag-export-*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--format", "openai", "--all"), "--all goes with a folder"),
        (("--format", "openai", "--all", "main", "-o", "x"), "--all goes with a folder"),
        (("--format", "openai", "--json"), "--json goes with -o"),
        (("--format", "word"), "'word' is not one of"),
        ((), "Missing option '--format'"),
    ],
)
def test_usage_is_checked(dag, arguments, message):
    assert message in dag("export", *arguments, code=2).err


def test_an_unknown_revision_writes_no_file(dag, tmp_path):
    dag("export", "nothing", "--format", "openai", "-o", tmp_path / "a.json", code=1)
    assert not (tmp_path / "a.json").exists()


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = set(), [], []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text.append(data)


def hostile_messages():
    call = {"type": "tool_call", "name": HOSTILE, "arguments": {HOSTILE: HOSTILE}, "tool_call_id": HOSTILE}
    result = {"type": "tool_result", "name": HOSTILE, "output": HOSTILE, "tool_call_id": HOSTILE}
    unknown = {"type": HOSTILE, "x": HOSTILE}
    parts = [{"type": "text", "text": HOSTILE}, {"type": "reasoning", "text": HOSTILE}, call, result, unknown]
    return [{"role": HOSTILE, "parts": parts}, {"role": "user", "parts": parts}]


def test_nothing_that_was_said_becomes_markup_or_script_in_a_page(dag, tmp_path):
    dag("commit", "-", input=json.dumps(hostile_messages()))
    dag("describe", "--title", HOSTILE.replace("\x1b", "").replace("\u202e", ""))
    dag("export", "--format", "html", "-o", tmp_path / "page.html")
    page = Page()
    page.feed((tmp_path / "page.html").read_text("utf-8"))
    assert not page.tags & {"script", "iframe", "object", "embed", "link", "form", "a", "svg", "base"}
    assert not any(name.startswith("on") or name in ("href", "src", "style") for name, _ in page.attributes)
    assert "".join(page.text).count("<script>alert(1)</script>") >= 8
    assert any((value or "").startswith("default-src 'none'") for _, value in page.attributes)


@pytest.mark.parametrize("format", SUFFIXES)
def test_nothing_that_was_said_reaches_a_terminal_raw(dag, format):
    dag("commit", "-", input=json.dumps(hostile_messages()))
    ran = dag("export", "--format", format)
    assert "\x1b" not in ran.out + ran.err and "\u202e" not in ran.out + ran.err


def test_an_erased_message_is_a_hole_that_is_told(dag, tmp_path, monkeypatch):
    dag("commit", "-", input=json.dumps(said("a secret", "ok")))
    read = Chains._message
    gone = Tombstone(Kind.MESSAGE, "ab" * 32, "2026-01-02T03:04:05.678Z", "a leaked key")
    monkeypatch.setattr(
        Chains,
        "_message",
        lambda self, run, step: gone if step.message_line >= 0 or run.loose else read(self, run, step),
    )
    ran = dag("export", "--format", "markdown")
    assert "secret" not in ran.out and "[erased]" in ran.out
    assert "message 1: erased (a leaked key)" in ran.err


# -- side chains ----------------------------------------------------------------------------------


def session(*records):
    """The records of a session of Claude Code, as JSON Lines; each is (uuid, parent, content or blocks, agent)."""
    made = []
    for second, (uuid, parent, content, agent) in enumerate(records):
        answer = isinstance(content, list) and content[0]["type"] != "tool_result"
        message = {"role": "assistant" if answer else "user", "content": content}
        if answer:
            message |= {"id": f"msg_{uuid}", "type": "message", "model": "claude-x"}
        side = {"isSidechain": True, "agentId": agent} if agent else {"isSidechain": False}
        about = {
            "uuid": uuid,
            "parentUuid": parent,
            "sessionId": "s",
            "timestamp": f"2026-05-01T10:00:{second:02}Z",
        }
        made.append(about | side | {"type": message["role"], "message": message})
    return made


def text(words):
    return {"type": "text", "text": words}


def task(call_id, prompt):
    return {"type": "tool_use", "id": call_id, "name": "Task", "input": {"prompt": prompt}}


def answered(call_id, output):
    return [{"type": "tool_result", "tool_use_id": call_id, "content": output}]


REAL = "claude-code/agentcmd-full-session-askuserquestion.jsonl"
MAIN = [
    ("u", None, "Plan a trip.", None),
    ("a", "u", [text("I ask."), task("t1", "Find trains."), task("t2", "Find hotels.")], None),
    ("r1", "a", answered("t1", "One at 19:10."), None),
    ("r2", "r1", answered("t2", "Two."), None),
    ("b", "r2", [text("And again."), task("t3", "Cheaper ones?")], None),
    ("r3", "b", answered("t3", "One."), None),
    ("c", "r3", [text("Done.")], None),
]
TRAINS = [
    ("g1", None, "Find trains.", "x1"),
    ("g2", "g1", [task("t4", "Ask the railway.")], "x1"),
    ("g3", "g2", answered("t4", "19:10"), "x1"),
    ("g4", "g3", [text("One at 19:10.")], "x1"),
]
RAILWAY = [("k1", None, "Ask the railway.", "x3"), ("k2", "k1", [text("19:10")], "x3")]
HOTELS = [
    ("h1", None, "Find hotels.", "x2"),
    ("h2", "h1", [text("Two.")], "x2"),
    ("h3", "h2", "Cheaper ones?", "x2"),  # the same agent, called once more
    ("h4", "h3", [text("One.")], "x2"),
]
STARTED = {"x1": "t1", "x2": "t2", "x3": "t4"}


def write_session(folder):
    """A session with three sub-agents as the program lays it out: one was called by another, one twice."""
    (folder / "s" / "subagents").mkdir(parents=True)
    (folder / "s.jsonl").write_text("".join(json.dumps(each) + "\n" for each in session(*MAIN)))
    for agent, side in (("x1", TRAINS), ("x2", HOTELS), ("x3", RAILWAY)):
        name = folder / "s" / "subagents" / f"agent-{agent}"
        name.with_suffix(".jsonl").write_text("".join(json.dumps(each) + "\n" for each in session(*side)))
        about = {"agentType": "explore", "toolUseId": STARTED[agent]}
        name.with_suffix(".meta.json").write_text(json.dumps(about))
    return folder


def write_real_session(folder):
    """A real session that asked an agent. Its file was not kept: it says what the call and the result say."""
    records = [json.loads(line) for line in (DATA / REAL).read_text("utf-8").splitlines()]
    (folder / "s" / "subagents").mkdir(parents=True)
    (folder / "s.jsonl").write_bytes((DATA / REAL).read_bytes())
    contents = [each["message"]["content"] for each in records if isinstance(each.get("message"), dict)]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    [asked] = [block for block in blocks if block.get("name") == "Task"]
    [output] = [block["content"] for block in blocks if block.get("tool_use_id") == asked["id"]]
    side = [("g1", None, asked["input"]["prompt"], "x7"), ("g2", "g1", output, "x7")]
    lines = [json.dumps(each | {"sessionId": records[-1]["sessionId"]}) for each in session(*side)]
    (folder / "s" / "subagents" / "agent-x7.jsonl").write_text("\n".join(lines))
    about = {"agentType": "explore", "toolUseId": asked["id"]}
    (folder / "s" / "subagents" / "agent-x7.meta.json").write_text(json.dumps(about))
    return folder


def called(store):
    """The nodes that were asked for: (by which node, by which of its calls)."""
    with Store.open(store) as opened:
        nodes = [entry for each in opened.conversations() for entry in opened.walk(each.head)]
    return {each.id: (each.node.called_by, each.node.tool_call_id) for each in nodes if each.node.called_by}


def heads(store):
    with Store.open(store) as opened:
        return {each.head for each in opened.conversations()}


@pytest.mark.parametrize("printed", [False, True], ids=["folder", "output"])
def test_side_chains_come_back_with_their_callers_and_equal_nodes(dag, tmp_path, printed):
    dag("import", write_session(tmp_path / "in"))
    first = called(dag.folder / ".dag")
    assert sorted(call_id for _, call_id in first.values()) == ["t1", "t2", "t3", "t4"]
    if printed:
        ran = dag("export", "claude-code/s", "--format", "claude-code")
        (tmp_path / "out.jsonl").write_bytes(ran.raw)
    else:
        ran = dag("export", "--all", "--format", "claude-code", "-o", tmp_path / "out")
        assert len(list((tmp_path / "out").rglob("*.jsonl"))) == 1
    assert ran.err == ""
    dag("--store", tmp_path / "other", "init")
    dag("--store", tmp_path / "other", "import", tmp_path / ("out.jsonl" if printed else "out"))
    assert heads(tmp_path / "other") == heads(dag.folder / ".dag")
    assert called(tmp_path / "other") == first


@needs_data
def test_a_real_session_comes_back_with_its_side_chain(dag, tmp_path):
    dag("import", write_real_session(tmp_path / "in"))
    first = called(dag.folder / ".dag")
    assert len(first) == 1
    dag("export", "--all", "--format", "claude-code", "-o", tmp_path / "out")
    dag("--store", tmp_path / "other", "init")
    dag("--store", tmp_path / "other", "import", tmp_path / "out")
    assert heads(tmp_path / "other") == heads(dag.folder / ".dag")
    assert called(tmp_path / "other") == first


def test_a_side_chain_is_said_to_be_in_the_file_of_what_asked_for_it(dag, tmp_path):
    dag("import", write_session(tmp_path / "in"))
    told = dag("export", "--all", "--format", "claude-code", "-o", tmp_path / "out", "--json").json()
    assert len(told) == 4
    assert {each["conversation"] for each in told} == set(names(dag))
    assert {each["file"] for each in told} == {str(tmp_path / "out" / "claude-code" / "s.jsonl")}


def test_a_side_chain_by_itself_loses_who_asked_for_it(dag, tmp_path):
    dag("import", write_session(tmp_path / "in"))
    side = next(name for name in names(dag) if ".at-" in name)
    ran = dag("export", side, "--format", "claude-code", "-o", tmp_path / "side.jsonl", "--json")
    assert [(loss["kind"], loss["place"]) for loss in ran.json()["losses"]][:1] == [("called-by", "message 1")]


def test_formats_without_side_chains_tell_how_many_there_were(dag, tmp_path):
    dag("import", write_session(tmp_path / "in"))
    ran = dag("export", "claude-code/s", "--format", "anthropic", "-o", tmp_path / "a.json")
    assert "side-chains (3 that it asked for)" in ran.err


def test_an_erased_message_of_a_side_chain_is_told(dag, tmp_path, monkeypatch):
    dag("import", write_session(tmp_path / "in"))
    read = Chains._message
    gone = Tombstone(Kind.MESSAGE, "ab" * 32, "2026-01-02T03:04:05.678Z", "a leaked key")

    def erased(self, run, step):
        found = read(self, run, step)
        return gone if getattr(found, "text", "") == "19:10" else found

    monkeypatch.setattr(Chains, "_message", erased)
    ran = dag("export", "claude-code/s", "--format", "claude-code")
    assert "erased (a leaked key)" in ran.err and "[erased]" in ran.out


def names(dag):
    with Store.open(dag.folder / ".dag") as store:
        return {each.name: each.head for each in store.conversations()}
