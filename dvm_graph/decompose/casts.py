"""Changes of element type: Cast and linear quantisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dvm_graph.decompose.arithmetic import along_axis, without_axes
from dvm_graph.decompose.dequantized_constants import (
    are_many,
    are_narrow_or_of_blocks,
    dequantized_constant,
)
from dvm_graph.decompose.families import MICROSOFT
from dvm_graph.decompose.meanings import Dequantized, dequantized, moderate, same, whole_numbers
from dvm_graph.decompose.operands import normalize_axis, operand, required
from dvm_graph.decompose.registry import Operands, Results, decomposition, of_constants, unless
from dvm_graph.ir import DType, Node, Value, shape_of
from dvm_graph.ir.operators import NARROW
from dvm_graph.symbolic.builder import Builder


@decomposition("Cast", "CastLike")
def cast(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    target = node.outputs[0].dtype if node.op == "Cast" else required(node, operands, 1).dtype
    if target is DType.OPAQUE:
        return None
    if x.dtype is DType.UINT64 and target.is_float:
        return [_from_unsigned(builder, x, target)]
    if x.dtype.is_float and target is DType.UINT64:
        return [_to_unsigned(builder, x)]
    return [builder.cast(x, target)]


def _from_unsigned(builder: Builder, x: Value, target: DType) -> Value:
    """Kernels compute uint64 as int64, which holds half of the range: of more, half of the number is converted, the bit that
    goes kept in the last one, by which it is rounded.
    """
    wide = DType.FLOAT64 if target is DType.FLOAT64 else DType.FLOAT32
    number = builder.cast(x, DType.INT64)
    one, largest = (builder.scalar(n, DType.INT64) for n in (1, 2**63 - 1))
    half = builder.bitwise_and(builder.shift_right(number, one), largest)
    half = builder.cast(builder.bitwise_or(half, builder.bitwise_and(number, one)), wide)
    large = builder.lt(number, builder.scalar(0, DType.INT64))
    y = builder.select(large, builder.add(half, half), builder.cast(number, wide))
    return builder.cast(y, target)


def _to_unsigned(builder: Builder, x: Value) -> Value:
    """What int64 does not hold is converted less 2^63, and has the highest bit back."""
    wide = builder.cast(x, DType.FLOAT64 if x.dtype is DType.FLOAT64 else DType.FLOAT32)
    limit = builder.scalar(2.0**63, wide.dtype)
    rest = builder.cast(builder.sub(wide, limit), DType.INT64)
    rest = builder.bitwise_xor(rest, builder.scalar(-(2**63), DType.INT64))
    y = builder.select(builder.ge(wide, limit), rest, builder.cast(wide, DType.INT64))
    return builder.cast(y, DType.UINT64)


@decomposition("QuantizeLinear")
@decomposition("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(builder: Builder, node: Node, operands: Operands) -> Results:
    """saturate(round(x / scale) + zero_point)."""
    x, scale = required(node, operands, 0), required(node, operands, 1)
    zero_point = operand(operands, 2)
    default = DType.UINT8 if zero_point is None else zero_point.dtype
    target = _declared(node, "output_dtype", default)
    if target not in NARROW or node.attrs.get("block_size", 0):
        return None
    if not _known_to_fit(builder, node, (scale, zero_point), x):
        return None
    source = dequantized(builder, x)
    if source is not None and source.x.dtype is target and same(source, scale, zero_point):
        return [source.x]
    x, scale = builder.cast(x, DType.FLOAT32), builder.cast(scale, DType.FLOAT32)
    quotient = _of_whole_numbers(builder, x, scale)
    if quotient is None:
        quotient = builder.div(x, _placed(builder, node, scale, x))
    if zero_point is not None:
        zero_point = _placed(builder, node, zero_point, x)
    return [quantized(builder, quotient, zero_point, target)]


def _of_whole_numbers(builder: Builder, x: Value, scale: Value) -> Value | None:
    """The quotient by a scale of what whole numbers stand for, with one rounding; None: it stands for none such."""
    meaning = whole_numbers(builder, x)
    if meaning is None or scale.data is None or scale.rank != 0 or not moderate(scale.data):
        return None
    factor = np.asarray(meaning.factor.data, np.float64) / np.asarray(scale.data)
    if not moderate(factor):
        return None
    numbers = builder.cast(meaning.numbers, DType.FLOAT32)
    return builder.mul(numbers, builder.constant(factor.astype(np.float32)))


def quantized(builder: Builder, quotient: Value, zero_point: Value | None, target: DType) -> Value:
    """saturate(round(quotient) + zero_point), for a quotient by the scale in float32.

    The lower limit is that of integers: a NaN, which becomes the least of them, ends there, as it does in
    onnxruntime. So no register ever holds what the type cannot.
    """
    y = builder.round(quotient)
    if zero_point is not None and (zero_point.data is None or np.any(zero_point.data)):
        y = builder.add(y, builder.cast(zero_point, y.dtype))
    limits = np.iinfo(target.value)
    y = builder.min(y, builder.scalar(int(limits.max), y.dtype))
    y = builder.cast(y, DType.INT32)
    y = builder.max(y, builder.scalar(int(limits.min), y.dtype))
    return builder.cast(y, target)


@decomposition("DynamicQuantizeLinear")
def dynamic_quantize_linear(builder: Builder, node: Node, operands: Operands) -> Results:
    return list(dynamically_quantized(builder, required(node, operands, 0)))


def dynamically_quantized(
    builder: Builder, x: Value, *, rows: bool = False
) -> tuple[Value, Value, Value]:
    """Quantised to uint8 by the range of the elements and 0; where that is 0 alone, by a scale of 1.
    With the scale and the zero point. Of `rows` each has a range of its own, and scales and zero points are [..., 1].

    The function of the standard has a scale of 0 there, by which nothing can be divided.
    """
    axes = (x.rank - 1,) if rows else tuple(range(x.rank))
    zero = builder.scalar(0, x.dtype)
    low, high = builder.reduce_min(x, axes), builder.reduce_max(x, axes)
    if not rows:
        low, high = (without_axes(builder, value, axes) for value in (low, high))
    low, high = builder.min(low, zero), builder.max(high, zero)
    extent = builder.sub(high, low)
    step = builder.div(extent, builder.scalar(255, x.dtype))
    scale = builder.select(builder.eq(extent, zero), builder.scalar(1, x.dtype), step)
    offset = builder.sub(zero, builder.div(low, scale))
    point = quantized(builder, offset, None, DType.UINT8)
    return quantized(builder, builder.div(x, scale), point, DType.UINT8), scale, point


def dequantized_by(builder: Builder, x: Value, meaning: Dequantized) -> Value:
    """As whole tensors are, of bytes that were moved."""
    zero = None if meaning.zero is None else builder.reshape(meaning.zero, ())
    y = builder.mul(_difference(builder, x, zero), builder.reshape(meaning.scale, ()))
    builder.meanings[y] = replace(meaning, x=x)
    return y


@decomposition("DequantizeLinear")
@decomposition("DequantizeLinear", domain=MICROSOFT)
@of_constants
@unless(are_many)
def dequantize_linear(builder: Builder, node: Node, operands: Operands) -> Results:
    """(x - zero_point) * scale."""
    x, scale = required(node, operands, 0), required(node, operands, 1)
    zero_point = operand(operands, 2)
    target = _declared(node, "output_dtype", scale.dtype)
    if are_narrow_or_of_blocks(node, operands):
        data = dequantized_constant(node, operands, target)
        return None if data is None else [builder.constant(data)]
    if x.dtype not in NARROW | {DType.INT32}:
        return None
    if not _known_to_fit(builder, node, (scale, zero_point), x):
        return None
    zero = None if zero_point is None else _placed(builder, node, zero_point, x)
    wide = builder.cast(scale, DType.FLOAT32)
    y = builder.mul(_difference(builder, x, zero), _placed(builder, node, wide, x))
    y = builder.cast(y, target)
    if target is DType.FLOAT32 and scale.dtype is DType.FLOAT32:
        meaning = Dequantized(x, scale, zero_point, 0)
        if not meaning.per_tensor():
            axis = normalize_axis(node, node.attrs.get("axis", 1), x.rank)
            meaning = replace(meaning, axis=axis)
        builder.meanings[y] = meaning
    return [y]


def _difference(builder: Builder, x: Value, zero: Value | None) -> Value:
    """`x - zero` in float32: of 8 and 16 bit integers, whose differences do not fit their own type, exactly."""
    exact = DType.INT32 if x.dtype is DType.INT32 else DType.FLOAT32
    y = builder.cast(x, exact)
    if zero is not None and (zero.data is None or np.any(zero.data)):
        y = builder.sub(y, builder.cast(zero, exact))
    return builder.cast(y, DType.FLOAT32)


def _declared(node: Node, attribute: str, default: DType) -> DType:
    """The result's type: that of an attribute if the node has one, else the default."""
    return node.outputs[0].dtype if node.attrs.get(attribute, 0) else default


def _known_to_fit(
    builder: Builder, node: Node, parameters: Sequence[Value | None], x: Value
) -> bool:
    """Whether it is known which parameters are for the whole tensor, and which for an axis.

    One number in a vector is for the whole tensor, whatever the axis is, and what is no vector onnxruntime
    refuses.
    """
    for parameter in parameters:
        if parameter is None or parameter.rank == 0 or parameter.shape == (1,):
            continue
        axis = node.attrs.get("axis", 1)
        if parameter.rank != 1 or not -x.rank <= axis < x.rank:
            return False
        if not builder.facts.same(shape_of(parameter)[0], shape_of(x)[axis]):
            return False
    return True


def _placed(builder: Builder, node: Node, parameter: Value, x: Value) -> Value:
    """A scale or zero point, per tensor or per axis, in a shape that broadcasts against x."""
    if parameter.rank == 0:
        return parameter
    if parameter.shape == (1,):
        return builder.reshape(parameter, ())
    axis = normalize_axis(node, node.attrs.get("axis", 1), x.rank)
    return along_axis(builder, parameter, axis, x.rank)
