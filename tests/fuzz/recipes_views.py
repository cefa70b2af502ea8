"""Operators that move elements: views, joins and parts, gathers and scatters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper

from tests.fuzz.contents import Contents
from tests.fuzz.growth import DTYPES, FLOATS, INTEGERS, MOST_RANK, Growth, RefusedError, Value
from tests.fuzz.registry import GATHER, VIEW, recipe, types

INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)
INDICES = (7, 6)  # int64, int32


@recipe("Transpose", kind=VIEW, weight=4)
def transpose(g: Growth, x: Value | None = None) -> Value:
    x = x or g.ranked(types("Transpose", g.opset), 0)
    order = list(range(x.rank))
    g.rng.shuffle(order)
    if x.rank >= 2 and g.chance(0.4):
        order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    return g.emit("Transpose", [x], {"perm": order if order and g.chance(0.9) else None})


@recipe("Slice", kind=VIEW, weight=4)
def slice_(g: Growth, x: Value | None = None) -> Value:
    x = x or g.ranked(types("Slice", g.opset), 1)
    axes = g.some(range(x.rank), 1)
    starts, ends, steps = [], [], []
    for axis in axes:
        step = g.choose((1, 1, 1, 2, 3, -1, -1, -2)) if g.opset >= 10 else 1
        n = max(x.at(axis))
        low, high = sorted((g.rng.randint(0, n), g.rng.randint(0, n + 1)))
        if g.chance(0.4):
            low, high = 0, INT64_MAX
        if step < 0:
            start, end = (-1 if high == INT64_MAX else high), (INT64_MIN if low == 0 else low - 1)
        else:
            start, end = low, high
        if g.chance(0.2) and 0 < start <= n:
            start -= n
        if g.chance(0.2) and 0 < end <= n:
            end -= n
        starts.append(start), ends.append(end), steps.append(step)
    named = [a - x.rank if g.chance(0.2) else a for a in axes]
    plain = axes == list(range(len(axes))) and g.chance(0.3)
    stepped = g.opset >= 10 and (set(steps) != {1} or g.chance(0.2))
    params: dict[str, Any] = {
        "starts": starts,
        "ends": ends,
        "axes": None if plain and set(steps) == {1} else named,
        "steps": steps if stepped else None,
    }
    if g.opset >= 10:
        kind = np.int64
        if g.chance(0.25) and all(abs(end) < 2**31 for end in ends):
            kind = np.int32
        for name, numbers in params.items():
            told = g.extents if name in ("starts", "ends") else g.integers
            params[name] = None if numbers is None else told(numbers, kind)
    return g.emit("Slice", [x], params=params)


@recipe("Expand", kind=VIEW, weight=2)
def expand(g: Growth, x: Value | None = None) -> Value:
    x = x or g.pick(types("Expand", g.opset))
    if g.chance(0.3):
        other = g.pick(DTYPES, lambda v: v.rank <= 5)
        return g.emit("Expand", [x, g.emit("Shape", [other])])
    assert x.shape is not None
    target = [g.choose((1, 2, 3)) if all(e == 1 for e in x.at(a)) else 1 for a in range(x.rank)]
    if g.chance(0.3) and x.rank < 6:
        target = [g.choose((1, 2, 3)), *target]
    return g.emit("Expand", [x, g.extents(target)])


@recipe("Squeeze", kind=VIEW)
def squeeze(g: Growth, x: Value | None = None) -> Value:
    x = x or g.pick(types("Squeeze", g.opset), lambda v: v.rank >= 1)
    ones = [a for a in range(x.rank) if all(e == 1 for e in x.at(a))]
    if not ones:
        x = unsqueeze(g, x)
        ones = [a for a in range(x.rank) if all(e == 1 for e in x.at(a))]
    if g.chance(0.15):
        return g.emit("Squeeze", [x])
    axes = [a - x.rank if g.opset >= 11 and g.chance(0.3) else a for a in g.some(ones, 1)]
    return g.emit("Squeeze", [x], params={"axes": axes})


@recipe("Unsqueeze", kind=VIEW, weight=2)
def unsqueeze(g: Growth, x: Value | None = None) -> Value:
    x = x or g.pick(types("Unsqueeze", g.opset))
    count = g.choose((1, 1, 2))
    if x.rank + count > MOST_RANK:
        raise RefusedError
    axes = g.rng.sample(range(x.rank + count), count)
    if g.opset < 11 or g.chance(0.7):
        axes = sorted(axes)
    elif g.chance(0.5):
        axes = [a - x.rank - count for a in axes]
    return g.emit("Unsqueeze", [x], params={"axes": axes})


@recipe("Reshape", kind=VIEW, weight=4)
def reshape(g: Growth, x: Value | None = None) -> Value:
    x = x or g.ranked(types("Reshape", g.opset), 0)
    way = g.rng.random()
    if way < 0.15:
        return g.emit("Reshape", [x, g.extents([-1])])
    if way < 0.35 and x.rank >= 2:
        return g.lower_rank(x, x.rank - 1)
    if way < 0.55 and x.rank >= 1:
        return _divide_axis(g, x)
    if way < 0.75 and x.rank >= 1:
        return _by_shape(g, x)
    if len(set(x.shapes)) > 1:
        return g.emit("Reshape", [x, g.extents([0] * x.rank)])
    assert x.shape is not None
    target = _factors(g, math.prod(d or 0 for d in x.shape))
    if target and g.chance(0.5) and 0 not in target:
        target[g.rng.randrange(len(target))] = -1
    attributes = {"allowzero": 1} if 0 in target or g.chance(0.1) else {}
    return g.emit("Reshape", [x, g.extents(target)], attributes)


def _divide_axis(g: Growth, x: Value) -> Value:
    axis = g.rng.randrange(x.rank)
    tail = range(axis + 1, x.rank)
    if not all(x.fixed(a) for a in tail):
        raise RefusedError
    common = math.gcd(*x.at(axis))
    factors = [f for f in range(1, common + 1) if common % f == 0] or [1]
    factor = g.choose(factors)
    pair = [-1, factor] if g.chance(0.5) else [factor, -1]
    target = [0] * axis + pair + [x.at(a)[0] for a in tail]
    return g.emit("Reshape", [x, g.extents(target)])


def _by_shape(g: Growth, x: Value) -> Value:
    """To a shape computed with Shape, as exporters do."""
    shape = g.emit("Shape", [x])
    order = list(range(x.rank))
    g.rng.shuffle(order)
    parts = g.emit("Gather", [shape, g.integers(order)])
    if g.chance(0.3):
        parts = g.emit("Concat", [parts, g.extents([1])], {"axis": 0})
    return g.emit("Reshape", [x, parts], {"allowzero": g.choose((None, 1))})


def _factors(g: Growth, size: int) -> list[int]:
    if size == 0:
        return g.choose(([0, 3], [2, 0], [0]))
    target = []
    for _ in range(g.choose((0, 1, 2, 3))):
        factor = g.choose([f for f in range(1, size + 1) if size % f == 0][:12])
        target.append(factor)
        size //= factor
    return [*target, size]


@recipe("Flatten", kind=VIEW)
def flatten(g: Growth, x: Value | None = None) -> Value:
    x = x or g.pick(types("Flatten", g.opset))
    axis = g.rng.randint(0 if g.opset < 11 else -x.rank, x.rank)
    return g.emit("Flatten", [x], {"axis": axis})


@recipe("Identity", kind=VIEW, weight=0.3)
def identity(g: Growth, x: Value | None = None) -> Value:
    return g.emit("Identity", [x or g.pick(DTYPES)])


@recipe("Tile", kind=VIEW)
def tile(g: Growth, x: Value | None = None) -> Value:
    x = x or g.pick(types("Tile", g.opset))
    return g.emit("Tile", [x, g.extents([g.choose((1, 1, 2, 3, 0)) for _ in range(x.rank)])])


@recipe("Concat", kind=VIEW, weight=4)
def concat(g: Growth) -> Value:
    x = g.ranked(types("Concat", g.opset), 1)
    axis = g.rng.randrange(x.rank)
    parts = [x]
    for _ in range(g.choose((1, 1, 2, 3, 0))):
        same = [
            v
            for v in g.values
            if v.dtype == x.dtype and v.known and v.rank == x.rank and _joins(v, x, axis)
        ]
        if same and g.chance(0.7):
            parts.append(g.choose(same))
        else:
            extent = g.choose((0, 1, 2, 5, *x.at(axis)))
            shapes = [(*s[:axis], extent, *s[axis + 1 :]) for s in x.shapes]
            parts.append(g.fresh(x.dtype, shapes))
    g.rng.shuffle(parts)
    return g.emit(
        "Concat", parts, {"axis": axis - x.rank if g.opset >= 11 and g.chance(0.3) else axis}
    )


def _joins(left: Value, right: Value, axis: int) -> bool:
    return all(left.at(a) == right.at(a) for a in range(left.rank) if a != axis)


@recipe("Split", kind=VIEW, weight=2)
def split(g: Growth) -> Value:
    x = g.ranked(types("Split", g.opset), 1)
    axis = g.choose([a for a in range(x.rank) if x.fixed(a)] or range(x.rank))
    extent = x.at(axis)[0]
    count = g.choose((1, 2, 2, 3))
    named = axis - x.rank if g.opset >= 11 and g.chance(0.3) else axis
    if x.fixed(axis) and g.chance(0.6):
        cuts = sorted(g.rng.randint(0, extent) for _ in range(count - 1))
        sizes = np.diff([0, *cuts, extent]).tolist()
        return g.emit(
            "Split",
            [x],
            {"axis": named},
            {"split": g.extents(sizes) if g.opset >= 13 else sizes},
            outputs=count,
        )
    if g.opset >= 18:
        return g.emit("Split", [x], {"axis": named, "num_outputs": count}, outputs=count)
    return g.emit(
        "Split", [x], {"axis": named}, outputs=g.choose([c for c in (1, 2, 3) if extent % c == 0])
    )


@recipe("Pad", kind=VIEW, weight=2)
def pad(g: Growth) -> Value:
    x = g.ranked(types("Pad", g.opset), 1, 5)
    mode = g.choose(("constant", "constant", "reflect", "edge", "wrap"))
    if mode == "wrap" and g.opset < 19:
        mode = "edge"
    axes = None
    count = x.rank
    if g.opset >= 18 and g.chance(0.3):
        axes = g.some(range(x.rank), 1)
        count = len(axes)
    low = -1 if mode == "constant" else 0
    pads = [g.rng.randint(low, 2) if g.chance(0.6) else 0 for _ in range(2 * count)]
    value = g.rng.choice((None, 0, 1, -2))
    if g.opset < 11:
        return g.emit("Pad", [x], {"mode": mode, "pads": pads, "value": value and float(value)})
    operands: list[Value | None] = [x, g.extents(pads)]
    if value is not None:
        operands.append(g.fresh(x.dtype, ((),) * g.breadth))
    if axes is not None:
        operands += [None] * (3 - len(operands)) + [g.integers(axes)]
    return g.emit("Pad", operands, {"mode": mode})


@recipe("DepthToSpace", "SpaceToDepth", kind=VIEW)
def depth_to_space(g: Growth, op: str) -> Value:
    x = g.ranked(types(op, g.opset), 4, 4)
    block = g.choose((1, 2, 3))
    dims = (1,) if op == "DepthToSpace" else (2, 3)
    factor = block * block if op == "DepthToSpace" else block
    if any(e % factor for a in dims for e in x.at(a)):
        shapes = [tuple(d * factor if a in dims else d for a, d in enumerate(s)) for s in x.shapes]
        x = g.fresh(x.dtype, shapes)
    return g.emit(op, [x], {"blocksize": block, "mode": g.choose((None, "DCR", "CRD"))})


@recipe("Trilu", kind=VIEW)
def trilu(g: Growth) -> Value:
    x = g.ranked(types("Trilu", g.opset), 2)
    k = g.integers(g.rng.randint(-3, 3)) if g.chance(0.6) else None
    return g.emit("Trilu", [x, k], {"upper": g.choose((None, 0, 1))})


@recipe("Gather", kind=GATHER, weight=4)
def gather(g: Growth) -> Value:
    x = g.ranked(types("Gather", g.opset), 1, 6)
    axis = g.rng.randrange(x.rank)
    if 0 in x.at(axis):
        raise RefusedError
    index = _indices(g, x.at(axis), g.choose(((), (), (1,), (3,), (2, 2), None)))
    return g.emit(
        "Gather", [x, index], {"axis": axis - x.rank if g.opset >= 11 and g.chance(0.3) else axis}
    )


def _indices(
    g: Growth, extents: tuple[int, ...], shape: tuple[int, ...] | None, low: int = -1
) -> Value:
    """Indices of an axis: constants, inputs, or a value's remainder; negative ones where allowed."""
    dtype = g.choose(INDICES)
    whole = [v for v in g.values if v.dtype == 7 and v.known and v.rank <= 2]
    if shape is None and whole and len(set(extents)) == 1:
        valid = g.emit("Mod", [g.choose(whole), g.integers(extents[0])])
        return valid
    if shape is None:
        _, sizes = g.dim()
        shapes = [(n,) for n in sizes]
        shape = (2,)
    else:
        shapes = [shape] * g.breadth
    lows = tuple(low * e for e in extents) if g.opset >= 11 and g.chance(0.5) else (0,) * g.breadth
    return g.fresh(dtype, shapes, Contents(low=lows, high=extents))


