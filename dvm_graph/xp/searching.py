"""Searching, sorting and set functions. Positions of extremes fuse; orders, and results whose extents hang on values, are numpy's."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from dvm_graph.errors import InputError
from dvm_graph.xp import dtypes
from dvm_graph.xp.array import Array
from dvm_graph.xp.axes import axes_of, axis_of
from dvm_graph.xp.buffer import OnHost, append, compute_on_host, lazy
from dvm_graph.xp.elementwise import equal, isnan, logical_or, not_equal, where
from dvm_graph.xp.manipulation import reshape
from dvm_graph.xp.promotion import as_array, cast
from dvm_graph.xp.statistical import reduced

Axes: TypeAlias = "int | tuple[int, ...] | None"


@lazy
def argmax(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    return _place_of("reduce_max", x, axis, keepdims)


@lazy
def argmin(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    return _place_of("reduce_min", x, axis, keepdims)


def _place_of(op: str, x: Array, axis: int | None, keepdims: bool) -> Array:
    """The first position of the extreme, which NaN is where there is any."""
    shape = x.shape
    if axis is None:
        x, place = reshape(x, (x.size,)), 0
    else:
        place = axis_of(axis, x.ndim)
    extent = x.shape[place]
    if not extent:
        raise InputError(f"nothing has no extreme: axis {place} of shape {x.shape}")
    if x.dtype == dtypes.bool:
        x = cast(x, dtypes.int32)
    wins = equal(x, append(op, (x,), (place,)))
    if x.dtype.kind == "f":
        wins = logical_or(wins, isnan(x))
    positions = append(
        "iota", (), (place, 0, 1, *(extent if i == place else 1 for i in range(x.ndim)))
    )
    first = reduced("reduce_min", where(wins, positions, extent), (place,), keepdims)
    return reshape(first, (1,) * len(shape)) if axis is None and keepdims else first


@lazy
def count_nonzero(x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    some = cast(not_equal(as_array(x), 0), dtypes.int64)
    return reduced("reduce_sum", some, axes_of(axis, x.ndim), keepdims)


@lazy
def nonzero(x: Array, /) -> tuple[Array, ...]:
    raise OnHost(_EXTENTS)


@lazy
def searchsorted(
    x1: Array,
    x2: Array,
    /,
    *,
    side: Literal["left", "right"] = "left",
    sorter: Array | None = None,
) -> Array:
    raise OnHost(_ORDER)


def sort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    result: Array = compute_on_host(_sort, x, axis, descending, stable, why=_ORDER)
    return result


def argsort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    result: Array = compute_on_host(_argsort, x, axis, descending, stable, why=_ORDER)
    return result


_ORDER = "no basic operator sorts"


def _sort(x: Any, axis: int, descending: bool, stable: bool) -> Any:
    ascending = np.sort(x, axis=axis, stable=stable)
    return np.flip(ascending, axis) if descending else ascending


def _argsort(x: Any, axis: int, descending: bool, stable: bool) -> Any:
    """Descending, that of the reversed array, reversed: so equal elements stay in order."""
    if not descending:
        return np.argsort(x, axis=axis, stable=stable)
    backwards = np.argsort(np.flip(x, axis), axis=axis, stable=stable)
    return x.shape[axis] - 1 - np.flip(backwards, axis)


class UniqueAll(NamedTuple):
    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    values: Array
    inverse_indices: Array


def unique_all(x: Array, /) -> UniqueAll:
    return UniqueAll(*compute_on_host(np.unique_all, x, why=_EXTENTS))


def unique_counts(x: Array, /) -> UniqueCounts:
    return UniqueCounts(*compute_on_host(np.unique_counts, x, why=_EXTENTS))


def unique_inverse(x: Array, /) -> UniqueInverse:
    return UniqueInverse(*compute_on_host(np.unique_inverse, x, why=_EXTENTS))


@lazy
def unique_values(x: Array, /) -> Array:
    raise OnHost(_EXTENTS)


_EXTENTS = "extents hang on values"
