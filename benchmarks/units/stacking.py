"""What stacking costs, and what joining would save.

`python -m benchmarks.units.stacking [--threads 2] [--rounds 40]`

Stages: chains of element-wise kernels that are not fused, at two lengths: the difference is the cost of a
stage. Over one tile it has no barrier; over many tiles within the caches, at two sizes, a line through both
gives the time of an element and what a stage costs besides. That is compared with what the target says
(`stage_overhead` of `npu/host/levels.cpp`), in elements of one core.

Shared operands: products that read the same left operand, side by side in one stage, against one product over
their joined right operands. Joining them in the compiler could gain this much where nothing else changes.

Both sides of a ratio take turns; medians.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from itertools import pairwise

import click
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import dvm_graph

STAGE_OVERHEAD = 16384
"""`Target::stage_overhead` of the host, in elements."""
_SHORT, _LONG = 4, 36
_ONE_TILE, _FEW, _MANY = 64, 1 << 15, 1 << 17
SHARED = {
    "BERT q k v": (768, (768, 768, 768)),
    "grouped-query q k v": (2048, (2048, 512, 512)),
    "Llama gate up": (2048, (5632, 5632)),
}


def chain(length: int) -> bytes:
    """Doubles x, `length` times."""
    names = ["x", *(f"t{i}" for i in range(1, length)), "y"]
    nodes = [helper.make_node("Add", [a, a], [b]) for a, b in pairwise(names)]
    return _model(nodes, [], ["n"], {"y": ["n"]})


def products(k: int, widths: Sequence[int]) -> bytes:
    """y_i = x w_i + b_i for a matrix w_i of each width."""
    random = np.random.default_rng(0)
    nodes, constants = [], []
    for i, n in enumerate(widths):
        for name, shape in ((f"w{i}", (k, n)), (f"b{i}", (n,))):
            data = random.standard_normal(shape).astype(np.float32)
            constants.append(numpy_helper.from_array(data, name))
        nodes.append(helper.make_node("MatMul", ["x", f"w{i}"], [f"p{i}"]))
        nodes.append(helper.make_node("Add", [f"p{i}", f"b{i}"], [f"y{i}"]))
    return _model(nodes, constants, ["m", k], {f"y{i}": ["m", n] for i, n in enumerate(widths)})


def _model(
    nodes: list[onnx.NodeProto],
    constants: list[onnx.TensorProto],
    shape: list[str | int],
    results: dict[str, list[str | int]],
) -> bytes:
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in results.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "g", [x], outputs, constants)
    opsets = [helper.make_opsetid("", 18)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def seconds(models: Sequence[dvm_graph.Model], x: np.ndarray, rounds: int) -> list[float]:
    """Median times of the models, which take turns."""
    times: list[list[float]] = [[] for _ in models]
    for _ in range(rounds):
        for model, taken in zip(models, times, strict=True):
            model.run({"x": x})
            for _ in range(3):
                start = time.perf_counter()
                model.run({"x": x})
                taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


@click.command()
@click.option("--threads", default=2, show_default=True)
@click.option("--rounds", default=40, show_default=True)
def main(threads: int, rounds: int) -> None:
    """Cost of a stage against the target's, and products side by side against one joined."""
    console = Console(width=110)
    apart = dvm_graph.Options(cores=threads, fuse=False)
    chains = [dvm_graph.optimize(chain(length), apart) for length in (_SHORT, _LONG)]
    costs = []
    for elements in (_ONE_TILE, _FEW, _MANY):
        short, long = seconds(chains, np.ones(elements, np.float32), 4 * rounds)
        costs.append((long - short) / (_LONG - _SHORT))
    element = (costs[2] - costs[1]) / (_MANY - _FEW)
    stage = costs[1] - element * _FEW
    console.print(
        f"a stage of one tile: {costs[0] * 1e6:.2f} us; of many: {stage * 1e6:.2f} us besides its elements, "
        f"as {stage / element / threads:.0f} elements of one core ({element * threads * 1e9:.3f} ns each); "
        f"the target says {STAGE_OVERHEAD}"
    )
    table = Table(title="products that share an operand: time apart over time joined")
    tokens = (1, 8, 32, 77, 128, 256)
    for column in ("products", *(f"m={m}" for m in tokens)):
        table.add_column(column)
    fused = dvm_graph.Options(cores=threads)
    for name, (k, widths) in SHARED.items():
        models = [dvm_graph.optimize(products(k, w), fused) for w in (widths, [sum(widths)])]
        ratios = []
        for m in tokens:
            side_by_side, joined = seconds(models, np.ones((m, k), np.float32), rounds)
            ratios.append(f"{side_by_side / joined:.3f}")
        table.add_row(name, *ratios)
    console.print(table)


if __name__ == "__main__":
    main()
