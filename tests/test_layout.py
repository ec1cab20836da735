"""The floors: imports go downward only, never in a circle, and only the command line sees the world outside."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = {
    "refs": {"refs"},
    "objstore": {"refs", "objstore"},
    "cli": {"refs", "objstore", "cli"},
}
LIBRARIES = {
    "refs": set(),
    "objstore": {"orjson", "zstandard", "ulid", "obstore"},
    "cli": {"click", "orjson", "zstandard", "ulid", "obstore"},
}
# What only the command line may touch: environment, terminal, arguments, the zone of the clock, the locale.
OUTSIDE = {
    "os.environ", "os.environb", "os.getenv", "os.get_terminal_size", "os.isatty", "shutil.get_terminal_size",
    "sys.argv", "sys.stdin", "sys.stdout", "sys.stderr", "sys.exit", "time.localtime", "time.tzname",
    "time.timezone", "locale.getlocale", "os.path.expanduser", "os.path.expandvars",
}  # fmt: skip
OUTSIDE_CALLS = {"print", "input"}

FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for floor in FLOORS
    for path in sorted((ROOT / floor).rglob("*.py"))
}
TREES = {name: ast.parse(path.read_text("utf-8"), str(path)) for name, path in FILES.items()}
MODULES = [pytest.param(name, id=name) for name in FILES]


def imports(module: str) -> Iterator[str]:
    """The full names of all that a module imports, wherever in it."""
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{module}: imports here name the whole way"
            for each in node.names:
                inner = f"{node.module}.{each.name}"
                yield inner if inner in FILES else node.module


def dotted(node: ast.expr) -> str:
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_downward_only(module):
    floor = module.split(".", maxsplit=1)[0]
    for name in imports(module):
        top = name.split(".", maxsplit=1)[0]
        if top in FLOORS:
            assert top in FLOORS[floor], f"{module} imports {name}"
        else:
            assert top in sys.stdlib_module_names | LIBRARIES[floor], f"{module} imports {name}"


def circles(edges: dict[str, set[str]]) -> set[str]:
    """What is left when all are taken away that import, or are imported by, nothing that is left."""
    left = set(edges)
    while True:
        imported = {name for module in left for name in edges[module]}
        gone = {module for module in left if not edges[module] & left or module not in imported}
        if not gone:
            return left
        left -= gone


def test_no_module_imports_itself_in_a_circle():
    # The package's own face names its modules lazily, for type checkers only: it is nobody's floor.
    edges = {module: set(imports(module)) for module in FILES if module != "objstore"}
    assert circles(edges) == set()


def test_a_circle_is_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == {"b", "c"}


@pytest.mark.parametrize("module", [each for each in MODULES if each.id.split(".")[0] != "cli"])
def test_only_the_command_line_sees_the_world_outside(module):
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Attribute):
            assert dotted(node) not in OUTSIDE, f"{module}:{node.lineno}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in OUTSIDE_CALLS, f"{module}:{node.lineno}"
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{each.name}" for each in node.names}
            assert not names & OUTSIDE, f"{module}:{node.lineno}"


def in_a_fresh_process(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return run.stdout.strip()


def test_importing_the_library_loads_no_library():
    heavy = ["orjson", "zstandard", "ulid", "click", "sqlite3", "json"]
    code = (
        f"import sys; before = {{*sys.modules}}; import objstore; print({{*{heavy}}} & {{*sys.modules}} - before)"
    )
    assert in_a_fresh_process(code) == "set()"


def test_every_public_name_is_there_and_said_to_type_checkers():
    names = in_a_fresh_process(
        "import objstore; print(*(n for n in objstore.__all__ if getattr(objstore, n)))"
    ).split()
    said = {node.names[0].asname for node in ast.walk(TREES["objstore"]) if isinstance(node, ast.ImportFrom)}
    assert names == sorted(names) and set(names) == {name for name in said if name}


def test_unknown_public_name_is_an_attribute_error():
    code = "import objstore\ntry: objstore.nothing\nexcept AttributeError as error: print(error)"
    assert in_a_fresh_process(code) == "module 'objstore' has no attribute 'nothing'"
