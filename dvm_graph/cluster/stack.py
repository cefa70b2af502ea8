"""Stacks fused subgraphs into launches: side by side where independent, else one after the other.

In: fused subgraphs by cluster. Out: a schedule of launches, host writes and vendor partitions.

Within a phase the kernels form stages. A stage takes the earliest kernels, in the order of the model,
whose producers all lie in earlier stages; the order of the model keeps lifetimes, and so memory, short.
Vector kernels that wait for nothing, such as masks and copies of caches, go to the last stage before
their readers, which find the results in the CPU's caches. Products do not: they often share operands.
Stages of one launch run one after the other with a barrier of the cores in between. So kernels that do
not wait for each other always share a stage, up to a limit, whatever they cost: that saves a barrier, and
cores that are done with one take tiles of the others (`npu/host/device.h`).

Invariants: a kernel follows all its producers; the schedule depends on the graph alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias

from dvm_graph.cluster.aliases import Aliases, find_aliases
from dvm_graph.cluster.subgraph import (
    Cluster,
    FusedGraph,
    FusedSubgraph,
    FusionReport,
    SubgraphKind,
)
from dvm_graph.ir import Graph, Node, Value
from dvm_graph.options import Options
from dvm_graph.rules import Decision, Verdict


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    stages: tuple[tuple[FusedSubgraph, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class VendorCall:
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ControlCall:
    node: Node


@dataclass(frozen=True, slots=True, eq=False)
class HostCall:
    """An operator that the host carries out."""

    node: Node


@dataclass(frozen=True, slots=True, eq=False)
class HostDims:
    """Dims operators whose tensors the host writes."""

    node: Node


Step: TypeAlias = Launch | VendorCall | ControlCall | HostCall | HostDims


@dataclass(slots=True, eq=False)
class Schedule:
    graph: Graph
    steps: list[Step]
    aliases: Aliases
    joins: list[Node]
    """Concats, whose operands are stored in place."""
    report: FusionReport


def stack(fused: FusedGraph, options: Options) -> Schedule:
    """Orders everything that runs."""
    everything = [(part.phase, s) for part in fused.clusters for s in fused.subgraphs.get(part, ())]
    aliases, copies = find_aliases(fused.graph, everything)
    schedule = Schedule(fused.graph, [], aliases, [], fused.report)
    phases: dict[int, list[Cluster]] = {}
    for part in fused.clusters:
        phases.setdefault(part.phase, []).append(part)
    for phase in sorted(phases):
        if phase % 2 == 1:
            for part in phases[phase]:
                schedule.steps += _calls(part.nodes)
            continue
        subgraphs = [
            replace(s, kind=SubgraphKind.VECTOR) if s in copies else s
            for part in phases[phase]
            for s in fused.subgraphs[part]
        ]
        _stack_phase(subgraphs, schedule, options)
    return schedule


def _calls(nodes: Iterable[Node]) -> Iterator[VendorCall | ControlCall | HostCall]:
    """Vendor operators that follow each other run in one call."""
    for op, group in groupby(nodes, lambda node: node.op):
        if op == "vendor":
            yield VendorCall(tuple(group))
        else:
            yield from map(HostCall if op == "host" else ControlCall, group)


def _stack_phase(subgraphs: list[FusedSubgraph], schedule: Schedule, options: Options) -> None:
    for subgraph in subgraphs:
        match subgraph.kind:
            case SubgraphKind.JOIN:
                schedule.joins.append(subgraph.nodes[0])
            case SubgraphKind.DIMS:
                schedule.steps.append(HostDims(subgraph.nodes[0]))
    stages = _stages(subgraphs, options, schedule.report)
    limit = options.limits.max_sequence if options.stack else 1
    for first in range(0, len(stages), limit):
        schedule.steps.append(Launch(tuple(stages[first : first + limit])))
        if first > 0 and options.stack:
            reason = f"the launch before holds {limit} stages (limits.max_sequence)"
            _explain(stages[first], Verdict.SEPARATE, reason, schedule.report)


def _stages(
    subgraphs: list[FusedSubgraph], options: Options, report: FusionReport
) -> list[tuple[FusedSubgraph, ...]]:
    width = options.limits.max_parallel if options.stack else 1
    ready_at = _Readiness(subgraphs)
    stages: list[list[FusedSubgraph]] = []
    waiting = ready_at.initial()
    movable = [subgraph for subgraph in waiting if subgraph.kind is SubgraphKind.VECTOR]
    while waiting:
        waiting.sort(key=ready_at.index.__getitem__)
        stage, waiting = waiting[:width], waiting[width:]
        stages.append(stage)
        if waiting and options.stack:
            reason = (
                f"independent, but the stage before holds {width} kernels (limits.max_parallel)"
            )
            _explain(waiting, Verdict.SEQUENCE, reason, report)
        for subgraph in stage:
            waiting.extend(ready_at.complete(subgraph))
    for subgraph in movable:
        _move_to_readers(subgraph, stages, ready_at, width)
    for stage in stages:
        if len(stage) > 1:
            _explain(stage, Verdict.PARALLEL, "independent: one stage", report)
    return [tuple(stage) for stage in stages if stage]


def _move_to_readers(
    subgraph: FusedSubgraph, stages: list[list[FusedSubgraph]], ready_at: _Readiness, width: int
) -> None:
    """Moves a kernel to the last stage before its readers that has room, if there is one."""
    stage_of = {other: i for i, stage in enumerate(stages) for other in stage}
    first = stage_of[subgraph]
    end = min((stage_of[reader] for reader in ready_at.readers(subgraph)), default=0)
    for later in range(end - 1, first, -1):
        if len(stages[later]) < width:
            stages[first].remove(subgraph)
            stages[later].append(subgraph)
            stages[later].sort(key=ready_at.index.__getitem__)
            return


def _explain(
    kernels: Iterable[FusedSubgraph], verdict: Verdict, reason: str, report: FusionReport
) -> None:
    names = ", ".join(subgraph.nodes[-1].name for subgraph in kernels)
    report.decisions.append(Decision(names, verdict, reason))


class _Readiness:
    """Counts for each kernel the producers that have not run; aliases and joins run at once."""

    def __init__(self, subgraphs: list[FusedSubgraph]) -> None:
        self.index = {subgraph: i for i, subgraph in enumerate(subgraphs)}
        produced: dict[Value, FusedSubgraph] = {}
        for subgraph in subgraphs:
            for node in subgraph.nodes:
                produced.update(dict.fromkeys(node.outputs, subgraph))
        self._after: dict[FusedSubgraph, list[FusedSubgraph]] = {s: [] for s in subgraphs}
        self._missing = dict.fromkeys(subgraphs, 0)
        for subgraph in subgraphs:
            producers = dict.fromkeys(produced[v] for v in subgraph.inputs if v in produced)
            self._missing[subgraph] = len(producers)
            for producer in producers:
                self._after[producer].append(subgraph)

    def initial(self) -> list[FusedSubgraph]:
        free = [subgraph for subgraph, missing in self._missing.items() if not missing]
        return self._through(free)

    def complete(self, subgraph: FusedSubgraph) -> list[FusedSubgraph]:
        """Kernels that become ready once this one is done."""
        free = []
        for follower in self._after[subgraph]:
            self._missing[follower] -= 1
            if not self._missing[follower]:
                free.append(follower)
        return self._through(free)

    def readers(self, subgraph: FusedSubgraph) -> Iterator[FusedSubgraph]:
        """Kernels that wait for this one, through aliases and joins."""
        for follower in self._after[subgraph]:
            if follower.kind.is_kernel:
                yield follower
            else:
                yield from self.readers(follower)

    def _through(self, free: list[FusedSubgraph]) -> list[FusedSubgraph]:
        kernels = []
        for subgraph in free:
            if subgraph.kind.is_kernel:
                kernels.append(subgraph)
            else:
                kernels.extend(self.complete(subgraph))
        return kernels
