"""What clustering hands on: clusters, fused subgraphs and the record of decisions."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from dvm_graph.cluster.axes import AxisSpace
from dvm_graph.cluster.node_axes import NodeAxes
from dvm_graph.ir import OPERATORS, Dim, Graph, Kind, Node, Value
from dvm_graph.records import record
from dvm_graph.rules import Decision


class SubgraphKind(enum.Enum):
    VECTOR = "vector"
    CUBE = "cube"
    MIX = "mix"
    ALIAS = "alias"
    """Reshapes of something in memory: no kernel, the same bytes."""
    JOIN = "join"
    """A concat: no kernel, its operands are stored in place."""
    DIMS = "dims"
    """Dims that the host writes into a tensor."""

    @property
    def is_kernel(self) -> bool:
        return self in (SubgraphKind.VECTOR, SubgraphKind.CUBE, SubgraphKind.MIX)


@record(frozen=True, slots=True)
class Axes:
    """The axis atoms of the operators of a subgraph."""

    space: AxisSpace
    nodes: dict[Node, NodeAxes]


@record(frozen=True, slots=True, eq=False)
class FusedSubgraph:
    """The operators of one meta-kernel."""

    name: str
    kind: SubgraphKind
    nodes: tuple[Node, ...]
    """Topological."""
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    """Values that have to be stored."""
    axes: Axes
    guards: tuple[Dim, ...] = ()
    """Conditions (0 or 1) that have to hold in a run, else the fallback runs."""
    fallback: tuple[FusedSubgraph, ...] = ()
    """The same operators in kernels that need less; empty: the run-time compiler takes the kernel apart where it must."""

    weighed: bool = False
    """The fallback runs where it is predicted to be faster, too."""
    pattern: object = field(default_factory=object)
    """One for all subgraphs of a structure (`cluster.repeats`)."""

    @property
    def origin(self) -> tuple[str, ...]:
        """Names of the ONNX nodes, each once."""
        return tuple(dict.fromkeys(name for node in self.nodes for name in node.origin))


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """A convex group of operators of one kind: for kernels, or for the vendor library."""

    index: int
    phase: int
    """Clusters of one phase are independent of each other, and need only those of lower ones."""
    vendor: bool
    nodes: tuple[Node, ...]


@dataclass(slots=True)
class FusionReport:
    """Every decision with its reason, and what came out."""

    decisions: list[Decision] = field(default_factory=list)
    subgraphs: list[FusedSubgraph] = field(default_factory=list)
    vendor: list[Node] = field(default_factory=list)
    basic_operators: int = 0
    """Operators that would be kernels of their own without fusion."""


@dataclass(frozen=True, slots=True, eq=False)
class ClusteredGraph:
    graph: Graph
    clusters: tuple[Cluster, ...]
    report: FusionReport


@dataclass(frozen=True, slots=True, eq=False)
class FusedGraph:
    graph: Graph
    clusters: tuple[Cluster, ...]
    subgraphs: dict[Cluster, tuple[FusedSubgraph, ...]]
    """Of the clusters that are not the vendor's, in topological order."""
    report: FusionReport


def is_inner(graph: Graph, value: Value) -> bool:
    """An ONNX operator computes it for itself alone: whatever reads it, be it through views, belongs to it."""
    assert value.producer is not None
    origin = set(value.producer.origin)
    reached = [value]
    for at in reached:
        for user in graph.users(at):
            if OPERATORS[user.op].kind is Kind.VIEW:
                reached.append(user.output)
            elif user.is_call or origin.isdisjoint(user.origin):
                return False
    return not any(graph.is_output(at) for at in reached)
