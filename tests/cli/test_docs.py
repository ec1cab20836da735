"""docs/cli.md and the program say the same."""

import re
from pathlib import Path

import click
import pytest

from cli.failures import CONFLICT, DAMAGED, NOT_FOUND, PARTLY, USAGE
from cli.main import BROKEN_PIPE, COMMANDS, INTERRUPTED
from cli.main import dag as program

ROOT = Path(__file__).resolve().parents[2]
DOCS = (ROOT / "docs" / "cli.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^### dag ([a-z-]+)\n(.*?)(?=^##|\Z)", DOCS, re.MULTILINE | re.DOTALL))
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


def options(command):
    return {name for each in command.params if isinstance(each, click.Option) for name in each.opts}


@pytest.mark.parametrize("command_name", COMMANDS)
def test_every_command_and_option_is_in_the_docs(command_name):
    command = program.get_command(click.Context(program), command_name)
    missing = {option for option in options(command) if f"`{option}" not in SECTIONS[command_name]}
    assert not missing
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    for each in arguments:
        names = each.type.choices if isinstance(each.type, click.Choice) else [each.metavar or each.name.upper()]
        assert all(name.rstrip(".") in SECTIONS[command_name] for name in names)


def test_the_docs_name_no_command_or_option_that_is_not_there():
    assert set(SECTIONS) == set(COMMANDS)
    every = options(program) | {"-h", "--help", "--version"}
    for name in COMMANDS:
        every |= options(program.get_command(click.Context(program), name))
    assert {found for found in OPTION.findall(DOCS) if found not in every} == set()


def test_every_exit_code_is_in_the_docs():
    codes = set(map(int, re.findall(r"^\| (\d+) \|", DOCS, re.MULTILINE)))
    assert codes == {0, NOT_FOUND, USAGE, CONFLICT, DAMAGED, PARTLY, INTERRUPTED, BROKEN_PIPE}


def test_every_variable_that_is_read_is_in_the_docs():
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "cli").rglob("*.py"))
    read = set(re.findall(r"environ(?:\.get\(|\[)\"([A-Z_]+)\"", sources)) - {"TERM"}
    assert read == set(re.findall(r"`([A-Z_]{5,}|PAGER)`", DOCS.split("## Environment")[1].split("## JSON")[0]))
