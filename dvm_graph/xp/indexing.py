"""Parts of arrays: `x[...]`, `x[...] = y`, `take` and `take_along_axis`.

Slices and numbers are views; integer arrays of rank 0, or one of any rank, are gathers: their values are not looked at
before they run, and those out of range are errors then. Masks, whose results' extents hang on values, and several
integer arrays at once are numpy's. Assignments make a new value: of slices a concat, under a mask a choice.
"""

from __future__ import annotations

import math
import operator
from types import EllipsisType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dvm_graph.errors import InputError
from dvm_graph.xp import dtypes
from dvm_graph.xp.array import Array, Operand, another
from dvm_graph.xp.axes import OutOfRange, axis_of
from dvm_graph.xp.buffer import OnHost, append, compute_on_host, lazy
from dvm_graph.xp.elementwise import add, less, multiply, where
from dvm_graph.xp.manipulation import broadcast_to, concat, expand_dims, reshape
from dvm_graph.xp.promotion import as_array, cast, converted

Index: TypeAlias = "int | slice | EllipsisType | Array | None"


_VIEWS = frozenset({int, slice, EllipsisType, type(None)})
"""Of keys that need no look: the usual ones."""


class Cut(NamedTuple):
    """What an index keeps of an axis."""

    start: int
    step: int
    size: int
    dropped: bool
    """One position, and the axis goes."""
    positions: Array | None = None
    """Of the positions that are gathered, out of all."""


def part(x: Array, key: Any) -> Array:
    """`x[key]`.

    Raises:
        InputError: too many indices, or one out of range or of a wrong type.
    """
    keys = _keys(key)
    try:
        return _lazy_part(x, keys)
    except OnHost as reason:
        result: Array = compute_on_host(operator.getitem, x, tuple(keys), why=str(reason))
        return result


def _lazy_part(x: Array, keys: list[Index]) -> Array:
    cuts, whole, given = _cuts(x, keys), x.shape, x
    found = [cut for cut in cuts if cut is not None]
    sizes = tuple([cut.size for cut in found])
    plan = [cut.start for cut in found] + [cut.step for cut in found]
    if sizes != whole or plan != [0] * len(whole) + [1] * len(whole):
        x = append("slice", (x,), (*plan, *sizes))
    kept = [cut for cut in cuts if cut is None or not cut.dropped]
    shape = tuple([1 if cut is None else cut.size for cut in kept])
    if shape != sizes:
        x = append("reshape", (x,), shape)
    for axis in range(len(kept) - 1, -1, -1):  # the last first: those before stay where they are
        cut = kept[axis]
        if cut is not None and cut.positions is not None:
            x = append("gather", (x, _positions(cut.positions)), (axis,))
    return another(x) if x is given else x


def _positions(index: Array) -> Array:
    return index if index.dtype == dtypes.int64 else cast(index, dtypes.int64)


def _keys(key: Any) -> list[Index]:
    keys = list(key) if isinstance(key, tuple) else [key]
    return [as_array(np.asarray(k)) if isinstance(k, list | np.ndarray) else k for k in keys]


def _cuts(x: Array, keys: list[Index]) -> list[Cut | None]:
    """What is kept of each axis, in order, and None for each new one.

    Raises:
        OnHost: the result is numpy's.
    """
    shape = x.shape
    if not _VIEWS.issuperset(map(type, keys)):
        _look(keys)
    rests = [at for at, key in enumerate(keys) if key is ...]
    if len(rests) > 1:
        raise InputError("an index has one ... at most")
    places = len(keys) - len(rests) - sum([key is None for key in keys])
    if places > len(shape):
        raise OutOfRange(f"{places} indices into an array of rank {len(shape)}")
    at = rests[0] if rests else len(keys)
    keys = [*keys[:at], *[slice(None)] * (len(shape) - places), *keys[at + 1 :]]
    extents = iter(shape)
    return [None if key is None else _cut(key, next(extents)) for key in keys]


def _look(keys: list[Index]) -> None:
    arrays = [key for key in keys if isinstance(key, Array)]
    if any(key.dtype.kind not in "iu" or key.dtype == dtypes.uint64 for key in arrays):
        raise OnHost("extents hang on the values of a mask")
    wide = [key for key in arrays if key.ndim]
    whole = any(isinstance(key, bool | np.bool_) for key in keys)
    alone = len(arrays) == 1 and not any(_is_number(key) for key in keys)
    if whole or (wide and not alone):
        raise OnHost("several integer arrays at once")


def _is_number(key: Any) -> bool:
    return not isinstance(key, Array) and hasattr(key, "__index__")


