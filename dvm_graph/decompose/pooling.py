"""Pools: reductions over windows of channels-last images, or of planes: images of one channel each.

What comes from a convolution lies channels-last, and stays so. Other images lie in planes, which are pooled as they are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from dvm_graph.decompose.arithmetic import dim_value, positions, shifted, widened, without_axes
from dvm_graph.decompose.operands import required, text
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.decompose.slicing import padded
from dvm_graph.decompose.windows import (
    FLAT,
    WindowAxis,
    channels_first,
    channels_last,
    comes_channels_last,
    planar,
    spatial_axes,
    window_over,
)
from dvm_graph.ir import Dim, DType, Node, Value, shape_of
from dvm_graph.ir.operators import NARROW
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.builder_methods import Window
from dvm_graph.symbolic.dims import add, floordiv, mul, neg, product

_FEW_TAPS = 9
"""Of a window: as many strided views of an image, and a handful of operators of each, may be one kernel."""


def _axes(node: Node, x: Value) -> list[WindowAxis] | None:
    """The windows of a pool; None where only onnxruntime knows them.

    Its SAME pads take no dilation into account, and fall short of 0 where strides leave elements out.
    """
    axes = spatial_axes(node, shape_of(x)[2:], node.attrs.get("kernel_shape"))
    if axes is not None and text(node, "auto_pad", "NOTSET").startswith("SAME"):
        plain = all(axis.dilation == 1 and axis.stride <= axis.kernel for axis in axes)
        return axes if plain else None
    return axes


def by_planes(x: Value) -> bool:
    """Whether windows over `x`, [batch, channels, ...], are reduced channel by channel."""
    return not comes_channels_last(x)


def images(builder: Builder, x: Value, planes: bool) -> Value:
    """[batch, channels, ...] as images channels-last: one for each channel, or one of all channels."""
    if not planes:
        return channels_last(builder, x)
    batch, channels, *spatial = shape_of(x)
    rows = spatial if len(spatial) > 1 else [1, *spatial]
    return builder.reshape(x, (mul(batch, channels), *rows, 1))


def from_images(builder: Builder, y: Value, x: Value, planes: bool) -> Value:
    """The way back, for results of other sizes than the images of `x` had."""
    if not planes:
        return channels_first(builder, y, x.rank)
    places = shape_of(y)[-x.rank + 1 : -1]
    return builder.reshape(y, (*shape_of(x)[:2], *places))


def pooled(
    builder: Builder,
    pool: Callable[[Value, Window], Value],
    image: Value,
    axes: Sequence[WindowAxis],
) -> Value:
    """Of `images`; of a volume, rows and columns slice by slice, then depth.

    Rows are passed over first, for all columns, and then columns, where that takes at most half the taps: the image that
    lies between is written and read. Planes are passed over so in a kernel (`npu/host/plane_windows.h`).
    """
    batch, *spatial, channels = shape_of(image)
    *slices, rows, columns = axes if len(axes) > 1 else planar(axes)
    flat = builder.reshape(image, (product([batch, *spatial[:-2]]), *spatial[-2:], channels))
    twice = rows.kernel * columns.stride + columns.kernel
    if channels != 1 and rows.kernel * columns.kernel >= 2 * twice:
        flat = _down(builder, pool, flat, rows)
        rows = WindowAxis(rows.size, 1, 1, 1, (0, 0), rows.size)
    flat = pool(flat, window_over((rows, columns)))
    if not slices:
        return flat
    (depth,) = slices
    deep = builder.reshape(flat, (batch, depth.extent, rows.size, columns.size, channels))
    return _down(builder, pool, deep, depth)


def _down(
    builder: Builder, pool: Callable[[Value, Window], Value], x: Value, axis: WindowAxis
) -> Value:
    """Axis 1 alone; what lies side by side behind it is like so many channels."""
    outer, extent, *inner = shape_of(x)
    folded = builder.reshape(x, (outer, extent, 1, product(inner)))
    y = pool(folded, window_over((axis, FLAT)))
    return builder.reshape(y, (outer, axis.size, *inner))


@decomposition("MaxPool")
def max_pool(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    axes = _axes(node, x)
    if axes is None or not (x.dtype.is_float or x.dtype in NARROW):
        return None
    wide = widened(builder, x) if x.dtype.is_float else builder.cast(x, DType.FLOAT32)
    if any(output.name for output in node.outputs[1:]):
        by_columns = bool(node.attrs.get("storage_order", 0))
        y, index = _with_indices(builder, wide, axes, by_columns)
        return [builder.cast(_without_nothing(builder, y, x, axes), x.dtype), index]
    planes = by_planes(x)
    y = pooled(builder, builder.pool_max, images(builder, wide, planes), axes)
    y = builder.cast(_without_nothing(builder, y, x, axes), x.dtype)
    return [from_images(builder, y, x, planes)]


def _without_nothing(builder: Builder, y: Value, x: Value, axes: Sequence[WindowAxis]) -> Value:
    """The greatest of no integers is the least there is: a dilated window may have no tap in the image."""
    if x.dtype.is_float or all(axis.dilation == 1 for axis in axes):
        return y
    return builder.max(y, builder.scalar(int(np.iinfo(x.dtype.value).min), y.dtype))


def _with_indices(
    builder: Builder, x: Value, axes: Sequence[WindowAxis], by_columns: bool
) -> tuple[Value, Value]:
    """The greatest elements of windows of `x`, channels-first, and where in `x` the first of each lies. A NaN is the greatest."""
    y = from_images(
        builder, pooled(builder, builder.pool_max, images(builder, x, True), axes), x, True
    )
    room = x
    for at, axis in enumerate(axes):
        if _stays_inside(builder, axis):
            continue
        least = builder.scalar(-math.inf, x.dtype)
        room = padded(builder, room, 2 + at, axis.pads[0], axis.lacking, least)
    few = math.prod(axis.kernel for axis in axes) <= _FEW_TAPS
    number = (_number_tap_by_tap if few else _number_of_all_taps)(builder, room, y, axes)
    return y, _index(builder, x, axes, number, by_columns)


def _number_tap_by_tap(
    builder: Builder, room: Value, y: Value, axes: Sequence[WindowAxis]
) -> Value:
    """The number of the first tap of each window that is the greatest: the last tap comes first, and gives way to earlier ones."""
    taps = [range(axis.kernel) for axis in axes]
    total = math.prod(axis.kernel for axis in axes)
    insides = [
        [_inside(builder, axes, at, y.rank, builder.scalar(tap, DType.INT64)) for tap in of_axis]
        for at, of_axis in enumerate(taps)
    ]
    number = builder.scalar(total, DType.INT32)
    for index, tap in reversed(list(enumerate(itertools.product(*taps)))):
        view = _view_of_taps(builder, room, y, axes, tap, ())
        found = _found(builder, view, y, [insides[at][along] for at, along in enumerate(tap)])
        number = builder.select(found, builder.scalar(index, DType.INT32), number)
    return number


def _number_of_all_taps(
    builder: Builder, room: Value, y: Value, axes: Sequence[WindowAxis]
) -> Value:
    """The same: taps are the outermost axes of a view, and are folded."""
    count, kernel = len(axes), tuple(axis.kernel for axis in axes)
    taps = _view_of_taps(builder, room, y, axes, (0,) * count, kernel)
    greatest = builder.reshape(y, (*(1,) * count, *shape_of(y)))
    places = [positions(builder, axis.kernel, at, taps.rank) for at, axis in enumerate(axes)]
    insides = [_inside(builder, axes, at, taps.rank, tap) for at, tap in enumerate(places)]
    found = _found(builder, taps, greatest, insides)
    total = math.prod(kernel)
    numbers = np.arange(total, dtype=np.int32).reshape(*kernel, *(1,) * y.rank)
    none = builder.scalar(total, DType.INT32)
    number = builder.reduce_min(
        builder.select(found, builder.constant(numbers), none), range(count)
    )
    return without_axes(builder, number, range(count))


def _found(
    builder: Builder, taps: Value, greatest: Value, insides: Sequence[Value | None]
) -> Value:
    """Which taps are the greatest of their windows, of those inside the image."""
    found = builder.bitwise_or(builder.eq(taps, greatest), builder.isnan(taps))
    return reduce(builder.bitwise_and, filter(None, insides), found)


def _view_of_taps(
    builder: Builder,
    room: Value,
    y: Value,
    axes: Sequence[WindowAxis],
    first: Sequence[int],
    kernel: Sequence[int],
) -> Value:
    """Of the padded image, one tap of each window, or so many along axes in front from it on."""
    whole = shape_of(room)
    steps = [product(whole[at + 1 :]) for at in range(room.rank)]
    apart = [mul(axis.dilation, steps[2 + at]) for at, axis in enumerate(axes)]
    offset: Dim = 0
    for tap, step in zip(first, apart, strict=True):
        offset = add(offset, mul(tap, step))
    return builder.op(
        "view",
        room,
        shape=(*kernel, *shape_of(y)),
        strides=(
            *(apart if kernel else ()),
            *steps[:2],
            *(mul(axis.stride, steps[2 + at]) for at, axis in enumerate(axes)),
        ),
        offset=offset,
    )


def _stays_inside(builder: Builder, axis: WindowAxis) -> bool:
    return axis.pads[0] == 0 and builder.facts.prove_less_equal(axis.reach, axis.extent).yes


def _inside(
    builder: Builder, axes: Sequence[WindowAxis], at: int, rank: int, tap: Value
) -> Value | None:
    """Of which windows a tap along one axis is in the image, where it may not be."""
    axis = axes[at]
    if _stays_inside(builder, axis):
        return None
    of_windows = rank - len(axes) + at
    first = positions(builder, axis.size, of_windows, rank, neg(axis.pads[0]), axis.stride)
    distance = builder.scalar(axis.dilation, DType.INT64)
    place = builder.add(first, builder.mul(tap, distance))
    least, most = builder.scalar(0, DType.INT64), dim_value(builder, axis.extent)
    return builder.bitwise_and(builder.ge(place, least), builder.lt(place, most))


def _index(
    builder: Builder, x: Value, axes: Sequence[WindowAxis], number: Value, by_columns: bool
) -> Value:
    """Where the tap of a number lies in `x`; of each plane the columns one after the other, if `by_columns`."""
    batch, channels, *spatial = shape_of(x)
    number = builder.cast(number, DType.INT64)
    steps = _steps(spatial, by_columns)
    planes = builder.iota((mul(batch, channels),), 0, 0, product(spatial))
    index = builder.reshape(planes, (batch, channels, *(1,) * len(axes)))
    below = math.prod(axis.kernel for axis in axes)
    for at, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        below //= axis.kernel
        tap = builder.mod(
            builder.div(number, builder.scalar(below, DType.INT64)),
            builder.scalar(axis.kernel, DType.INT64),
        )
        tap = builder.mul(tap, dim_value(builder, mul(axis.dilation, step)))
        start, stride = neg(mul(axis.pads[0], step)), mul(axis.stride, step)
        first = positions(builder, axis.size, 2 + at, x.rank, start, stride)
        index = builder.add(index, builder.add(first, tap))
    return index


def _steps(spatial: Sequence[Dim], by_columns: bool) -> list[Dim]:
    """How far neighbours along each axis lie apart."""
    ahead = [spatial[:at] if by_columns else spatial[at + 1 :] for at in range(len(spatial))]
    return [product(dims) for dims in ahead]


@decomposition("AveragePool")
def average_pool(builder: Builder, node: Node, operands: Operands) -> Results:
    # onnxruntime counts the taps beyond the padded image, too, where that is the smaller one.
    beyond = node.version < 19 and not node.attrs.get("ceil_mode", 0)
    return averaged(builder, node, required(node, operands, 0), beyond)


def averaged(builder: Builder, node: Node, x: Value, beyond: bool) -> Results:
    """The means of windows. With pads, those that lie `beyond` the padded image count as well, or do not."""
    axes = _axes(node, x)
    if axes is None or not x.dtype.is_float:
        return None
    planes = by_planes(x)
    total = pooled(builder, builder.pool_sum, images(builder, widened(builder, x), planes), axes)
    padded = bool(node.attrs.get("count_include_pad", 0))
    if padded and beyond:
        count = builder.scalar(math.prod(axis.kernel for axis in axes), total.dtype)
    else:
        count = taps_of(builder, axes, padded, total.dtype)
    y = builder.div(total, count)
    return [from_images(builder, builder.cast(y, x.dtype), x, planes)]


def taps_of(builder: Builder, axes: Sequence[WindowAxis], padded: bool, dtype: DType) -> Value:
    """How many taps of each window count: those inside the image, or inside the padded image; it broadcasts with [positions..., channels]."""
    counts = (
        _counts(builder, axis, at, len(axes) + 1, padded, dtype) for at, axis in enumerate(axes)
    )
    return reduce(builder.mul, counts)


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
    first = positions(builder, axis.size, at, rank, neg(axis.pads[0]), axis.stride)
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
    planes = by_planes(x)
    powers = images(builder, _powers(builder, x, p), planes)
    y = _power(builder, pooled(builder, builder.pool_sum, powers, axes), 1 / p)
    return [from_images(builder, builder.cast(y, x.dtype), x, planes)]


@decomposition("GlobalLpPool")
def global_lp_pool(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    if not x.dtype.is_float:
        return None
    p = float(node.attrs.get("p", 2))
    total = builder.reduce_sum(_powers(builder, x, p), range(2, x.rank))
    return [builder.cast(_power(builder, total, 1 / p), x.dtype)]


def _powers(builder: Builder, x: Value, p: float) -> Value:
    return _power(builder, builder.abs(widened(builder, x)), p)


def _power(builder: Builder, x: Value, exponent: float) -> Value:
    if exponent == 0.5:
        return builder.sqrt(x)
    return x if exponent == 1 else builder.pow(x, builder.scalar(exponent, x.dtype))
