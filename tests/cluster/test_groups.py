"""The order of groups that merge, and the paths between them, against networkx on graphs that are drawn."""

from __future__ import annotations

import random

import networkx as nx
import pytest

from dvm_graph.cluster import groups
from dvm_graph.cluster.groups import Group, GroupGraph
from dvm_graph.ir import DType, Node, Value
from dvm_graph.rules import PartKind


def _group(node: Node) -> Group:
    inputs = {value: [(node, at)] for at, value in enumerate(node.inputs) if value is not None}
    return Group([node], PartKind.VECTOR, {}, inputs, dict.fromkeys(node.outputs), 1)


def _drawn(draw: random.Random, count: int) -> list[Group]:
    """Operators of a few operands each, some of which are near."""
    values: list[Value] = []
    drawn = []
    for at in range(count):
        near, far = values[-4:], values
        chosen = [draw.choice(draw.choice((near, far))) for _ in range(draw.randint(0, 3)) if far]
        result = Value(f"v{at}", DType.FLOAT32, (2,))
        node = Node(f"n{at}", "add", tuple(dict.fromkeys(chosen)), (result,))
        result.producer = node
        values.append(result)
        drawn.append(_group(node))
    return drawn


def _edges(graph: GroupGraph) -> nx.DiGraph[Group]:
    """What depends on what, by values alone."""
    made = {
        value: group for group in graph.groups for node in group.nodes for value in node.outputs
    }
    result: nx.DiGraph[Group] = nx.DiGraph()
    result.add_nodes_from(graph.groups)
    for group in graph.groups:
        for node in group.nodes:
            for value in node.inputs:
                if value is not None and made[value] is not group:
                    result.add_edge(made[value], group)
    return result


@pytest.mark.parametrize("room", [1 << 128, 1, 3])
@pytest.mark.parametrize("seed", range(12))
def test_merges_keep_an_order_and_go_round_no_other_way(
    seed: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`room` for groups that move: with little all are numbered anew."""
    monkeypatch.setattr(groups._Order, "_ROOM", room)
    draw = random.Random(seed)
    graph = GroupGraph(_drawn(draw, 60))
    wanted: set[Value] = set()
    for _ in range(120):
        expected = _edges(graph)
        assert all(graph.position[a] < graph.position[b] for a, b in expected.edges)
        assert all(set(group.after) == set(expected.successors(group)) for group in graph.groups)
        first, second = draw.sample(graph.groups, 2)
        around = nx.descendants(expected, first) | nx.ancestors(expected, first)
        assert graph.depends(first, second) == (second in around)
        producer, consumer = draw.choice(list(expected.edges) or [(None, None)])
        if producer is None or consumer is None:
            break
        read = [v for v in producer.results if graph.is_read(v, {consumer})]
        others = [each for each in expected.successors(producer) if each is not consumer]
        assert read == [v for v in producer.results if any(v in each.inputs for each in others)]
        between = nx.descendants(expected, producer) & nx.ancestors(expected, consumer)
        last = graph.detour(producer, consumer)
        assert (last is not None) == bool(between)
        if last is not None:
            assert last in between
            assert expected.has_edge(last, consumer)
        else:
            assert graph.merge(producer, consumer, wanted) is consumer
    assert len(graph.groups) < 60
