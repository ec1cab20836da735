"""What README.md shows is what happens."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def block(name):
    return re.findall(rf"<!-- {name} -->\n```\w+\n(.*?)\n```", README, re.DOTALL)


@pytest.fixture
def shell(tmp_path):
    """Runs a line of a shell in which `dag` is this program; the output with its times taken out."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "dag"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "from cli.main import main; main()" "$@"\n')
    program.chmod(0o755)
    environ = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": "/nonexistent",
        "DAG_DIR": str(tmp_path / "store"),
    }

    def run(line):
        ran = subprocess.run(
            ["sh", "-c", line], cwd=ROOT, env=environ, capture_output=True, text=True, check=False
        )
        return timeless(ran.stdout + ran.stderr)

    return run


def timeless(text):
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", text)


def main_job():
    """The first command without its installation and its own store."""
    (job,) = block("main-job")
    install, _, rest = job.partition('export DAG_DIR="$(mktemp -d)/store" &&\n')
    assert "pip install" in install
    return rest


def test_the_main_job_draws_the_picture(shell):
    picture = re.search(r"\$ dag log --graph --all --oneline\n(.*?)```", README, re.DOTALL)[1]
    assert shell(main_job()).endswith(f"\n{picture}")


def test_the_tour_prints_what_it_says(shell):
    shell(main_job())
    for each in block("tour"):
        for command, expected in re.findall(
            r"^\$ ([^\n]+)\n(.*?)(?=^\$ |\Z)", f"{each}\n", re.DOTALL | re.MULTILINE
        ):
            assert shell(command) == timeless(expected), command


def test_the_library_in_ten_lines_runs(tmp_path, monkeypatch, capsys):
    (code,) = block("library")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == "1 new; in common: 2\n['Not again. Somewhere else?', 'Rome.', 'Where to?']\n"
