"""The machine's measured ceilings: builds `ceilings.cpp` with the C++ compiler at hand and runs it."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_SOURCE = Path(__file__).with_suffix(".cpp")


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Over all threads; NaN where there is no compiler."""

    fma_gflops: float = math.nan
    copy_gbs: float = math.nan
    """Read plus written."""
    read_gbs: float = math.nan


def build(folder: Path) -> Path | None:
    """The program, built anew if the source is newer; None without a compiler."""
    compiler = shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")
    if compiler is None:
        return None
    program = folder / "ceilings"
    if not program.exists() or program.stat().st_mtime < _SOURCE.stat().st_mtime:
        folder.mkdir(parents=True, exist_ok=True)
        flags = ["-std=c++20", "-O3", "-march=native", "-pthread"]
        subprocess.run([compiler, *flags, str(_SOURCE), "-o", str(program)], check=True)
    return program


def measure(program: Path | None, threads: int) -> Ceilings:
    """Takes about half a second."""
    if program is None:
        return Ceilings()
    command = [str(program), str(threads)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    fma, copy, read = (float(number) for number in result.stdout.split())
    return Ceilings(fma, copy, read)
