"""What a terminal is protected from, and how wide things are."""

import json

import pytest

from cli.render import escape, escape_json, first_line, one_line, width_of
from objstore import Store
from tests.cli.conftest import said

NASTY = {
    "escape": "\x1b[2J\x1b]0;title\x07",
    "c1": "\x9b2J\x85",
    "bell and backspace": "\a\b\x7f",
    "carriage return": "safe\rEVIL",
    "right to left": "\u202edetrever\u202c \u2066x\u2069 \u200f",
    "lines of other alphabets": "a\u2028b\u2029c",
    "half a character": "\ud83d\udc00"[0] + "x",
    "nul": "a\0b",
}


@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY)
def test_what_would_act_on_a_terminal_is_shown_instead(text):
    for made in (escape(text), one_line(text), first_line(text, 80), escape_json(json.dumps(text))):
        assert made.encode("utf-8")
        assert not set(made) & set("\x1b\x07\x08\x7f\x9b\x85\r\0\u202e\u2066\u200f\u2028\u2029")


def test_escapes_say_what_was_there():
    assert escape("\x1b[0m\x9b\u202e\ud83d\rx") == "\\x1b[0m\\x9b\\u202e\\ud83d\\rx"
    assert escape("a\tb\nc\r\nd") == "a\tb\nc\nd"
    assert escape("naïve 東京 👩‍💻 \\x1b") == "naïve 東京 👩‍💻 \\x1b"
    assert one_line("a\n\t b\u00a0c") == "a b c"


def test_escaped_json_means_the_same():
    text = "\x7f\x9b\u202e\ud83d é"
    assert json.loads(escape_json(json.dumps(text, ensure_ascii=False))) == text


@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY)
def test_stored_text_never_reaches_the_output_raw(dag, text):
    call = {"type": "tool_call", "name": text, "arguments": {text: text}, "tool_call_id": text}
    result = {"type": "tool_result", "name": text, "output": text, "exception": text, "tool_call_id": text}
    where = {"type": text, "url": text, "path": text}
    parts = [
        {"type": "text", "text": text},
        {"type": "reasoning", "text": text},
        call,
        {**result, "attachments": [where]},
        {"type": "attachment", "attachment": where},
        {"type": f"own {text}", "x": text},
    ]
    messages = [{"role": text, "parts": [part], "provider_metadata": {"p": {text: text}}} for part in parts]
    dag("commit", "-", input=json.dumps([*messages, *said(text)]))
    dag("commit", "-", "--append", input=json.dumps([{"role": "user", "content": "x", "id": text}]))
    dag("describe", "--title", text.replace("\0", ""), "--tag", text.replace("\0", ""))
    with Store.open(dag.folder / ".dag") as store:
        store.fork(store.resolve("HEAD~3"), "side", title=text)
        store.reset("side", store.resolve("HEAD~2"), reason=text)
    for args in (
        *(("log",), ("log", "--oneline"), ("log", "--graph", "--all"), ("log", "--json"), ("list",), ("status",)),
        *(("show", f"HEAD~{back}", *form) for back in range(8) for form in ((), ("--json",))),
        *(("cat", "--format", form) for form in ("text", "markdown", "json", "jsonl", "openai")),
        *(("describe",), ("describe", "side"), ("describe", "--json"), ("list", "--json"), ("status", "--json")),
        *(("reflog", "side"), ("reflog", "--all"), ("reflog", "--all", "--json")),
        *(("cat-file", "-p", "HEAD"), ("cat-file", "--json", "HEAD")),
    ):
        ran = dag(*args)
        shown = ran.raw.decode() + ran.err
        assert not set(shown) & set("\x1b\x07\x08\x7f\x9b\x85\r\0\u202e\u2066\u200f\u2028\u2029"), args
    ran = dag("diff", "HEAD", "HEAD~8", code=1)
    assert not set(ran.out) & set("\x1b\x9b\r\u202e")


def test_widths_count_columns_not_characters():
    assert [width_of(text) for text in ("abc", "東京", "e\u0301", "👍")] == [3, 4, 1, 2]


def test_a_first_line_is_cut_to_its_columns():
    assert first_line("\n\n  hello\nworld", 20) == "hello"
    assert first_line("hello world", 8) == "hello w…"
    assert first_line("東京東京", 6) == "東京…"
    assert first_line("x" * 100_000_000, 10) == "xxxxxxxxx…"
    assert first_line("   ", 10) == ""
    assert first_line("a\x1bb", 10) == "a\\x1bb"
