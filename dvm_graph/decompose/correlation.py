"""Correlations of images: sums over all positions of a window of what each of its taps reads by what lies at the position.

Such are the gradients of the weights of convolutions. They are matrix products whose k counts positions, of all images. That these are one
axis though a window leaves out what is between rows, both sides are laid out in rows of one *period*, which ends in as many
zeros as windows reach over the border of the image: position and place then are a constant apart for each tap, in the pads, too, and so the
taps are views of one matrix. With a stride s each of the s phases of rows is such a matrix; along the last axis positions are s places
apart, and neighbouring taps read more columns of it. What is not finite meets the zeros: sums of a channel that has such elements are not
finite either, nor are those of taps that do not reach them.

Where a group has one channel, or one result, there is no product of matrices in it: each tap is a sum of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from dvm_graph.decompose.slicing import padded, part
from dvm_graph.decompose.windows import WindowAxis
from dvm_graph.ir import Dim, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import add, ceildiv, maximum, mul, product, sub


def correlation(
    builder: Builder, image: Value, factors: Value, axes: Sequence[WindowAxis], groups: int
) -> Value:
    """[results, channels of a group, kernel...] of `image` [batch, places..., channels] and `factors`
    [batch, positions..., results].
    """
    channels, results = (int(shape_of(value)[-1]) // groups for value in (image, factors))
    if groups > 1 and 1 in (channels, results):
        return _tap_by_tap(builder, image, factors, axes, groups)
    return _by_products(builder, image, factors, axes, groups)


# -- products


@dataclass(frozen=True, slots=True)
class _Phase:
    """Taps that read places of one phase."""

    number: int
    taps: tuple[int, ...]
    first: int
    """How far what the first of them reads is behind the position, in places of the phase."""
    step: int
    """Of the places from tap to tap."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """How positions and places along one axis are laid out."""

    axis: WindowAxis
    phases: tuple[_Phase, ...]
    stride: int
    """Places of a phase from position to position."""
    period: Dim
    """In positions, which hold as many places each."""
    before: int
    """How far windows reach in front of the first position, and behind the last, in places of a phase."""
    behind: int


def _rows(axis: WindowAxis, last: bool) -> _Rows:
    (pad, _), stride = axis.pads, axis.stride
    assert isinstance(pad, int)
    reach = axis.dilation * (axis.kernel - 1) - pad
    places = add(ceildiv(axis.extent, stride), -(-pad // stride))
    period = maximum(places, add(axis.size, max(0, reach // stride)))
    if last:
        whole = _Phase(0, tuple(range(axis.kernel)), -pad, axis.dilation)
        return _Rows(axis, (whole,), stride, period, pad, max(0, reach))
    phases = tuple(_phases(axis, pad))
    return _Rows(axis, phases, 1, period, -(-pad // stride), max(0, reach // stride))


def _phases(axis: WindowAxis, pad: int) -> list[_Phase]:
    """Those that taps read, in order of their first taps."""
    common = math.gcd(axis.stride, axis.dilation)
    phases = []
    for tap in range(min(axis.kernel, axis.stride // common)):
        first, number = divmod(tap * axis.dilation - pad, axis.stride)
        taps = tuple(range(tap, axis.kernel, axis.stride // common))
        phases.append(_Phase(number, taps, first, axis.dilation // common))
    return phases


def _by_products(
    builder: Builder, image: Value, factors: Value, axes: Sequence[WindowAxis], groups: int
) -> Value:
    batch, results = shape_of(factors)[0], int(shape_of(factors)[-1])
    rows = [_rows(axis, axis is axes[-1]) for axis in axes]
    for at, row in enumerate(rows):
        factors = _up_to(builder, factors, 1 + at, row.period)
    count = mul(batch, product(row.period for row in rows))
    left = builder.reshape(factors, (count, groups, *(1,) * len(axes), results // groups))
    left = builder.transpose(left, (*range(1, left.rank), 0))
    blocks = [
        _of_phases(builder, image, left, rows, phases)
        for phases in itertools.product(*(row.phases for row in rows))
    ]
    for at in reversed(range(len(rows))):  # the last axis changes first
        several = len(rows[at].phases)
        blocks = [
            _in_order(builder, blocks[start : start + several], rows[at].phases, 2 + at)
            for start in range(0, len(blocks), several)
        ]
    return blocks[0]


def _up_to(builder: Builder, x: Value, axis: int, extent: Dim) -> Value:
    """With zeros behind."""
    missing = sub(extent, shape_of(x)[axis])
    return padded(builder, x, axis, 0, missing, builder.scalar(0, x.dtype))


def _of_phases(
    builder: Builder, image: Value, left: Value, rows: Sequence[_Rows], phases: Sequence[_Phase]
) -> Value:
    """[results, channels of a group, taps...] of taps that read one phase of each axis; `left`:
    [groups, 1..., results of a group, positions].
    """
    groups, results, count = int(shape_of(left)[0]), int(shape_of(left)[-2]), shape_of(left)[-1]
    channels = int(shape_of(image)[-1])
    own = channels // groups
    matrix, lead, steps = _places(builder, image, rows, phases)
    first = add(
        lead, reduce(add, (mul(step, p.first) for p, step in zip(phases, steps, strict=True)), 0)
    )
    taps = [len(phase.taps) for phase in phases]
    # Channels of neighbouring places lie side by side: such taps are more columns.
    wide = taps[-1] if groups == 1 and phases[-1].step == 1 else 1
    apart = [*taps[:-1], taps[-1] // wide]
    right = builder.op(
        "view",
        matrix,
        shape=(groups, *apart, count, wide * own),
        strides=(
            own,
            *(mul(step, p.step * channels) for p, step in zip(phases, steps, strict=True)),
            *(rows[-1].stride * channels, 1),
        ),
        offset=mul(first, channels),
    )
    y = builder.matmul(left, right)
    y = builder.reshape(y, (groups, *apart, results, wide, own))
    rank = 1 + len(apart)
    y = builder.transpose(y, (0, rank, rank + 2, *range(1, rank), rank + 1))
    return builder.reshape(y, (groups * results, own, *taps))


def _places(
    builder: Builder, image: Value, rows: Sequence[_Rows], phases: Sequence[_Phase]
) -> tuple[Value, Dim, list[Dim]]:
    """Those of one phase of each axis, one after the other, as positions lie: [places, channels]; how many lie in front of the
    first position, as far as windows reach; and how far neighbours along each axis are apart.
    """
    for at, (row, phase) in enumerate(zip(rows, phases, strict=True)):
        step = row.axis.stride // row.stride
        if step > 1:
            size = ceildiv(maximum(0, sub(row.axis.extent, phase.number)), step)
            image = part(builder, image, 1 + at, phase.number, size, step)
        image = _up_to(builder, image, 1 + at, mul(row.period, row.stride))
    batch, *places, channels = shape_of(image)
    steps = [product(places[1 + at :]) for at in range(len(rows))]
    lead: Dim = reduce(
        add, (mul(step, row.before) for row, step in zip(rows, steps, strict=True)), 0
    )
    tail: Dim = reduce(
        add, (mul(step, row.behind) for row, step in zip(rows, steps, strict=True)), 0
    )
    flat = builder.reshape(image, (mul(batch, product(places)), channels))
    return padded(builder, flat, 0, lead, tail, builder.scalar(0, image.dtype)), lead, steps


def _in_order(
    builder: Builder, blocks: Sequence[Value], phases: Sequence[_Phase], axis: int
) -> Value:
    """The taps of all phases along one axis."""
    if len(blocks) == 1:
        return blocks[0]
    taps = {
        tap: part(builder, block, axis, at, 1)
        for block, phase in zip(blocks, phases, strict=True)
        for at, tap in enumerate(phase.taps)
    }
    return builder.concat([taps[tap] for tap in sorted(taps)], axis)


# -- sums


def _tap_by_tap(
    builder: Builder, image: Value, factors: Value, axes: Sequence[WindowAxis], groups: int
) -> Value:
    """Rows by themselves first, each for all taps while it is in the caches."""
    for at, axis in enumerate(axes):
        zero = builder.scalar(0, image.dtype)
        image = padded(builder, image, 1 + at, axis.pads[0], axis.lacking, zero)
    batch, *places, channels = shape_of(image)
    own, results = int(channels) // groups, int(shape_of(factors)[-1]) // groups
    steps = [mul(channels, product(places[1 + at :])) for at in range(len(axes))]
    kernel, size = [axis.kernel for axis in axes], [axis.size for axis in axes]
    moves = [mul(axis.stride, step) for axis, step in zip(axes, steps, strict=True)]
    taps = builder.op(
        "view",
        image,
        shape=(batch, *size[:-1], *kernel, size[-1], groups, 1, own),
        strides=(
            *(mul(channels, product(places)), *moves[:-1]),
            *(mul(axis.dilation, step) for axis, step in zip(axes, steps, strict=True)),
            *(moves[-1], own, 0, 1),
        ),
        offset=0,
    )
    shape = (batch, *size[:-1], *(1,) * len(axes), size[-1], groups, results, 1)
    products = builder.mul(taps, builder.reshape(factors, shape))
    rows = builder.reduce_sum(products, (2 * len(axes),))
    y = builder.reduce_sum(rows, range(len(axes)))
    y = builder.reshape(y, (*kernel, groups * results, own))
    return builder.transpose(y, (len(axes), len(axes) + 1, *range(len(axes))))
