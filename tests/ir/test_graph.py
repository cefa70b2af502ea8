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
        digraph = graph.to_networkx()
        expected = nx.lexicographical_topological_sort(digraph, key=order.__getitem__)
        assert graph.sorted_nodes() == list(expected)


def test_a_networkx_graph_has_an_edge_for_each_use() -> None:
    graph = Graph("g")
    x = Value("x", DType.FLOAT32, ())
    y, z = (Value(name, DType.FLOAT32, ()) for name in "yz")
    first, second = Node("first", "neg", (x,), (y,)), Node("second", "mul", (y, None, y), (z,))
    for node in (first, second):
        node.outputs[0].producer = graph.add(node)
    digraph = graph.to_networkx()
    assert list(nx.topological_sort(digraph)) == [first, second]
    uses = {"value": y, "operand": 0}, {"value": y, "operand": 2}
    assert list(digraph.edges(data=True)) == [(first, second, use) for use in uses]
