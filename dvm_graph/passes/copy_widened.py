"""Widens narrow integers anew for readers behind another product.

    Requires: basic operators. Ensures: of all readers of what constants make of narrow integers, as many products lie before each.

    r = cast(b) * s; m = mean(r); p = matmul(m, w); y = r * p   =>   y = (cast(b) * s) * p

Such readers are in kernels of their own. What one kernel widens for another is stored, and takes as many bytes again as it is
wider; the integers that it is made of are stored instead, and widened as they are read. Quantised networks scale channels by what
they make of their means, say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from dvm_graph.ir import OPERATORS, Graph, Kind, Node, Value, widened


def copy_widened(graph: Graph) -> bool:
    """True if something was copied."""
    widening = widened(graph.sorted_nodes())
    if not widening:
        return False
    products = _products_before(graph)
    for node in reversed(widening):  # what is read by one kernel is computed there
        readers = graph.users(node.output)
        products[node] = min((products[user] for user in readers), default=products[node])
    changed = False
    for node, made_by in widening.items():
        least = products[node]
        behind: dict[int, list[Node]] = {}
        for user in graph.users(node.output):
            if products[user] > least:
                behind.setdefault(products[user], []).append(user)
        if graph.is_output(node.output) or not all(map(_computes, chain(*behind.values()))):
            continue  # it is stored anyway
        for count in sorted(behind):
            _read_copy(graph, made_by, behind[count])
            changed = True
    return changed


def _computes(node: Node) -> bool:
    return OPERATORS[node.op].kind in (Kind.MAP, Kind.REDUCE)


def _products_before(graph: Graph) -> dict[Node, int]:
    """Matrix products before each operator: the most on any way to it."""
    found: dict[Node, int] = {}
    for node in graph.sorted_nodes():
        before = [value.producer for value in node.inputs if value is not None]
        counts = [found[p] + (OPERATORS[p.op].kind is Kind.MATRIX) for p in before if p is not None]
        found[node] = max(counts, default=0)
    return found


def _read_copy(graph: Graph, made_by: Sequence[Node], readers: Sequence[Node]) -> None:
    """Readers of what the last of these operators gives read that of a copy of them."""
    copy: Value | None = None
    for node in made_by:
        inputs = tuple(
            copy if copy is not None and value is not None and not value.is_constant else value
            for value in node.inputs
        )  # by place: an earlier copy may be what the original reads by now
        copy = replace(node.output, name=graph.unique_name(node.output.name), producer=None)
        name = graph.unique_name(node.name)
        graph.add(replace(node, name=name, inputs=inputs, outputs=(copy,)))
    original = made_by[-1].output
    for reader in readers:
        graph.set_inputs(reader, [copy if value is original else value for value in reader.inputs])
