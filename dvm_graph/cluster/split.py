"""Splits clusters into fused subgraphs by the table of patterns.

In: clusters of basic operators. Out: fused subgraphs, each of which becomes one meta-kernel, in
topological order, with fallbacks where a kernel may turn out not to fit.

The order of the sweeps is the policy: views go to the kernels that read them, and so does what widens
narrow integers; element-wise operators go into the matrix product before them; what is left of the vector operators merges along its edges;
reductions along the rows of a product follow, products whose rows the next one reads, or whose columns meet those of another one of
the same rows, and what else computes the rows that a product reads; views that no reader could take are stored by their producer;
kernels that read the same merge in the end. Every sweep visits groups in topological order, so the
result is deterministic.

Invariants: the quotient graph stays acyclic; an operator is in exactly one subgraph, but for those that kernels of a
fallback compute anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum

from dvm_graph.cluster.axes import AxisSpace
from dvm_graph.cluster.groups import Group, GroupGraph, make_group
from dvm_graph.cluster.meeting import GroupMeeting, SiblingMeeting
from dvm_graph.cluster.names import stem_of
from dvm_graph.cluster.node_axes import NodeAxes, describe
from dvm_graph.cluster.repeats import Repeats
from dvm_graph.cluster.subgraph import (
    Axes,
    Cluster,
    ClusteredGraph,
    FusedGraph,
    FusedSubgraph,
    SubgraphKind,
    is_inner,
)
from dvm_graph.ir import OPERATORS, Graph, Kind, Node, Value, widened
from dvm_graph.options import Options
from dvm_graph.records import record
from dvm_graph.rules import SIBLINGS, Decision, PartKind, Verdict, judge
from dvm_graph.symbolic import Facts
from dvm_graph.symbolic.dims import equal


def split_clusters(clusters: ClusteredGraph, facts: Facts, options: Options) -> FusedGraph:
    """Fuses the operators of each cluster."""
    graph, report = clusters.graph, clusters.report
    subgraphs: dict[Cluster, tuple[FusedSubgraph, ...]] = {}
    repeats = Repeats()
    for cluster in clusters.clusters:
        if cluster.vendor:
            report.vendor.extend(cluster.nodes)
            continue
        wanted = _used_outside(graph, cluster.nodes)
        splitter = _Splitter(
            graph, wanted, cluster.nodes, facts, options, repeats, report.decisions
        )
        subgraphs[cluster] = splitter.run()
        report.subgraphs.extend(s for s in subgraphs[cluster] if s.kind.is_kernel)
    report.basic_operators = sum(
        1
        for cluster in clusters.clusters
        for node in cluster.nodes
        if OPERATORS[node.op].kind not in (Kind.VIEW, Kind.UNPACK, Kind.SOURCE, Kind.CALL)
    )
    return FusedGraph(graph, clusters.clusters, subgraphs, report)


def _used_outside(graph: Graph, nodes: Sequence[Node]) -> set[Value]:
    """Results of these operators that others use, the vendor library too, or that the model returns."""
    inside = set(nodes)
    return {
        value
        for node in nodes
        for value in node.outputs
        if graph.is_output(value) or not graph.users(value) <= inside
    }


@record(frozen=True, slots=True)
class _Refusal:
    decision: Decision
    sizes: tuple[int, int]
    """Operators of both groups when they were judged: a group only changes by growing."""


def _sizes(producer: Group, consumer: Group) -> tuple[int, int]:
    return len(producer.nodes), len(consumer.nodes)


class _Rows(IntEnum):
    """What may stay in the kernel of a matrix product that reads its rows; a fallback allows less."""

    APART = 0
    PRODUCTS = 1
    PROLOGUES = 2
    """Products, and vector operators that compute the A operand."""


class _Splitter:
    """Fuses the operators of one cluster."""

    def __init__(
        self,
        graph: Graph,
        wanted: set[Value],
        nodes: Sequence[Node],
        facts: Facts,
        options: Options,
        repeats: Repeats,
        decisions: list[Decision],
        speculate: bool = True,
        rows: _Rows = _Rows.PROLOGUES,
    ) -> None:
        self._graph, self._wanted = graph, wanted
        self._facts, self._options = facts, options
        self._repeats, self._decisions = repeats, decisions
        self._speculate, self._rows = speculate, rows
        self._space = AxisSpace(facts)
        self._axes: dict[Node, NodeAxes] = {node: describe(node, self._space) for node in nodes}
        self._groups = GroupGraph(make_group(n, self._axes[n], self._space) for n in nodes)
        self._refused: dict[tuple[Group, Group], _Refusal] = {}

    def run(self) -> tuple[FusedSubgraph, ...]:
        self._load_views()
        if self._options.fuse:
            self._load_widened()
            self._extend_cubes(reductions=False)
            self._merge_vectors()
            self._extend_cubes(reductions=True)
            if self._rows >= _Rows.PRODUCTS:
                self._chain_cubes()
            if self._rows >= _Rows.PROLOGUES:
                self._prepend_rows()
        self._store_views()
        if self._options.fuse:
            self._merge_siblings()
        self._decisions.extend(self._refusals())
        return tuple(self._finish(group) for group in self._groups.groups)

    def _refusals(self) -> Iterator[Decision]:
        """Refusals that stand: between operators that came to different groups in the end."""
        final = {node: group for group in self._groups.groups for node in group.nodes}
        for (producer, consumer), refusal in self._refused.items():
            if final[producer.nodes[-1]] is not final[consumer.nodes[-1]]:
                yield refusal.decision

    # -- sweeps

    def _load_views(self) -> None:
        """Relayouts join the one group that reads them."""
        for group in reversed(self._groups.groups):
            alone = group.kind is PartKind.VIEW and len(group.after) == 1
            if alone and self._wanted.isdisjoint(group.results):
                self._try_merge(group, next(iter(group.after)))

    def _load_widened(self) -> None:
        """What constants make of narrow integers joins the one group of vector operators that reads it: stored, it
        would take as many bytes again as it is wider.
        """
        widening = widened(self._axes)
        if not widening:
            return
        for group in reversed(self._groups.groups):
            alone = group.nodes[0] in widening and len(group.after) == 1
            if alone and self._wanted.isdisjoint(group.results):
                reader = next(iter(group.after))
                if reader.kind is PartKind.VECTOR:
                    self._try_merge(group, reader)

    def _extend_cubes(self, reductions: bool) -> None:
        """Element-wise operators after a matrix product become its epilogue; so may reductions, but
        only together with what they were merged with.
        """
        for cube in self._groups.groups:
            if cube.kind is PartKind.CUBE and cube in self._groups.position:
                while (grown := self._extend(cube, reductions)) is not None:
                    cube = grown

    def _extend(self, cube: Group, reductions: bool) -> Group | None:
        position = self._groups.position
        for consumer in sorted(cube.after, key=position.__getitem__):
            if consumer.kind is PartKind.CUBE or consumer.reduces != reductions:
                continue
            if not self._stands_refused(cube, consumer):
                merged = self._try_merge(cube, consumer)
                if merged is not None:
                    return merged
        return None

    def _stands_refused(self, producer: Group, consumer: Group) -> bool:
        """Neither has grown since the pair was refused."""
        refusal = self._refused.get((producer, consumer))
        return refusal is not None and refusal.sizes == _sizes(producer, consumer)

    def _merge_vectors(self) -> None:
        """Vector operators merge along their edges until nothing changes."""
        changed = True
        while changed:
            changed = False
            for group in self._groups.groups:
                if group.kind in (PartKind.VECTOR, PartKind.CUBE):
                    changed |= self._absorb_producers(group)

    def _absorb_producers(self, group: Group) -> bool:
        position = self._groups.position
        if group not in position:
            return False
        changed = False
        for producer in sorted(group.before, key=position.__getitem__, reverse=True):
            if producer.kind is PartKind.VECTOR and producer in group.before:
                if group.kind is PartKind.CUBE and self._feeds_matrix(producer, group):
                    continue  # what else could take it in comes first
                changed |= self._try_merge(producer, group) is not None
        return changed

    def _chain_cubes(self) -> None:
        """Rows of one matrix product, with what follows them, stay for the next one; or two of the same rows, with
        what follows the one and reads the other, are one kernel.
        """
        for producer, cube in self._before_cubes(PartKind.CUBE):
            feeds = self._feeds_matrix(producer, cube)
            merged = self._join_rows(producer, cube)
            if merged is not None:
                merged.chained |= feeds
                merged.beside |= not feeds

    def _prepend_rows(self) -> None:
        """Vector operators that compute the A operand of a matrix product become its prologue."""
        for producer, cube in self._before_cubes(PartKind.VECTOR):
            if self._feeds_matrix(producer, cube):
                merged = self._join_rows(producer, cube)
                if merged is not None:
                    merged.prologue = True

    def _join_rows(self, producer: Group, cube: Group) -> Group | None:
        """One kernel of two, which remembers them: it may turn out not to fit."""
        apart = [
            part
            for group in (producer, cube)
            for part in (
                group.apart if group.beside else (replace(group, inputs=dict(group.inputs)),)
            )
        ]
        merged = self._try_merge(producer, cube)
        if merged is not None:
            merged.apart = tuple(apart)
        return merged

    def _before_cubes(self, kind: PartKind) -> Iterator[tuple[Group, Group]]:
        """Matrix products behind groups of this kind; they may be merged meanwhile."""
        for cube in self._groups.groups:
            if cube.kind is PartKind.CUBE and cube in self._groups.position:
                for producer in list(cube.before):
                    if producer.kind is kind and producer in cube.before:
                        yield producer, cube

    def _store_views(self) -> None:
        """What no reader could take in is arranged by the store of its producer."""
        for group in self._groups.groups:
            if group.kind is PartKind.VIEW and group in self._groups.position:
                for producer in list(group.before):
                    if producer.kind in (PartKind.VECTOR, PartKind.CUBE):
                        self._try_merge(producer, group)

    def _merge_siblings(self) -> None:
        """Vector operators merge with others that read the same tensor at the same points."""
        readers: dict[Value, Group] = {}
        for group in self._groups.groups:
            if group.kind is not PartKind.VECTOR:
                continue
            for value in list(group.inputs):
                sibling = readers.get(value)
                if sibling in self._groups.position and sibling is not group:
                    assert sibling is not None
                    self._try_merge(sibling, group, SIBLINGS)
            readers.update((value, group) for value in group.inputs if not value.is_constant)

    # -- one merge

    def _try_merge(self, producer: Group, consumer: Group, pattern: str = "") -> Group | None:
        meeting = self._meeting(producer, consumer, pattern)
        ruling = judge(meeting, pattern)
        subject = f"{producer.name} -> {consumer.name}"
        decision = Decision(subject, ruling.verdict, ruling.reason, ruling.symbols)
        if ruling.verdict not in (Verdict.PATTERN, Verdict.SPECULATE):
            refusal = _Refusal(decision, _sizes(producer, consumer))
            if pattern:  # what was said of the one feeding the other stands
                self._refused.setdefault((producer, consumer), refusal)
            else:
                self._refused[producer, consumer] = refusal
            return None
        self._decisions.append(decision)
        meeting.commit()
        if producer.kind is PartKind.VIEW and meeting.needs_memory():
            for node in producer.nodes:
                self._axes[node].memory = (True,)
        kind = consumer.kind if producer.kind is PartKind.VIEW else producer.kind
        if PartKind.CUBE in (producer.kind, consumer.kind):
            kind = PartKind.CUBE
        merged = self._groups.merge(producer, consumer, self._wanted)
        merged.kind = kind
        merged.spaces = meeting.spaces
        merged.guards.extend(meeting.guards)
        return merged

    def _meeting(self, producer: Group, consumer: Group, pattern: str = "") -> GroupMeeting:
        kind_of_meeting = SiblingMeeting if pattern == SIBLINGS else GroupMeeting
        return kind_of_meeting(
            producer,
            consumer,
            self._groups,
            self._space,
            self._axes,
            self._options.limits,
            self._wanted,
            self._speculate,
        )

    def _feeds_matrix(self, producer: Group, consumer: Group) -> bool:
        return self._meeting(producer, consumer).feeds_matrix()

    # -- results

    def _finish(self, group: Group) -> FusedSubgraph:
        inside = set(group.nodes)
        outputs = tuple(
            value
            for value in group.results
            if value in self._wanted or not self._graph.users(value) <= inside
        )
        kind = _kind_of(group)
        subgraph = FusedSubgraph(
            name=stem_of(group.nodes),
            kind=kind,
            nodes=tuple(group.nodes),
            inputs=tuple(group.inputs),
            outputs=outputs,
            axes=Axes(self._space, {node: self._axes[node] for node in group.nodes}),
            guards=tuple(equal(a, b) for a, b in group.guards),
            weighed=self._options.limits.weigh_resident and group.resident,
        )
        if not kind.is_kernel:
            return subgraph
        parts = None if group.parts is None else tuple(map(len, group.parts))
        how = self._speculate, self._rows, group.beside, group.chained, group.prologue, parts
        rounded = tuple(map(self._is_rounded, group.nodes))
        return self._repeats.complete(
            subgraph, lambda: self._fallback(group, kind, outputs), *how, rounded
        )

    def _fallback(
        self, group: Group, kind: SubgraphKind, outputs: tuple[Value, ...]
    ) -> tuple[FusedSubgraph, ...]:
        if not group.guards and (parts := self._whole_parts(group)):
            return tuple([self._finish(part) for part in parts])
        if group.guards or group.beside or group.chained or group.prologue:
            rows = self._rows
            if not group.guards:
                rows = _Rows.PRODUCTS if group.prologue else _Rows.APART
            judged: list[Decision] = []
            splitter = _Splitter(
                self._graph,
                set(outputs),
                group.nodes,
                self._facts,
                self._options,
                self._repeats,
                judged,
                speculate=self._speculate and not group.guards,
                rows=rows,
            )
            fused = splitter.run()
            self._decisions.extend(replace(decision, in_fallback=True) for decision in judged)
            return fused
        stored = set(outputs)
        if group.parts is not None:
            cube, rest = group.parts
            kind = SubgraphKind.MIX if len(cube) > 1 else SubgraphKind.CUBE
            vector = self._part(
                rest, SubgraphKind.VECTOR, stored | _used_outside(self._graph, rest)
            )
            fallback = self._cut_at_reductions(rest, set(vector.outputs))
            first = self._part(cube, kind, stored | _used_outside(self._graph, cube))
            return first, replace(vector, fallback=fallback)
        if group.reduces:
            return self._cut_at_reductions(group.nodes, stored)
        return ()

    def _whole_parts(self, group: Group) -> tuple[Group, ...]:
        """The kernels that one is instead of, where they are what fusing without that would give: the one took in
        nothing since, and their axes are as they were.
        """
        parts = group.apart
        if sum(len(part.nodes) for part in parts) < len(group.nodes):
            return ()
        kept = all(not part.prologue and self._iterates_as_before(part) for part in parts)
        return parts if kept else ()

    def _iterates_as_before(self, part: Group) -> bool:
        space = self._space
        return all(
            [space.extent(atom) for atom in space.resolve(atoms)]
            == [space.extent(atom) for atom in atoms]
            for atoms in part.spaces
        )

    def _cut_at_reductions(
        self, nodes: list[Node], stored: set[Value]
    ) -> tuple[FusedSubgraph, ...]:
        """The same operators in kernels that never use a reduction they computed."""
        levels = _levels(nodes)
        if max(levels.values()) == 0:
            return ()
        places = self._computed_at(nodes, levels, stored)
        parts: dict[int, list[Node]] = {
            level: [] for level in sorted(set().union(*places.values()))
        }
        for node in nodes:
            for level in places[node]:
                parts[level].append(node)
        wanted = stored.union(*(_read(part) for part in parts.values()))
        return tuple(self._part(part, SubgraphKind.VECTOR, wanted) for part in parts.values())

    def _computed_at(
        self, nodes: list[Node], levels: dict[Node, int], stored: set[Value]
    ) -> dict[Node, set[int]]:
        """The levels that operators are computed at: what costs no more than to be read back, at each that reads it."""
        places: dict[Node, set[int]] = {}
        for node in reversed(nodes):
            readers = [user for user in self._graph.users(node.output) if user in places]
            cheap = _is_as_cheap_as_read(node, levels) and not self._is_rounded(node)
            if readers and node.output not in stored and cheap:
                places[node] = set().union(*(places[reader] for reader in readers))
            else:
                places[node] = {levels[node]}
        return places

    def _is_rounded(self, node: Node) -> bool:
        """Memory holds another number than is computed anew: an extreme, say, is none of the numbers then."""
        dtype = node.output.dtype
        if not dtype.is_float or dtype.register is dtype:
            return False
        return OPERATORS[node.op].kind is Kind.MAP and not is_inner(self._graph, node.output)

    def _part(self, nodes: list[Node], kind: SubgraphKind, wanted: set[Value]) -> FusedSubgraph:
        """A kernel of these operators, which stores what is wanted of their results."""
        return FusedSubgraph(
            name=stem_of(nodes),
            kind=kind,
            nodes=tuple(nodes),
            inputs=_read(nodes),
            outputs=tuple(node.output for node in nodes if node.output in wanted),
            axes=Axes(self._space, {node: self._axes[node] for node in nodes}),
        )


def _read(nodes: Sequence[Node]) -> tuple[Value, ...]:
    """What operators read of others."""
    results = {value for node in nodes for value in node.outputs}
    read = dict.fromkeys(value for node in nodes for value in node.inputs)
    return tuple(value for value in read if value is not None and value not in results)


def _is_as_cheap_as_read(node: Node, group: Collection[Node]) -> bool:
    """Views, numbers, and element-wise operators of at most one value of their size, which lies in memory anyway."""
    kind = OPERATORS[node.op].kind
    if kind in (Kind.VIEW, Kind.SOURCE) or node.output.rank == 0:
        return True
    large = [
        value for value in node.inputs if value is not None and value.shape == node.output.shape
    ]
    return kind is Kind.MAP and len(large) <= 1 and all(_lies_in_memory(v, group) for v in large)


def _lies_in_memory(value: Value, group: Collection[Node]) -> bool:
    """It is no result of the group, or one of its reductions."""
    producer = value.producer
    while producer is not None and producer in group and OPERATORS[producer.op].kind is Kind.VIEW:
        producer = producer.required(0).producer
    return producer is None or producer not in group or OPERATORS[producer.op].kind is Kind.REDUCE


def _levels(nodes: Iterable[Node]) -> dict[Node, int]:
    """How many reductions lie before each operator, at most."""
    levels: dict[Node, int] = {}
    for node in nodes:
        level = 0
        for value in node.inputs:
            producer = None if value is None else value.producer
            if producer in levels:
                reduces = OPERATORS[producer.op].kind is Kind.REDUCE
                level = max(level, levels[producer] + reduces)
        levels[node] = level
    return levels


def _kind_of(group: Group) -> SubgraphKind:
    first = group.nodes[0]
    match group.kind:
        case PartKind.HOST:
            return SubgraphKind.JOIN if first.op == "concat" else SubgraphKind.DIMS
        case PartKind.VIEW:
            only_reshapes = all(node.op == "reshape" for node in group.nodes)
            return SubgraphKind.ALIAS if only_reshapes else SubgraphKind.VECTOR
        case PartKind.CUBE:
            return SubgraphKind.MIX if group.operators > 1 else SubgraphKind.CUBE
    return SubgraphKind.VECTOR
