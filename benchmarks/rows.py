"""The results: one `Row` for each engine at each point, and CSV files of such rows.

Times are kept round by round, since what is compared is the median over the rounds of ratios within a round.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")
Rounds = tuple[float, ...]
"""A figure of every round, in order."""

TOLERANCE = 1e-4
"""Of an f32 result against onnxruntime's, relative to the largest magnitude of the output."""

BF16_TOLERANCE = 3e-2
"""The same where operands of products were rounded to bf16; see `PRODUCTS` of dvm_graph/comparison.py."""


@dataclass(frozen=True, slots=True)
class Row:
    """An engine at a point. Empty rounds and NaN are what was not measured."""

    part: str
    workload: str
    index: int
    point: str
    engine: str
    status: str
    """`ok`, `wrong`, or the engine's error."""
    runs_ms: Rounds = ()
    """A run at the shape: in each round the median of a visit's repeats."""
    firsts_ms: Rounds = ()
    """The run after one at another shape."""
    controls_ms: Rounds = ()
    """As `runs_ms`, of the second visit that the reference makes in each round."""
    fma_gflops: Rounds = ()
    """Ceilings measured in the same rounds."""
    copy_gbs: Rounds = ()
    read_gbs: Rounds = ()
    cold_ms: float = math.nan
    """The first run ever at this shape."""
    error: float = math.nan
    kernels: int = 0
    """Compiled in the first run of a visit; its costs follow, on the engine's own clock."""
    compile_us: Rounds = ()
    longest_us: Rounds = ()
    """The kernel that took longest."""
    settling_kernels: int = 0
    """The same of the run at another shape that begins a visit, when the caches hold what other engines left."""
    settling_us: Rounds = ()
    settling_longest_us: Rounds = ()
    load_s: float = math.nan
    resident_mb: float = math.nan
    """After all points of the workload."""
    peak_mb: float = math.nan
    flops: int = 0
    bytes: int = 0

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def run_ms(self) -> float:
        return median(self.runs_ms)

    @property
    def first_over_repeat(self) -> float:
        return median_ratio(self.firsts_ms, self.runs_ms)

    @property
    def noise(self) -> float:
        """The control against the same engine's other visit."""
        return median_ratio(self.controls_ms, self.runs_ms)

    @property
    def compile_ms(self) -> float:
        """What the first run at this shape cost on top of a repeat; by its own clock where the engine has one."""
        if self.kernels:
            return median(self.compile_us) / 1e3
        return max(0.0, self.cold_ms - self.run_ms)

    @property
    def compile_max_ms(self) -> float:
        return median(self.longest_us) / 1e3 if self.kernels else self.compile_ms

    @property
    def achieved(self) -> float:
        """Fraction of the ceiling that binds: FMA rate, or traffic of a model's weights (read) or of tensors (copy)."""
        bus = self.read_gbs if self.part in ("models", "zoo") else self.copy_gbs
        gflops = [self.flops / run / 1e6 for run in self.runs_ms]
        gbs = [self.bytes / run / 1e6 for run in self.runs_ms]
        return max(median_ratio(gflops, self.fma_gflops), median_ratio(gbs, bus))


def median(rounds: Sequence[float]) -> float:
    """NaN for no rounds; those that are NaN do not count."""
    known = [value for value in rounds if not math.isnan(value)]
    return statistics.median(known) if known else math.nan


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Round by round; none where either was not measured."""
    return [a / b for a, b in zip(above, below, strict=True)] if above and below else []


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """The median over the rounds of the ratio within a round."""
    return median(ratios(above, below))


def write_rows(kind: type[Any], rows: Iterable[Any], path: Path) -> None:
    """`kind` is a dataclass of int, float, str and `Rounds` fields; `rows` are its instances."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(kind)])
        writer.writeheader()
        for row in rows:
            writer.writerow({name: _text(value) for name, value in asdict(row).items()})


def read_rows(kind: type[T], path: Path) -> list[T]:
    """The rows that `write_rows` wrote; a `ValueError` where the file has other columns."""
    types = get_type_hints(kind)
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != list(types):
            raise ValueError(f"{path} has the columns of another version: run the benchmark again")
        return [
            kind(**{name: _value(types[name], text) for name, text in row.items()})
            for row in reader
        ]


def _text(value: object) -> object:
    return " ".join(f"{number:.6g}" for number in value) if isinstance(value, tuple) else value


def _value(kind: Any, text: str) -> object:
    return tuple(float(word) for word in text.split()) if kind == Rounds else kind(text)