@recipe("GatherElements", kind=GATHER, weight=2)
def gather_elements(g: Growth) -> Value:
    x = g.ranked(types("GatherElements", g.opset), 1, 5)
    axis = g.rng.randrange(x.rank)
    if 0 in x.at(axis):
        raise RefusedError
    extent = g.choose((1, 2, 5))
    shapes = [(*s[:axis], extent, *s[axis + 1 :]) for s in x.shapes]
    index = g.fresh(
        g.choose(INDICES), shapes, Contents(low=tuple(-e for e in x.at(axis)), high=x.at(axis))
    )
    return g.emit("GatherElements", [x, index], {"axis": axis})


@recipe("GatherND", kind=GATHER)
def gather_nd(g: Growth) -> Value:
    x = g.ranked(types("GatherND", g.opset), 1, 5)
    batch = g.rng.randint(0, min(1, x.rank - 1)) if g.opset >= 12 else 0
    depth = g.rng.randint(1, x.rank - batch)
    least = [min(x.at(batch + d)[e] for d in range(depth)) for e in range(g.breadth)]
    if 0 in least:
        raise RefusedError
    shapes = [(*s[:batch], *g_shape, depth) for s in x.shapes for g_shape in [(2,)]]
    index = g.fresh(7, shapes, Contents(low=(0,) * g.breadth, high=tuple(least)))
    return g.emit("GatherND", [x, index], {"batch_dims": batch if batch else None})


