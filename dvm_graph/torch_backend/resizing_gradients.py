"""Gradients of images that are resized, padded with what is in them, or averaged to a size: axis by axis.

Each element gets, of every result, as much as was read of it. How much that is tells the operator itself, of images that are 1 in one
place each: so the gradient along an axis is a product with a matrix of its extent times its size. Elements that were only repeated
have sums. What a pad copied is added where it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from dvm_graph.decompose.arithmetic import dim_value, widened
from dvm_graph.decompose.slicing import padded, part
from dvm_graph.errors import UnsupportedError
from dvm_graph.ir import DType, Value, shape_of
from dvm_graph.symbolic import Dim, add, product, sub
from dvm_graph.symbolic.dims import mul, neg
from dvm_graph.torch_backend.resizing import (
    EXACT,
    MEANS,
    NEAREST,
    PADDED,
    mean_of_neighbours,
)
from dvm_graph.torch_backend.translation import Translation, entry
from dvm_graph.torch_backend.views import is_negative

aten = torch.ops.aten

Shares: TypeAlias = Callable[[int, Dim, Dim], Value]
"""Of a spatial axis, its extent and its size: how much of each element, [extent], was read for each result, [size]."""


def _gradients(operators: Sequence[Any]) -> dict[Any, Any]:
    """The operators, by those of their gradients."""
    return {getattr(aten, f"{each.__name__}_backward").default: each.default for each in operators}


def _given_back(t: Translation, gradient: Value, spatial: int, shares: Shares) -> Value:
    """Axis by axis, the last first."""
    b, first = t.decomposer, gradient.rank - spatial
    y = widened(b, gradient)
    for axis in reversed(range(spatial)):
        at = first + axis
        matrix = shares(axis, t.shape[at], shape_of(gradient)[at])
        y = _contracted(t, y, at, b.cast(matrix, y.dtype))
    return b.cast(y, t.dtype)


def _contracted(t: Translation, x: Value, at: int, matrix: Value) -> Value:
    """A sum over an axis for each row of a matrix."""
    b, shape = t.decomposer, shape_of(x)
    rows, size = shape_of(matrix)
    before, after = shape[:at], shape[at + 1 :]
    if not after:
        return b.matmul(x, b.transpose(matrix, (1, 0)))
    y = b.matmul(matrix, b.reshape(x, (*before, size, product(after))))
    return b.reshape(y, (*before, rows, *after))


# -- resized images

_OF_MEANS = _gradients(MEANS)


@entry(*_OF_MEANS)
def _mean_backward(
    t: Translation,
    gradient: Value,
    _sizes: Any,
    _extents: Any,
    corners: bool,
    *scales: float | None,
) -> Value:
    cubic = _OF_MEANS[t.target] is aten.upsample_bicubic2d.default

    def shares(axis: int, extent: Dim, size: Dim) -> Value:
        units = _units(t, extent)
        own = scales[axis : axis + 1]
        resized = mean_of_neighbours(t, units, (1, extent, size), cubic, corners, own)
        return t.builder.reshape(resized, (extent, size))

    return _given_back(t, gradient, gradient.rank - 2, shares)


def _units(t: Translation, extent: Dim) -> Value:
    """An image of as many channels as it is long, which are 1 in one place each."""
    b = t.builder
    channel, place = b.iota((1, extent, 1), 1), b.iota((1, 1, extent), 2)
    return b.cast(b.eq(channel, place), DType.FLOAT32)


@entry(*_gradients([*NEAREST, *EXACT]))
def _nearest_backward(
    t: Translation, gradient: Value, _sizes: Any, _extents: Any, *given: float | None
) -> Value:
    """Sums of what was read several times."""
    b, spatial, sizes = t.decomposer, t.shape[2:], shape_of(gradient)[2:]
    scales = [*given, None, None, None][: len(spatial)]
    repeats = [_ratio(t, *along) for along in zip(spatial, sizes, scales, strict=True)]
    if None in repeats:
        raise UnsupportedError("some elements may be read more often than others")
    apart = list(shape_of(gradient)[:2])
    for extent, count in zip(spatial, repeats, strict=True):
        apart += [extent, count]
    total = b.reduce_sum(b.reshape(widened(b, gradient), apart), range(3, len(apart), 2))
    return b.cast(b.reshape(total, t.shape), t.dtype)


def _ratio(t: Translation, extent: Dim, size: Dim, scale: float | None) -> int | None:
    """How many results an axis has for each element; None: not as many for each, for all that is known."""
    for repeats in (1, 2, 4, 8, 16):
        if scale in (None, repeats) and t.builder.facts.same(mul(extent, repeats), size):
            return repeats
    return None


# -- averages


@entry(aten._adaptive_avg_pool2d_backward.default, aten._adaptive_avg_pool3d_backward.default)
def _adaptive_average_backward(t: Translation, gradient: Value, x: Value) -> Value:
    spatial = 2 if t.target is aten._adaptive_avg_pool2d_backward.default else 3
    return _given_back(t, gradient, spatial, lambda _, extent, size: _averaged(t, extent, size))


@entry(aten._adaptive_avg_pool3d.default)
def _adaptive_average(t: Translation, x: Value, counts: Sequence[Dim]) -> Value:
    b, y = t.decomposer, widened(t.decomposer, x)
    for at in range(x.rank - len(counts), x.rank):
        matrix = b.cast(_averaged(t, shape_of(x)[at], t.shape[at]), y.dtype)
        y = _contracted(t, y, at, b.transpose(matrix, (1, 0)))
    return b.cast(y, t.dtype)


def _averaged(t: Translation, extent: Dim, size: Dim) -> Value:
    """How much of each element is in the average of each window, which begin and end where torch has them."""
    b = t.builder
    window, length = b.iota((1, size), 1), dim_value(t.decomposer, extent)
    count, one = dim_value(t.decomposer, size), b.scalar(1, DType.INT64)
    begin = b.div(b.mul(window, length), count)
    end = b.add(b.div(b.sub(b.mul(b.add(window, one), length), one), count), one)
    place = b.iota((extent, 1))
    dtype = t.dtype.register
    inside = b.cast(b.bitwise_and(b.ge(place, begin), b.lt(place, end)), dtype)
    return b.div(inside, b.cast(b.sub(end, begin), dtype))


# -- pads


def _pad_backward(mode: str) -> Callable[..., Value]:
    def build(t: Translation, gradient: Value, x: Value, pads: Sequence[Dim]) -> Value:
        """Pads come in pairs, from the last axis on."""
        y = widened(t.decomposer, gradient)
        for axis in range(len(pads) // 2):
            at = x.rank - 1 - axis
            y = _folded(t, y, at, shape_of(x)[at], pads[2 * axis], pads[2 * axis + 1], mode)
        return t.decomposer.cast(y, t.dtype)

    return build


def _folded(
    t: Translation, y: Value, at: int, extent: Dim, before: Dim, after: Dim, mode: str
) -> Value:
    """What was copied to both ends of an axis is added where it was read; what was cut off there gets nothing."""
    b = t.decomposer
    nothing = b.scalar(0, y.dtype)
    cut = [neg(pad) if is_negative(t, pad) else 0 for pad in (before, after)]
    copied = [pad if off == 0 else 0 for pad, off in zip((before, after), cut, strict=True)]
    inside = part(b, y, at, copied[0], sub(extent, add(*cut)))
    total = padded(b, inside, at, cut[0], cut[1], nothing)
    for count, begin, is_front in ((copied[0], 0, True), (copied[1], add(extent, before), False)):
        if count == 0:
            continue
        if mode == "edge":
            given, inwards = b.reduce_sum(part(b, y, at, begin, count), (at,)), 0
        else:
            given, inwards = part(b, y, at, add(begin, count - 1), count, -1), 1
        rest = sub(extent, add(shape_of(given)[at], inwards))
        first, last = (inwards, rest) if is_front else (rest, inwards)
        total = b.add(total, padded(b, given, at, first, last, nothing))
    return total


for _mode, _operators in PADDED.items():
    entry(*_gradients(_operators))(_pad_backward(_mode))
