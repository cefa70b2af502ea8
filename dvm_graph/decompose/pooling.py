"""Pools: reductions over windows of channels-last images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod

import numpy as np

from dvm_graph.decompose.arithmetic import dim_value, shifted, widened
from dvm_graph.decompose.operands import required, shape_of, text
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.decompose.windows import (
    WindowAxis,
    channels_first,
    channels_last,
    planar,
    spatial_axes,
    window_over,
)
from dvm_graph.ir import Dim, DType, Node, Value
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.builder_methods import Window
from dvm_graph.symbolic.dims import add, floordiv, mul, neg

_EXACT_AS_FLOATS = frozenset({DType.INT8, DType.UINT8, DType.INT16, DType.UINT16})


def _axes(node: Node, x: Value) -> list[WindowAxis] | None:
    """The windows of a pool; None where only onnxruntime knows them.

    Its SAME pads take no dilation into account, and fall short of 0 where strides leave elements out.
    """
    axes = spatial_axes(node, shape_of(x)[2:], node.attrs.get("kernel_shape"))
    if axes is not None and text(node, "auto_pad", "NOTSET").startswith("SAME"):
        plain = all(axis.dilation == 1 and axis.stride <= axis.kernel for axis in axes)
        return axes if plain else None
    return axes


def _pooled(
    builder: Builder,
    pool: Callable[[Value, Window], Value],
    x: Value,
    axes: Sequence[WindowAxis],
) -> Value:
    """`x` channels-last; of a volume, rows and columns slice by slice, then depth."""
    image = channels_last(builder, x)
    if len(axes) < 3:
        return pool(image, window_over(planar(axes)))
    depth, rows, columns = axes
    batch, extent, height, width, channels = shape_of(image)
    flat = builder.reshape(image, (mul(batch, extent), height, width, channels))
    flat = pool(flat, window_over((rows, columns)))
    places = mul(rows.size, columns.size)
    deep = builder.reshape(flat, (batch, extent, places, channels))
    deep = pool(deep, window_over((depth, WindowAxis(places, 1, 1, 1, (0, 0), places))))
    return builder.reshape(deep, (batch, depth.size, rows.size, columns.size, channels))


@decomposition("MaxPool")
def max_pool(builder: Builder, node: Node, operands: Operands) -> Results:
    """Without the indices of the maxima."""
    x = required(node, operands, 0)
    axes = _axes(node, x)
    known = x.dtype.is_float or x.dtype in _EXACT_AS_FLOATS
    if axes is None or not known or any(output.name for output in node.outputs[1:]):
        return None
    wide = widened(builder, x) if x.dtype.is_float else builder.cast(x, DType.FLOAT32)
    y = _pooled(builder, builder.pool_max, wide, axes)
    if not x.dtype.is_float and any(axis.dilation > 1 for axis in axes):
        # A dilated window may have no tap in the image.
        y = builder.max(y, builder.scalar(int(np.iinfo(x.dtype.value).min), y.dtype))
    return [channels_first(builder, builder.cast(y, x.dtype), x.rank)]


@decomposition("AveragePool")
def average_pool(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    axes = _axes(node, x)
    if axes is None or not x.dtype.is_float:
        return None
    total = _pooled(builder, builder.pool_sum, widened(builder, x), axes)
    padded = bool(node.attrs.get("count_include_pad", 0))
    if padded and node.version < 19 and not node.attrs.get("ceil_mode", 0):
        # onnxruntime counts the taps beyond the padded image, too, where that is the smaller one.
        count = builder.scalar(prod(axis.kernel for axis in axes), total.dtype)
    else:
        first = total.rank - 1 - len(axes)
        counts = (
            _counts(builder, axis, index + first, total.rank, padded, total.dtype)
            for index, axis in enumerate(axes)
        )
        count = reduce(builder.mul, counts)
    y = builder.div(total, count)
    return [channels_first(builder, builder.cast(y, x.dtype), x.rank)]


def _counts(
    builder: Builder, axis: WindowAxis, at: int, rank: int, padded: bool, dtype: DType
) -> Value:
    """How many taps of each window count along one axis: those inside the image, or inside the
    padded image. A scalar where all windows have all their taps; else along axis `at` of `rank`.
    """
    low: Dim = 0
    high = axis.extent
    if padded:
        low, high = neg(axis.pads[0]), add(high, axis.pads[1])
    everywhere = add(add(high, axis.pads[0]), -axis.dilation * (axis.kernel - 1) - 1)
    whole = low == neg(axis.pads[0]) and (padded or axis.pads[1] == 0)
    if whole and axis.size == add(floordiv(everywhere, axis.stride), 1):
        return builder.scalar(axis.kernel, dtype)
    shape = tuple(axis.size if index == at else 1 for index in range(rank))
    first = builder.iota(shape, at, neg(axis.pads[0]), axis.stride)
    before = _taps_below(builder, first, low, axis)
    below = builder.min(
        _taps_below(builder, first, high, axis), builder.scalar(axis.kernel, DType.INT64)
    )
    count = builder.sub(below, before)
    if axis.dilation > 1:  # there may be none: the mean of nothing is 0
        count = builder.max(count, builder.scalar(1, DType.INT64))
    return builder.cast(count, dtype)


def _taps_below(builder: Builder, first: Value, limit: Dim, axis: WindowAxis) -> Value:
    """How many of first, first + dilation, ... are less than the limit."""
    distance = builder.sub(dim_value(builder, limit), first)
    distance = builder.max(
        shifted(builder, distance, axis.dilation - 1), builder.scalar(0, DType.INT64)
    )
    return builder.div(distance, builder.scalar(axis.dilation, DType.INT64))


@decomposition("LpPool")
def lp_pool(builder: Builder, node: Node, operands: Operands) -> Results:
    """The p-norm of each window."""
    x = required(node, operands, 0)
    axes = _axes(node, x)
    if axes is None or not x.dtype.is_float or node.version < 2:
        return None
    p = float(node.attrs.get("p", 2))
    powers = _power(builder, builder.abs(widened(builder, x)), p)
    total = _pooled(builder, builder.pool_sum, powers, axes)
    y = _power(builder, total, 1 / p)
    return [channels_first(builder, builder.cast(y, x.dtype), x.rank)]


def _power(builder: Builder, x: Value, exponent: float) -> Value:
    if exponent == 0.5:
        return builder.sqrt(x)
    return x if exponent == 1 else builder.pow(x, builder.scalar(exponent, x.dtype))
