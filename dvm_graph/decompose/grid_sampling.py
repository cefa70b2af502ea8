"""GridSample, and AffineGrid, which makes its points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dvm_graph.decompose.arithmetic import dim_value, positions, scaled, shifted, widened
from dvm_graph.decompose.families import MICROSOFT
from dvm_graph.decompose.image_points import (
    Tap,
    assume_points,
    last_of,
    linear,
    read_points,
    rows_of,
    tap_at,
)
from dvm_graph.decompose.operands import required, text
from dvm_graph.decompose.registry import Operands, Results, decomposition, unless
from dvm_graph.decompose.resizing import cubic_shares
from dvm_graph.decompose.slicing import part
from dvm_graph.decompose.windows import channels_first
from dvm_graph.ir import Dim, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import product

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
"""Of the positions that are counted."""
_CUBIC_FROM = 16
"""Channels from which on cubic samples cost no more than onnxruntime's, which computes sixteen positions and shares for each
point as it goes; here they are stored between kernels, which many channels outweigh (`python -m benchmarks.units.alone`).
"""


def _is_narrow_cubic(node: Node, operands: Operands) -> bool:
    channels = shape_of(required(node, operands, 0))[1:2]
    cubic = _MODES.get(text(node, "mode", "linear")) == "cubic"
    return cubic and all(isinstance(extent, int) and extent < _CUBIC_FROM for extent in channels)


@decomposition("GridSample")
@decomposition("GridSample", domain=MICROSOFT)
@unless(_is_narrow_cubic)
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
    assume_points(builder, node, images, shape_of(x)[0])
    assume_points(builder, node, places, count)
    corners = bool(node.attrs.get("align_corners", 0))
    flat = builder.reshape(widened(builder, grid), (images, product(points), places))
    taps = []
    for at, extent in enumerate(shape_of(x)[2:]):
        line = part(builder, flat, 2, count - 1 - at, 1)  # the last axis comes first
        line = builder.reshape(line, shape_of(flat)[:2])
        place = _place(builder, line, extent, corners)
        taps.append(
            [
                _tap(builder, position, share, extent, padding, corners)
                for position, share in _SAMPLINGS[mode](builder, place)
            ]
        )
    start = builder.iota((images, 1), 0, 0, product(shape_of(x)[2:]))
    y = read_points(builder, rows_of(builder, x), start, taps, builder.add)
    y = builder.reshape(builder.cast(y, x.dtype), (images, *points, shape_of(x)[1]))
    return [channels_first(builder, y, x.rank)]


def _place(builder: Builder, x: Value, extent: Dim, corners: bool) -> Value:
    """Where along an axis a point from -1 to 1 lies: between the centres of its ends, or between their outer edges.

    What lies too far away to be counted, and NaN, is at the first end, as in onnxruntime.
    """
    from_zero = shifted(builder, x, 1.0)
    if corners:
        place = builder.mul(scaled(builder, from_zero, 0.5), last_of(builder, extent, x.dtype))
    else:
        whole = builder.mul(from_zero, dim_value(builder, extent, x.dtype))
        place = scaled(builder, shifted(builder, whole, -1.0), 0.5)
    counted = builder.le(builder.abs(place), builder.scalar(_FARTHEST, x.dtype))
    return builder.select(counted, place, builder.scalar(-_edge(corners), x.dtype))


def _edge(corners: bool) -> float:
    """How far the ends of an axis lie outside of the centres of its last elements."""
    return 0.0 if corners else 0.5


def _tap(
    builder: Builder,
    position: Value,
    share: Value | None,
    extent: Dim,
    padding: str,
    corners: bool,
) -> Tap:
    if padding == "reflection":
        position = _reflected(builder, position, extent, corners)
    return tap_at(builder, position, share, extent, padding == "zeros")


def _nearest(builder: Builder, place: Value) -> list[tuple[Value, None]]:
    return [(builder.round(place), None)]


def _cubic(builder: Builder, place: Value) -> list[tuple[Value, Value]]:
    below = builder.floor(place)
    shares = cubic_shares(builder, builder.sub(place, below), _SLOPE)
    return [
        (shifted(builder, below, float(step)), share) for step, share in enumerate(shares, start=-1)
    ]


_SAMPLINGS: Mapping[str, Callable[[Builder, Value], Sequence[tuple[Value, Value | None]]]] = {
    "nearest": _nearest,
    "linear": linear,
    "cubic": _cubic,
}
"""Positions of elements, which may lie outside of the axis, and their shares."""


def _reflected(builder: Builder, x: Value, extent: Dim, corners: bool) -> Value:
    """Thrown back by the ends of an axis, as often as it takes."""
    edge = _edge(corners)
    low = builder.scalar(-edge, x.dtype)
    high = shifted(builder, last_of(builder, extent, x.dtype), edge)
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
    for extent, known in zip(shape_of(theta), (images, count, count + 1), strict=True):
        assume_points(builder, node, extent, known)
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
    last = last_of(builder, extent, number.dtype)
    if not corners:
        whole = dim_value(builder, extent, number.dtype)
        return builder.div(builder.sub(twice, last), whole)
    one = builder.scalar(1, number.dtype)
    single = builder.eq(last, builder.scalar(0, number.dtype))
    steps = builder.select(single, one, last)
    return builder.select(single, one, builder.sub(builder.div(twice, steps), one))
