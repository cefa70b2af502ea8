"""Products of bytes: sums of (a - zero point) * (b - zero point) in int32, exact and in any order the same.

The cube unit multiplies uint8 by constant int8. The rest is arithmetic on the sums, modulo 2^32 as they are: zero
points come out of them as the sums of the weights' columns, which are constants, and int8 is the uint8 that is
128 higher. Zero points of weights are taken from the weights, or, where the difference is no byte, multiplied by
the sums of A's rows, or of a convolution's windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dvm_graph.decompose.convolution import convolved
from dvm_graph.decompose.matrix import multiplied
from dvm_graph.decompose.pooling import pooled
from dvm_graph.decompose.slicing import padded
from dvm_graph.decompose.windows import (
    WindowAxis,
    channels_first,
    channels_last,
    planar,
    spatial_axes,
)
from dvm_graph.ir import Array, DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder

_BYTES = (DType.INT8, DType.UINT8)
_SHIFT = 128
"""From int8 to uint8."""
_BUNDLE = 4
"""Channels that the cube unit multiplies at a time: patches of whole bundles are moved as they are. So where it makes
images by at most a third larger, channels whose weights are 0 are added.
"""
_MOST_TERMS = (1 << 24) // 255
"""Differences of bytes whose sum float32 has, in whatever order it adds them."""


@dataclass(frozen=True, slots=True)
class Weights:
    """A constant B operand: `bytes - zeros`, zeros broadcast along the axes that are summed over."""

    bytes: Array
    zeros: Array | None


def known(value: Value) -> Array | None:
    """The elements of a constant, or of what has none: the vendor library leaves sums over nothing unwritten."""
    if value.data is not None:
        return np.asarray(value.data)
    shape = value.shape
    if shape is None or 0 not in shape or not all(isinstance(dim, int) for dim in shape):
        return None
    return np.zeros(tuple(int(dim) for dim in shape), value.dtype.numpy)


def weights_of(b: Value, zero: Value | None, axis: int = -1) -> Weights | None:
    """The int8 weights that differences of constants are; None: they are none. Zero points follow `axis`."""
    if b.dtype not in _BYTES or b.rank < 2:
        return None
    data = known(b)
    if data is not None and data.size == 0:
        return Weights(data.astype(np.int8), None)
    if data is None or (zero is not None and zero.data is None):
        return None
    point = np.zeros((), np.int32) if zero is None else np.asarray(zero.data).astype(np.int32)
    if point.size == 1:
        point = point.reshape(())
    else:
        shape = [1] * data.ndim
        shape[axis] = point.size
        point = point.reshape(shape)
    if not point.any() and data.dtype == np.int8:
        return Weights(data, None)
    centred = data.astype(np.int32) - point
    if centred.min() >= -_SHIFT and centred.max() < _SHIFT:
        return Weights(centred.astype(np.int8), None)
    if data.dtype == np.int8:
        return Weights(data, point)
    return Weights((data.astype(np.int32) - _SHIFT).astype(np.int8), point - _SHIFT)


def is_bytes(a: Value) -> bool:
    return a.dtype in _BYTES


def unsigned(builder: Builder, a: Value, zero: Value | None) -> tuple[Value, Value | None]:
    """uint8 with an int32 zero point that stand for the same differences; None: it is 0. It is one number, or of [..., 1]."""
    if zero is not None:
        one = all(dim == 1 for dim in shape_of(zero))
        zero = builder.cast(builder.reshape(zero, ()) if one else zero, DType.INT32)
    if a.dtype is DType.INT8:
        shift = builder.scalar(_SHIFT, DType.INT32)
        a = builder.cast(builder.add(builder.cast(a, DType.INT32), shift), DType.UINT8)
        zero = shift if zero is None else builder.add(zero, shift)
    if zero is not None and zero.data is not None and not np.any(zero.data):
        zero = None
    return a, zero


def sums(builder: Builder, a: Value, a_zero: Value | None, b: Weights) -> Value:
    """The sums over k of (a[..., k] - a_zero) * b[..., k, n], in int32; `a_zero` may be one for each row, [..., 1]."""
    a, zero = unsigned(builder, a, a_zero)
    y = multiplied(builder, a, builder.constant(b.bytes))
    columns = b.bytes.sum(axis=-2, keepdims=b.bytes.ndim > 2, dtype=np.int32)
    y = _centred(builder, y, zero, columns)
    if b.zeros is None:
        return y
    rows = builder.reduce_sum(builder.cast(a, DType.INT32), (a.rank - 1,))
    if zero is not None:
        steps = builder.scalar(b.bytes.shape[-2], DType.INT32)
        rows = builder.sub(rows, builder.mul(zero, steps))
    return builder.sub(y, builder.mul(rows, builder.constant(b.zeros)))


def integer_convolution(
    builder: Builder,
    node: Node,
    x: Value,
    zero: Value | None,
    weights: Weights,
    bias: Value | None,
) -> Value | None:
    """The sums of a convolution over x - zero, channels-first, by weights [outputs, inputs, kernel...], and an int32 bias
    for each output. What lies outside of the image is the zero point. None: it makes several results of a channel by itself, or
    is malformed.
    """
    filters = weights.bytes
    if x.rank not in (3, 4, 5) or filters.ndim != x.rank:
        return None
    axes = spatial_axes(node, shape_of(x)[2:], filters.shape[2:])
    groups = int(node.attrs.get("group", 1))
    outputs, inputs = filters.shape[:2]
    if axes is None or groups < 1 or outputs % groups != 0:
        return None
    alone = groups > 1 and inputs == 1
    if alone and outputs != groups:
        return None
    x, zero = unsigned(builder, x, zero)
    image, around = channels_last(builder, x), axes
    if len(axes) < 3:
        axes = list(planar(axes))
    kernel = tuple(axis.kernel for axis in axes)
    more = -inputs % _BUNDLE
    if math.prod(kernel) > 1 and groups == 1 and more * 3 <= inputs:
        image = padded(builder, image, image.rank - 1, 0, more, builder.scalar(0, DType.UINT8))
        filters = np.pad(filters, ((0, 0), (0, more)) + ((0, 0),) * (filters.ndim - 2))
        inputs += more
    outside = 0
    if alone and zero is not None and zero.data is not None:
        outside = int(np.asarray(zero.data))
    elif zero is not None:
        around_image = builder.cast(zero, DType.UINT8)
        for at, axis in enumerate(axes):
            image = padded(builder, image, 1 + at, *axis.pads, around_image)
        axes = [replace(axis, pads=(0, 0)) for axis in axes]
    whole = builder.constant(filters.reshape(outputs, inputs, *kernel))
    y = convolved(builder, image, whole, axes, groups, outside)
    totals = filters.reshape(outputs, -1).sum(axis=1, dtype=np.int32)
    y = _centred(builder, y, zero, totals, bias)
    if weights.zeros is not None:
        windows = _over_windows(builder, x, zero, around, groups, weights.bytes.shape[1])
        points = np.broadcast_to(weights.zeros.reshape(-1), (outputs,)).reshape(groups, -1)
        products = builder.mul(windows, builder.constant(np.ascontiguousarray(points)))
        y = builder.sub(y, builder.reshape(products, shape_of(y)))
    return channels_first(builder, y, x.rank)


def _over_windows(
    builder: Builder,
    x: Value,
    zero: Value | None,
    axes: Sequence[WindowAxis],
    groups: int,
    inputs: int,
) -> Value:
    """The sums of x - zero over windows and a group's `inputs` of the channels of x: int32 [batch, positions..., groups, 1]."""
    batch, _, *spatial = shape_of(x)
    split = builder.reshape(x, (batch, groups, inputs, *spatial))
    sums = builder.reduce_sum(builder.cast(split, DType.INT32), (2,))
    if zero is not None:
        sums = builder.sub(sums, builder.mul(zero, builder.scalar(inputs, DType.INT32)))
    few = inputs * math.prod(axis.kernel for axis in axes) <= _MOST_TERMS
    wide = builder.cast(sums, DType.FLOAT32 if few else DType.FLOAT64)
    sums = pooled(builder, builder.pool_sum, channels_last(builder, wide), axes)
    return builder.reshape(builder.cast(sums, DType.INT32), (*shape_of(sums), 1))


def _centred(
    builder: Builder, y: Value, zero: Value | None, columns: Array, bias: Value | None = None
) -> Value:
    """Without what the zero point of A adds to sums of columns, and with a bias of them; of constants at once, and in
    one term, whatever their size.
    """
    offset = np.zeros(columns.shape, np.int64)
    if bias is not None and bias.data is not None:
        offset += np.asarray(bias.data)
    elif bias is not None:
        y = builder.add(y, bias)
    if zero is not None and zero.data is not None:
        offset -= columns.astype(np.int64) * int(np.asarray(zero.data))
    elif zero is not None:
        y = builder.sub(y, builder.mul(builder.constant(columns), zero))
    return builder.add(y, builder.constant(offset.astype(np.int32))) if offset.any() else y
