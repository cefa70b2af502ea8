"""Exact rewrites."""

from __future__ import annotations

from dvm_graph.ir import Graph
from dvm_graph.symbolic import Facts


def simplify(graph: Graph, facts: Facts) -> bool:
    """True if something changed."""
    del graph, facts
    return False
