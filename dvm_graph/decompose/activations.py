"""Activation functions, by their definitions in the ONNX operator documents."""

from __future__ import annotations

import math

import numpy as np

from dvm_graph.decompose.arithmetic import scaled, shifted, widened
from dvm_graph.decompose.families import MICROSOFT
from dvm_graph.decompose.meanings import real, whole_numbers
from dvm_graph.decompose.operands import required, text
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.ir import DType, Node, Value
from dvm_graph.symbolic.builder import Builder


def _zero(builder: Builder, x: Value) -> Value:
    return builder.scalar(0, x.dtype)


def _is_negative(builder: Builder, x: Value) -> Value:
    return builder.lt(x, _zero(builder, x))


def _holding(builder: Builder, x: Value, *numbers: float) -> Value:
    """`x`, in a type that has these numbers: half floats may round them to 0 or infinity."""
    with np.errstate(over="ignore"):
        rounded = np.array(numbers).astype(x.dtype.numpy).astype(np.float64)
    return x if np.array_equal(rounded, numbers, equal_nan=True) else widened(builder, x)


def _clamped(builder: Builder, x: Value) -> Value:
    """`x` limited to [0, 1]."""
    return builder.min(builder.max(x, _zero(builder, x)), builder.scalar(1, x.dtype))


def softplus(builder: Builder, x: Value) -> Value:
    """log(1 + exp(x)), without overflow for large x."""
    tail = builder.log1p(builder.exp(builder.neg(builder.abs(x))))
    return builder.add(builder.max(x, _zero(builder, x)), tail)


