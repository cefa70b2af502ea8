"""Products and convolutions of quantised operands: ONNX's QLinear ones and those of onnxruntime.

Bytes by constant bytes are multiplied as they are, with exact sums in int32 (`integer_products`). Otherwise the
differences `q - zero point` are multiplied as float32: each product is exact, and so is a sum of 258 of
them (2^24 / 255^2); a longer one is off by roundings of 2^-24 of its partial sums. Scales come last, in one
factor. Of products that are not constant, and of convolutions with such sums, only those under `strict` are done so: the vendor
library has them as integers.
"""

from __future__ import annotations

from dvm_graph.decompose.casts import dynamically_quantized, quantized
from dvm_graph.decompose.contrib_attention import attended
from dvm_graph.decompose.families import MICROSOFT
from dvm_graph.decompose.integer_products import (
    is_bytes,
    known,
    sums,
    weights_of,
)
from dvm_graph.decompose.matrix import multiplied
from dvm_graph.decompose.operands import operand, required
from dvm_graph.decompose.quantized_operands import (
    along_outputs,
    as_scalar,
    centred,
    is_exact,
    quantized_windows,
    transposed,
)
from dvm_graph.decompose.registry import Operands, Preference, Results, decomposition, unless
from dvm_graph.ir import DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder


def computed_weights(index: int) -> Preference:
    """Whether the operand at a position is not known."""

    def decide(node: Node, operands: Operands) -> bool:
        return known(required(node, operands, index)) is None

    return decide


def _rounded_sums(node: Node, operands: Operands) -> bool:
    """Whether weights of a convolution, or their zero points, are not known."""
    return weights_of(required(node, operands, 3), operand(operands, 5), 0) is None


def _per_column(*parameters: Value | None) -> bool:
    """Whether scales and zero points are numbers, or vectors with one for each column."""
    return all(parameter is None or parameter.rank < 2 for parameter in parameters)


def _one(parameter: Value | None) -> bool:
    return parameter is None or all(dim == 1 for dim in shape_of(parameter))


def _product(
    builder: Builder, a: Value, a_zero: Value | None, b: Value, b_zero: Value | None
) -> Value:
    """The sums of products of differences: int32, or float32 where they are no bytes by constants."""
    weights = weights_of(b, b_zero) if is_bytes(a) else None
    if weights is not None:
        return sums(builder, a, a_zero, weights)
    if a_zero is not None:
        a_zero = builder.reshape(a_zero, ())
    return multiplied(builder, centred(builder, a, a_zero), centred(builder, b, b_zero))


def _to_float32(builder: Builder, sums: Value) -> Value:
    return builder.cast(sums, DType.FLOAT32)


def _number(builder: Builder, parameter: Value) -> Value:
    return builder.reshape(builder.cast(parameter, DType.FLOAT32), ())


@decomposition("QLinearMatMul")
@decomposition("QLinearMatMul", domain=MICROSOFT)
@unless(computed_weights(3))
def quantized_matmul(builder: Builder, node: Node, operands: Operands) -> Results:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (
        required(node, operands, index) for index in range(8)
    )
    if not _one(a_scale) or not _one(a_zero) or not _one(y_scale) or not _one(y_zero):
        return None
    if not _per_column(b_scale, b_zero):
        return None
    y = _to_float32(builder, _product(builder, a, a_zero, b, b_zero))
    factor = builder.div(
        builder.mul(_number(builder, a_scale), builder.cast(as_scalar(builder, b_scale), y.dtype)),
        _number(builder, y_scale),
    )
    y_zero = builder.reshape(y_zero, ())
    return [quantized(builder, builder.mul(y, factor), y_zero, y_zero.dtype)]


