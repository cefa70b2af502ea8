"""Images read at points that the run computes.

In: images, and what points read along each axis: positions of elements, and their shares. Out: what they read of all
channels, joined.

An element is a row of channels, so images are read channels-last: a gather from the rows of all images, by positions
of points that all channels share. What does not depend on channels is computed once for each point.

Positions are computed in the type of the points, operation by operation as the vendor library computes them, since
what is nearest may hang on the last bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from dvm_graph.decompose.arithmetic import dim_value, shifted, widened, with_axis
from dvm_graph.decompose.windows import channels_last
from dvm_graph.ir import Dim, DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import add, floordiv, product


@dataclass(frozen=True, slots=True)
class Tap:
    """What points read along one axis, all or those that differ by it."""

    index: Value
    """Within the axis."""
    share: Value | None = None
    """None: all of it."""
    inside: Value | None = None
    """Where it lies in the image, and is not 0; None: everywhere."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The channels of each element of all images, by groups."""

    value: Value
    steps: tuple[Dim, ...]
    """How many rows lie between neighbours along each axis of an image."""


def rows_of(builder: Builder, x: Value, groups: int = 1) -> Rows:
    """Of images [batch, channels, ...]."""
    batch, channels, *spatial = shape_of(x)
    shape = (product((batch, *spatial, groups)), floordiv(channels, groups))
    value = builder.reshape(channels_last(builder, widened(builder, x)), shape)
    steps = (product((*spatial[at + 1 :], groups)) for at in range(len(spatial)))
    return Rows(value, tuple(steps))


def assume_points(builder: Builder, node: Node, dim: Dim, wanted: Dim) -> None:
    """There are points for each image, of as many places as it has axes."""
    builder.facts.assume_equal(dim, wanted, f"the points of {node.name} are those of its images")


def last_of(builder: Builder, extent: Dim, dtype: DType) -> Value:
    """The position of the last element of an axis."""
    return dim_value(builder, add(extent, -1), dtype)


def tap_at(builder: Builder, position: Value, share: Value | None, extent: Dim, zeros: bool) -> Tap:
    """What lies outside of the axis is 0, or the nearest element."""
    index = builder.cast(position, DType.INT64)
    zero, last = builder.scalar(0, DType.INT64), last_of(builder, extent, DType.INT64)
    nearest = builder.min(builder.max(index, zero), last)
    return Tap(nearest, share, builder.eq(index, nearest) if zeros else None)


def linear(builder: Builder, place: Value) -> list[tuple[Value, Value]]:
    """The positions before and behind a place, and their shares: how far the other one is."""
    below = builder.floor(place)
    above = shifted(builder, below, 1.0)
    return [(below, builder.sub(above, place)), (above, builder.sub(place, below))]


def read_points(
    builder: Builder,
    rows: Rows,
    start: Value,
    taps: Sequence[Sequence[Tap]],
    joined: Callable[[Value, Value], Value],
) -> Value:
    """[points, channels] of what points read, joined; their images start at rows, and taps are axis by axis."""
    offsets = [
        {tap: builder.mul(tap.index, dim_value(builder, step)) for tap in axis}
        for axis, step in zip(taps, rows.steps, strict=True)
    ]
    dtype, count = rows.value.dtype, shape_of(rows.value)[0]
    everywhere = all(tap.inside is None for axis in taps for tap in axis)
    table = rows.value if everywhere else _with_zeros(builder, rows.value)
    parts = []
    for chosen in itertools.product(*taps):
        along = (offsets[at][tap] for at, tap in enumerate(chosen))
        index = reduce(builder.add, along, start)
        inside = [tap.inside for tap in chosen if tap.inside is not None]
        if inside:
            within = reduce(builder.bitwise_and, inside)
            index = builder.select(within, index, dim_value(builder, count, index.dtype))
        value = builder.gather(table, index, 0)
        shares = [tap.share for tap in chosen if tap.share is not None]
        if shares:
            share = builder.cast(reduce(builder.mul, shares), dtype)
            value = builder.mul(value, _for_channels(builder, share))
        parts.append(value)
    return reduce(joined, parts)


def _with_zeros(builder: Builder, rows: Value) -> Value:
    """Behind the others, a row for what lies outside of images: there it is chosen once for all channels."""
    zeros = builder.broadcast_to(builder.scalar(0, rows.dtype), (1, *shape_of(rows)[1:]))
    return builder.concat([rows, zeros], 0)


def _for_channels(builder: Builder, x: Value) -> Value:
    return with_axis(builder, x, x.rank)
