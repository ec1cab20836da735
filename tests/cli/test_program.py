"""The program as a whole: finding the store, exit codes, terminals, pipes, completion, starting."""

import os
import pty
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from cli import VERSION
from cli.context import find_store, user_store
from cli.failures import code_of
from cli.main import COMMANDS
from cli.main import dag as program
from objstore import Store
from refs import errors
from tests.cli.conftest import said

ROOT = Path(__file__).resolve().parents[2]
RUN = [sys.executable, "-c", "from cli.main import main; main()"]


def environ(**more):
    kept = {key: os.environ[key] for key in ("PATH", "TZ") if key in os.environ}
    return {**kept, "PYTHONPATH": str(ROOT), "HOME": "/nonexistent", **more}


def in_terminal(*args, cwd, **more):
    """What a run on a terminal prints there."""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [*RUN, *args], cwd=cwd, stdin=follower, stdout=follower, stderr=follower, env=environ(TERM="xterm", **more)
    ) as process:
        os.close(follower)
        printed = b""
        try:
            while chunk := os.read(leader, 65536):
                printed += chunk
        except OSError:  # how Linux says that the other end is closed
            pass
    os.close(leader)
    return process.returncode, printed.decode().replace("\r\n", "\n")


# -- starting -------------------------------------------------------------------------------------


def test_the_version_is_that_of_the_package(outside):
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert declared == VERSION
    assert outside("--version").out == f"dag {VERSION}\n"


def test_the_version_needs_nothing_but_click():
    code = (
        "import sys, click; before = set(sys.modules)\n"
        "try:\n    from cli.main import main; main()\n"
        "except SystemExit: print(*sorted(set(sys.modules) - before))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, "--version"], env=environ(), capture_output=True, text=True, check=True
    )
    loaded = ran.stdout.splitlines()[-1].split()
    assert {name for name in loaded if name.split(".")[0] in ("cli", "refs", "objstore")} == {"cli", "cli.main"}
    assert not {"orjson", "zstandard", "sqlite3", "importlib.metadata", "ulid"} & set(loaded)