@decomposition("QLinearConv")
@decomposition("QLinearConv", domain=MICROSOFT)
@unless(_rounded_sums)
def quantized_convolution(builder: Builder, node: Node, operands: Operands) -> Results:
    """Pads are zero points, and so zeros of the differences. The bias has the scale of a product."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (
        required(node, operands, index) for index in range(8)
    )
    bias, last = operand(operands, 8), bool(node.attrs.get("channels_last", 0))
    if not all(map(_one, (x_scale, x_zero, y_scale, y_zero))) or not _per_column(w_scale, w_zero):
        return None
    if last:
        x = builder.transpose(x, (0, x.rank - 1, *range(1, x.rank - 1)))
    sums = quantized_windows(builder, node, x, x_zero, w, w_zero, bias)
    if sums is None:
        return None
    factor = builder.div(
        builder.mul(_number(builder, x_scale), along_outputs(builder, w_scale, x.rank, 1)),
        _number(builder, y_scale),
    )
    y_zero = builder.reshape(y_zero, ())
    y = _to_float32(builder, sums)
    y = quantized(builder, builder.mul(y, factor), y_zero, y_zero.dtype)
    return [builder.transpose(y, (0, *range(2, x.rank), 1)) if last else y]


@decomposition("QGemm", domain=MICROSOFT)
@unless(computed_weights(3))
def quantized_gemm(builder: Builder, node: Node, operands: Operands) -> Results:
    """Without a scale of the result, that is float32."""
    a, a_scale, a_zero, b, b_scale, b_zero = (required(node, operands, i) for i in range(6))
    if not _one(a_scale) or not _one(a_zero) or not _per_column(b_scale, b_zero):
        return None
    if node.attrs.get("transA", 0):
        a = builder.transpose(a, (1, 0))
    if node.attrs.get("transB", 0):
        b = transposed(builder, b)
    y = _product(builder, a, a_zero, b, b_zero)
    addend, y_scale, y_zero = (operand(operands, index) for index in (6, 7, 8))
    if addend is not None:
        y = builder.add(y, builder.cast(addend, y.dtype))
    y = _to_float32(builder, y)
    factor = builder.mul(_number(builder, a_scale), as_scalar(builder, b_scale))
    factor = builder.mul(factor, builder.scalar(node.attrs.get("alpha", 1.0), y.dtype))
    if y_scale is None or y_zero is None:
        return [builder.mul(y, factor)]
    factor, y_zero = builder.div(factor, _number(builder, y_scale)), builder.reshape(y_zero, ())
    return [quantized(builder, builder.mul(y, factor), y_zero, y_zero.dtype)]


@decomposition("MatMulInteger")
@unless(computed_weights(1))
def integer_matmul(builder: Builder, node: Node, operands: Operands) -> Results:
    a, b = required(node, operands, 0), required(node, operands, 1)
    a_zero, b_zero = operand(operands, 2), operand(operands, 3)
    if not _one(a_zero) or not _per_column(b_zero):
        return None
    weights = weights_of(b, b_zero)
    return [sums(builder, a, a_zero, weights)] if weights is not None else None


@decomposition("ConvInteger")
@unless(computed_weights(1))
def convolution_of_integers(builder: Builder, node: Node, operands: Operands) -> Results:
    x, w = required(node, operands, 0), required(node, operands, 1)
    x_zero, w_zero = operand(operands, 2), operand(operands, 3)
    if not _one(x_zero) or not _per_column(w_zero):
        return None
    y = quantized_windows(builder, node, x, x_zero, w, w_zero, None)
    return None if y is None or not is_exact(y, w) else [builder.cast(y, DType.INT32)]


@decomposition("MatMulIntegerToFloat", domain=MICROSOFT)
@unless(computed_weights(1))
def integer_matmul_to_float(builder: Builder, node: Node, operands: Operands) -> Results:
    a, b, a_scale, b_scale = (required(node, operands, index) for index in range(4))
    a_zero, b_zero, bias = (operand(operands, index) for index in (4, 5, 6))
    if not _one(a_scale) or not _one(a_zero) or not _per_column(b_scale, b_zero):
        return None
    y = _to_float(builder, _product(builder, a, a_zero, b, b_zero), a_scale, b_scale)
    y = builder.cast(y, a_scale.dtype)
    return [y if bias is None else builder.add(y, bias)]


def _to_float(builder: Builder, sums: Value, a_scale: Value, b_scale: Value) -> Value:
    """Sums of products times the scales of their factors."""
    wide = builder.cast(as_scalar(builder, b_scale), DType.FLOAT32)
    factor = builder.mul(_number(builder, a_scale), wide)
    return builder.mul(_to_float32(builder, sums), factor)


@decomposition("DynamicQuantizeMatMul", domain=MICROSOFT)
@unless(computed_weights(1))
def dynamically_quantized_matmul(builder: Builder, node: Node, operands: Operands) -> Results:
    """The left operand is rounded to 256 levels over its range, 0 among them."""
    a, b, b_scale = (required(node, operands, index) for index in range(3))
    b_zero, bias = operand(operands, 3), operand(operands, 4)
    if not _per_column(b_scale, b_zero):
        return None
    rounded, scale, point = dynamically_quantized(builder, a)
    y = _to_float(builder, _product(builder, rounded, point, b, b_zero), scale, b_scale)
    return [y if bias is None else builder.add(y, bias)]


@decomposition("QAttention", domain=MICROSOFT)
@unless(computed_weights(1))
def quantized_attention(builder: Builder, node: Node, operands: Operands) -> Results:
    """The projections are of integers, the rest is that of floats."""
    x, weights, bias, x_scale, scale = (required(node, operands, index) for index in range(5))
    x_zero, zero = operand(operands, 6), operand(operands, 7)
    if any(node.attrs.get(name, 0) for name in ("do_rotary", "past_present_share_buffer")):
        return None
    if not _one(x_scale) or not _one(x_zero) or not _per_column(scale, zero):
        return None
    y = _to_float(builder, _product(builder, x, x_zero, weights, zero), x_scale, scale)
    projected = builder.add(builder.cast(y, bias.dtype), bias)
    mask, past = operand(operands, 5), operand(operands, 8)
    return attended(builder, node, projected, mask=mask, past=past, bias=None)
