"""Holds imports, in Python and in C++, to the tables of ARCHITECTURE.md.

The table of rooms says which room may import which; the table of libraries says who may use what.
Imports inside of functions and for type checkers count as well, except for cycles: `model.py` offers
the work of rooms above it as methods, and imports those only when called.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "dvm_graph"
_NAME = re.compile(r"`([^`]+)`")
_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.MULTILINE)


def _table(title: str) -> list[list[str]]:
    """The rows below a heading of ARCHITECTURE.md, without the head of the table."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def _names(cell: str) -> list[str]:
    return [name.removesuffix("/") for group in _NAME.findall(cell) for name in group.split()]


EVERYBODY = {"errors.py", "options.py", "records.py"}
ROOMS = {room: set(_names(row[2])) for row in _table("Rooms") for room in _names(row[0])}
LIBRARIES = {name: set(_names(row[1])) for row in _table("Libraries") for name in _names(row[0])}
PYTHON = sorted(path for suffix in ("py", "pyi") for path in PACKAGE.rglob(f"*.{suffix}"))
CPP = sorted(path for suffix in ("h", "cpp", "def") for path in PACKAGE.rglob(f"*.{suffix}"))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def _room_of_module(module: str) -> str:
    """`dvm_graph.ir.graph` is in `ir`, `dvm_graph.errors` is `errors.py`."""
    parts = module.split(".")
    if len(parts) == 1:
        return "__init__.py"
    if parts[1] == "_core":
        return "_core.pyi"
    return parts[1] if (PACKAGE / parts[1]).is_dir() else f"{parts[1]}.py"


def _modules(node: ast.AST) -> Iterator[str]:
    """What an import statement names; `from dvm_graph import errors` names the module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        if node.module == "dvm_graph":
            yield from (f"dvm_graph.{alias.name}" for alias in node.names)
        else:
            yield node.module or ""


def imports(path: Path, *, lazy: bool = True) -> set[str]:
    """Modules that a file imports; `lazy`: inside of functions and for type checkers too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = ast.walk(tree) if lazy else iter(tree.body)
    return {module for node in nodes for module in _modules(node)}


def rooms_imported(path: Path, *, lazy: bool = True) -> set[str]:
    """Rooms of the package that a file imports, but its own and those open to everybody."""
    modules = {name for name in imports(path, lazy=lazy) if name.split(".")[0] == "dvm_graph"}
    return {_room_of_module(name) for name in modules} - {room_of(path)} - EVERYBODY


def test_every_room_has_a_row_and_every_row_a_room() -> None:
    found = {room_of(path) for path in (*PYTHON, *CPP)}
    assert found == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_python_imports(room: str) -> None:
    for path in PYTHON:
        if room_of(path) == room:
            assert rooms_imported(path) <= ROOMS[room], path


@pytest.mark.parametrize("room", ROOMS)
def test_cpp_includes(room: str) -> None:
    for path in CPP:
        if room_of(path) != room:
            continue
        for included in _INCLUDE.findall(path.read_text(encoding="utf-8")):
            target = included.split("/")[0]
            if (PACKAGE / included).exists():
                assert target in ROOMS[room] | {room}, f"{path} includes {included}"


def test_no_file_of_the_vm_names_a_device() -> None:
    """But for comments: specs, the folders of devices, makers, and vector units of CPUs."""
    npu = PACKAGE / "npu"
    names = {path.stem for path in (npu / "specs").rglob("*.toml")} - {"families", "generic"}
    names |= {path.name for path in npu.iterdir() if any(path.glob("*.cpp"))}
    assert {"ascend910b2", "zen4", "host", "simulator"} <= names
    names |= {"ascend", "intel", "amd", "avx", "amx", "neon"}
    pattern = "|".join(re.escape(name).replace(r"\-", "[-_]?") for name in sorted(names))
    named = re.compile(rf"(?<![a-z])(?:{pattern})(?![a-z])", re.IGNORECASE)
    for path in CPP:
        if room_of(path) != "vm":
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert not named.search(line.split("//")[0]), f"{path}:{number}: {line}"


def test_includes_name_files_from_the_package_on() -> None:
    for path in CPP:
        for line in path.read_text(encoding="utf-8").splitlines():
            match = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
            if match:
                assert (PACKAGE / match[1]).exists(), f"{path}: {match[1]}"


def test_rooms_form_no_cycle() -> None:
    graph: nx.DiGraph[str] = nx.DiGraph()
    for path in PYTHON:
        graph.add_edges_from((room_of(path), other) for other in rooms_imported(path, lazy=False))
    graph.remove_node("__init__.py")
    assert list(nx.simple_cycles(graph)) == []


@pytest.mark.parametrize("library", LIBRARIES)
def test_libraries(library: str) -> None:
    for path in PYTHON:
        used = {name.split(".")[0] for name in imports(path)}
        if library in used:
            assert room_of(path) in LIBRARIES[library], f"{path} imports {library}"
    for path in CPP:
        for included in _INCLUDE.findall(path.read_text(encoding="utf-8")):
            if included.split("/")[0] == library:
                assert path.stem.startswith("bindings"), f"{path} includes {included}"
