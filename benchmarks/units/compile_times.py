"""Compile times per kernel: cold, inside runs of a model that changes its shape every time, and hot, each
kernel compiled many times in a row.

`python -m benchmarks.units.compile_times bert batch=1,seq=32 batch=4,seq=128 [--repeats 9] [--stream 64]`

With `--stream`, the calling thread reads so many megabytes between runs. A run of few kernels then finds
the compiler where it is after runs over much memory: in no cache of a core.

A kernel compiled counts once for all the launches that share its programs. `mean` and `max` are over the
kernels of a run, medians over the repeats; `best max` is the least maximum of all repeats, which no
interruption by the system is in.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import dvm_graph
from dvm_graph.runtime.program import CompileTime, RunStatistics
from models import base_path, random_feeds

COLUMNS = (
    "dims",
    "compiled",
    "launched",
    "total us",
    "mean us",
    "per launch us",
    "max us",
    "best max us",
    "of the run %",
    "hot mean us",
    "hot max us",
)


@click.command()
@click.argument("name")
@click.argument("dims", nargs=-1, required=True)
@click.option("--repeats", default=9, show_default=True)
@click.option("--threads", default=2, show_default=True)
@click.option("--stream", default=0, help="Megabytes to read between runs.")
@click.option("--slowest", default=0, help="Also list so many kernels, by their hot time.")
def main(
    name: str, dims: tuple[str, ...], repeats: int, threads: int, stream: int, slowest: int
) -> None:
    """Compile times of the model NAME (a base export, or a path) at each of DIMS, visited in turn."""
    path = Path(name) if Path(name).exists() else base_path(name)
    model = dvm_graph.optimize(path, dvm_graph.Options(cores=threads))
    points = [_parse(text) for text in dims]
    costs = _cold(model, path, points, repeats, stream)
    table = Table(title=f"compile times of {name}")
    for column in COLUMNS:
        table.add_column(column)
    console = Console(width=140)
    for text, point in zip(dims, points, strict=True):
        hot = model.compile_times(point)
        table.add_row(text, *_row(costs[text], hot))
        for time in sorted(hot, key=lambda time: -time.median_ns)[:slowest]:
            console.print(f"{text}: {time.kernel} {time.median_ns / 1e3:.2f} us")
    console.print(table)


def _parse(text: str) -> dict[str, int]:
    pairs = (part.split("=") for part in text.split(","))
    return {symbol: int(extent) for symbol, extent in pairs}


def _cold(
    model: dvm_graph.Model, path: Path, points: list[dict[str, int]], repeats: int, stream: int
) -> Mapping[str, list[RunStatistics]]:
    """Every run is at another shape than the one before; with one shape, a neighbour comes between."""
    visited = points if len(points) > 1 else [*points, {s: e + 1 for s, e in points[0].items()}]
    feeds = [random_feeds(path, point, 1) for point in visited]
    names = [
        ",".join(f"{symbol}={extent}" for symbol, extent in point.items()) for point in visited
    ]
    streamed = np.ones(stream << 20, np.uint8)
    costs: dict[str, list[RunStatistics]] = {name: [] for name in names}
    for turn in range(repeats + 1):
        for name, arrays in zip(names, feeds, strict=True):
            streamed.max(initial=0)
            model.run(arrays)
            if turn > 0:  # the first one touches every weight
                costs[name].append(model.statistics)
    return costs


def _row(costs: list[RunStatistics], hot: list[CompileTime]) -> list[str]:
    total = statistics.median(cost.compile_ns for cost in costs)
    share = statistics.median(cost.compile_ns / cost.run_ns for cost in costs)
    launched = statistics.median(cost.kernels_launched for cost in costs)
    slowest = [cost.max_compile_ns for cost in costs]
    return [
        f"{statistics.median(cost.kernels_compiled for cost in costs):.0f}",
        f"{launched:.0f}",
        f"{total / 1e3:.0f}",
        f"{statistics.median(cost.mean_compile_ns for cost in costs) / 1e3:.2f}",
        f"{total / launched / 1e3:.2f}",
        f"{statistics.median(slowest) / 1e3:.1f}",
        f"{min(slowest) / 1e3:.1f}",
        f"{100 * share:.2f}",
        f"{statistics.mean(time.median_ns for time in hot) / 1e3:.2f}",
        f"{max(time.median_ns for time in hot) / 1e3:.2f}",
    ]


if __name__ == "__main__":
    main()
