"""Grows clusters: convex groups of operators of one kind, for kernels or for the vendor library.

In: a graph of basic and vendor operators. Out: clusters in topological order.

Operators get a *phase*: how often the kind changes on the way to them, at most. Kernels are in even
phases, vendor operators in odd ones, so a phase needs only lower ones and the clusters of one phase
(its connected components) are independent; nothing has to be checked for cycles. What needs the value
of a symbol that a vendor operator's result binds comes after that operator.

Invariants: every operator is in exactly one cluster; clusters are convex and their quotient graph is
acyclic.
"""

from __future__ import annotations

import networkx as nx

from dvm_graph.cluster.prepare import prepare
from dvm_graph.cluster.subgraph import Cluster, ClusteredGraph, FusionReport
from dvm_graph.ir import Graph, Node, Value
from dvm_graph.options import Options
from dvm_graph.rules import Decision, Verdict
from dvm_graph.symbolic import Facts
from dvm_graph.symbolic.dims import symbols_of


def cluster(graph: Graph, facts: Facts, options: Options) -> ClusteredGraph:
    """Groups the operators; `graph` is prepared for fusion in place."""
    prepare(graph)
    report = FusionReport()
    order = graph.sorted_nodes()
    phases = _phases(order)
    clusters: list[Cluster] = []
    for phase in sorted(set(phases.values())):
        nodes = [node for node in order if phases[node] == phase]
        for component in _components(graph, nodes, vendor=phase % 2 == 1):
            clusters.append(Cluster(len(clusters), phase, phase % 2 == 1, tuple(component)))
    _explain(clusters, phases, report)
    return ClusteredGraph(graph, tuple(clusters), report)


def _phases(order: list[Node]) -> dict[Node, int]:
    phases: dict[Node, int] = {}
    bound: dict[object, int] = {}
    for node in order:
        vendor = node.op == "vendor"
        phase = 1 if vendor else 0
        for value in node.inputs:
            if value is not None and value.producer is not None:
                phase = max(phase, _after(phases[value.producer], vendor))
        if bound:
            for symbol in _symbols(node):
                if symbol in bound:
                    phase = max(phase, _after(bound[symbol], vendor))
        phases[node] = phase
        if vendor:
            for symbol in _symbols(node):
                bound.setdefault(symbol, phase)
    return phases


def _after(phase: int, vendor: bool) -> int:
    return phase if phase % 2 == vendor else phase + 1


def _symbols(node: Node) -> list[object]:
    """Symbols that the results of an operator depend on."""
    dims = [dim for value in node.outputs for dim in value.shape or ()]
    dims += node.attrs.get("elements", ())
    dims += [node.attrs[key] for key in ("start", "step") if key in node.attrs]
    return [s for dim in dims if not isinstance(dim, int) for s in symbols_of(dim)]


def _components(graph: Graph, nodes: list[Node], vendor: bool) -> list[list[Node]]:
    """Connected components in topological order; vendor operators stay together."""
    if vendor:
        return [nodes]
    index = {node: i for i, node in enumerate(nodes)}
    connected: nx.Graph[Node] = nx.Graph()
    connected.add_nodes_from(nodes)
    shared: dict[Value, Node] = {}
    for node in nodes:
        for value in node.inputs:
            if value is None or value.is_constant:
                continue
            if value.producer in index:
                connected.add_edge(value.producer, node)
            elif value in shared:
                connected.add_edge(shared[value], node)
            else:
                shared[value] = node
    components = [sorted(c, key=index.__getitem__) for c in nx.connected_components(connected)]
    return sorted(components, key=lambda component: index[component[0]])


def _explain(clusters: list[Cluster], phases: dict[Node, int], report: FusionReport) -> None:
    for part in clusters:
        if not part.vendor:
            continue
        for node in part.nodes:
            for value in node.inputs:
                producer = None if value is None else value.producer
                if producer is not None and phases[producer] != part.phase:
                    report.decisions.append(
                        Decision(
                            f"{producer.name} -> {node.name}",
                            Verdict.SEPARATE,
                            f"{node.attrs.get('op', 'vendor')} runs on the vendor library",
                        )
                    )
