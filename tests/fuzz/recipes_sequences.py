"""Sequences and optionals: made of tensors, changed, and taken apart again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.fuzz.growth import DTYPES, Growth, RefusedError, Shape, Value
from tests.fuzz.registry import SEQUENCE, recipe

BOOL, INT64 = TensorProto.BOOL, TensorProto.INT64
SPLIT = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, INT64, BOOL, TensorProto.FLOAT16)
"""What onnxruntime splits."""


@recipe("SequenceConstruct", "SequenceEmpty", "SplitToSequence", kind=SEQUENCE)
def sequence(g: Growth, op: str) -> Value:
    made, items = _MADE[op](g)
    return taken_apart(g, made, items)


def made_somehow(g: Growth) -> tuple[Value, list[Value]]:
    """A sequence, and values of the types and shapes of what lies in it, of which there is something."""
    return g.choose(list(_MADE.values()))(g)


def _constructed(g: Growth) -> tuple[Value, list[Value]]:
    first = g.pick(DTYPES)
    items = [first, *(item_like(g, first) for _ in range(g.choose((0, 1, 2))))]
    return made_by(g, "SequenceConstruct", items, of=first), items


def _begun(g: Growth) -> tuple[Value, list[Value]]:
    x = g.pick(DTYPES)
    made = made_by(g, "SequenceInsert", [empty(g, x), x], of=x)
    return made, [x]


def empty(g: Growth, of: Value) -> Value:
    return made_by(g, "SequenceEmpty", [], {"dtype": of.dtype}, of=of)


def _split(g: Growth) -> tuple[Value, list[Value]]:
    x = g.ranked(SPLIT, 1, 4)
    axis = g.choose([a for a in range(x.rank) if x.fixed(a)])
    extent = x.at(axis)[0]
    if not extent:
        raise RefusedError
    keep, sizes, parts = 1, None, [1] * extent
    if g.chance(0.5):
        cut = g.rng.randint(0, extent)
        parts = [cut, extent - cut]
        sizes = g.extents(parts, g.choose((np.int64, np.int32)))
    elif g.chance(0.5):
        piece = g.rng.randint(1, extent)
        parts = [min(piece, extent - at) for at in range(0, extent, piece)]
        sizes = g.extents(piece)
    elif g.chance(0.5):
        keep = 0
    shapes = [
        tuple((*s[:axis], *((n,) if keep else ()), *s[axis + 1 :]) for s in x.shapes) for n in parts
    ]
    items = [Value("", x.dtype, shape) for shape in shapes]
    named = axis - x.rank if g.chance(0.3) else axis
    attributes = {"axis": named, "keepdims": keep}
    return made_by(g, "SplitToSequence", [x, sizes], attributes, of=x), items


_MADE = {"SequenceConstruct": _constructed, "SequenceEmpty": _begun, "SplitToSequence": _split}


@recipe("Optional", kind=SEQUENCE)
def optional(g: Growth) -> Value:
    if g.opset > 27:
        raise RefusedError  # onnxruntime has none
    if g.chance(0.3):
        held, items = made_somehow(g)
        made = optional_of(g, held)
        if g.chance(0.3):
            return g.add("OptionalHasElement", [made], [(BOOL, [()] * g.breadth)])[0]
        return taken_apart(g, made_by(g, "OptionalGetElement", [made], of=items[0]), items)
    x = g.pick(DTYPES)
    made = optional_of(g, x)
    if g.chance(0.4):
        return g.add("OptionalHasElement", [made], [(BOOL, [()] * g.breadth)])[0]
    return g.add("OptionalGetElement", [made], [(x.dtype, x.shapes)])[0]


def optional_of(g: Growth, x: Value, full: bool = True) -> Value:
    """An optional value that holds this one, or nothing of its type."""
    inner = x.holds or helper.make_tensor_type_proto(x.dtype, None)
    made = g.add(
        "Optional",
        [x] if full else [],
        [(0, [None] * g.breadth)],
        None if full else {"type": inner},
    )[0]
    return replace(made, holds=helper.make_optional_type_proto(inner))


def item_like(g: Growth, like: Value) -> Value:
    """Another element: of the same type, and half of the time of the same shapes."""
    if not like.known:
        raise RefusedError
    same = [v for v in g.values if v.dtype == like.dtype and v.known]
    if same and g.chance(0.5):
        return g.choose(same)
    return g.fresh(like.dtype, like.shapes)


def made_by(
    g: Growth,
    op: str,
    operands: Sequence[Value | None],
    attributes: dict[str, int] | None = None,
    *,
    of: Value,
) -> Value:
    """The sequence that a node makes, of elements of this one's type."""
    made = g.add(op, operands, [(0, [None] * g.breadth)], attributes)[0]
    return replace(made, holds=sequence_type(of.dtype))


def sequence_type(dtype: int) -> onnx.TypeProto:
    return helper.make_sequence_type_proto(helper.make_tensor_type_proto(dtype, None))


def taken_apart(g: Growth, made: Value, items: list[Value]) -> Value:
    """A tensor that a sequence holds or that is made of it, changed or not."""
    for _ in range(g.choose((0, 0, 1, 2))):
        place = g.rng.randrange(len(items))
        at = g.extents(
            place if g.chance(0.7) else place - len(items), g.choose((np.int64, np.int32))
        )
        if g.chance(0.5):
            new = item_like(g, items[0])
            made = made_by(g, "SequenceInsert", [made, new, at], of=new)
            items = [*items[:place], new, *items[place:]]
        elif len(items) > 1:
            made = made_by(g, "SequenceErase", [made, at], of=items[0])
            items = [*items[:place], *items[place + 1 :]]
    way = g.rng.random()
    if way < 0.15:
        return g.add("SequenceLength", [made], [(INT64, [()] * g.breadth)])[0]
    if way < 0.6:
        place = g.rng.randrange(len(items))
        at = g.extents(g.choose((place, place - len(items))), g.choose((np.int64, np.int32)))
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
