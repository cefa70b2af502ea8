"""Pairs of operators, fused, apart and on onnxruntime: `python -m benchmarks.units.pairs [--minutes 4] [--seed 0] [--least 1.5]`.

Every operator kind behind every other, with every view between (`tests/end_to_end/steps.py`), at extents where
kernels take tenths of milliseconds: a fused kernel that is slower than separate ones is a wrong decision, or a
kernel whose loops suit nobody. Pairs come in a drawn order; those above `--least` are listed, the slowest first.
All engines run in this process, one after the other: small ratios are noise.
"""

from __future__ import annotations

import itertools
import random
import time
import warnings
from collections.abc import Callable

import click
import onnxruntime
from rich.console import Console
from rich.table import Table

import dvm_graph
from dvm_graph.errors import DvmError
from tests.end_to_end import pairs, steps

CHANNELS, WIDTH, SIDE, BATCH = 32, 32, 40, 2
_SECONDS = 0.004
"""Of runs of one program, of which the least counts."""


@click.command(help=(__doc__ or "").splitlines()[0])
@click.option("--minutes", default=4.0)
@click.option("--seed", default=0)
@click.option(
    "--least", default=1.5, help="Times as long as unfused, from which on a pair is listed."
)
def main(minutes: float, seed: int, least: float) -> None:
    declared = "large"
    pairs.DECLARED[declared] = (
        ("a", CHANNELS, "c", "d"),
        ((BATCH, CHANNELS, SIDE, SIDE),),
    )
    steps.WIDTH = WIDTH
    names = itertools.product(
        steps.OPERATORS, steps.VIEWS, steps.CONSUMERS, ("nothing", "result"), [declared]
    )
    cases = [pairs.Pair(*each) for each in names]
    random.Random(seed).shuffle(cases)
    warnings.simplefilter("ignore")
    end = time.monotonic() + 60 * minutes
    rows, done = [], 0
    for case in cases:
        if time.monotonic() > end:
            break
        took = _times(case)
        if took is None:
            continue
        done += 1
        fused, apart, peer = took
        if fused > least * apart:
            rows.append((fused / apart, fused / peer, fused, case))
    _print(sorted(rows, key=lambda row: -row[0]), done, least)


def _times(case: pairs.Pair) -> tuple[float, float, float] | None:
    """Milliseconds: fused, unfused and onnxruntime's; None: there is no such model, or it does not run at these extents."""
    model = pairs.build(case)
    if model is None:
        return None
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.log_severity_level = 4
    try:
        feeds = next(pairs.feeds_of(case))
        fused, apart = (dvm_graph.optimize(model, fuse=fuse) for fuse in (True, False))
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return (
            _least(lambda: fused.run(feeds)),
            _least(lambda: apart.run(feeds)),
            _least(lambda: session.run(None, feeds)),
        )
    except (DvmError, ValueError, onnxruntime.capi.onnxruntime_pybind11_state.Fail):
        return None


def _least(run: Callable[[], object]) -> float:
    run()
    took: list[float] = []
    while sum(took) < _SECONDS or len(took) < 3:
        begin = time.perf_counter()
        run()
        took.append(time.perf_counter() - begin)
    return 1000 * min(took)


def _print(rows: list[tuple[float, float, float, pairs.Pair]], done: int, least: float) -> None:
    table = Table(title=f"{len(rows)} of {done} pairs are {least} times as slow as unfused")
    for column in (
        "over unfused",
        "over onnxruntime",
        "ms",
        "producer",
        "view",
        "consumer",
        "beside",
    ):
        table.add_column(column)
    for apart, peer, fused, case in rows[:40]:
        numbers = (f"{apart:.2f}", f"{peer:.2f}", f"{fused:.3f}")
        table.add_row(*numbers, case.producer, case.view, case.consumer, case.beside)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
