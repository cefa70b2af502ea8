"""What constants make of narrow integers: dequantised numbers, say."""

from __future__ import annotations

from collections.abc import Iterable

from dvm_graph.ir.graph import Node
from dvm_graph.ir.operators import NARROW, OPERATORS, Kind


def widened(nodes: Iterable[Node]) -> dict[Node, tuple[Node, ...]]:
    """Element-wise operators of narrow integers, or of what such made of them, and of constants; of each, those that lead to it from
    the integers, and itself. `nodes` come in topological order.
    """
    found: dict[Node, tuple[Node, ...]] = {}
    for node in nodes:
        if OPERATORS[node.op].kind is not Kind.MAP:
            continue
        operands = [value for value in node.inputs if value is not None and value.data is None]
        if len(operands) != 1:
            continue
        source = operands[0]
        before = () if source.producer is None else found.get(source.producer, ())
        if before or (source.dtype in NARROW and node.output.dtype not in NARROW):
            found[node] = (*before, node)
    return found
