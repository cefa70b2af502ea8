"""Optimises the tiny BERT, runs it at shapes never seen before, compares with onnxruntime.

Prints errors, kernels, compile time per kernel and time against onnxruntime, and draws the fusion
clusters. Times are medians of interleaved runs; on a model this small they show mostly overhead.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from numpy.typing import NDArray
from onnxruntime import InferenceSession
from rich.console import Console

import dvm_graph
from dvm_graph.cli.tables import print_table
from dvm_graph.comparison import compare_output, reference_session
from models import random_feeds, tiny_path

Run: TypeAlias = Callable[[], list[NDArray[Any]]]
SHAPES = ((1, 1), (1, 7), (2, 16), (3, 77), (1, 128), (4, 50), (8, 128), (5, 31), (16, 64))
REPEATS = 9
PICTURE = Path("build/demo/bert.html")


def main() -> int:
    console = Console()
    path = tiny_path("bert")
    begin = time.perf_counter()
    model = dvm_graph.optimize(path)
    seconds = time.perf_counter() - begin
    report = model.report()
    console.print(
        f"{path.name} in {seconds * 1e3:.0f} ms: {report.basic_operators} basic operators "
        f"-> {report.kernels} kernels in {report.launches} launches, "
        f"{len(report.vendor_operators)} vendor operators"
    )
    session = reference_session(path, threads=model.cores)
    rows, passed = [], True
    for batch, seq in SHAPES:
        cells, equal = _run_shape(model, session, path, batch, seq)
        rows.append(cells)
        passed &= equal
    columns = ("batch", "seq", "error", "equal", "kernels", "us/kernel", "first", "again", "ORT")
    title = "tiny BERT, a new shape every row, and onnxruntime (ORT); runs in ms"
    print_table(console, columns, rows, title=title, texts=0)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    model.visualize(PICTURE)
    console.print(f"fusion clusters drawn to {PICTURE}; open it in a browser")
    return 0 if passed else 1


def _run_shape(
    model: dvm_graph.Model, session: InferenceSession, path: Path, batch: int, seq: int
) -> tuple[list[str], bool]:
    """One row of the table, and whether the outputs are equal."""
    feeds = random_feeds(path, {"batch": batch, "seq": seq}, seed=batch * 1000 + seq)
    first, actual = _timed(lambda: model.run(feeds))
    cost = model.statistics
    outputs = [
        compare_output(info.name, a, e)
        for info, a, e in zip(model.get_outputs(), actual, session.run(None, feeds), strict=True)
    ]
    equal = all(output.passed for output in outputs)
    ours, theirs = _interleaved(lambda: model.run(feeds), lambda: session.run(None, feeds))
    cells = [
        str(batch),
        str(seq),
        f"{max(output.max_absolute_error for output in outputs):.1e}",
        "yes" if equal else "NO",
        str(cost.kernels_compiled),
        f"{cost.mean_compile_ns / 1e3:.2f}",
        *(f"{seconds * 1e3:.2f}" for seconds in (first, ours, theirs)),
    ]
    return cells, equal


def _timed(run: Run) -> tuple[float, list[NDArray[Any]]]:
    begin = time.perf_counter()
    result = run()
    return time.perf_counter() - begin, result


def _interleaved(ours: Run, theirs: Run) -> tuple[float, float]:
    mine, other = [], []
    for _ in range(REPEATS):
        mine.append(_timed(ours)[0])
        other.append(_timed(theirs)[0])
    return statistics.median(mine), statistics.median(other)


if __name__ == "__main__":
    sys.exit(main())
