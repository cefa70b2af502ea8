"""Copies of ONNX nodes in a new region, as declared: what is deduced of them is another thing there.

In: a region that is being made, and nodes of other graphs. Out: these nodes again in it, with values of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dvm_graph.ir import Graph, Node, Value


class Copies:
    """Values of other graphs, and what they are in a region."""

    def __init__(self, region: Graph) -> None:
        self.region = region
        self._inside: dict[Value, Value] = {}

    def capture(self, values: Iterable[Value]) -> None:
        """Makes values the region's inputs behind those that it has."""
        for value in values:
            self._inside[value] = inside = self.declared(value)
            self.region.inputs.append(inside)

    def declared(self, value: Value) -> Value:
        """Another of the same type."""
        return replace(value, name=self.region.unique_name(value.name), producer=None)

    def bind(self, values: Iterable[Value], inside: Iterable[Value | None]) -> None:
        """Has values of the region stand for others; a None stands for what is omitted."""
        pairs = zip(values, inside, strict=True)
        self._inside.update((value, copy) for value, copy in pairs if copy is not None)

    def read(self, value: Value | None) -> Value | None:
        """What stands for a value: constants, and what is in the region already, for themselves."""
        return None if value is None else self._inside.get(value, value)

    def add(self, node: Node, inputs: Sequence[Value | None] | None = None) -> None:
        """Copies a node that reads these values of the region, or what stands for its operands."""
        if inputs is None:
            inputs = [self.read(value) for value in node.inputs]
        outputs = [self.declared(value) for value in node.outputs]
        self.bind(node.outputs, outputs)
        name = self.region.unique_name(node.name)
        self.region.add(replace(node, name=name, inputs=tuple(inputs), outputs=tuple(outputs)))

    def finish(self, results: Iterable[Value]) -> Graph:
        """The region, which gives what stands for these."""
        self.region.outputs = [value for result in results if (value := self.read(result))]
        self.region.output_names = tuple(value.name for value in self.region.outputs)
        return self.region
