"""Products and convolutions of quantised operands: ONNX's QLinear ones and those of onnxruntime.

The differences `q - zero point` are multiplied as float32: each product is exact, and so is a sum of 258 of
them (2^24 / 255^2); a longer one is off by roundings of 2^-24 of its partial sums. Scales come last, in one
factor. Differences of constant weights are constants.

The device multiplies no integers. The vendor library does, and on CPUs with instructions for that
(AVX512-VNNI) it takes half of the time or less for large products: they are left to it, and so are
convolutions. Decomposed are products of so few weights that a call of the library takes longer
(`python -m benchmarks.units.quantized`), and all where `strict` has no vendor operators.
"""

from __future__ import annotations

import numpy as np

from dvm_graph.decompose.arithmetic import along_axis
from dvm_graph.decompose.casts import dynamically_quantized, quantized
from dvm_graph.decompose.contrib_attention import attended
from dvm_graph.decompose.contrib_quantized import as_scalar, centred
from dvm_graph.decompose.convolution import convolution
from dvm_graph.decompose.matrix import multiplied
from dvm_graph.decompose.operands import operand, required, shape_of
from dvm_graph.decompose.registry import (
    MICROSOFT,
    Operands,
    Preference,
    Results,
    decomposition,
    unless,
)
from dvm_graph.ir import DType, Node, Value
from dvm_graph.symbolic.builder import Builder

FEW_WEIGHTS = 1 << 14
"""A product with this many takes 0.2 of the time natively at one row, and as long at 256 rows."""


def many_weights(index: int) -> Preference:
    """Whether the operand at a position is no constant of few elements."""

    def decide(node: Node, operands: Operands) -> bool:
        weights = required(node, operands, index)
        return weights.data is None or weights.data.size > FEW_WEIGHTS

    return decide


def _always(node: Node, operands: Operands) -> bool:
    del node, operands
    return True


def _per_column(*parameters: Value | None) -> bool:
    """Whether scales and zero points are numbers, or vectors with one for each column."""
    return all(parameter is None or parameter.rank < 2 for parameter in parameters)


def _one(parameter: Value | None) -> bool:
    return parameter is None or all(dim == 1 for dim in shape_of(parameter))


def _number(builder: Builder, parameter: Value) -> Value:
    return builder.reshape(builder.cast(parameter, DType.FLOAT32), ())


@decomposition("QLinearMatMul")
@decomposition("QLinearMatMul", domain=MICROSOFT)
@unless(many_weights(3))
def quantized_matmul(builder: Builder, node: Node, operands: Operands) -> Results:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (
        required(node, operands, index) for index in range(8)
    )
    if not _one(a_scale) or not _one(a_zero) or not _one(y_scale) or not _one(y_zero):
        return None
    if not _per_column(b_scale, b_zero):
        return None
    a_zero = builder.reshape(a_zero, ())
    y = multiplied(builder, centred(builder, a, a_zero), centred(builder, b, b_zero))
    factor = builder.div(
        builder.mul(_number(builder, a_scale), builder.cast(as_scalar(builder, b_scale), y.dtype)),
        _number(builder, y_scale),
    )
    y_zero = builder.reshape(y_zero, ())
    return [quantized(builder, builder.mul(y, factor), y_zero, y_zero.dtype)]


