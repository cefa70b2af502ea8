"""Writing by index, and sorting: torch's operators that are ONNX's operators of the host, without a cut between pieces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dvm_graph.errors import UnsupportedError
from dvm_graph.ir import DType, Value, shape_of
from dvm_graph.symbolic import Dim
from dvm_graph.torch_backend.translation import Translation, entry

aten = torch.ops.aten

_REDUCTIONS = {
    "add": "add",
    "sum": "add",
    "multiply": "mul",
    "prod": "mul",
    "amax": "max",
    "amin": "min",
}
"""ONNX's, by torch's."""


@entry(aten.scatter.src, aten.scatter.value, aten.scatter.reduce, aten.scatter.value_reduce)
def _scatter(
    t: Translation, x: Value, axis: int, index: Value, source: Any, reduce: str = ""
) -> Value:
    return written(t, x, axis, index, source, _REDUCTIONS[reduce] if reduce else "none")


@entry(aten.scatter_add.default)
def _scatter_add(t: Translation, x: Value, axis: int, index: Value, source: Value) -> Value:
    return written(t, x, axis, index, source, "add")


@entry(aten.scatter_reduce.two)
def _scatter_reduce(
    t: Translation,
    x: Value,
    axis: int,
    index: Value,
    source: Value,
    reduce: str,
    *,
    include_self: bool = True,
) -> Value:
    if not include_self:
        x = written(t, x, axis, index, _neutral(reduce, x.dtype), "none")
    if reduce in ("amax", "amin") and x.dtype.is_float:
        return _extremum(t, x, axis, index, source, reduce)
    if reduce != "mean":
        return written(t, x, axis, index, source, _REDUCTIONS[reduce])
    if not x.dtype.is_float:
        raise UnsupportedError("means of whole numbers")
    total = written(t, x, axis, index, source, "add")
    counted = t.builder.broadcast_to(t.builder.scalar(int(include_self), x.dtype), shape_of(x))
    counted = written(t, counted, axis, index, 1, "add")
    return t.builder.div(total, t.builder.max(counted, t.builder.scalar(1, x.dtype)))


def _extremum(
    t: Translation, x: Value, axis: int, index: Value, source: Value, reduce: str
) -> Value:
    """NaN wherever a NaN is reduced, as in torch; in ONNX it depends on the order."""
    b = t.builder
    nan, none = b.scalar(math.nan, x.dtype), b.scalar(0, x.dtype)
    result = written(t, x, axis, index, source, _REDUCTIONS[reduce])
    marks, added = (b.select(b.isnan(value), nan, none) for value in (x, source))
    marks = written(t, marks, axis, index, added, "add")
    return b.select(b.isnan(marks), nan, result)


def _neutral(reduce: str, dtype: DType) -> float:
    """What changes nothing that it is reduced with."""
    if reduce in ("amax", "amin"):
        if dtype.is_float:
            return -math.inf if reduce == "amax" else math.inf
        if dtype is DType.BOOL:
            return int(reduce == "amin")
        bounds = np.iinfo(dtype.numpy)
        return int(bounds.min if reduce == "amax" else bounds.max)
    return int(reduce == "prod")


def written(
    t: Translation, x: Value, axis: int, index: Value, source: Any, reduction: str
) -> Value:
    """By index along an axis: numbers, or the first elements of a tensor that may be larger than the index is."""
    if not x.rank or not index.rank:
        raise UnsupportedError("places in a number")
    shape = shape_of(index)
    if isinstance(source, Value) and source.rank:
        source = t.builder.slice(source, [0] * source.rank, shape)
    else:
        source = t.builder.broadcast_to(t.value(source, x.dtype), shape)
    return t.onnx("ScatterElements", x, index, source, axis=axis % x.rank, reduction=reduction)


@entry(aten.index_put.default, aten._unsafe_index_put.default)
def _index_put(
    t: Translation,
    x: Value,
    indices: Sequence[Value | None],
    source: Value,
    accumulate: bool = False,
) -> Value:
    """By coordinates along axes that follow each other; all of those in front of them."""
    b = t.decomposer
    given = [index for index in indices if index is not None]
    if len(given) == 1 and given[0].dtype is DType.BOOL:
        return _put_where(t, x, indices, given[0], source, accumulate)
    if any(index.dtype not in (DType.INT64, DType.INT32) for index in given):
        raise UnsupportedError("a mask among coordinates")
    before = next((axis for axis, index in enumerate(indices) if index is not None), 0)
    end = before + len(given)
    if not given or None in indices[before:end]:
        raise UnsupportedError("coordinates of axes apart from each other")
    whole, found = shape_of(x)[:before], _broadcast([shape_of(index) for index in given])
    shape = (*whole, *found)
    along = [
        b.reshape(b.iota((extent,)), (extent, *(1,) * (len(shape) - 1 - axis)))
        for axis, extent in enumerate(whole)
    ]
    coordinates = [
        b.reshape(b.broadcast_to(index, shape), (*shape, 1))
        for index in (*along, *(b.cast(index, DType.INT64) for index in given))
    ]
    places = coordinates[0] if end == 1 else b.concat(coordinates, len(shape))
    source = b.broadcast_to(t.value(source, x.dtype), (*shape, *shape_of(x)[end:]))
    reduction = "add" if accumulate else "none"
    return t.onnx("ScatterND", x, places, source, reduction=reduction)


def _put_where(
    t: Translation,
    x: Value,
    indices: Sequence[Value | None],
    mask: Value,
    source: Value,
    accumulate: bool,
) -> Value:
    """The same wherever a mask of some axes is true.

    Raises:
        UnsupportedError: each place has a source of its own, or the mask is not known to be one of these axes.
    """
    b, begin = t.builder, indices.index(mask)
    masked, extents = shape_of(x)[begin : begin + mask.rank], shape_of(mask)
    if len(masked) != mask.rank or not all(map(b.facts.same, masked, extents)):
        raise UnsupportedError("a mask of other extents")
    behind = x.rank - begin - mask.rank
    source = t.value(source, x.dtype)
    if source.rank > behind:
        shape = shape_of(source)
        if any(extent != 1 for extent in shape[: source.rank - behind]):
            raise UnsupportedError("as many numbers as a mask has places")
        source = b.reshape(source, shape[source.rank - behind :])
    mask = b.reshape(mask, (*shape_of(mask), *(1,) * behind))
    return b.select(mask, b.add(x, source) if accumulate else source, x)


def _broadcast(shapes: Sequence[Sequence[Dim]]) -> tuple[Dim, ...]:
    """What all of them are broadcast to; of extents that are not known to be 1, one is as good as another."""
    rank = max(map(len, shapes))
    aligned = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(
        next((extent for extent in extents if extent != 1), 1)
        for extents in zip(*aligned, strict=True)
    )


# -- sorting


@entry(aten.topk.default)
def _topk(
    t: Translation, x: Value, count: Any, axis: int = -1, largest: bool = True, sort: bool = True
) -> list[Value]:
    """Of equal elements torch takes any, ONNX the first: of types in which many are equal, torch's own stay."""
    if x.dtype not in (DType.FLOAT32, DType.FLOAT64):
        raise UnsupportedError("many may be equal")
    return _selected(t, x, count, axis, largest, sort)


@entry(aten.sort.default)
def _sort(t: Translation, x: Value, axis: int = -1, descending: bool = False) -> list[Value]:
    return _selected(t, x, shape_of(x)[axis] if x.rank else 1, axis, descending, True)


@entry(aten.sort.stable)
def _sort_stable(
    t: Translation,
    x: Value,
    *,
    stable: bool | None = None,
    dim: int = -1,
    descending: bool = False,
) -> list[Value]:
    del stable  # equal elements always stay in order
    return _sort(t, x, dim, descending)


def _selected(
    t: Translation, x: Value, count: Any, axis: int, largest: bool, sort: bool
) -> list[Value]:
    if not x.rank:
        raise UnsupportedError("nothing to select from")
    return t.onnx_results(
        *("TopK", x, t.builder.dims((count,))),
        axis=axis % x.rank,
        largest=int(largest),
        sorted=int(sort),
    )
