"""Small graphs of basic operators, and a dim parser that needs no symbols."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dvm_graph.ir import DType, Graph, Node, Value


@dataclass(frozen=True)
class Name:
    """A dim by its text."""

    text: str

    def __str__(self) -> str:
        return self.text


def basic_graph() -> Graph:
    """y = transpose(x) * scale, then a sum over the last axis."""
    graph = Graph("main")
    x = Value(graph.unique_name("x"), DType.FLOAT32, (Name("batch"), 3, Name("seq")))
    graph.inputs.append(x)
    scale = graph.constant(np.float32([0.125]).reshape(()), "scale")
    t = Value(graph.unique_name("t"), DType.FLOAT32, (Name("batch"), Name("seq"), 3))
    graph.add(
        Node("transpose", "transpose", (x,), (t,), {"perm": (0, 2, 1)}, origin=("/enc/T", "a b"))
    )
    scaled = Value(graph.unique_name("scaled"), DType.FLOAT32, t.shape)
    graph.add(Node("mul", "mul", (t, scale), (scaled,)))
    total = Value(graph.unique_name("total"), DType.FLOAT32, (Name("batch"), Name("seq"), 1))
    graph.add(Node("sum", "reduce_sum", (scaled,), (total,), {"axes": (2,)}))
    graph.outputs = [total]
    graph.output_names = ("out put",)
    return graph


def find(graph: Graph, op: str) -> Node:
    return next(node for node in graph.nodes if node.op == op)