@recipe("ScatterElements", "Scatter", kind=GATHER)
def scatter_elements(g: Growth, op: str) -> Value:
    x = g.ranked(types(op, g.opset), 1, 5)
    axis = g.rng.randrange(x.rank)
    if any(0 in s for s in x.shapes):
        raise RefusedError
    reduction = g.choose((None, "none", "add", "mul", "max", "min")) if g.opset >= 16 else None
    extent = 1 if reduction in (None, "none") else 3
    shapes = [(*s[:axis], extent, *s[axis + 1 :]) for s in x.shapes]
    index = g.fresh(g.choose(INDICES), shapes, Contents(low=(0,) * g.breadth, high=x.at(axis)))
    updates = g.fresh(x.dtype, shapes)
    return g.emit(op, [x, index, updates], {"axis": axis, "reduction": reduction})


@recipe("ScatterND", kind=GATHER)
def scatter_nd(g: Growth) -> Value:
    x = g.ranked(types("ScatterND", g.opset), 1, 4)
    if any(0 in s for s in x.shapes):
        raise RefusedError
    shapes = [(1, 1)] * g.breadth
    index = g.fresh(7, shapes, Contents(low=(0,) * g.breadth, high=x.at(0)))
    updates = g.fresh(x.dtype, [(1, *s[1:]) for s in x.shapes])
    reduction = g.choose((None, "none", "add")) if g.opset >= 16 else None
    return g.emit("ScatterND", [x, index, updates], {"reduction": reduction})


