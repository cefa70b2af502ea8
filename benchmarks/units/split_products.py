"""What splitting a product along k over the cores gains.

`python -m benchmarks.units.split_products [--threads 2] [--rounds 20]`

Products with a long k and fewer tiles than cores: their time on one core, where nothing is split, over that on
`--threads` cores and over onnxruntime's on as many threads. Below, into how many pieces devices of more cores would
split them; 0 where they would not. Every engine's turn is at the same shape; the time is a median, the others are
medians over rounds of ratios within a round.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable
from functools import partial

import click
import numpy as np
import onnx.parser
import onnxruntime as ort
from rich.console import Console
from rich.table import Table

import dvm_graph
from benchmarks.rows import median_ratio

SHAPES = ((4, 16, 65_536), (1, 32, 100_000), (14, 32, 5_000), (8, 16, 4_096), (14, 256, 4_096))
"""(m, n, k)."""
CORES = (1, 2, 4, 8, 16, 32)
_MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[m, k] a, float[k, n] b) => (float[m, n] y) { y = MatMul (a, b) }
"""
_REPEATS = 5


def pieces(model: dvm_graph.Model, m: int, n: int, k: int) -> int:
    """Into which the product of this shape is split."""
    [listing] = model.listings({"m": m, "n": n, "k": k})
    *programs, _ = listing.text.split("end\n")[:-1]
    return sum(
        int(count) for part in programs for count in re.findall(r"^  tiles (\d+)", part, re.M)
    )


def seconds(runs: list[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Of each, a median time for every round."""
    return [list(of_one) for of_one in zip(*(_round(runs) for _ in range(rounds)), strict=True)]


def _round(runs: list[Callable[[], object]]) -> list[float]:
    medians = []
    for run in runs:
        time.sleep(0.002)  # the threads of the engine before stop spinning
        run()
        taken = []
        for _ in range(_REPEATS):
            start = time.perf_counter()
            run()
            taken.append(time.perf_counter() - start)
        medians.append(statistics.median(taken))
    return medians


@click.command()
@click.option("--threads", default=2, show_default=True)
@click.option("--rounds", default=20, show_default=True)
def main(threads: int, rounds: int) -> None:
    """Speed-up over one core and onnxruntime, and pieces for more cores."""
    source = onnx.parser.parse_model(_MODEL)
    models = {cores: dvm_graph.optimize(source, cores=cores) for cores in {1, threads, *CORES}}
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    providers = ["CPUExecutionProvider"]
    session = ort.InferenceSession(source.SerializeToString(), options, providers=providers)
    table = Table("m", "n", "k", "us", "over one core", "over onnxruntime", *map(str, CORES))
    generator = np.random.default_rng(0)
    for m, n, k in SHAPES:
        feeds = {
            "a": generator.standard_normal((m, k), dtype=np.float32),
            "b": generator.standard_normal((k, n), dtype=np.float32),
        }
        many, one, other = seconds(
            [
                partial(models[threads].run, feeds),
                partial(models[1].run, feeds),
                partial(session.run, None, feeds),
            ],
            rounds,
        )
        counts = (str(pieces(models[cores], m, n, k)) for cores in CORES)
        ratios = (f"{median_ratio(slower, many):.2f}" for slower in (one, other))
        time_us = statistics.median(many) * 1e6
        table.add_row(str(m), str(n), str(k), f"{time_us:.0f}", *ratios, *counts)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
