"""RoiAlign: regions of images, pooled to images of one size."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from dvm_graph.decompose.arithmetic import dim_value, scaled, shifted, widened
from dvm_graph.decompose.image_points import Tap, assume_points, last_of, read_points, rows_of
from dvm_graph.decompose.indexing import unsigned_index
from dvm_graph.decompose.operands import required, text
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.decompose.slicing import part
from dvm_graph.decompose.windows import channels_first
from dvm_graph.ir import Dim, DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import product


@decomposition("RoiAlign")
def roi_align(builder: Builder, node: Node, operands: Operands) -> Results:
    """Each region is divided into bins, whose results are the mean, or the greatest, of a few samples along each axis.

    How many there are is a constant; where sizes of regions tell it, onnxruntime runs the operator.
    """
    x, regions, batch = (required(node, operands, index) for index in range(3))
    ratio = int(node.attrs.get("sampling_ratio", 0))
    mode = text(node, "mode", "avg")
    default = "half_pixel" if node.version >= 16 else "output_half_pixel"
    transform = text(node, "coordinate_transformation_mode", default)
    known = mode in ("avg", "max") and transform in ("half_pixel", "output_half_pixel")
    if ratio < 1 or not known or x.rank != 4 or not x.dtype.is_float:
        return None
    count, ends = shape_of(regions)
    assume_points(builder, node, shape_of(batch)[0], count)
    assume_points(builder, node, ends, 4)
    sizes = [int(node.attrs.get(f"output_{name}", 1)) for name in ("height", "width")]
    scale = float(np.float32(node.attrs.get("spatial_scale", 1.0)))
    corners = scaled(builder, widened(builder, regions), scale)
    places = _places(builder, corners, sizes, ratio, transform == "half_pixel")
    extents = shape_of(x)[2:]
    near = [_near(builder, *pair) for pair in zip(places, extents, strict=True)]
    counted = reduce(builder.bitwise_and, near)
    taps = [_taps(builder, *pair, counted) for pair in zip(places, extents, strict=True)]
    images, channels, *spatial = shape_of(x)
    numbers = unsigned_index(builder, builder.cast(batch, DType.INT64), images)
    start = builder.mul(numbers, dim_value(builder, product(spatial)))
    start = builder.reshape(start, (count, 1, 1, 1, 1))
    within = (3, 4)
    rows = rows_of(builder, x)
    if mode == "avg":
        y = read_points(builder, rows, start, taps, builder.add)
        y = scaled(builder, builder.reduce_sum(y, within), 1 / ratio**2)
    else:
        y = read_points(builder, rows, start, taps, builder.max)
        y = builder.reduce_max(y, within)
    y = builder.reshape(builder.cast(y, x.dtype), (count, *sizes, channels))
    return [channels_first(builder, y, x.rank)]


def _places(
    builder: Builder, corners: Value, sizes: Sequence[int], ratio: int, half_pixel: bool
) -> list[Value]:
    """Where along each axis samples lie, as [regions, bins, bins, samples, samples] of both axes.

    Samples of a bin are neighbours, so that to join them is to reduce one axis.

    Regions are no shorter than an element, but for those of half pixels.
    """
    if half_pixel:
        corners = shifted(builder, corners, -0.5)
    count = shape_of(corners)[0]
    shapes = ((count, sizes[0], 1, ratio, 1), (count, 1, sizes[1], 1, ratio))
    places = []
    for at, (size, shape) in enumerate(zip(sizes, shapes, strict=True)):
        low, high = (
            builder.reshape(part(builder, corners, 1, corner, 1), (count, 1, 1))
            for corner in (1 - at, 3 - at)
        )
        length = builder.sub(high, low)
        if not half_pixel:
            length = builder.max(length, builder.scalar(1, length.dtype))
        places.append(builder.reshape(_samples(builder, low, length, size, ratio), shape))
    return places


def _samples(builder: Builder, low: Value, length: Value, size: int, ratio: int) -> Value:
    """Where along an axis the samples of the bins of regions lie, as [regions, bins, samples]."""
    number = builder.cast(builder.iota((1, size, 1), 1, 0, 1), low.dtype)
    within = shifted(builder, builder.cast(builder.iota((1, 1, ratio), 2, 0, 1), low.dtype), 0.5)
    each = builder.div(length, builder.scalar(size, low.dtype))
    first = builder.add(low, builder.mul(number, each))
    past = builder.div(builder.mul(within, each), builder.scalar(ratio, low.dtype))
    return builder.add(first, past)


def _near(builder: Builder, place: Value, extent: Dim) -> Value:
    """Whether a place lies in an axis, or at most 1 outside."""
    one = builder.scalar(1, place.dtype)
    end = builder.add(last_of(builder, extent, place.dtype), one)
    return builder.bitwise_and(builder.ge(place, builder.neg(one)), builder.le(place, end))


def _taps(builder: Builder, place: Value, extent: Dim, counted: Value) -> list[Tap]:
    """The elements before and behind a place. Samples that do not count have no share of the first element."""
    zero, one = builder.scalar(0, place.dtype), builder.scalar(1, place.dtype)
    last = last_of(builder, extent, place.dtype)
    place = builder.select(counted, builder.min(builder.max(place, zero), last), zero)
    below = builder.floor(place)
    past = builder.sub(place, below)
    above = builder.select(counted, builder.min(builder.add(below, one), last), zero)
    shares = (builder.sub(one, past), past)
    return [
        Tap(builder.cast(position, DType.INT64), builder.select(counted, share, zero))
        for position, share in zip((below, above), shares, strict=True)
    ]