@decomposition("QLinearConv")
@decomposition("QLinearConv", domain=MICROSOFT)
@unless(_always)
def quantized_convolution(builder: Builder, node: Node, operands: Operands) -> Results:
    """Pads are zero points, and so zeros of the differences. The bias has the scale of a product."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (
        required(node, operands, index) for index in range(8)
    )
    bias, last = operand(operands, 8), bool(node.attrs.get("channels_last", 0))
    if not all(map(_one, (x_scale, x_zero, y_scale, y_zero))) or not _per_column(w_scale, w_zero):
        return None
    image = centred(builder, x, builder.reshape(x_zero, ()))
    if last:
        image = builder.transpose(image, (0, x.rank - 1, *range(1, x.rank - 1)))
    weights = centred(builder, w, _along_outputs(builder, w_zero, w.rank, 0))
    call: list[Value | None] = [image, weights]
    if bias is not None:
        call.append(builder.cast(bias, DType.FLOAT32))
    results = convolution(builder, node, call)
    if results is None or results[0] is None:
        return None
    factor = builder.div(
        builder.mul(_number(builder, x_scale), _along_outputs(builder, w_scale, x.rank, 1)),
        _number(builder, y_scale),
    )
    y_zero = builder.reshape(y_zero, ())
    y = quantized(builder, builder.mul(results[0], factor), y_zero, y_zero.dtype)
    return [builder.transpose(y, (0, *range(2, x.rank), 1)) if last else y]


def _along_outputs(builder: Builder, parameter: Value, rank: int, axis: int) -> Value:
    """A parameter with one number, or one for each output channel on an axis."""
    parameter = as_scalar(builder, parameter)
    return along_axis(builder, parameter, axis, rank) if parameter.rank else parameter


@decomposition("QGemm", domain=MICROSOFT)
@unless(many_weights(3))
def quantized_gemm(builder: Builder, node: Node, operands: Operands) -> Results:
    """Without a scale of the result, that is float32."""
    a, a_scale, a_zero, b, b_scale, b_zero = (required(node, operands, i) for i in range(6))
    if not _one(a_scale) or not _one(a_zero) or not _per_column(b_scale, b_zero):
        return None
    a = centred(builder, a, builder.reshape(a_zero, ()))
    if node.attrs.get("transA", 0):
        a = builder.transpose(a, (1, 0))
    if node.attrs.get("transB", 0):
        b = builder.transpose(b, (1, 0))
    y = multiplied(builder, a, centred(builder, b, b_zero))
    addend, y_scale, y_zero = (operand(operands, index) for index in (6, 7, 8))
    if addend is not None:
        y = builder.add(y, builder.cast(addend, y.dtype))
    factor = builder.mul(_number(builder, a_scale), as_scalar(builder, b_scale))
    factor = builder.mul(factor, builder.scalar(node.attrs.get("alpha", 1.0), y.dtype))
    if y_scale is None or y_zero is None:
        return [builder.mul(y, factor)]
    factor, y_zero = builder.div(factor, _number(builder, y_scale)), builder.reshape(y_zero, ())
    return [quantized(builder, builder.mul(y, factor), y_zero, y_zero.dtype)]


@decomposition("MatMulInteger")
@unless(many_weights(1))
def integer_matmul(builder: Builder, node: Node, operands: Operands) -> Results:
    """int32, and so only where float32 is exact: constant weights bound every partial sum."""
    a, b = required(node, operands, 0), required(node, operands, 1)
    a_zero, b_zero = operand(operands, 2), operand(operands, 3)
    if not _one(a_zero) or not _per_column(b_zero):
        return None
    if a_zero is not None:
        a_zero = builder.reshape(a_zero, ())
    if not _sums_are_exact(b, b_zero):
        return None
    y = multiplied(builder, centred(builder, a, a_zero), centred(builder, b, b_zero))
    return [builder.cast(y, DType.INT32)]


def _sums_are_exact(weights: Value, zero: Value | None) -> bool:
    """Whether no sum of products with differences of 8 bits leaves the integers of float32."""
    if weights.data is None or (zero is not None and zero.data is None):
        return False
    point = 0 if zero is None else np.asarray(zero.data, np.int64)
    distances = np.abs(np.asarray(weights.data, np.int64) - point)
    sums = distances.sum(axis=-2 if distances.ndim > 1 else -1)
    return 255 * int(np.max(sums, initial=0)) <= 1 << 24


@decomposition("MatMulIntegerToFloat", domain=MICROSOFT)
@unless(many_weights(1))
def integer_matmul_to_float(builder: Builder, node: Node, operands: Operands) -> Results:
    a, b, a_scale, b_scale = (required(node, operands, index) for index in range(4))
    a_zero, b_zero, bias = (operand(operands, index) for index in (4, 5, 6))
    if not _one(a_scale) or not _one(a_zero) or not _per_column(b_scale, b_zero):
        return None
    if a_zero is not None:
        a_zero = builder.reshape(a_zero, ())
    y = _to_float(builder, centred(builder, a, a_zero), a_scale, b, b_scale, b_zero)
    y = builder.cast(y, a_scale.dtype)
    return [y if bias is None else builder.add(y, bias)]


def _to_float(
    builder: Builder, a: Value, a_scale: Value, b: Value, b_scale: Value, b_zero: Value | None
) -> Value:
    """`(a * a_scale) @ ((b - b_zero) * b_scale)`."""
    y = multiplied(builder, a, centred(builder, b, b_zero))
    wide = builder.cast(as_scalar(builder, b_scale), DType.FLOAT32)
    return builder.mul(y, builder.mul(_number(builder, a_scale), wide))


@decomposition("DynamicQuantizeMatMul", domain=MICROSOFT)
@unless(many_weights(1))
def dynamically_quantized_matmul(builder: Builder, node: Node, operands: Operands) -> Results:
    """The left operand is rounded to 256 levels over its range, 0 among them."""
    a, b, b_scale = (required(node, operands, index) for index in range(3))
    b_zero, bias = operand(operands, 3), operand(operands, 4)
    if not _per_column(b_scale, b_zero):
        return None
    rounded, scale, point = dynamically_quantized(builder, a)
    y = _to_float(builder, centred(builder, rounded, point), scale, b, b_scale, b_zero)
    return [y if bias is None else builder.add(y, bias)]


@decomposition("QAttention", domain=MICROSOFT)
@unless(many_weights(1))
def quantized_attention(builder: Builder, node: Node, operands: Operands) -> Results:
    """The projections are of integers, the rest is that of floats."""
    x, weights, bias, x_scale, scale = (required(node, operands, index) for index in range(5))
    x_zero, zero = operand(operands, 6), operand(operands, 7)
    if any(node.attrs.get(name, 0) for name in ("do_rotary", "past_present_share_buffer")):
        return None
    if not _one(x_scale) or not _one(x_zero) or not _per_column(scale, zero):
        return None
    if x_zero is not None:
        x_zero = builder.reshape(x_zero, ())
    y = _to_float(builder, centred(builder, x, x_zero), x_scale, weights, scale, zero)
    projected = builder.add(builder.cast(y, bias.dtype), bias)
    mask, past = operand(operands, 5), operand(operands, 8)
    return attended(builder, node, projected, mask=mask, past=past, bias=None)
