"""The order of a graph's nodes, against networkx."""

from __future__ import annotations

from random import Random

import networkx as nx

from dvm_graph.ir import DType, Graph, Node, Value


def test_sorted_nodes_are_in_the_least_order() -> None:
    """As networkx' lexicographical sort has them, for nodes that were inserted in any order."""
    random = Random(0)
    for _ in range(100):
        graph = Graph()
        values = [Value("x", DType.FLOAT32, ())]
        nodes = []
        for index in range(random.randrange(1, 30)):
            operands = tuple(random.choice(values) for _ in range(random.randrange(1, 4)))
            result = Value(f"v{index}", DType.FLOAT32, ())
            nodes.append(Node(f"n{index}", "sum", operands, (result,)))
            result.producer = nodes[-1]
            values.append(result)
        for node in random.sample(nodes, len(nodes)):
            graph.add(node)
        order = {node: index for index, node in enumerate(graph.nodes)}
        digraph = nx.MultiDiGraph()
        digraph.add_nodes_from(graph.nodes)
        digraph.add_edges_from(
            (value.producer, node)
            for node in graph.nodes
            for value in node.inputs
            if value and value.producer
        )
        expected = nx.lexicographical_topological_sort(digraph, key=order.__getitem__)
        assert graph.sorted_nodes() == list(expected)
