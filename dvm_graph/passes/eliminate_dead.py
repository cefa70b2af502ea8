"""Removes operators whose results nobody uses.

Requires: basic or vendor operators. Ensures: every operator leads to a graph output, or is a vendor
operator whose result binds a symbol of one that does, or a host operator that holds the run to its extents.

a = exp(x); b = neg(x); return b   =>   b = neg(x); return b
"""

from __future__ import annotations

from dvm_graph.ir import Graph, Node
from dvm_graph.symbolic.binders import find_binders, holds_run_to, needed_symbols


def eliminate_dead(graph: Graph) -> bool:
    """True if something was removed."""
    order = graph.sorted_nodes()
    live = _live(graph, order)
    for node in reversed(order):
        if node not in live:
            graph.remove(node)
    return len(live) < len(order)


def _live(graph: Graph, order: list[Node]) -> set[Node]:
    binders = find_binders(graph, order)
    live: set[Node] = set()
    waiting = [value.producer for value in graph.outputs]
    waiting += [node for node in order if holds_run_to(node)]
    while waiting:
        node = waiting.pop()
        if node is None or node in live:
            continue
        live.add(node)
        waiting += [value.producer for value in node.inputs if value is not None]
        if binders:
            waiting += [binders.get(symbol) for symbol in needed_symbols(node)]
    return live
