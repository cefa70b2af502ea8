"""Views of torch, parts of tensors, and what joins or repeats them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dvm_graph.errors import UnsupportedError
from dvm_graph.ir import DType, Value, shape_of
from dvm_graph.symbolic import Dim, add, neg, sub
from dvm_graph.symbolic.dims import mul
from dvm_graph.torch_backend.translation import Translation, axis_of, entry

aten, prims = torch.ops.aten, torch.ops.prims


@entry(
    *(aten.view.default, aten._unsafe_view.default, aten.reshape.default),
    *(aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims),
    view=True,
)
def _reshape(t: Translation, x: Value, *_: Any) -> Value:
    return t.builder.reshape(x, t.shape)


@entry(aten.clone.default, aten.lift_fresh_copy.default)
@entry(aten.alias.default, aten.detach.default, view=True)
def _same(_t: Translation, x: Value, **_: Any) -> Value:
    return x


@entry(aten.expand.default, view=True)
def _expand(t: Translation, x: Value, *_: Any, **__: Any) -> Value:
    return t.builder.broadcast_to(x, t.shape)


@entry(aten.permute.default, view=True)
def _permute(t: Translation, x: Value, order: Sequence[int]) -> Value:
    return t.builder.transpose(x, [axis % x.rank for axis in order])


@entry(aten.transpose.int, view=True)
def _transpose(t: Translation, x: Value, first: int, second: int) -> Value:
    order = list(range(x.rank))
    order[first], order[second] = order[second], order[first]
    return t.builder.transpose(x, order)


@entry(aten.t.default, view=True)
def _t(t: Translation, x: Value) -> Value:
    return t.builder.transpose(x, list(reversed(range(x.rank))))


@entry(aten.slice.Tensor, view=True)
def _slice(
    t: Translation, x: Value, axis: int = 0, start: Dim = None, end: Dim = None, step: int = 1
) -> Value:
    del end  # the result's shape says it
    return _part(t, x, axis, 0 if start is None else start, t.shape[axis], step)


def is_negative(t: Translation, number: Dim) -> bool:
    """Guards tell: torch looked at the sign where it matters.

    Raises:
        UnsupportedError: they don't.
    """
    if t.tells(lambda n: n < 0, number):
        return True
    if t.builder.facts.bounds(number)[0] < 0 and not t.tells(lambda n: n >= 0, number):
        raise UnsupportedError(f"{number} may be of either sign")
    return False


def _begin(t: Translation, extent: Dim, start: Dim) -> Dim:
    """Where a part begins: counted from the front, and inside."""
    if is_negative(t, start):
        outside = t.tells(lambda at, end: at + end < 0, start, extent)
        return 0 if outside else add(extent, start)
    return extent if t.tells(lambda at, end: at > end, start, extent) else start


def _part(t: Translation, x: Value, axis: int, start: Dim, size: Dim, step: int = 1) -> Value:
    axis %= x.rank
    start = _begin(t, shape_of(x)[axis], start)
    starts: list[Dim] = [0] * x.rank
    steps, sizes = [1] * x.rank, list(shape_of(x))
    starts[axis], steps[axis], sizes[axis] = start, step, size
    return t.builder.slice(x, starts, sizes, steps)


@entry(aten.select.int, view=True)
def _select(t: Translation, x: Value, axis: int, index: Dim) -> Value:
    return t.builder.reshape(_part(t, x, axis, index, 1), t.shape)


@entry(aten.diagonal.default, view=True)
def _diagonal(t: Translation, x: Value, offset: int = 0, first: int = 0, second: int = 1) -> Value:
    """Every (columns + 1)th element of a matrix."""
    first, second = first % x.rank, second % x.rank
    rest = [axis for axis in range(x.rank) if axis not in (first, second)]
    y = t.builder.transpose(x, (*rest, first, second))
    rows, columns = shape_of(y)[-2:]
    y = t.builder.reshape(y, (*shape_of(y)[:-2], mul(rows, columns)))
    start = offset if offset >= 0 else mul(-offset, columns)
    return _part(t, y, -1, start, t.shape[-1], add(columns, 1))


@entry(aten.slice_scatter.default)
def _slice_scatter(
    t: Translation,
    x: Value,
    source: Value,
    axis: int = 0,
    start: Dim = None,
    end: Dim = None,
    step: int = 1,
) -> Value:
    """What lies before and behind the part is left, and what lies between its elements."""
    del end  # the source's shape says it
    b, source = t.builder, t.value(source, x.dtype)
    axis %= x.rank
    extent, size = shape_of(x)[axis], shape_of(source)[axis]
    start = _begin(t, extent, 0 if start is None else start)
    behind = add(start, size)
    rest = sub(extent, behind)
    inside = t.tells(lambda size, end: size >= end, extent, behind)
    if step == 1 and (inside or b.facts.bounds(rest)[0] >= 0):
        before = [] if start == 0 else [_part(t, x, axis, 0, start)]
        after = [] if rest == 0 else [_part(t, x, axis, behind, rest)]
        return b.concat([*before, source, *after], axis)
    along = tuple(extent if at == axis else 1 for at in range(x.rank))
    place = b.iota(along, axis, neg(start))
    number = b.div(place, b.scalar(step, DType.INT64))
    between = b.ne(b.mul(number, b.scalar(step, DType.INT64)), place)
    return _replaced(t, x, source, axis, number, between)


@entry(aten.diagonal_scatter.default)
def _diagonal_scatter(
    t: Translation, x: Value, source: Value, offset: int = 0, first: int = 0, second: int = 1
) -> Value:
    """Each row's element, a column of which the source is, where the row and the column are as far apart as the offset."""
    b, first, second = t.builder, first % x.rank, second % x.rank
    order = [axis for axis in range(x.rank) if axis not in (first, second)] + [first, second]
    y, source = b.transpose(x, order), t.value(source, x.dtype)
    rows, columns = shape_of(y)[-2:]
    source = b.reshape(source, (*shape_of(source), 1))
    row, column = b.iota((rows, 1), 0, min(offset, 0)), b.iota((columns,), 0, min(-offset, 0))
    y = _replaced(t, y, source, x.rank - 2, row, b.ne(row, column))
    return b.transpose(y, sorted(range(x.rank), key=order.__getitem__))


