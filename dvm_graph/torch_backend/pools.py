"""Pools of torch, forward and backward: of images [batch, channels, (depth,) height, width], which may come without a batch.

Backward nothing is scattered. As in a transposed convolution (`decompose/transposed_convolution.py`), the places of an image are of
phases, and those of one phase have the same taps: each sums what these windows give it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch

from dvm_graph.decompose.arithmetic import dim_value, positions, widened
from dvm_graph.decompose.pooling import taps_of
from dvm_graph.decompose.slicing import padded, part
from dvm_graph.decompose.transposed_convolution import (
    Phases,
    SpreadAxis,
    interleaved,
    spread_axis,
)
from dvm_graph.decompose.windows import WindowAxis, channels_first, channels_last
from dvm_graph.ir import DType, Value, shape_of
from dvm_graph.symbolic import Builder, Dim, add, sub
from dvm_graph.symbolic.dims import mul, neg
from dvm_graph.torch_backend.translation import Translation, entry
from dvm_graph.torch_backend.windows import each, window_axes

aten = torch.ops.aten

_PLANE, _SPACE = (0, 0), (0, 0, 0)
"""As many as an image has spatial axes."""
_OF_SPACES = (
    *(aten.max_pool3d_with_indices.default, aten.max_pool3d_with_indices_backward.default),
    *(aten.avg_pool3d.default, aten.avg_pool3d_backward.default),
)


@entry(aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default)
def _max_pool(
    t: Translation,
    x: Value,
    kernel: Sequence[int],
    strides: Sequence[int] = (),
    pads: Sequence[int] = (0,),
    dilations: Sequence[int] = (1,),
    ceil: bool = False,
) -> list[Value]:
    """The greatest element of each window, and where it lies in its plane or space."""
    dilated: dict[str, Any] = {"dilations": each(dilations, _spatial(t))}
    greatest = _pool(t, "MaxPool", x, kernel, strides, pads, ceil, **dilated)
    image = _channels_last(t, x)
    axes = _axes(t, x, kernel, strides, pads, dilations, t.shape)
    return [greatest, _channels_first(t, _places(t.decomposer, image, axes))]


def _places(b: Builder, image: Value, axes: Sequence[WindowAxis]) -> Value:
    """Of equal elements the first, of several NaNs the last, as torch finds them: going from tap to tap of
    [batch, places..., channels].
    """
    least = -math.inf if image.dtype.is_float else int(np.iinfo(image.dtype.numpy).min)
    greatest = b.scalar(least, image.dtype)
    for at, axis in enumerate(axes):
        image = padded(b, image, 1 + at, axis.pads[0], axis.lacking, greatest)
    number = _first_tap(b, axes)
    for tap, numbers in enumerate(np.ndindex(*(axis.kernel for axis in axes))):
        found = image
        for at, (own, axis) in enumerate(zip(numbers, axes, strict=True)):
            found = part(b, found, 1 + at, own * axis.dilation, axis.size, axis.stride)
        better = b.gt(found, greatest)
        if image.dtype.is_float:
            better = b.bitwise_or(better, b.isnan(found))
        greatest = b.select(better, found, greatest)
        number = b.select(better, b.scalar(tap, DType.INT32), number)
    return _place_of(b, number, axes)


def _first_tap(b: Builder, axes: Sequence[WindowAxis]) -> Value:
    """The number of the first one of each window that is in the image."""
    number = None
    for at, axis in enumerate(axes):
        begin = add(axis.pads[0], axis.dilation - 1)
        before = positions(b, axis.size, 1 + at, 2 + len(axes), begin, -axis.stride)
        before = b.max(before, b.scalar(0, DType.INT64))
        first = b.cast(b.div(before, b.scalar(axis.dilation, DType.INT64)), DType.INT32)
        if number is not None:
            first = b.add(b.mul(number, b.scalar(axis.kernel, DType.INT32)), first)
        number = first
    assert number is not None
    return number


def _place_of(b: Builder, number: Value, axes: Sequence[WindowAxis]) -> Value:
    """Where in the plane or space the tap of a number is."""
    number = b.cast(number, DType.INT64)
    place = number
    for at, axis in enumerate(axes):
        later = math.prod(axis.kernel for axis in axes[at + 1 :])
        step = reduce(mul, (axis.extent for axis in axes[at + 1 :]), 1)
        tap = b.div(number, b.scalar(later, DType.INT64)) if later > 1 else number
        tap = b.mod(tap, b.scalar(axis.kernel, DType.INT64)) if at else tap
        begin, apart = neg(mul(axis.pads[0], step)), mul(axis.stride, step)
        start = positions(b, axis.size, 1 + at, 2 + len(axes), begin, apart)
        along = b.add(start, b.mul(tap, dim_value(b, mul(axis.dilation, step))))
        place = b.add(place, along) if at else along
    return place


@entry(aten.max_pool2d_with_indices_backward.default, aten.max_pool3d_with_indices_backward.default)
def _max_pool_backward(
    t: Translation,
    gradient: Value,
    x: Value,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    _ceil: bool,
    places: Value,
) -> Value:
    b = t.decomposer
    wide, numbers = widened(b, _channels_last(t, gradient)), _channels_last(t, places)
    axes = _spread_axes(t, x, gradient, kernel, strides, pads, dilations)
    nothing = b.scalar(0, wide.dtype)

    def along(at: int, phase: int) -> Value:
        axis, step = axes[at], reduce(mul, (axis.size for axis in axes[at + 1 :]), 1)
        begin, apart = mul(sub(phase, axis.crop), step), mul(axis.stride, step)
        return positions(b, axis.positions, 1 + at, 2 + len(axes), begin, apart)

    def given(taps: Sequence[Value], phases: Sequence[int]) -> Value:
        place = reduce(b.add, (along(at, phase) for at, phase in enumerate(phases)))
        return b.select(b.eq(taps[1], place), taps[0], nothing)

    return _given_back(t, (wide, numbers), axes, given)


@entry(aten.avg_pool2d.default, aten.avg_pool3d.default)
def _average_pool(
    t: Translation,
    x: Value,
    kernel: Sequence[int],
    strides: Sequence[int] = (),
    pads: Sequence[int] = (0,),
    ceil: bool = False,
    count_pads: bool = True,
    divisor: int | None = None,
) -> Value:
    counted: dict[str, Any] = {"count_include_pad": int(count_pads or divisor is not None)}
    average = _pool(t, "AveragePool", x, kernel, strides, pads, ceil, **counted)
    if divisor is None:
        return average
    # What was averaged are the taps in the padded image: fewer at its end where sizes are rounded up.
    b, windows = t.decomposer, _axes(t, x, kernel, strides, pads, (1,), t.shape)
    taps = taps_of(b, windows, True, average.dtype)
    factor = b.div(taps, b.scalar(divisor, average.dtype))
    return _channels_first(t, b.mul(_channels_last(t, average), factor))


@entry(aten.avg_pool2d_backward.default, aten.avg_pool3d_backward.default)
def _average_pool_backward(
    t: Translation,
    gradient: Value,
    x: Value,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    _ceil: bool,
    count_pads: bool,
    divisor: int | None,
) -> Value:
    b = t.decomposer
    wide = widened(b, _channels_last(t, gradient))
    if divisor is None:
        windows = _axes(t, x, kernel, strides, pads, (1,), shape_of(gradient))
        count = taps_of(b, windows, bool(count_pads), wide.dtype)
    else:
        count = b.scalar(divisor, wide.dtype)
    axes = _spread_axes(t, x, gradient, kernel, strides, pads, (1,))
    return _given_back(t, (b.div(wide, count),), axes, lambda taps, _: taps[0])


def _given_back(
    t: Translation,
    sources: Sequence[Value],
    axes: Sequence[SpreadAxis],
    given: Callable[[Sequence[Value], Sequence[int]], Value],
) -> Value:
    """What windows give back to the places that they read. `given`: by a window to places of a phase of each axis, of what `sources`
    [batch, positions..., channels] have for it.
    """
    b = t.decomposer
    batch, *_, channels = shape_of(sources[0])
    positions = [axis.positions for axis in axes]

    def block(phases: Sequence[Phases]) -> Value:
        windows = [axis.window(phase) for axis, phase in zip(axes, phases, strict=True)]
        around = []
        for source in sources:
            outside = b.scalar(0 if source.dtype.is_float else -1, source.dtype)
            for at, window in enumerate(windows):
                source = padded(b, source, 1 + at, *window.pads, outside)
            around.append(source)
        total = b.broadcast_to(b.scalar(0, sources[0].dtype), (batch, *positions, channels))
        own = [axis.phases.index(phase) for axis, phase in zip(axes, phases, strict=True)]
        for taps in np.ndindex(*(window.kernel for window in windows)):
            found = around
            for at, (tap, window) in enumerate(zip(taps, windows, strict=True)):
                found = [part(b, one, 1 + at, tap * window.dilation, window.size) for one in found]
            total = b.add(total, given(found, own))
        places = [dim for position in positions for dim in (position, 1)]
        return b.reshape(total, (batch, *places, channels))

    y = interleaved(b, axes, (batch, channels), block)
    return b.cast(_channels_first(t, y), t.dtype)


def _axes(
    t: Translation,
    x: Value,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    pooled: Sequence[Dim],
) -> list[WindowAxis]:
    """Of windows over an image, in the positions of a shape."""
    spatial = _spatial(t)
    count, kernel = len(spatial), each(kernel, spatial)
    extents, sizes = shape_of(x)[-count:], pooled[-count:]
    return window_axes(extents, kernel, strides or kernel, pads, dilations, sizes)


def _spread_axes(
    t: Translation,
    x: Value,
    gradient: Value,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
) -> list[SpreadAxis]:
    windows = _axes(t, x, kernel, strides, pads, dilations, shape_of(gradient))
    return [
        spread_axis(w.size, w.kernel, w.stride, w.dilation, w.pads[0], w.extent, apart=True)
        for w in windows
    ]


def _spatial(t: Translation) -> Sequence[int]:
    return _SPACE if t.target in _OF_SPACES else _PLANE


def _channels_last(t: Translation, x: Value) -> Value:
    return channels_last(t.decomposer, _batched(t, x))


def _channels_first(t: Translation, y: Value) -> Value:
    return t.decomposer.reshape(channels_first(t.decomposer, y, y.rank), t.shape)


def _batched(t: Translation, x: Value) -> Value:
    """An image that torch may give without a batch."""
    batched = x.rank == len(_spatial(t)) + 2
    return x if batched else t.decomposer.reshape(x, (1, *shape_of(x)))


def _pool(
    t: Translation,
    op: str,
    x: Value,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    ceil: bool,
    **attrs: Any,
) -> Value:
    """A pool of ONNX over images."""
    kernel = each(kernel, _spatial(t))
    result = t.onnx(
        op,
        _batched(t, x),
        kernel_shape=kernel,
        strides=each(strides or kernel, kernel),
        pads=2 * each(pads, kernel),
        ceil_mode=int(ceil),
        **attrs,
    )
    return t.decomposer.reshape(result, t.shape)
