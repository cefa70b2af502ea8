"""From which size on quantised weights are multiplied faster as they are than in their float32 form.

`python -m benchmarks.units.quantized [--threads 2] [--rounds 40]`

A chain of products, Gelu and LayerNormalization: DynamicQuantizeMatMul of 8-bit weights, or MatMulNBits of 4-bit
ones. The numbers are times with weights that are dequantised when the model is compiled, over times with the products on
the vendor library (8 bits), or with weights that stay packed (4 bits).
`FEW_WEIGHTS` of `quantized_products.py` and `block_quantized.py` in `dvm_graph/decompose` is where they pass 1. Both sides take turns; medians.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import click
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import dvm_graph
from benchmarks.units.stacking import seconds
from dvm_graph.decompose import block_quantized, quantized_products

_DOMAIN = "com.microsoft"
_PRODUCTS = 6
_BLOCK = 32


def chain(size: int, bits: int) -> bytes:
    """Products of [m, size] with [size, size], one after the other."""
    random = np.random.default_rng(0)
    constants = {"scale": np.float32(0.01), "ones": np.ones(size, np.float32)}
    nodes, last = [], "x"
    for index in range(_PRODUCTS):
        attrs: dict[str, Any] = {}
        weights, product, bent, normal = (f"{name}{index}" for name in ("w", "p", "g", "n"))
        if bits == 8:
            constants[weights] = random.integers(-127, 128, (size, size)).astype(np.int8)
            operands, op = [last, weights, "scale"], "DynamicQuantizeMatMul"
        else:
            shape = (size, size // _BLOCK, _BLOCK * bits // 8)
            constants[weights] = random.integers(0, 256, shape).astype(np.uint8)
            constants["scales"] = np.full((size, size // _BLOCK), 0.01, np.float32)
            operands, op = [last, weights, "scales"], "MatMulNBits"
            attrs = {"K": size, "N": size, "bits": bits, "block_size": _BLOCK}
        nodes += [
            helper.make_node(op, operands, [product], domain=_DOMAIN, **attrs),
            helper.make_node("Gelu", [product], [bent], domain=_DOMAIN),
            helper.make_node("LayerNormalization", [bent, "ones"], [normal]),
        ]
        last = normal
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["m", size])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["m", size])],
        [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(_DOMAIN, 1)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(model.SerializeToString())


def pair(model: bytes, threads: int) -> list[dvm_graph.Model]:
    """The model with weights dequantised, and with such as are as in the model."""
    native = dvm_graph.optimize(model, cores=threads, strict=True)
    with (
        mock.patch.multiple(quantized_products, FEW_WEIGHTS=0),
        mock.patch.multiple(block_quantized, FEW_WEIGHTS=0),
    ):
        return [native, dvm_graph.optimize(model, cores=threads)]


@click.command()
@click.option("--threads", default=2, show_default=True)
@click.option("--rounds", default=40, show_default=True)
def main(threads: int, rounds: int) -> None:
    """Time with dequantised weights over time with quantised ones."""
    table = Table(
        title="quantised products: time with dequantised weights over that with them as they are"
    )
    rows = (1, 16, 64, 256)
    for column in ("bits", "weights", *(f"m={m}" for m in rows)):
        table.add_column(column)
    for bits in (8, 4):
        for size in (64, 128, 256, 512):
            models = pair(chain(size, bits), threads)
            times = [seconds(models, np.ones((m, size), np.float32), rounds) for m in rows]
            ratios = (f"{native / vendor:.2f}" for native, vendor in times)
            table.add_row(str(bits), str(size * size), *ratios)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
