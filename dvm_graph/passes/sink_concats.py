"""Moves concats behind the element-wise operators that use them.

    Requires: basic operators with shapes. Ensures: no concat is read by nothing but operators of which each
    could as well be computed part by part.

    y = concat(-x[4:], x[:4]) * concat(s, s)  =>  y = concat(-x[4:] * s, x[:4] * s)

A concat costs nothing where arithmetic produces its parts: they are stored in place. A part that is only
read would be copied, and the whole then be read again; rotary position embedding is made of such concats.
Behind an operator that needs the whole (a matrix product, a reduction) the concat stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from dvm_graph.ir import OPERATORS, RELAYOUTS, Dim, Graph, Kind, Node, Shape, Value
from dvm_graph.symbolic import Facts
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import add, product

_MOST_PARTS = 4
"""Each operator becomes as many as there are parts."""


def sink_concats(graph: Graph, facts: Facts) -> bool:
    """True if a concat was moved."""
    builder = Builder(graph, facts)
    waiting = [node for node in graph.sorted_nodes() if node.op == "concat"][::-1]
    changed = False
    while waiting:
        node = waiting.pop()
        if node not in graph or graph.is_output(node.output):
            continue
        users = tuple(graph.users(node.output))
        plans = [_divide(user, node, builder) for user in users]
        if not users or len(node.inputs) > _MOST_PARTS or None in plans:
            continue
        changed = True
        for user, axis in zip(users, plans, strict=True):
            assert axis is not None
            whole = _part_by_part(user, node, axis, builder)
            graph.replace_node(user, whole)
            if whole.producer is not None and whole.producer.op == "concat":
                waiting.append(whole.producer)
    return changed


def _divide(user: Node, concat: Node, builder: Builder) -> int | None:
    """The axis of the user's result that its parts lie along; None: it needs the whole."""
    axis: int = concat.attrs["axis"]
    rank = concat.output.rank
    match user.op:
        case "transpose":
            return tuple(user.attrs["perm"]).index(axis)
        case "reshape":
            return _same_axis(concat.output, axis, user.output, builder.facts)
    if OPERATORS[user.op].kind is not Kind.MAP:
        return None
    from_end = axis - rank
    sizes = _sizes(concat)
    for operand in user.inputs:
        if operand is not None and not _divisible(operand, from_end, sizes, builder):
            return None
    return user.output.rank + from_end


def _same_axis(source: Value, axis: int, result: Value, facts: Facts) -> int | None:
    """Where an axis is after a reshape that leaves it alone."""
    before, after = source.shape, result.shape
    assert before is not None and after is not None
    inner = product(before[axis + 1 :])
    for other in range(len(after)):
        if facts.same(after[other], before[axis]) and facts.same(
            product(after[other + 1 :]), inner
        ):
            return other
    return None


def _divisible(operand: Value, from_end: int, sizes: Sequence[Dim], builder: Builder) -> bool:
    """Parts of the operand cost nothing: it is in parts already, does not vary, or is read from
    memory anyhow.
    """
    shape = operand.shape
    assert shape is not None
    if _in_parts(operand, from_end, sizes, builder.facts) or not _varies(shape, from_end):
        return True
    if not builder.facts.same(shape[from_end], reduce(add, sizes, 0)):
        return False
    producer = operand.producer
    if producer is not None and producer.op == "concat":
        return False
    return _in_memory(operand, builder.graph)


def _varies(shape: Shape, from_end: int) -> bool:
    """Elements along the axis may differ. A concat may have an extent of 1 and parts all the same, of which
    all but one are empty: ask for those first.
    """
    return -from_end <= len(shape) and shape[from_end] != 1


def _in_parts(value: Value, from_end: int, sizes: Sequence[Dim], facts: Facts) -> bool:
    """The value is a concat of parts of these sizes."""
    node = value.producer
    if node is None or node.op != "concat" or node.attrs["axis"] - value.rank != from_end:
        return False
    own = _sizes(node)
    return facts.same_shape(own, sizes)


def _in_memory(value: Value, graph: Graph) -> bool:
    """Nothing computes the value in the kernel that uses it: it is given, or stored for a slice."""
    while value.producer is not None and value.producer.op in RELAYOUTS:
        if _sliced(value, graph):
            return True
        value = value.producer.required(0)
    if value.producer is None or value.producer.op in ("slice", "view"):
        return True
    return _sliced(value, graph) or graph.is_output(value)


def _sliced(value: Value, graph: Graph) -> bool:
    """A slice reads the value, maybe through other views."""
    return any(
        user.op == "slice" or (user.op in RELAYOUTS and _sliced(user.output, graph))
        for user in graph.users(value)
    )


def _part_by_part(user: Node, concat: Node, axis: int, builder: Builder) -> Value:
    """The concat of what the user makes of each part."""
    sizes = _sizes(concat)
    parts = []
    start: Dim = 0
    with builder.scope(user):
        for index, size in enumerate(sizes):
            parts.append(_part(user, concat, index, (start, size), axis, builder))
            start = add(start, size)
        return builder.concat(parts, axis)


def _part(
    user: Node, concat: Node, index: int, bounds: tuple[Dim, Dim], axis: int, builder: Builder
) -> Value:
    if user.op == "transpose":
        return builder.transpose(concat.required(index), user.attrs["perm"])
    if user.op == "reshape":
        shape = list(user.attrs["shape"])
        shape[axis] = bounds[1]
        return builder.reshape(concat.required(index), shape)
    from_end = axis - user.output.rank
    sizes = _sizes(concat)
    operands = [
        _piece(value, from_end, index, bounds, sizes, builder)
        for value in user.inputs
        if value is not None
    ]
    return builder.op(user.op, *operands, **user.attrs)


def _piece(
    value: Value,
    from_end: int,
    index: int,
    bounds: tuple[Dim, Dim],
    sizes: Sequence[Dim],
    builder: Builder,
) -> Value:
    """One part of an operand of an element-wise operator."""
    shape = value.shape
    assert shape is not None
    if _in_parts(value, from_end, sizes, builder.facts):
        assert value.producer is not None
        return value.producer.required(index)
    if not _varies(shape, from_end):
        return value
    starts: list[Dim] = [0] * len(shape)
    extents = list(shape)
    starts[from_end], extents[from_end] = bounds
    return builder.slice(value, starts, extents)


def _sizes(concat: Node) -> list[Dim]:
    axis: int = concat.attrs["axis"]
    return [value.shape[axis] for value in concat.inputs if value is not None and value.shape]
