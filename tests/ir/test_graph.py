"""A graph: the order of its nodes, against networkx, its outputs and its names."""

from __future__ import annotations

import gc
import weakref
from random import Random
from typing import Any

import networkx as nx
import numpy as np

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


def test_outputs_know_where_they_are() -> None:
    graph = Graph()
    a, b, c = (Value(name, DType.FLOAT32, ()) for name in "abc")
    graph.outputs = [a, b, a]
    assert graph.is_output(a)
    assert not graph.is_output(c)
    graph.replace_uses(a, c)
    assert graph.outputs == [c, b, c]
    assert [graph.is_output(value) for value in (a, b, c)] == [False, True, True]
    graph.outputs[0] = b
    graph.outputs.append(a)
    graph.replace_uses(b, a)
    assert graph.outputs == [a, a, c, a]
    assert [graph.is_output(value) for value in (a, b, c)] == [True, False, True]


def test_names_are_numbered_from_one_in_each_region() -> None:
    graph = Graph()
    assert [graph.unique_name("x") for _ in range(3)] == ["x", "x.1", "x.2"]
    assert graph.unique_name("y") == "y"
    assert graph.unique_name("y") == "y.3"
    region = graph.new_region("body")
    assert [region.unique_name("y") for _ in range(3)] == ["y.1", "y.2", "y.4"]
    assert region.unique_name("x") == "x.5"
    scratch = graph.scratch()
    assert [scratch.unique_name(stem) for stem in ("x", "y", "z")] == ["x.3", "y.5", "z"]
    assert graph.unique_name("z") == "z"
    assert scratch.unique_name("z") == "z.6"


def test_nodes_that_were_added_since() -> None:
    graph = Graph()
    x = Value("x", DType.FLOAT32, ())
    nodes = [
        graph.add(Node(f"n{i}", "neg", (x,), (Value(f"y{i}", DType.FLOAT32, ()),)))
        for i in range(4)
    ]
    assert graph.added_since(4) == []
    assert graph.added_since(1) == nodes[1:]
    graph.take_back(1)
    assert list(graph.nodes) == nodes[:1]


def test_what_nothing_reads_any_more_is_given_up() -> None:
    """Weights that a pass has rearranged are in memory once."""
    graph, contents = _negation()
    (node,) = graph.nodes
    gc.disable()
    try:
        graph.replace_node(node, graph.constant(np.full(3, -1, np.float32)))
        del node
        assert contents() is None
    finally:
        gc.enable()


def test_a_graph_that_is_done_with_is_given_up_at_once() -> None:
    graph, contents = _negation()
    gc.disable()
    try:
        graph.clear()
        graph.outputs = []
        assert contents() is None
    finally:
        gc.enable()


def _negation() -> tuple[Graph, weakref.ref[np.ndarray[Any, Any]]]:
    """Of a weight, which only the graph knows, and the weight's contents."""
    graph = Graph()
    weight = graph.constant(np.ones(3, np.float32))
    node = graph.add(Node("n", "neg", (weight,), (Value("y", DType.FLOAT32, (3,)),)))
    graph.outputs = [node.output]
    assert weight.data is not None
    return graph, weakref.ref(weight.data)
