"""Builds for one machine alone have the code of its best instruction-set level, and of no other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dvm_graph import _core

ROOT = Path(__file__).parents[2]
TOOLS = Path(sys.executable).parent


def configure(folder: Path, levels: str) -> subprocess.CompletedProcess[str]:
    """What CMake says to a build of the C++ rooms alone."""
    command = [TOOLS / "cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", f"-DDVM_LEVELS={levels}"]
    command += [f"-DCMAKE_MAKE_PROGRAM={TOOLS / 'ninja'}", "-DDVM_BUILD_PYTHON=OFF"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def levels_of(folder: Path) -> list[str]:
    """The levels that the unit of joined instructions is to be compiled for."""
    commands = json.loads((folder / "compile_commands.json").read_text())
    objects = [entry["output"] for entry in commands if entry["file"].endswith("/joined.cpp")]
    return [name.split("dvm_units_")[1].split(".dir")[0] for name in objects]


@pytest.mark.parametrize(("levels", "most"), [("native", 1), ("all", None)])
def test_levels_of_a_build(tmp_path: Path, levels: str, most: int | None) -> None:
    done = configure(tmp_path, levels)
    assert done.returncode == 0, done.stderr
    whole = [
        level for level in _core.simd_levels() if level != "x86-64-v4-amx"
    ]  # some units once more
    assert set(levels_of(tmp_path)) >= set(whole[:most])
    assert most is None or len(levels_of(tmp_path)) == most


def test_portable_code_alone(tmp_path: Path) -> None:
    done = configure(tmp_path, "portable")
    assert done.returncode == 0, done.stderr
    assert levels_of(tmp_path) == ["portable"]


def test_unknown_levels(tmp_path: Path) -> None:
    done = configure(tmp_path, "x86-64-v3")
    assert done.returncode != 0
    assert "has to be all, native or portable" in done.stderr
