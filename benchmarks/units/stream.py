"""What streams cost: microseconds for each operator that is appended, and for each flush.

`python -m benchmarks.units.stream [--threads 2] [--rounds 2000]`

Chains of element-wise operators over a few elements, so that next to nothing is computed. `append` is the time of the
calls from Python; of a flush, `compile` is that of the kernels' compilation, `fuse` everything else: the graph, its
groups, plans, memory, the launch. Two lengths of chains give what an operator of a flush takes, and what a flush takes besides.
Medians.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from dvm_graph import _core
from dvm_graph.options import Options
from dvm_graph.stream import open_stream

LENGTHS = (1, 4, 16, 64)
OPERATORS = ("add", "mul", "tanh", "sub", "abs", "max")


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds."""

    append: float
    """For each operator."""
    fuse: float
    """Of a flush, but for compiling."""
    compile: float


def chain(stream: _core.Stream, x: _core.StreamValue, length: int) -> _core.StreamValue:
    """A chain of `length` operators behind x."""
    y = x
    for i in range(length):
        op = OPERATORS[i % len(OPERATORS)]
        y = stream.append(op, (y,) if op in ("tanh", "abs") else (y, x))
    return y


def measure(stream: _core.Stream, length: int, rounds: int) -> Cost:
    """What chains of a length cost."""
    x = stream.constant(np.ones((4, 16), np.float32))
    appends, fuses, compiles = [], [], []
    for _ in range(rounds):
        before = stream.statistics
        start = time.perf_counter_ns()
        y = chain(stream, x, length)
        appends.append(time.perf_counter_ns() - start)
        stream.flush()
        after = stream.statistics
        compiling = after["compile_ns"] - before["compile_ns"]
        compiles.append(compiling)
        fuses.append(after["run_ns"] - before["run_ns"] - compiling)
        del y
    return Cost(
        statistics.median(appends) / length / 1e3,
        statistics.median(fuses) / 1e3,
        statistics.median(compiles) / 1e3,
    )


@click.command(help=__doc__)
@click.option("--threads", default=2, help="Cores.")
@click.option("--rounds", default=2000, help="Flushes of each length.")
def main(threads: int, rounds: int) -> None:
    stream = open_stream(Options(cores=threads))
    table = Table("operators", "append us each", "fuse us", "compile us")
    costs = {length: measure(stream, length, rounds) for length in LENGTHS}
    for length, cost in costs.items():
        numbers = (cost.append, cost.fuse, cost.compile)
        table.add_row(str(length), *(f"{number:.2f}" for number in numbers))
    console = Console()
    console.print(table)
    first, last = LENGTHS[0], LENGTHS[-1]
    each = (costs[last].fuse - costs[first].fuse) / (last - first)
    console.print(
        f"of a flush, {each:.2f} us for each operator and {costs[first].fuse - each:.2f} us besides"
    )


if __name__ == "__main__":
    main()
