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

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
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
    free = ready_at.initial()
    movable = [subgraph for subgraph in free if subgraph.kind is SubgraphKind.VECTOR]
    waiting = [(ready_at.index[subgraph], 0, subgraph) for subgraph in free]  # a heap
    heapify(waiting)
    while waiting:
        taken = [heappop(waiting) for _ in range(min(width, len(waiting)))]
        late = [subgraph for _, since, subgraph in taken if since < len(stages)]
        if late and options.stack:
            reason = (
                f"independent, but the stage before holds {width} kernels (limits.max_parallel)"
            )
            _explain(late, Verdict.SEQUENCE, reason, report)
        stages.append([subgraph for *_, subgraph in taken])
        for subgraph in stages[-1]:
            for follower in ready_at.complete(subgraph):
                heappush(waiting, (ready_at.index[follower], len(stages), follower))
    _move_to_readers(movable, stages, ready_at, width)
    for stage in stages:
        if len(stage) > 1:
            _explain(stage, Verdict.PARALLEL, "independent: one stage", report)
    return [tuple(stage) for stage in stages if stage]


def _move_to_readers(
    movable: Iterable[FusedSubgraph],
    stages: list[list[FusedSubgraph]],
    ready_at: _Readiness,
    width: int,
) -> None:
    """Moves kernels to the last stage before their readers that has room, where there is one."""
    stage_of = {subgraph: i for i, stage in enumerate(stages) for subgraph in stage}
    first_readers = ready_at.first_readers(stage_of)
    below = list(range(-1, len(stages) - 1))
    """Of each stage, the next one to look for room in, should it have none."""
    for subgraph in movable:
        first = stage_of[subgraph]
        later = first_readers.get(subgraph, 0) - 1
        passed = []
        while later > first and len(stages[later]) >= width:
            passed.append(later)
            later = below[later]
        for stage in passed:
            below[stage] = later
        if later > first:
            stages[first].remove(subgraph)
            insort(stages[later], subgraph, key=ready_at.index.__getitem__)


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

    def first_readers(self, stage_of: Mapping[FusedSubgraph, int]) -> dict[FusedSubgraph, int]:
        """Of what kernels wait for, through aliases and joins, the first stage that they are in."""
        first: dict[FusedSubgraph, int] = {}
        for subgraph in reversed(self.index):
            stages = [
                stage_of[follower] if follower.kind.is_kernel else first[follower]
                for follower in self._after[subgraph]
                if follower.kind.is_kernel or follower in first
            ]
            if stages:
                first[subgraph] = min(stages)
        return first

    def _through(self, free: list[FusedSubgraph]) -> list[FusedSubgraph]:
        kernels = []
        for subgraph in free:
            if subgraph.kind.is_kernel:
                kernels.append(subgraph)
            else:
                kernels.extend(self.complete(subgraph))
        return kernels
