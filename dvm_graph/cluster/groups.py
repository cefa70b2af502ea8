"""Groups of operators on their way to become fused subgraphs, and their order.

Purpose: the mutable working state of `split_clusters`: which operators are together, what crosses
between groups, and a topological order of the groups that every merge keeps.

Invariants: the quotient graph of the groups is acyclic, and `position` is a topological order of it
(a dynamic ordering: a merge moves only what depends on the one, or what the other depends on, whichever are found
sooner; what a group is looked for costs no more than the shorter way round).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence, Set
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
        self._order = _Order()
        self.position: Mapping[Group, int] = self._order.position
        self._readers: dict[Value, set[Group]] = {}
        """Of results of groups, the groups that read them."""
        made: dict[Value, Group] = {}
        for group in groups:
            self._order.append(group)
            for value in group.inputs:
                producer = made.get(value)
                if producer is not None:
                    producer.after[group] = None
                    group.before[producer] = None
                    self._readers.setdefault(value, set()).add(group)
            for value in group.results:
                made[value] = group

    @property
    def groups(self) -> list[Group]:
        """All groups in topological order."""
        return sorted(self.position, key=self.position.__getitem__)

    def is_read(self, value: Value, apart_from: Set[Group]) -> bool:
        """Whether a group reads a result, apart from some."""
        return not self._readers.get(value, apart_from) <= apart_from

    def detour(self, producer: Group, consumer: Group) -> Group | None:
        """A group on another path from `producer` to `consumer`, which forbids merging them: the last one."""
        if _ends_at(producer, consumer):
            return None
        ahead, back = _Ahead(self, producer, consumer), _Back(self, producer, consumer)
        while ahead.pending and back.pending:
            group = ahead.step()
            if group is not None and consumer in group.after:
                return group
            group = back.step()
            if group is not None and producer in group.before:
                return back.ends[group]
        return None

    def depends(self, first: Group, second: Group) -> bool:
        """Whether a path, of one edge or more, leads from one of the groups to the other."""
        if self.position[first] > self.position[second]:
            first, second = second, first  # the order is topological
        return second in first.after or self.detour(first, second) is not None

    def merge(self, producer: Group, consumer: Group, wanted: Set[Value]) -> Group:
        """One group of both, in the place of the one or the other; there must be no detour.

        `wanted` are values that others than the groups use. The caller sets `kind` and `spaces`.
        """
        self._reorder(producer, consumer)
        results, reader = dict[Value, None](), {consumer}
        for value in producer.results:
            if value in wanted or self.is_read(value, reader):
                results[value] = None
            if value in self._readers:
                self._readers[value].discard(consumer)
        for value in producer.inputs:
            readers = self._readers.get(value)
            if readers is not None and producer in readers:
                readers.remove(producer)
                readers.add(consumer)
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
        """Moves what depends on `producer` behind `consumer`, or both behind what `consumer` depends on, and drops `producer`."""
        if _ends_at(producer, consumer):
            self._order.remove(producer)
            return
        ahead, back = _Ahead(self, producer, consumer), _Back(self, producer, consumer)
        while ahead.pending and back.pending:
            ahead.step()
            back.step()
        if not ahead.pending:
            late = sorted(ahead.seen, key=self.position.__getitem__)
            self._order.move_behind(consumer, late)
        else:
            early = sorted(back.seen, key=self.position.__getitem__)
            self._order.move_behind(producer, [*early, consumer])
        self._order.remove(producer)


class _Order:
    """Groups in an order that changes: linked, and numbered, with room for others in between."""

    _ROOM = 1 << 128

    def __init__(self) -> None:
        self.position: dict[Group, int] = {}
        self._next: dict[Group | None, Group | None] = {None: None}
        self._previous: dict[Group | None, Group | None] = {None: None}
        """Before the first one, and behind the last one, there is None."""

    def append(self, group: Group) -> None:
        last = self._previous[None]
        self.position[group] = self._ROOM if last is None else self.position[last] + self._ROOM
        self._link(last, group)

    def remove(self, group: Group) -> None:
        self._unlink(group)
        del self.position[group]

    def move_behind(self, at: Group, groups: Sequence[Group]) -> None:
        """Puts some right behind another one, in their order."""
        for group in groups:
            self._unlink(group)
        behind = self._next[at]
        low = self.position[at]
        high = low + self._ROOM * (len(groups) + 1) if behind is None else self.position[behind]
        step = (high - low) // (len(groups) + 1)
        for group in groups:
            low += step
            self.position[group] = low
            self._link(at, group)
            at = group
        if not step:
            self._number_anew()

    def _number_anew(self) -> None:
        group, position = self._next[None], 0
        while group is not None:
            position += self._ROOM
            self.position[group] = position
            group = self._next[group]

    def _link(self, at: Group | None, group: Group) -> None:
        behind = self._next[at]
        self._next[at], self._next[group] = group, behind
        self._previous[group], self._previous[behind] = at, group

    def _unlink(self, group: Group) -> None:
        before, behind = self._previous.pop(group), self._next.pop(group)
        self._next[before], self._previous[behind] = behind, before


def _ends_at(producer: Group, consumer: Group) -> bool:
    """Nothing but `consumer` reads the one, as is mostly so."""
    return len(producer.after) == (consumer in producer.after)


class _Ahead:
    """Finds the groups behind `producer` that lie before `consumer` in the order, step by step."""

    def __init__(self, graph: GroupGraph, producer: Group, consumer: Group) -> None:
        self._position, self._limit = graph.position, graph.position[consumer]
        self.seen: dict[Group, None] = {}
        self.pending = [group for group in producer.after if group is not consumer]

    def step(self) -> Group | None:
        group = self.pending.pop()
        if group in self.seen or self._position[group] >= self._limit:
            return None
        self.seen[group] = None
        self.pending.extend(group.after)
        return group


class _Back:
    """Finds the groups before `consumer` that lie behind `producer` in the order, step by step."""

    def __init__(self, graph: GroupGraph, producer: Group, consumer: Group) -> None:
        self._position, self._limit = graph.position, graph.position[producer]
        self.seen: dict[Group, None] = {}
        self.pending = [group for group in consumer.before if group is not producer]
        self.ends = {group: group for group in self.pending}
        """Of each, the group right before `consumer` that it leads to."""

    def step(self) -> Group | None:
        group = self.pending.pop()
        if group in self.seen or self._position[group] <= self._limit:
            return None
        self.seen[group] = None
        for other in group.before:
            self.ends.setdefault(other, self.ends[group])
            self.pending.append(other)
        return group


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
    return dict.fromkeys(itertools.chain.from_iterable(spaces))
