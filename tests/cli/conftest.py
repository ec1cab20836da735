"""The program in this process: `dag("log", "-n", "5")`, in a folder of its own, away from the environment."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import dag as program

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the transcripts that real input comes from aren't here")


@dataclass
class Ran:
    code: int
    out: str
    err: str
    raw: bytes

    def json(self):
        lines = [json.loads(line) for line in self.out.splitlines()]
        return lines[0] if len(lines) == 1 else lines


class Dag:
    """Runs commands in `folder`; the store is `.dag` there unless the environment says otherwise."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder, self.environ = folder, environ
        apart = "mix_stderr" in inspect.signature(CliRunner).parameters  # click before 8.2 mixes them
        self.runner = CliRunner(**({"mix_stderr": False} if apart else {}))

    def __call__(self, *args, input=None, code=0, **environ) -> Ran:
        result = self.runner.invoke(program, [str(a) for a in args], input=input, env={**self.environ, **environ})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        ran = Ran(result.exit_code, result.stdout, result.stderr, result.stdout_bytes)
        assert code is None or ran.code == code, (ran.code, ran.out, ran.err)
        return ran

    def write(self, name: str, value) -> Path:
        path = self.folder / name
        path.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
        return path

    def snapshot(self):
        """All files of the store with their bytes; the index and what its log says apart: it is a cache."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in sorted((self.folder / ".dag").rglob("*"))
            if path.is_file() and not path.name.startswith("index.sqlite")
        }

    def counts(self):
        """How many messages and nodes the store holds."""
        from objstore import Kind, Store  # noqa: PLC0415

        with Store.open(self.folder / ".dag") as store:
            return tuple(sum(1 for _ in store.storage.database.ids(kind)) for kind in (Kind.MESSAGE, Kind.NODE))


ENVIRON = {
    **dict.fromkeys(("DAG_DIR", "DAG_CONVERSATION", "DAG_PAGER", "PAGER", "NO_COLOR", "XDG_DATA_HOME"), None),
    "HOME": "/nonexistent",
}


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """The program where there is no store."""
    monkeypatch.chdir(tmp_path)
    return Dag(tmp_path, ENVIRON)


@pytest.fixture
def dag(outside):
    """The program beside a new store."""
    outside("init")
    return outside


def said(*words: str) -> list[dict]:
    """A conversation in turns, user first, in our own form."""
    return [
        {"role": ("user", "assistant")[i % 2], "parts": [{"type": "text", "text": text}]}
        for i, text in enumerate(words)
    ]