def _replaced(
    t: Translation, x: Value, source: Value, axis: int, number: Value, left: Value
) -> Value:
    """By elements of the source, the numbers of which along an axis there are for each of its places. What is `left` stays, and
    what has a number that there is not.
    """
    b, shape = t.builder, shape_of(source)
    nothing = b.scalar(0, DType.INT64)
    outside = b.bitwise_or(b.lt(number, nothing), b.ge(number, b.dims((shape[axis],), ())))
    if b.facts.bounds(shape[axis])[0] < 1:  # there has to be something to read
        filler = b.broadcast_to(b.scalar(0, x.dtype), (*shape[:axis], 1, *shape[axis + 1 :]))
        source = b.concat([source, filler], axis)
    places = b.reshape(b.select(outside, nothing, number), (shape_of(x)[axis],))
    found = b.gather(source, places, axis)
    return b.select(b.bitwise_or(left, outside), x, found)


@entry(aten.unfold.default, view=True)
def _unfold(t: Translation, x: Value, axis: int, size: int, step: int) -> Value:
    b = t.builder
    if x.rank == 0:
        return b.reshape(x, t.shape)
    axis %= x.rank
    windows = (t.shape[axis], size)
    places = b.add(b.iota(windows, 0, 0, step), b.iota(windows, 1))
    taken = b.gather(x, places, axis)
    axes = [at for at in range(taken.rank) if at != axis + 1]
    return b.transpose(taken, [*axes, axis + 1])


@entry(aten.flip.default)
def _flip(t: Translation, x: Value, axes: Sequence[int]) -> Value:
    turned = {axis_of(x, axis) for axis in axes}
    starts = [sub(extent, 1) if axis in turned else 0 for axis, extent in enumerate(shape_of(x))]
    steps = [-1 if axis in turned else 1 for axis in range(x.rank)]
    return t.builder.slice(x, starts, shape_of(x), steps)


@entry(
    *(aten.split_with_sizes.default, aten.split.Tensor, aten.unbind.int),
    view=True,
)
def _split(t: Translation, x: Value, *arguments: Any) -> list[Value]:
    unbind = t.target is aten.unbind.int
    axis = (arguments[-1] if len(arguments) > 1 - unbind else 0) % x.rank
    shapes = [t.dims(meta.shape) for meta in t.meta]
    results, start = [], 0
    for shape in shapes:
        size = 1 if unbind else shape[axis]
        results.append(t.builder.reshape(_part(t, x, axis, start, size), shape))
        start = add(start, size)
    return results


@entry(aten.cat.default)
def _cat(t: Translation, parts: Sequence[Value], axis: int = 0) -> Value:
    # torch leaves out vectors of no elements, whatever the rank of the others
    rank = len(t.shape)
    kept = [t.value(part, t.dtype) for part in parts if part.rank == rank]
    return t.builder.concat(kept, axis)


@entry(aten.repeat.default)
def _repeat(t: Translation, x: Value, repeats: Sequence[Dim]) -> Value:
    shape = (1,) * (len(repeats) - x.rank) + shape_of(x)
    spread = [dim for pair in zip(repeats, shape, strict=True) for dim in pair]
    ones = [dim for extent in shape for dim in (1, extent)]
    return t.builder.reshape(t.builder.broadcast_to(t.builder.reshape(x, ones), spread), t.shape)


@entry(aten.constant_pad_nd.default)
def _pad(t: Translation, x: Value, pads: Sequence[Dim], number: float = 0) -> Value:
    """Pads come in pairs, from the last axis on; those below 0 cut off."""
    filler = t.value(number, x.dtype)
    for axis, (before, behind) in enumerate(zip(pads[::2], pads[1::2], strict=True)):
        at = x.rank - 1 - axis
        cut = [is_negative(t, pad) for pad in (before, behind)]
        front, back = (
            sub(0, pad) if off else 0 for pad, off in zip((before, behind), cut, strict=True)
        )
        x = _part(t, x, at, front, sub(shape_of(x)[at], add(front, back)))
        shape = shape_of(x)
        first, last = (
            [t.builder.broadcast_to(filler, (*shape[:at], pad, *shape[at + 1 :]))]
            if pad != 0 and not off
            else []
            for pad, off in zip((before, behind), cut, strict=True)
        )
        x = t.builder.concat([*first, x, *last], at)
    return x
