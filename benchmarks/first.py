"""What models of the zoo were like when they were first measured: written once, never overwritten.

In: results, and a CSV file beside the plots of their CPU. Out: the file's rows, to which those of models that it lacks are
added. A model is measured before anything is tuned for it, so both figures stay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.paired import engines, geometric_mean, of_workload, pairs, workloads
from benchmarks.results import Results
from benchmarks.rows import Row, read_rows, write_rows
from benchmarks.tables import Table, number, title
from benchmarks.turns import SUBJECT


@dataclass(frozen=True, slots=True)
class First:
    """The speed-up over an engine, as the first run had it."""

    workload: str
    against: str
    points: int
    speedup: float


def first_measured(results: Results, path: Path) -> list[First]:
    """The file with what `results` add to it; it is written where they add something."""
    known = read_rows(First, path) if path.exists() else []
    there = {(one.workload, one.against) for one in known}
    added = [
        one
        for one in _speedups(results.parts.get("zoo", ()))
        if (one.workload, one.against) not in there
    ]
    if added:
        write_rows(First, [*known, *added], path)
    return [*known, *added]


def first_table(first: Sequence[First], rows: Sequence[Row]) -> Table:
    """Beside what `rows` say now; empty where they do not."""
    now = {(one.workload, one.against): one.speedup for one in _speedups(rows)}
    columns = ("model", "against", "first measured", "now")
    lines = []
    for one in first:
        speedup = now.get((one.workload, one.against), math.nan)
        lines.append((one.workload, title(one.against), number(one.speedup), number(speedup)))
    return Table("Speed-up when first measured, and now", columns, tuple(lines))


def _speedups(rows: Sequence[Row]) -> list[First]:
    found = []
    for workload in workloads(rows):
        chosen = of_workload(rows, workload)
        for name in engines(chosen):
            speedups = [pair.speedup for pair in pairs(chosen, name)]
            if name != SUBJECT and speedups:
                mean = round(geometric_mean(speedups), 3)
                found.append(First(workload, name, len(speedups), mean))
    return found
