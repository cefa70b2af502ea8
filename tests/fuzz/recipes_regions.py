"""`If`, `Loop` and `Scan`, whose bodies grow as graphs do and read values around them."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from tests.fuzz.bodies import (
    CARRIED,
    alike,
    condition,
    grown,
    made_inside,
    not_too_deep,
    operand,
    region_of,
    step,
)
from tests.fuzz.contents import Contents
from tests.fuzz.growth import Growth, RefusedError, Shape, Value
from tests.fuzz.registry import REGION, recipe
from tests.fuzz.straight import MOST_TURNS

BOOL, INT64 = TensorProto.BOOL, TensorProto.INT64


@recipe("If", kind=REGION, weight=1.5)
def if_(g: Growth) -> Value:
    not_too_deep(g)
    before = step(g, g.pick(CARRIED)) if g.chance(0.5) else None
    taken, other = g.inside(), g.inside()
    x = _of_neighbour(taken, before) if before else grown(taken)
    y = alike(other, x) if g.chance(0.8) else grown(other)
    if before and g.chance(0.5):
        y = _of_neighbour(other, before)
    if y.dtype != x.dtype or (g.opset < 11 and y.shapes != x.shapes):  # the standard wants it
        y = alike(other, x)
    shapes = x.shapes if x.shapes == y.shapes else [None] * g.breadth
    branches = {
        "then_branch": region_of(taken, [], [made_inside(taken, x)]),
        "else_branch": region_of(other, [], [made_inside(other, y)]),
    }
    result = g.add("If", [condition(g)], [(x.dtype, shapes)], branches)[0]
    for _ in range(g.choose((0, 0, 1, 2))):
        result = _of_neighbour(g, result)
    return result


def _of_neighbour(g: Growth, x: Value) -> Value:
    """What kernels compute of a value that another region, or the graph around, makes."""
    if x.known and g.chance(0.4):
        if x.rank and g.chance(0.5):
            operator = g.choose(("ReduceMax", "ReduceMin"))
            return g.emit(operator, [x], {"keepdims": 1} if g.opset >= 18 else {"axes": [-1]})
        if x.rank > 1 and x.dtype == TensorProto.FLOAT:
            right = [(extent, extent) for extent in x.at(-1)]
            return g.emit("MatMul", [x, g.fresh(x.dtype, right)])
    return step(g, x)


@recipe("Loop", kind=REGION)
def loop(g: Growth) -> Value:
    not_too_deep(g)
    x = g.pick(CARRIED)
    trips = [g.choose((0, 1, 2, 3))] * g.breadth
    if g.chance(0.3):
        trips = [g.choose((0, 1, 2, 3)) for _ in trips]
    most = g.fresh(INT64, [()] * g.breadth, Contents(low=tuple(trips), high=tuple(trips)))
    body = g.inside()
    number, go_on = (operand(body, dtype, [()] * g.breadth) for dtype in (INT64, BOOL))
    carried = operand(body, x.dtype, x.shapes)
    found = grown(body)
    last = None
    if g.chance(0.3):  # ends on its own
        last = g.choose((0, 1))
        ahead = body.emit("Less", [number, g.integers(last)])
    else:
        ahead = body.emit("Identity", [go_on])
    after = step(body, carried)
    runs = [n if last is None else min(n, last + 1) for n in trips]
    stacked: list[tuple[int, list[Shape | None]]] = []
    if g.chance(0.6) and found.known:
        shapes: list[Shape | None] = [None] * g.breadth  # over no turns, onnxruntime makes one up
        if all(runs):
            shapes = [(n, *s) for n, s in zip(runs, found.shapes, strict=True)]
        stacked = [(found.dtype, shapes)]
    results = [ahead, after, *([made_inside(body, found, after)] if stacked else [])]
    region = region_of(body, [number, go_on, carried], results)
    start = g.constant(np.array(True)) if g.chance(0.3) else None
    made = g.add("Loop", [most, start, x], [(x.dtype, x.shapes), *stacked], {"body": region})
    return made[-1]


@recipe("Scan", kind=REGION)
def scan(g: Growth) -> Value:
    not_too_deep(g)
    if g.opset < 9:
        return _scan_of_batches(g)
    x = g.ranked(CARRIED, 1, 4)
    if any(0 in s for s in x.shapes):
        raise RefusedError
    axis = g.rng.randrange(x.rank) if g.chance(0.4) else 0
    part = [(*s[:axis], *s[axis + 1 :]) for s in x.shapes]
    state = g.fresh(x.dtype, part if g.chance(0.6) else [()] * g.breadth)
    body = g.inside()
    before, item = operand(body, x.dtype, state.shapes), operand(body, x.dtype, part)
    after = step(body, before, item if state.shapes == item.shapes else None)
    found = grown(body)
    if not found.known:
        raise RefusedError
    region = region_of(body, [before, item], [after, made_inside(body, found, after)])
    along = g.rng.randint(0, found.rank) if g.chance(0.3) else 0
    pairs = zip(x.at(axis), found.shapes, strict=True)
    stacked = [(*s[:along], n, *s[along:]) for n, s in pairs if s is not None]
    attributes = {
        "body": region,
        "num_scan_inputs": 1,
        "scan_input_axes": [axis] if axis else None,
        "scan_output_axes": [along] if along or g.chance(0.2) else None,
        "scan_input_directions": g.choose((None, [0], [1])),
        "scan_output_directions": g.choose((None, [0], [1])),
    }
    results = [(x.dtype, state.shapes), (found.dtype, stacked)]
    return g.choose(g.add("Scan", [state, x], results, attributes))


def _scan_of_batches(g: Growth) -> Value:
    """As it was in opset 8: over the rows that each sequence of a batch has."""
    x = g.ranked(CARRIED, 2, 5)
    if any(0 in s for s in x.shapes):
        raise RefusedError
    batch, rows = x.at(0), x.at(1)
    if any(n * m > MOST_TURNS for n, m in zip(batch, rows, strict=True)):
        raise RefusedError
    part = [s[2:] for s in x.shapes]
    state = g.fresh(x.dtype, [(n, *s) for n, s in zip(batch, part, strict=True)])
    body = g.inside()
    before, item = operand(body, x.dtype, part), operand(body, x.dtype, part)
    after = step(body, before, item)
    found = made_inside(body, grown(body), after)
    if not found.known:
        raise RefusedError
    lengths = None
    if g.chance(0.5):
        some = Contents(low=(1,) * g.breadth, high=tuple(n + 1 for n in rows))
        lengths = g.fresh(INT64, [(n,) for n in batch], some)
    collected = [(n, m, *s) for n, m, s in zip(batch, rows, found.shapes, strict=True)]
    attributes = {
        "body": region_of(body, [before, item], [after, found]),
        "num_scan_inputs": 1,
        "directions": g.choose((None, [0], [1])),
    }
    results = [(x.dtype, state.shapes), (found.dtype, collected)]
    return g.choose(g.add("Scan", [lengths, state, x], results, attributes))
