"""Computes operators on constants once and for all.

    Requires: basic operators with shapes. Ensures: no operator has constant operands only, unless its
    result would be larger than its operands and than `_MAX_BYTES`.

    a = exp([0, 1]); return x * a   =>   return x * [1, 2.7182817]

Views of constants are kept where a kernel can read the constant as it lies (weights are not copied).
"""

from __future__ import annotations

import numpy as np

from dvm_graph.ir import OPERATORS, Graph, Kind, Node
from dvm_graph.symbolic import Facts
from dvm_graph.symbolic.numeric import evaluate_constant

_MAX_BYTES = 1 << 20
_MAX_ELEMENTS = 1 << 20
"""Of any operand or result."""
_MAX_VIEW_BYTES = 1 << 12
"""Larger views of constants stay views."""


def fold_constants(graph: Graph, facts: Facts) -> bool:
    """True if something was computed."""
    del facts
    changed = False
    for node in graph.sorted_nodes():
        if _foldable(node):
            changed |= _fold(graph, node)
    return changed


def _foldable(node: Node) -> bool:
    if not node.inputs or node.is_call:
        return False
    operands = 0
    for value in node.inputs:
        if value is None or value.data is None:
            return False
        operands += value.data.nbytes
    size = node.output.dtype.itemsize
    for extent in node.output.shape or ():
        if not isinstance(extent, int):
            return False
        size *= extent
    limit = _MAX_VIEW_BYTES if OPERATORS[node.op].kind is Kind.VIEW else max(_MAX_BYTES, operands)
    return size <= limit


def _fold(graph: Graph, node: Node) -> bool:
    data = evaluate_constant(node, _MAX_ELEMENTS)
    if data is None:
        return False
    result = graph.constant(np.asarray(data), node.output.name)
    graph.replace_uses(node.output, result)
    graph.remove(node)
    return True
