"""Runs of one model by several threads: `python -m benchmarks.units.callers MODEL --dim batch=1 [--seconds 1] [--rounds 5]`.

How many runs a second the threads of a server get out of a model that they share: of as many cores for a run as there are, and
of one, where each thread has its own; and the same of sessions of onnxruntime. All are in this process, turn by turn, medians.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable

import click
import onnxruntime
from rich.console import Console
from rich.table import Table

import dvm_graph
from dvm_graph.feeds import random_feeds
from models import base_path

Run = Callable[[], object]


def _session(path: str, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options)


def _runs_a_second(run: Run, callers: int, seconds: float) -> float:
    counts, end = [0] * callers, time.perf_counter() + seconds

    def call(number: int) -> None:
        while time.perf_counter() < end:
            run()
            counts[number] += 1

    threads = [threading.Thread(target=call, args=(number,)) for number in range(callers)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - begin)


@click.command()
@click.argument("model")
@click.option("--dim", "dims", multiple=True, help="name=extent")
@click.option("--seconds", default=1.0, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--callers", multiple=True, type=int, default=[1, 2, 4], show_default=True)
def main(
    model: str, dims: tuple[str, ...], seconds: float, rounds: int, callers: tuple[int, ...]
) -> None:
    """Runs a second."""
    path = str(base_path(model)) if "." not in model else model
    whole, single = dvm_graph.optimize(path), dvm_graph.optimize(path, cores=1)
    feeds = random_feeds(whole, {n: int(v) for n, _, v in (dim.partition("=") for dim in dims)}, 1)
    sessions = [_session(path, threads) for threads in (0, 1)]
    runs: dict[str, Run] = {
        "all cores": lambda: whole.run(feeds),
        "onnxruntime": lambda: sessions[0].run(None, feeds),
        "a core each": lambda: single.run(feeds),
        "onnxruntime ": lambda: sessions[1].run(None, feeds),
    }
    table = Table(title=f"{model}: runs a second")
    for heading in ("threads", *runs):
        table.add_column(heading)
    for run in runs.values():
        run()
    for count in callers:
        found: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(rounds):
            for name, run in runs.items():
                found[name].append(_runs_a_second(run, count, seconds))
        table.add_row(str(count), *(f"{statistics.median(each):.1f}" for each in found.values()))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
