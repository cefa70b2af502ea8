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
from operator import itemgetter
from typing import TypeAlias

import numpy as np

from dvm_graph.errors import ShapeError
from dvm_graph.ir import OPERATORS, Graph, Kind, Node, Value
from dvm_graph.symbolic import Facts
from dvm_graph.symbolic.numeric import Array, evaluate_constant

_MAX_BYTES = 1 << 20
_MAX_ELEMENTS = 1 << 22
"""Of any operand or result."""
_MAX_VIEW_BYTES = 1 << 12
"""Larger views of constants stay views."""

ComputeVendor: TypeAlias = Callable[[Node], Sequence[Array] | None]
"""The results of a vendor operator whose operands are constants; None where they are not to be kept."""

Derived: TypeAlias = dict[Value, tuple[int, Node]]
"""What nodes make of constants alone, and are left to make: these, numbered in an order that they can be computed in."""


def fold_constants(graph: Graph, facts: Facts, compute_vendor: ComputeVendor) -> bool:
    """True if something was computed."""
    del facts
    changed = False
    derived: Derived = {}
    for node in graph.sorted_nodes():
        if not all(v is None or v.data is not None or v in derived for v in node.inputs):
            continue
        if node.op == "vendor":
            changed |= _fold_vendor(graph, node, derived, compute_vendor)
        elif node.inputs and not node.is_call and _fold(graph, node, derived):
            changed = True
        elif (node.inputs or node.op == "iota") and not node.is_call:
            derived[node.output] = len(derived), node
    return changed


def _fold(graph: Graph, node: Node, derived: Derived) -> bool:
    """A node of constants, or of views of them."""
    needed = _needed(node, derived)
    if not all(OPERATORS[derived[v][1].op].kind is Kind.VIEW for v in needed if v in derived):
        return False
    view = OPERATORS[node.op].kind is Kind.VIEW
    if not _bytes(node.output) <= (_MAX_VIEW_BYTES if view else max(_MAX_BYTES, _held(needed))):
        return False
    constants = _constants(needed, derived)
    data = None if constants is None else _computed(_over(node, constants))
    if data is None:
        return False
    result = graph.constant(np.asarray(data), node.output.name)
    graph.replace_uses(node.output, result)
    graph.remove(node)
    return True


def _fold_vendor(graph: Graph, node: Node, derived: Derived, compute: ComputeVendor) -> bool:
    needed = _needed(node, derived)
    most = max(_held(needed), 0 if node.attrs["op"] == "DequantizeLinear" else _MAX_BYTES)
    if not sum(map(_bytes, node.outputs)) <= most:  # what is packed to be small stays so
        return False
    constants = _constants(needed, derived)
    results = None if constants is None else compute(_over(node, constants))
    if results is None:
        return False
    for value, data in zip(node.outputs, results, strict=True):
        graph.replace_uses(value, graph.constant(data, value.name))
    graph.remove(node)
    return True


def _needed(node: Node, derived: Derived) -> Iterable[Value]:
    """What a node reads, and what that is made of."""
    needed = dict.fromkeys(value for value in node.inputs if value is not None)
    pending = list(needed)
    while pending:
        _, maker = derived.get(pending.pop(), (0, None))
        for value in () if maker is None else maker.inputs:
            if value is not None and value not in needed:
                needed[value] = None
                pending.append(value)
    return needed


def _held(needed: Iterable[Value]) -> int:
    """Bytes of constants."""
    return sum(value.data.nbytes for value in needed if value.data is not None)


def _constants(needed: Iterable[Value], derived: Derived) -> Mapping[Value, Value] | None:
    """Constants that hold what values do, which stay for others to read as they are, often a view of a single number; None:
    one cannot be computed.
    """
    constants = {value: value for value in needed if value.data is not None}
    for _, maker in sorted((derived[v] for v in needed if v in derived), key=itemgetter(0)):
        data = _computed(_over(maker, constants), with_iota=True)
        if data is None:
            return None
        constants[maker.output] = replace(maker.output, data=data, producer=None)
    return constants


def _computed(node: Node, *, with_iota: bool = False) -> Array | None:
    """What a node of constants makes; an index out of range is for the run to tell."""
    try:
        return evaluate_constant(node, _MAX_ELEMENTS, with_iota=with_iota)
    except ShapeError:
        return None


def _over(node: Node, held: Mapping[Value, Value]) -> Node:
    """The node of constants instead of values that hold as much; it is in no graph."""
    return replace(node, inputs=tuple(None if v is None else held[v] for v in node.inputs))


def _bytes(value: Value) -> float:
    """As far as known."""
    extents = [dim for dim in value.shape or () if isinstance(dim, int)]
    known = value.shape is not None and len(extents) == len(value.shape)
    return math.prod(extents) * value.dtype.itemsize if known else math.inf
