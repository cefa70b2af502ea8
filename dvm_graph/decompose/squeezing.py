"""Squeeze without axes, where only the run tells which dims are 1, as branches by which of them are.

In: the node and its operands. Out: ONNX nodes for it, an `If` last, which write the node's result and are not added to
any graph. Nothing where the axes that go are known, or too many are not.

    y = Squeeze(x[a, b, 1])    ->    y = If(a == 1) <If(b == 1) <Squeeze(x, 0, 1, 2), Squeeze(x, 0, 2)>,
                                                     If(b == 1) <Squeeze(x, 1, 2), Squeeze(x, 2)>>

What rests on it goes into the branches (`continuations`): within one, the rank is known.
"""

from __future__ import annotations

from collections.abc import Sequence

from dvm_graph.decompose.nodes import Nodes
from dvm_graph.decompose.operands import elements, integers, operand
from dvm_graph.decompose.registry import Operands
from dvm_graph.ir import Graph, Node, Shape, Value
from dvm_graph.symbolic import Facts
from dvm_graph.symbolic.proofs import Answer


def names_no_axes(operands: Operands) -> bool:
    """Whether a Squeeze takes away all dims of 1: no axes are given, or none are among them."""
    return operand(operands, 1) is None or integers(elements(operands, 1)) == ()


def axes_of_one(shape: Shape, facts: Facts) -> tuple[Sequence[int], Sequence[int]]:
    """Which axes have one element, and which may have."""
    answers = [facts.prove_one(dim).answer for dim in shape]
    sure, open_ = (
        [axis for axis, answer in enumerate(answers) if answer is wanted]
        for wanted in (Answer.YES, Answer.UNKNOWN)
    )
    return sure, open_


def as_branches(
    node: Node, operands: Operands, facts: Facts, graph: Graph, most_open: int
) -> list[Node] | None:
    """Nodes that stand for a Squeeze of which at most so many axes may go or stay; None: it is none such."""
    x = operand(operands, 0)
    if node.domain or node.op != "Squeeze" or x is None or not x.computable:
        return None
    if not names_no_axes(operands):
        return None
    sure, open_ = axes_of_one(x.shape or (), facts)
    if not 0 < len(open_) <= most_open:
        return None
    given = node.inputs[0]
    assert given is not None
    around = Nodes(node, graph)
    _branch(around, given, list(open_), sure, node.outputs[0])
    return around.nodes


def _branch(
    around: Nodes, x: Value, open_: Sequence[int], gone: Sequence[int], result: Value
) -> None:
    """Adds what takes the axes `gone` away, and those of `open_` that have one element."""
    if not open_:
        inputs = [x, around.constant(sorted(gone))] if gone else [x]
        around.add("Squeeze" if gone else "Identity", inputs, [result], {})
        return
    axis, *others = open_
    extent = around.op("Shape", x, start=axis, end=axis + 1)
    one = around.op("Equal", extent, around.constant([1]))
    regions = tuple(_region(around, x, others, left) for left in ([*gone, axis], gone))
    attrs = {"regions": ("then_branch", "else_branch"), "captures": (x.name,)}
    around.add("If", (one, x), [result], attrs, regions)


def _region(around: Nodes, x: Value, open_: Sequence[int], gone: Sequence[int]) -> Graph:
    inside = Nodes(around.about, around.graph.new_region(f"{around.about.name}.axes"))
    given, result = Value(inside.graph.unique_name(x.name), x.dtype), inside.value("squeezed")
    _branch(inside, given, open_, gone, result)
    inside.graph.inputs = [given]
    inside.settle()
    inside.graph.outputs, inside.graph.output_names = [result], (result.name,)
    return inside.graph
