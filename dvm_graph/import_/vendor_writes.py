"""What onnxruntime writes over: the statistics that a norm in training is given.

In: the graph of a model that onnxruntime is to run. Ensures: its norms in training are given copies.

    y, moved, v = BatchNormalization<training_mode = 1>(x, s, b, mean, v0)
    =>  copied = Where(ReduceSum(x) < ReduceSum(x), mean, mean)
        y, moved, v = BatchNormalization<training_mode = 1>(x, s, b, copied, v0)

The results of moved statistics lie where the operands do, unless they are results of the model: an array of the caller, a
constant, or what others read, too, would hold other numbers afterwards. A copy hangs on the run: one of a constant
would be computed once, and be written over in its turn.
"""

from __future__ import annotations

import onnx
from onnx import helper

from dvm_graph.import_.attributes import subgraphs

_STATISTICS = {3: "Less", 4: "Greater"}
"""The operands that are written over, and what their copies hang on: equal ones become one, too."""


def spare_statistics(graph: onnx.GraphProto) -> None:
    """Puts copies before norms in training, in subgraphs, too."""
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for body in subgraphs(node):
            spare_statistics(body)
        if _trains(node):
            nodes += _copies(node)
        nodes.append(node)
    if len(nodes) > len(graph.node):
        graph.node.clear()
        graph.node.extend(nodes)


def _trains(node: onnx.NodeProto) -> bool:
    return (
        node.op_type == "BatchNormalization"
        and not node.domain
        and len(node.input) > max(_STATISTICS)
        and any(a.name == "training_mode" and a.i for a in node.attribute)
    )


def _copies(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    stem = next(filter(None, node.output))
    total = f"{stem}.total"
    made = [helper.make_node("ReduceSum", [node.input[0]], [total], keepdims=0)]
    for at, compare in _STATISTICS.items():
        told, copied, given = f"{stem}.told{at}", f"{stem}.copied{at}", node.input[at]
        made.append(helper.make_node(compare, [total, total], [told]))
        made.append(helper.make_node("Where", [told, given, given], [copied]))
        node.input[at] = copied
    return made
