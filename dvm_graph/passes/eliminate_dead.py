"""Removes operators whose results nobody uses.

Requires: basic or vendor operators. Ensures: every operator leads to a graph output.

a = exp(x); b = neg(x); return b   =>   b = neg(x); return b
"""

from __future__ import annotations

from dvm_graph.ir import Graph


def eliminate_dead(graph: Graph) -> bool:
    """True if something was removed."""
    outputs = set(graph.outputs)
    removed = False
    for node in reversed(graph.sorted_nodes()):
        if not any(value in outputs or graph.users(value) for value in node.outputs):
            graph.remove(node)
            removed = True
    return removed
