"""Mathematics, logic, comparisons and selections: one basic operator per element, or a few."""

from __future__ import annotations

import math
from functools import reduce

from dvm_graph.decompose.arithmetic import filled, scalar_of, scaled
from dvm_graph.decompose.counting import as_count
from dvm_graph.decompose.operands import constant_scalar, operand, present, required
from dvm_graph.decompose.registry import Operands, Results, decomposition, of_containers
from dvm_graph.ir import DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.shape_functions import broadcast_shapes

UNARY = {
    "Abs": "abs", "Neg": "neg", "Sign": "sign", "Sqrt": "sqrt", "Reciprocal": "reciprocal",
    "Exp": "exp", "Log": "log", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin",
    "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Asinh": "asinh",
    "Acosh": "acosh", "Atanh": "atanh", "Erf": "erf", "Tanh": "tanh", "Sigmoid": "sigmoid",
    "Floor": "floor", "Ceil": "ceil", "Round": "round", "Not": "logical_not",
    "BitwiseNot": "bitwise_not", "IsNaN": "isnan",
}  # fmt: skip
BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "And": "bitwise_and",
    "Or": "bitwise_or", "Xor": "bitwise_xor", "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "Equal": "eq", "Less": "lt",
    "LessOrEqual": "le", "Greater": "gt", "GreaterOrEqual": "ge",
}  # fmt: skip
VARIADIC = {"Max": "max", "Min": "min", "Sum": "add"}
_UNSIGNED = frozenset({DType.UINT8, DType.UINT16, DType.UINT32, DType.UINT64})


@decomposition(*UNARY)
def unary(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    if node.op == "Abs" and x.dtype in _UNSIGNED:
        return [x]
    return [builder.op(UNARY[node.op], x)]


@decomposition(*BINARY)
def binary(builder: Builder, node: Node, operands: Operands) -> Results:
    left, right = required(node, operands, 0), required(node, operands, 1)
    if node.op == "GreaterOrEqual" and _counts_from(builder, left, right):
        return [filled(builder, True, DType.BOOL, shape_of(left))]
    if node.op == "And" and (_is_true(left) or _is_true(right)):
        shape = broadcast_shapes(node, (shape_of(left), shape_of(right)), builder.facts)
        return [builder.broadcast_to(right if _is_true(left) else left, shape)]
    return [builder.op(BINARY[node.op], left, right)]


def _counts_from(builder: Builder, value: Value, low: Value) -> bool:
    """Whether a tensor counts upwards from `low` or more: exporters' masks ask that of positions."""
    if low.rank or low.elements is None or not value.dtype.is_integer:
        return False
    count, bound = as_count(value, builder.facts), low.elements[0]
    if count is None or count.step < 0:
        return False
    return builder.facts.prove_less_equal(bound, count.start).yes


def _is_true(value: Value) -> bool:
    """Whether a condition is known to hold everywhere."""
    if value.data is not None:
        return value.data.size == 1 and bool(value.data.reshape(-1)[0])
    node = value.producer
    if node is None or node.op not in ("broadcast_to", "reshape"):
        return False
    source = node.inputs[0]
    return source is not None and _is_true(source)


@decomposition(*VARIADIC)
def variadic(builder: Builder, node: Node, operands: Operands) -> Results:
    name = VARIADIC[node.op]
    return [reduce(lambda left, right: builder.op(name, left, right), present(operands))]


@decomposition("Mean")
def mean_of_operands(builder: Builder, node: Node, operands: Operands) -> Results:
    values = present(operands)
    total = reduce(builder.add, values)
    return [builder.div(total, builder.scalar(len(values), total.dtype))]


@decomposition("Identity")
@of_containers
def identity(builder: Builder, node: Node, operands: Operands) -> Results:
    return [required(node, operands, 0)]


@decomposition("Where")
def where(builder: Builder, node: Node, operands: Operands) -> Results:
    condition, then, other = (required(node, operands, index) for index in range(3))
    return [builder.select(condition, then, other)]


@decomposition("Mod")
def mod(builder: Builder, node: Node, operands: Operands) -> Results:
    left, right = required(node, operands, 0), required(node, operands, 1)
    return [builder.op("fmod" if node.attrs.get("fmod", 0) else "mod", left, right)]


@decomposition("BitShift")
def bit_shift(builder: Builder, node: Node, operands: Operands) -> Results:
    name = "shift_left" if node.attrs["direction"] == "LEFT" else "shift_right"
    return [builder.op(name, required(node, operands, 0), required(node, operands, 1))]


@decomposition("Pow")
def power(builder: Builder, node: Node, operands: Operands) -> Results:
    """Small whole exponents become products, a half a root: exact, and far cheaper than `pow`."""
    base, exponent = required(node, operands, 0), required(node, operands, 1)
    constant = constant_scalar(exponent) if exponent.rank <= base.rank else None
    if constant is not None and exponent.rank:
        exponent = builder.reshape(exponent, ())
    if constant in (1, 2, 3):
        assert constant is not None
        return [reduce(builder.mul, [base] * int(constant))]
    if base.dtype.is_float:
        if constant == 0.5:
            return [_root(builder, base)]
        return [builder.pow(base, builder.cast(exponent, base.dtype))]
    wide = DType.FLOAT64 if exponent.dtype.is_float else DType.INT64
    result = builder.pow(builder.cast(base, wide), builder.cast(exponent, wide))
    return [builder.cast(result, base.dtype)]


def _root(builder: Builder, base: Value) -> Value:
    """`pow(base, 0.5)`: the square root, but 0 of -0 and infinity of -infinity."""
    infinity = builder.scalar(math.inf, base.dtype)
    lost = builder.eq(base, builder.scalar(-math.inf, base.dtype))
    positive = builder.add(base, builder.scalar(0.0, base.dtype))
    return builder.sqrt(builder.select(lost, infinity, positive))


@decomposition("IsInf")
def is_inf(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    positive = bool(node.attrs.get("detect_positive", 1))
    negative = bool(node.attrs.get("detect_negative", 1))
    if positive and negative:
        return [builder.isinf(x)]
    if not positive and not negative:
        return [filled(builder, False, DType.BOOL, shape_of(x))]
    infinity = float("inf") if positive else float("-inf")
    return [builder.eq(x, builder.scalar(infinity, x.dtype))]


@decomposition("Clip")
def clip(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    limits = (("min", 1, builder.max), ("max", 2, builder.min))
    for name, index, choose in limits:
        limit = operand(operands, index)
        if name in node.attrs:  # as an activation of another operator
            x = choose(x, builder.scalar(node.attrs[name], x.dtype))
        elif limit is not None:
            x = choose(x, scalar_of(builder, limit, x.dtype))
    return [x]


@decomposition("SwiGLU")
def swiglu(builder: Builder, node: Node, operands: Operands) -> Results:
    gate, linear = required(node, operands, 0), required(node, operands, 1)
    sigmoid = builder.sigmoid(scaled(builder, gate, node.attrs.get("alpha", 1.0)))
    return [builder.mul(builder.mul(gate, sigmoid), linear)]
