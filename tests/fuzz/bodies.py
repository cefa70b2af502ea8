"""What bodies of `If`, `Loop` and `Scan` are made of: operands, what grows in them, and results.

A body reads values around it; names are unlike in all graphs of a model.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from tests.fuzz.growth import DTYPES, Growth, RefusedError, Shape, Value

BOOL = TensorProto.BOOL
DEPTH = 2
CARRIED = DTYPES


def not_too_deep(g: Growth) -> None:
    if g.depth >= DEPTH:
        raise RefusedError


def operand(body: Growth, dtype: int, shapes: list[Shape] | tuple[Shape | None, ...]) -> Value:
    """An input of a body."""
    value = Value(body.name("b"), dtype, tuple(shapes))
    body.values.append(value)
    return value


def grown(body: Growth) -> Value:
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


def alike(body: Growth, x: Value) -> Value:
    """A result of the type and shapes of another branch's."""
    if not x.known:
        raise RefusedError
    same = [v for v in body.values if v.dtype == x.dtype and v.shapes == x.shapes]
    start = body.choose(same) if same and body.chance(0.6) else body.fresh(x.dtype, x.shapes)
    return step(body, start)


def step(body: Growth, x: Value, other: Value | None = None) -> Value:
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


def made_inside(body: Growth, value: Value, *others: Value) -> Value:
    """The value, as one that the body makes: those around are no results of bodies, and onnxruntime leaves
    one of two results unwritten that are the same.
    """
    made = {name for node in body.nodes for name in node.output} - {v.name for v in others}
    return value if value.name in made else body.emit("Identity", [value])


def region_of(body: Growth, inputs: list[Value], outputs: list[Value]) -> onnx.GraphProto:
    made = [info(body, value) for value in outputs]
    return helper.make_graph(body.nodes, body.name("g"), [info(body, v) for v in inputs], made)


def info(body: Growth, value: Value) -> onnx.ValueInfoProto:
    """Without a shape, or with the extents that are the same everywhere; a Loop wants those of scalars."""
    if value.holds is not None:
        return helper.make_value_info(value.name, value.holds)
    if value.shapes == ((),) * body.breadth:
        return helper.make_tensor_value_info(value.name, value.dtype, ())
    if body.chance(0.5) or not value.known or body.dead:
        return helper.make_tensor_value_info(value.name, value.dtype, None)
    dims = [value.at(axis)[0] if value.fixed(axis) else None for axis in range(value.rank)]
    return helper.make_tensor_value_info(value.name, value.dtype, dims)


def condition(g: Growth) -> Value:
    found = [v for v in g.values if v.dtype == BOOL and all(s == () for s in v.shapes)]
    if found and g.chance(0.5):
        return g.choose(found)
    sizes = [v for v in g.values if v.known and v.rank >= 1]
    if sizes and g.chance(0.5):  # what branches in exported models hang on
        extent = g.emit("Gather", [g.emit("Shape", [g.choose(sizes)]), g.integers(0)])
        return g.emit("Less", [extent, g.integers(g.choose((1, 2, 5, 9)))])
    return g.fresh(BOOL, [()] * g.breadth)
