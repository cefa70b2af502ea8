"""`If`, `Loop` and `Scan`, whose bodies grow as graphs do and read values around them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.fuzz.contents import Contents
from tests.fuzz.growth import FLOATS, INTEGERS, Growth, RefusedError, Shape, Value
from tests.fuzz.registry import REGION, recipe

BOOL, INT64 = TensorProto.BOOL, TensorProto.INT64
DEPTH = 2
CARRIED = (*FLOATS[:3], *INTEGERS[:2])


@recipe("If", kind=REGION, weight=1.5)
def if_(g: Growth) -> Value:
    _not_too_deep(g)
    before = _step(g, g.pick(CARRIED)) if g.chance(0.5) else None
    taken, other = g.inside(), g.inside()
    x = _of_neighbour(taken, before) if before else _grown(taken)
    y = _alike(other, x) if g.chance(0.8) else _grown(other)
    if before and g.chance(0.5):
        y = _of_neighbour(other, before)
    if y.dtype != x.dtype or (g.opset < 11 and y.shapes != x.shapes):  # the standard wants it
        y = _alike(other, x)
    shapes = x.shapes if x.shapes == y.shapes else [None] * g.breadth
    branches = {
        "then_branch": _region(taken, [], [_inside(taken, x)]),
        "else_branch": _region(other, [], [_inside(other, y)]),
    }
    result = g.add("If", [_condition(g)], [(x.dtype, shapes)], branches)[0]
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
    return _step(g, x)


def _condition(g: Growth) -> Value:
    found = [v for v in g.values if v.dtype == BOOL and all(s == () for s in v.shapes)]
    if found and g.chance(0.5):
        return g.choose(found)
    sizes = [v for v in g.values if v.known and v.rank >= 1]
    if sizes and g.chance(0.5):  # what branches in exported models hang on
        extent = g.emit("Gather", [g.emit("Shape", [g.choose(sizes)]), g.integers(0)])
        return g.emit("Less", [extent, g.integers(g.choose((1, 2, 5, 9)))])
    return g.fresh(BOOL, [()] * g.breadth)


@recipe("Loop", kind=REGION)
def loop(g: Growth) -> Value:
    _not_too_deep(g)
    x = g.pick(CARRIED)
    trips = [g.choose((0, 1, 2, 3))] * g.breadth
    if g.chance(0.3):
        trips = [g.choose((0, 1, 2, 3)) for _ in trips]
    most = g.fresh(INT64, [()] * g.breadth, Contents(low=tuple(trips), high=tuple(trips)))
    body = g.inside()
    number, go_on = (_operand(body, dtype, [()] * g.breadth) for dtype in (INT64, BOOL))
    carried = _operand(body, x.dtype, x.shapes)
    found = _grown(body)
    last = None
    if g.chance(0.3):  # ends on its own
        last = g.choose((0, 1))
        ahead = body.emit("Less", [number, g.integers(last)])
    else:
        ahead = body.emit("Identity", [go_on])
    step = _step(body, carried)
    runs = [n if last is None else min(n, last + 1) for n in trips]
    stacked: list[tuple[int, list[Shape | None]]] = []
    if g.chance(0.6) and found.known:
        shapes: list[Shape | None] = [None] * g.breadth  # over no turns, onnxruntime makes one up
        if all(runs):
            shapes = [(n, *s) for n, s in zip(runs, found.shapes, strict=True)]
        stacked = [(found.dtype, shapes)]
    results = [ahead, step, *([_inside(body, found, step)] if stacked else [])]
    region = _region(body, [number, go_on, carried], results)
    start = g.constant(np.array(True)) if g.chance(0.3) else None
    made = g.add("Loop", [most, start, x], [(x.dtype, x.shapes), *stacked], {"body": region})
    return made[-1]


@recipe("Scan", kind=REGION)
def scan(g: Growth) -> Value:
    _not_too_deep(g)
    if g.opset < 9:
        raise RefusedError
    x = g.ranked(CARRIED, 1, 4)
    if any(0 in s for s in x.shapes):
        raise RefusedError
    axis = g.rng.randrange(x.rank) if g.chance(0.4) else 0
    part = [(*s[:axis], *s[axis + 1 :]) for s in x.shapes]
    state = g.fresh(x.dtype, part if g.chance(0.6) else [()] * g.breadth)
    body = g.inside()
    before, item = _operand(body, x.dtype, state.shapes), _operand(body, x.dtype, part)
    after = _step(body, before, item if state.shapes == item.shapes else None)
    found = _grown(body)
    if not found.known:
        raise RefusedError
    region = _region(body, [before, item], [after, _inside(body, found, after)])
    stacked = [(n, *s) for n, s in zip(x.at(axis), found.shapes, strict=True)]
    attributes = {
        "body": region,
        "num_scan_inputs": 1,
        "scan_input_axes": [axis] if axis else None,
        "scan_input_directions": g.choose((None, [0], [1])),
        "scan_output_directions": g.choose((None, [0], [1])),
    }
    results = [(x.dtype, state.shapes), (found.dtype, stacked)]
    return g.choose(g.add("Scan", [state, x], results, attributes))


def _not_too_deep(g: Growth) -> None:
    if g.depth >= DEPTH:
        raise RefusedError


def _operand(body: Growth, dtype: int, shapes: list[Shape] | tuple[Shape | None, ...]) -> Value:
    """An input of a body."""
    value = Value(body.name("b"), dtype, tuple(shapes))
    body.values.append(value)
    return value


def _grown(body: Growth) -> Value:
    """Lets a few nodes grow; one of their results."""
    from tests.fuzz.operators import grow

    count = body.choose((1, 1, 2, 3))
    for _ in range(3 * count):
        if len(body.nodes) >= count:
            break
        before = len(body.nodes)
        try:
            grow(body)
        except RefusedError:
            made = {name for node in body.nodes[before:] for name in node.output}
            del body.nodes[before:]
            body.values = [value for value in body.values if value.name not in made]
    made = {name for node in body.nodes for name in node.output}
    return body.choose([v for v in body.values if v.name in made and v.dtype in CARRIED])


def _alike(body: Growth, x: Value) -> Value:
    """A result of the type and shapes of another branch's."""
    if not x.known:
        raise RefusedError
    same = [v for v in body.values if v.dtype == x.dtype and v.shapes == x.shapes]
    start = body.choose(same) if same and body.chance(0.6) else body.fresh(x.dtype, x.shapes)
    return _step(body, start)


