"""What comes behind an `If` whose branches give tensors of different ranks, as a part of both branches.

Nobody knows a rank behind such an `If`, and kernels cannot be made there; within a branch all ranks are known. So the
operators that rest on its results go into either branch, once each:

    z = If(c) <x squeezed, x>; y = f(z)    ->    y = If(c) <f(x squeezed), f(x)>

In: the `If`, and what comes behind it in its graph, in order. Out: another `If`, and what is left behind. Nothing where
branches do not differ so, or nothing rests on that.

Invariant: no graph but the new regions changes; operators in these read copies of what those that they stand for read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from dvm_graph.decompose.copies import Copies
from dvm_graph.decompose.regions import Deduced
from dvm_graph.ir import Graph, Node, Value

_MOST = 4000
"""Operators that are doubled, again and again inside of each other: all branches take time to compile."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The results of an `If` whose taken branch was put in its place: they are what that branch gives."""

    node: Node
    region: Graph

    @property
    def inputs(self) -> Sequence[Value | None]:
        return self.region.outputs

    @property
    def outputs(self) -> Sequence[Value]:
        return self.node.outputs


Behind: TypeAlias = "Sequence[Node | Opened]"


def continued(
    node: Node, deduced: Deduced, behind: Behind, graph: Graph, depth: int
) -> tuple[Node, Behind, Behind] | None:
    """An `If` that stands for `node` and all that rests on it, the latter, and what of `behind` is left, which comes
    before it; None: there is none. `depth`: how many bodies lie around the graph.
    """
    differing = _differing(node, deduced)
    if not differing:
        return None
    resting, rest = _resting(node, behind)
    read_there = (value for each in resting for value in each.inputs)
    if differing.isdisjoint(v for v in read_there if v is not None):
        return None
    if len(resting) << depth > _MOST:
        return None
    made = [*node.outputs, *(value for each in resting for value in each.outputs)]
    results = [value for value in made if value in graph.outputs]
    own = set(made)
    read = [
        value
        for each in resting
        for value in each.inputs
        if value is not None and value not in own and not value.is_constant
    ]
    captured = list(dict.fromkeys(value for value in (*node.inputs[1:], *read) if value))
    regions = tuple(
        _region(node, taken, resting, captured, results, graph) for taken in (True, False)
    )
    names = tuple(value.name for value in captured)
    whole = replace(
        node,
        name=graph.unique_name(node.name),
        inputs=(node.inputs[0], *captured),
        outputs=tuple(results),
        attrs={**node.attrs, "captures": names},
        source=b"",
        regions=regions,
    )
    return whole, resting, rest


def _differing(node: Node, deduced: Deduced) -> set[Value]:
    """Results that are tensors of other ranks in the other branch, or whose rank a branch within one tells."""
    return {
        result
        for result, type_ in zip(node.outputs, deduced.types, strict=False)
        if deduced.bodies and type_.of_open_rank
    }


def _resting(node: Node, behind: Behind) -> tuple[list[Node | Opened], list[Node | Opened]]:
    """What rests on the results of a node, and what does not."""
    results, resting, rest = set(node.outputs), [], []
    for each in behind:
        if results.isdisjoint(v for v in each.inputs if v is not None):
            rest.append(each)
        else:
            resting.append(each)
            results.update(each.outputs)
    return resting, rest


def _region(
    node: Node,
    taken: bool,
    resting: Behind,
    captured: Sequence[Value],
    results: Sequence[Value],
    graph: Graph,
) -> Graph:
    """A branch of the `If` as one of a constant condition, and what rests on it."""
    region = graph.new_region(node.regions[0 if taken else 1].name)
    copies = Copies(region)
    copies.capture(captured)
    condition = region.constant(np.array(taken), f"{node.name}.taken")
    copies.add(node, [condition, *map(copies.read, node.inputs[1:])])
    for each in resting:
        if isinstance(each, Opened):
            copies.bind(each.outputs, map(copies.read, each.inputs))
        else:
            copies.add(each)
    return copies.finish(results)
