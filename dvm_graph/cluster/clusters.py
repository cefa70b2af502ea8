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

from collections.abc import Mapping
from typing import Any

from dvm_graph.cluster.prepare import prepare
from dvm_graph.cluster.subgraph import Cluster, ClusteredGraph, FusionReport
from dvm_graph.ir import Graph, Node, Value
from dvm_graph.rules import Decision, Verdict
from dvm_graph.symbolic.binders import find_binders, needed_symbols


def cluster(graph: Graph) -> ClusteredGraph:
    """Groups the operators; `graph` is prepared for fusion in place."""
    prepare(graph)
    report = FusionReport()
    order = graph.sorted_nodes()
    phases = _phases(graph, order)
    clusters: list[Cluster] = []
    for phase, nodes in sorted(_by_phase(order, phases).items()):
        for component in _components(nodes, vendor=phase % 2 == 1):
            clusters.append(Cluster(len(clusters), phase, phase % 2 == 1, tuple(component)))
    _explain(clusters, phases, report)
    return ClusteredGraph(graph, tuple(clusters), report)


def _phases(graph: Graph, order: list[Node]) -> dict[Node, int]:
    binders = find_binders(graph, order)
    phases = dict.fromkeys(order, 0)
    for _ in range(2 * len(binders) + 1):
        if not _raise_phases(graph, order, binders, phases):
            break
    _wait_for_readers(graph, order, phases)
    return phases


def _wait_for_readers(graph: Graph, order: list[Node], phases: dict[Node, int]) -> None:
    """Moves operators of a phase that only later kernels read to the first of those, with which they may fuse.

    Whole components move, or none of their operators: what is fused within a phase stays so.
    """
    waiting = _by_phase(order, phases)
    if len(waiting) == 1:
        return
    for phase in sorted(waiting, reverse=True):
        if phase % 2 == 1:
            continue
        for component in _components(waiting[phase], vendor=False):
            inside = set(component)
            values = [value for node in component for value in node.outputs]
            readers = {user for value in values for user in graph.users(value)} - inside
            later = min((phases[reader] for reader in readers), default=phase)
            if any(map(graph.is_output, values)) or any(reader.is_call for reader in readers):
                continue
            phases.update(dict.fromkeys(component, later))


def _by_phase(order: list[Node], phases: Mapping[Node, int]) -> dict[int, list[Node]]:
    """The operators of each phase, in order."""
    found: dict[int, list[Node]] = {}
    for node in order:
        found.setdefault(phases[node], []).append(node)
    return found


def _raise_phases(
    graph: Graph, order: list[Node], binders: Mapping[Any, Node], phases: dict[Node, int]
) -> bool:
    """One walk over the operators; True if some phase grew. A binder may come later in the order than
    an operator that needs its symbol, and then it takes another walk.
    """
    grew = False
    joined = _joined(graph, order, binders, phases) if binders else {}
    for node in order:
        vendor = node.is_call
        phase = max(phases[node], int(vendor))
        needed = [v.producer for v in node.inputs if v is not None]
        if binders:
            needed += [binders.get(symbol) for symbol in needed_symbols(node)]
        for other in needed:
            if other is not None and other is not node:
                phase = max(phase, _after(phases[other], vendor))
        for value in node.outputs if binders else ():
            for user in graph.users(value):
                if user.op == "concat":
                    phase = max(phase, _after(joined[user], vendor))
        grew |= phase > phases[node]
        phases[node] = phase
    return grew


def _joined(
    graph: Graph, order: list[Node], binders: Mapping[Any, Node], phases: Mapping[Node, int]
) -> dict[Node, int]:
    """Of each concat, the phase of what binds its extents, or those of concats that it is stored into: the buffers of
    what is stored there have to have a known size by then.
    """
    joined: dict[Node, int] = {}
    for node in reversed(order):
        if node.op == "concat":
            binding = (binders.get(symbol) for symbol in needed_symbols(node))
            outer = [joined[user] for user in graph.users(node.output) if user.op == "concat"]
            joined[node] = max([0, *outer, *(phases[each] for each in binding if each)])
    return joined


def _after(phase: int, vendor: bool) -> int:
    return phase if phase % 2 == vendor else phase + 1


def _components(nodes: list[Node], vendor: bool) -> list[list[Node]]:
    """Connected components in topological order; vendor operators stay together."""
    if vendor:
        return [nodes]
    earlier = list(range(len(nodes)))  # a node of the same component: the first ends at itself

    def first(at: int) -> int:
        while earlier[at] != at:
            earlier[at] = at = earlier[earlier[at]]
        return at

    index = {node: i for i, node in enumerate(nodes)}
    shared: dict[Value, int] = {}
    for at, node in enumerate(nodes):
        for value in node.inputs:
            if value is None or value.data is not None:
                continue
            other = index.get(value.producer) if value.producer is not None else None
            one, two = first(at), first(shared.setdefault(value, at) if other is None else other)
            earlier[max(one, two)] = min(one, two)
    components: dict[int, list[Node]] = {}
    for at, node in enumerate(nodes):
        components.setdefault(first(at), []).append(node)
    return list(components.values())


_CALLED = {
    "vendor": "{} runs on the vendor library",
    "control": "{} is control flow: its bodies are programs of their own",
    "host": "{} is carried out by the host",
}


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
                            _CALLED[node.op].format(node.attrs.get("op", "vendor")),
                        )
                    )
