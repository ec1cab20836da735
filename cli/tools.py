"""Where other programs keep their conversations: what `dag import codex` reads without a path."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final

import click

_Find = Callable[[Mapping[str, str]], list[str]]


def usual_places(tool: str, environ: Mapping[str, str]) -> list[str]:
    """The files and folders of a tool that there are, or else where they would be."""
    places = _TOOLS[tool][1](environ)
    return [place for place in places if os.path.exists(place)] or places[:1]


def format_of_tool(tool: str) -> str:
    """The format that a tool writes."""
    return _TOOLS[tool][0]


def _claude_code(environ: Mapping[str, str]) -> list[str]:
    named = environ.get("CLAUDE_CONFIG_DIR")
    folders = [named] if named else [_home(".claude"), os.path.join(_config(environ), "claude")]
    return [os.path.join(folder, "projects") for folder in folders]


def _codex(environ: Mapping[str, str]) -> list[str]:
    folder = environ.get("CODEX_HOME") or _home(".codex")
    return [os.path.join(folder, name) for name in ("sessions", "archived_sessions")]


def _gemini(environ: Mapping[str, str]) -> list[str]:
    return [os.path.join(environ.get("GEMINI_CLI_HOME") or os.path.expanduser("~"), ".gemini", "tmp")]


def _llm(environ: Mapping[str, str]) -> list[str]:
    folder = environ.get("LLM_USER_PATH") or click.get_app_dir("io.datasette.llm")
    return [os.path.join(folder, "logs.db")]


def _home(name: str) -> str:
    return os.path.expanduser(os.path.join("~", name))


def _config(environ: Mapping[str, str]) -> str:
    return environ.get("XDG_CONFIG_HOME") or _home(".config")


_TOOLS: Final[Mapping[str, tuple[str, _Find]]] = {
    "claude-code": ("claude-code", _claude_code),
    "codex": ("codex", _codex),
    "gemini": ("gemini-cli", _gemini),
    "llm": ("llm-logs", _llm),
}
TOOLS: Final = tuple(_TOOLS)
"""The programs whose places are known."""
