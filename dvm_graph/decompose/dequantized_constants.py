"""DequantizeLinear of constants of a few bits, or with scales of blocks, as quantising tools write weights in the QDQ form.

Few weights are dequantised here, once, to a constant, whoever reads them, as those of `MatMulNBits` are (`block_quantized`).
Of many, which are packed to be small, the node is left to the vendor library, unless they are a matrix of 4 or 8 bits and its
product reads it packed, or weights of a convolution, which each run would dequantise as a whole. `strict` dequantises all.
"""

from __future__ import annotations

import math

import numpy as np

from dvm_graph.decompose.operands import normalize_axis, operand, required
from dvm_graph.decompose.registry import Operands
from dvm_graph.ir import Array, DType, Node, Value
from dvm_graph.symbolic.builder import Builder

FEW_WEIGHTS = 1 << 18
"""A MiB as float32: they stay in the caches of one core from run to run."""
LEAST = {"int4": -8, "uint4": 0}
"""The types of elements of 4 bits, and the least of them, which is level 0."""
_LEVELS = {
    **{name: (4, least) for name, least in LEAST.items()},
    "int8": (8, -128),
    "uint8": (8, 0),
}
"""The types of elements that the cube unit reads packed: their bits, and the least of them."""
_MOST_OF_BLOCK = 128
"""Elements of a block that the cube unit reads; longer ones are several of a scale."""
_LEAST_OF_BLOCK = 16


def are_narrow_or_of_blocks(node: Node, operands: Operands) -> bool:
    """Whether kernels lack the elements of a DequantizeLinear, or its scales are of blocks."""
    x = required(node, operands, 0)
    return x.dtype is DType.OPAQUE or bool(node.attrs.get("block_size", 0))


def are_many(node: Node, operands: Operands) -> bool:
    """Whether they are, and too many to be dequantised for good."""
    x = required(node, operands, 0)
    many = x.data is not None and x.data.size > FEW_WEIGHTS
    return many and are_narrow_or_of_blocks(node, operands)


def dequantized_constant(node: Node, operands: Operands, target: DType) -> Array | None:
    """`(x - zero) * scale` of constants, rounded once; None: they are none, or do not fit each other."""
    x, scale = required(node, operands, 0), required(node, operands, 1)
    zero = operand(operands, 2)
    if x.data is None or scale.data is None or (zero is not None and zero.data is None):
        return None
    if target not in (DType.FLOAT32, DType.FLOAT16) or not scale.dtype.is_float:
        return None
    numbers = np.asarray(x.data).astype(np.float32)
    factors = _spread(node, np.asarray(scale.data), numbers.shape)
    if zero is not None:
        zeros = _spread(node, np.asarray(zero.data), numbers.shape)
        if zeros is None:
            return None
        numbers = numbers - zeros
    return None if factors is None else (numbers * factors).astype(target.numpy)


