"""Pools: reductions over windows of channels-last images."""

from __future__ import annotations

import numpy as np

from dvm_graph.decompose.arithmetic import dim_value, shifted, widened
from dvm_graph.decompose.operands import required, shape_of, text
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.decompose.windows import (
    WindowAxis,
    axes_of,
    channels_first,
    channels_last,
    window_over,
)
from dvm_graph.ir import Dim, DType, Node, Value
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import add, floordiv, neg

_EXACT_AS_FLOATS = frozenset({DType.INT8, DType.UINT8, DType.INT16, DType.UINT16})
_Axes = tuple[WindowAxis, WindowAxis]


def _axes(node: Node, x: Value) -> _Axes | None:
    """The windows of a pool; None where only onnxruntime knows them.

    Its SAME pads take no dilation into account, and fall short of 0 where strides leave elements out.
    """
    axes = axes_of(node, shape_of(x)[2:], node.attrs.get("kernel_shape"))
    if axes is not None and text(node, "auto_pad", "NOTSET").startswith("SAME"):
        plain = all(axis.dilation == 1 and axis.stride <= axis.kernel for axis in axes)
        return axes if plain else None
    return axes


@decomposition("MaxPool")
def max_pool(builder: Builder, node: Node, operands: Operands) -> Results:
    """Without the indices of the maxima."""
    x = required(node, operands, 0)
    axes = _axes(node, x)
    known = x.dtype.is_float or x.dtype in _EXACT_AS_FLOATS
    if axes is None or not known or any(output.name for output in node.outputs[1:]):
        return None
    wide = widened(builder, x) if x.dtype.is_float else builder.cast(x, DType.FLOAT32)
    y = builder.pool_max(channels_last(builder, wide), window_over(axes))
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
    total = builder.pool_sum(channels_last(builder, widened(builder, x)), window_over(axes))
    padded = bool(node.attrs.get("count_include_pad", 0))
    if padded and node.version < 19 and not node.attrs.get("ceil_mode", 0):
        # onnxruntime counts the taps beyond the padded image, too, where that is the smaller one.
        count = builder.scalar(axes[0].kernel * axes[1].kernel, total.dtype)
    else:
        rows, columns = (
            _counts(builder, axis, index + 1, padded, total.dtype)
            for index, axis in enumerate(axes)
        )
        count = builder.mul(rows, columns)
    y = builder.div(total, count)
    return [channels_first(builder, builder.cast(y, x.dtype), x.rank)]


def _counts(builder: Builder, axis: WindowAxis, at: int, padded: bool, dtype: DType) -> Value:
    """How many taps of each window count along one axis: those inside the image, or inside the
    padded image. A scalar where all windows have all their taps; else along axis `at` of 4.
    """
    low: Dim = 0
    high = axis.extent
    if padded:
        low, high = neg(axis.pads[0]), add(high, axis.pads[1])
    everywhere = add(add(high, axis.pads[0]), -axis.dilation * (axis.kernel - 1) - 1)
    whole = low == neg(axis.pads[0]) and (padded or axis.pads[1] == 0)
    if whole and axis.size == add(floordiv(everywhere, axis.stride), 1):
        return builder.scalar(axis.kernel, dtype)
    shape = tuple(axis.size if index == at else 1 for index in range(4))
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
    total = builder.pool_sum(channels_last(builder, powers), window_over(axes))
    y = _power(builder, total, 1 / p)
    return [channels_first(builder, builder.cast(y, x.dtype), x.rank)]


def _power(builder: Builder, x: Value, exponent: float) -> Value:
    if exponent == 0.5:
        return builder.sqrt(x)
    return x if exponent == 1 else builder.pow(x, builder.scalar(exponent, x.dtype))
