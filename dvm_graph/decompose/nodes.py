"""ONNX nodes that stand for another one, before they are in a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dvm_graph.ir import DType, Graph, Node, Value

_VERSION = 21
"""The opset that the nodes are of."""


class Nodes:
    """Nodes of one graph, in order, that stand for `about`."""

    def __init__(self, about: Node, graph: Graph) -> None:
        self.about, self.graph = about, graph
        self.nodes: list[Node] = []

    def value(self, stem: str) -> Value:
        return Value(self.graph.unique_name(f"{self.about.name}.{stem}"), DType.OPAQUE)

    def constant(self, number: Any) -> Value:
        return self.graph.constant(np.array(number), f"{self.about.name}.constant")

    def settle(self) -> None:
        """Adds the nodes to the graph."""
        for node in self.nodes:
            self.graph.add(node)

    def op(self, op: str, *inputs: Value | None, **attrs: Any) -> Value:
        (result,) = self.add(op, inputs, [self.value(op)], attrs)
        return result

    def add(
        self,
        op: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
        attrs: dict[str, Any],
        regions: tuple[Graph, ...] = (),
    ) -> Sequence[Value]:
        self.nodes.append(
            Node(
                name=self.graph.unique_name(f"{self.about.name}.{op}"),
                op=op,
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                attrs=attrs,
                domain="",
                version=_VERSION,
                origin=self.about.origin,
                metadata=self.about.metadata,
                regions=regions,
            )
        )
        return outputs
