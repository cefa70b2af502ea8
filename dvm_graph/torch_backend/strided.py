"""Views of memory by sizes and strides, and what is written to them: of tensors that lie without gaps, as torch traced them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from dvm_graph.errors import UnsupportedError
from dvm_graph.ir import Value, shape_of
from dvm_graph.symbolic import Dim, add, product, sub
from dvm_graph.symbolic.dims import mul
from dvm_graph.torch_backend.layouts import inverse
from dvm_graph.torch_backend.scattering import written
from dvm_graph.torch_backend.translation import Translation, entry

aten = torch.ops.aten


@entry(aten.as_strided.default, view=True)
def _as_strided(
    t: Translation,
    x: Value,
    sizes: Sequence[Dim],
    strides: Sequence[Dim],
    offset: Dim | None = None,
) -> Value:
    b, flat = t.builder, _flat(t, x)
    begin = _begin(t, offset)
    if (lying := _lying(t, t.traced[1], t.traced[2], begin)) is not None:
        y = b.reshape(flat, [sizes[axis] for axis in lying])
        return b.transpose(y, inverse(lying))
    return b.gather(flat, _places(t, x, sizes, strides, begin), 0)


@entry(aten.as_strided_scatter.default)
def _as_strided_scatter(
    t: Translation,
    x: Value,
    source: Value,
    sizes: Sequence[Dim],
    strides: Sequence[Dim],
    offset: Dim | None = None,
) -> Value:
    """Where places meet, torch takes any of the elements."""
    b, order = t.builder, _order_in_memory(t)
    begin, source = _begin(t, offset), b.cast(source, x.dtype)
    if (lying := _lying(t, t.traced[2], t.traced[3], begin)) is not None:
        flat = b.transpose(source, lying)
    else:
        count = (product(sizes),)
        places = b.reshape(b.broadcast_to(_places(t, x, sizes, strides, begin), sizes), count)
        flat = written(t, _flat(t, x), 0, places, b.reshape(source, count), "none")
    y = b.reshape(flat, [shape_of(x)[axis] for axis in order])
    return b.transpose(y, inverse(order))


def _flat(t: Translation, x: Value) -> Value:
    """Elements of the (first) operand as they lie in memory."""
    return t.builder.reshape(t.builder.transpose(x, _order_in_memory(t)), (product(shape_of(x)),))


def _order_in_memory(t: Translation) -> list[int]:
    """Axes of the (first) operand from the outermost in memory on.

    Raises:
        UnsupportedError: there are gaps between its elements, for all that is known.
    """
    if not t.traced:
        raise UnsupportedError("how an operand lies is not known")
    order = _dense_order(t, t.traced[0].shape, t.traced[0].stride())
    if order is None:
        raise UnsupportedError("elements that do not lie side by side")
    return order


def _dense_order(t: Translation, shape: Sequence[Any], strides: Sequence[Any]) -> list[int] | None:
    """Axes from the outermost in memory on; None: they may leave gaps, or meet."""
    ones = [axis for axis, extent in enumerate(shape) if statically_known_true(extent == 1)]
    left = [axis for axis in range(len(shape)) if axis not in ones]
    order: list[int] = []
    step: Any = 1
    while left:
        inner = next((axis for axis in left if _same(t, strides[axis], step)), None)
        if inner is None:
            return None
        left.remove(inner)
        order.insert(0, inner)
        step = step * shape[inner]
    return ones + order


def _same(t: Translation, a: Any, b: Any) -> bool:
    """By what torch knows of sizes, or what is known of dims."""
    return statically_known_true(a == b) or t.builder.facts.same(*t.dims((a, b)))


def _begin(t: Translation, offset: Dim | None) -> Dim:
    """Of a view, counted from where the operand begins."""
    return 0 if offset is None else sub(offset, t.dims((t.traced[0].storage_offset(),))[0])


def _lying(
    t: Translation, sizes: Sequence[Any], strides: Sequence[Any], begin: Dim
) -> list[int] | None:
    """In which order the axes of a view lie that has all elements of an operand; None: it has others."""
    whole = begin == 0 and _same(t, math.prod(sizes), t.traced[0].numel())
    return _dense_order(t, sizes, strides) if whole else None


def _places(
    t: Translation, x: Value, sizes: Sequence[Dim], strides: Sequence[Dim], begin: Dim
) -> Value:
    """Of the elements of a view. Of memory that ends with the operand, torch has looked that they are there.

    Raises:
        UnsupportedError: they may be none of the operand's.
    """
    b, rank, elements = t.builder, len(sizes), product(shape_of(x))
    operand = t.traced[0]
    if not _same(t, operand.untyped_storage().nbytes(), operand.numel() * operand.itemsize):
        steps = [mul(sub(size, 1), stride) for size, stride in zip(sizes, strides, strict=True)]
        behind = sub(elements, reduce(add, steps, begin))
        if b.facts.bounds(begin)[0] < 0 or b.facts.bounds(behind)[0] < 1:
            raise UnsupportedError("a view of more than its operand")
    places = b.dims((begin,), ()) if not rank or begin != 0 else None
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        along = b.iota([size if at == axis else 1 for at in range(rank)], axis, 0, stride)
        places = along if places is None else b.add(places, along)
    assert places is not None
    return places
