"""MatMul, Gemm and Conv: of integers where their operands are dequantised bytes by constant ones, else of floats.

So the pattern that quantising tools write, DequantizeLinear before a product and QuantizeLinear behind it, is one
product of bytes with exact sums. What follows has the sums and their scale beside the floats (`meanings`): a
QuantizeLinear multiplies the sums by one factor and rounds once, as QLinear operators do, and as a default session
of onnxruntime, which makes such operators of the pattern.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dvm_graph.decompose.arithmetic import widened
from dvm_graph.decompose.convolution import convolution
from dvm_graph.decompose.dequantized_constants import left_to_vendor, packed_matrix
from dvm_graph.decompose.integer_products import is_bytes, sums, weights_of
from dvm_graph.decompose.matrix import gemm, matmul
from dvm_graph.decompose.meanings import Dequantized, dequantized, moderate, real
from dvm_graph.decompose.operands import operand, required
from dvm_graph.decompose.quantized_operands import quantized_windows, transposed
from dvm_graph.decompose.registry import Decomposition, Operands, Results, decomposition, unless
from dvm_graph.ir import DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder


def _by_blocks(node: Node, operands: Operands) -> bool:
    """Whether the right operand is many constants that the vendor library dequantises, and none that the cube unit reads:
    beside the product, it multiplies them as they are.
    """
    del node
    return left_to_vendor(operand(operands, 1))


@decomposition("MatMul")
@unless(_by_blocks)
def any_matmul(builder: Builder, node: Node, operands: Operands) -> Results:
    matrix = packed_matrix(builder, operand(operands, 1))
    if matrix is not None:
        return _by_packed(builder, matmul, node, operands, matrix)
    factors = _factors(builder, operands, -1)
    if factors is None:
        return matmul(builder, node, operands)
    a, b = factors
    weights = weights_of(b.x, b.zero)
    if weights is None:
        return matmul(builder, node, operands)
    y = sums(builder, a.x, a.zero, weights)
    return [real(builder, y, _scales(builder, a, b, 0))]


@decomposition("Gemm")
def any_gemm(builder: Builder, node: Node, operands: Operands) -> Results:
    turned = bool(node.attrs.get("transB", 0))
    matrix = packed_matrix(builder, operand(operands, 1), turned)
    if matrix is not None:
        straight = replace(node, attrs={**node.attrs, "transB": 0})
        return _by_packed(builder, gemm, straight, operands, matrix)
    factors = _factors(builder, operands, 0 if turned else 1)
    plain = node.attrs.get("alpha", 1.0) == 1 and node.attrs.get("beta", 1.0) == 1
    if factors is None or not plain or node.attrs.get("transA", 0):
        return gemm(builder, node, operands)
    a, b = factors
    weights = weights_of(transposed(builder, b.x) if turned else b.x, b.zero)
    if weights is None:
        return gemm(builder, node, operands)
    scales = _scales(builder, a, b, 0)
    y = sums(builder, a.x, a.zero, weights)
    addend = operand(operands, 2)
    numbers = _of_scale(builder, addend, scales)
    if numbers is not None:
        y = builder.add(y, numbers)
    y = real(builder, y, scales)
    return [y if addend is None or numbers is not None else builder.add(y, addend)]


def _by_packed(
    builder: Builder, function: Decomposition, node: Node, operands: Operands, matrix: Value
) -> Results:
    """A product by a matrix in float32, which stays packed, in this type."""
    a, _, *rest = (None if x is None else widened(builder, x) for x in operands)
    results = function(builder, node, [a, matrix, *rest])
    target = required(node, operands, 0).dtype
    return None if results is None else [y and builder.cast(y, target) for y in results]


@decomposition("Conv")
def any_convolution(builder: Builder, node: Node, operands: Operands) -> Results:
    factors = _factors(builder, operands, 0)
    if factors is None:
        return convolution(builder, node, operands)
    x, w = factors
    bias = operand(operands, 2)
    scales = _scales(builder, x, w, x.x.rank - 2)
    numbers = _of_scale(builder, bias, scales)
    y = quantized_windows(builder, node, x.x, x.zero, w.x, w.zero, numbers)
    if y is None:
        return convolution(builder, node, operands)
    y = real(builder, y, scales)
    if bias is None or numbers is not None:
        return [y]
    return [builder.add(y, builder.reshape(bias, (*shape_of(bias), *(1,) * (x.x.rank - 2))))]


def _factors(
    builder: Builder, operands: Operands, axis: int
) -> tuple[Dequantized, Dequantized] | None:
    """What the operands of a product stand for: bytes of one known scale by constants of such, or of one for each step
    along an axis; the products of scales are moderate, as they are.
    """
    a, b = dequantized(builder, operands[0]), dequantized(builder, operands[1])
    if a is None or b is None or not a.per_tensor() or not b.along(axis):
        return None
    if not is_bytes(a.x) or not is_bytes(b.x) or a.scale.data is None or b.scale.data is None:
        return None
    if b.x.data is None or b.x.rank < 2 or (b.zero is not None and b.zero.data is None):
        return None
    own, weights = np.asarray(a.scale.data, np.float64), np.asarray(b.scale.data, np.float64)
    if not moderate(own) or not moderate(weights) or not moderate(own.reshape(-1) * weights):
        return None
    return a, b


def _scales(builder: Builder, a: Dequantized, b: Dequantized, behind: int) -> Value:
    """Of the sums, whose axis that a vector follows has so many behind it."""
    own, weights = np.asarray(a.scale.data, np.float32), np.asarray(b.scale.data, np.float32)
    shape = () if weights.size == 1 else (weights.size, *(1,) * behind)
    return builder.constant((own.reshape(()) * weights).reshape(shape))


def _of_scale(builder: Builder, addend: Value | None, scales: Value) -> Value | None:
    """The whole numbers that an addend is in this scale; None: it is none such. Zeros are, whatever their own scale."""
    meaning = dequantized(builder, addend)
    if meaning is None or meaning.x.dtype is not DType.INT32 or meaning.scale.data is None:
        return None
    if not meaning.along(-1):
        return None
    if meaning.zero is not None and (meaning.zero.data is None or np.any(meaning.zero.data)):
        return None
    own, wanted = np.asarray(meaning.scale.data), np.asarray(scales.data)
    if meaning.x.data is not None and not np.any(meaning.x.data):
        return meaning.x
    if own.size not in (1, wanted.size) or not np.allclose(
        own.reshape(-1), wanted.reshape(-1), 1e-5, 0
    ):
        return None
    return meaning.x
