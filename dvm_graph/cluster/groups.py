"""Groups of operators on their way to become fused subgraphs, and their order.

Purpose: the mutable working state of `split_clusters`: which operators are together, what crosses
between groups, and a topological order of the groups that every merge keeps.

Invariants: the quotient graph of the groups is acyclic, and `order` is a topological order of it
(Pearce and Kelly's dynamic ordering: a merge reorders only what lies between the two).
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from dvm_graph.cluster.axes import Atom, Atoms, AxisSpace
from dvm_graph.cluster.node_axes import NodeAxes
from dvm_graph.ir import FOR_PRODUCTS, OPERATORS, RELAYOUTS, STRIDED, Dim, Kind, Node, Value
from dvm_graph.rules import PartKind


@dataclass(slots=True, eq=False)
class Group:
    """Operators that will share a kernel."""

    nodes: list[Node]
    kind: PartKind
    spaces: dict[Atoms, None]
    """The distinct iteration spaces of its operators, as flat atoms."""
    inputs: dict[Value, list[tuple[Node, int]]]
    """Uses of values from outside."""
    results: dict[Value, None]
    """Those that others use."""
    operators: int
    """Those that compute."""
    reduces: bool = False
    gathers: bool = False
    guards: list[tuple[Dim, Dim]] = field(default_factory=list)
    """Pairs of dims that must be equal for the group to be valid."""
    parts: tuple[list[Node], list[Node]] | None = None
    """Row-resident kernels: the operators of the cube kernel and the others, if it does not fit."""
    beside: bool = False
    """Holds several products of the same rows."""
    chained: bool = False
    """Holds the product that computes the A operand of another one."""
    prologue: bool = False
    """Vector operators compute the A operand of its product, or of the first of two."""
    apart: tuple[Group, ...] = ()
    """Those that became one so that rows, or the products beside others, need not be stored, as they were."""
    before: dict[Group, None] = field(default_factory=dict)
    after: dict[Group, None] = field(default_factory=dict)

    @property
    def resident(self) -> bool:
        """Keeps in local memory what could lie in global memory: whole rows, or products beside others."""
        return self.beside or self.chained or self.prologue or self.parts is not None

    @property
    def name(self) -> str:
        return self.nodes[-1].name


def kind_of(node: Node) -> PartKind:
    if node.op in RELAYOUTS or node.op in STRIDED or node.op in FOR_PRODUCTS:
        return PartKind.VIEW
    if node.op == "matmul":
        return PartKind.CUBE
    if node.op == "concat" or is_host_dims(node):
        return PartKind.HOST
    return PartKind.VECTOR


def is_host_dims(node: Node) -> bool:
    """Dims of several elements are written by the host, a single one is a scalar of a kernel."""
    return node.op == "dims" and len(node.attrs["elements"]) != 1


def make_group(node: Node, axes: NodeAxes, space: AxisSpace) -> Group:
    kind = kind_of(node)
    flat = space.resolve(axes.domain) if axes.domain else space.flat(axes.result)
    inputs: dict[Value, list[tuple[Node, int]]] = {}
    for index, value in enumerate(node.inputs):
        if value is not None:
            inputs.setdefault(value, []).append((node, index))
    return Group(
        nodes=[node],
        kind=kind,
        spaces={flat: None},
        inputs=inputs,
        results=dict.fromkeys(node.outputs),
        operators=0 if kind in (PartKind.VIEW, PartKind.HOST) else 1,
        reduces=OPERATORS[node.op].kind is Kind.REDUCE,
        gathers=node.op == "gather",
    )


class GroupGraph:
    """The groups, who depends on whom, and a topological order."""

    def __init__(self, groups: Iterable[Group]) -> None:
        """`groups` come in topological order."""
        self.at: list[Group | None] = list(groups)
        self.position: dict[Group, int] = {}
        made: dict[Value, Group] = {}
        for index, group in enumerate(self.at):
            assert group is not None
            self.position[group] = index
            for value in group.inputs:
                producer = made.get(value)
                if producer is not None:
                    producer.after[group] = None
                    group.before[producer] = None
            for value in group.results:
                made[value] = group

    @property
    def groups(self) -> list[Group]:
        """All groups in topological order."""
        return [group for group in self.at if group is not None]

    def detour(self, producer: Group, consumer: Group) -> Group | None:
        """A group on another path from `producer` to `consumer`, which forbids merging them."""
        limit = self.position[consumer]
        seen = {producer}
        stack = [group for group in producer.after if group is not consumer]
        while stack:
            group = stack.pop()
            if group in seen or self.position[group] > limit:
                continue
            seen.add(group)
            if consumer in group.after:
                return group
            stack.extend(group.after)
        return None

    def depends(self, first: Group, second: Group) -> bool:
        """Whether a path, of one edge or more, leads from one of the groups to the other."""
        if self.position[first] > self.position[second]:
            first, second = second, first  # the order is topological
        return second in first.after or self.detour(first, second) is not None

    def between(self, producer: Group, consumer: Group) -> dict[Group, None]:
        """Groups after `producer` in the graph and before `consumer` in the order."""
        limit = self.position[consumer]
        found: dict[Group, None] = {}
        stack = [group for group in producer.after if group is not consumer]
        while stack:
            group = stack.pop()
            if group not in found and self.position[group] < limit:
                found[group] = None
                stack.extend(group.after)
        return found

    def merge(self, producer: Group, consumer: Group, wanted: Set[Value]) -> Group:
        """One group of both, in the place of `consumer`; there must be no detour.

        `wanted` are values that others than the groups use. The caller sets `kind` and `spaces`.
        """
        self._reorder(producer, consumer)
        others = [group for group in producer.after if group is not consumer]
        results = {
            value: None
            for value in producer.results
            if value in wanted or any(value in group.inputs for group in others)
        }
        consumer.parts = _parts(producer, consumer)
        consumer.nodes = producer.nodes + consumer.nodes
        consumer.operators += producer.operators
        consumer.reduces |= producer.reduces
        consumer.gathers |= producer.gathers
        consumer.beside |= producer.beside
        consumer.chained |= producer.chained
        consumer.prologue |= producer.prologue
        consumer.guards = producer.guards + consumer.guards
        for value, uses in producer.inputs.items():
            consumer.inputs.setdefault(value, [])[:0] = uses
        for value in producer.results:
            consumer.inputs.pop(value, None)
        consumer.results = results | consumer.results
        for group in producer.before:
            del group.after[producer]
            group.after[consumer] = None
            consumer.before[group] = None
        for group in producer.after:
            del group.before[producer]
            if group is not consumer:
                group.before[consumer] = None
                consumer.after[group] = None
        return consumer

    def _reorder(self, producer: Group, consumer: Group) -> None:
        """Moves what depends on `producer` behind `consumer`, and drops `producer`."""
        low, high = self.position.pop(producer), self.position[consumer]
        self.at[low] = None
        late = self.between(producer, consumer)
        if not late:
            return
        region = [g for g in self.at[low + 1 : high] if g is not None]
        order: list[Group | None] = [g for g in region if g not in late]
        order.append(consumer)
        order += [g for g in region if g in late]
        start = high + 1 - len(order)
        for index in range(low + 1, start):
            self.at[index] = None
        for index, group in enumerate(order, start):
            assert group is not None
            self.at[index] = group
            self.position[group] = index


def _parts(producer: Group, consumer: Group) -> tuple[list[Node], list[Node]] | None:
    """How a row-resident kernel divides into a cube kernel and vector operators."""
    if producer.parts is not None:
        return producer.parts[0], producer.parts[1] + consumer.nodes
    if consumer.parts is not None:
        return producer.nodes + consumer.parts[0], consumer.parts[1]
    if producer.kind is PartKind.CUBE and consumer.reduces:
        return producer.nodes, consumer.nodes
    return None


def atoms_of(spaces: Iterable[Atoms]) -> dict[Atom, None]:
    """All atoms of some spaces, in order of appearance."""
    return {atom: None for space in spaces for atom in space}
