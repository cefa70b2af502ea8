"""Matrix products: MatMul and Gemm."""

from __future__ import annotations

from dvm_graph.decompose.arithmetic import scaled, spread, with_axis, without_axes
from dvm_graph.decompose.operands import operand, required
from dvm_graph.decompose.registry import Operands, Results
from dvm_graph.ir import Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder


def product_of(builder: Builder, left: Value, right: Value) -> Value:
    """`left @ right` for operands of rank >= 2.

    Of integers, the cube unit multiplies uint8 by int8 only: others become a broadcast product and a sum.
    """
    if left.dtype.is_float or left.dtype is not right.dtype:
        return builder.matmul(left, right)
    left = with_axis(builder, left, left.rank)
    right = with_axis(builder, right, right.rank - 2)
    terms = builder.mul(left, right)
    axis = terms.rank - 2
    return without_axes(builder, builder.reduce_sum(terms, (axis,)), (axis,))


def matmul(builder: Builder, node: Node, operands: Operands) -> Results:
    return [multiplied(builder, required(node, operands, 0), required(node, operands, 1))]


def multiplied(
    builder: Builder, left: Value, right: Value, *, rounded_blocks: int | None = None
) -> Value:
    """`left @ right` as numpy has it: vectors get an axis that the result lacks again. `rounded_blocks`: as that of a basic
    matmul.
    """
    left_is_vector, right_is_vector = left.rank == 1, right.rank == 1
    if left_is_vector:
        left = with_axis(builder, left, 0)
    if right_is_vector:
        right = with_axis(builder, right, 1)
    if rounded_blocks is None:
        y = product_of(builder, left, right)
    else:
        y = builder.matmul(left, right, rounded_blocks)
    dropped = []
    if left_is_vector:
        dropped.append(y.rank - 2)
    if right_is_vector:
        dropped.append(y.rank - 1)
    return without_axes(builder, y, dropped) if dropped else y


def gemm(builder: Builder, node: Node, operands: Operands) -> Results:
    """`alpha * A' @ B' + beta * C`."""
    left, right = required(node, operands, 0), required(node, operands, 1)
    addend = operand(operands, 2)
    alpha, beta = node.attrs.get("alpha", 1.0), node.attrs.get("beta", 1.0)
    if not left.dtype.is_float and (alpha != 1 or beta != 1):
        return None
    if node.attrs.get("transA", 0):
        left = builder.transpose(left, (1, 0))
    if node.attrs.get("transB", 0):
        right = builder.transpose(right, (1, 0))
    y = scaled(builder, product_of(builder, left, right), alpha)
    if addend is not None and beta != 0:
        y = builder.add(y, scaled(builder, spread(builder, addend, shape_of(y)), beta))
    return [y]
