"""aider's Markdown: who spoke is told by marks."""

from objstore.transcripts import aider
from objstore.transcripts.model import Certainty
from tests.transcripts.conformance import read_files, survives_damage, texts

HISTORY = b"""
# aider chat started at 2026-08-05 19:33:02

> aider --commit  \n> Aider v0.47  \n> Models: model-a with diff edit format, weak model model-b  \n
# aider chat started at 2026-08-05 19:40:00

> Aider v0.47  \n> Main model: model-c with whole edit format  \n
#### Make it faster  \n####   \n#### and smaller  \n
Sure, here is the change:

a.py
```
<<<<<<< SEARCH
slow()
=======
fast()
>>>>>>> REPLACE
```

> Tokens: 5 sent  \n> Applied edit to a.py  \n
#### thanks  \n
You're welcome.
"""


def read(data):
    return read_files(aider, {".aider.chat.history.md": data})


def test_prompts_and_answers_are_messages_of_their_session():
    outputs = read(HISTORY)
    [made] = outputs.transcripts
    roles = texts(made)
    assert [role for role, _ in roles] == ["user", "assistant", "user", "assistant"]
    assert roles[0][1] == "Make it faster\n\nand smaller"
    assert roles[1][1].startswith("Sure, here") and roles[1][1].endswith(">>>>>>> REPLACE\n```")
    assert roles[3][1] == "You're welcome."
    assert (made.id, made.created_at, made.model) == ("2026-08-05 19:40:00", "2026-08-05T19:40:00.000Z", "model-c")


def test_what_aider_printed_is_noted_on_the_message_before_it():
    entries = read(HISTORY).transcripts[0].entries
    assert entries[1].note["output"] == "Tokens: 5 sent\nApplied edit to a.py"
    assert entries[0].note["greeting"].startswith("Aider v0.47")
    assert "output" not in entries[0].note


def test_sessions_without_a_message_are_counted_and_the_loss_is_told():
    outputs = read(HISTORY)
    assert [skipped.kind for skipped in outputs.skipped] == ["empty-conversation"]
    assert outputs.warnings == ["lossy-format"]


def test_an_unmarked_line_goes_on_with_aiders_own_output():
    started = b"# aider chat started at 2026-08-05 19:40:00\n\n#### map  \n\n"
    assert texts(read(started + b"> Here are files:\na.py\nb.py\n\n#### ok  \n").transcripts[0]) == [
        ("user", "map"),
        ("user", "ok"),
    ]


def test_two_sessions_of_one_second_are_two_conversations():
    session = b"# aider chat started at 2026-08-05 19:40:00\n\n#### hi  \n\nyo\n\n"
    ids = [transcript.id for transcript in read(session * 3).transcripts]
    assert ids == ["2026-08-05 19:40:00", "2026-08-05 19:40:00 (2)", "2026-08-05 19:40:00 (3)"]


def test_the_format_is_told_by_content():
    assert aider.sniff(HISTORY, "notes.md") is Certainty.YES
    assert aider.sniff(b"# Notes\n\n#### A heading\n> quoted\n", ".aider.chat.history.md") is Certainty.NO


def test_damage_never_raises():
    survives_damage(aider, {"a.md": HISTORY})
