"""Exact rewrites of basic operators: every element keeps its bits (NaN payloads aside).

    Requires: basic operators with shapes. Ensures: no rule of `_RULES` applies any more.

    a = transpose(x, (1, 0)); b = transpose(a, (1, 0)); return b / 8.0   =>   return x * 0.125

A rule looks at one operator and its operands and gives a value that may stand for its result, or None.
Rules that would reassociate or change a domain (log(exp(x)), x + 0.0 for x = -0.0) are not here.

What the rules are for, besides doing less: scalar arithmetic moves before the views it follows, so
that it meets the operator that produced the data and not the view.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dvm_graph.ir import OPERATORS, RELAYOUTS, DType, Graph, Kind, Node, Value, shape_of
from dvm_graph.symbolic import Facts
from dvm_graph.symbolic.builder import Builder

_Rule = Callable[[Node, Builder], Value | None]


def simplify(graph: Graph, facts: Facts) -> bool:
    """True if something changed."""
    builder = Builder(graph, facts)
    waiting = graph.sorted_nodes()[::-1]
    queued = set(waiting)
    changed = False
    while waiting:
        node = waiting.pop()
        queued.discard(node)
        if node not in graph:
            continue
        result = _rewrite(node, builder)
        if result is None:
            continue
        changed = True
        affected = [*graph.users(node.output)]
        graph.replace_node(node, result)
        affected += _made(result)
        for other in affected:
            if other not in queued:
                queued.add(other)
                waiting.append(other)
    return changed


def _made(result: Value) -> list[Node]:
    """The operators that a rule may have built."""
    if result.producer is None:
        return []
    below = [v.producer for v in result.producer.inputs if v is not None]
    return [result.producer, *(node for node in below if node is not None)]


def _rewrite(node: Node, builder: Builder) -> Value | None:
    rules = _RULES.get(node.op)
    if rules is None:
        return None
    with builder.scope(node):
        for rule in rules:
            result = rule(node, builder)
            if result is not None and result.shape != node.output.shape:
                # Operands may add axes of 1.
                result = builder.broadcast_to(result, shape_of(node.output))
            if result is not None:
                return result
    return None


# -- what rules ask


def _number(value: Value) -> Any | None:
    """The number that a constant of one element holds."""
    if value.data is None or value.data.size != 1:
        return None
    return value.data.reshape(-1)[0].item() if value.dtype is not DType.BFLOAT16 else None


def _same_shape(value: Value, node: Node, builder: Builder) -> bool:
    if value.shape is None or node.output.shape is None:
        return False
    return builder.facts.same_shape(value.shape, node.output.shape)


# -- arithmetic


def _drop_neutral(neutral: float, sides: tuple[int, ...], integers_only: bool = False) -> _Rule:
    """`x op neutral` is x; a zero of the other sign is another number."""

    def rule(node: Node, builder: Builder) -> Value | None:
        if integers_only and not node.output.dtype.is_integer:
            return None
        for side in sides:
            kept, number = node.required(1 - side), _number(node.required(side))
            if number != neutral or math.copysign(1, number) != math.copysign(1, neutral):
                continue
            if _same_shape(kept, node, builder):
                return kept
        return None

    return rule


def _divide_by_power_of_two(node: Node, builder: Builder) -> Value | None:
    divisor = node.required(1)
    number = _number(divisor)
    if not divisor.dtype.is_float or not number:
        return None
    mantissa, exponent = math.frexp(number)  # infinity and NaN are their own mantissas
    if abs(mantissa) != 0.5 or abs(exponent) > 14:
        return None
    return builder.op("mul", node.required(0), builder.scalar(1 / number, divisor.dtype))


def _square(node: Node, builder: Builder) -> Value | None:
    base, exponent = node.required(0), _number(node.required(1))
    if not _same_shape(base, node, builder):
        return None
    if exponent == 1:
        return base
    return builder.op("mul", base, base) if exponent == 2 else None


def _involution(node: Node, builder: Builder) -> Value | None:
    """neg(neg(x)) is x."""
    inner = node.required(0).made_by(node.op)
    return None if inner is None else inner.inputs[0]


def _select_known(node: Node, builder: Builder) -> Value | None:
    condition = _number(node.required(0))
    if condition is None:
        return None
    chosen = node.required(1 if condition else 2)
    return chosen if _same_shape(chosen, node, builder) else None


def _select_operand(node: Node, builder: Builder) -> Value | None:
    """select(c, f(x, a), f(x, b)) is f(x, select(c, a, b))."""
    condition, taken, other = (node.required(index) for index in range(3))
    first, second = taken.producer, other.producer
    if first is None or second is None or first.op != second.op:
        return None
    if OPERATORS[first.op].kind is not Kind.MAP or first.op == "check_index":  # which traps
        return None
    if first.attrs != second.attrs or not all(builder.graph.sole_use(v) for v in (taken, other)):
        return None
    pairs = list(zip(first.inputs, second.inputs, strict=True))
    different = [index for index, (a, b) in enumerate(pairs) if a is not b]
    if len(different) != 1:
        return None
    a, b = (n.required(different[0]) for n in (first, second))
    if a.dtype is not b.dtype:
        return None
    operands = [first.required(index) for index in range(len(pairs))]
    operands[different[0]] = builder.op("select", condition, a, b)
    result = builder.op(first.op, *operands, **first.attrs)
    return result if _same_shape(result, node, builder) else None


_LOSSLESS: dict[DType, frozenset[DType]] = {
    DType.BOOL: frozenset(DType) - {DType.OPAQUE},
    DType.INT8: frozenset({DType.INT16, DType.INT32, DType.INT64, DType.FLOAT32, DType.FLOAT64}),
    DType.UINT8: frozenset(
        {DType.INT16, DType.UINT16, DType.INT32, DType.INT64, DType.FLOAT32, DType.FLOAT64}
    ),
    DType.INT16: frozenset({DType.INT32, DType.INT64, DType.FLOAT32, DType.FLOAT64}),
    DType.INT32: frozenset({DType.INT64, DType.FLOAT64}),
    DType.FLOAT16: frozenset({DType.FLOAT32, DType.FLOAT64}),
    DType.BFLOAT16: frozenset({DType.FLOAT32, DType.FLOAT64}),
    DType.FLOAT32: frozenset({DType.FLOAT64}),
}


def _cast_chain(node: Node, builder: Builder) -> Value | None:
    """A cast of a lossless cast reads the original."""
    inner = node.required(0).made_by("cast")
    if inner is None:
        return None
    source, between = inner.required(0), inner.output.dtype
    if between not in _LOSSLESS.get(source.dtype, ()):
        return None
    return builder.op("cast", source, dtype=node.output.dtype)


# -- views


def _transpose_chain(node: Node, builder: Builder) -> Value | None:
    inner = node.required(0).made_by("transpose")
    if inner is None:
        return None
    perm = tuple(inner.attrs["perm"][axis] for axis in node.attrs["perm"])
    return builder.op("transpose", inner.required(0), perm=perm)


def _transpose_of_units(node: Node, builder: Builder) -> Value | None:
    """A transpose that moves only axes of extent 1 is a reshape."""
    source = node.required(0)
    shape = shape_of(source)
    moved = [axis for axis in node.attrs["perm"] if not builder.facts.same(shape[axis], 1)]
    if moved != sorted(moved):
        return None
    return builder.op("reshape", source, shape=node.output.shape)


def _reshape_chain(node: Node, builder: Builder) -> Value | None:
    inner = node.required(0).made_by("reshape")
    if inner is None:
        return None
    return builder.op("reshape", inner.required(0), shape=node.output.shape)


def _drop_view(node: Node, builder: Builder) -> Value | None:
    """A reshape or broadcast to the same shape."""
    source = node.required(0)
    return source if _same_shape(source, node, builder) else None


def _drop_broadcast_operand(node: Node, builder: Builder) -> Value | None:
    """Element-wise operators broadcast by themselves."""
    for index, value in enumerate(node.inputs):
        broadcast = None if value is None else value.made_by("broadcast_to")
        if broadcast is None:
            continue
        operands = list(node.inputs)
        operands[index] = broadcast.inputs[0]
        if not _covers(operands, node, builder):
            continue
        return builder.op(node.op, *[v for v in operands if v is not None], **node.attrs)
    return None


def _covers(operands: list[Value | None], node: Node, builder: Builder) -> bool:
    """Each axis of the result has its full extent in one of the operands, by proof."""
    shape = node.output.shape
    assert shape is not None
    for axis in range(1, len(shape) + 1):
        extents = [
            v.shape[-axis]
            for v in operands
            if v is not None and v.shape is not None and len(v.shape) >= axis
        ]
        whole = shape[-axis]
        if not any(builder.facts.same(e, whole) for e in extents):
            return False
    return True


def _hoist_over_view(node: Node, builder: Builder) -> Value | None:
    """Arithmetic with scalars moves before the view of its one other operand."""
    views = [v for v in node.inputs if v is not None and v.producer and v.producer.op in RELAYOUTS]
    if len(views) != 1:
        return None
    (viewed,) = views
    others = [v for v in node.inputs if v is not None and v is not viewed]
    view = viewed.producer
    if view is None or any(_number(v) is None for v in others):
        return None
    source = view.required(0)
    if not builder.graph.sole_use(viewed) or source.is_constant:
        return None
    if not _same_shape(viewed, node, builder):
        return None
    operands = [
        source if v is viewed else _flat_scalar(v, builder) for v in node.inputs if v is not None
    ]
    return builder.op(view.op, builder.op(node.op, *operands, **node.attrs), **view.attrs)


def _flat_scalar(value: Value, builder: Builder) -> Value:
    number = _number(value)
    if number is None or not value.shape:
        return value
    return builder.constant(np.asarray(value.data).reshape(()))


def _rules() -> dict[str, tuple[_Rule, ...]]:
    rules: dict[str, list[_Rule]] = {
        "mul": [_drop_neutral(1, (0, 1))],
        "add": [_drop_neutral(0, (0, 1), integers_only=True), _drop_neutral(-0.0, (0, 1))],
        "sub": [_drop_neutral(0, (1,))],
        "div": [_drop_neutral(1, (1,)), _divide_by_power_of_two],
        "pow": [_square],
        "neg": [_involution],
        "logical_not": [_involution],
        "bitwise_not": [_involution],
        "select": [_select_known, _select_operand],
        "cast": [_cast_chain],
        "transpose": [_transpose_chain, _transpose_of_units],
        "reshape": [_drop_view, _reshape_chain],
        "broadcast_to": [_drop_view],
    }
    for name, info in OPERATORS.items():
        if info.kind is Kind.MAP:
            rules.setdefault(name, []).extend([_drop_broadcast_operand, _hoist_over_view])
    return {name: tuple(listed) for name, listed in rules.items()}


_RULES = _rules()
