"""Images read at points that the run computes: GridSample, RoiAlign; and AffineGrid, which makes such points.

An element is a row of channels, so images are read channels-last: a gather from the rows of all images, by positions
of points that all channels share. What does not depend on channels is computed once for each point.

Positions are computed in the type of the points, operation by operation as the vendor library computes them, since
what is nearest may hang on the last bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from dvm_graph.decompose.arithmetic import (
    dim_value,
    positions,
    scaled,
    shifted,
    widened,
    with_axis,
)
from dvm_graph.decompose.indexing import unsigned_index
from dvm_graph.decompose.operands import required, shape_of, text
from dvm_graph.decompose.registry import MICROSOFT, Operands, Results, decomposition
from dvm_graph.decompose.resizing import cubic_shares
from dvm_graph.decompose.slicing import part
from dvm_graph.decompose.windows import channels_first, channels_last
from dvm_graph.ir import Dim, DType, Node, Value
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import add, product
from dvm_graph.symbolic.facts import Relation

_MODES = {
    "nearest": "nearest",
    "linear": "linear",
    "bilinear": "linear",
    "cubic": "cubic",
    "bicubic": "cubic",
}
"""By the names of opset 16, too."""
_PADDINGS = ("zeros", "border", "reflection")
_SLOPE = -0.75
"""Of cubic interpolation."""
_FARTHEST = 2.0**62
"""Of the numbers of elements that are counted."""


@dataclass(frozen=True, slots=True)
class _Tap:
    """What points read along one axis, all or those that differ by it."""

    index: Value
    """Within the axis."""
    share: Value | None = None
    """None: all of it."""
    inside: Value | None = None
    """Where it lies in the image, and is not 0; None: everywhere."""


@decomposition("GridSample")
@decomposition("GridSample", domain=MICROSOFT)
def grid_sample(builder: Builder, node: Node, operands: Operands) -> Results:
    x, grid = required(node, operands, 0), required(node, operands, 1)
    mode = _MODES.get(text(node, "mode", "linear"))
    padding = text(node, "padding_mode", "zeros")
    count = x.rank - 2
    if mode is None or padding not in _PADDINGS or count not in (2, 3) or grid.rank != x.rank:
        return None
    if not x.dtype.is_float or (mode == "cubic" and count != 2):
        return None
    images, *points, places = shape_of(grid)
    _expect(builder, node, images, shape_of(x)[0])
    _expect(builder, node, places, count)
    corners = bool(node.attrs.get("align_corners", 0))
    flat = builder.reshape(widened(builder, grid), (images, product(points), places))
    taps = []
    for at, extent in enumerate(shape_of(x)[2:]):
        line = part(builder, flat, 2, count - 1 - at, 1)  # the last axis comes first
        line = builder.reshape(line, shape_of(flat)[:2])
        place = _place(builder, line, extent, corners)
        taps.append(
            [
                _tap(builder, number, share, extent, padding, corners)
                for number, share in _SAMPLINGS[mode](builder, place)
            ]
        )
    start = builder.iota((images, 1), 0, 0, product(shape_of(x)[2:]))
    y = _read(builder, widened(builder, x), start, taps, builder.add)
    y = builder.reshape(builder.cast(y, x.dtype), (images, *points, shape_of(x)[1]))
    return [channels_first(builder, y, x.rank)]


def _expect(builder: Builder, node: Node, dim: Dim, wanted: Dim) -> None:
    if not builder.facts.same(dim, wanted):
        reason = f"the points of {node.op} {node.name!r} are not those of its images"
        builder.facts.expect(dim, Relation.EQUAL, wanted, lambda: reason)


def _place(builder: Builder, x: Value, extent: Dim, corners: bool) -> Value:
    """Where along an axis a point from -1 to 1 lies: between the centres of its ends, or between their outer edges.

    What lies too far away to be counted, and NaN, is at the first end, as in onnxruntime.
    """
    from_zero = shifted(builder, x, 1.0)
    if corners:
        place = builder.mul(scaled(builder, from_zero, 0.5), _last(builder, extent, x.dtype))
    else:
        whole = builder.mul(from_zero, dim_value(builder, extent, x.dtype))
        place = scaled(builder, shifted(builder, whole, -1.0), 0.5)
    counted = builder.le(builder.abs(place), builder.scalar(_FARTHEST, x.dtype))
    return builder.select(counted, place, builder.scalar(-_edge(corners), x.dtype))


def _edge(corners: bool) -> float:
    """How far the ends of an axis lie outside of the centres of its last elements."""
    return 0.0 if corners else 0.5


def _last(builder: Builder, extent: Dim, dtype: DType) -> Value:
    return dim_value(builder, add(extent, -1), dtype)


def _tap(
    builder: Builder,
    number: Value,
    share: Value | None,
    extent: Dim,
    padding: str,
    corners: bool,
) -> _Tap:
    """The element of a number, which may lie outside of its axis."""
    if padding == "reflection":
        number = _reflected(builder, number, extent, corners)
    index = builder.cast(number, DType.INT64)
    zero, last = builder.scalar(0, DType.INT64), _last(builder, extent, DType.INT64)
    nearest = builder.min(builder.max(index, zero), last)
    inside = builder.eq(index, nearest) if padding == "zeros" else None
    return _Tap(nearest, share, inside)


def _nearest(builder: Builder, place: Value) -> list[tuple[Value, None]]:
    return [(builder.round(place), None)]


def _linear(builder: Builder, place: Value) -> list[tuple[Value, Value]]:
    """The share of each is how far the other one is."""
    below = builder.floor(place)
    above = shifted(builder, below, 1.0)
    return [(below, builder.sub(above, place)), (above, builder.sub(place, below))]


def _cubic(builder: Builder, place: Value) -> list[tuple[Value, Value]]:
    below = builder.floor(place)
    shares = cubic_shares(builder, builder.sub(place, below), _SLOPE)
    return [
        (shifted(builder, below, float(step)), share) for step, share in enumerate(shares, start=-1)
    ]


_SAMPLINGS: Mapping[str, Callable[[Builder, Value], Sequence[tuple[Value, Value | None]]]] = {
    "nearest": _nearest,
    "linear": _linear,
    "cubic": _cubic,
}
"""Numbers of elements, which may lie outside of the axis, and their shares."""


def _reflected(builder: Builder, x: Value, extent: Dim, corners: bool) -> Value:
    """Thrown back by the ends of an axis, as often as it takes."""
    edge = _edge(corners)
    low = builder.scalar(-edge, x.dtype)
    high = shifted(builder, _last(builder, extent, x.dtype), edge)
    room = builder.sub(high, low)
    before, behind = builder.lt(x, low), builder.gt(x, high)
    beyond = builder.select(before, builder.sub(low, x), builder.sub(x, high))
    turns = builder.trunc(builder.div(beyond, room))
    rest = builder.sub(beyond, builder.mul(turns, room))
    odd = builder.ne(builder.fmod(turns, builder.scalar(2, x.dtype)), builder.scalar(0, x.dtype))
    from_low = builder.bitwise_xor(before, odd)
    thrown = builder.select(from_low, builder.add(low, rest), builder.sub(high, rest))
    return builder.select(builder.bitwise_or(before, behind), thrown, x)


@decomposition("AffineGrid")
def affine_grid(builder: Builder, node: Node, operands: Operands) -> Results:
    """Element by element, which fuses with what makes the matrices; coordinates of the last axis come first."""
    theta, size = required(node, operands, 0), required(node, operands, 1)
    if theta.rank != 3 or size.elements is None or not theta.dtype.is_float:
        return None
    images, _, *spatial = size.elements
    count = len(spatial)
    _expect(builder, node, shape_of(theta)[0], images)
    corners = bool(node.attrs.get("align_corners", 0))
    wide = widened(builder, theta)

    def column(at: int) -> Value:
        return builder.reshape(part(builder, wide, 2, at, 1), (images, *(1,) * count, count))

    grid = column(count)
    for at, extent in enumerate(spatial):
        line = positions(builder, extent, at + 1, count + 2)
        places = _spread(builder, builder.cast(line, wide.dtype), extent, corners)
        grid = builder.add(grid, builder.mul(places, column(count - 1 - at)))
    shape = (images, *spatial, count)
    return [builder.cast(builder.broadcast_to(grid, shape), theta.dtype)]


def _spread(builder: Builder, number: Value, extent: Dim, corners: bool) -> Value:
    """Elements of an axis from -1 to 1: at the centres of its ends, a single one at the last, or within their outer edges."""
    twice = scaled(builder, number, 2.0)
    last = _last(builder, extent, number.dtype)
    if not corners:
        whole = dim_value(builder, extent, number.dtype)
        return builder.div(builder.sub(twice, last), whole)
    one = builder.scalar(1, number.dtype)
    single = builder.eq(last, builder.scalar(0, number.dtype))
    steps = builder.select(single, one, last)
    return builder.select(single, one, builder.sub(builder.div(twice, steps), one))


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
    _expect(builder, node, shape_of(batch)[0], count)
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
    if mode == "avg":
        y = _read(builder, widened(builder, x), start, taps, builder.add)
        y = scaled(builder, builder.reduce_sum(y, within), 1 / ratio**2)
    else:
        y = _read(builder, widened(builder, x), start, taps, builder.max)
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


def _near(builder: Builder, place: Value, extent: Dim) -> list[_Tap]:
    """The elements before and behind a place, which have no share where it lies more than 1 outside of the axis."""
    zero, one = builder.scalar(0, place.dtype), builder.scalar(1, place.dtype)
    last = _last(builder, extent, place.dtype)
    within = builder.bitwise_and(
        builder.ge(place, builder.neg(one)), builder.le(place, builder.add(last, one))
    )
    place = builder.select(within, builder.min(builder.max(place, zero), last), zero)
    below = builder.floor(place)
    above = builder.min(builder.add(below, one), last)
    past = builder.sub(place, below)
    shares = (builder.sub(one, past), past)
    return [
        _Tap(builder.cast(number, DType.INT64), builder.select(within, share, zero))
        for number, share in zip((below, above), shares, strict=True)
    ]


def _read(
    builder: Builder,
    x: Value,
    start: Value,
    taps: Sequence[Sequence[_Tap]],
    joined: Callable[[Value, Value], Value],
) -> Value:
    """[points, channels]: what points read, joined.

    Images of points start at a row of all images; taps are axis by axis.
    """
    batch, channels, *spatial = shape_of(x)
    rows = builder.reshape(channels_last(builder, x), (product((batch, *spatial)), channels))
    steps = [dim_value(builder, product(spatial[at + 1 :])) for at in range(len(spatial))]
    offsets = [
        {tap: builder.mul(tap.index, step) for tap in axis}
        for axis, step in zip(taps, steps, strict=True)
    ]
    parts = []
    for chosen in itertools.product(*taps):
        along = (offsets[at][tap] for at, tap in enumerate(chosen))
        value = builder.gather(rows, reduce(builder.add, along, start), 0)
        inside = [tap.inside for tap in chosen if tap.inside is not None]
        if inside:
            within = _for_channels(builder, reduce(builder.bitwise_and, inside))
            value = builder.select(within, value, builder.scalar(0, x.dtype))
        shares = [tap.share for tap in chosen if tap.share is not None]
        if shares:
            share = builder.cast(reduce(builder.mul, shares), x.dtype)
            value = builder.mul(value, _for_channels(builder, share))
        parts.append(value)
    return reduce(joined, parts)


def _for_channels(builder: Builder, x: Value) -> Value:
    return with_axis(builder, x, x.rank)
