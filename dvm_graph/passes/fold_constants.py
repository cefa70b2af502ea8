"""Computes operators on constants once and for all.

    Requires: basic operators with shapes. Ensures: no operator has constant operands only, unless its
    result would be larger than its operands and than `_MAX_BYTES`.

    a = exp([0, 1]); return x * a   =>   return x * [1, 2.7182817]
    a = ScatterND([0, 0], [[1]], [5]); return x * a   =>   return x * [0, 5]

Views of constants are kept where a kernel can read the constant as it lies (weights are not copied). Kept are vendor
operators, too, of results that are large, or drawn at random.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from dvm_graph.errors import ShapeError
from dvm_graph.ir import OPERATORS, Graph, Kind, Node, Value
from dvm_graph.symbolic import Facts
from dvm_graph.symbolic.numeric import Array, evaluate_constant

_MAX_BYTES = 1 << 20
_MAX_ELEMENTS = 1 << 20
"""Of any operand or result."""
_MAX_VIEW_BYTES = 1 << 12
"""Larger views of constants stay views."""

ComputeVendor: TypeAlias = Callable[[Node], Sequence[Array] | None]
"""The results of a vendor operator whose operands are constants; None where they are not to be kept."""


def fold_constants(graph: Graph, facts: Facts, compute_vendor: ComputeVendor) -> bool:
    """True if something was computed."""
    del facts
    changed = False
    derived: dict[Value, Node] = {}  # made of constants alone, in this order, and left as that
    for node in graph.sorted_nodes():
        if not all(v is None or v.data is not None or v in derived for v in node.inputs):
            continue
        if node.op == "vendor":
            changed |= _fold_vendor(graph, node, derived, compute_vendor)
        elif _foldable(node) and _fold(graph, node):
            changed = True
        elif (node.inputs or node.op == "iota") and not node.is_call:
            derived[node.output] = node
    return changed


def _fold_vendor(
    graph: Graph, node: Node, derived: dict[Value, Node], compute: ComputeVendor
) -> bool:
    """What its operands are made of stays for others to read as it is, often a view of a single number."""
    needed = dict.fromkeys(value for value in node.inputs if value is not None)
    for value in reversed(derived):
        if value in needed:
            needed |= dict.fromkeys(v for v in derived[value].inputs if v is not None)
    if not sum(map(_bytes, node.outputs)) <= _most_bytes(node, needed):
        return False
    held = {value: value for value in needed if value.data is not None}
    try:
        for value, maker in derived.items():
            if value in needed:
                data = evaluate_constant(_over(maker, held), _MAX_ELEMENTS, with_iota=True)
                if data is None:
                    return False
                held[value] = replace(value, data=data, producer=None)
    except ShapeError:  # an index out of range: for the run to tell, as of other derived values
        return False
    results = compute(_over(node, held))
    if results is None:
        return False
    for value, data in zip(node.outputs, results, strict=True):
        graph.replace_uses(value, graph.constant(data, value.name))
    graph.remove(node)
    return True


def _over(node: Node, held: Mapping[Value, Value]) -> Node:
    """The node of constants instead of values that hold as much; it is in no graph."""
    return replace(node, inputs=tuple(None if v is None else held[v] for v in node.inputs))


def _bytes(value: Value) -> float:
    """As far as known."""
    extents = [dim for dim in value.shape or () if isinstance(dim, int)]
    known = value.shape is not None and len(extents) == len(value.shape)
    return math.prod(extents) * value.dtype.itemsize if known else math.inf


def _most_bytes(node: Node, needed: Iterable[Value]) -> int:
    """Of results: as many as the constants have that they are made of, and a few more, but not where these are packed to
    be small.
    """
    constants = sum(value.data.nbytes for value in needed if value.data is not None)
    return constants if node.attrs["op"] == "DequantizeLinear" else max(constants, _MAX_BYTES)


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
