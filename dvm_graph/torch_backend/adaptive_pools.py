"""Greatest elements of so many windows of an image, and where they are: axis by axis, from windows of rows to parts of these.

Windows lie where torch has them: window i of n begins at i * extent // n and ends at (i + 1) * extent / n, rounded up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from dvm_graph.decompose.arithmetic import widened
from dvm_graph.decompose.slicing import part
from dvm_graph.errors import UnsupportedError
from dvm_graph.ir import DType, Value, shape_of
from dvm_graph.symbolic import Dim, ceildiv, floordiv, mul, product, sub
from dvm_graph.torch_backend.scattering import written
from dvm_graph.torch_backend.translation import Translation, entry

aten = torch.ops.aten


@entry(aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def _adaptive_max_pool(t: Translation, x: Value, counts: Sequence[Dim]) -> list[Value]:
    """The greatest elements, and their places in the image."""
    if not all(isinstance(count, int) and count > 0 for count in counts):
        raise UnsupportedError("windows whose number is a size")
    b, shape = t.decomposer, shape_of(x)
    before = shape[: x.rank - len(counts)]
    spatial = shape[len(before) :]
    windows = [int(count) for count in counts]
    if windows == [1] * len(windows):  # at once
        spatial, windows = (product(spatial),), [1]
    image = b.reshape(x, (*before, *spatial))
    places = b.reshape(b.iota((product(spatial),)), (*(1,) * len(before), *spatial))
    found = image, b.broadcast_to(places, (*before, *spatial))
    for axis, (extent, count) in enumerate(zip(spatial, windows, strict=True), len(before)):
        values, places = found
        parts = [
            _greatest(t, part(b, values, axis, *window), part(b, places, axis, *window), axis)
            for window in _windows(extent, count)
        ]
        greatest, where = (b.concat(each, axis) for each in zip(*parts, strict=True))
        found = greatest, where
    return [b.reshape(each, t.shape) for each in found]


def _windows(extent: Dim, count: int) -> list[tuple[Dim, Dim]]:
    """Where they begin, and their sizes."""
    begins = [floordiv(mul(extent, at), count) for at in range(count)]
    ends = [ceildiv(mul(extent, at + 1), count) for at in range(count)]
    return [(begin, sub(end, begin)) for begin, end in zip(begins, ends, strict=True)]


def _greatest(t: Translation, x: Value, places: Value, axis: int) -> tuple[Value, Value]:
    """Of equal elements the first place, of NaNs the last, as torch finds them."""
    b = t.decomposer
    greatest = b.reduce_max(x, (axis,))
    last = b.scalar(int(np.iinfo(np.int64).max), DType.INT64)
    first = b.reduce_min(b.select(b.eq(x, greatest), places, last), (axis,))
    if not x.dtype.is_float:
        return greatest, first
    nans = b.select(b.isnan(x), places, b.scalar(-1, DType.INT64))
    return greatest, b.select(b.isnan(greatest), b.reduce_max(nans, (axis,)), first)


@entry(aten.adaptive_max_pool2d_backward.default, aten.adaptive_max_pool3d_backward.default)
def _adaptive_max_pool_backward(t: Translation, gradient: Value, x: Value, places: Value) -> Value:
    """Each place has the sum of what those windows have whose greatest element is there."""
    b, shape = t.decomposer, shape_of(x)
    before = shape[: x.rank - (2 if t.target is aten.adaptive_max_pool2d_backward.default else 3)]
    elements, count = product(shape[len(before) :]), product(shape_of(gradient)[len(before) :])
    given = b.reshape(widened(b, gradient), (*before, count))
    places = b.reshape(places, (*before, count))
    nothing = b.broadcast_to(b.scalar(0, given.dtype), (*before, elements))
    if count == 1:
        total = b.select(b.eq(b.iota((elements,)), places), given, nothing)
    else:
        total = written(t, nothing, len(before), places, given, "add")
    return b.cast(b.reshape(total, shape), t.dtype)