@recipe("OneHot", kind=GATHER)
def one_hot(g: Growth) -> Value:
    depth = g.choose((1, 3, 5))
    shape = g.choose(((2,), (3, 2), ()))
    kind = g.choose((7, 7, 6, 1))
    index = g.fresh(
        kind, [shape] * g.breadth, Contents(low=(-depth,) * g.breadth, high=(depth,) * g.breadth)
    )
    values = g.constant(
        np.array([0.5, 2]).astype(
            helper.tensor_dtype_to_np_dtype(g.choose(types("OneHot", g.opset, 2)))
        )
    )
    many = g.extents(depth, g.choose((np.int64, np.int64, np.int32, np.float32)))
    return g.emit("OneHot", [index, many, values], {"axis": g.choose((None, -1, 0))})


@recipe("Compress", kind=GATHER)
def compress(g: Growth) -> Value:
    x = g.ranked(types("Compress", g.opset), 1, 4)
    axis = g.choose((None, *range(x.rank)))
    mask = g.fresh(9, [(g.choose((1, 2, 3)),)] * g.breadth)
    if not x.known:
        raise RefusedError
    if any(math.prod(s) < 3 if axis is None else s[axis] < 3 for s in x.shapes):
        raise RefusedError
    return g.emit("Compress", [x, mask], {"axis": axis})


