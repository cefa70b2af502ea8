"""Small compounds of basic operators that several families share."""

from __future__ import annotations

from collections.abc import Sequence

from dvm_graph.ir import Dim, DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import product

_HALVES = frozenset({DType.FLOAT16, DType.BFLOAT16})


def scaled(builder: Builder, value: Value, factor: float) -> Value:
    """`value * factor`."""
    return value if factor == 1 else builder.mul(value, builder.scalar(factor, value.dtype))


def shifted(builder: Builder, value: Value, term: float) -> Value:
    """`value + term`."""
    return value if term == 0 else builder.add(value, builder.scalar(term, value.dtype))


def widened(builder: Builder, value: Value) -> Value:
    """Half floats as float32, the type in which kernels compute; others as they are."""
    return builder.cast(value, DType.FLOAT32) if value.dtype in _HALVES else value


def scalar_of(builder: Builder, value: Value, dtype: DType) -> Value:
    """One number, of whatever rank, as rank-0 tensor of a type."""
    return builder.cast(builder.reshape(value, ()), dtype)


def dim_value(builder: Builder, dim: Dim, dtype: DType = DType.INT64) -> Value:
    """A dim as rank-0 tensor."""
    if isinstance(dim, int):
        return builder.scalar(dim, dtype)
    return builder.cast(builder.dims((dim,), ()), dtype)


def reduced_count(value: Value, axes: Sequence[int]) -> Dim:
    """How many elements a reduction over `axes` folds into one."""
    shape = shape_of(value)
    return product([shape[axis] for axis in axes])


def mean(builder: Builder, value: Value, axes: Sequence[int]) -> Value:
    """Mean over axes, which stay with extent 1."""
    total = builder.reduce_sum(value, axes)
    return builder.div(total, dim_value(builder, reduced_count(value, axes), value.dtype))


def without_axes(builder: Builder, value: Value, axes: Sequence[int]) -> Value:
    """Drops axes of extent 1."""
    kept = tuple(dim for axis, dim in enumerate(shape_of(value)) if axis not in axes)
    return builder.reshape(value, kept)


def with_axis(builder: Builder, value: Value, axis: int) -> Value:
    """Inserts an axis of extent 1."""
    shape = shape_of(value)
    return builder.reshape(value, (*shape[:axis], 1, *shape[axis:]))


def spread(builder: Builder, value: Value, shape: Sequence[Dim]) -> Value:
    """A value that broadcasts to a shape, and the shape not to it: where nothing tells so, runs confirm it."""
    offset = len(shape) - value.rank
    told = offset >= 0 and all(
        dim == 1 or builder.facts.same(dim, whole)
        for dim, whole in zip(shape_of(value), shape[offset:], strict=True)
    )
    return value if told else builder.broadcast_to(value, shape)


def is_of_columns(builder: Builder, node: Node, x: Value, *vectors: Value | None) -> None:
    """Vectors that do not broadcast: each has a number for each element of a row of x."""
    for vector in vectors:
        if vector is not None:
            reason = f"{node.op} {node.name!r} takes a number for each element of a row"
            builder.facts.assume_equal(shape_of(vector)[0], shape_of(x)[-1], reason)


def along_axis(builder: Builder, vector: Value, axis: int, rank: int) -> Value:
    """A rank-1 tensor (or any, whose last axes these are) placed so that it broadcasts from `axis`."""
    shape = shape_of(vector)
    return builder.reshape(vector, (*shape, *(1,) * (rank - axis - len(shape))))


def positions(
    builder: Builder, extent: Dim, axis: int, rank: int, start: Dim = 0, step: Dim = 1
) -> Value:
    """int64 start, start + step, ... along one axis; the other axes have extent 1."""
    shape = tuple(extent if index == axis else 1 for index in range(rank))
    return builder.iota(shape, axis, start, step)


def filled(builder: Builder, value: float, dtype: DType, shape: Sequence[Dim]) -> Value:
    """A tensor of one repeated number."""
    return builder.broadcast_to(builder.scalar(value, dtype), tuple(shape))
