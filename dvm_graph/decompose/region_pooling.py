"""RoiAlign: regions of images, pooled to images of one size."""

from __future__ import annotations

import numpy as np

from dvm_graph.decompose.arithmetic import dim_value, scaled, shifted, widened
from dvm_graph.decompose.image_points import Tap, expect_points, last_of, read_points, rows_of
from dvm_graph.decompose.indexing import unsigned_index
from dvm_graph.decompose.operands import required, shape_of, text
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.decompose.slicing import part
from dvm_graph.decompose.windows import channels_first
from dvm_graph.ir import Dim, DType, Node, Value
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
    count = shape_of(regions)[0]
    expect_points(builder, node, shape_of(batch)[0], count)
    sizes = [int(node.attrs.get(f"output_{name}", 1)) for name in ("height", "width")]
    scale = float(np.float32(node.attrs.get("spatial_scale", 1.0)))
    corners = scaled(builder, widened(builder, regions), scale)
    if transform == "half_pixel":
        corners = shifted(builder, corners, -0.5)
    taps = []
    for at, (size, extent) in enumerate(zip(sizes, shape_of(x)[2:], strict=True)):
        low, high = (
            builder.reshape(part(builder, corners, 1, corner, 1), (count, 1, 1))
            for corner in (1 - at, 3 - at)
        )
        length = builder.sub(high, low)
        if transform != "half_pixel":
            length = builder.max(length, builder.scalar(1, length.dtype))
        places = _samples(builder, low, length, size, ratio)
        shape = (count, size, ratio, 1, 1) if at == 0 else (count, 1, 1, size, ratio)
        taps.append(_near(builder, builder.reshape(places, shape), extent))
    images, channels, *spatial = shape_of(x)
    numbers = unsigned_index(builder, builder.cast(batch, DType.INT64), images)
    start = builder.mul(numbers, dim_value(builder, product(spatial)))
    start = builder.reshape(start, (count, 1, 1, 1, 1))
    within = (2, 4)
    rows = rows_of(builder, x)
    if mode == "avg":
        y = read_points(builder, rows, start, taps, builder.add)
        y = scaled(builder, builder.reduce_sum(y, within), 1 / ratio**2)
    else:
        y = read_points(builder, rows, start, taps, builder.max)
        y = builder.reduce_max(y, within)
    y = builder.reshape(builder.cast(y, x.dtype), (count, *sizes, channels))
    return [channels_first(builder, y, x.rank)]


def _samples(builder: Builder, low: Value, length: Value, size: int, ratio: int) -> Value:
    """Where along an axis the samples of the bins of regions lie, as [regions, bins, samples]."""
    number = builder.cast(builder.iota((1, size, 1), 1, 0, 1), low.dtype)
    within = shifted(builder, builder.cast(builder.iota((1, 1, ratio), 2, 0, 1), low.dtype), 0.5)
    each = builder.div(length, builder.scalar(size, low.dtype))
    first = builder.add(low, builder.mul(number, each))
    past = builder.div(builder.mul(within, each), builder.scalar(ratio, low.dtype))
    return builder.add(first, past)


def _near(builder: Builder, place: Value, extent: Dim) -> list[Tap]:
    """The elements before and behind a place, which have no share where it lies more than 1 outside of the axis."""
    zero, one = builder.scalar(0, place.dtype), builder.scalar(1, place.dtype)
    last = last_of(builder, extent, place.dtype)
    within = builder.bitwise_and(
        builder.ge(place, builder.neg(one)), builder.le(place, builder.add(last, one))
    )
    place = builder.select(within, builder.min(builder.max(place, zero), last), zero)
    below = builder.floor(place)
    above = builder.min(builder.add(below, one), last)
    past = builder.sub(place, below)
    shares = (builder.sub(one, past), past)
    return [
        Tap(builder.cast(number, DType.INT64), builder.select(within, share, zero))
        for number, share in zip((below, above), shares, strict=True)
    ]
