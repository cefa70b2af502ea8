"""Statistical functions: reductions, and formulas of them. Cumulative ones, where each element waits for the one before, are numpy's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from dvm_graph.errors import InputError
from dvm_graph.xp import dtypes
from dvm_graph.xp.array import Array, DTypeObject, another
from dvm_graph.xp.axes import axes_of
from dvm_graph.xp.buffer import OnHost, append, lazy
from dvm_graph.xp.elementwise import divide, sqrt, square, subtract
from dvm_graph.xp.promotion import as_array, cast, dtype_of

Axes: TypeAlias = "int | tuple[int, ...] | None"


def reduced(op: str, x: Array, axes: Sequence[int], keepdims: bool) -> Array:
    """A reduction over axes that are counted from the front."""
    y = append(op, (x,), sorted(axes)) if axes else another(x)
    if keepdims or not axes:
        return y
    return append("reshape", (y,), [n for axis, n in enumerate(x.shape) if axis not in axes])


_SUMMED_IN = {"b": dtypes.int64, "i": dtypes.int64, "u": dtypes.uint64}
"""By the kind of dtype, where that is another one."""


@lazy
def sum(
    x: Array, /, *, axis: Axes = None, dtype: DTypeObject | None = None, keepdims: bool = False
) -> Array:
    return reduced("reduce_sum", _summed_in(x, dtype), axes_of(axis, x.ndim), keepdims)


@lazy
def prod(
    x: Array, /, *, axis: Axes = None, dtype: DTypeObject | None = None, keepdims: bool = False
) -> Array:
    return reduced("reduce_prod", _summed_in(x, dtype), axes_of(axis, x.ndim), keepdims)


def _summed_in(x: Array, dtype: DTypeObject | None) -> Array:
    """In the dtype asked for, or that of numpy: integers in 64 bits."""
    x = as_array(x)
    own = x.dtype
    target = _SUMMED_IN.get(own.kind, own) if dtype is None else dtype_of(dtype)
    return x if x.dtype == target else cast(x, target)


@lazy
def max(x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    return _extreme("reduce_max", x, axis, keepdims)


@lazy
def min(x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    return _extreme("reduce_min", x, axis, keepdims)


def _extreme(op: str, x: Array, axis: Axes, keepdims: bool) -> Array:
    axes = axes_of(axis, x.ndim)
    if not math.prod(x.shape[each] for each in axes):
        raise InputError(f"nothing has no extreme: axes {axes} of shape {x.shape}")
    return reduced(op, x, axes, keepdims)


@lazy
def mean(x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    wide, dtype = _widened(x)
    return _rounded(_mean(wide, axes_of(axis, x.ndim), keepdims), dtype)


@lazy
def var(
    x: Array, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False
) -> Array:
    wide, dtype = _widened(x)
    return _rounded(_variance(wide, axes_of(axis, x.ndim), correction, keepdims), dtype)


@lazy
def std(
    x: Array, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False
) -> Array:
    wide, dtype = _widened(x)
    return _rounded(sqrt(_variance(wide, axes_of(axis, x.ndim), correction, keepdims)), dtype)


def _mean(x: Array, axes: Sequence[int], keepdims: bool) -> Array:
    return divide(reduced("reduce_sum", x, axes, keepdims), _count(x, axes))


def _variance(x: Array, axes: Sequence[int], correction: float, keepdims: bool) -> Array:
    """The mean is subtracted first: squares of what is far from 0 would cancel."""
    total = reduced("reduce_sum", square(subtract(x, _mean(x, axes, True))), axes, keepdims)
    count = _count(x, axes) - correction
    return divide(total, count if count > 0 else 0.0)


def _widened(x: Array) -> tuple[Array, DTypeObject]:
    """What numbers are averaged in, and the dtype of their average: integers' as numpy has it; sums, squares and
    counts may leave the range of half floats.

    Raises:
        OnHost: of complex numbers, whose squares are those of their lengths.
    """
    x = as_array(x)
    if x.dtype.kind == "c":
        raise OnHost("kernels know no complex numbers")
    if x.dtype.kind in "biu":
        return cast(x, dtypes.float64), dtypes.float64
    wide = cast(x, dtypes.float32) if x.dtype in (dtypes.float16, dtypes.bfloat16) else x
    return wide, x.dtype


def _rounded(x: Array, dtype: DTypeObject) -> Array:
    return x if x.dtype == dtype else cast(x, dtype)


def _count(x: Array, axes: Sequence[int]) -> float:
    return float(math.prod(x.shape[axis] for axis in axes))


@lazy
def cumulative_sum(
    x: Array,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeObject | None = None,
    include_initial: bool = False,
) -> Array:
    raise OnHost(_IN_ORDER)


@lazy
def cumulative_prod(
    x: Array,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeObject | None = None,
    include_initial: bool = False,
) -> Array:
    raise OnHost(_IN_ORDER)


_IN_ORDER = "each element waits for the one before"
