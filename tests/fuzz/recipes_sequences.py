"""Sequences and optionals: made of tensors, changed, and taken apart again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from tests.fuzz.growth import DTYPES, Growth, RefusedError, Shape, Value
from tests.fuzz.registry import SEQUENCE, recipe, types

INT64 = TensorProto.INT64
SPLIT = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, INT64)
"""What onnxruntime splits."""


@recipe("SequenceConstruct", kind=SEQUENCE, weight=2)
def sequence(g: Growth) -> Value:
    first = g.pick(types("SequenceAt", g.opset, 2) or DTYPES)
    items = [first, *(_item(g, first) for _ in range(g.choose((0, 1, 2))))]
    return _taken_apart(g, _made(g, "SequenceConstruct", items), items)


@recipe("SequenceEmpty", kind=SEQUENCE, weight=0.5)
def empty_sequence(g: Growth) -> Value:
    x = g.pick(DTYPES)
    made = _made(g, "SequenceEmpty", [], {"dtype": x.dtype})
    return _taken_apart(g, _made(g, "SequenceInsert", [made, x]), [x])


@recipe("SplitToSequence", kind=SEQUENCE)
def split(g: Growth) -> Value:
    x = g.ranked(SPLIT, 1, 4)
    axis = g.choose([a for a in range(x.rank) if x.fixed(a)])
    extent = x.at(axis)[0]
    if not extent:
        raise RefusedError
    keep, sizes, parts = 1, None, [1] * extent
    if g.chance(0.5):
        cut = g.rng.randint(0, extent)
        parts = [cut, extent - cut]
        sizes = g.integers(parts)
    elif g.chance(0.5):
        piece = g.rng.randint(1, extent)
        parts = [min(piece, extent - at) for at in range(0, extent, piece)]
        sizes = g.integers(piece)
    elif g.chance(0.5):
        keep = 0
    shapes = [
        tuple((*s[:axis], *((n,) if keep else ()), *s[axis + 1 :]) for s in x.shapes) for n in parts
    ]
    items = [Value("", x.dtype, shape) for shape in shapes]
    named = axis - x.rank if g.chance(0.3) else axis
    made = _made(g, "SplitToSequence", [x, sizes], {"axis": named, "keepdims": keep})
    return _taken_apart(g, made, items)


@recipe("Optional", kind=SEQUENCE)
def optional(g: Growth) -> Value:
    if g.opset > 27:
        raise RefusedError  # onnxruntime has none
    x = g.pick(DTYPES)
    made = _made(g, "Optional", [x])
    if g.chance(0.4):
        return g.add("OptionalHasElement", [made], [(TensorProto.BOOL, [()] * g.breadth)])[0]
    return g.add("OptionalGetElement", [made], [(x.dtype, x.shapes)])[0]


def _item(g: Growth, like: Value) -> Value:
    """Another element: of the same type, and half of the time of the same shapes."""
    same = [v for v in g.values if v.dtype == like.dtype and v.known]
    if same and g.chance(0.5):
        return g.choose(same)
    return g.fresh(like.dtype, like.shapes)


def _made(
    g: Growth, op: str, operands: Sequence[Value | None], attributes: dict[str, int] | None = None
) -> Value:
    return g.add(op, operands, [(0, [None] * g.breadth)], attributes)[0]


def _taken_apart(g: Growth, made: Value, items: list[Value]) -> Value:
    """A tensor that a sequence holds or that is made of it, changed or not."""
    for _ in range(g.choose((0, 0, 1, 2))):
        place = g.rng.randrange(len(items))
        at = g.integers(place if g.chance(0.7) else place - len(items))
        if g.chance(0.5):
            new = _item(g, items[0])
            made = _made(g, "SequenceInsert", [made, new, at])
            items = [*items[:place], new, *items[place:]]
        elif len(items) > 1:
            made = _made(g, "SequenceErase", [made, at])
            items = [*items[:place], *items[place + 1 :]]
    way = g.rng.random()
    if way < 0.15:
        return g.add("SequenceLength", [made], [(INT64, [()] * g.breadth)])[0]
    if way < 0.6:
        place = g.rng.randrange(len(items))
        at = g.integers(g.choose((place, place - len(items))), g.choose((np.int64, np.int32)))
        return g.add("SequenceAt", [made, at], [(items[place].dtype, items[place].shapes)])[0]
    rank = items[0].rank
    new_axis = int(g.chance(0.4))
    if new_axis:
        fitting = all(item.shapes == items[0].shapes for item in items)
        axis = g.rng.randint(0, rank)
    else:
        axis = g.rng.randrange(max(1, rank))
        fitting = rank > 0 and all(_joins(item, items[0], axis) for item in items)
    if not fitting:
        raise RefusedError
    shapes: list[Shape] = []
    for environment in range(g.breadth):
        parts = [item.shapes[environment] for item in items]
        first = parts[0] or ()
        extent = len(items) if new_axis else sum(p[axis] or 0 for p in parts if p)
        shapes.append((*first[:axis], extent, *first[axis + 1 - new_axis :]))
    attributes = {"axis": axis, "new_axis": new_axis}
    return g.add("ConcatFromSequence", [made], [(items[0].dtype, shapes)], attributes)[0]


def _joins(item: Value, other: Value, axis: int) -> bool:
    return item.rank == other.rank and all(
        item.at(a) == other.at(a) for a in range(item.rank) if a != axis
    )