def _spread(node: Node, parameter: Array, shape: tuple[int, ...], every: int = 1) -> Array | None:
    """A parameter of the tensor, of steps of an axis or of blocks along it, so that it broadcasts against the shape;
    of blocks only for so many steps each.
    """
    wide = parameter.astype(np.float32)
    if wide.ndim == 0 or wide.shape == (1,):
        return wide.reshape(())
    axis = normalize_axis(node, node.attrs.get("axis", 1), len(shape))
    size = _block_size(node)
    if size > 0:
        blocks = (*shape[:axis], -(-shape[axis] // size), *shape[axis + 1 :])
        steps = np.arange(0, shape[axis], every) // size
        return wide.take(steps, axis) if wide.shape == blocks else None
    if wide.shape != shape[axis : axis + 1]:
        return None
    return wide.reshape(-1, *(1,) * (len(shape) - axis - 1))


def _block_size(node: Node) -> int:
    return int(node.attrs.get("block_size", 0))


def folded_weights(builder: Builder, value: Value) -> Value:
    """As a constant, what the vendor library would make of constants at every run; others as they are."""
    node = value.made_by("vendor")
    if node is None or node.attrs["op"] != "DequantizeLinear":
        return value
    data = dequantized_constant(node, node.inputs, value.dtype)
    return value if data is None else builder.constant(data)


def left_to_vendor(value: Value | None) -> bool:
    """Whether the vendor library makes a matrix of constants that a product here does not read packed."""
    maker = _maker(value)
    return maker is not None and _block(*maker) is None


def packed_matrix(builder: Builder, value: Value | None, turned: bool = False) -> Value | None:
    """The matrix [k, n] that the vendor library would make of constants of a few bits, in float32, as the cube unit reads it;
    None: it is no such one. `turned`: the value is [n, k].
    """
    maker = _maker(value, turned)
    block = None if maker is None else _block(*maker)
    if maker is None or block is None:
        return None
    node, axis = maker
    x = _data(node, 0)
    assert x is not None
    scales, zeros = (_of_blocks(node, _data(node, index), x.shape, axis, block) for index in (1, 2))
    if scales is None or (zeros is None and _data(node, 2) is not None):
        return None
    bits, least = _LEVELS[x.dtype.name]
    if least == 0 and zeros is None:
        zeros = np.zeros_like(scales)
    elif zeros is not None:
        zeros = zeros - least
    return builder.unpack_blocks(
        builder.constant(_levels(x, axis, block, bits, least)),
        None if zeros is None else builder.constant(zeros),
        builder.constant(scales),
        bits,
        x.shape[axis],
    )


def _maker(value: Value | None, turned: bool = False) -> tuple[Node, int] | None:
    """The vendor's DequantizeLinear that makes a matrix [k, n] of constants, and its axis of k. `turned`: the value is
    [n, k].
    """
    turn = None if value is None else value.made_by("transpose")
    if turn is not None:
        value, turned = turn.required(0), not turned
    node = None if value is None else value.made_by("vendor")
    if node is None or node.attrs["op"] != "DequantizeLinear" or value is None or value.rank != 2:
        return None
    if any(operand is not None and operand.data is None for operand in node.inputs):
        return None
    return node, int(turned)


def _block(node: Node, axis: int) -> int | None:
    """Elements along an axis that are of a few bits and have one scale, of blocks that the cube unit reads."""
    x, scale = _data(node, 0), _data(node, 1)
    if x is None or x.dtype.name not in _LEVELS or scale is None or scale.dtype.kind != "f":
        return None
    along = normalize_axis(node, node.attrs.get("axis", 1), x.ndim)
    size = _block_size(node)
    if size > 0:
        block = math.gcd(size, _MOST_OF_BLOCK) if along == axis else 0
    else:
        block = _MOST_OF_BLOCK if along != axis or scale.size == 1 else 0
    return block if block >= _LEAST_OF_BLOCK and x.size > 0 else None


def _of_blocks(
    node: Node, parameter: Array | None, shape: tuple[int, ...], axis: int, block: int
) -> Array | None:
    """A parameter as [n, blocks of k]; None: there is none, or it does not fit."""
    wide = None if parameter is None else _spread(node, parameter, shape, block)
    if wide is None:
        return None
    blocks = list(shape)
    blocks[axis] = -(-shape[axis] // block)
    return np.ascontiguousarray(np.moveaxis(np.broadcast_to(wide, blocks), axis, 1))


def _levels(x: Array, axis: int, block: int, bits: int, least: int) -> Array:
    """As [n, blocks of k, bytes], the first of a byte in its low bits; what is added to the last block is 0."""
    levels = (np.moveaxis(x, axis, 1).astype(np.int16) - np.int16(least)).astype(np.uint8)
    n, k = levels.shape
    levels = np.pad(levels, ((0, 0), (0, -k % block))).reshape(n, -1, block * bits // 8, 8 // bits)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.asarray(np.bitwise_or.reduce(levels << shifts, axis=-1))


def _data(node: Node, index: int) -> Array | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    return None if value is None or value.data is None else np.asarray(value.data)
