"""The results: one `Row` for each engine at each point, and CSV files of such rows."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")

TOLERANCE = 1e-4
"""Of an f32 result against onnxruntime's, relative to the largest magnitude of the output."""

BF16_TOLERANCE = 3e-2
"""The same where operands of products were rounded to bf16; see `BF16_PRODUCTS` of dvm_graph/compare.py."""


@dataclass(frozen=True, slots=True)
class Row:
    """An engine at a point; times are medians over the rounds. NaN is what was not measured."""

    part: str
    workload: str
    index: int
    point: str
    engine: str
    status: str
    """`ok`, `wrong`, or the engine's error."""
    run_ms: float = math.nan
    first_ms: float = math.nan
    """The run after another shape."""
    cold_ms: float = math.nan
    """The first run ever at this shape."""
    spread: float = math.nan
    """The engine against itself: odd rounds over even ones."""
    error: float = math.nan
    kernels: int = 0
    """Compiled in the first run; its costs follow, on the engine's own clock."""
    compile_mean_us: float = math.nan
    compile_max_us: float = math.nan
    compile_total_us: float = math.nan
    load_s: float = math.nan
    resident_mb: float = math.nan
    """After all points of the workload."""
    peak_mb: float = math.nan
    flops: int = 0
    bytes: int = 0
    fma_gflops: float = math.nan
    """Ceilings measured just before the workload."""
    copy_gbs: float = math.nan
    read_gbs: float = math.nan

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def compile_ms(self) -> float:
        """What the first run at this shape cost on top of a repeat; by its own clock where the engine has one."""
        if self.kernels:
            return self.compile_total_us / 1e3
        return max(0.0, self.cold_ms - self.run_ms)

    @property
    def compile_max_ms(self) -> float:
        return self.compile_max_us / 1e3 if self.kernels else self.compile_ms

    @property
    def gflops(self) -> float:
        return self.flops / self.run_ms / 1e6

    @property
    def gbs(self) -> float:
        return self.bytes / self.run_ms / 1e6


def write_rows(kind: type[Any], rows: Iterable[Any], path: Path) -> None:
    """`kind` is a dataclass of int, float and str fields; `rows` are its instances."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(kind)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def read_rows(kind: type[T], path: Path) -> list[T]:
    """The rows that `write_rows` wrote; a `ValueError` where the file has other columns."""
    types = get_type_hints(kind)
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != list(types):
            raise ValueError(f"{path} has the columns of another version: run the benchmark again")
        return [kind(**{name: types[name](text) for name, text in row.items()}) for row in reader]