def test_reading_a_log_loads_no_reader_of_foreign_formats(dag):
    dag("commit", "-m", "x")
    code = (
        "import sys\ntry:\n    from cli.main import main; main()\nexcept SystemExit: print(*sorted(sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, "log", "-n", "5"],
        env=environ(),
        cwd=dag.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = ran.stdout.splitlines()[-1].split()
    assert not [
        name for name in loaded if name.startswith("objstore.transcripts") or name in ("ulid", "subprocess")
    ]


def test_every_command_has_help_with_an_example(outside):
    for name in COMMANDS:
        assert "Example:\n" in outside(name, "--help").out
    assert "Example:\n" in outside("-h").out


def test_every_command_that_prints_data_has_json():
    quiet = {"completion", "delete", "reindex", "rename", "switch"}
    context = click.Context(program)
    for name in COMMANDS:
        command = program.get_command(context, name)
        below = command.commands.values() if isinstance(command, click.Group) else [command]
        options = {option for part in below for each in part.params for option in each.opts}
        assert ("--json" in options) != (name in quiet), name


# -- which store ----------------------------------------------------------------------------------


def test_no_store_anywhere_is_a_clear_line(outside):
    ran = outside("log", code=1)
    assert ran.err == f"dag: no store at {outside.folder} or above it\nhint: 'dag init' makes one\n"


def test_the_nearest_store_upward_is_used(dag, monkeypatch):
    (dag.folder / "a/b").mkdir(parents=True)
    (dag.folder / "a/.dag").mkdir()  # without a config it is none
    monkeypatch.chdir(dag.folder / "a/b")
    assert dag("status", "--json").json()["store"] == str(dag.folder / ".dag")


def test_option_environment_upward_and_own_store_come_in_this_order(tmp_path):
    names = ("option", "environment", "work", "data/msgdag")
    for name in names:
        Store.init(tmp_path / name / ".dag").close()
    option, environment, work, own = (str(tmp_path / name / ".dag") for name in names)
    start, data = str(tmp_path / "work"), str(tmp_path / "data")
    here = {"DAG_DIR": str(tmp_path / "environment"), "XDG_DATA_HOME": data}
    assert find_store(str(tmp_path / "option"), here, start) == option
    assert find_store(option, here, start) == option
    assert find_store(None, here, start) == environment
    assert find_store(None, {"XDG_DATA_HOME": data}, start) == work
    assert find_store(None, {"XDG_DATA_HOME": data}, str(tmp_path)) == own


def test_the_users_own_store_is_in_the_data_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.setattr(sys, "platform", "linux")
    assert user_store({}) == "/h/.local/share/msgdag"
    assert user_store({"XDG_DATA_HOME": "relative"}) == "/h/.local/share/msgdag"
    assert user_store({"XDG_DATA_HOME": "/d"}) == "/d/msgdag"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert user_store({}) == "/h/Library/Application Support/msgdag"


def test_a_store_of_another_user_is_not_taken_unasked(dag, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    ran = dag("log", code=1)
    assert "belongs to another user" in ran.err and "hint: name it with --store or DAG_DIR" in ran.err
    assert dag("--store", ".dag", "list").code == 0
    assert dag("list", DAG_DIR=".dag").code == 0


def test_init_makes_a_store_where_it_is_told(outside):
    outside("init", "new")
    assert (outside.folder / "new/.dag/config").is_file()
    outside("--store", "bare", "init")
    assert (outside.folder / "bare/config").is_file()
    made = outside("init", "--json", DAG_DIR="other").json()
    assert (made["schema"], made["store"], len(made["id"])) == (1, str(outside.folder / "other"), 26)


def test_init_never_touches_a_store_that_is_there(dag):
    before = dag.snapshot()
    assert dag("init", code=3).err == f"dag: there is a store at {dag.folder}/.dag already\n"
    assert dag.snapshot() == before


def test_a_store_of_a_newer_format_is_refused(dag):
    config = dag.folder / ".dag/config"
    config.write_text(config.read_text().replace("format = 1", "format = 2"))
    before = dag.snapshot()
    for args in (("log",), ("commit", "-m", "x"), ("reindex",)):
        ran = dag(*args, code=4)
        assert ran.err == "dag: this store needs a newer msgdag: format 2 (this version reads 1)\n"
    assert dag.snapshot() == before


WRITES = [("commit", "-m", "x"), ("fork", "HEAD", "new"), ("switch", "main"), ("tag", "v"), ("delete", "main")]


def test_a_folder_that_cannot_be_written_is_read_and_refuses_changes(dag, monkeypatch):
    dag("commit", "-m", "hello")
    before, access = dag.snapshot(), os.access
    # Simulated: the tests may run as root, whom no permission stops.
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK and access(path, mode))
    assert dag("log", "--json").json()["first_line"] == "hello"
    for args in WRITES:
        ran = dag(*args, code=1)
        assert (
            ran.err.startswith(f"dag: can't write to the store at {dag.folder}/.dag") and ran.err.count("\n") == 1
        )
    assert dag.snapshot() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_read_and_refuses_changes(dag):
    dag("commit", "-m", "hello")
    folders = [dag.folder / ".dag", *(path for path in (dag.folder / ".dag").rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o500)
    try:
        assert dag("log", "--json").json()["first_line"] == "hello"
        for args in WRITES:
            assert dag(*args, code=1).err.startswith("dag: can't write")
    finally:
        for folder in folders:
            folder.chmod(0o700)


# -- exit codes and errors ------------------------------------------------------------------------


def test_every_error_has_the_exit_code_of_its_kind():
    assert code_of(errors.UnknownRevision("x")) == code_of(errors.StoreNotFound("x")) == 1
    assert code_of(errors.StorageFailure("x", OSError(28, "No space left"))) == 1
    assert code_of(errors.ReadOnlyStore("x", "y")) == code_of(errors.Redacted("message", "x", "y")) == 1
    assert code_of(errors.InvalidRefName("x", "y")) == code_of(errors.InvalidValue("x", "y")) == 2
    assert code_of(errors.LimitExceeded("x", 2, 1)) == code_of(errors.InvalidId("x", "y")) == 2
    assert code_of(errors.RefChanged("x", None, None)) == code_of(errors.Diverged("x", 0, "root", "y")) == 3
    assert code_of(errors.RefExists("x")) == code_of(errors.StoreExists("x")) == 3
    assert code_of(errors.CorruptObject("node", "x", "y")) == code_of(errors.UnsupportedFormat("x")) == 4
    assert code_of(errors.CorruptFile("x", "y")) == 4


@pytest.mark.parametrize("args", [(), ("nonsense",), ("log", "--nonsense"), ("log", "-n", "x"), ("rename", "x")])
def test_usage_errors_are_a_line_and_a_hint(dag, args):
    ran = dag(*args, code=2)
    assert re.fullmatch(r"dag: [^\n]+\nhint: 'dag[^\n]* --help' says more\n", ran.err)


def test_a_damaged_object_is_named(dag):
    dag("commit", "-m", "hello")
    (message,) = (dag.folder / ".dag/objects/messages").rglob("*.zst")
    message.write_bytes(b"not zstd")
    ran = dag("cat", code=4)
    assert ran.err.startswith("dag: corrupt message ") and "\nhint: 'dag fsck" in ran.err


def test_a_reader_that_goes_away_is_no_error(dag):
    dag("commit", dag.write("a.json", said(*(f"message {i} {'x' * 100}" for i in range(2000)))))
    for args in (["log"], ["cat"], ["cat", "--json"], ["log", "--json"]):
        with subprocess.Popen(
            [*RUN, *args], cwd=dag.folder, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            process.stdout.read(10)
            process.stdout.close()
            assert process.stderr.read() == b""
        assert process.returncode == 141


def test_an_interrupt_ends_quietly_with_130(dag, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("cli.commands.commit.read_history", interrupted)
    assert dag("commit", "-", code=130).err.strip() == ""


# -- terminals ------------------------------------------------------------------------------------


def test_colours_and_the_pager_are_for_terminals_only(dag):
    dag("commit", "-m", "hello")
    assert "\x1b" not in dag("log").out
    code, printed = in_terminal("log", cwd=dag.folder, DAG_PAGER="cat")
    assert code == 0 and "\x1b[33m" in printed
    _, printed = in_terminal("log", cwd=dag.folder, DAG_PAGER="", NO_COLOR="1")
    assert "\x1b" not in printed and "hello" in printed
    _, printed = in_terminal("log", cwd=dag.folder, DAG_PAGER="sed s/hello/paged/", PAGER="false")
    assert "paged" in printed
    _, printed = in_terminal("log", cwd=dag.folder, PAGER="sed s/hello/paged/")
    assert "paged" in printed
    assert "hello" in dag("log", DAG_PAGER="false").out


def test_a_pager_that_is_missing_or_quits_early_is_no_crash(dag):
    dag("commit", dag.write("a.json", said(*(f"message {i} {'x' * 100}" for i in range(2000)))))
    code, printed = in_terminal("log", cwd=dag.folder, DAG_PAGER="no-such-pager")
    assert code == 1 and printed == "dag: the pager 'no-such-pager' can't be started: No such file or directory\n"
    code, printed = in_terminal("log", cwd=dag.folder, DAG_PAGER="true")
    assert code == 0 and "Traceback" not in printed


def test_an_encoding_without_the_characters_is_no_crash(dag):
    dag("commit", "-m", "東京 é", "-c", "東京")
    for args in (["log", "東京"], ["switch", "東京"], ["list"], ["status"], ["cat", "東京"]):
        ran = subprocess.run(
            [*RUN, *args], cwd=dag.folder, env=environ(PYTHONIOENCODING="latin-1"), capture_output=True, check=True
        )
        assert b"\\u6771\\u4eac" in ran.stdout


def test_lines_fit_the_terminal(dag):
    dag("commit", "-m", "東京" * 100)
    _, printed = in_terminal("log", "--oneline", cwd=dag.folder, DAG_PAGER="cat", NO_COLOR="1", COLUMNS="60")
    line = printed.rstrip("\n")
    assert line.endswith("…") and len(line) + line.count("東") + line.count("京") in (59, 60)


# -- completion -----------------------------------------------------------------------------------


def completed(dag, *words):
    ran = dag(
        _DAG_COMPLETE="bash_complete", COMP_WORDS=" ".join(("dag", *words)), COMP_CWORD=str(len(words)), code=0
    )
    return [line.split(",", 1)[1] for line in ran.out.splitlines() if line]


def test_completion_lists_commands_conversations_and_revisions(dag):
    dag("commit", "-m", "x")
    for name in ("trip", "train/night"):
        dag("fork", "HEAD", name)
    dag("tag", "tried")
    assert completed(dag, "re") == ["reflog", "reindex", "remote", "rename", "rev-parse"]
    assert completed(dag, "switch", "tr") == ["train/night", "trip"]
    assert completed(dag, "commit", "-c", "tri") == ["trip"]
    assert completed(dag, "log", "t") == ["train/night", "trip", "tags/tried"]
    assert completed(dag, "diff", "main", "H") == ["HEAD"]


def test_completion_is_silent_without_a_store(outside):
    assert completed(outside, "switch", "t") == []
    assert completed(outside, "--store", "nowhere", "switch", "t") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_shells_script(outside, shell):
    assert f"_DAG_COMPLETE={shell}_complete" in outside("completion", shell).out
