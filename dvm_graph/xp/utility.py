"""Utility functions."""

from __future__ import annotations

from typing import TypeAlias

from dvm_graph.xp.array import Array, another
from dvm_graph.xp.axes import axes_of, axis_of
from dvm_graph.xp.buffer import lazy
from dvm_graph.xp.dtypes import bool as boolean
from dvm_graph.xp.elementwise import not_equal, subtract, truth
from dvm_graph.xp.manipulation import concat, part
from dvm_graph.xp.statistical import reduced

Axes: TypeAlias = "int | tuple[int, ...] | None"


@lazy
def all(x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    return reduced("reduce_min", truth(x), axes_of(axis, x.ndim), keepdims)


@lazy
def any(x: Array, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    return reduced("reduce_max", truth(x), axes_of(axis, x.ndim), keepdims)


@lazy
def diff(
    x: Array,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Array | None = None,
    append: Array | None = None,
) -> Array:
    place = axis_of(axis, x.ndim)
    given = [each for each in (prepend, x, append) if each is not None]
    x = concat(given, axis=place) if len(given) > 1 else another(x)
    for _ in range(n):
        extent = x.shape[place]
        later, earlier = part(x, place, 1, extent), part(x, place, 0, extent and extent - 1)
        x = not_equal(later, earlier) if x.dtype == boolean else subtract(later, earlier)
    return x
