"""Products with weights of a few bits against onnxruntime's: MatMulNBits of floats (accuracy level 0), and of bytes that A is
rounded to (4); and with what a DequantizeLinear makes, for which onnxruntime rounds, too, and dvm_graph with `precision="i8"`.

`python -m benchmarks.units.few_bits [--bits 4] [--threads 2] [--rounds 20]`

Both engines take turns, in processes of their own, which are stopped meanwhile. What is shown is onnxruntime's median time
over ours at each number of rows, and the rate at which one row of what is shown last reads its weights, scales and zeros, packed as they
are in the model.
"""

from __future__ import annotations

import statistics
from typing import Any

import click
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from benchmarks.units.recurrent import Party
from dvm_graph import Options

ROWS = (1, 8, 128)
LEVELS = (0, 4)
DEQUANTIZED = "DQ"
"""In place of a level: 4 and 8 bits."""
_TYPES = {4: TensorProto.UINT4, 8: TensorProto.UINT8}
SIZES = ((4096, 4096), (4096, 11008))
_SECONDS = 0.4


def product(
    k: int, n: int, block: int, zeros: bool, level: int | str, bits: int = 4
) -> tuple[bytes, int]:
    """The model, and the bytes of its weights."""
    if level == DEQUANTIZED:
        return dequantized_product(k, n, block, zeros, bits)
    random = np.random.default_rng(0)
    blocks = k // block
    arrays: dict[str, NDArray[Any]] = {
        "levels": random.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8),
        "scales": random.uniform(0.001, 0.01, (n, blocks)).astype(np.float32),
    }
    if zeros:
        arrays["points"] = random.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
    attrs: dict[str, Any] = {
        "K": k,
        "N": n,
        "bits": bits,
        "block_size": block,
        "accuracy_level": level,
    }
    node = helper.make_node("MatMulNBits", ["x", *arrays], ["y"], domain="com.microsoft", **attrs)
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    return _model([node], k, n, tensors), sum(array.nbytes for array in arrays.values())


def dequantized_product(k: int, n: int, block: int, zeros: bool, bits: int) -> tuple[bytes, int]:
    """As `product`."""
    random = np.random.default_rng(0)

    def levels(name: str, rows: int) -> onnx.TensorProto:
        packed = random.integers(0, 256, rows * n * bits // 8).astype(np.uint8)
        return helper.make_tensor(name, _TYPES[bits], (rows, n), packed.tobytes(), raw=True)

    scales = random.uniform(0.001, 0.01, (k // block, n)).astype(np.float32)
    tensors = [levels("levels", k), numpy_helper.from_array(scales, "scales")]
    tensors += [levels("points", k // block)] if zeros else []
    names = [tensor.name for tensor in tensors]
    nodes = [
        helper.make_node("DequantizeLinear", names, ["w"], axis=0, block_size=block),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    return _model(nodes, k, n, tensors), sum(len(tensor.raw_data) for tensor in tensors)


def _model(nodes: list[onnx.NodeProto], k: int, n: int, tensors: list[onnx.TensorProto]) -> bytes:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", TensorProto.FLOAT, ["m", k])],
        [info("y", TensorProto.FLOAT, ["m", n])],
        tensors,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return bytes(model.SerializeToString())


@click.command()
@click.option("--bits", default=4, show_default=True)
@click.option("--threads", default=2, show_default=True)
@click.option("--rounds", default=20, show_default=True)
def main(bits: int, threads: int, rounds: int) -> None:
    """Onnxruntime's time over ours."""
    levels = (*LEVELS, *([DEQUANTIZED] if bits in _TYPES else ()))
    plain = Options(cores=threads)
    rounding = Party(True, plain.changed({"precision": "i8"}))
    exact, peer = Party(True, plain), Party(False, plain)
    random = np.random.default_rng(1)
    headings = (
        "k x n",
        "block",
        "zeros",
        *(f"m={m}, {level}" for m in ROWS for level in levels),
    )
    table = Table(title=f"products by {bits} bits: onnxruntime's time over ours")
    for heading in (*headings, "GB/s at m=1"):
        table.add_column(heading, justify="right")
    for k, n in SIZES:
        for block in (32, 128):
            for zeros in (False, True):
                cells, rate = {}, 0.0
                for level in levels:
                    model, bytes_ = product(k, n, block, zeros, level, bits)
                    parties = rounding if level == DEQUANTIZED else exact, peer
                    for party in parties:
                        party.ask(model)
                    for m in ROWS:
                        x = random.standard_normal((m, k)).astype(np.float32)
                        own, theirs = _medians(parties, x, rounds)
                        cells[m, level] = f"{theirs / own:.2f}"
                        if m == 1:
                            rate = bytes_ / own / 1e9
                cells_by_rows = (cells[m, level] for m in ROWS for level in levels)
                table.add_row(
                    f"{k} x {n}",
                    str(block),
                    "yes" if zeros else "no",
                    *cells_by_rows,
                    f"{rate:.1f}",
                )
    Console(width=140).print(table)
    for party in (rounding, exact, peer):
        party.end()


def _medians(parties: tuple[Party, ...], x: NDArray[Any], rounds: int) -> list[float]:
    results = [party.ask((x, 2))[0] for party in parties]
    np.testing.assert_allclose(
        results[0], results[1], rtol=1e-3, atol=1e-3 * np.abs(results[1]).max()
    )
    times: list[list[float]] = [[] for _ in parties]
    for _ in range(rounds):
        for party, taken in zip(parties, times, strict=True):
            taken += party.ask((x, 3))[1]
        if sum(times[0]) > _SECONDS:
            break
    return [statistics.median(taken) for taken in times]


if __name__ == "__main__":
    main()