def _step(body: Growth, x: Value, other: Value | None = None) -> Value:
    """Something of the same type and shapes."""
    same = [v for v in body.values if v.dtype == x.dtype and v.shapes == x.shapes]
    if other is None and same and body.chance(0.5):
        other = body.choose(same)
    if other is not None:
        try:
            return body.emit(body.choose(("Add", "Sub")), [x, other])
        except RefusedError:
            pass
    unary = body.choose(("Identity", "Neg", "Tanh", "Relu", "Abs"))
    try:
        return body.emit(unary, [x])
    except RefusedError:
        return body.emit("Identity", [x])


def _inside(body: Growth, value: Value, *others: Value) -> Value:
    """The value, as one that the body makes: those around are no results of bodies, and onnxruntime leaves
    one of two results unwritten that are the same.
    """
    made = {name for node in body.nodes for name in node.output} - {v.name for v in others}
    return value if value.name in made else body.emit("Identity", [value])


def _region(body: Growth, inputs: list[Value], outputs: list[Value]) -> onnx.GraphProto:
    made = [_info(body, value) for value in outputs]
    return helper.make_graph(body.nodes, body.name("g"), [_info(body, v) for v in inputs], made)


def _info(body: Growth, value: Value) -> onnx.ValueInfoProto:
    """Without a shape, or with the extents that are the same everywhere; a Loop wants those of scalars."""
    if value.shapes == ((),) * body.breadth:
        return helper.make_tensor_value_info(value.name, value.dtype, ())
    if body.chance(0.5) or not value.known or body.dead:
        return helper.make_tensor_value_info(value.name, value.dtype, None)
    dims = [value.at(axis)[0] if value.fixed(axis) else None for axis in range(value.rank)]
    return helper.make_tensor_value_info(value.name, value.dtype, dims)
