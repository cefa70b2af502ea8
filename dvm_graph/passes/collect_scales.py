"""Collects the scalar factors of a matrix product's operands in one place.

    Requires: basic operators with shapes. Ensures: no product of f32 or f64 has two scaled operands, or one
    that would be scaled by a kernel of its own.

    matmul(q * 0.3, transpose(k * 0.3))  =>  matmul(q * 0.09, transpose(k))  or  matmul(q, transpose(k)) * 0.09

Exporters spread the factor of attention over queries and keys, so that half precision does not overflow;
for longer formats that only costs: the keys of a cache would be copied at every step to be scaled. The
factors go to an operand that arithmetic produces anyway, or behind the product if both are read from
memory. This pass reassociates: results may differ in the last bits. Factors are
moderate, so that nothing overflows or vanishes that did not before, but at the very ends of the range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dvm_graph.ir import OPERATORS, RELAYOUTS, DType, Graph, Kind, Node, Value
from dvm_graph.symbolic import Facts
from dvm_graph.symbolic.builder import Builder

MODERATE = 2.0**14
"""Factors, and their inverses, up to which moving them is harmless."""


@dataclass(frozen=True, slots=True)
class _Scaled:
    """An operand that is `views(source * factor)`."""

    source: Value
    factor: float
    views: tuple[Node, ...]
    """From the operand down."""

    @property
    def computed(self) -> bool:
        """Arithmetic produces the source: scaling costs no kernel of its own."""
        value = self.source
        while value.producer is not None and value.producer.op in RELAYOUTS:
            value = value.producer.required(0)
        kinds = (Kind.MAP, Kind.REDUCE, Kind.MATRIX)
        return value.producer is not None and OPERATORS[value.producer.op].kind in kinds


def collect_scales(graph: Graph, facts: Facts) -> bool:
    """True if a factor was moved."""
    builder = Builder(graph, facts)
    changed = False
    for node in graph.sorted_nodes():
        if node.op == "matmul" and node.output.dtype in (DType.FLOAT32, DType.FLOAT64):
            changed |= _collect(node, builder)
    return changed


def _collect(node: Node, builder: Builder) -> bool:
    operands = [node.required(0), node.required(1)]
    scaled = [_scaled(value, builder) for value in operands]
    known = [s for s in scaled if s is not None]
    if not known or (len(known) == 1 and known[0].computed):
        return False
    factor = float(np.prod([s.factor for s in known]))
    if not 1 / MODERATE <= abs(factor) <= MODERATE:
        return False
    keeper = next((s for s in known if s.computed), None)
    with builder.scope(node):
        for index, operand in enumerate(scaled):
            if operand is not None:
                own = factor if operand is keeper else 1.0
                operands[index] = _rebuilt(operand, own, builder)
        result = builder.op("matmul", *operands, **node.attrs)
        if keeper is None:
            result = builder.mul(result, builder.scalar(factor, result.dtype))
    builder.graph.replace_node(node, result)
    return True


def _rebuilt(operand: _Scaled, factor: float, builder: Builder) -> Value:
    value = operand.source
    if factor != 1:
        value = builder.mul(value, builder.scalar(factor, value.dtype))
    for view in reversed(operand.views):
        value = builder.op(view.op, value, **view.attrs)
    return value


def _scaled(operand: Value, builder: Builder) -> _Scaled | None:
    """How an operand is scaled, if by nobody else's use of it."""
    views: list[Node] = []
    value = operand
    while builder.graph.sole_use(value) and value.producer is not None:
        producer = value.producer
        if producer.op == "mul":
            return _product(producer, tuple(views), builder.facts)
        if producer.op not in RELAYOUTS:
            return None
        views.append(producer)
        value = producer.required(0)
    return None


def _product(node: Node, views: tuple[Node, ...], facts: Facts) -> _Scaled | None:
    for side in (0, 1):
        number, source = node.required(side), node.required(1 - side)
        if number.data is None or number.data.size != 1 or source.shape is None:
            continue
        factor = float(number.data.reshape(-1)[0])
        same = facts.same_shape(source.shape, node.output.shape or ())
        if 1 / MODERATE <= abs(factor) <= MODERATE and same:
            return _Scaled(source, factor, views)
    return None
