"""Matrix products of torch, and reading by index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dvm_graph.decompose.indexing import linear_index
from dvm_graph.decompose.matrix import product_of
from dvm_graph.errors import UnsupportedError
from dvm_graph.ir import DType, Value, shape_of
from dvm_graph.symbolic import product
from dvm_graph.torch_backend.elementwise import scaled
from dvm_graph.torch_backend.translation import Number, Translation, entry

aten, prims = torch.ops.aten, torch.ops.prims


@entry(aten.mm.default, aten.bmm.default)
def _matmul(t: Translation, a: Value, b: Value) -> Value:
    return product_of(t.decomposer, a, b)


@entry(aten.mv.default)
def _mv(t: Translation, a: Value, vector: Value) -> Value:
    columns = t.builder.reshape(vector, (*shape_of(vector), 1))
    return t.builder.reshape(_matmul(t, a, columns), t.shape)


@entry(aten.addmv.default)
def _addmv(
    t: Translation, bias: Value, a: Value, vector: Value, *, beta: float = 1, alpha: float = 1
) -> Value:
    return _added(t, bias, beta, scaled(t, _mv(t, a, vector), alpha))


@entry(aten.addmm.default)
def _addmm(
    t: Translation, bias: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1
) -> Value:
    return _added(t, bias, beta, scaled(t, _matmul(t, a, b), alpha))


def _added(t: Translation, bias: Value, beta: Any, terms: Value) -> Value:
    """`beta * bias + terms`; of a bias times 0 nothing is read, which may be no number."""
    if isinstance(beta, Number):
        raise UnsupportedError("what may be 0")
    if beta == 0:
        return t.builder.broadcast_to(terms, t.shape)
    return t.builder.add(terms, scaled(t, bias, beta))


# -- reading by index


@entry(aten.embedding.default)
def _embedding(t: Translation, weight: Value, index: Value, *_: Any) -> Value:
    return t.onnx("Gather", weight, index, axis=0)


@entry(aten.index_select.default)
def _index_select(t: Translation, x: Value, axis: int, index: Value) -> Value:
    return t.onnx("Gather", x, index, axis=axis)


@entry(aten.gather.default)
def _gather(t: Translation, x: Value, axis: int, index: Value, **_: Any) -> Value:
    if x.rank == 0 or index.rank == 0:
        raise UnsupportedError("indices of a number")
    axis %= x.rank
    sizes = list(shape_of(index))
    sizes[axis] = shape_of(x)[axis]
    if sizes != list(shape_of(x)):  # of a part of the rows
        x = t.builder.slice(x, [0] * x.rank, sizes)
    return t.onnx("GatherElements", x, index, axis=axis)


@entry(aten.index.Tensor)
def _index(t: Translation, x: Value, indices: Sequence[Value | None]) -> Value:
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if any(index.dtype not in (DType.INT64, DType.INT32) for _, index in given):
        raise UnsupportedError("a mask")
    if len(given) > 1:
        return _points(t, x, dict(given))
    ((axis, index),) = given
    return t.onnx("Gather", x, index, axis=axis)


def _points(t: Translation, x: Value, indices: Mapping[int, Value]) -> Value:
    """What lies at points: read from the axes that they have coordinates of, as one, by where the points lie in it. Points take the
    place of these axes, where they are neighbours, else they come first.
    """
    b, shape = t.decomposer, shape_of(x)
    axes = sorted(indices)
    rest = [axis for axis in range(x.rank) if axis not in indices]
    neighbours = axes == list(range(axes[0], axes[-1] + 1))
    before = rest[: axes[0]] if neighbours else []
    rank = max(index.rank for index in indices.values())
    points = t.shape[len(before) : len(before) + rank]
    coordinates = []
    for axis in axes:
        index = b.cast(indices[axis], DType.INT64)
        index = b.reshape(index, (1,) * (rank - index.rank) + shape_of(index))
        coordinates.append(b.check_index(index, shape[axis]))
    place = linear_index(b, coordinates, [shape[axis] for axis in axes])
    joined = product(shape[axis] for axis in axes)
    behind = [axis for axis in rest if axis not in before]
    rows = b.transpose(x, (*before, *axes, *behind))
    rows = b.reshape(rows, (*(shape[a] for a in before), joined, *(shape[a] for a in behind)))
    return b.gather(rows, b.broadcast_to(place, points), len(before))


@entry(aten._unsafe_index.Tensor)
def _unsafe_index(t: Translation, x: Value, indices: Sequence[Value | None]) -> Value:
    return _index(t, x, indices)


@entry(aten.cumsum.default, aten.cumprod.default)
def _cumulative(t: Translation, x: Value, axis: int, **_: Any) -> Value:
    name = "CumSum" if t.target is aten.cumsum.default else "CumProd"
    return t.onnx(name, t.value(x, t.dtype), t.builder.scalar(axis, DType.INT64))


_SAMPLINGS = ("linear", "nearest", "cubic")
_PADDINGS = ("zeros", "border", "reflection")


@entry(aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def _grid_sampler(
    t: Translation, x: Value, grid: Value, sampling: int, padding: int, align: bool
) -> Value:
    return t.onnx(
        *("GridSample", x, grid),
        mode=_SAMPLINGS[sampling],
        padding_mode=_PADDINGS[padding],
        align_corners=int(align),
    )
