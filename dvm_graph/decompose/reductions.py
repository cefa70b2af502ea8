"""Reductions: the Reduce* operators, ArgMax and ArgMin, global pooling, cumulative sums.

Basic reductions keep the reduced axes at extent 1; `keepdims=0` is a reshape after them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from dvm_graph.decompose.arithmetic import (
    dim_value,
    positions,
    reduced_count,
    widened,
    with_axis,
    without_axes,
)
from dvm_graph.decompose.host import add_host
from dvm_graph.decompose.operands import (
    elements,
    integers,
    normalize_axes,
    normalize_axis,
    operand,
    required,
)
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.decompose.slicing import part
from dvm_graph.ir import Dim, DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import add, equal, maximum, minimum, product

Axes: TypeAlias = Sequence[int]
Reduction: TypeAlias = Callable[[Builder, Value, Axes], Value]


def _extreme(name: str) -> Reduction:
    def reduced(builder: Builder, x: Value, axes: Axes) -> Value:
        if x.dtype is not DType.BOOL:
            return builder.op(name, x, axes=tuple(axes))
        number = builder.op(name, builder.cast(x, DType.INT32), axes=tuple(axes))
        return builder.cast(number, DType.BOOL)

    return reduced


def _mean(builder: Builder, x: Value, axes: Axes) -> Value:
    """Of nothing it is 0. A sum of integers may not fit their type where their mean does."""
    if x.dtype.is_float:
        wide = widened(builder, x)
    else:
        wide = builder.cast(x, DType.FLOAT64 if x.dtype.itemsize == 8 else DType.INT64)
    total = builder.reduce_sum(wide, axes)
    count = dim_value(builder, maximum(1, reduced_count(x, axes)), wide.dtype)
    mean = builder.div(total, count)
    result = builder.cast(mean, x.dtype)
    if x.dtype.is_float or x.dtype.itemsize < 8:
        return result
    greatest = np.iinfo(x.dtype.value).max
    fits = builder.lt(mean, builder.scalar(float(greatest), wide.dtype))  # which rounds up
    return builder.select(fits, result, builder.scalar(int(greatest), x.dtype))


def _sum_square(builder: Builder, x: Value, axes: Axes) -> Value:
    return builder.reduce_sum(builder.mul(x, x), axes)


def _l1(builder: Builder, x: Value, axes: Axes) -> Value:
    return builder.reduce_sum(builder.abs(x), axes)


def _l2(builder: Builder, x: Value, axes: Axes) -> Value:
    wide = _floating(builder, x)
    return builder.cast(builder.sqrt(_sum_square(builder, wide, axes)), x.dtype)


def _log_sum(builder: Builder, x: Value, axes: Axes) -> Value:
    total = builder.reduce_sum(_floating(builder, x), axes)
    return builder.cast(builder.log(total), x.dtype)


def _log_sum_exp(builder: Builder, x: Value, axes: Axes) -> Value:
    wide = _floating(builder, x)
    return builder.cast(log_sum_exp(builder, wide, axes), x.dtype)


def log_sum_exp(builder: Builder, x: Value, axes: Axes) -> Value:
    """log(sum(exp(x))) without overflow; rows of nothing but minus infinity stay there."""
    top = builder.reduce_max(x, axes)
    zero = builder.scalar(0, x.dtype)
    top = builder.select(builder.isfinite(top), top, zero)
    total = builder.reduce_sum(builder.exp(builder.sub(x, top)), axes)
    return builder.add(builder.log(total), top)


def _floating(builder: Builder, x: Value) -> Value:
    """Integers as floats that hold them, which square roots and logarithms need."""
    if x.dtype.is_float:
        return widened(builder, x)
    return builder.cast(x, DType.FLOAT64 if x.dtype.itemsize >= 4 else DType.FLOAT32)


REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": lambda builder, x, axes: builder.reduce_sum(x, axes),
    "ReduceProd": lambda builder, x, axes: builder.reduce_prod(x, axes),
    "ReduceMax": _extreme("reduce_max"),
    "ReduceMin": _extreme("reduce_min"),
    "ReduceMean": _mean,
    "ReduceSumSquare": _sum_square,
    "ReduceL1": _l1,
    "ReduceL2": _l2,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
}


@decomposition(*REDUCTIONS)
def reduction(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    known = integers(elements(operands, 1))
    if known is None and operand(operands, 1) is not None:
        return None
    axes = normalize_axes(node, known or (), x.rank)
    if not axes:
        if node.attrs.get("noop_with_empty_axes", 0):
            return [_without_folding(builder, node, x)]
        axes = tuple(range(x.rank))
    y = REDUCTIONS[node.op](builder, x, axes)
    return [y if node.attrs.get("keepdims", 1) else without_axes(builder, y, axes)]


def _without_folding(builder: Builder, node: Node, x: Value) -> Value:
    """What a reduction over no axes does: only the element-wise part of its definition."""
    if node.op in ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceMean"):
        return x
    return REDUCTIONS[node.op](builder, x, ())


@decomposition("GlobalAveragePool", "GlobalMaxPool")
def global_pool(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    axes = tuple(range(2, x.rank))
    if node.op == "GlobalMaxPool":
        return [builder.reduce_max(x, axes)]
    return [_mean(builder, x, axes)]


@decomposition("ArgMax", "ArgMin")
def arg_extreme(builder: Builder, node: Node, operands: Operands) -> Results:
    """The least (or greatest) position among those that hold the extreme."""
    x = required(node, operands, 0)
    axis = normalize_axis(node, node.attrs.get("axis", 0), x.rank)
    others = product([dim for index, dim in enumerate(shape_of(x)) if index != axis])
    some = add(shape_of(x)[axis], equal(others, 0))  # or none is asked for
    builder.facts.assume_range(
        some, 1, None, f"{node.op} of {node.name} has elements to choose from"
    )
    y = arg_of(
        builder,
        x,
        axis,
        1,
        greatest=node.op == "ArgMax",
        last=bool(node.attrs.get("select_last_index", 0)),
    )
    return [y if node.attrs.get("keepdims", 1) else without_axes(builder, y, (axis,))]


def arg_of(
    builder: Builder, x: Value, axis: int, size: Dim, *, greatest: bool, last: bool, of_nan: int = 0
) -> Value:
    """int64 positions of the extremes along an axis, which stays with extent `size`: 1, also where
    the axis is 0 and there are none to read, or its own where that is 0.

    As a search does that begins with the first element and takes what compares as better: NaN loses
    against all others, except that the first element wins if it is NaN. So an element always wins. `of_nan` is
    what stands for that NaN.
    """
    numbers = x
    if x.dtype.is_float:
        least = builder.scalar(-math.inf if greatest else math.inf, x.dtype)
        numbers = builder.select(builder.isnan(x), least, x)
    fold = builder.reduce_max if greatest else builder.reduce_min
    index = _numbered(builder, x, axis)
    outside = dim_value(builder, -1 if last else shape_of(x)[axis], index.dtype)
    wins = builder.eq(x, fold(numbers, (axis,)))
    candidates = builder.select(wins, index, outside)
    pick = builder.reduce_max if last else builder.reduce_min
    y = builder.cast(pick(candidates, (axis,)), DType.INT64)
    if not x.dtype.is_float or shape_of(x)[axis] == 0:
        return y
    first = part(builder, x, axis, 0, size)
    return builder.select(builder.isnan(first), builder.scalar(of_nan, DType.INT64), y)


@decomposition("Hardmax")
def hardmax(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    if node.version < 13:
        return None
    axis = normalize_axis(node, node.attrs.get("axis", -1), x.rank)
    some = minimum(1, shape_of(x)[axis])
    winner = arg_of(builder, x, axis, some, greatest=True, last=False, of_nan=-1)  # NaN is not
    index = _numbered(builder, x, axis)
    return [builder.cast(builder.eq(index, builder.cast(winner, index.dtype)), x.dtype)]


def _numbered(builder: Builder, x: Value, axis: int) -> Value:
    """Positions along an axis, in half the bytes where it is known to have few enough."""
    extent = shape_of(x)[axis]
    index = positions(builder, extent, axis, x.rank)
    few = builder.facts.prove_less_equal(extent, int(np.iinfo(np.int32).max)).yes
    return builder.cast(index, DType.INT32) if few else index


@decomposition("CumSum", "CumProd")
def cumulative(builder: Builder, node: Node, operands: Operands) -> Results:
    """A short one is a reduction over a masked square, which fuses: out[i] folds x[j] for j <= i. The work grows with
    the square, so what is longer, or may be, is the host's, which takes one element after the other.
    """
    x = required(node, operands, 0)
    known = integers(required(node, operands, 1).elements)
    if known is None:
        return None
    axis = normalize_axis(node, known[0], x.rank)
    extent = shape_of(x)[axis]
    exclusive, reverse = (int(node.attrs.get(name, 0)) for name in ("exclusive", "reverse"))
    longest = _LONGEST_FOLDED if x.is_constant else _LONGEST_SQUARE
    short = isinstance(extent, int) and extent <= longest
    if not short:
        return add_host(
            builder, node, operands, (axis, exclusive, reverse), [(x.dtype, shape_of(x))]
        )
    square = with_axis(builder, x, axis)
    target = positions(builder, extent, axis, x.rank + 1)
    source = positions(builder, extent, axis + 1, x.rank + 1)
    if reverse:
        target, source = source, target
    compare = builder.lt if exclusive else builder.le
    unit = builder.scalar(0 if node.op == "CumSum" else 1, x.dtype)
    masked = builder.select(compare(source, target), square, unit)
    fold = builder.reduce_sum if node.op == "CumSum" else builder.reduce_prod
    return [without_axes(builder, fold(masked, (axis + 1,)), (axis + 1,))]


_LONGEST_SQUARE = 32
"""Up to which an element of a square costs less than what a call of the host keeps from fusing."""
_LONGEST_FOLDED = 4096
"""The same for constants, whose square is computed once."""