def _cut(key: Index, extent: int) -> Cut:
    if isinstance(key, Array):
        return Cut(0, 1, extent, False, key)
    if isinstance(key, slice):
        try:
            start, stop, step = key.indices(extent)
        except (TypeError, ValueError) as error:
            raise InputError(f"{key}: {error}") from error
        size = len(range(start, stop, step))
        return Cut(start if size else 0, step if size > 1 else 1, size, False)
    try:
        place = operator.index(key)  # type: ignore[arg-type]  # looked at here
    except TypeError as error:
        raise InputError(f"{key!r:.50} is no index") from error
    if not -extent <= place < extent:
        raise OutOfRange(f"index {place} is out of range for an axis of extent {extent}")
    return Cut(place % extent, 1, 1, True)


def replaced(x: Array, key: Any, value: Operand) -> Array:
    """`x` with `value` in the place of `x[key]`.

    Raises:
        InputError: what `part` raises, or the value does not fit there.
    """
    keys = _keys(key)
    given = converted(as_array(value), x.dtype)
    try:
        return _lazily_replaced(x, keys, given)
    except OnHost as reason:
        result: Array = compute_on_host(_assigned, x, tuple(keys), given, why=str(reason))
        return result


def _assigned(x: Any, keys: Any, value: Any) -> Any:
    elements = x.copy()
    elements[keys] = value
    return elements


def _lazily_replaced(x: Array, keys: list[Index], value: Array) -> Array:
    (mask, *others) = keys if keys else (...,)
    if isinstance(mask, Array) and mask.dtype == dtypes.bool and not others and not value.ndim:
        if mask.shape != x.shape[: mask.ndim]:
            raise InputError(f"a mask of shape {mask.shape} over one of {x.shape}")
        for _ in range(x.ndim - mask.ndim):
            mask = expand_dims(mask, mask.ndim)
        return where(mask, value, x)
    found = _cuts(x, keys)
    cuts = [cut for cut in found if cut is not None]
    if len(cuts) < len(found) or any(cut.positions is not None or cut.step != 1 for cut in cuts):
        raise OnHost("places that are no block")
    shape = tuple(cut.size for cut in cuts if not cut.dropped)
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = reshape(value, value.shape[1:])
    value = broadcast_to(value, shape)
    return _with_block(x, cuts, 0, reshape(value, tuple(cut.size for cut in cuts)))


def _with_block(x: Array, cuts: list[Cut], axis: int, value: Array) -> Array:
    """`x` with a block replaced by `value`, from this axis on."""
    while axis < x.ndim and cuts[axis].size == x.shape[axis]:
        axis += 1
    if axis == x.ndim:
        return value
    cut = cuts[axis]
    around = (slice(None),) * axis
    stop = cut.start + cut.size
    before, inside, behind = (
        part(x, (*around, piece))
        for piece in (slice(0, cut.start), slice(cut.start, stop), slice(stop, None))
    )
    parts = [before, _with_block(inside, cuts, axis + 1, value), behind]
    return concat([piece for piece in parts if piece.shape[axis]] or [x], axis=axis)


@lazy
def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
    if axis is None:
        if x.ndim != 1:
            raise InputError(f"take: an array of rank {x.ndim} needs an axis")
        axis = 0
    if not isinstance(indices, Array):
        indices = as_array(indices)
    if indices.dtype.kind not in "iu":
        raise InputError(f"take: {indices.dtype} is no dtype of indices")
    return append("gather", (x, _positions(indices)), (axis_of(axis, x.ndim),))


@lazy
def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
    """A gather from the elements in a row: the places of other axes are those of the indices."""
    place = axis_of(axis, x.ndim)
    if indices.ndim != x.ndim or indices.dtype.kind not in "iu":
        raise OnHost("what numpy has to say")
    try:
        outer = np.broadcast_shapes(_without(x.shape, place), _without(indices.shape, place))
    except ValueError as error:
        raise InputError(f"take_along_axis: {error}") from error
    x = broadcast_to(x, (*outer[:place], x.shape[place], *outer[place + 1 :]))
    extent = x.shape[place]
    if not extent or not x.size:
        raise OnHost("nothing to take from")
    index = _positions(indices)
    index = where(less(index, 0), add(index, extent), index)
    steps = [math.prod(x.shape[each + 1 :]) for each in range(x.ndim)]
    index = multiply(index, steps[place])
    for each, step in enumerate(steps):
        if each != place:
            shape = tuple(n if i == each else 1 for i, n in enumerate(x.shape))
            index = add(index, append("iota", (), (each, 0, step, *shape)))
    return append("gather", (reshape(x, (x.size,)), index), (0,))


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], 1, *shape[axis + 1 :])