@decomposition("Relu")
def relu(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    meaning = whole_numbers(builder, x)
    if meaning is not None:
        numbers = meaning.numbers
        return [real(builder, builder.max(numbers, _zero(builder, numbers)), meaning.factor)]
    return [builder.max(x, _zero(builder, x))]


@decomposition("LeakyRelu")
def leaky_relu(builder: Builder, node: Node, operands: Operands) -> Results:
    return [leaky(builder, node, required(node, operands, 0))]


def leaky(builder: Builder, node: Node, x: Value) -> Value:
    """`x`, or `alpha * x` where it is negative."""
    alpha = node.attrs.get("alpha", 0.01)
    wide = _holding(builder, x, alpha)
    return builder.cast(_sloped(builder, wide, builder.scalar(alpha, wide.dtype)), x.dtype)


def _sloped(builder: Builder, x: Value, slope: Value) -> Value:
    """`x`, or `slope * x` where it is negative: the greater of the two, if slopes are of (0, 1]."""
    y, slopes = builder.mul(x, slope), slope.data
    if slopes is not None and bool(np.all((slopes > 0) & (slopes <= 1))):
        return builder.max(x, y)
    return builder.select(_is_negative(builder, x), y, x)


@decomposition("PRelu")
def prelu(builder: Builder, node: Node, operands: Operands) -> Results:
    x, slope = required(node, operands, 0), required(node, operands, 1)
    return [_sloped(builder, x, slope)]


@decomposition("Elu")
def elu(builder: Builder, node: Node, operands: Operands) -> Results:
    x, alpha = required(node, operands, 0), node.attrs.get("alpha", 1.0)
    wide = _holding(builder, x, alpha)
    tail = scaled(builder, shifted(builder, builder.exp(wide), -1), alpha)
    return [builder.cast(builder.select(_is_negative(builder, wide), tail, wide), x.dtype)]


@decomposition("Selu")
def selu(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    alpha = node.attrs.get("alpha", 1.6732632423543772)
    gamma = node.attrs.get("gamma", 1.0507009873554805)
    wide = _holding(builder, x, alpha, gamma)
    tail = scaled(builder, shifted(builder, builder.exp(wide), -1), alpha)
    positive = builder.gt(wide, _zero(builder, wide))
    y = scaled(builder, builder.select(positive, wide, tail), gamma)
    return [builder.cast(y, x.dtype)]


@decomposition("Celu")
def celu(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    alpha = node.attrs.get("alpha", 1.0)
    inverse = 1 / alpha if alpha else math.copysign(math.inf, alpha)
    wide = _holding(builder, x, alpha, inverse)
    growth = builder.exp(scaled(builder, wide, inverse))
    tail = scaled(builder, shifted(builder, growth, -1), alpha)
    zero = _zero(builder, wide)
    y = builder.add(builder.max(wide, zero), builder.min(tail, zero))
    return [builder.cast(y, x.dtype)]


@decomposition("Gelu")
def gelu(builder: Builder, node: Node, operands: Operands) -> Results:
    tanh = text(node, "approximate", "none") == "tanh"
    return [gelu_of(builder, required(node, operands, 0), tanh=tanh)]


def gelu_of(builder: Builder, x: Value, *, tanh: bool) -> Value:
    """`x` times the normal distribution at x, or a formula near it."""
    if tanh:
        cube = builder.mul(builder.mul(x, x), x)
        inner = builder.add(x, scaled(builder, cube, 0.044715))
        bent = builder.tanh(scaled(builder, inner, math.sqrt(2 / math.pi)))
    else:
        bent = builder.erf(scaled(builder, x, math.sqrt(0.5)))
    # Halved last, which is as exact, so that one chain of operators leads from x to the factor.
    return builder.mul(x, scaled(builder, shifted(builder, bent, 1), 0.5))


@decomposition("HardSigmoid")
def hard_sigmoid(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    alpha, beta = node.attrs.get("alpha", 0.2), node.attrs.get("beta", 0.5)
    line = shifted(builder, scaled(builder, _holding(builder, x, alpha, beta), alpha), beta)
    return [builder.cast(_clamped(builder, line), x.dtype)]


@decomposition("HardSwish")
def hard_swish(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    gate = _clamped(builder, shifted(builder, scaled(builder, x, 1 / 6), 0.5))
    return [builder.mul(x, gate)]


@decomposition("Swish")
@decomposition("QuickGelu", domain=MICROSOFT)
def swish(builder: Builder, node: Node, operands: Operands) -> Results:
    x, alpha = required(node, operands, 0), node.attrs.get("alpha", 1.0)
    wide = _holding(builder, x, alpha)
    y = builder.mul(wide, builder.sigmoid(scaled(builder, wide, alpha)))
    return [builder.cast(y, x.dtype)]


@decomposition("Mish")
def mish(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    return [builder.mul(x, builder.tanh(softplus(builder, x)))]


@decomposition("Softplus")
def softplus_node(builder: Builder, node: Node, operands: Operands) -> Results:
    return [softplus(builder, required(node, operands, 0))]


@decomposition("Softsign")
def softsign(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    return [builder.div(x, shifted(builder, builder.abs(x), 1))]


@decomposition("ThresholdedRelu")
def thresholded_relu(builder: Builder, node: Node, operands: Operands) -> Results:
    x, alpha = required(node, operands, 0), node.attrs.get("alpha", 1.0)
    wide = _holding(builder, x, alpha)
    passes = builder.gt(wide, builder.scalar(alpha, wide.dtype))
    return [builder.select(passes, x, _zero(builder, x))]


@decomposition("Shrink")
def shrink(builder: Builder, node: Node, operands: Operands) -> Results:
    """Integers are compared and moved as numbers: neither bound nor bias need be of their type."""
    x = required(node, operands, 0)
    limit, bias = node.attrs.get("lambd", 0.5), node.attrs.get("bias", 0.0)
    wide = builder.cast(x, DType.FLOAT32)
    if x.dtype.is_float:
        wide = _holding(builder, x, limit, bias)
    below = builder.lt(wide, builder.scalar(-limit, wide.dtype))
    above = builder.gt(wide, builder.scalar(limit, wide.dtype))
    upper = builder.select(above, shifted(builder, wide, -bias), _zero(builder, wide))
    y = builder.select(below, shifted(builder, wide, bias), upper)
    return [builder.cast(y, x.dtype)]
