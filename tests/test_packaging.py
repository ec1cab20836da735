"""What the wheel holds: exactly the packages, and what they need beside the code."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PACKAGES = sorted(
    ".".join(path.parent.relative_to(ROOT).parts)
    for floor in ("refs", "objstore", "cli")
    for path in (ROOT / floor).rglob("__init__.py")
)


def test_list_of_packages_is_what_is_on_disk():
    assert sorted(PROJECT["tool"]["setuptools"]["packages"]) == PACKAGES
    assert sorted(PROJECT["tool"]["mypy"]["packages"]) == sorted({name.split(".")[0] for name in PACKAGES})


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The modules on disk, and the files of the wheel that was made of them."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*", "build", "dist")
    shutil.copytree(ROOT, source, ignore=skip)  # building leaves things behind
    code = {
        path.relative_to(source).as_posix()
        for package in PACKAGES
        for path in (source / package.replace(".", "/")).glob("*.py")
    }
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(source)]
    if int(version("setuptools").split(".")[0]) >= 77:
        command.append("--no-isolation")  # nothing has to be fetched
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    [made] = folder.glob("*.whl")
    with zipfile.ZipFile(made) as archive:
        return code, {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def wheel(built):
    return built[1]


def test_wheel_holds_every_module_and_nothing_else(built):
    code, wheel = built
    typed = {f"{name}/py.typed" for name in ("refs", "objstore", "cli")}
    assert {name for name in wheel if ".dist-info/" not in name} == code | typed


def test_wheel_says_who_it_is(wheel):
    [metadata] = [text.decode() for name, text in wheel.items() if name.endswith(".dist-info/METADATA")]
    assert re.search(r"^Name: msgdag$", metadata, re.MULTILINE)
    assert re.search(rf"^Version: {re.escape(PROJECT['project']['version'])}$", metadata, re.MULTILINE)
    assert re.search(r"^Requires-Python: >=3\.11$", metadata, re.MULTILINE)
    assert re.search(r"^License-Expression: MIT$", metadata, re.MULTILINE)


def test_wheel_brings_the_license_and_the_command(wheel):
    [entry_points] = [
        text.decode() for name, text in wheel.items() if name.endswith(".dist-info/entry_points.txt")
    ]
    assert entry_points.split() == ["[console_scripts]", "dag", "=", "cli.main:main"]
    [license_text] = [text for name, text in wheel.items() if name.endswith("/LICENSE")]
    assert license_text == (ROOT / "LICENSE").read_bytes()


def test_installed_version_is_the_one_of_the_project():
    assert version("msgdag") == PROJECT["project"]["version"]
