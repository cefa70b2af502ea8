"""A Loop whose first turn gives states of other ranks than come to it, as that turn and a Loop of the others.

Exporters give a Loop placeholders for what its turns are the first to make, scalars for tensors of any rank. What turns
carry has one rank from the second turn on.

    y = Loop(m, c, s) <body>    ->    y = If(m > 0 and c) <body(0, s), then Loop(m - 1, ..) <body from 1 on>; s>

In: the Loop, its operands and what was deduced of it. Out: ONNX nodes for it, an `If` last, which write the node's results
and are not added to any graph; its condition is a constant where the first turn certainly comes. Nothing where ranks are
known as it is, were not known behind that turn either, or rows are collected: those of no turns have no shape to go on with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dvm_graph.decompose.copies import Copies
from dvm_graph.decompose.nodes import Nodes
from dvm_graph.decompose.regions import Deduced, Operands
from dvm_graph.ir import Graph, Node, Value

_BEHIND_FIRST = "behind_first"
"""An attribute of a Loop of the other turns: their states are of the ranks that they are of, or of none."""


def first_turn_apart(
    node: Node, operands: Operands, deduced: Deduced, graph: Graph
) -> list[Node] | None:
    """Nodes that stand for such a Loop, from operands of the ONNX graph; None: it is none."""
    if node.domain or node.op != "Loop" or node.attrs.get(_BEHIND_FIRST) or not deduced.bodies:
        return None
    states = node.own_operands - 2
    if deduced.collected or not any(type_.of_open_rank for type_ in deduced.types):
        return None
    most_turns, goes_on = operands[:2]
    certain = _holds(most_turns) and _holds(goes_on)
    around = Nodes(node, graph)
    captured = list(
        dict.fromkeys(value for value in node.inputs if value and not value.is_constant)
    )
    begins = around.constant(True) if certain else _begins(around, *node.inputs[:2])
    regions = (
        _turned(node, most_turns, captured, graph),
        _as_given(node, states, captured, graph),
    )
    attrs = {
        "regions": ("then_branch", "else_branch"),
        "captures": tuple(value.name for value in captured),
    }
    around.add("If", (begins, *captured), node.outputs, attrs, regions)
    return around.nodes


def _holds(value: Value | None) -> bool:
    """Of what a Loop counts down or goes on by: omitted is for ever."""
    return value is None or (
        value.data is not None and value.data.size == 1 and value.data.item() > 0
    )


def _begins(around: Nodes, most_turns: Value | None, goes_on: Value | None) -> Value:
    if most_turns is None:
        assert goes_on is not None
        return goes_on
    some = around.op("Greater", most_turns, around.constant(0))
    return some if goes_on is None else around.op("And", some, goes_on)


def _turned(node: Node, most_turns: Value | None, captured: Sequence[Value], graph: Graph) -> Graph:
    """The first turn, and the others behind it."""
    region = graph.new_region(f"{node.name}.turned")
    inside = Nodes(node, region)
    copies = Copies(region)
    copies.capture(captured)
    (body,) = node.regions
    counters = zip(body.inputs, (np.int64(0), True), strict=False)  # of the first turn: it comes
    first = [inside.constant(np.full(value.shape or (), number)) for value, number in counters]
    read = [copies.read(value) for value in node.inputs]
    goes_on, *made = _run(body, [*first, *read[2:]], copies)
    left = read[0]
    if most_turns is not None and most_turns.data is not None:
        left = inside.constant(most_turns.data - 1)
    elif left is not None:
        left = inside.op("Sub", left, inside.constant(1))
    around = read[2 + len(made) :]
    outside = tuple("" if value is None else value.name for value in around)
    attrs = {**node.attrs, "captures": outside, _BEHIND_FIRST: True}
    results = [copies.declared(value) for value in node.outputs]
    others = (_from_one_on(node, body, graph),)
    inside.add("Loop", [left, goes_on, *made, *around], results, attrs, others)
    inside.settle()
    return copies.finish(results)


def _as_given(node: Node, states: int, captured: Sequence[Value], graph: Graph) -> Graph:
    """No turn."""
    region = graph.new_region(f"{node.name}.as_given")
    copies = Copies(region)
    copies.capture(captured)
    inside = Nodes(node, region)
    results = [inside.op("Identity", copies.read(value)) for value in node.inputs[2 : 2 + states]]
    inside.settle()
    return copies.finish(results)


def _from_one_on(node: Node, body: Graph, graph: Graph) -> Graph:
    """The body of a turn whose number is one more than it is given."""
    region = graph.new_region(f"{node.name}.behind_first")
    copies = Copies(region)
    copies.capture(body.inputs)
    inside = Nodes(node, region)
    given = list(region.inputs)
    if body.users(body.inputs[0]) or body.is_output(body.inputs[0]):
        given[0] = inside.op("Add", given[0], inside.constant(np.int64(1)))
    inside.settle()
    return copies.finish(_run(body, given, copies))


def _run(body: Graph, given: Sequence[Value | None], copies: Copies) -> list[Value]:
    """What a body gives for values of the region, to which its nodes are copied."""
    copies.bind(body.inputs, given)
    for node in body.needed_nodes():
        copies.add(node)
    results = [copies.read(value) for value in body.outputs]
    assert all(results), "a body has results"
    return [value for value in results if value is not None]
