"""MatMulNBits of onnxruntime: products with weights of 2, 4 or 8 bits, with a scale for each block of k.

Constant weights are dequantised here, once, to a float32 matrix. That takes 16, 8 or 4 times their memory,
and every run reads as much more: where weights are few it stays in the caches and the product fuses with
what is around it (at 2^18 weights of 4 bits it takes 0.3 to 0.85 of the time,
`python -m benchmarks.units.quantized`); the many of a language model, for which they were quantised, are
left to the vendor library, which multiplies them as they are. `strict` dequantises them, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvm_graph.decompose.arithmetic import widened
from dvm_graph.decompose.matrix import multiplied
from dvm_graph.decompose.operands import operand, required
from dvm_graph.decompose.registry import MICROSOFT, Operands, Results, decomposition, unless
from dvm_graph.ir import Node, Value
from dvm_graph.symbolic.builder import Builder

FEW_WEIGHTS = 1 << 18
"""A MiB as float32: they stay in the caches of one core from run to run."""


def _many_weights(node: Node, operands: Operands) -> bool:
    del operands
    return int(node.attrs["K"]) * int(node.attrs["N"]) > FEW_WEIGHTS


@decomposition("MatMulNBits", domain=MICROSOFT)
@unless(_many_weights)
def matmul_of_few_bits(builder: Builder, node: Node, operands: Operands) -> Results:
    """`A @ dequantised(B).T + bias`; B is [n, blocks of k, bytes]."""
    a, packed, scales = (required(node, operands, index) for index in range(3))
    points, groups, bias = (operand(operands, index) for index in (3, 4, 5))
    constants = [value.data for value in (packed, scales, points) if value is not None]
    if groups is not None or node.attrs.get("weight_prepacked", 0):
        return None
    if any(data is None or data.size == 0 for data in constants):
        return None
    weights = _dequantized(node, packed, scales, points)
    y = multiplied(builder, widened(builder, a), builder.constant(weights))
    if bias is not None:
        y = builder.add(y, widened(builder, bias))
    return [builder.cast(y, a.dtype)]


def _dequantized(
    node: Node, packed: Value, scales: Value, points: Value | None
) -> NDArray[np.float32]:
    """(quantised - zero point) * scale, as [k, n]. The default zero point is the middle of the range."""
    k, n, size, bits = (int(node.attrs[name]) for name in ("K", "N", "block_size", "bits"))
    blocks = -(-k // size)
    numbers = _unpacked(np.asarray(packed.data), bits).reshape(n, blocks, size)
    if points is None:
        zeros = np.full((n, blocks), 1 << (bits - 1), np.float32)
    elif points.dtype.is_float:
        zeros = np.asarray(points.data).astype(np.float32).reshape(n, blocks)
    else:
        # Each row is padded to whole bytes.
        zeros = _unpacked(np.asarray(points.data).reshape(n, -1), bits)[:, :blocks]
    factors = np.asarray(scales.data).astype(np.float32).reshape(n, blocks, 1)
    weights = (numbers.astype(np.float32) - zeros[..., None]) * factors
    return np.ascontiguousarray(weights.reshape(n, blocks * size)[:, :k].T)


def _unpacked(data: NDArray[Any], bits: int) -> NDArray[Any]:
    """Numbers of a few bits out of bytes, the lowest bits first, along the last axis."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = (data[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return np.asarray(numbers.reshape(*data.shape[:-1], -1))
