"""Computes operators on constants once and for all.

    Requires: basic operators with shapes. Ensures: no operator has constant operands only, unless its
    result would be larger than its operands and than `_MAX_BYTES`.

    a = exp([0, 1]); return x * a   =>   return x * [1, 2.7182817]

Views of constants are kept where a kernel can read the constant as it lies (weights are not copied). What the vendor
library makes of constants is asked for once, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from dvm_graph.ir import OPERATORS, DType, Graph, Kind, Node, Value
from dvm_graph.symbolic import Facts
from dvm_graph.symbolic.dims import is_static, product
from dvm_graph.symbolic.numeric import Array, evaluate_constant

_MAX_BYTES = 1 << 20
_MAX_ELEMENTS = 1 << 20
"""Of any operand or result."""
_MAX_VIEW_BYTES = 1 << 12
"""Larger views of constants stay views."""
_MAX_VENDOR_BYTES = 8 * _MAX_ELEMENTS
"""Of an operand or a result of the vendor library."""

ComputeVendor: TypeAlias = Callable[[Node], Sequence[Array] | None]
"""The results of a vendor operator whose operands are constants; None where they are not to be kept."""


def fold_constants(graph: Graph, facts: Facts, compute_vendor: ComputeVendor) -> bool:
    """True if something was computed."""
    del facts
    changed = False
    made: set[Value] = set()  # of constants alone, at every run
    for node in graph.sorted_nodes():
        if not all(v is None or v.data is not None or v in made for v in node.inputs):
            continue
        if node.op == "vendor":
            changed |= _fold_vendor(graph, node, compute_vendor)
        elif _foldable(node) and _fold(graph, node):
            changed = True
        elif (node.inputs or node.op == "iota") and not node.is_call:
            made.add(node.output)
    return changed


def _fold_vendor(graph: Graph, node: Node, compute: ComputeVendor) -> bool:
    """Its operands would be made of constants at every run. They are not too large, and the results no larger: what is packed
    is so to take less memory.
    """
    sizes = [_bytes(value) for value in (*node.inputs, *node.outputs)]
    given = len(node.inputs)
    if max(sizes) > _MAX_VENDOR_BYTES or sum(sizes[given:]) > sum(sizes[:given]):
        return False
    for value in node.inputs:
        if value is not None and not _settle(graph, value):
            return False
    results = compute(node)
    if results is None:
        return False
    for value, data in zip(node.outputs, results, strict=True):
        graph.replace_uses(value, graph.constant(data, value.name))
    graph.remove(node)
    return True


def _bytes(value: Value | None) -> float:
    """None of what only the vendor knows: integers of 4 bits, strings."""
    if value is None or value.dtype is DType.OPAQUE:
        return 0
    known = value.shape is not None and is_static(value.shape)
    return product(value.shape or ()) * value.dtype.itemsize if known else math.inf


def _settle(graph: Graph, value: Value) -> bool:
    """Computes a value of constants alone, whatever it is made by."""
    if value.data is not None:
        return True
    node = value.producer
    assert node is not None
    settled = all(_settle(graph, operand) for operand in node.inputs if operand is not None)
    return settled and _fold(graph, node, sources=True)


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


def _fold(graph: Graph, node: Node, *, sources: bool = False) -> bool:
    data = evaluate_constant(node, _MAX_ELEMENTS, sources=sources)
    if data is None:
        return False
    result = graph.constant(np.asarray(data), node.output.name)
    graph.replace_uses(node.output, result)
    graph.remove(node)
    return True
