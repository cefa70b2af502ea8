"""What passes that rewrite operators share: putting a value in the place of another."""

from __future__ import annotations

from dvm_graph.ir import Graph, Node, Value


def replace(graph: Graph, node: Node, result: Value) -> None:
    """`result` stands for the node's result from now on; what nobody uses any more goes."""
    graph.replace_uses(node.output, result)
    dead = [node]
    while dead:
        candidate = dead.pop()
        if candidate not in graph.digraph or candidate.op == "vendor":
            continue  # whether a vendor operator binds a symbol is for eliminate_dead to see
        if any(graph.users(v) or graph.is_output(v) for v in candidate.outputs):
            continue
        dead += [v.producer for v in candidate.inputs if v is not None and v.producer is not None]
        graph.remove(candidate)
