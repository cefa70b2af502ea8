"""Manipulation functions: views, which are read in place by what fuses with them, and concats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from dvm_graph.errors import InputError, ShapeError
from dvm_graph.xp.array import Array, another
from dvm_graph.xp.axes import axes_of, axis_of
from dvm_graph.xp.buffer import OnHost, append, lazy
from dvm_graph.xp.promotion import as_array, as_arrays

Axes: TypeAlias = "int | tuple[int, ...]"


@lazy
def broadcast_to(x: Array, /, shape: tuple[int, ...]) -> Array:
    return append("broadcast_to", (as_array(x),), _extents(shape))


def broadcast_arrays(*arrays: Array) -> list[Array]:
    try:
        shape = np.broadcast_shapes(*(x.shape for x in arrays))
    except ValueError as error:
        raise ShapeError(str(error)) from error
    return [broadcast_to(x, shape) for x in arrays]


@lazy
def reshape(x: Array, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Array:
    extents = list(_extents(shape))
    if extents.count(-1) == 1:
        others = -math.prod(extents)
        if others == 0 or x.size % others:
            raise ShapeError(f"{x.size} elements do not make a shape {tuple(shape)}")
        extents[extents.index(-1)] = x.size // others
    if any(extent < 0 for extent in extents):
        raise InputError(f"{shape} is no shape")
    return append("reshape", (as_array(x),), extents)


def _extents(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, int | np.integer) else tuple(int(n) for n in shape)


@lazy
def permute_dims(x: Array, /, axes: tuple[int, ...]) -> Array:
    perm = [axis_of(axis, x.ndim) for axis in axes]
    if sorted(perm) != list(range(x.ndim)):
        raise InputError(f"{tuple(axes)} is no order of {x.ndim} axes")
    return append("transpose", (x,), perm)


def moveaxis(x: Array, source: Axes, destination: Axes, /) -> Array:
    sources, targets = axes_of(source, x.ndim), axes_of(destination, x.ndim)
    if len(sources) != len(targets):
        raise InputError(f"{len(sources)} axes to {len(targets)} places")
    order = [axis for axis in range(x.ndim) if axis not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return permute_dims(x, tuple(order))


def expand_dims(x: Array, /, axis: int = 0) -> Array:
    shape = list(x.shape)
    shape.insert(axis_of(axis, x.ndim + 1), 1)
    return reshape(x, tuple(shape))


def squeeze(x: Array, /, axis: Axes) -> Array:
    dropped = axes_of(axis, x.ndim)
    for each in dropped:
        if x.shape[each] != 1:
            raise InputError(f"axis {each} of shape {x.shape} is not of extent 1")
    return reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in dropped))


@lazy
def concat(arrays: tuple[Array, ...] | list[Array], /, *, axis: int | None = 0) -> Array:
    parts = as_arrays(*arrays)
    if axis is None:
        parts, axis = [reshape(part, (-1,) if part.size else (0,)) for part in parts], 0
    return append("concat", parts, (axis_of(axis, parts[0].ndim),))


def stack(arrays: tuple[Array, ...] | list[Array], /, *, axis: int = 0) -> Array:
    if not arrays:
        raise InputError("stack: of no arrays")
    if len({x.shape for x in arrays}) > 1:
        raise ShapeError(f"stack: of shapes {', '.join(str(x.shape) for x in arrays)}")
    place = axis_of(axis, arrays[0].ndim + 1)
    return concat([expand_dims(x, place) for x in arrays], axis=place)


def unstack(x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
    place = axis_of(axis, x.ndim)
    keys = [(*(slice(None),) * place, i) for i in range(x.shape[place])]
    return tuple(x[key] for key in keys)


@lazy
def flip(x: Array, /, *, axis: Axes | None = None) -> Array:
    turned = range(x.ndim) if axis is None else axes_of(axis, x.ndim)
    starts = [n - 1 if i in turned and n else 0 for i, n in enumerate(x.shape)]
    steps = [-1 if i in turned else 1 for i in range(x.ndim)]
    return append("slice", (x,), [*starts, *steps, *x.shape])


def roll(x: Array, /, shift: Axes, *, axis: Axes | None = None) -> Array:
    if axis is None:
        return reshape(roll(reshape(x, (x.size,)), shift, axis=0), x.shape)
    shifts = (shift,) if isinstance(shift, int) else tuple(shift)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    if len(shifts) != len(axes):
        shifts = shifts * len(axes) if len(shifts) == 1 else shifts
        axes = axes * len(shifts) if len(axes) == 1 else axes
    x = another(x)
    for by, each in zip(shifts, axes, strict=True):
        place = axis_of(each, x.ndim)
        cut = -by % x.shape[place] if x.shape[place] else 0
        if cut:
            x = concat([part(x, place, cut, x.shape[place]), part(x, place, 0, cut)], axis=place)
    return x


def part(x: Array, axis: int, start: int, stop: int) -> Array:
    """One axis cut down to the positions from `start` up to `stop`."""
    key = (*(slice(None),) * axis, slice(start, stop))
    return x[key]


@lazy
def repeat(x: Array, repeats: int | Array, /, *, axis: int | None = None) -> Array:
    if not isinstance(repeats, int):
        raise OnHost("how many elements there are hangs on values")
    if repeats < 0:
        raise InputError(f"repeat: {repeats} times")
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    place = axis_of(axis, x.ndim)
    before, behind = x.shape[: place + 1], x.shape[place + 1 :]
    spread = broadcast_to(reshape(x, (*before, 1, *behind)), (*before, repeats, *behind))
    return reshape(spread, (*before[:-1], before[-1] * repeats, *behind))


def tile(x: Array, repetitions: tuple[int, ...], /) -> Array:
    rank = max(x.ndim, len(repetitions))
    times = (1,) * (rank - len(repetitions)) + tuple(repetitions)
    shape = (1,) * (rank - x.ndim) + x.shape
    for axis in range(rank):  # one at a time: what is spread has an axis more
        if times[axis] != 1:
            x = reshape(x, (math.prod(shape[:axis]), 1, math.prod(shape[axis:])))
            x = broadcast_to(x, (x.shape[0], times[axis], x.shape[2]))
            shape = (*shape[:axis], shape[axis] * times[axis], *shape[axis + 1 :])
    return reshape(x, shape)
