"""Weights of 2, 4 or 8 bits of onnxruntime, with a scale for each block: products with them, MatMulNBits and MatMulBnb4, and
rows of them, GatherBlockQuantized, which are dequantised as they are read.

Where constant weights of a product are few they are dequantised here, once, to a float32 matrix, which stays in the caches
(`python -m benchmarks.units.quantized`). The many of a language model, for which they were quantised, stay as they are: the
cube unit reads levels (`unpack_blocks`, `python -m benchmarks.units.few_bits`). So do few where the model lets the
other operand be rounded to bytes (`accuracy_level` 4), for then levels are multiplied by levels. Those that
stand for numbers of a list and those that only a run tells are left to the vendor library. Where rows name their blocks
(`g_idx`), where the cube unit does not read blocks of such a size, and for `strict`, they are dequantised.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvm_graph.decompose.arithmetic import (
    along_axis,
    dim_value,
    filled,
    shifted,
    widened,
    with_axis,
)
from dvm_graph.decompose.dequantized_constants import FEW_WEIGHTS, LEAST
from dvm_graph.decompose.families import MICROSOFT
from dvm_graph.decompose.matrix import multiplied
from dvm_graph.decompose.operands import normalize_axis, operand, required
from dvm_graph.decompose.registry import Operands, Results, decomposition, of_constants, unless
from dvm_graph.decompose.slicing import part
from dvm_graph.ir import DType, Node, Value, shape_of
from dvm_graph.ir.numeric import few_bits, unpack_blocks
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import mul

_BITS = (2, 4, 8)
"""Of the levels that the cube unit reads."""
_WORD_BITS = 32
"""In which it reads them: a block is whole words."""
_MOST_OF_BLOCK = 256
"""Elements by which onnxruntime rounds: longer blocks are several of a scale."""
_ROUNDS = 4
"""The `accuracy_level` of products that may round their other operand to bytes."""
_ROUNDED_BLOCKS = {2: (32, 128), 4: (16, math.inf), 8: (16, math.inf)}
"""The shortest and the longest blocks of so many bits with which onnxruntime does."""


def _many_weights(node: Node) -> bool:
    return int(node.attrs["K"]) * int(node.attrs["N"]) > FEW_WEIGHTS


def _rounds(builder: Builder, node: Node, operands: Operands) -> bool:
    """As onnxruntime, which does not where zero points are floats, where rows name their blocks, and by some blocks of 2 bits."""
    allowed = int(node.attrs.get("accuracy_level", 0)) == _ROUNDS or builder.options.rounds_blocks
    if not allowed or operand(operands, 4) is not None:
        return False
    points = operand(operands, 3)
    by_bytes = points is None or points.dtype is DType.UINT8
    _, _, size, bits = _sizes(node)
    least, most = _ROUNDED_BLOCKS[bits]
    return by_bytes and least <= size <= most


def _stays_packed(builder: Builder, node: Node, operands: Operands) -> bool:
    _, _, size, bits = _sizes(node)
    is_read = size * bits % _WORD_BITS == 0 and size % _block(size) == 0
    return is_read and (_many_weights(node) or _rounds(builder, node, operands))


def _block(size: int) -> int:
    """As packed for the cube unit."""
    return min(size, _MOST_OF_BLOCK)


def _run_better(node: Node, operands: Operands) -> bool:
    """Many weights that only runs tell; none whose rows name their blocks, be it those in which they lie: at
    some of these the vendor library fails, and for others it reads memory that nobody wrote.
    """
    named = operand(operands, 4) is not None
    return _many_weights(node) and not named and not _all_constant(operands)


def _all_constant(operands: Operands) -> bool:
    return all(value is None or value.data is not None for value in operands[1:5])


@decomposition("MatMulNBits", domain=MICROSOFT)
@unless(_run_better)
def matmul_of_few_bits(builder: Builder, node: Node, operands: Operands) -> Results:
    """`A @ dequantised(B).T + bias`; B is [n, blocks of k, bytes], or nothing at all, which counts as zeros."""
    a, packed = required(node, operands, 0), required(node, operands, 1)
    bias = operand(operands, 5)
    k, n, size, bits = _sizes(node)
    if node.attrs.get("weight_prepacked", 0) or bits not in _BITS:
        return None
    shape, whole = shape_of(packed), (n, -(-k // size), size * bits // 8)
    if any(dim not in (extent, 0) for dim, extent in zip(shape, whole, strict=True)):
        return None
    groups = operand(operands, 4)
    if groups is not None and groups.data is not None and not _exist(groups.data[:k], whole[1]):
        return None
    if 0 in shape:
        y = filled(builder, 0.0, DType.FLOAT32, (*shape_of(a)[:-1], n))
    else:
        weights = _weights(builder, node, operands)
        rounds = _rounds(builder, node, operands) and weights.made_by("unpack_blocks") is not None
        y = multiplied(
            builder, widened(builder, a), weights, rounded_blocks=_block(size) if rounds else None
        )
    if bias is not None:
        y = builder.add(y, widened(builder, bias))
    return [builder.cast(y, a.dtype)]


def _lie_apart(node: Node, groups: NDArray[Any]) -> bool:
    """Whether rows belong to other blocks than those in which they lie."""
    k, size = int(node.attrs["K"]), int(node.attrs["block_size"])
    return not np.array_equal(groups.reshape(-1)[:k], np.arange(k) // size)


def _exist(groups: NDArray[Any], blocks: int) -> bool:
    return bool(((groups >= 0) & (groups < blocks)).all())


def _sizes(node: Node) -> tuple[int, int, int, int]:
    """k, n, how many rows a block has, and of how many bits a number is."""
    k, n, size = (int(node.attrs[name]) for name in ("K", "N", "block_size"))
    return k, n, size, int(node.attrs.get("bits", 4))


def _weights(builder: Builder, node: Node, operands: Operands) -> Value:
    """(quantised - zero point) * scale, as [k, n]. The default zero point is the middle of the range."""
    if not _all_constant(operands):
        return _computed_weights(builder, node, operands)
    k, n, size, bits = _sizes(node)
    blocks = -(-k // size)
    packed, scales, points, groups = (
        None if value is None else value.data
        for value in (operand(operands, index) for index in range(1, 5))
    )
    levels = np.asarray(packed).reshape(n, blocks, -1)
    factors = np.asarray(scales).astype(np.float32).reshape(n, blocks)
    zeros: list[NDArray[Any]] = []
    if points is not None and points.dtype != np.uint8:
        zeros.append(points.astype(np.float32).reshape(n, blocks))
    elif points is not None:  # each row is padded to whole bytes
        zeros.append(few_bits(points.reshape(n, -1), bits)[:, :blocks].astype(np.float32))
    if groups is not None and _lie_apart(node, groups):
        return builder.constant(_regrouped(levels, factors, zeros, groups.reshape(-1)[:k], bits))
    if not _stays_packed(builder, node, operands):
        return builder.constant(unpack_blocks({"bits": bits, "k": k}, levels, *zeros, factors))
    block = _block(size)
    blocks = -(-k // block)
    levels = levels.reshape(n, -1, block * bits // 8)[:, :blocks]
    factors, *zeros = (np.repeat(x, size // block, 1)[:, :blocks] for x in (factors, *zeros))
    return builder.unpack_blocks(
        builder.constant(np.ascontiguousarray(levels)),
        builder.constant(np.ascontiguousarray(zeros[0])) if zeros else None,
        builder.constant(np.ascontiguousarray(factors)),
        bits,
        k,
    )


def _regrouped(
    levels: NDArray[Any],
    factors: NDArray[Any],
    zeros: list[NDArray[Any]],
    groups: NDArray[Any],
    bits: int,
) -> NDArray[Any]:
    """As `unpack_blocks`, with the numbers of the block `groups[row]` for each row."""
    k = len(groups)
    quantised = few_bits(levels.reshape(len(levels), -1), bits)[:, :k].astype(np.float32)
    quantised -= zeros[0][:, groups] if zeros else np.float32(1 << (bits - 1))
    return np.ascontiguousarray((quantised * factors[:, groups]).T)


def _computed_weights(builder: Builder, node: Node, operands: Operands) -> Value:
    """As `_weights`, of operands that are known to runs alone."""
    packed, scales = required(node, operands, 1), required(node, operands, 2)
    points, groups = operand(operands, 3), operand(operands, 4)
    k, n, size, bits = _sizes(node)
    blocks = -(-k // size)

    def of_rows(x: Value) -> Value:
        """Numbers of blocks, [n, blocks], as those of rows, [n, k]."""
        if groups is not None:
            return builder.gather(x, builder.cast(part(builder, groups, 0, 0, k), DType.INT64), 1)
        spread = builder.broadcast_to(with_axis(builder, x, 2), (n, blocks, size))
        return part(builder, builder.reshape(spread, (n, blocks * size)), 1, 0, k)

    def numbers(x: Value, count: int) -> Value:
        """Of the packed bytes of each column."""
        width = -(-count * bits // 8)
        levels = _unpacked(builder, builder.reshape(x, (n, width)), bits)
        return builder.cast(part(builder, levels, 1, 0, count), DType.FLOAT32)

    quantised = part(builder, numbers(packed, blocks * size), 1, 0, k)
    if points is None:
        centred = shifted(builder, quantised, -float(1 << (bits - 1)))
    else:
        zeros = numbers(points, blocks) if points.dtype is DType.UINT8 else widened(builder, points)
        centred = builder.sub(quantised, of_rows(builder.reshape(zeros, (n, blocks))))
    factors = of_rows(builder.reshape(widened(builder, scales), (n, blocks)))
    return builder.transpose(builder.mul(centred, factors), (1, 0))


_NUMBERS_OF_BNB = (
    (0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4, 0, -1 / 192, -2 / 3, -1, -1 / 3, -1 / 2, -1 / 6, -1 / 4),
    (
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
        -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ),
)  # fmt: skip
"""What levels of 4 bits stand for by `quant_type`, FP4 and NF4: those of bitsandbytes, as onnxruntime has them."""


def _many_of_bnb(node: Node, operands: Operands) -> bool:
    del operands
    return _many_weights(node)


@decomposition("MatMulBnb4", domain=MICROSOFT)
@unless(_many_of_bnb)
def matmul_of_bnb(builder: Builder, node: Node, operands: Operands) -> Results:
    """`A @ dequantised(B).T`; B is [n, k] in a row, two numbers of a byte, the first one in its high bits, and of blocks
    that have a scale each.
    """
    a, packed, scales = (required(node, operands, index) for index in range(3))
    k, n, size, kind = (int(node.attrs[name]) for name in ("K", "N", "block_size", "quant_type"))
    if packed.data is None or scales.data is None or not node.attrs.get("transB", 1):
        return None
    data, factors = np.asarray(packed.data).reshape(-1), np.asarray(scales.data).reshape(-1)
    if kind not in (0, 1) or data.size != -(-n * k // 2) or factors.size != -(-n * k // size):
        return None
    levels = np.stack([data >> 4, data & 15], axis=1).reshape(-1)[: n * k]
    numbers = np.array(_NUMBERS_OF_BNB[kind], np.float32)[levels]
    numbers = numbers * np.repeat(factors.astype(np.float32), size)[: n * k]
    weights = np.ascontiguousarray(numbers.reshape(n, k).T)
    return [
        builder.cast(multiplied(builder, widened(builder, a), builder.constant(weights)), a.dtype)
    ]


@decomposition("GatherBlockQuantized", domain=MICROSOFT)
@of_constants
def rows_of_few_bits(builder: Builder, node: Node, operands: Operands) -> Results:
    """Of bytes whose last axis is quantised, or of constants of 4 bits; what lies outside of the first is 0."""
    data, index, scales = (required(node, operands, at) for at in range(3))
    points = operand(operands, 3)
    least = LEAST.get(data.data.dtype.name) if data.data is not None else None
    if least is not None:
        data = _as_bytes(builder, data, least)
        points = None if points is None else _as_bytes(builder, points, least)
    bits, size = int(node.attrs.get("bits", 4)), int(node.attrs.get("block_size", 128))
    gathered = normalize_axis(node, node.attrs.get("gather_axis", 0), data.rank)
    quantized = normalize_axis(node, node.attrs.get("quantize_axis", 1), data.rank)
    if data.dtype is not DType.UINT8 or bits not in (2, 4, 8):
        return None
    if gathered != 0 or not 0 < quantized == data.rank - 1:
        return None
    extent, *_, width = shape_of(data)
    blocks = shape_of(scales)[-1]
    if not isinstance(width, int) or width * 8 // bits != mul(blocks, size):
        return None
    index = builder.cast(index, DType.INT64)
    end = dim_value(builder, extent)
    inside = builder.bitwise_and(builder.ge(index, builder.neg(end)), builder.lt(index, end))
    index = builder.select(inside, index, builder.scalar(0, DType.INT64))

    def numbers(x: Value) -> Value:
        return _unpacked(builder, builder.gather(x, index, 0), bits)

    levels = numbers(data)
    lead = shape_of(levels)[:-1]
    zeros = builder.scalar(1 << (bits - 1) if least is None else -least, DType.INT32)
    if points is not None:
        zeros = part(builder, numbers(points), levels.rank - 1, 0, blocks)
        zeros = with_axis(builder, zeros, levels.rank)
    centred = builder.sub(builder.reshape(levels, (*lead, blocks, size)), zeros)
    factors = builder.cast(builder.gather(scales, index, 0), DType.FLOAT32)
    y = builder.mul(builder.cast(centred, DType.FLOAT32), with_axis(builder, factors, levels.rank))
    y = builder.reshape(builder.cast(y, scales.dtype), (*lead, mul(blocks, size)))
    inside = along_axis(builder, inside, 0, y.rank)
    return [builder.select(inside, y, builder.scalar(0, y.dtype))]


def _as_bytes(builder: Builder, x: Value, least: int) -> Value:
    """Constants of 4 bits, two of a byte along the last axis, as levels; the least of their type is 0."""
    levels = (np.asarray(x.data).astype(np.int8) - np.int8(least)).astype(np.uint8)
    levels = np.pad(levels, [(0, 0)] * (levels.ndim - 1) + [(0, levels.shape[-1] % 2)])
    return builder.constant(levels[..., ::2] | levels[..., 1::2] << 4)


def _unpacked(builder: Builder, x: Value, bits: int) -> Value:
    """Numbers of a few bits out of bytes, the lowest bits first, along the last axis."""
    wide = builder.cast(x, DType.INT32)
    if bits == 8:
        return wide
    *lead, width = shape_of(x)
    shifts = builder.constant(np.arange(0, 8, bits, dtype=np.int32))
    moved = builder.shift_right(with_axis(builder, wide, x.rank), shifts)
    numbers = builder.bitwise_and(moved, builder.scalar((1 << bits) - 1, DType.INT32))
    return builder.reshape(numbers, (*lead, mul(width, 8 // bits)))
