"""The order of groups under merging, on random graphs against networkx."""

from __future__ import annotations

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from dvm_graph.cluster.groups import Group, GroupGraph
from dvm_graph.ir import DType, Node, Value
from dvm_graph.rules import PartKind


def build(edges: list[set[int]]) -> GroupGraph:
    """`edges[i]` are the producers of group i, all smaller."""
    values = [Value(f"v{i}", DType.FLOAT32, ()) for i in range(len(edges))]
    groups = []
    for index, producers in enumerate(edges):
        node = Node(f"n{index}", "abs", tuple(values[p] for p in producers), (values[index],))
        inputs = {values[p]: [(node, 0)] for p in sorted(producers)}
        groups.append(
            Group([node], PartKind.VECTOR, {(): None}, inputs, {values[index]: None}, operators=1)
        )
    return GroupGraph(groups)


def quotient(graph: GroupGraph) -> nx.DiGraph:
    result = nx.DiGraph()
    result.add_nodes_from(graph.groups)
    for group in graph.groups:
        result.add_edges_from((group, other) for other in group.after)
    return result


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_merging_keeps_a_topological_order(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 14))
    edges = [
        data.draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else set() for i in range(count)
    ]
    graph = build(edges)
    for _ in range(count):
        pairs = [(g, after) for g in graph.groups for after in g.after]
        if not pairs:
            break
        producer, consumer = pairs[data.draw(st.integers(0, len(pairs) - 1))]
        whole = quotient(graph)
        whole.remove_edge(producer, consumer)
        cyclic = nx.has_path(whole, producer, consumer)
        assert (graph.detour(producer, consumer) is not None) == cyclic
        if not cyclic:
            graph.merge(producer, consumer, set())
        final = quotient(graph)
        assert nx.is_directed_acyclic_graph(final)
        for before, after in final.edges:
            assert graph.position[before] < graph.position[after]
            assert before in after.before
    assert sorted(n.name for g in graph.groups for n in g.nodes) == sorted(
        f"n{i}" for i in range(count)
    )
