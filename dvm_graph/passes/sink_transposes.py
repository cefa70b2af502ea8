"""Moves transposes from channels-last to channels-first order behind what does not care for the order.

    Requires: basic operators with shapes. Ensures: no element-wise operator, reduction or concat reads
    transposes of this order alone, where its other operands follow for free.

    y = relu(transpose(x, (0, 3, 1, 2)) + bias)   =>   y = transpose(relu(x + bias'), (0, 3, 1, 2))

Convolutions and pools compute on channels-last images and transpose their results. Such a transpose
moves on until it meets the one before the next convolution; `simplify` cancels the two, and all between
stays channels-last.

Rank 4 only, and only this one order of the axes: other transposes stay where the model has them.
"""

from __future__ import annotations

from dvm_graph.ir import OPERATORS, Dim, Graph, Kind, Node, Value
from dvm_graph.symbolic import Answer, Facts
from dvm_graph.symbolic.builder import Builder

_TO_FIRST = (0, 3, 1, 2)
_TO_LAST = (0, 2, 3, 1)


def sink_transposes(graph: Graph, facts: Facts) -> bool:
    """True if some transpose moved."""
    builder = Builder(graph, facts)
    changed = False
    for node in graph.sorted_nodes():
        with builder.scope(node):
            result = _sunk(node, builder)
        if result is None:
            continue
        changed = True
        graph.replace_uses(node.output, result)
        above = [value.producer for value in node.inputs if value is not None]
        graph.remove(node)
        for transpose in above:
            if transpose is not None and _unused(graph, transpose):
                graph.remove(transpose)
    return changed


def _unused(graph: Graph, node: Node) -> bool:
    if node not in graph.digraph or node.op != "transpose":
        return False
    return not (graph.users(node.output) or graph.is_output(node.output))


def _sunk(node: Node, builder: Builder) -> Value | None:
    """The node's result as a transpose of what it computes channels-last."""
    if node.op == "concat":
        return _below_concat(node, builder)
    if node.op == "reshape":
        return _below_reshape(node, builder)
    match OPERATORS[node.op].kind:
        case Kind.MAP:
            return _below_map(node, builder)
        case Kind.REDUCE:
            return _below_reduce(node, builder)
    return None


def _source(value: Value) -> Value | None:
    """The channels-last value that this one is the transpose of."""
    node = value.producer
    if node is None or node.op != "transpose" or tuple(node.attrs["perm"]) != _TO_FIRST:
        return None
    return node.inputs[0]


def _below_map(node: Node, builder: Builder) -> Value | None:
    """Operands are such transposes, or keep their order of elements when transposed."""
    operands = [value for value in node.inputs if value is not None]
    if not any(_source(value) is not None for value in operands):
        return None
    moved = [_source(value) or _moved_for_free(value, builder) for value in operands]
    if any(value is None for value in moved):
        return None
    inner = builder.op(node.op, *[value for value in moved if value is not None], **node.attrs)
    return builder.transpose(inner, _TO_FIRST)


def _moved_for_free(value: Value, builder: Builder) -> Value | None:
    """A channels-first operand as channels-last, if only axes of extent 1 change places."""
    if value.rank == 0:
        return value
    if value.rank > 4 or value.shape is None:
        return None
    shape = (*(1,) * (4 - value.rank), *value.shape)
    order = [axis for axis in _TO_LAST if not _is_one(shape[axis], builder)]
    if order != sorted(order):
        return None
    return builder.reshape(value, tuple(shape[axis] for axis in _TO_LAST))


def _is_one(extent: Dim, builder: Builder) -> bool:
    if isinstance(extent, int):
        return extent == 1
    return builder.facts.prove_one(extent).answer is Answer.YES


def _below_reduce(node: Node, builder: Builder) -> Value | None:
    source = None if node.inputs[0] is None else _source(node.inputs[0])
    if source is None:
        return None
    axes = tuple(sorted(_TO_FIRST[axis] for axis in node.attrs["axes"]))
    return builder.transpose(builder.op(node.op, source, axes=axes), _TO_FIRST)


def _below_concat(node: Node, builder: Builder) -> Value | None:
    sources = [None if value is None else _source(value) for value in node.inputs]
    if any(source is None for source in sources):
        return None
    joined = builder.concat([s for s in sources if s is not None], _TO_FIRST[node.attrs["axis"]])
    return builder.transpose(joined, _TO_FIRST)


def _below_reshape(node: Node, builder: Builder) -> Value | None:
    """[n, c, h, w] to [n, c, h * w] becomes a transpose of [n, h * w, c]."""
    source = None if node.inputs[0] is None else _source(node.inputs[0])
    shape = node.output.shape
    if source is None or source.shape is None or shape is None or len(shape) != 3:
        return None
    batch, _, _, channels = source.shape
    if not builder.facts.prove_same_shape((batch, channels), shape[:2]).yes:
        return None
    return builder.transpose(builder.reshape(source, (batch, shape[2], channels)), (0, 2, 1))