@recipe("ReverseSequence", kind=GATHER)
def reverse_sequence(g: Growth) -> Value:
    x = g.ranked(types("ReverseSequence", g.opset), 2, 4)
    batch = g.choose((0, 1))
    lengths = g.fresh(
        7, [(s[batch],) for s in x.shapes], Contents(low=(1,) * g.breadth, high=x.at(1 - batch))
    )
    return g.emit("ReverseSequence", [x, lengths], {"batch_axis": batch, "time_axis": 1 - batch})


@recipe("Shape", "Size", kind=VIEW)
def shape(g: Growth, op: str) -> Value:
    x = g.pick(types(op, g.opset))
    attributes = {}
    if op == "Shape" and g.opset >= 15 and g.chance(0.5):
        attributes = {
            "start": g.rng.randint(-x.rank, x.rank),
            "end": g.rng.randint(-x.rank, x.rank + 1),
        }
    return g.emit(op, [x], attributes)


@recipe("NonZero", kind=GATHER, weight=0.5)
def non_zero(g: Growth) -> Value:
    return g.emit("NonZero", [g.pick(types("NonZero", g.opset), lambda v: v.rank >= 1)])


@recipe("Unique", kind=GATHER, weight=0.5)
def unique(g: Growth) -> Value:
    x = g.pick(types("Unique", g.opset), lambda v: v.rank >= 1)
    axis = g.choose((None, *range(x.rank)))
    return g.emit(
        "Unique", [x], {"axis": axis, "sorted": g.choose((0, 1, None))}, outputs=g.choose((1, 2, 4))
    )


@recipe("CenterCropPad", kind=VIEW)
def center_crop_pad(g: Growth) -> Value:
    x = g.ranked(types("CenterCropPad", g.opset), 1, 4)
    axes = g.some(range(x.rank), 1)
    target = g.integers([g.choose((1, 2, 5, 8)) for _ in axes])
    return g.emit("CenterCropPad", [x, target], {"axes": axes})


VIEWS: tuple[tuple[Callable[..., Value], int], ...] = (
    (transpose, 5),
    (slice_, 4),
    (reshape, 4),
    (expand, 2),
    (squeeze, 2),
    (unsqueeze, 2),
    (flatten, 1),
    (tile, 1),
    (identity, 1),
)


def view(g: Growth, x: Value) -> Value:
    """A view of a value, or the value where what was drawn does not fit it."""
    chosen = g.rng.choices([f for f, _ in VIEWS], [w for _, w in VIEWS])[0]
    try:
        return chosen(g, x)
    except RefusedError:
        return x


__all__ = ["view", "FLOATS", "INTEGERS"]
