"""Memory-bound chains over 16-bit tensors against the same chains over f32.

`python -m benchmarks.units.half [CHAIN...] [--threads 2] [--rounds 15]`

The chains are the memory-bound ones, at extents whose f32 tensors fit the last-level cache and at others that do not.
Half the bytes should take half the time where memory is the limit, and never more than f32 takes.

The three element types take turns; medians.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Mapping
from typing import Any

import click
import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import parser
from rich.console import Console
from rich.table import Table

import dvm_graph
from benchmarks.graphs import GRAPHS
from benchmarks.memory_bound import OPERATORS

TYPES: Mapping[str, Any] = {
    "float": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}
POINTS: Mapping[str, tuple[dict[str, int], ...]] = {
    "softmax": ({"r": 7, "c": 32001}, {"r": 613, "c": 32001}),
    "rms_norm": ({"b": 3, "s": 77, "h": 768}, {"b": 8, "s": 1021, "h": 2048}),
    "gelu_erf": ({"r": 77, "c": 3072}, {"r": 2039, "c": 4099}),
    "gelu_tanh": ({"r": 77, "c": 3072}, {"r": 2039, "c": 4099}),
    "residual_layer_norm": ({"b": 3, "s": 77, "h": 768}, {"b": 8, "s": 1021, "h": 2048}),
    "broadcast": ({"a": 7, "b": 641, "c": 333}, {"a": 101, "b": 1009, "c": 97}),
    "semiprime": ({"n": 101 * 1013}, {"n": 4999 * 5003}),
    "transpose": ({"a": 12, "b": 64, "c": 77}, {"a": 16, "b": 1021, "c": 1021}),
    "outer_sum": ({"r": 4096, "c": 100}, {"r": 31, "c": 1_000_003}),
}
assert POINTS.keys() == OPERATORS.keys()


def model(chain: str, element: str) -> onnx.ModelProto:
    """The chain over tensors of an element type; its constants are cast to that."""
    text = GRAPHS[chain].replace("float[", f"{element}[")
    to = onnx.TensorProto.DataType.Value(element.upper())
    text = re.sub(
        r"(\w+) = (Constant<value_float = [^>]*>\(\))",
        rf"\1_f32 = \2 \1 = Cast<to = {to}>(\1_f32)",
        text,
    )
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {chain} {text}')


def feeds(chain: str, dims: Mapping[str, int], dtype: Any) -> dict[str, NDArray[Any]]:
    random = np.random.default_rng(0)
    shapes = {
        name: [dims.get(d, 1) for d in tensor] for name, tensor in OPERATORS[chain].inputs.items()
    }
    return {name: random.standard_normal(s, np.float32).astype(dtype) for name, s in shapes.items()}


def seconds(chain: str, dims: Mapping[str, int], threads: int, rounds: int) -> list[float]:
    """Median time of a run with each element type."""
    options = dvm_graph.Options(cores=threads)
    models = [dvm_graph.optimize(model(chain, element), options) for element in TYPES]
    inputs = [feeds(chain, dims, dtype) for dtype in TYPES.values()]
    times: list[list[float]] = [[] for _ in TYPES]
    for _ in range(rounds):
        for compiled, arrays, taken in zip(models, inputs, times, strict=True):
            compiled.run(arrays)
            start = time.perf_counter()
            compiled.run(arrays)
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


@click.command()
@click.argument("chains", nargs=-1, type=click.Choice(list(POINTS)))
@click.option("--threads", default=2, show_default=True)
@click.option("--rounds", default=15, show_default=True)
def main(chains: tuple[str, ...], threads: int, rounds: int) -> None:
    """Speed of float16 and bfloat16 chains over that of f32 ones."""
    table = Table(title="speed over that of f32")
    for column in ("chain", "extents", "f32 us", "float16", "bfloat16"):
        table.add_column(column)
    for chain in chains or POINTS:
        for dims in POINTS[chain]:
            full, half, brain = seconds(chain, dims, threads, rounds)
            extents = "x".join(str(extent) for extent in dims.values())
            table.add_row(
                chain, extents, f"{full * 1e6:.0f}", f"{full / half:.2f}", f"{full / brain:.2f}"
            )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
