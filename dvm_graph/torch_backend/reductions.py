"""Reductions of torch, and what is built on them: averages of half floats in float32, which holds their sums and counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dvm_graph.errors import UnsupportedError
from dvm_graph.ir import DType, Value, shape_of
from dvm_graph.symbolic import Dim, product
from dvm_graph.torch_backend.elementwise import common_type, truth
from dvm_graph.torch_backend.scattering import written
from dvm_graph.torch_backend.translation import DTYPES, Translation, axis_of, entry

aten, prims = torch.ops.aten, torch.ops.prims


def _axes(x: Value, axes: Any) -> list[int]:
    listed = [axes] if isinstance(axes, int) else list(axes or ())
    if not listed or x.rank == 0:
        return list(range(x.rank))
    return sorted({axis_of(x, axis) for axis in listed})


@entry(aten.sum.default, aten.sum.dim_IntList)
def _sum(t: Translation, x: Value, axes: Any = None, *_: Any, **__: Any) -> Value:
    x = t.value(x, t.dtype)
    return t.builder.reshape(t.builder.reduce_sum(x, _axes(x, axes)), t.shape)


@entry(aten.prod.default, aten.prod.dim_int)
def _prod(t: Translation, x: Value, axes: Any = None, *_: Any, **__: Any) -> Value:
    x = t.value(x, t.dtype)
    return t.builder.reshape(t.builder.reduce_prod(x, _axes(x, axes)), t.shape)


@entry(aten.mean.default, aten.mean.dim)
def _mean(t: Translation, x: Value, axes: Any = None, *_: Any, **__: Any) -> Value:
    x = t.value(x, t.dtype.register)
    mean = t.builder.cast(_mean_of(t, x, _axes(x, axes)), t.dtype)
    return t.builder.reshape(mean, t.shape)


def _mean_of(t: Translation, x: Value, axes: Sequence[int]) -> Value:
    total = t.builder.reduce_sum(x, axes)
    return t.builder.div(total, _count(t, x, axes, 0))


def _count(t: Translation, x: Value, axes: Sequence[int], correction: float) -> Value:
    count = product(shape_of(x)[axis] for axis in axes)
    elements = t.builder.cast(t.builder.dims((count,), ()), x.dtype)
    if correction == 0:
        return elements
    left = t.builder.sub(elements, t.builder.scalar(correction, x.dtype))
    return t.builder.max(left, t.builder.scalar(0, x.dtype))


@entry(aten.amax.default, aten.max.default)
def _amax(t: Translation, x: Value, axes: Any = None, *_: Any) -> Value:
    return t.builder.reshape(t.builder.reduce_max(x, _axes(x, axes)), t.shape)


@entry(aten.amin.default, aten.min.default)
def _amin(t: Translation, x: Value, axes: Any = None, *_: Any) -> Value:
    return t.builder.reshape(t.builder.reduce_min(x, _axes(x, axes)), t.shape)


@entry(aten.argmax.default, aten.argmin.default)
def _arg_extreme(t: Translation, x: Value, axis: int | None = None, *_: Any, **__: Any) -> Value:
    greatest = t.target is aten.argmax.default
    if axis is None:
        x, axis = t.builder.reshape(x, (product(shape_of(x)),)), 0
    return t.builder.reshape(_extreme(t, x, axis, greatest)[1], t.shape)


@entry(aten.max.dim, aten.min.dim)
def _extreme_of_axis(t: Translation, x: Value, axis: int, *_: Any, **__: Any) -> list[Value]:
    found = _extreme(t, x, axis, t.target is aten.max.dim)
    return [t.builder.reshape(each, t.shape) for each in found]


def _extreme(t: Translation, x: Value, axis: int, greatest: bool) -> tuple[Value, Value]:
    """The extreme along an axis, and the first place where it is; a NaN is more extreme than any number."""
    b = t.builder
    row = x if x.rank else b.reshape(x, (1,))
    axis, shape = axis_of(row, axis), shape_of(row)
    extreme = (b.reduce_max if greatest else b.reduce_min)(row, (axis,))
    kept = (*shape[:axis], 1, *shape[axis + 1 :])
    extreme = b.reshape(extreme, kept)
    found = b.eq(row, extreme)
    if row.dtype.is_float:
        found = b.bitwise_or(found, b.isnan(row))
    along = [extent if at == axis else 1 for at, extent in enumerate(shape)]
    last = b.scalar(int(np.iinfo(np.int64).max), DType.INT64)
    place = b.reduce_min(b.select(found, b.iota(along, axis), last), (axis,))
    return extreme, place


@entry(aten.any.default, aten.any.dim, aten.any.dims)
def _any(t: Translation, x: Value, axes: Any = None, *_: Any) -> Value:
    found = t.builder.reduce_max(truth(t, x), _axes(x, axes))
    return t.builder.reshape(found, t.shape)


@entry(aten.all.default, aten.all.dim, aten.all.dims)
def _all(t: Translation, x: Value, axes: Any = None, *_: Any) -> Value:
    found = t.builder.reduce_min(truth(t, x), _axes(x, axes))
    return t.builder.reshape(found, t.shape)


# -- counts


_MOST_BOUNDS = 256
"""That are compared with every element; torch halves longer lists of them."""


@entry(aten.bucketize.Tensor)
def _bucketize(t: Translation, x: Value, bounds: Value, **how: Any) -> Value:
    return _searchsorted(t, bounds, x, **how)


@entry(aten.searchsorted.Tensor)
def _searchsorted(
    t: Translation,
    bounds: Value,
    x: Value,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    """How many bounds are less than an element, or `right` as great as it; all of them are less than a NaN."""
    del out_int32  # the result's type says it
    (*_, most) = bounds.shape or ()
    if sorter is not None or not isinstance(most, int) or most > _MOST_BOUNDS:
        raise UnsupportedError("bounds that are not compared with every element")
    b, dtype = t.builder, common_type(x, bounds)
    elements = b.reshape(b.cast(x, dtype), (*shape_of(x), 1))
    if bounds.rank > 1:
        bounds = b.reshape(bounds, (*shape_of(bounds)[:-1], 1, most))
    beyond = b.gt if right or side == "right" else b.ge
    less = b.cast(b.logical_not(beyond(b.cast(bounds, dtype), elements)), t.dtype)
    return b.reshape(b.reduce_sum(less, (less.rank - 1,)), t.shape)


@entry(aten.histc.default)
def _histc(t: Translation, x: Value, bins: int = 100, low: float = 0, high: float = 0) -> Value:
    """How many elements are in each of the bins between two bounds: the least and the greatest element, where the bounds are equal."""
    if low == high or x.dtype not in (DType.FLOAT32, DType.FLOAT64):
        raise UnsupportedError("bounds that data tells")
    b = t.builder
    count = product(shape_of(x))
    flat = b.reshape(x, (count,))
    least, most = b.scalar(low, x.dtype), b.scalar(high, x.dtype)
    place = b.mul(b.sub(flat, least), b.scalar(bins, x.dtype))  # first, as in torch
    place = b.cast(b.div(place, b.sub(most, least)), DType.INT64)
    place = b.max(b.min(place, b.scalar(bins - 1, DType.INT64)), b.scalar(0, DType.INT64))
    inside = b.bitwise_and(b.ge(flat, least), b.le(flat, most))
    place = b.select(inside, place, b.scalar(bins, DType.INT64))
    counted = b.broadcast_to(b.scalar(0, x.dtype), (bins + 1,))
    return b.slice(written(t, counted, 0, place, 1, "add"), (0,), (bins,))


def _variance(t: Translation, x: Value, axes: Any, correction: float | None) -> tuple[Value, Value]:
    correction = 1 if correction is None else correction
    folded = _axes(x, axes)
    mean = _mean_of(t, x, folded)
    off = t.builder.sub(x, mean)
    total = t.builder.reduce_sum(t.builder.mul(off, off), folded)
    return t.builder.div(total, _count(t, x, folded, correction)), mean


@entry(aten.var.correction, aten.var_mean.correction)
def _var(
    t: Translation,
    x: Value,
    axes: Any = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Any:
    del keepdim  # the result's shape says it
    wide = _variance(t, t.value(x, x.dtype.register), axes, correction)
    found = [t.builder.reshape(t.builder.cast(v, x.dtype), t.shape) for v in wide]
    return found if isinstance(t.meta, tuple | list) else found[0]


@entry(aten.native_layer_norm.default)
def _layer_norm(
    t: Translation, x: Value, sizes: Sequence[Dim], scale: Any, shift: Any, epsilon: float
) -> list[Value]:
    b, axes = t.builder, list(range(x.rank - len(sizes), x.rank))
    dtype = x.dtype.register
    wide = t.value(x, dtype)
    variance, mean = _variance(t, wide, axes, 0)
    root = b.rsqrt(b.add(variance, b.scalar(epsilon, dtype)))
    y = b.mul(b.sub(wide, mean), root)
    y = y if scale is None else b.mul(y, t.value(scale, dtype))
    y = y if shift is None else b.add(y, t.value(shift, dtype))
    return [b.cast(v, DTYPES[meta.dtype]) for v, meta in zip((y, mean, root), t.meta, strict=True)]


@entry(aten._softmax.default)
def _softmax(t: Translation, x: Value, axis: int, _half: bool) -> Value:
    return _along(t, "Softmax", x, axis)


@entry(aten._log_softmax.default)
def _log_softmax(t: Translation, x: Value, axis: int, _half: bool) -> Value:
    return _along(t, "LogSoftmax", x, axis)


def _along(t: Translation, op: str, x: Value, axis: int) -> Value:
    row = x if x.rank else t.builder.reshape(x, (1,))
    return t.builder.reshape(t.onnx(op, row, axis=axis_of(row, axis)), t.shape)
