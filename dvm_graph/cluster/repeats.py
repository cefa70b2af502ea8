"""Finds subgraphs that are equal but for the names of their values: networks repeat their layers.

In: subgraphs in the order they are made. Out: the same, those of one *structure* with one `pattern`: they hold the
same operators with the same attributes and dims, linked, stored and iterated alike. What follows from that alone
is worked out for the first of them: fallbacks, which are renamed here, and plans (`kernels.repeats`).

Invariants: nothing is guessed. Structures are compared whole, and hold everything that fallbacks are made from;
what else a step looks at, it has to compare itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from dvm_graph.cluster.axes import Atom, Layout
from dvm_graph.cluster.subgraph import Axes, FusedSubgraph
from dvm_graph.ir import Node, Value

Renaming: TypeAlias = dict[Any, Any]
"""The nodes and values of a subgraph, to those in the same places of another."""
Fallback: TypeAlias = tuple[FusedSubgraph, ...]


class Repeats:
    """The first subgraph of each structure."""

    def __init__(self) -> None:
        self._first: dict[Hashable, FusedSubgraph] = {}
        """By outline, until another one has it."""
        self._alike: dict[Hashable, dict[Hashable, FusedSubgraph]] = {}
        """By outlines that several have, and structure."""

    def complete(
        self, subgraph: FusedSubgraph, fallback: Callable[[], Fallback], *how: Hashable
    ) -> FusedSubgraph:
        """The subgraph with its fallback, which follows from its structure and from `how`."""
        outline = (how, subgraph.kind, subgraph.guards, subgraph.weighed, _outline(subgraph))
        if outline not in self._first:
            self._first[outline] = replace(subgraph, fallback=fallback())
            return self._first[outline]
        if outline not in self._alike:
            other = self._first[outline]
            self._alike[outline] = {_structure(other): other}
        alike, structure = self._alike[outline], _structure(subgraph)
        first = alike.get(structure)
        if first is None:
            alike[structure] = replace(subgraph, fallback=fallback())
            return alike[structure]
        names = renaming(first.nodes, subgraph.nodes)
        parts = tuple([_renamed(part, names) for part in first.fallback])
        return replace(subgraph, fallback=parts, pattern=first.pattern)


def renaming(old: Sequence[Node], new: Sequence[Node]) -> Renaming:
    """From the operators of a subgraph to those of another one of its structure."""
    names: Renaming = {}
    for node, other in zip(old, new, strict=True):
        names[node] = other
        names.update(zip(node.inputs, other.inputs, strict=True))
        names.update(zip(node.outputs, other.outputs, strict=True))
    return names


def _renamed(subgraph: FusedSubgraph, names: Renaming) -> FusedSubgraph:
    """The same subgraph over other values; its axes are the same."""
    axes = subgraph.axes
    return replace(
        subgraph,
        nodes=tuple([names[node] for node in subgraph.nodes]),
        inputs=tuple([names[value] for value in subgraph.inputs]),
        outputs=tuple([names[value] for value in subgraph.outputs]),
        axes=Axes(axes.space, {names[node]: own for node, own in axes.nodes.items()}),
        fallback=tuple([_renamed(part, names) for part in subgraph.fallback]),
    )


def _outline(subgraph: FusedSubgraph) -> Hashable:
    """What structures that are equal have in common, and others seldom."""
    return tuple([(node.op, node.outputs[0].shape) for node in subgraph.nodes])


def _structure(subgraph: FusedSubgraph) -> Hashable:
    """Everything about a subgraph but names; values and atoms are numbered as they are met."""
    space, values, atoms = subgraph.axes.space, _Numbers(), _Numbers()

    def flat(axis: Sequence[Atom]) -> tuple[int, ...]:
        return tuple([atoms[atom] for atom in space.resolve(axis)])

    def layout(axes: Layout | None) -> Hashable:
        return None if axes is None else tuple([flat(axis) if axis else () for axis in axes])

    operators = []
    for node in subgraph.nodes:
        axes = subgraph.axes.nodes[node]
        operators.append(
            (
                node.op,
                node.frozen_attrs,
                tuple([values[value] for value in node.inputs]),
                tuple([values[value] for value in node.outputs]),
                layout(axes.result),
                tuple([layout(operand) for operand in axes.operands]),
                axes.maybe,
                flat(axes.reduced),
                flat(axes.domain),
            )
        )
    return (
        tuple(operators),
        tuple([_described(value) for value in values]),
        tuple([values[value] for value in subgraph.outputs]),
        tuple([space.extent(atom) for atom in atoms]),
    )


class _Numbers(dict[Any, int]):
    """Numbers things as they are first asked for."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number


def _described(value: Value | None) -> Hashable:
    return value and (value.dtype, value.shape, value.is_constant)
