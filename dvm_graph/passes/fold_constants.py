"""Computes operators on constants once and for all.

    Requires: basic operators with shapes. Ensures: no operator has constant operands only, or views of such,
    unless its result would be larger than these and than `_ALLOWANCE`. What decompositions built and nobody reads is gone.

    a = exp([0, 1]); return x * a   =>   return x * [1, 2.7182817]
    a = ScatterND([0, 0], [[1]], [5]); return x * a   =>   return x * [0, 5]

Views of constants are kept where strides tell a kernel where to read the constant (weights are not copied); what they do not
tell, such as a concat, every run would have to write. Kept are vendor
operators, too, of results that are large, or drawn at random.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from dvm_graph.ir import Array, Graph, Node
from dvm_graph.symbolic.folding import Folding

_ALLOWANCE = 1 << 20
"""Bytes."""

ComputeVendor: TypeAlias = Callable[[Node], Sequence[Array] | None]
"""The results of a vendor operator whose operands are constants; None where they are not to be kept."""


def fold_constants(graph: Graph, compute_vendor: ComputeVendor) -> bool:
    """True if something was computed."""
    changed = _drop_unread(graph)
    folding = Folding(graph, _ALLOWANCE)
    for node in graph.sorted_nodes():
        if not folding.covers(node.inputs):
            continue
        if node.op == "vendor":
            changed |= _fold_vendor(graph, node, folding, compute_vendor)
        else:
            changed |= folding.fold(node) is not None
    return changed


def _drop_unread(graph: Graph) -> bool:
    """Whether something went. It would be computed for nobody, and whoever asks for a value's only reader would find it;
    calls may bind symbols: whether they do is for `eliminate_dead` to see.
    """
    order = graph.sorted_nodes()
    read = set(graph.needed_nodes(node for node in order if node.is_call))
    for node in reversed(order):
        if node not in read:
            graph.remove(node)
    return len(read) < len(order)


def _fold_vendor(graph: Graph, node: Node, folding: Folding, compute_vendor: ComputeVendor) -> bool:
    packed = node.attrs["op"] == "DequantizeLinear"  # to be small: it stays so
    if folding.takes_more(node, 0 if packed else _ALLOWANCE):
        return False
    whole = folding.of_constants(node)
    results = None if whole is None else compute_vendor(whole)
    if results is None:
        return False
    for value, data in zip(node.outputs, results, strict=True):
        graph.replace_uses(value, graph.constant(data, value.name))
    graph.remove(node)
    return True
